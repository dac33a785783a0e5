// Whom to preempt where a sequence cannot grow.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace tandem {

struct GrowingSequence {
  int64_t age = 0;  // smaller is older
  int32_t priority = 0;
  int64_t reclaimable_pages = 0;  // that come back if it goes, now or after a step in flight
  int32_t slot = 0;
  int64_t serial = 0;  // of equal ages: smaller is older
};

// The slot of the sequence to preempt so that `needy` can grow by needed_pages >= 1, which are not
// free; nullopt: it is to wait, as returning_pages (of sessions already closed, still used by a
// step in flight) cover them.
//
// The victim is the last of `others` in the order of admission (higher priority first, then the
// older), if that is behind needy: so never one of higher priority, nor an older one of the same.
// Sequences whose going brings no page are passed over. Where none is left needy itself goes.
//
// One victim a call: where its pages do not suffice, the caller asks again without it.
//
// No livelock, if a sequence that waits for pages takes them before anyone is admitted to them: as
// admission follows the same order, a victim never displaces one that made it go, and the first of
// all goes only where nobody else has a page to give.
std::optional<int32_t> ChooseVictim(const GrowingSequence& needy, int64_t needed_pages,
                                    int64_t returning_pages,
                                    std::span<const GrowingSequence> others);

}  // namespace tandem
