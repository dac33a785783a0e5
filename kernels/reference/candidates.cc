#include "kernels/reference/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/check.h"
#include "kernels/draw/decide.h"

namespace tandem::kernels {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// An id of the row with everything that the rules ask about it.
struct Line {
  int32_t id = 0;
  float raw = 0.0f;
  float adjusted = 0.0f;
  float perturbed = 0.0f;
  int32_t rank = 0;
  uint64_t weight = 0;
  uint64_t mass_above = 0;
};

bool BitIsSet(const uint32_t* bits, int32_t id) { return (bits[id / 32] >> (id % 32) & 1u) != 0; }

bool IsInRow(const SlotState& slots, int32_t slot, int32_t position, int32_t id) {
  if (slots.defined_bits != nullptr && !BitIsSet(slots.defined_bits, id)) return false;
  if (slots.allowed_bits != nullptr && slots.has_allowed[slot] != 0) {
    const int64_t words = (int64_t{slots.vocab_size} + 31) / 32;
    if (!BitIsSet(slots.allowed_bits + slot * words, id)) return false;
  }
  const DrawParams& params = slots.params[slot];
  if (slots.end_ids != nullptr && position < params.prompt_length + params.min_tokens) {
    const int32_t* end_ids = slots.end_ids + int64_t{slot} * slots.max_end_ids;
    for (int32_t i = 0; i < slots.num_end_ids[slot]; ++i) {
      if (end_ids[i] == id) return false;
    }
  }
  return true;
}

// One edit per id of the vocabulary.
std::vector<LogitEdit> Edits(const SlotState& slots, int32_t slot, int32_t position) {
  std::vector<LogitEdit> edits(slots.vocab_size);
  if (slots.bias_ids != nullptr) {
    const int64_t line = int64_t{slot} * slots.max_bias;
    for (int32_t i = 0; i < slots.num_bias[slot]; ++i) {
      const int32_t id = slots.bias_ids[line + i];
      KERNELS_REQUIRE(id >= 0 && id < slots.vocab_size, "bias id %d, vocabulary %d", id,
                      slots.vocab_size);
      edits[id].bias = slots.bias_values[line + i];
    }
  }
  const DrawParams& params = slots.params[slot];
  const int32_t* tokens = slots.tokens + int64_t{slot} * slots.context_length;
  for (int32_t i = 0; i < position; ++i) {
    if (tokens[i] < 0 || tokens[i] >= slots.vocab_size) continue;
    LogitEdit& edit = edits[tokens[i]];
    if (i >= RepetitionBegin(params, position)) ++edit.repetition_count;
    if (i >= PresenceBegin(params, position)) ++edit.presence_count;
    if (i >= FrequencyBegin(params, position)) ++edit.frequency_count;
  }
  return edits;
}

// The ids inside the row, in the order of ranks. Every raw logit is finite.
std::vector<Line> SortedRow(std::span<const float> logits, const SlotState& slots, int32_t slot,
                            int32_t position) {
  const DrawParams& params = slots.params[slot];
  const std::vector<LogitEdit> edits = Edits(slots, slot, position);
  std::vector<Line> row;
  for (int32_t id = 0; id < slots.vocab_size; ++id) {
    if (!IsInRow(slots, slot, position, id)) continue;
    Line line;
    line.id = id;
    line.raw = logits[id];
    line.adjusted = AdjustedLogit(logits[id], edits[id], params);
    row.push_back(line);
  }
  std::sort(row.begin(), row.end(), [](const Line& a, const Line& b) {
    return ComesBefore(a.adjusted, a.id, b.adjusted, b.id);
  });
  uint64_t mass = 0;
  for (size_t rank = 0; rank < row.size(); ++rank) {
    Line& line = row[rank];
    const float s = ScaledLogit(line.adjusted, row[0].adjusted, params);
    line.rank = static_cast<int32_t>(rank);
    line.perturbed = PerturbedValue(params, s, position, line.id);
    line.weight = DrawWeight(s);
    line.mass_above = mass;
    mass += line.weight;
  }
  return row;
}

uint64_t TotalWeight(const std::vector<Line>& row, size_t count) {
  uint64_t total = 0;
  for (size_t i = 0; i < std::min(count, row.size()); ++i) total += row[i].weight;
  return total;
}

uint64_t TopKWeight(const std::vector<Line>& row, const DrawParams& params) {
  return TotalWeight(row, params.top_k > 0 ? params.top_k : row.size());
}

bool DrawnBefore(const Line& a, const Line& b) {
  return ComesBefore(a.perturbed, a.id, b.perturbed, b.id);
}

int32_t FirstNonFinite(std::span<const float> logits) {
  for (size_t id = 0; id < logits.size(); ++id) {
    if (!std::isfinite(logits[id])) return static_cast<int32_t>(id);
  }
  return -1;
}

void CheckArguments(std::span<const float> logits, const SlotState& slots, int32_t slot,
                    int32_t row_position) {
  KERNELS_REQUIRE(slot >= 0 && slot < slots.num_slots, "slot %d of %d", slot, slots.num_slots);
  KERNELS_REQUIRE(row_position >= 0 && row_position < slots.context_length, "position %d of %d",
                  row_position, slots.context_length);
  KERNELS_REQUIRE(static_cast<int64_t>(logits.size()) == slots.vocab_size, "%zu logits, vocab %d",
                  logits.size(), slots.vocab_size);
  const DrawParams& params = slots.params[slot];
  KERNELS_REQUIRE(params.num_top >= 0 && params.num_top <= kMaxTop, "num_top %d", params.num_top);
  KERNELS_REQUIRE(params.num_perturbed >= 0 && params.num_perturbed <= kMaxPerturbed,
                  "num_perturbed %d", params.num_perturbed);
  KERNELS_REQUIRE(params.num_raw_top >= 0 && params.num_raw_top <= kMaxRawTop, "num_raw_top %d",
                  params.num_raw_top);
}

// Ranks by raw logit over the whole vocabulary, and the raw part of the result. Returns rank by id.
std::vector<int32_t> AddRawPart(std::span<const float> logits, const SlotState& slots, int32_t slot,
                                RowCandidates& result) {
  std::vector<int32_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return ComesBefore(logits[a], a, logits[b], b); });
  std::vector<int32_t> raw_rank(order.size());
  for (size_t rank = 0; rank < order.size(); ++rank) {
    raw_rank[order[rank]] = static_cast<int32_t>(rank);
  }
  RowSummary& summary = result.summary;
  summary.raw_max = logits[order[0]];
  for (const float raw : logits) summary.raw_total += DrawWeight(raw - summary.raw_max);
  summary.num_raw_top = std::min(slots.params[slot].num_raw_top, slots.vocab_size);
  for (int32_t rank = 0; rank < summary.num_raw_top; ++rank) {
    result.raw_top.push_back({order[rank], logits[order[rank]], rank});
  }
  if (slots.report_ids != nullptr) {
    const int32_t* ids = slots.report_ids + int64_t{slot} * slots.max_report_ids;
    summary.num_reported = slots.num_report_ids[slot];
    for (int32_t i = 0; i < summary.num_reported; ++i) {
      KERNELS_REQUIRE(ids[i] >= 0 && ids[i] < slots.vocab_size, "report id %d, vocabulary %d",
                      ids[i], slots.vocab_size);
      result.reported.push_back({ids[i], logits[ids[i]], raw_rank[ids[i]]});
    }
  }
  return raw_rank;
}

}  // namespace

