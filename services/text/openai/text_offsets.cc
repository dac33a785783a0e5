#include "services/text/openai/text_offsets.h"

#include <algorithm>

#include "engine/text/utf8.h"

namespace tandem::text {
namespace {

// Characters that begin in text.
int64_t CountCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace

void TextOffsets::BeginText(std::string_view text) { text_ = text; }

void TextOffsets::EndText() {
  if (text_.empty()) return;
  characters_ += CountCharacters(text_);
  text_ = {};
  waiting_.clear();
}

bool TextOffsets::Match() {
  while (!waiting_.empty() && !text_.empty()) {
    const Utf8Step step = NextUtf8(waiting_);
    if (step.state == Utf8State::kIncomplete) {
      // Its end gives one replacement, which may already be here.
      return true;
    }
    const std::string_view character = step.state == Utf8State::kComplete
                                           ? std::string_view(waiting_).substr(0, step.length)
                                           : kReplacementBytes;
    if (text_.substr(0, character.size()) != character) return false;
    text_.remove_prefix(character.size());
    waiting_.erase(0, step.length);
    ++characters_;
  }
  return true;
}

int64_t TextOffsets::AddToken(std::string_view bytes) {
  if (waiting_.size() > kMaxWaiting) waiting_.clear();  // of special tokens, one behind the other
  const std::string_view text = text_;
  const std::string waiting = waiting_;
  const int64_t characters = characters_;
  const bool goes_on = !bytes.empty() && CountCharacters(bytes.substr(0, 1)) == 0 &&
                       IncompleteUtf8Suffix(waiting_) > 0;
  const int64_t offset = characters_ + CountCharacters(waiting_) - (goes_on ? 1 : 0);
  waiting_ += bytes;
  if (Match()) return offset;
  // What waited is not in the text, as that of a special token; or this token is not.
  text_ = text;
  characters_ = characters;
  waiting_ = bytes;
  if (Match()) return characters;
  text_ = text;
  characters_ = characters;
  waiting_ = waiting;
  return offset;
}

std::string_view TextOffsets::AddUnknown(std::string_view behind, int64_t* offset) {
  *offset = characters_;
  waiting_.clear();
  const std::string rest = ReplaceInvalidUtf8(behind);
  if (text_.size() < rest.size() || text_.substr(text_.size() - rest.size()) != rest) return {};
  const std::string_view bytes = text_.substr(0, text_.size() - rest.size());
  text_.remove_prefix(bytes.size());
  characters_ += CountCharacters(bytes);
  return bytes;
}

}  // namespace tandem::text
