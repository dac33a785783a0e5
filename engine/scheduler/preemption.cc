#include "engine/scheduler/preemption.h"

#include <tuple>

#include "engine/base/check.h"
#include "engine/base/planted_bugs.h"

namespace tandem {
namespace {

bool IsBefore(const GrowingSequence& a, const GrowingSequence& b) {
  return std::tuple(b.priority, a.age, a.serial) < std::tuple(a.priority, b.age, b.serial);
}

}  // namespace

std::optional<int32_t> ChooseVictim(const GrowingSequence& needy, int64_t needed_pages,
                                    int64_t returning_pages,
                                    std::span<const GrowingSequence> others) {
  TANDEM_CHECK(needed_pages >= 1) << "needed_pages " << needed_pages;
  if (returning_pages >= needed_pages && !Planted(Bug::kPreemptCascade)) return std::nullopt;
  const GrowingSequence* victim = &needy;
  for (const GrowingSequence& other : others) {
    if (other.reclaimable_pages <= 0) continue;
    const bool is_worse =
        Planted(Bug::kPreemptOldest) ? other.age < victim->age : IsBefore(*victim, other);
    if (is_worse) victim = &other;
  }
  return victim->slot;
}

}  // namespace tandem
