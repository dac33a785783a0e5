#include "services/text/logprobs.h"

#include <algorithm>

#include "engine/sampling/decision.h"
#include "kernels/draw/order.h"

namespace tandem::text {
namespace {

void Fill(int32_t id, const RankedLogit& logit, const kernels::RowSummary& summary,
          const Tokenizer& tokenizer, v1::TokenLogprob* out) {
  out->set_id(id);
  // Rows may be longer than the tokenizer; such an id has no bytes.
  if (id < tokenizer.vocab_size()) out->set_token(tokenizer.TokenBytes(id, false, true));
  out->set_logprob(static_cast<float>(RawLogprob(logit.raw, summary)));
  out->set_rank(logit.rank);
}

}  // namespace

std::optional<RankedLogit> FindInLists(const Candidates& candidates, int32_t token) {
  for (const kernels::PerturbedEntry& entry : candidates.perturbed) {
    if (entry.id == token) return RankedLogit{entry.raw, entry.raw_rank};
  }
  for (const kernels::TopEntry& entry : candidates.top) {
    if (entry.id == token) return RankedLogit{entry.raw, entry.raw_rank};
  }
  return std::nullopt;
}

RankedLogit FindInRow(std::span<const float> raw_logits, int32_t token) {
  RankedLogit out{raw_logits[token], 0};
  for (int32_t id = 0; id < static_cast<int32_t>(raw_logits.size()); ++id) {
    out.rank += kernels::ComesBefore(raw_logits[id], id, out.raw, token);
  }
  return out;
}

v1::PositionLogprobs MakeLogprobs(const Candidates& candidates, int32_t token,
                                  const RankedLogit& chosen, const Tokenizer& tokenizer) {
  v1::PositionLogprobs out;
  Fill(token, chosen, candidates.summary, tokenizer, out.mutable_chosen());
  for (const kernels::RawEntry& entry : candidates.raw_top) {
    Fill(entry.id, {entry.raw, entry.raw_rank}, candidates.summary, tokenizer, out.add_top());
  }
  for (const kernels::RawEntry& entry : candidates.reported) {
    Fill(entry.id, {entry.raw, entry.raw_rank}, candidates.summary, tokenizer, out.add_reported());
  }
  return out;
}

v1::PositionLogprobs MakePromptLogprobs(const PromptLogprobs& logprobs, int32_t position,
                                        int32_t num_top, const Tokenizer& tokenizer) {
  const int32_t index = position - logprobs.position;
  kernels::RowSummary row{};
  row.raw_max = logprobs.raw_max[index];
  row.raw_total = logprobs.raw_total[index];
  v1::PositionLogprobs out;
  const auto fill = [&](const kernels::RawEntry& entry, v1::TokenLogprob* to) {
    Fill(entry.id, {entry.raw, entry.raw_rank}, row, tokenizer, to);
  };
  fill(logprobs.tokens[index], out.mutable_chosen());
  for (int32_t i = 0; i < std::min(num_top, logprobs.num_raw_top); ++i) {
    fill(logprobs.raw_top[int64_t{index} * logprobs.num_raw_top + i], out.add_top());
  }
  for (int32_t i = 0; i < logprobs.num_reported; ++i) {
    fill(logprobs.reported[int64_t{index} * logprobs.num_reported + i], out.add_reported());
  }
  return out;
}

}  // namespace tandem::text
