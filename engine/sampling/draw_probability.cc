#include "engine/sampling/draw_probability.h"

#include "kernels/draw/decide.h"
#include "kernels/draw/weight.h"

namespace tandem {
namespace {

uint64_t WeightOf(const kernels::DrawParams& params, const Candidates& candidates, float adjusted) {
  return kernels::DrawWeight(kernels::ScaledLogit(adjusted, candidates.summary.row_max, params));
}

std::optional<float> FindAdjusted(const Candidates& candidates, int32_t token) {
  for (const kernels::TopEntry& entry : candidates.top) {
    if (entry.id == token) return entry.adjusted;
  }
  for (const kernels::PerturbedEntry& entry : candidates.perturbed) {
    if (entry.id == token) return entry.adjusted;
  }
  return std::nullopt;
}

// Of all ids that are kept.
std::optional<uint64_t> KeptMass(const kernels::DrawParams& params, const Candidates& candidates) {
  const kernels::RowSummary& summary = candidates.summary;
  if (params.top_p_fixed >= kernels::kTopPOff && params.min_p_weight == 0) {
    return summary.top_k_weight;
  }
  uint64_t mass_above = 0;
  int32_t rank = 0;
  for (const kernels::TopEntry& entry : candidates.top) {
    const uint64_t weight = WeightOf(params, candidates, entry.adjusted);
    if (!kernels::Keeps(params, summary.top_k_weight, rank, mass_above, weight)) return mass_above;
    mass_above += weight;
    ++rank;
  }
  if (rank == summary.num_in_row || !kernels::PassesTopK(params.top_k, rank) ||
      !kernels::PassesTopP(params.top_p_fixed, mass_above, summary.top_k_weight)) {
    return mass_above;
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> DrawProbability(const kernels::DrawParams& params,
                                      const Candidates& candidates, int32_t token) {
  if (params.greedy) return 1.0;
  const std::optional<float> adjusted = FindAdjusted(candidates, token);
  const std::optional<uint64_t> mass = KeptMass(params, candidates);
  if (!adjusted.has_value() || !mass.has_value() || *mass == 0) return std::nullopt;
  return static_cast<double>(WeightOf(params, candidates, *adjusted)) / static_cast<double>(*mass);
}

}  // namespace tandem
