#include "engine/sampling/decision.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/base/check.h"
#include "kernels/draw/noise.h"
#include "kernels/draw/weight.h"

namespace tandem {
namespace {

constexpr size_t kRoom = 256;  // tokens that are appended before memory grows

bool Has(std::span<const uint32_t> bits, int32_t id) {
  return bits.empty() || ((bits[id / 32] >> (id % 32)) & 1u) != 0;
}

// Ids of the vocabulary that both sets have.
int32_t CountBoth(std::span<const uint32_t> a, std::span<const uint32_t> b, int32_t vocab_size) {
  if (a.empty() && b.empty()) return vocab_size;
  int32_t count = 0;
  for (int32_t first = 0; first < vocab_size; first += 32) {
    uint32_t word = vocab_size - first < 32 ? (1u << (vocab_size - first)) - 1 : ~0u;
    if (!a.empty()) word &= a[first / 32];
    if (!b.empty()) word &= b[first / 32];
    count += std::popcount(word);
  }
  return count;
}

}  // namespace

Decider::Decider(const SamplingParameters& parameters, uint32_t choice, int32_t prompt_length,
                 std::span<const int32_t> tokens, int32_t vocab_size,
                 std::span<const uint32_t> defined_bits)
    : params_(ToDrawParams(parameters, choice, prompt_length, vocab_size)),
      vocab_size_(vocab_size),
      allowed_bits_(AllowedBits(parameters, vocab_size)),
      defined_bits_(defined_bits),
      end_ids_(parameters.end_ids),
      report_ids_(parameters.report_ids) {
  TANDEM_CHECK(defined_bits.empty() || defined_bits.size() == (size_t(vocab_size) + 31) / 32)
      << "defined_bits has " << defined_bits.size() << " words for " << vocab_size << " ids";
  num_in_row_ = CountBoth(allowed_bits_, defined_bits_, vocab_size);
  for (const int32_t id : end_ids_) {
    num_end_ids_in_row_ += Has(allowed_bits_, id) && Has(defined_bits_, id);
  }
  for (const auto& [id, bias] : parameters.logit_bias) edits_[id].bias = bias;
  tokens_.reserve(tokens.size() + kRoom);
  if (HasPenalties()) {
    edits_.reserve(std::min<size_t>(edits_.size() + tokens.size() + kRoom, vocab_size));
  }
  for (const int32_t token : tokens) Append(token);
}

// Counts change by the token that comes in and by the ones that leave the windows.
void Decider::Append(int32_t token) {
  TANDEM_CHECK(token >= 0 && token < vocab_size_) << "token " << token << " of " << vocab_size_;
  const int32_t before = position();
  tokens_.push_back(token);
  if (!HasPenalties()) return;
  const int32_t after = position();
  kernels::LogitEdit& edit = edits_[token];
  ++edit.repetition_count;
  if (before >= params_.prompt_length) {
    ++edit.presence_count;
    ++edit.frequency_count;
  }
  for (int32_t i = kernels::RepetitionBegin(params_, before);
       i < kernels::RepetitionBegin(params_, after); ++i) {
    --edits_[tokens_[i]].repetition_count;
  }
  for (int32_t i = kernels::PresenceBegin(params_, before);
       i < kernels::PresenceBegin(params_, after); ++i) {
    --edits_[tokens_[i]].presence_count;
  }
  for (int32_t i = kernels::FrequencyBegin(params_, before);
       i < kernels::FrequencyBegin(params_, after); ++i) {
    --edits_[tokens_[i]].frequency_count;
  }
}

bool Decider::HasPenalties() const {
  return params_.repetition_penalty != 1.0f || params_.presence_penalty != 0.0f ||
         params_.frequency_penalty != 0.0f;
}

bool Decider::EndIdsAreOutside() const {
  return position() < int64_t{params_.prompt_length} + params_.min_tokens;
}

bool Decider::InRow(int32_t id) const {
  if (id < 0 || id >= vocab_size_) return false;
  if (!Has(allowed_bits_, id) || !Has(defined_bits_, id)) return false;
  return !EndIdsAreOutside() || std::find(end_ids_.begin(), end_ids_.end(), id) == end_ids_.end();
}

int32_t Decider::NumInRow() const {
  return num_in_row_ - (EndIdsAreOutside() ? num_end_ids_in_row_ : 0);
}

kernels::LogitEdit Decider::EditOf(int32_t id) const {
  const auto edit = edits_.find(id);
  return edit == edits_.end() ? kernels::LogitEdit{} : edit->second;
}

float Decider::Adjusted(int32_t id, float raw) const {
  return kernels::AdjustedLogit(raw, EditOf(id), params_);
}

float Decider::PerturbedOf(float s, int32_t id) const {
  if (params_.greedy) return s;
  return s + kernels::Gumbel(params_.seed, params_.choice, position(), id);
}

std::vector<Decider::Ranked> Decider::RankedRow(std::span<const float> raw_logits) const {
  std::vector<Ranked> row;
  row.reserve(raw_logits.size());
  const kernels::LogitEdit none;
  for (int32_t id = 0; id < vocab_size_; ++id) {
    row.push_back({id, kernels::AdjustedLogit(raw_logits[id], none, params_)});
  }
  for (const auto& [id, edit] : edits_) {
    row[id].adjusted = kernels::AdjustedLogit(raw_logits[id], edit, params_);
  }
  if (NumInRow() < vocab_size_) {
    std::erase_if(row, [this](const Ranked& entry) { return !InRow(entry.id); });
  }
  std::sort(row.begin(), row.end(), [](const Ranked& a, const Ranked& b) {
    return a.adjusted != b.adjusted ? a.adjusted > b.adjusted : a.id < b.id;
  });
  return row;
}

Decision Decider::DecideFromRow(std::span<const float> raw_logits) const {
  TANDEM_CHECK(static_cast<int64_t>(raw_logits.size()) == vocab_size_)
      << raw_logits.size() << " logits for a vocabulary of " << vocab_size_;
  for (int32_t id = 0; id < vocab_size_; ++id) {
    if (!std::isfinite(raw_logits[id])) return {Decision::Kind::kNonFinite, id, ""};
  }
  const std::vector<Ranked> row = RankedRow(raw_logits);
  if (row.empty()) return {Decision::Kind::kNoToken, -1, ""};

  std::vector<float> scaled(row.size());
  std::vector<uint64_t> weights(row.size());
  uint64_t total_weight = 0;  // of what top_k keeps
  for (size_t rank = 0; rank < row.size(); ++rank) {
    scaled[rank] = kernels::ScaledLogit(row[rank].adjusted, row[0].adjusted, params_);
    weights[rank] = kernels::DrawWeight(scaled[rank]);
    const bool in_top_k = params_.top_k == 0 || rank < static_cast<size_t>(params_.top_k);
    if (in_top_k) total_weight += weights[rank];
  }

  Decision decision{Decision::Kind::kToken, -1, ""};
  float best = 0.0f;
  uint64_t mass_above = 0;
  for (size_t rank = 0; rank < row.size(); ++rank) {
    const bool in_top_k = params_.top_k == 0 || rank < static_cast<size_t>(params_.top_k);
    // Both sides are below 2^92, since weights sum to less than 2^59 and p to 2^32.
    const bool in_top_p = params_.top_p_fixed == kernels::kTopPOff ||
                          (static_cast<unsigned __int128>(mass_above) << 32) <
                              static_cast<unsigned __int128>(params_.top_p_fixed) * total_weight;
    const bool in_min_p = weights[rank] >= params_.min_p_weight;
    mass_above += weights[rank];
    if (rank > 0 && !(in_top_k && in_top_p && in_min_p)) continue;
    const float perturbed = PerturbedOf(scaled[rank], row[rank].id);
    if (decision.token < 0 || perturbed > best ||
        (perturbed == best && row[rank].id < decision.token)) {
      decision.token = row[rank].id;
      best = perturbed;
    }
  }
  return decision;
}

double RawLogprob(float raw, const kernels::RowSummary& summary) {
  return static_cast<double>(raw) - static_cast<double>(summary.raw_max) -
         std::log(static_cast<double>(summary.raw_total) / 1099511627776.0);
}

}  // namespace tandem