RowSummary EmptySummary() {
  RowSummary summary{};
  summary.first_nonfinite = -1;
  summary.drawn = -1;
  return summary;
}

RawEntry RawEntryOf(std::span<const float> logits, int32_t id) {
  KERNELS_REQUIRE(id >= 0 && id < static_cast<int32_t>(logits.size()), "id %d, vocabulary %zu", id,
                  logits.size());
  RawEntry entry{id, logits[id], 0};
  for (size_t other = 0; other < logits.size(); ++other) {
    if (ComesBefore(logits[other], static_cast<int32_t>(other), entry.raw, id)) ++entry.raw_rank;
  }
  return entry;
}

RowCandidates ComputeCandidates(std::span<const float> logits, const SlotState& slots, int32_t slot,
                                int32_t row_position) {
  CheckArguments(logits, slots, slot, row_position);
  const DrawParams& params = slots.params[slot];
  const int32_t position = row_position + 1;
  RowCandidates result;
  RowSummary& summary = result.summary;
  summary = EmptySummary();
  summary.first_nonfinite = FirstNonFinite(logits);
  if (summary.first_nonfinite >= 0) return result;

  std::vector<int32_t> raw_rank(logits.size(), -1);
  if (params.want_raw) raw_rank = AddRawPart(logits, slots, slot, result);

  std::vector<Line> row = SortedRow(logits, slots, slot, position);
  const int32_t num_in_row = static_cast<int32_t>(row.size());
  summary.num_in_row = num_in_row;
  summary.row_max = row.empty() ? kMinusInfinity : row[0].adjusted;
  summary.total_weight = TotalWeight(row, row.size());
  summary.top_k_weight = TopKWeight(row, params);
  summary.num_top = std::min(params.num_top, num_in_row);
  for (int32_t i = 0; i < summary.num_top; ++i) {
    result.top.push_back({row[i].id, row[i].raw, row[i].adjusted, raw_rank[row[i].id]});
  }

  std::sort(row.begin(), row.end(), DrawnBefore);
  summary.num_perturbed = std::min(params.num_perturbed, num_in_row);
  for (int32_t i = 0; i < summary.num_perturbed; ++i) {
    const Line& line = row[i];
    result.perturbed.push_back({line.id, line.raw, line.adjusted, line.perturbed, line.rank,
                                raw_rank[line.id], line.mass_above});
  }
  summary.next_perturbed =
      summary.num_perturbed < num_in_row ? row[summary.num_perturbed].perturbed : kMinusInfinity;
  summary.drawn =
      DecideFromLists(summary, result.top.data(), result.perturbed.data(), params, position);
  return result;
}

int32_t DrawFromRow(std::span<const float> logits, const SlotState& slots, int32_t slot,
                    int32_t row_position) {
  CheckArguments(logits, slots, slot, row_position);
  if (FirstNonFinite(logits) >= 0) return -1;
  const DrawParams& params = slots.params[slot];
  const std::vector<Line> row = SortedRow(logits, slots, slot, row_position + 1);
  const uint64_t top_k_weight = TopKWeight(row, params);
  const Line* best = nullptr;
  for (const Line& line : row) {
    if (!Keeps(params, top_k_weight, line.rank, line.mass_above, line.weight)) continue;
    if (best == nullptr || DrawnBefore(line, *best)) best = &line;
  }
  return best == nullptr ? -1 : best->id;
}

}  // namespace tandem::kernels
