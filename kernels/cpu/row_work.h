// One logits row on its way to its candidate lists; keeps its memory from row to row.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cpu/level.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/draw/edit.h"
#include "kernels/ops.h"

namespace tandem::kernels::cpu {

// Where a row's results go; the lists have the room that CandidatesArgs says.
struct RowOutput {
  RowSummary* summary = nullptr;
  TopEntry* top = nullptr;
  PerturbedEntry* perturbed = nullptr;
  RawEntry* raw_top = nullptr;
  RawEntry* reported = nullptr;
  RawEntry* next = nullptr;  // of the token that the slot holds at the position
};

class RowWork final {
 public:
  // pool: where the pieces of a row run; null: on the caller's thread.
  explicit RowWork(const Kernels& kernels) : kernels_(kernels) {}
  RowWork(const RowWork&) = delete;
  RowWork& operator=(const RowWork&) = delete;

  // The row of `slot` that ran at position - 1; logits [slots.vocab_size].
  void Compute(const float* logits, const SlotState& slots, int32_t slot, int32_t position,
               ThreadPool* pool, const RowOutput& out);

 private:
  // Values of all ids with the largest of every kMaximaBlock.
  struct Column {
    std::vector<float> values;
    std::vector<float> maxima;
  };
  struct Edited {
    int32_t id;
    LogitEdit edit;
  };
  struct PieceResult {
    bool finite;
    int32_t in_row;
    float largest;
    uint64_t weight;
  };
  // An entry whose place in an order is asked for.
  struct Place {
    float value;
    int32_t id;
  };

  // function(piece, first id, number of ids) for the pieces of the vocabulary.
  template <typename Function>
  void ForPieces(const Function& function);

  void CollectEdits(const SlotState& slots, int32_t slot, int32_t position);
  void CountHistory(const DrawParams& params, const int32_t* tokens, int32_t position);
  void Adjust(const SlotState& slots, int32_t slot, int32_t position);
  void AdjustPiece(const SlotState& slots, int32_t slot, int32_t position, int32_t first,
                   int32_t count);
  float RowMaximum(float largest) const;
  uint64_t Score(const DrawParams& params, int32_t position, float row_max);
  // Keys (draw/order.h) of the `number` first ids by value, at most; values of -infinity have none.
  // Only the first num_sorted are in order.
  void Select(const float* values, const std::vector<float>& maxima, int32_t number,
              int32_t num_sorted, std::vector<uint64_t>* keys);
  // For each place, what stands before it in the order of values.
  std::vector<Above> CountAbove(const float* values, const uint64_t* weights,
                                const std::vector<float>& maxima, const std::vector<Place>& places);
  void FillTop(const DrawParams& params, const RowOutput& out);
  void FillPerturbed(const DrawParams& params, const RowOutput& out);
  void FillRaw(const SlotState& slots, int32_t slot, int32_t position, const RowOutput& out);

  const Kernels& kernels_;
  ThreadPool* pool_ = nullptr;
  const float* logits_ = nullptr;
  int32_t vocab_size_ = 0;
  Column adjusted_;
  Column perturbed_;
  std::vector<float> raw_maxima_;
  std::vector<uint64_t> weights_;
  std::vector<PieceResult> pieces_;
  std::vector<Edited> edits_;
  std::vector<int32_t> edit_index_;  // [vocab_size] index into edits_ + 1; 0 between rows
  std::vector<float> bounds_;
  std::vector<uint64_t> keys_;
};

}  // namespace tandem::kernels::cpu
