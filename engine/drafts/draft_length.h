// How many drafts a session's next step verifies, by what became of its earlier ones.
//
// Model: a draft is taken with probability p if all before it were; p is learned for each length of
// the match that the drafts come from, as a fading share of takes that begins at 1/2 for two tokens
// and at 3/4 for four. Then d drafts bring E(d) = p + p^2 + ... + p^d more tokens, and cost what d
// more rows add to the step. Choose takes the d of the largest gain: more where drafts are taken,
// fewer where they are not, none where their rows cost more than they bring. p changes only by
// trying: where nothing is gained, one try is made all the same after kFirstRetry chances, after
// twice as many if that fails, and so on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/drafts/ngram_drafts.h"

namespace tandem {

class DraftLength final {
 public:
  static constexpr int32_t kFirstRetry = 64;
  static constexpr int32_t kLastRetry = 2048;

  // For drafts from a match of `match` tokens. cost[d - 1]: what d drafts cost, in tokens that
  // could be had for it. Returns a number in [0, cost.size()]. REQUIRES match in [kMinMatch,
  // kMaxMatch] of NgramDrafts.
  int32_t Choose(int32_t match, std::span<const double> cost);
  // Of `drafted` drafts from such a match the first `taken` were. REQUIRES 0 <= taken <= drafted.
  void Observe(int32_t match, int32_t drafted, int32_t taken);
  // p for such a match.
  double TakeRate(int32_t match) const;

 private:
  struct Share {  // fading
    double taken = 0;
    double tried = 0;
  };
  static size_t IndexOf(int32_t match);

  std::array<Share, NgramDrafts::kMaxMatch - NgramDrafts::kMinMatch + 1> shares_;
  int32_t declined_ = 0;  // chances since the last try
  int32_t retry_after_ = kFirstRetry;
};

}  // namespace tandem
