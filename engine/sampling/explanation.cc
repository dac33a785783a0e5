#include "engine/sampling/explanation.h"

#include <algorithm>

#include "kernels/draw/decide.h"
#include "kernels/draw/weight.h"

namespace tandem {
namespace {

using Fate = ExplainedToken::Fate;

// The first rule that cuts the rank, or doubt where one may.
Fate FateOf(int32_t rank, const ListedRow::Kept& kept) {
  if (rank >= kept.after_top_k.high) return Fate::kCutByTopK;
  if (rank >= kept.after_top_p.high) return Fate::kCutByTopP;
  if (rank >= kept.after_min_p.high) return Fate::kCutByMinP;
  return rank < kept.after_min_p.low ? Fate::kKept : Fate::kInDoubt;
}

bool IsPenalised(const kernels::LogitEdit& edit, const kernels::DrawParams& params) {
  return (edit.repetition_count > 0 && params.repetition_penalty != 1.0f) ||
         (edit.presence_count > 0 && params.presence_penalty != 0.0f) ||
         (edit.frequency_count > 0 && params.frequency_penalty != 0.0f);
}

}  // namespace

StepExplanation ExplainStep(const Decider& decider, const Candidates& lists, int32_t drawn) {
  const kernels::RowSummary& summary = lists.summary;
  const kernels::DrawParams& params = decider.params();
  StepExplanation out;
  out.position = decider.position();
  out.num_in_row = summary.num_in_row;
  out.num_outside = decider.vocab_size() - summary.num_in_row;
  out.end_ids_held = decider.EndIdsAreOutside();
  out.kept = ListedRow(decider, lists).Keeps(params);

  const double total = static_cast<double>(summary.total_weight);
  const auto add = [&](int32_t id, int32_t rank, float raw, float adjusted, uint64_t mass_above) {
    ExplainedToken& token = out.tokens.emplace_back();
    const float s = kernels::ScaledLogit(adjusted, summary.row_max, params);
    token.id = id;
    token.rank = rank;
    token.raw = raw;
    token.adjusted = adjusted;
    token.edit = decider.EditOf(id);
    token.probability = static_cast<double>(kernels::DrawWeight(s)) / total;
    token.mass_above = static_cast<double>(mass_above) / total;
    token.noise =
        params.greedy ? 0.0f : kernels::Gumbel(params.seed, params.choice, decider.position(), id);
    token.perturbed = s + token.noise;
    token.fate = FateOf(rank, out.kept);
    out.num_biased += token.edit.bias != 0.0f;
    out.num_penalised += IsPenalised(token.edit, params);
  };
  uint64_t mass_above = 0;
  int32_t rank = 0;
  for (const kernels::TopEntry& entry : lists.top) {
    add(entry.id, rank++, entry.raw, entry.adjusted, mass_above);
    out.tokens.back().in_top = true;
    mass_above +=
        kernels::DrawWeight(kernels::ScaledLogit(entry.adjusted, summary.row_max, params));
  }
  for (const kernels::PerturbedEntry& entry : lists.perturbed) {
    if (entry.rank >= rank) {
      add(entry.id, entry.rank, entry.raw, entry.adjusted, entry.mass_above);
      out.tokens.back().in_perturbed = true;
    } else {
      out.tokens[entry.rank].in_perturbed = true;
    }
  }
  std::sort(out.tokens.begin(), out.tokens.end(),
            [](const auto& a, const auto& b) { return a.rank < b.rank; });

  for (int32_t i = 0; i < static_cast<int32_t>(out.tokens.size()); ++i) {
    const ExplainedToken& token = out.tokens[i];
    if (token.id == drawn) {
      out.winner = i;
    } else if (token.fate == Fate::kKept &&
               (out.second < 0 ||
                kernels::ComesBefore(token.perturbed, token.id, out.tokens[out.second].perturbed,
                                     out.tokens[out.second].id))) {
      out.second = i;
    }
  }
  return out;
}

}  // namespace tandem
