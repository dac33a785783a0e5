#include "engine/drafts/draft_length.h"

#include <algorithm>
#include <iterator>

#include "engine/base/check.h"

namespace tandem {
namespace {

constexpr double kFade = 7.0 / 8;        // of a share, per step with drafts
constexpr double kLeastGain = 1.0 / 16;  // tokens: less is noise
// Drafts that the shares begin with: a longer match is the better guess.
constexpr double kFirstTaken[] = {1, 1.25, 1.5};
constexpr double kFirstTried = 2;
static_assert(std::size(kFirstTaken) == NgramDrafts::kMaxMatch - NgramDrafts::kMinMatch + 1);

}  // namespace

size_t DraftLength::IndexOf(int32_t match) {
  TANDEM_CHECK(match >= NgramDrafts::kMinMatch && match <= NgramDrafts::kMaxMatch)
      << "a match of " << match;
  return static_cast<size_t>(match - NgramDrafts::kMinMatch);
}

double DraftLength::TakeRate(int32_t match) const {
  const size_t index = IndexOf(match);
  return (shares_[index].taken + kFirstTaken[index]) / (shares_[index].tried + kFirstTried);
}

int32_t DraftLength::Choose(int32_t match, std::span<const double> cost) {
  const double rate = TakeRate(match);
  int32_t best = 0;
  double best_gain = 0;
  double all_taken = 1;
  double more_tokens = 0;
  for (int32_t d = 1; d <= static_cast<int32_t>(cost.size()); ++d) {
    all_taken *= rate;
    more_tokens += all_taken;
    const double gain = more_tokens - cost[d - 1];
    if (best > 0 && gain <= best_gain) continue;
    best = d;
    best_gain = gain;
  }
  if (best == 0 || best_gain > kLeastGain) return best;
  if (++declined_ < retry_after_) return 0;
  declined_ = 0;
  retry_after_ = std::min(2 * retry_after_, kLastRetry);
  return best;
}

void DraftLength::Observe(int32_t match, int32_t drafted, int32_t taken) {
  TANDEM_CHECK(taken >= 0 && taken <= drafted) << taken << " of " << drafted;
  Share& share = shares_[IndexOf(match)];
  const int32_t judged = taken < drafted ? taken + 1 : taken;
  share.taken = kFade * share.taken + taken;
  share.tried = kFade * share.tried + judged;
  if (taken < drafted) return;
  declined_ = 0;
  retry_after_ = kFirstRetry;
}

}  // namespace tandem
