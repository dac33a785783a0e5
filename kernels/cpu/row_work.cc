#include "kernels/cpu/row_work.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/check.h"
#include "kernels/draw/decide.h"

namespace tandem::kernels::cpu {
namespace {

constexpr int32_t kPieceIds = 4096;  // a multiple of 64: the scoring pass works on whole rounds
constexpr float kOutside = -std::numeric_limits<float>::infinity();

// A penalty that leaves every logit as it is, to the sign of a zero.
bool IsNeutral(const DrawParams& params) {
  return params.repetition_penalty == 1.0f &&
         std::bit_cast<uint32_t>(params.presence_penalty) == 0 &&
         std::bit_cast<uint32_t>(params.frequency_penalty) == 0;
}

// The k-th largest of values, k in [1, values.size()]. Changes scratch.
float KthLargest(const std::vector<float>& values, int32_t k, std::vector<float>* scratch) {
  if (k > 128) {
    *scratch = values;
    std::nth_element(scratch->begin(), scratch->begin() + (k - 1), scratch->end(),
                     std::greater<>());
    return (*scratch)[k - 1];
  }
  scratch->assign(values.begin(), values.begin() + k);  // a heap with the least on top
  std::make_heap(scratch->begin(), scratch->end(), std::greater<>());
  for (size_t i = k; i < values.size(); ++i) {
    if (values[i] <= scratch->front()) continue;
    std::pop_heap(scratch->begin(), scratch->end(), std::greater<>());
    scratch->back() = values[i];
    std::push_heap(scratch->begin(), scratch->end(), std::greater<>());
  }
  return scratch->front();
}

}  // namespace

template <typename Function>
void RowWork::ForPieces(const Function& function) {
  const int32_t num_pieces = static_cast<int32_t>(pieces_.size());
  const auto run = [&](int32_t piece, int32_t) {
    const int32_t first = piece * kPieceIds;
    function(piece, first, std::min(kPieceIds, vocab_size_ - first));
  };
  if (pool_ != nullptr) {
    pool_->Run(num_pieces, run);
  } else {
    for (int32_t piece = 0; piece < num_pieces; ++piece) run(piece, 0);
  }
}

void RowWork::Compute(const float* logits, const SlotState& slots, int32_t slot, int32_t position,
                      ThreadPool* pool, const RowOutput& out) {
  logits_ = logits;
  pool_ = pool;
  vocab_size_ = slots.vocab_size;
  const int32_t num_blocks = (vocab_size_ + kMaximaBlock - 1) / kMaximaBlock;
  for (Column* column : {&adjusted_, &perturbed_}) {
    column->values.resize(vocab_size_);
    column->maxima.resize(num_blocks);
  }
  weights_.resize(vocab_size_);
  pieces_.resize((vocab_size_ + kPieceIds - 1) / kPieceIds);

  const DrawParams& params = slots.params[slot];
  RowSummary& summary = *out.summary;
  summary = RowSummary{};
  summary.first_nonfinite = -1;
  summary.drawn = -1;
  CollectEdits(slots, slot, position);
  Adjust(slots, slot, position);
  float largest = kOutside;
  bool finite = true;
  for (const PieceResult& piece : pieces_) {
    finite = finite && piece.finite;
    summary.num_in_row += piece.in_row;
    largest = std::max(largest, piece.largest);
  }
  if (!finite) {
    summary.num_in_row = 0;
    for (int32_t id = 0; summary.first_nonfinite < 0; ++id) {
      if (!std::isfinite(logits[id])) summary.first_nonfinite = id;
    }
    return;
  }
  summary.row_max = RowMaximum(largest);
  summary.total_weight = summary.num_in_row > 0 ? Score(params, position, summary.row_max) : 0;
  FillTop(params, out);
  FillPerturbed(params, out);
  if (params.want_raw) FillRaw(slots, slot, position, out);
  summary.drawn = DecideFromLists(summary, out.top, out.perturbed, params, position);
}

void RowWork::CollectEdits(const SlotState& slots, int32_t slot, int32_t position) {
  edits_.clear();
  edit_index_.resize(vocab_size_, 0);
  if (slots.bias_ids != nullptr) {
    const int64_t line = int64_t{slot} * slots.max_bias;
    for (int32_t i = 0; i < slots.num_bias[slot]; ++i) {
      const int32_t id = slots.bias_ids[line + i];
      KERNELS_REQUIRE(id >= 0 && id < vocab_size_, "bias id %d, vocabulary %d", id, vocab_size_);
      edits_.push_back({id, {.bias = slots.bias_values[line + i]}});
      edit_index_[id] = static_cast<int32_t>(edits_.size());
    }
  }
  if (!IsNeutral(slots.params[slot])) {
    CountHistory(slots.params[slot], slots.tokens + int64_t{slot} * slots.context_length, position);
  }
  for (const Edited& edited : edits_) edit_index_[edited.id] = 0;
}

void RowWork::CountHistory(const DrawParams& params, const int32_t* tokens, int32_t position) {
  const int32_t repetition = RepetitionBegin(params, position);
  const int32_t presence = PresenceBegin(params, position);
  const int32_t frequency = FrequencyBegin(params, position);
  for (int32_t i = std::min({repetition, presence, frequency}); i < position; ++i) {
    const int32_t id = tokens[i];
    if (id < 0 || id >= vocab_size_) continue;
    if (edit_index_[id] == 0) {
      edits_.push_back({id, {}});
      edit_index_[id] = static_cast<int32_t>(edits_.size());
    }
    LogitEdit& edit = edits_[edit_index_[id] - 1].edit;
    if (i >= repetition) ++edit.repetition_count;
    if (i >= presence) ++edit.presence_count;
    if (i >= frequency) ++edit.frequency_count;
  }
}

void RowWork::Adjust(const SlotState& slots, int32_t slot, int32_t position) {
  ForPieces([&](int32_t piece, int32_t first, int32_t count) {
    float* adjusted = adjusted_.values.data() + first;
    PieceResult& result = pieces_[piece];
    result.finite = kernels_.clamp_row(logits_ + first, count, adjusted);
    AdjustPiece(slots, slot, position, first, count);
    result.in_row = kernels_.count_in_row(adjusted, count);
    result.largest =
        kernels_.block_maxima(adjusted, count, adjusted_.maxima.data() + first / kMaximaBlock);
  });
}

void RowWork::AdjustPiece(const SlotState& slots, int32_t slot, int32_t position, int32_t first,
                          int32_t count) {
  const DrawParams& params = slots.params[slot];
  float* adjusted = adjusted_.values.data() + first;
  const auto is_here = [&](int32_t id) { return id >= first && id < first + count; };
  for (const Edited& edited : edits_) {
    if (!is_here(edited.id)) continue;
    adjusted[edited.id - first] = AdjustedLogit(logits_[edited.id], edited.edit, params);
  }
  if (slots.defined_bits != nullptr) {
    kernels_.exclude_ids(slots.defined_bits + first / 32, count, adjusted);
  }
  if (slots.allowed_bits != nullptr && slots.has_allowed[slot] != 0) {
    const int64_t words = (int64_t{vocab_size_} + 31) / 32;
    kernels_.exclude_ids(slots.allowed_bits + slot * words + first / 32, count, adjusted);
  }
  if (slots.end_ids != nullptr && position < params.prompt_length + params.min_tokens) {
    const int32_t* end_ids = slots.end_ids + int64_t{slot} * slots.max_end_ids;
    for (int32_t i = 0; i < slots.num_end_ids[slot]; ++i) {
      if (is_here(end_ids[i])) adjusted[end_ids[i] - first] = kOutside;
    }
  }
}

// The first value of the order of ranks: where both zeros are the largest, the sign of the lowest
// id.
float RowWork::RowMaximum(float largest) const {
  if (largest != 0.0f) return largest;
  return *std::find(adjusted_.values.begin(), adjusted_.values.end(), 0.0f);
}

uint64_t RowWork::Score(const DrawParams& params, int32_t position, float row_max) {
  ForPieces([&](int32_t piece, int32_t first, int32_t count) {
    float* perturbed = perturbed_.values.data() + first;
    pieces_[piece].weight =
        kernels_.score_ids(params, position, row_max, first, count, adjusted_.values.data() + first,
                           perturbed, weights_.data() + first);
    kernels_.block_maxima(perturbed, count, perturbed_.maxima.data() + first / kMaximaBlock);
  });
  uint64_t total = 0;
  for (const PieceResult& piece : pieces_) total += piece.weight;
  return total;
}

void RowWork::Select(const float* values, const std::vector<float>& maxima, int32_t number,
                     int32_t num_sorted, std::vector<uint64_t>* keys) {
  keys->clear();
  if (number == 0) return;
  const float bound = number < static_cast<int32_t>(maxima.size())
                          ? KthLargest(maxima, number, &bounds_)
                          : kOutside;
  for (size_t block = 0; block < maxima.size(); ++block) {
    if (maxima[block] < bound) continue;
    const int32_t first = static_cast<int32_t>(block) * kMaximaBlock;
    const int32_t end = std::min(vocab_size_, first + kMaximaBlock);
    for (int32_t id = first; id < end; ++id) {
      if (values[id] >= bound && values[id] > kOutside) keys->push_back(OrderKey(values[id], id));
    }
  }
  if (static_cast<int32_t>(keys->size()) > number) {
    std::nth_element(keys->begin(), keys->begin() + number, keys->end(), std::greater<>());
    keys->resize(number);
  }
  const int32_t sorted = std::min(num_sorted, static_cast<int32_t>(keys->size()));
  std::partial_sort(keys->begin(), keys->begin() + sorted, keys->end(), std::greater<>());
}

std::vector<Above> RowWork::CountAbove(const float* values, const uint64_t* weights,
                                       const std::vector<float>& maxima,
                                       const std::vector<Place>& places) {
  std::vector<Above> in_piece(pieces_.size() * places.size());
  ForPieces([&](int32_t piece, int32_t first, int32_t count) {
    for (size_t i = 0; i < places.size(); ++i) {
      in_piece[piece * places.size() + i] = kernels_.count_above(
          values + first, weights != nullptr ? weights + first : nullptr,
          maxima.data() + first / kMaximaBlock, count, places[i].value, places[i].id - first);
    }
  });
  std::vector<Above> above(places.size());
  for (size_t j = 0; j < in_piece.size(); ++j) {
    above[j % places.size()].count += in_piece[j].count;
    above[j % places.size()].mass += in_piece[j].mass;
  }
  return above;
}

void RowWork::FillTop(const DrawParams& params, const RowOutput& out) {
  RowSummary& summary = *out.summary;
  summary.num_top = std::min(params.num_top, summary.num_in_row);
  const int32_t top_k = params.top_k > 0 && params.top_k < summary.num_in_row ? params.top_k : 0;
  Select(adjusted_.values.data(), adjusted_.maxima, std::max(summary.num_top, top_k),
         summary.num_top, &keys_);
  for (int32_t i = 0; i < summary.num_top; ++i) {
    const int32_t id = OrderKeyId(keys_[i]);
    out.top[i] = {id, logits_[id], adjusted_.values[id], -1};
  }
  summary.top_k_weight = summary.total_weight;
  if (top_k == 0) return;
  // Where the list is longer, its first top_k are sorted; where it is not, all of keys_ count.
  summary.top_k_weight = 0;
  for (int32_t i = 0; i < top_k; ++i) summary.top_k_weight += weights_[OrderKeyId(keys_[i])];
}

void RowWork::FillPerturbed(const DrawParams& params, const RowOutput& out) {
  RowSummary& summary = *out.summary;
  summary.num_perturbed = std::min(params.num_perturbed, summary.num_in_row);
  summary.next_perturbed = kOutside;
  if (summary.num_in_row == 0) return;
  const int32_t wanted = summary.num_perturbed + 1;
  Select(perturbed_.values.data(), perturbed_.maxima, wanted, wanted, &keys_);
  if (static_cast<int32_t>(keys_.size()) == wanted) {
    summary.next_perturbed = perturbed_.values[OrderKeyId(keys_.back())];
    keys_.pop_back();
  }
  std::vector<Place> places;
  for (const uint64_t key : keys_) {
    const int32_t id = OrderKeyId(key);
    places.push_back({adjusted_.values[id], id});
  }
  const std::vector<Above> above =
      CountAbove(adjusted_.values.data(), weights_.data(), adjusted_.maxima, places);
  for (size_t i = 0; i < places.size(); ++i) {
    const int32_t id = places[i].id;
    out.perturbed[i] = {
        id, logits_[id],  adjusted_.values[id], perturbed_.values[id], above[i].count,
        -1, above[i].mass};
  }
}

void RowWork::FillRaw(const SlotState& slots, int32_t slot, int32_t position,
                      const RowOutput& out) {
  RowSummary& summary = *out.summary;
  const DrawParams& params = slots.params[slot];
  raw_maxima_.resize(adjusted_.maxima.size());
  ForPieces([&](int32_t, int32_t first, int32_t count) {
    kernels_.block_maxima(logits_ + first, count, raw_maxima_.data() + first / kMaximaBlock);
  });
  summary.num_raw_top = std::min(params.num_raw_top, vocab_size_);
  const int32_t wanted = std::max(1, summary.num_raw_top);
  Select(logits_, raw_maxima_, wanted, wanted, &keys_);
  summary.raw_max = logits_[OrderKeyId(keys_[0])];
  KERNELS_REQUIRE(summary.num_raw_top == 0 || out.raw_top != nullptr,
                  "slot %d wants raw candidates", slot);
  for (int32_t i = 0; i < summary.num_raw_top; ++i) {
    const int32_t id = OrderKeyId(keys_[i]);
    out.raw_top[i] = {id, logits_[id], i};
  }
  ForPieces([&](int32_t piece, int32_t first, int32_t count) {
    pieces_[piece].weight = kernels_.total_raw_weight(logits_ + first, count, summary.raw_max);
  });
  for (const PieceResult& piece : pieces_) summary.raw_total += piece.weight;

  std::vector<Place> places;
  const auto add = [&](int32_t id) { places.push_back({logits_[id], id}); };
  for (int32_t i = 0; i < summary.num_top; ++i) add(out.top[i].id);
  for (int32_t i = 0; i < summary.num_perturbed; ++i) add(out.perturbed[i].id);
  if (slots.report_ids != nullptr) {
    summary.num_reported = slots.num_report_ids[slot];
    KERNELS_REQUIRE(summary.num_reported <= kMaxReported &&
                        (summary.num_reported == 0 || out.reported != nullptr),
                    "slot %d wants %d reports", slot, summary.num_reported);
    for (int32_t i = 0; i < summary.num_reported; ++i) {
      const int32_t id = slots.report_ids[int64_t{slot} * slots.max_report_ids + i];
      KERNELS_REQUIRE(id >= 0 && id < vocab_size_, "report id %d, vocabulary %d", id, vocab_size_);
      add(id);
    }
  }
  if (out.next != nullptr) {
    const int32_t id = slots.tokens[int64_t{slot} * slots.context_length + position];
    KERNELS_REQUIRE(id >= 0 && id < vocab_size_, "token %d behind the row, vocabulary %d", id,
                    vocab_size_);
    add(id);
  }
  const std::vector<Above> above = CountAbove(logits_, nullptr, raw_maxima_, places);
  size_t next = 0;
  for (int32_t i = 0; i < summary.num_top; ++i) out.top[i].raw_rank = above[next++].count;
  for (int32_t i = 0; i < summary.num_perturbed; ++i) {
    out.perturbed[i].raw_rank = above[next++].count;
  }
  for (int32_t i = 0; i < summary.num_reported; ++i, ++next) {
    out.reported[i] = {places[next].id, places[next].value, above[next].count};
  }
  if (out.next != nullptr) *out.next = {places[next].id, places[next].value, above[next].count};
}

}  // namespace tandem::kernels::cpu
