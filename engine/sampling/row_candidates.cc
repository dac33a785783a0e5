// The lists of a row, by sorting: what a worker's candidate operation has to return.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/check.h"
#include "engine/sampling/decision.h"
#include "kernels/draw/decide.h"
#include "kernels/draw/weight.h"

namespace tandem {

Candidates Decider::CandidatesFromRow(std::span<const float> raw_logits) const {
  TANDEM_CHECK(static_cast<int64_t>(raw_logits.size()) == vocab_size_)
      << raw_logits.size() << " logits for a vocabulary of " << vocab_size_;
  Candidates out;
  out.summary.first_nonfinite = -1;
  out.summary.drawn = -1;
  for (int32_t id = 0; id < vocab_size_; ++id) {
    if (std::isfinite(raw_logits[id])) continue;
    out.summary.first_nonfinite = id;
    return out;
  }
  const std::vector<Ranked> row = RankedRow(raw_logits);
  out.summary.num_in_row = static_cast<int32_t>(row.size());
  out.summary.next_perturbed = -std::numeric_limits<float>::infinity();
  if (!row.empty()) out.summary.row_max = row[0].adjusted;

  std::vector<kernels::PerturbedEntry> all;
  all.reserve(row.size());
  uint64_t mass_above = 0;
  for (size_t rank = 0; rank < row.size(); ++rank) {
    const Ranked& entry = row[rank];
    const float s = kernels::ScaledLogit(entry.adjusted, out.summary.row_max, params_);
    all.push_back({entry.id, raw_logits[entry.id], entry.adjusted, PerturbedOf(s, entry.id),
                   static_cast<int32_t>(rank), -1, mass_above});
    mass_above += kernels::DrawWeight(s);
    if (static_cast<int32_t>(rank) + 1 == params_.top_k) out.summary.top_k_weight = mass_above;
  }
  out.summary.total_weight = mass_above;
  if (params_.top_k == 0 || params_.top_k >= out.summary.num_in_row) {
    out.summary.top_k_weight = mass_above;
  }
  const size_t num_top = std::min<size_t>(params_.num_top, row.size());
  for (size_t i = 0; i < num_top; ++i) {
    out.top.push_back({all[i].id, all[i].raw, all[i].adjusted, -1});
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.perturbed != b.perturbed ? a.perturbed > b.perturbed : a.id < b.id;
  });
  const size_t num_perturbed = std::min<size_t>(params_.num_perturbed, all.size());
  if (num_perturbed < all.size()) out.summary.next_perturbed = all[num_perturbed].perturbed;
  all.resize(num_perturbed);
  out.perturbed = std::move(all);
  out.summary.num_top = static_cast<int32_t>(out.top.size());
  out.summary.num_perturbed = static_cast<int32_t>(out.perturbed.size());
  if (params_.want_raw) AddRawPart(raw_logits, &out);
  out.summary.drawn = kernels::DecideFromLists(out.summary, out.top.data(), out.perturbed.data(),
                                               params_, position());
  return out;
}

void Decider::AddRawPart(std::span<const float> raw_logits, Candidates* out) const {
  std::vector<int32_t> order(vocab_size_);  // ids by raw logit
  for (int32_t id = 0; id < vocab_size_; ++id) order[id] = id;
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return raw_logits[a] != raw_logits[b] ? raw_logits[a] > raw_logits[b] : a < b;
  });
  std::vector<int32_t> rank(vocab_size_);
  for (int32_t i = 0; i < vocab_size_; ++i) rank[order[i]] = i;

  out->summary.raw_max = raw_logits[order[0]];
  for (const float raw : raw_logits) {
    out->summary.raw_total += kernels::DrawWeight(raw - out->summary.raw_max);
  }
  for (kernels::TopEntry& entry : out->top) entry.raw_rank = rank[entry.id];
  for (kernels::PerturbedEntry& entry : out->perturbed) entry.raw_rank = rank[entry.id];
  const int32_t num_raw_top = std::min(params_.num_raw_top, vocab_size_);
  for (int32_t i = 0; i < num_raw_top; ++i) {
    out->raw_top.push_back({order[i], raw_logits[order[i]], i});
  }
  for (const int32_t id : report_ids_) {
    out->reported.push_back({id, raw_logits[id], rank[id]});
  }
  out->summary.num_raw_top = static_cast<int32_t>(out->raw_top.size());
  out->summary.num_reported = static_cast<int32_t>(out->reported.size());
}

}  // namespace tandem
