// Added tokens: strings that are found in a text before the model's own splitting, with the flags
// that Hugging Face's `tokenizers` library gives them (version 0.23, `AddedVocabulary`), and with
// its order of events:
//
// - Matches are leftmost, then longest, and do not overlap.
// - A special token where special tokens are not parsed, or a single_word token beside a word
// character, is no match; but the
//   search goes on behind it, so that nothing inside of it matches either.
// - A word character is one of \w as UTS #18 defines it (letters, marks, decimal digits,
// connectors, joiners).
// - lstrip takes the white space before the match, as far as an earlier match did not take it;
// rstrip that behind it.
//
// Not conditions but consequences: lstrip and rstrip never decide whether a token matches.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "engine/text/regex.h"
#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_data.h"

namespace tandem {

// A stretch of text and whether special tokens are parsed in it.
struct ParseRange {
  ByteRange range;
  bool parse_special = false;
};

// What a text was cut into: added tokens, and text between them.
struct AddedSplit {
  int32_t id = -1;  // -1: text
  ByteRange range;  // with the white space that the token took
};

// Thread-safe.
class AddedTokenMatcher final {
 public:
  // INVALID_ARGUMENT: a content that is empty or not UTF-8, or two tokens with one content.
  static absl::StatusOr<AddedTokenMatcher> Make(std::vector<AddedToken> tokens);

  // Cuts text. ranges cover it in order; a match lies within one of them, so that no token is made
  // of what stands on both sides of a border, but flags look across. Splits that are text are not
  // empty and end at the borders of matches alone.
  std::vector<AddedSplit> Split(std::string_view text, std::span<const ParseRange> ranges) const;

  bool empty() const { return tokens_.empty(); }

 private:
  AddedTokenMatcher() = default;
  // The longest token at the beginning of text, as an index; -1 if none.
  int32_t LongestAt(std::string_view text) const;
  bool TouchesWord(std::string_view before, std::string_view behind) const;

  std::vector<AddedToken> tokens_;
  // A trie over bytes: nodes by (parent << 8 | byte), and by node the index into tokens_ of the
  // content that ends there or -1.
  absl::flat_hash_map<uint64_t, int32_t> children_;
  std::vector<int32_t> ends_;
  bool begins_[256] = {};              // bytes that some content begins with
  std::vector<Regex> word_character_;  // one, anchored; empty if no token asks for single words
};

}  // namespace tandem
