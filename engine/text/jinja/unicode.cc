#include "engine/text/jinja/unicode.h"

#include <algorithm>
#include <iterator>

namespace tandem::jinja {
namespace {

struct CaseRange {
  uint32_t first;
  uint32_t last;  // inclusive
  uint32_t step;  // only every step-th code point of the range
  int32_t delta;
};
struct CaseExpansion {
  uint32_t code_point;
  const char* utf8;
};
struct CodePointRange {
  uint32_t first;
  uint32_t last;  // inclusive
};

#include "engine/text/jinja/unicode_tables.inc"

// The entry whose key is the largest not above `code_point`, or null. `table` is sorted by key.
template <typename Entry, size_t size, typename Key>
const Entry* FindFloor(const Entry (&table)[size], char32_t code_point, Key key) {
  const Entry* after =
      std::upper_bound(std::begin(table), std::end(table), code_point,
                       [&](char32_t wanted, const Entry& entry) { return wanted < key(entry); });
  return after == std::begin(table) ? nullptr : after - 1;
}

template <size_t size>
const char* FindExpansion(const CaseExpansion (&table)[size], char32_t code_point) {
  const CaseExpansion* found =
      FindFloor(table, code_point, [](const CaseExpansion& e) { return e.code_point; });
  return found != nullptr && found->code_point == code_point ? found->utf8 : nullptr;
}

template <size_t size>
char32_t MapCase(const CaseRange (&table)[size], char32_t code_point) {
  const CaseRange* range = FindFloor(table, code_point, [](const CaseRange& r) { return r.first; });
  if (range == nullptr || code_point > range->last ||
      (code_point - range->first) % range->step != 0) {
    return code_point;
  }
  return static_cast<char32_t>(static_cast<int32_t>(code_point) + range->delta);
}

size_t SequenceLength(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xE0) return 2;
  return lead < 0xF0 ? 3 : 4;
}

}  // namespace

bool IsValidUtf8(std::string_view bytes) {
  size_t i = 0;
  while (i < bytes.size()) {
    const auto lead = static_cast<unsigned char>(bytes[i]);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    if (lead < 0xC2 || lead > 0xF4) return false;
    const size_t length = SequenceLength(lead);
    if (i + length > bytes.size()) return false;
    char32_t code_point = lead & (0x7F >> length);
    for (size_t k = 1; k < length; ++k) {
      const auto byte = static_cast<unsigned char>(bytes[i + k]);
      if ((byte & 0xC0) != 0x80) return false;
      code_point = (code_point << 6) | (byte & 0x3F);
    }
    const bool shortest =
        length == 2 || (length == 3 ? code_point >= 0x800 : code_point >= 0x10000);
    const bool surrogate = code_point >= 0xD800 && code_point < 0xE000;
    if (!shortest || surrogate || code_point > 0x10FFFF) return false;
    i += length;
  }
  return true;
}

char32_t NextCodePoint(std::string_view bytes, size_t* position) {
  const auto lead = static_cast<unsigned char>(bytes[*position]);
  const size_t length = std::min(SequenceLength(lead), bytes.size() - *position);
  char32_t code_point = length == 1 ? lead : lead & (0x7F >> length);
  for (size_t k = 1; k < length; ++k) {
    code_point = (code_point << 6) | (static_cast<unsigned char>(bytes[*position + k]) & 0x3F);
  }
  *position += length;
  return code_point;
}

size_t PreviousCodePoint(std::string_view bytes, size_t position) {
  do {
    --position;
  } while (position > 0 && (static_cast<unsigned char>(bytes[position]) & 0xC0) == 0x80);
  return position;
}

int64_t CountCodePoints(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

size_t OffsetOfCodePoint(std::string_view bytes, int64_t index) {
  size_t offset = 0;
  for (; index > 0 && offset < bytes.size(); --index) {
    offset += SequenceLength(static_cast<unsigned char>(bytes[offset]));
  }
  return std::min(offset, bytes.size());
}

void AppendUtf8(char32_t code_point, std::string* out) {
  const auto tail = [&](int shift) {
    out->push_back(static_cast<char>(0x80 | ((code_point >> shift) & 0x3F)));
  };
  if (code_point < 0x80) {
    out->push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out->push_back(static_cast<char>(0xC0 | (code_point >> 6)));
    tail(0);
  } else if (code_point < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | (code_point >> 12)));
    tail(6);
    tail(0);
  } else {
    out->push_back(static_cast<char>(0xF0 | (code_point >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

bool IsSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool IsLineBreak(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool IsPrintable(char32_t c) {
  const CodePointRange* range =
      FindFloor(kUnprintable, c, [](const CodePointRange& r) { return r.first; });
  return range == nullptr || c > range->last;
}

void AppendUpper(char32_t c, std::string* out) {
  if (const char* expansion = FindExpansion(kUpperExpansions, c)) {
    out->append(expansion);
  } else {
    AppendUtf8(MapCase(kUpper, c), out);
  }
}

void AppendLower(char32_t c, std::string* out) {
  if (const char* expansion = FindExpansion(kLowerExpansions, c)) {
    out->append(expansion);
  } else {
    AppendUtf8(MapCase(kLower, c), out);
  }
}

void AppendTitle(char32_t c, std::string* out) {
  if (const char* title = FindExpansion(kTitles, c)) {
    out->append(title);
  } else {
    AppendUpper(c, out);
  }
}

bool IsCased(char32_t c) {
  return MapCase(kUpper, c) != c || MapCase(kLower, c) != c ||
         FindExpansion(kUpperExpansions, c) != nullptr ||
         FindExpansion(kLowerExpansions, c) != nullptr || FindExpansion(kTitles, c) != nullptr;
}

}  // namespace tandem::jinja
