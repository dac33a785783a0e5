// The decision from a worker's lists, after checking everything that this side can compute.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/sampling/decision.h"
#include "kernels/draw/decide.h"
#include "kernels/draw/order.h"
#include "kernels/draw/weight.h"

namespace tandem {
namespace {

template <typename... Parts>
std::string Difference(const Parts&... parts) {
  return absl::StrCat(parts...);
}

// Mass of `count` ids whose weights lie between low and high.
struct MassBounds {
  uint64_t low;
  uint64_t high;
  MassBounds(uint64_t start, int32_t count, uint64_t low_weight, uint64_t high_weight)
      : low(start + static_cast<uint64_t>(count) * low_weight),
        high(start + static_cast<uint64_t>(count) * high_weight) {}
  bool Holds(uint64_t mass) const { return mass >= low && mass <= high; }
};

constexpr size_t kTogether = 8;

// fp32(s + G) of `count` <= kTogether entries. In loops of constant length without a branch, which
// the compiler vectorises: most of what a decision costs is noise.
template <typename Entry>
void PerturbedValues(const kernels::DrawParams& params, int32_t position, float row_max,
                     const Entry* entries, size_t count, float* values) {
  uint32_t ids[kTogether] = {};
  uint32_t words[kTogether];
  for (size_t i = 0; i < count; ++i) {
    ids[i] = static_cast<uint32_t>(entries[i].id);
    values[i] = kernels::ScaledLogit(entries[i].adjusted, row_max, params);
  }
  if (params.greedy) return;
  for (size_t i = 0; i < kTogether; ++i) {
    const kernels::PhiloxBlock block =
        kernels::DrawWords(params.seed, params.choice, position, ids[i] >> 2);
    const uint32_t is_odd = 0u - (ids[i] & 1u), is_upper = 0u - ((ids[i] >> 1) & 1u);
    words[i] =
        kernels::SelectBits(is_upper, kernels::SelectBits(is_odd, block.word[3], block.word[2]),
                            kernels::SelectBits(is_odd, block.word[1], block.word[0]));
  }
  float noise[kTogether];
  for (size_t i = 0; i < kTogether; ++i) noise[i] = kernels::GumbelOfWord(words[i]);
  for (size_t i = 0; i < count; ++i) values[i] = values[i] + noise[i];
}

}  // namespace

std::string Decider::CheckEntry(const char* list, size_t index, int32_t id, float raw,
                                float adjusted) const {
  if (!InRow(id)) return Difference(list, "[", index, "] has id ", id, ", which is not in the row");
  if (!std::isfinite(raw)) return Difference(list, "[", index, "] has a non-finite raw logit");
  const float mine = Adjusted(id, raw);
  if (adjusted == mine) return "";
  return Difference(list, "[", index, "] id ", id, " is adjusted to ", adjusted, ": here ", mine);
}

std::string Decider::CheckTop(const Candidates& candidates, TopMasses* top_masses) const {
  const std::vector<kernels::TopEntry>& top = candidates.top;
  const kernels::RowSummary& summary = candidates.summary;
  (*top_masses)[0] = 0;
  for (size_t i = 0; i < top.size(); ++i) {
    std::string why = CheckEntry("top", i, top[i].id, top[i].raw, top[i].adjusted);
    if (!why.empty()) return why;
    if (i > 0 &&
        !kernels::ComesBefore(top[i - 1].adjusted, top[i - 1].id, top[i].adjusted, top[i].id)) {
      return Difference("top[", i, "] does not follow top[", i - 1, "] in the order of ranks");
    }
    const float s = kernels::ScaledLogit(top[i].adjusted, top[0].adjusted, params_);
    (*top_masses)[i + 1] = (*top_masses)[i] + kernels::DrawWeight(s);
  }
  if (summary.row_max != top[0].adjusted) {
    return Difference("row_max is ", summary.row_max, ": top[0] is ", top[0].adjusted);
  }
  return "";
}

std::string Decider::CheckTotals(const Candidates& candidates, const TopMasses& top_masses) const {
  const kernels::RowSummary& summary = candidates.summary;
  const uint64_t top_mass = top_masses[candidates.top.size()];
  const float last_s =
      kernels::ScaledLogit(candidates.top.back().adjusted, summary.row_max, params_);
  const uint64_t last_weight = kernels::DrawWeight(last_s);
  const auto bounds = [&](int32_t num_ids) {  // of the mass of the first num_ids ids
    return MassBounds(top_mass, num_ids - summary.num_top, 0, last_weight);
  };
  if (!bounds(summary.num_in_row).Holds(summary.total_weight)) {
    return Difference("total_weight ", summary.total_weight, " cannot be: the top list has ",
                      top_mass, " of ", summary.num_top, " ids");
  }
  const int32_t top_k = params_.top_k;
  bool top_k_holds;
  if (top_k == 0 || top_k >= summary.num_in_row) {
    top_k_holds = summary.top_k_weight == summary.total_weight;
  } else if (top_k <= summary.num_top) {
    top_k_holds = summary.top_k_weight == top_masses[top_k];
  } else {
    top_k_holds =
        bounds(top_k).Holds(summary.top_k_weight) && summary.top_k_weight <= summary.total_weight;
  }
  if (top_k_holds) return "";
  return Difference("top_k_weight ", summary.top_k_weight, " cannot be of ", top_k, " ids of ",
                    summary.total_weight);
}

std::string Decider::CheckPerturbed(const Candidates& candidates,
                                    const TopMasses& top_masses) const {
  const std::vector<kernels::PerturbedEntry>& list = candidates.perturbed;
  const kernels::RowSummary& summary = candidates.summary;
  float values[kTogether];
  for (size_t i = 0; i < list.size(); ++i) {
    const kernels::PerturbedEntry& entry = list[i];
    std::string why = CheckEntry("perturbed", i, entry.id, entry.raw, entry.adjusted);
    if (!why.empty()) return why;
    if (i % kTogether == 0) {
      PerturbedValues(params_, position(), summary.row_max, &entry,
                      std::min(kTogether, list.size() - i), values);
    }
    const float mine = values[i % kTogether];
    if (entry.perturbed != mine) {
      return Difference("perturbed[", i, "] id ", entry.id, " has value ", entry.perturbed,
                        ": here ", mine);
    }
    if (i > 0 &&
        !kernels::ComesBefore(list[i - 1].perturbed, list[i - 1].id, entry.perturbed, entry.id)) {
      return Difference("perturbed[", i, "] does not follow perturbed[", i - 1,
                        "] in the order of the draw");
    }
    if (entry.rank < 0 || entry.rank >= summary.num_in_row) {
      return Difference("perturbed[", i, "] has rank ", entry.rank, " of ", summary.num_in_row);
    }
    const auto is_same = [&](const auto& other) { return other.id == entry.id; };
    const bool is_twice = std::any_of(list.begin(), list.begin() + i, is_same) ||
                          (entry.rank >= summary.num_top &&
                           std::any_of(candidates.top.begin(), candidates.top.end(), is_same));
    if (is_twice) return Difference("perturbed[", i, "] id ", entry.id, " is in the lists twice");
  }
  return CheckRanks(candidates, top_masses);
}

std::string Decider::CheckRanks(const Candidates& candidates, const TopMasses& top_masses) const {
  const std::vector<kernels::TopEntry>& top = candidates.top;
  const kernels::RowSummary& summary = candidates.summary;
  std::array<const kernels::PerturbedEntry*, kernels::kMaxPerturbed> by_rank;
  size_t count = 0;
  for (const kernels::PerturbedEntry& entry : candidates.perturbed) by_rank[count++] = &entry;
  std::sort(by_rank.begin(), by_rank.begin() + count,
            [](const auto* a, const auto* b) { return a->rank < b->rank; });
  // The last id whose place is known, and what an id of a later rank can have above it: that id's
  // own mass, that id, and what stands between, whose weights lie between the two. What holds for
  // neighbours holds for all pairs.
  struct Known {
    int32_t rank;
    int32_t id;
    float adjusted;
    uint64_t mass_above;
    uint64_t weight;
  };
  const size_t last = top.size() - 1;
  Known known{static_cast<int32_t>(last), top[last].id, top[last].adjusted, top_masses[last],
              top_masses[last + 1] - top_masses[last]};
  for (size_t i = 0; i < count; ++i) {
    const kernels::PerturbedEntry& entry = *by_rank[i];
    bool holds;
    if (entry.rank < summary.num_top) {
      const kernels::TopEntry& same = top[entry.rank];
      holds = same.id == entry.id && same.raw == entry.raw &&
              entry.mass_above == top_masses[entry.rank];
    } else {
      const uint64_t weight =
          kernels::DrawWeight(kernels::ScaledLogit(entry.adjusted, summary.row_max, params_));
      holds = entry.rank > known.rank &&
              kernels::ComesBefore(known.adjusted, known.id, entry.adjusted, entry.id) &&
              MassBounds(known.mass_above + known.weight, entry.rank - known.rank - 1, weight,
                         known.weight)
                  .Holds(entry.mass_above) &&
              entry.mass_above + weight <= summary.total_weight;
      known = {entry.rank, entry.id, entry.adjusted, entry.mass_above, weight};
    }
    if (!holds) {
      return Difference("perturbed id ", entry.id, " cannot have rank ", entry.rank,
                        " and mass above ", entry.mass_above);
    }
  }
  return "";
}

// The top list proves some of what the perturbed list must hold.
std::string Decider::CheckPerturbedIsComplete(const Candidates& candidates) const {
  const std::vector<kernels::TopEntry>& top = candidates.top;
  const std::vector<kernels::PerturbedEntry>& list = candidates.perturbed;
  const kernels::RowSummary& summary = candidates.summary;
  const bool is_whole = summary.num_perturbed == summary.num_in_row;
  if (is_whole) {
    if (summary.next_perturbed == -std::numeric_limits<float>::infinity()) return "";
    return Difference("next_perturbed is ", summary.next_perturbed, ": the list is the whole row");
  }
  if (!(summary.next_perturbed <= list.back().perturbed)) {
    return Difference("next_perturbed ", summary.next_perturbed, " is above the list's last ",
                      list.back().perturbed);
  }
  std::array<bool, kernels::kMaxTop> is_listed;  // by rank
  std::fill_n(is_listed.begin(), top.size(), false);
  for (const kernels::PerturbedEntry& entry : list) {
    if (entry.rank < summary.num_top) is_listed[entry.rank] = true;
  }
  float values[kTogether];
  for (size_t rank = 0; rank < top.size(); ++rank) {
    if (rank % kTogether == 0) {
      PerturbedValues(params_, position(), summary.row_max, &top[rank],
                      std::min(kTogether, top.size() - rank), values);
    }
    const float value = values[rank % kTogether];
    if (is_listed[rank]) continue;
    if (value > summary.next_perturbed ||
        kernels::ComesBefore(value, top[rank].id, list.back().perturbed, list.back().id)) {
      return Difference("the perturbed list lacks id ", top[rank].id, " of value ", value);
    }
  }
  return "";
}

std::string Decider::CheckRawPart(const Candidates& candidates) const {
  const kernels::RowSummary& summary = candidates.summary;
  if (!params_.want_raw) return "";
  const size_t num_raw_top = std::min(params_.num_raw_top, vocab_size_);
  if (candidates.raw_top.size() != num_raw_top ||
      static_cast<size_t>(summary.num_raw_top) != num_raw_top) {
    return Difference("raw_top has ", candidates.raw_top.size(), " entries: here ", num_raw_top);
  }
  if (candidates.reported.size() != report_ids_.size() ||
      static_cast<size_t>(summary.num_reported) != report_ids_.size()) {
    return Difference("reported has ", candidates.reported.size(), " entries: here ",
                      report_ids_.size());
  }
  if (!std::isfinite(summary.raw_max) || summary.raw_total < kernels::kMaxWeight) {
    return Difference("raw_max ", summary.raw_max, " and raw_total ", summary.raw_total,
                      " cannot be");
  }
  const auto holds = [&](float raw, int32_t raw_rank) {
    return raw <= summary.raw_max && raw_rank >= 0 && raw_rank < vocab_size_ &&
           (raw_rank > 0 || raw == summary.raw_max);
  };
  for (const kernels::TopEntry& entry : candidates.top) {
    if (!holds(entry.raw, entry.raw_rank)) {
      return Difference("top id ", entry.id, " cannot have raw rank ", entry.raw_rank);
    }
  }
  for (size_t i = 0; i < candidates.raw_top.size(); ++i) {
    const kernels::RawEntry& entry = candidates.raw_top[i];
    const bool in_order =
        i == 0 || kernels::ComesBefore(candidates.raw_top[i - 1].raw, candidates.raw_top[i - 1].id,
                                       entry.raw, entry.id);
    if (!in_order || entry.id < 0 || entry.id >= vocab_size_ ||
        entry.raw_rank != static_cast<int32_t>(i) || !holds(entry.raw, entry.raw_rank)) {
      return Difference("raw_top[", i, "] cannot be id ", entry.id, " with logit ", entry.raw);
    }
  }
  for (size_t i = 0; i < candidates.reported.size(); ++i) {
    const kernels::RawEntry& entry = candidates.reported[i];
    if (entry.id != report_ids_[i] || !holds(entry.raw, entry.raw_rank)) {
      return Difference("reported[", i, "] cannot be id ", entry.id, " with logit ", entry.raw);
    }
  }
  return "";
}

Decision Decider::DecideFromCandidates(const Candidates& candidates) const {
  const kernels::RowSummary& summary = candidates.summary;
  const auto fault = [](std::string why) {
    return Decision{Decision::Kind::kFault, -1, std::move(why)};
  };
  if (summary.first_nonfinite >= 0 && summary.first_nonfinite < vocab_size_) {
    return {Decision::Kind::kNonFinite, summary.first_nonfinite, ""};
  }
  if (summary.first_nonfinite != -1) {
    return fault(Difference("first_nonfinite is ", summary.first_nonfinite));
  }
  if (summary.num_in_row != NumInRow()) {
    return fault(Difference("the row has ", summary.num_in_row, " ids: here ", NumInRow()));
  }
  if (summary.num_in_row == 0) return {Decision::Kind::kNoToken, -1, ""};
  const auto is_size = [&](size_t size, int32_t num, int32_t limit) {
    return num >= 1 && num <= std::min(summary.num_in_row, limit) &&
           size == static_cast<size_t>(num);
  };
  if (!is_size(candidates.top.size(), summary.num_top, kernels::kMaxTop) ||
      !is_size(candidates.perturbed.size(), summary.num_perturbed, kernels::kMaxPerturbed)) {
    return fault(Difference("the lists have ", candidates.top.size(), " and ",
                            candidates.perturbed.size(), " entries: the summary says ",
                            summary.num_top, " and ", summary.num_perturbed, " of ",
                            summary.num_in_row));
  }
  TopMasses top_masses;
  std::string why = CheckTop(candidates, &top_masses);
  if (why.empty()) why = CheckTotals(candidates, top_masses);
  if (why.empty()) why = CheckPerturbed(candidates, top_masses);
  if (why.empty()) why = CheckPerturbedIsComplete(candidates);
  if (why.empty()) why = CheckRawPart(candidates);
  if (!why.empty()) return fault(std::move(why));

  const int32_t token = kernels::DecideFromLists(summary, candidates.top.data(),
                                                 candidates.perturbed.data(), params_, position());
  if (token < 0) return {Decision::Kind::kUndecided, -1, ""};
  return {Decision::Kind::kToken, token, ""};
}

}  // namespace tandem
