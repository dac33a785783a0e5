// The functions that table.cc gathers, one set per level (level.h says what each does).
#pragma once

#include "kernels/cpu/level.h"
#include "kernels/cpu/simd.h"

namespace tandem::kernels::cpu::TANDEM_CPU_LEVEL {

void Product(const ProductTask& task, int32_t tile_begin, int32_t tile_end, int32_t row_begin,
             int32_t row_end);
void BlockSums(const float* x, int32_t cols, float* sums);
void NormRow(const NormTask& task, const float* x, float* out);
void GateRow(int32_t kind, const float* gate, const float* up, int32_t count, float* out);
void ScaleAndCap(float scale, float cap, float* x, int32_t count);
void Attention(const AttentionTask& task, int32_t first_position, int32_t num_rows);

bool ClampRow(const float* raw, int32_t count, float* adjusted);
void ExcludeIds(const uint32_t* bits, int32_t count, float* adjusted);
float BlockMaxima(const float* values, int32_t count, float* maxima);
int32_t CountInRow(const float* adjusted, int32_t count);
uint64_t ScoreIds(const DrawParams& params, int32_t position, float row_max, int32_t first_id,
                  int32_t count, const float* adjusted, float* perturbed, uint64_t* weights);
uint64_t TotalRawWeight(const float* raw, int32_t count, float raw_max);
Above CountAbove(const float* values, const uint64_t* weights, const float* maxima, int32_t count,
                 float limit, int32_t ties_before);

}  // namespace tandem::kernels::cpu::TANDEM_CPU_LEVEL
