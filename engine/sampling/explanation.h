// One decided position, taken apart for people: what the lists say of each id, what each rule left,
// what was drawn and by how much.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/sampling/candidates.h"
#include "engine/sampling/decision.h"
#include "engine/sampling/what_if.h"

namespace tandem {

struct ExplainedToken {
  enum class Fate : uint8_t { kKept, kInDoubt, kCutByTopK, kCutByTopP, kCutByMinP };
  int32_t id = -1;
  int32_t rank = 0;
  float raw = 0.0f;
  float adjusted = 0.0f;
  kernels::LogitEdit edit;   // bias and penalty counts that led from one to the other
  double probability = 0.0;  // share of the row's mass at the temperature, before any cut
  double mass_above = 0.0;   // likewise, of the ids before it
  float noise = 0.0f;        // 0: greedy
  float perturbed = 0.0f;    // what is compared
  bool in_top = false;
  bool in_perturbed = false;
  Fate fate = Fate::kKept;
};

struct StepExplanation {
  int32_t position = 0;
  int32_t num_in_row = 0;
  int32_t num_outside = 0;    // of the vocabulary: undefined, banned, not allowed, held back
  bool end_ids_held = false;  // by min_tokens
  int32_t num_biased = 0;     // of the tokens below
  int32_t num_penalised = 0;
  ListedRow::Kept kept;
  std::vector<ExplainedToken> tokens;  // all that the lists have, by rank
  int32_t winner = -1;                 // index of the drawn token in tokens, -1: it is not there
  // Index of the kept token that would have been drawn without the winner, among those below; -1:
  // there is none.
  int32_t second = -1;
};

// drawn: the token of the position, -1: none. decider and lists as ListedRow's.
StepExplanation ExplainStep(const Decider& decider, const Candidates& lists, int32_t drawn);

}  // namespace tandem
