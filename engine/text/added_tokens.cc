#include "engine/text/added_tokens.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/text/utf8.h"

namespace tandem {
namespace {

// UTS #18, Annex C, \w.
constexpr char kWordCharacter[] = "\\A[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]";

// The last whole character of text. REQUIRES UTF-8 that is not empty.
std::string_view LastCharacter(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return text.substr(begin);
}

int64_t WhiteSpaceAtEnd(std::string_view text) {
  const size_t size = text.size();
  while (!text.empty()) {
    const std::string_view last = LastCharacter(text);
    if (!IsWhiteSpace(NextUtf8(last).code_point)) break;
    text.remove_suffix(last.size());
  }
  return static_cast<int64_t>(size - text.size());
}

int64_t WhiteSpaceAtBegin(std::string_view text) {
  const size_t size = text.size();
  while (!text.empty()) {
    const Utf8Step step = NextUtf8(text);
    if (!IsWhiteSpace(step.code_point)) break;
    text.remove_prefix(step.length);
  }
  return static_cast<int64_t>(size - text.size());
}

}  // namespace

absl::StatusOr<AddedTokenMatcher> AddedTokenMatcher::Make(std::vector<AddedToken> tokens) {
  AddedTokenMatcher out;
  out.tokens_ = std::move(tokens);
  out.ends_.push_back(-1);
  bool single_words = false;
  for (size_t i = 0; i < out.tokens_.size(); ++i) {
    const AddedToken& token = out.tokens_[i];
    if (token.content.empty()) return InvalidArgument("added token ", token.id, " has no content");
    // A match must not begin or end inside a character.
    if (FindInvalidUtf8(token.content) >= 0) {
      return InvalidArgument("added token ", token.id, " is not UTF-8");
    }
    int32_t node = 0;
    for (const char c : token.content) {
      const uint64_t edge = (static_cast<uint64_t>(node) << 8) | static_cast<uint8_t>(c);
      const auto [child, is_new] =
          out.children_.try_emplace(edge, static_cast<int32_t>(out.ends_.size()));
      if (is_new) out.ends_.push_back(-1);
      node = child->second;
    }
    int32_t& slot = out.ends_[node];
    if (slot >= 0) {
      return InvalidArgument("added tokens ", out.tokens_[slot].id, " and ", token.id,
                             " are both \"", token.content, "\"");
    }
    slot = static_cast<int32_t>(i);
    out.begins_[static_cast<uint8_t>(token.content[0])] = true;
    single_words |= token.single_word;
  }
  if (single_words) {
    ASSIGN_OR_RETURN(Regex pattern, Regex::Compile(kWordCharacter));
    out.word_character_.push_back(std::move(pattern));
  }
  return out;
}

int32_t AddedTokenMatcher::LongestAt(std::string_view text) const {
  int32_t found = -1;
  int32_t node = 0;
  for (const char c : text) {
    const auto child = children_.find((static_cast<uint64_t>(node) << 8) | static_cast<uint8_t>(c));
    if (child == children_.end()) break;
    node = child->second;
    if (ends_[node] >= 0) found = ends_[node];
  }
  return found;
}

bool AddedTokenMatcher::TouchesWord(std::string_view before, std::string_view behind) const {
  Regex::Scratch scratch;
  const auto begins_with_word = [&](std::string_view text) {
    if (text.empty()) return false;
    Regex::Match match;
    const absl::StatusOr<bool> found =
        word_character_[0].Find(text.substr(0, NextUtf8(text).length), 0, &scratch, &match);
    TANDEM_CHECK(found.ok()) << found.status();  // one character cannot reach a limit
    return *found;
  };
  return begins_with_word(behind) || (!before.empty() && begins_with_word(LastCharacter(before)));
}

std::vector<AddedSplit> AddedTokenMatcher::Split(std::string_view text,
                                                 std::span<const ParseRange> ranges) const {
  std::vector<AddedSplit> splits;
  int64_t done = 0;  // text before it is in splits
  for (const ParseRange& parse : ranges) {
    int64_t at = parse.range.begin;
    while (at < parse.range.end) {
      if (!begins_[static_cast<uint8_t>(text[at])]) {
        ++at;
        continue;
      }
      const int32_t index = LongestAt(text.substr(at, parse.range.end - at));
      if (index < 0) {
        ++at;
        continue;
      }
      const AddedToken& token = tokens_[index];
      int64_t begin = at;
      int64_t end = at + static_cast<int64_t>(token.content.size());
      at = end;
      if (token.special && !parse.parse_special) continue;
      if (token.single_word && TouchesWord(text.substr(0, begin), text.substr(end))) continue;
      if (token.lstrip) begin = std::max(done, begin - WhiteSpaceAtEnd(text.substr(0, begin)));
      if (token.rstrip) end += WhiteSpaceAtBegin(text.substr(end));
      if (done < begin) splits.push_back({-1, {done, begin}});
      splits.push_back({token.id, {begin, end}});
      done = end;
    }
  }
  const int64_t size = static_cast<int64_t>(text.size());
  if (done < size) splits.push_back({-1, {done, size}});
  return splits;
}

}  // namespace tandem
