// The probability that a token was drawn with, where the lists give it.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/sampling/candidates.h"
#include "kernels/draw/params.h"

namespace tandem {

// The token's share of the weights of all ids that the draw keeps: after edits, temperature, top_k,
// top_p and min_p. 1 with greedy.
//
// What all of them add up to is known without top_p and min_p, of which the summary has the mass.
// With one of them it is known where what is kept ends within the top list, or right behind it by
// rank or by the mass above. Absent otherwise, and where no list has the token. Never an estimate.
//
// candidates: without a fault, made with params. token: one that the draw keeps. Allocates nothing.
std::optional<double> DrawProbability(const kernels::DrawParams& params,
                                      const Candidates& candidates, int32_t token);

}  // namespace tandem
