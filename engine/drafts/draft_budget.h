// A limit on what all drafts of an engine may lose, so that work whose drafts are not taken is
// slowed down by a two-hundredth at most, as far as their cost is known, however hopeful single
// sessions are.
//
// An account in tokens. It begins with kFirst; each token that is drawn adds kShare, drafts take
// what they are reckoned to cost when they are planned and give back a token for each one taken.
// Drafts are planned only out of what is there. It holds at most kMostPerSession tokens for each
// session that runs: what was gained long ago does not pay for drafts that fail now.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem {

class DraftBudget final {
 public:
  static constexpr double kFirst = 1;
  static constexpr double kShare = 1.0 / 200;
  static constexpr double kMostPerSession = 2;

  // Whether drafts that cost so many tokens may be planned; such that cost nothing always may. The
  // account may be overdrawn by one plan.
  bool Allows(double cost) const { return cost <= 0 || tokens_ > 0; }
  void Spend(double cost) { tokens_ -= cost; }
  void OnTaken(int32_t drafts) { tokens_ += drafts; }
  // `drawn` tokens by `sessions` sessions. REQUIRES sessions >= 1.
  void OnDrawn(int32_t drawn, int32_t sessions) {
    tokens_ = std::min(tokens_ + kShare * drawn, std::max(kFirst, kMostPerSession * sessions));
  }

 private:
  double tokens_ = kFirst;
};

}  // namespace tandem
