#include "engine/text/jinja/text.h"

#include <string.h>

#include <algorithm>

#include "engine/base/check.h"

namespace tandem::jinja {

void Text::Append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  bytes_.append(bytes);
  if (!runs_.empty() && runs_.back().origin == origin) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), origin});
  }
}

void Text::Append(const Text& other, size_t begin, size_t end) {
  TANDEM_CHECK(begin <= end && end <= other.size()) << begin << " " << end << " " << other.size();
  auto run = std::upper_bound(other.runs_.begin(), other.runs_.end(), begin,
                              [](size_t wanted, const Run& r) { return wanted < r.end; });
  while (begin < end) {
    const size_t stop = std::min(end, run->end);
    Append(other.bytes().substr(begin, stop - begin), run->origin);
    begin = stop;
    ++run;
  }
}

Text Text::Slice(size_t begin, size_t end) const {
  Text result;
  result.Append(*this, begin, end);
  result.set_markup(markup_);
  return result;
}

size_t FindBytes(std::string_view haystack, std::string_view needle, size_t from) {
  if (from > haystack.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  // std::string_view::find is quadratic on a text made for it; memmem is not.
  const void* found =
      memmem(haystack.data() + from, haystack.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - haystack.data());
}

}  // namespace tandem::jinja
