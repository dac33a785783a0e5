// What the candidate operation returns for one logits row: enough to prove the draw without the row
// (a few hundred bytes).
//
// Three values belong to an id of the row: its raw logit; its adjusted logit (bias, penalties,
// clamp applied); and its perturbed value s + G, with s = (adjusted - row_max) *
// inverse_temperature and G the id's own noise. Ids that are masked, banned or undefined are
// outside the row and count nowhere.
//
// One order for ranks and masses: adjusted descending, id ascending. The order of the perturbed
// list: fp32(s + G) descending, id ascending. Weights are w = round(exp(s) * 2^40), summed as
// 64-bit integers.
//
// Rows from which nothing can be drawn:
//   a non-finite raw logit   first_nonfinite is its id, drawn -1, the counts and num_in_row 0
//   no id inside the row     num_in_row 0, drawn -1, row_max and next_perturbed -inf, weights 0;
//   the
//                            raw part is as in any row
//   an idle row              first_nonfinite -1, else as a row with a non-finite logit
#pragma once

#include <cstdint>

namespace tandem::kernels {

// Hard limits of the lists; DrawParams beyond them are refused before they get here.
inline constexpr int32_t kMaxTop = 1024;
inline constexpr int32_t kMaxPerturbed = 64;
inline constexpr int32_t kMaxRawTop = 20;
inline constexpr int32_t kMaxReported = 64;

struct TopEntry {
  int32_t id;
  float raw;
  float adjusted;
  int32_t raw_rank;  // ids of the whole vocabulary before it by (raw descending, id ascending); -1
                     // unless want_raw
};

struct PerturbedEntry {
  int32_t id;
  float raw;
  float adjusted;
  float perturbed;      // fp32(s + G)
  int32_t rank;         // ids of the row that stand before this one
  int32_t raw_rank;     // as in TopEntry
  uint64_t mass_above;  // sum of their weights
};

// Of the raw lists, of the ids to report, and of the token that is held already for the position.
struct RawEntry {
  int32_t id;
  float raw;
  int32_t raw_rank;
};

struct RowSummary {
  int32_t num_top;          // entries written: min(K, num_in_row)
  int32_t num_perturbed;    // entries written: min(K', num_in_row)
  int32_t num_raw_top;      // entries written: min(N, vocab_size) with want_raw, else 0
  int32_t num_reported;     // entries written: one per report id with want_raw, else 0
  int32_t num_in_row;       // ids inside the row
  int32_t first_nonfinite;  // lowest id whose raw logit is NaN or infinite, -1: none
  float row_max;            // largest adjusted logit of the row
  float next_perturbed;     // largest perturbed value that is not in the list; -inf: there is none
  uint64_t total_weight;    // of the whole row
  uint64_t top_k_weight;    // of the first top_k ids; total_weight where top_k is off
  float raw_max;            // largest raw logit over the vocabulary with want_raw, else 0
  uint64_t raw_total;       // sum of round(exp(raw - raw_max) * 2^40) likewise
  int32_t drawn;            // the token drawn, -1: the lists do not decide
};

}  // namespace tandem::kernels
