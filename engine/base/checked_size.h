// Size arithmetic on numbers read from a file or the network. A result that does not fit in 63 bits
// stays invalid through every later operation; it can be read only after asking.
//
//   CheckedSize bytes = CheckedSize(rows) * cols * 4;
//   if (!bytes.Fits(remaining)) return InvalidArgument(...);
#pragma once

#include <cstdint>

#include "engine/base/check.h"

namespace tandem {

class CheckedSize final {
 public:
  CheckedSize() = default;
  constexpr CheckedSize(uint64_t value)
      : value_(value), valid_(value <= kMax) {}  // NOLINT: a number is a size

  bool valid() const { return valid_; }
  // REQUIRES valid().
  int64_t value() const {
    TANDEM_CHECK(valid_) << "a size that overflowed was read";
    return static_cast<int64_t>(value_);
  }
  // True iff valid and at most `limit` (a negative limit fits nothing).
  bool Fits(int64_t limit) const {
    return valid_ && limit >= 0 && value_ <= static_cast<uint64_t>(limit);
  }

  friend CheckedSize operator+(CheckedSize a, CheckedSize b) {
    CheckedSize out;
    out.valid_ = !__builtin_add_overflow(a.value_, b.value_, &out.value_) && a.valid_ && b.valid_ &&
                 out.value_ <= kMax;
    return out;
  }
  friend CheckedSize operator*(CheckedSize a, CheckedSize b) {
    CheckedSize out;
    out.valid_ = !__builtin_mul_overflow(a.value_, b.value_, &out.value_) && a.valid_ && b.valid_ &&
                 out.value_ <= kMax;
    return out;
  }
  // The next multiple of `alignment`. REQUIRES a power of two.
  CheckedSize AlignUp(uint64_t alignment) const {
    TANDEM_CHECK(alignment != 0 && (alignment & (alignment - 1)) == 0) << "alignment " << alignment;
    CheckedSize out = *this + CheckedSize(alignment - 1);
    out.value_ &= ~(alignment - 1);
    return out;
  }

 private:
  static constexpr uint64_t kMax = uint64_t{INT64_MAX};
  uint64_t value_ = 0;
  bool valid_ = true;
};

}  // namespace tandem
