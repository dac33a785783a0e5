#include "services/text/logprobs.h"

#include "engine/sampling/decision.h"
#include "kernels/draw/order.h"

namespace tandem::text {
namespace {

void Fill(int32_t id, const RankedLogit& logit, const Candidates& candidates,
          const Tokenizer& tokenizer, v1::TokenLogprob* out) {
  out->set_id(id);
  // Rows may be longer than the tokenizer; such an id has no bytes.
  if (id < tokenizer.vocab_size()) out->set_token(tokenizer.TokenBytes(id, false, true));
  out->set_logprob(static_cast<float>(RawLogprob(logit.raw, candidates.summary)));
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
  Fill(token, chosen, candidates, tokenizer, out.mutable_chosen());
  for (const kernels::RawEntry& entry : candidates.raw_top) {
    Fill(entry.id, {entry.raw, entry.raw_rank}, candidates, tokenizer, out.add_top());
  }
  for (const kernels::RawEntry& entry : candidates.reported) {
    Fill(entry.id, {entry.raw, entry.raw_rank}, candidates, tokenizer, out.add_reported());
  }
  return out;
}

}  // namespace tandem::text
