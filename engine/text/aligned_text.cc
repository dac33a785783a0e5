#include "engine/text/aligned_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/text/utf8.h"

namespace tandem {
namespace {

// Whether normalising what stands before c and what begins with c separately gives the same as
// normalising both together. Says no too often (every mark, every Hangul vowel and final
// consonant), never too rarely: only these compose with or move before a character in front of
// them.
bool StandsAlone(char32_t c) {
  if (c < 0x300) return true;
  if (c >= 0x1160 && c <= 0x11FF) return false;
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category != UTF8PROC_CATEGORY_MN && category != UTF8PROC_CATEGORY_MC &&
         category != UTF8PROC_CATEGORY_ME;
}

// Bytes of the shortest prefix of text that can be normalised alone. REQUIRES not empty.
size_t UnitLength(std::string_view text) {
  size_t length = NextUtf8(text).length;
  while (length < text.size()) {
    const Utf8Step step = NextUtf8(text.substr(length));
    if (StandsAlone(step.code_point)) break;
    length += step.length;
  }
  return length;
}

absl::StatusOr<std::string> ToFormC(std::string_view unit) {
  utf8proc_uint8_t* raw = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(unit.data()),
                   static_cast<utf8proc_ssize_t>(unit.size()), &raw,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(raw, &std::free);
  if (size < 0) return ResourceExhausted("Unicode normalisation: ", utf8proc_errmsg(size));
  return std::string(reinterpret_cast<const char*>(raw), static_cast<size_t>(size));
}

}  // namespace

AlignedText AlignedText::Verbatim(std::string_view text, int64_t input_begin) {
  AlignedText out;
  out.text_ = std::string(text);
  const int64_t size = static_cast<int64_t>(text.size());
  out.stretches_.push_back({{0, size}, {input_begin, input_begin + size}, false});
  return out;
}

absl::StatusOr<AlignedText> AlignedText::FormC(std::string_view text, int64_t input_begin) {
  // Nearly every text is in form C as it comes.
  ASSIGN_OR_RETURN(const std::string whole, ToFormC(text));
  if (whole == text) return Verbatim(text, input_begin);
  AlignedText out;
  int64_t input = input_begin;
  while (!text.empty()) {
    const size_t length = UnitLength(text);
    const std::string_view unit = text.substr(0, length);
    const int64_t here = static_cast<int64_t>(out.text_.size());
    // Every character below U+0300 is in form C already.
    const bool plain = length <= 2 && NextUtf8(unit).code_point < 0x300;
    if (plain) {
      out.text_.append(unit);
    } else {
      ASSIGN_OR_RETURN(const std::string normalized, ToFormC(unit));
      out.text_.append(normalized);
    }
    const int64_t end = static_cast<int64_t>(out.text_.size());
    const bool changed = std::string_view(out.text_).substr(here) != unit;
    const ByteRange source{input, input + static_cast<int64_t>(length)};
    if (!changed && !out.stretches_.empty() && !out.stretches_.back().changed) {
      out.stretches_.back().here.end = end;
      out.stretches_.back().input.end = source.end;
    } else {
      out.stretches_.push_back({{here, end}, source, changed});
    }
    input = source.end;
    text.remove_prefix(length);
  }
  return out;
}

const AlignedText::Stretch& AlignedText::StretchAt(int64_t offset) const {
  const auto behind =
      std::upper_bound(stretches_.begin(), stretches_.end(), offset,
                       [](int64_t value, const Stretch& s) { return value < s.here.begin; });
  return *std::prev(behind);
}

ByteRange AlignedText::InputRange(int64_t begin, int64_t end) const {
  TANDEM_CHECK(0 <= begin && begin <= end && end <= static_cast<int64_t>(text_.size()))
      << begin << " " << end;
  const Stretch& first = StretchAt(begin);
  const int64_t input_begin =
      first.changed ? first.input.begin : first.input.begin + (begin - first.here.begin);
  if (begin == end) return {input_begin, input_begin};
  const Stretch& last = StretchAt(end - 1);
  const int64_t input_end =
      last.changed ? last.input.end : last.input.begin + (end - last.here.begin);
  return {input_begin, input_end};
}

int64_t AlignedText::OffsetOf(int64_t input, bool round_up) const {
  for (const Stretch& stretch : stretches_) {
    if (input <= stretch.input.begin) return stretch.here.begin;
    if (input >= stretch.input.end) continue;
    if (!stretch.changed) return stretch.here.begin + (input - stretch.input.begin);
    return round_up ? stretch.here.end : stretch.here.begin;
  }
  return static_cast<int64_t>(text_.size());
}

}  // namespace tandem
