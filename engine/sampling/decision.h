// The text tier's decision for one position: it recomputes edit, weight and noise of every entry
// from its own history and parameters, then decides from the lists, or from the full row.
//
// What is checked of the lists (list_decision.cc): sizes, ids, edits, perturbed values and orders
// of every entry; ranks and masses exactly for entries of the top list, and within the bounds that
// the order implies for the others; that no entry of the top list is missing from the perturbed
// list, and none of the perturbed list stands twice. What is not: that no other id belongs in a
// list.
//
// Thread-safety: const calls may run at the same time; Append may not.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/sampling/candidates.h"
#include "engine/sampling/parameters.h"
#include "kernels/draw/edit.h"

namespace tandem {

struct Decision {
  enum class Kind : uint8_t {
    kToken,      // decided: `token`
    kUndecided,  // the lists do not hold the choice: fetch more
    kFault,    // an entry differs from what this side computes: use the row path; `why` says which
    kNoToken,  // no id is inside the row
    kNonFinite,  // a raw logit is NaN or infinite; `token` is its id
  };
  Kind kind = Kind::kUndecided;
  int32_t token = -1;
  std::string why;
};

// Per-choice decision state: parameters and the counts of its tokens so far.
class Decider final {
 public:
  // tokens: prompt and output so far. defined_bits: ids that the tokenizer defines,
  // [ceil(vocab_size / 32)], empty: all; must outlive this. REQUIRES Validate(parameters) passed
  // and tokens of the vocabulary.
  Decider(const SamplingParameters& parameters, uint32_t choice, int32_t prompt_length,
          std::span<const int32_t> tokens, int32_t vocab_size,
          std::span<const uint32_t> defined_bits);

  // Appends a decided token: constant time whatever the windows, and no memory but what doubles as
  // the sequence does. REQUIRES a token of the vocabulary.
  void Append(int32_t token);
  // The position to decide: number of tokens so far.
  int32_t position() const { return static_cast<int32_t>(tokens_.size()); }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  const kernels::DrawParams& params() const { return params_; }
  int32_t vocab_size() const { return vocab_size_; }

  // Allocates nothing but the text of a fault. Does not look at summary.drawn: whether the worker's
  // own draw is equal is the caller's to count.
  Decision DecideFromCandidates(const Candidates& candidates) const;
  // raw_logits: [vocab_size]. The definition that everything else is held to; never kUndecided.
  Decision DecideFromRow(std::span<const float> raw_logits) const;
  // The lists that a worker sends for this row: what DecideFromRow's order yields, by sorting.
  Candidates CandidatesFromRow(std::span<const float> raw_logits) const;
  // True where the id is inside the row at this position.
  bool InRow(int32_t id) const;
  // Number of ids inside the row at this position.
  int32_t NumInRow() const;
  // Adjusted logit of an id (bias, penalties, clamp). REQUIRES a finite raw logit.
  float Adjusted(int32_t id, float raw) const;
  // What that logit is edited with at this position.
  kernels::LogitEdit EditOf(int32_t id) const;
  // End ids are outside the row at this position, because of min_tokens.
  bool EndIdsAreOutside() const;

 private:
  struct Ranked {  // one id of a row in its order
    int32_t id;
    float adjusted;
  };

  bool HasPenalties() const;
  // The ids inside the row, adjusted logit descending, id ascending. REQUIRES finite logits.
  std::vector<Ranked> RankedRow(std::span<const float> raw_logits) const;
  float PerturbedOf(float s, int32_t id) const;
  void AddRawPart(std::span<const float> raw_logits, Candidates* out) const;
  // Mass above each top entry and, last, above what follows them.
  using TopMasses = std::array<uint64_t, kernels::kMaxTop + 1>;
  // Each gives nothing, or what differs; top_masses comes out of the first. None allocates where
  // nothing differs.
  std::string CheckTop(const Candidates& candidates, TopMasses* top_masses) const;
  std::string CheckTotals(const Candidates& candidates, const TopMasses& top_masses) const;
  std::string CheckPerturbed(const Candidates& candidates, const TopMasses& top_masses) const;
  std::string CheckRanks(const Candidates& candidates, const TopMasses& top_masses) const;
  std::string CheckPerturbedIsComplete(const Candidates& candidates) const;
  std::string CheckRawPart(const Candidates& candidates) const;
  std::string CheckEntry(const char* list, size_t index, int32_t id, float raw,
                         float adjusted) const;

  kernels::DrawParams params_;
  int32_t vocab_size_;
  std::vector<int32_t> tokens_;
  std::vector<uint32_t> allowed_bits_;  // empty: all
  std::span<const uint32_t> defined_bits_;
  std::vector<int32_t> end_ids_;
  std::vector<int32_t> report_ids_;
  int32_t num_in_row_ = 0;  // where end ids are inside
  int32_t num_end_ids_in_row_ = 0;
  // Bias and, where there are penalties, counts of the ids that have some, for position().
  absl::flat_hash_map<int32_t, kernels::LogitEdit> edits_;
};

// Natural logarithm of the probability of a raw logit, of the raw distribution at T = 1, from the
// raw part of the candidates: raw - raw_max - log(raw_total / 2^40). Finite for every finite raw
// logit. REQUIRES a summary with its raw part.
double RawLogprob(float raw, const kernels::RowSummary& summary);

}  // namespace tandem
