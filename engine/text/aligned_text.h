// A text and where each stretch of it comes from in the input, so that tokens of normalised text
// still have input offsets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/text/tokenizer.h"

namespace tandem {

class AlignedText final {
 public:
  // A stretch of the input, as it is. input_begin is its offset there.
  static AlignedText Verbatim(std::string_view text, int64_t input_begin);

  // The stretch in Unicode normalisation form C (UAX #15), by utf8proc. RESOURCE_EXHAUSTED: out of
  // memory. REQUIRES UTF-8.
  static absl::StatusOr<AlignedText> FormC(std::string_view text, int64_t input_begin);

  std::string_view text() const { return text_; }

  // The input range behind bytes [begin, end) of text(). Where normalisation changed a stretch (a
  // base character and its marks, say), a part of the result stands for the whole stretch. REQUIRES
  // 0 <= begin <= end <= size of text().
  ByteRange InputRange(int64_t begin, int64_t end) const;

  // Where byte `input` of the input text stands in text(), cut to it; inside of a changed stretch
  // its end or its beginning.
  int64_t OffsetOf(int64_t input, bool round_up) const;

 private:
  // Stretches in order, joined they are the text. In unchanged ones bytes correspond one by one.
  struct Stretch {
    ByteRange here;
    ByteRange input;
    bool changed = false;
  };

  const Stretch& StretchAt(int64_t offset) const;

  std::string text_;
  std::vector<Stretch> stretches_;
};

}  // namespace tandem
