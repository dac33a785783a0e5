// Log probabilities of one position, as clients see them, from what a worker sent for it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/sampling/candidates.h"
#include "engine/sampling/prompt_logprobs.h"
#include "engine/text/tokenizer.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::text {

// One token's raw logit and its place among all of the row.
struct RankedLogit {
  float raw = 0.0f;
  int32_t rank = 0;
};

// From the lists; absent if neither holds the token.
std::optional<RankedLogit> FindInLists(const Candidates& candidates, int32_t token);
// From the whole row, [vocab_size]. REQUIRES 0 <= token < vocab_size.
RankedLogit FindInRow(std::span<const float> raw_logits, int32_t token);

// The chosen token, the raw top list and the reported ids of candidates, whose summary has its raw
// part. The distribution is the raw one at T = 1. Every number is finite: an impossible token
// cannot be expressed, because every raw logit is finite.
v1::PositionLogprobs MakeLogprobs(const Candidates& candidates, int32_t token,
                                  const RankedLogit& chosen, const Tokenizer& tokenizer);

// The same of a prompt's token, with at most num_top of the raw top list. REQUIRES a position that
// logprobs has.
v1::PositionLogprobs MakePromptLogprobs(const PromptLogprobs& logprobs, int32_t position,
                                        int32_t num_top, const Tokenizer& tokenizer);

}  // namespace tandem::text
