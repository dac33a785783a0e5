#include "engine/sampling/what_if.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "kernels/draw/decide.h"
#include "kernels/draw/weight.h"

namespace tandem {
namespace {

constexpr double kUnit = static_cast<double>(kernels::kMaxWeight);
// Relative error of a sum of weights against exact arithmetic, generously: s is rounded twice, so
// that exp(s) is off by |s| 2^-23, for s down to -28, below which a weight is 0.
constexpr double kMassSlack = 1e-4;
// Likewise of s itself, from one temperature to another.
constexpr double kScaleSlack = 1e-5;

int32_t CountOf(const kernels::DrawParams& params, int32_t num_in_row) {
  return params.top_k == 0 ? num_in_row : std::min(params.top_k, num_in_row);
}

uint64_t Ceil(double mass) {
  return static_cast<uint64_t>(std::min(std::ceil(std::max(mass, 0.0)), 9.0e18));
}
uint64_t Floor(double mass) { return static_cast<uint64_t>(std::max(std::floor(mass), 0.0)); }

float NextUp(float value) { return std::nextafter(value, std::numeric_limits<float>::infinity()); }

}  // namespace

ListedRow::ListedRow(const Decider& decider, const Candidates& lists)
    : decider_(decider), lists_(lists) {
  const kernels::RowSummary& summary = lists.summary;
  TANDEM_CHECK(summary.num_in_row > 0 && !lists.top.empty()) << "a row without ids";
  uint64_t mass_above = 0;
  for (const kernels::TopEntry& entry : lists.top) {
    const uint64_t weight = kernels::DrawWeight(
        kernels::ScaledLogit(entry.adjusted, summary.row_max, decider.params()));
    known_.push_back(
        {static_cast<int32_t>(known_.size()), entry.id, entry.adjusted, mass_above, weight});
    mass_above += weight;
  }
  const int32_t num_top = static_cast<int32_t>(known_.size());
  for (const kernels::PerturbedEntry& entry : lists.perturbed) {
    if (entry.rank < num_top) continue;
    const uint64_t weight = kernels::DrawWeight(
        kernels::ScaledLogit(entry.adjusted, summary.row_max, decider.params()));
    known_.push_back({entry.rank, entry.id, entry.adjusted, entry.mass_above, weight});
  }
  std::sort(known_.begin(), known_.end(),
            [](const Known& a, const Known& b) { return a.rank < b.rank; });
  while (first_gap_ < static_cast<int32_t>(known_.size()) &&
         known_[first_gap_].rank == first_gap_) {
    ++first_gap_;
  }
}

bool ListedRow::SameTemperature(const kernels::DrawParams& other) const {
  return other.inverse_temperature == decider_.params().inverse_temperature;
}

ListedRow::Gap ListedRow::GapBehind(size_t index, const std::vector<uint64_t>& weights,
                                    const kernels::DrawParams& other) const {
  const bool last = index + 1 == known_.size();
  const Known& left = known_[index];
  const int32_t end = last ? lists_.summary.num_in_row : known_[index + 1].rank;
  const uint64_t mass_end = last ? lists_.summary.total_weight : known_[index + 1].mass_above;
  Gap gap{.count = end - left.rank - 1};
  if (gap.count == 0) return gap;
  gap.low_weight = last ? 0 : weights[index + 1];
  gap.high_weight = weights[index];
  const uint64_t recorded = mass_end - left.mass_above - left.weight;
  if (SameTemperature(other)) {
    gap.mass = {recorded, recorded};
    return gap;
  }
  const double count = gap.count;
  const double b = static_cast<double>(other.inverse_temperature) /
                   static_cast<double>(decider_.params().inverse_temperature);
  const double left_s =
      (static_cast<double>(left.adjusted) - static_cast<double>(lists_.summary.row_max)) *
      static_cast<double>(decider_.params().inverse_temperature);
  const double least =
      std::max(0.0, static_cast<double>(recorded) - 0.51 * count) / kUnit * (1.0 - kMassSlack);
  const double most = (static_cast<double>(recorded) + 0.51 * count) / kUnit * (1.0 + kMassSlack);
  // Jensen's bound, and the one by the largest weight; the first is infinite nowhere, and the
  // second only for b < 1 behind a weight of 0, where nothing is left to be counted.
  const auto even = [&](double mass) { return count * std::pow(mass / count, b); };
  const auto steep = [&](double mass) { return mass * std::exp((b - 1.0) * left_s); };
  const double low = least == 0.0 ? 0.0 : (b > 1.0 ? even(least) : steep(least));
  const double high = b > 1.0 ? steep(most) : even(most);
  gap.mass.low = std::max(static_cast<uint64_t>(gap.count) * gap.low_weight,
                          Floor(low * (1.0 - kMassSlack) * kUnit - count));
  gap.mass.high = std::min(static_cast<uint64_t>(gap.count) * gap.high_weight,
                           Ceil(high * (1.0 + kMassSlack) * kUnit + count));
  return gap;
}

ListedRow::Masses ListedRow::MassesUnder(const kernels::DrawParams& other) const {
  Masses out;
  for (const Known& known : known_) {
    out.weights.push_back(
        kernels::DrawWeight(kernels::ScaledLogit(known.adjusted, lists_.summary.row_max, other)));
  }
  MassRange above;
  for (size_t i = 0; i < known_.size(); ++i) {
    out.above.push_back(above);
    out.gaps.push_back(GapBehind(i, out.weights, other));
    above.low += out.weights[i] + out.gaps[i].mass.low;
    above.high += out.weights[i] + out.gaps[i].mass.high;
  }
  return out;
}

ListedRow::MassRange ListedRow::PrefixMass(const Masses& masses, const kernels::DrawParams& other,
                                           int32_t count) const {
  if (SameTemperature(other) && count == CountOf(decider_.params(), lists_.summary.num_in_row)) {
    return {lists_.summary.top_k_weight, lists_.summary.top_k_weight};
  }
  size_t last = known_.size() - 1;  // of the known ids, the last one within
  while (known_[last].rank >= count) --last;
  MassRange out = masses.above[last];
  out.low += masses.weights[last];
  out.high += masses.weights[last];
  const Gap& gap = masses.gaps[last];
  const int32_t part = count - known_[last].rank - 1;
  if (part == 0) return out;
  if (part == gap.count) {
    out.low += gap.mass.low;
    out.high += gap.mass.high;
    return out;
  }
  // The first of a gap are its largest.
  const uint64_t share = static_cast<uint64_t>(static_cast<unsigned __int128>(gap.mass.low) *
                                               static_cast<uint32_t>(part) / gap.count);
  out.low += std::max(share, static_cast<uint64_t>(part) * gap.low_weight);
  out.high += std::min(gap.mass.high, static_cast<uint64_t>(part) * gap.high_weight);
  return out;
}

CountRange ListedRow::KeptByTopP(const Masses& masses, const kernels::DrawParams& other,
                                 int32_t num_top_k) const {
  CountRange out{1, lists_.summary.num_in_row};
  if (other.top_p_fixed == kernels::kTopPOff) return {out.high, out.high};
  const MassRange total = PrefixMass(masses, other, num_top_k);
  const auto look_at = [&](int32_t rank, const MassRange& above) {
    if (rank == 0 || rank >= lists_.summary.num_in_row) return;
    if (kernels::PassesTopP(other.top_p_fixed, above.high, total.low)) {
      out.low = std::max(out.low, rank + 1);
    } else if (!kernels::PassesTopP(other.top_p_fixed, above.low, total.high)) {
      out.high = std::min(out.high, rank);
    }
  };
  for (size_t i = 0; i < known_.size(); ++i) {
    const MassRange& above = masses.above[i];
    look_at(known_[i].rank, above);
    look_at(known_[i].rank + 1, {above.low + masses.weights[i], above.high + masses.weights[i]});
  }
  return out;
}

CountRange ListedRow::KeptByMinP(const Masses& masses, const kernels::DrawParams& other) const {
  CountRange out{1, lists_.summary.num_in_row};
  if (other.min_p_weight == 0) return {out.high, out.high};
  for (size_t i = 1; i < known_.size(); ++i) {
    if (kernels::PassesMinP(other.min_p_weight, masses.weights[i])) {
      out.low = known_[i].rank + 1;
    } else {
      out.high = std::min(out.high, known_[i].rank);
    }
  }
  return out;
}

ListedRow::Kept ListedRow::Keeps(const kernels::DrawParams& other) const {
  const auto both = [](const CountRange& a, const CountRange& b) {
    return CountRange{std::min(a.low, b.low), std::min(a.high, b.high)};
  };
  const Masses masses = MassesUnder(other);
  const int32_t num_top_k = CountOf(other, lists_.summary.num_in_row);
  Kept out;
  out.after_top_k = {num_top_k, num_top_k};
  out.after_top_p = both(out.after_top_k, KeptByTopP(masses, other, num_top_k));
  out.after_min_p = both(out.after_top_p, KeptByMinP(masses, other));
  return out;
}

Decision ListedRow::Decide(const kernels::DrawParams& other) const {
  if (other.greedy) return {Decision::Kind::kToken, known_[0].id, ""};
  const CountRange kept = Keeps(other).after_min_p;
  const kernels::DrawParams& recorded = decider_.params();
  if (SameTemperature(other) && !recorded.greedy && other.seed == recorded.seed) {
    Decision decision = DecideFromPerturbed(kept);
    if (decision.kind == Decision::Kind::kToken) return decision;
  }
  return DecideFromKnown(kept, other);
}

Decision ListedRow::DecideFromPerturbed(const CountRange& kept) const {
  for (const kernels::PerturbedEntry& entry : lists_.perturbed) {
    if (entry.rank < kept.low) return {Decision::Kind::kToken, entry.id, ""};
    if (entry.rank < kept.high) break;  // in doubt
  }
  return {Decision::Kind::kUndecided, -1, ""};
}

Decision ListedRow::DecideFromKnown(const CountRange& kept,
                                    const kernels::DrawParams& other) const {
  const int32_t position = decider_.position();
  const float row_max = lists_.summary.row_max;
  int32_t best = -1;
  float best_value = 0.0f;
  for (const Known& known : known_) {
    if (known.rank >= kept.high) break;
    const float s = kernels::ScaledLogit(known.adjusted, row_max, other);
    const float value = kernels::PerturbedValue(other, s, position, known.id);
    if (best >= 0 && !kernels::ComesBefore(value, known.id, best_value, best)) continue;
    if (known.rank >= kept.low) {
      return {Decision::Kind::kUndecided, -1,
              absl::StrCat("between ", kept.low, " and ", kept.high, " ids are kept, and id ",
                           known.id, " of rank ", known.rank, " is drawn if it is among them")};
    }
    best = known.id;
    best_value = value;
  }
  if (kept.high <= first_gap_) return {Decision::Kind::kToken, best, ""};
  std::vector<bool> is_known(static_cast<size_t>(decider_.vocab_size()));
  for (const Known& known : known_) is_known[known.id] = true;
  const float last_s = kernels::ScaledLogit(known_[first_gap_ - 1].adjusted, row_max, other);
  for (int32_t id = 0; id < decider_.vocab_size(); ++id) {
    if (is_known[id] || !decider_.InRow(id)) continue;
    if (!kernels::ComesBefore(MostOfUnknown(id, last_s, other), id, best_value, best)) continue;
    return {Decision::Kind::kUndecided, -1,
            absl::StrCat("up to ", kept.high, " ids are kept, the ones from rank ", first_gap_,
                         " on are not in the trace, and id ", id, " may be drawn")};
  }
  return {Decision::Kind::kToken, best, ""};
}

float ListedRow::MostOfUnknown(int32_t id, float last_s, const kernels::DrawParams& other) const {
  const kernels::DrawParams& recorded = decider_.params();
  const int32_t position = decider_.position();
  const float by_rank = kernels::PerturbedValue(other, last_s, position, id);
  const float next = lists_.summary.next_perturbed;
  const float noise =
      recorded.greedy ? 0.0f : kernels::Gumbel(recorded.seed, recorded.choice, position, id);
  if (SameTemperature(other) && !recorded.greedy && other.seed == recorded.seed) {
    return std::min(by_rank, next);
  }
  // fp32(s + G) <= next, so s + G < the number after it.
  const double most_s = static_cast<double>(NextUp(next)) - static_cast<double>(noise);
  if (!(most_s < -1e-3)) return by_rank;
  const double other_s = most_s * (1.0 - kScaleSlack) *
                         (static_cast<double>(other.inverse_temperature) /
                          static_cast<double>(recorded.inverse_temperature));
  const double other_noise = kernels::Gumbel(other.seed, other.choice, position, id);
  const double most = std::max(other_s + other_noise, -3e38);
  return std::min(by_rank, NextUp(static_cast<float>(most)));
}

}  // namespace tandem
