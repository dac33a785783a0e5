// Where in a choice's text its tokens begin, in characters.
//
// A token's bytes and its text are not the same: a special token has no text, bytes that are no
// UTF-8 have U+FFFD, the text of an unfinished character or of what may become a stop string comes
// later, and that of a stop string never. So the bytes of tokens are matched against the text as it
// comes: those that it has not caught up with wait, and one that the text goes on without has none.
// Until the text goes on, a special token counts as text that waits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::text {

class TextOffsets final {
 public:
  // Text of the choice that comes next, and with it the tokens that are added until EndText.
  // REQUIRES valid UTF-8, which must stay as it is until then.
  void BeginText(std::string_view text);
  void EndText();
  // The character that the token begins at, or in the middle of.
  int64_t AddToken(std::string_view bytes);
  // A token whose bytes are not known, which is the next one of the text: it has what the text has
  // before `behind`, the bytes of all others of this text. Its bytes are returned, and *offset is
  // the character that it begins at.
  std::string_view AddUnknown(std::string_view behind, int64_t* offset);

 private:
  // More than what a stop string and an unfinished character can hold back.
  static constexpr size_t kMaxWaiting = 4096;

  // Moves on over the text that waiting bytes have. False: the text goes on with something else.
  bool Match();

  std::string_view text_;   // what no token was found for yet
  int64_t characters_ = 0;  // of the text before it
  std::string waiting_;     // bytes of tokens that the text has not caught up with
};

}  // namespace tandem::text
