#include "kernels/cpu/level_functions.h"

namespace tandem::kernels::cpu::TANDEM_CPU_LEVEL {

const Kernels& Table() {
  static constexpr Kernels kTable = {
      .product = Product,
      .block_sums = BlockSums,
      .norm = NormRow,
      .gate = GateRow,
      .scale_and_cap = ScaleAndCap,
      .attention = Attention,
      .clamp_row = ClampRow,
      .exclude_ids = ExcludeIds,
      .block_maxima = BlockMaxima,
      .count_in_row = CountInRow,
      .score_ids = ScoreIds,
      .total_raw_weight = TotalRawWeight,
      .count_above = CountAbove,
  };
  return kTable;
}

}  // namespace tandem::kernels::cpu::TANDEM_CPU_LEVEL
