// The decision of a row from its lists: the token that the whole row would give, or none.
//
// Why it is exact. The token is the first, in the order of the draw, of the kept ids. The perturbed
// list is a prefix of that order over the whole row, and each of its entries knows its rank and the
// mass above, so that whether it is kept is known: the first kept entry is the token. If no entry
// is kept, the kept set, which is a prefix of the order of ranks, may still end inside the top
// list; then every kept id is in that list, and the best of them is the token. Without noise the
// token is the id of rank 0.
#pragma once

#include <cstdint>

#include "kernels/draw/candidates.h"
#include "kernels/draw/edit.h"
#include "kernels/draw/host_device.h"
#include "kernels/draw/noise.h"
#include "kernels/draw/order.h"
#include "kernels/draw/params.h"
#include "kernels/draw/weight.h"

namespace tandem::kernels {

// fp32(s + G) of an id, G = 0 where the draw is greedy.
TANDEM_HD float PerturbedValue(const DrawParams& params, float s, int32_t position, int32_t id) {
  return params.greedy ? s : s + Gumbel(params.seed, params.choice, position, id);
}

// The token for `position` (that of the token to be decided), or -1: the lists do not decide, the
// row is empty, or it has a non-finite logit. top [summary.num_top] in the order of ranks,
// perturbed [summary.num_perturbed] in the order of the draw.
TANDEM_HD int32_t DecideFromLists(const RowSummary& summary, const TopEntry* top,
                                  const PerturbedEntry* perturbed, const DrawParams& params,
                                  int32_t position) {
  if (summary.first_nonfinite >= 0 || summary.num_in_row == 0) return -1;
  if (params.greedy && summary.num_top > 0) return top[0].id;
  for (int32_t i = 0; i < summary.num_perturbed; ++i) {
    const PerturbedEntry& entry = perturbed[i];
    const uint64_t weight = DrawWeight(ScaledLogit(entry.adjusted, summary.row_max, params));
    if (Keeps(params, summary.top_k_weight, entry.rank, entry.mass_above, weight)) return entry.id;
  }
  int32_t best_id = -1;
  float best_value = 0.0f;
  uint64_t mass_above = 0;
  bool ends_inside = summary.num_top == summary.num_in_row;
  for (int32_t rank = 0; rank < summary.num_top; ++rank) {
    const float s = ScaledLogit(top[rank].adjusted, summary.row_max, params);
    const uint64_t weight = DrawWeight(s);
    if (!Keeps(params, summary.top_k_weight, rank, mass_above, weight)) {
      ends_inside = true;
      break;
    }
    mass_above += weight;
    const float value = PerturbedValue(params, s, position, top[rank].id);
    if (best_id < 0 || ComesBefore(value, top[rank].id, best_value, best_id)) {
      best_id = top[rank].id;
      best_value = value;
    }
  }
  // The id after the list is out by its rank or by the mass above it, hence so are all that follow.
  ends_inside = ends_inside || !PassesTopK(params.top_k, summary.num_top) ||
                !PassesTopP(params.top_p_fixed, mass_above, summary.top_k_weight);
  return ends_inside ? best_id : -1;
}

}  // namespace tandem::kernels
