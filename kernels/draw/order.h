// The orders that ranks, lists and draws stand on. All are of one form, value descending, then id
// ascending:
//   ranks, masses and cuts   value = adjusted logit
//   the draw                 value = fp32(s + G)
//   raw ranks                value = raw logit
#pragma once

#include <cstdint>

#include "kernels/draw/host_device.h"

namespace tandem::kernels {

// Whether (value_a, id_a) stands before (value_b, id_b). Values are not NaN; -0 equals 0.
TANDEM_HD bool ComesBefore(float value_a, int32_t id_a, float value_b, int32_t id_b) {
  return value_a > value_b || (value_a == value_b && id_a < id_b);
}

// The same order as one integer: ComesBefore(a, b) iff OrderKey(a) > OrderKey(b). For selection and
// for sorts. The key of an id's value is greater than 0, so that 0 can stand for an empty place.
TANDEM_HD uint64_t OrderKey(float value, int32_t id) {
  const uint32_t bits = FloatBits(value + 0.0f);  // -0 becomes 0
  const uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return (static_cast<uint64_t>(ordered) << 32) | (0xFFFFFFFFu - static_cast<uint32_t>(id));
}
TANDEM_HD float OrderKeyValue(uint64_t key) {
  const uint32_t ordered = static_cast<uint32_t>(key >> 32);
  return BitsFloat((ordered & 0x80000000u) != 0 ? ordered & 0x7FFFFFFFu : ~ordered);
}
TANDEM_HD int32_t OrderKeyId(uint64_t key) {
  return static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(key));
}

}  // namespace tandem::kernels
