// A row of which only lists are known, under other parameters than those that the lists were made
// with: which ids another temperature, top_k, top_p or min_p would keep, and what another seed or
// any of these would draw. Never a wrong answer: where rows that agree with the lists could differ
// in it, the answer is kUndecided and says why.
//
// What the lists say whatever these parameters are. They change neither edits nor which ids are in
// the row, so ranks stand. Known ids are those of the top list, ranks 0 to K - 1, and those of the
// perturbed list, each with its rank. Between two known ranks lie only adjusted logits between
// theirs, and behind the last only smaller ones.
//
// Masses. At the recorded temperature the mass of every gap between known ranks is known exactly,
// since each perturbed entry has the mass above it, and so is what the recorded top_k keeps. At
// another temperature the weights in a gap become w^b, b = T / T': of m ids, whose weights (1 being
// the row maximum's) add up to R and are at most w_left,
//   b > 1:  m (R / m)^b <= sum <= R w_left^(b - 1)      (Jensen; and each w^b = w w^(b - 1))
//   b < 1:  R w_left^(b - 1) <= sum <= m (R / m)^b
// and m w'_right <= sum <= m w'_left, with the weights of the gap's neighbours. Integer weights are
// off by half a unit each and by the rounding of s and exp; both are added to the bounds. top_k
// that ends in a gap has between its share of the gap and the whole of it.
//
// Which ids are kept. Each rule keeps a prefix of the order, so there are a least and a greatest
// length. top_k: known. min_p: between the last known weight that passes and the first that fails.
// top_p: an id passes for certain if it does with the most mass above it and the least total, and
// fails for certain with the least mass and the most total.
//
// What is drawn. Let `best` be the first, in the order of the draw, of the known ids that are kept
// for certain. It is the token if nothing that may be kept comes before it: no known id whose place
// is in doubt; and, where more than the first known ranks may be kept, no unknown id. Noise of an
// unknown id is known, and its s is at most that of the last id before the first gap. It was not in
// the perturbed list either, so fp32(s + G) <= next_perturbed, which bounds s too, at the recorded
// temperature and, times b, at the other. Where the lists' own draw stands (same seed, temperature)
// the perturbed list decides as it did for the worker: the first of it that is kept for certain, if
// those before it are not kept for certain.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/sampling/candidates.h"
#include "engine/sampling/decision.h"

namespace tandem {

// Number of ids: at least `low`, at most `high`.
struct CountRange {
  int32_t low = 0;
  int32_t high = 0;
  bool known() const { return low == high; }
};

class ListedRow final {
 public:
  // decider: at the position of the lists, with the parameters that they were made with. lists:
  // without a fault, of a row with at least one id; as CandidatesFromRow gives them the top list
  // may have up to the whole row, and then nothing is undecided. Both must outlive this.
  ListedRow(const Decider& decider, const Candidates& lists);

  // How many ids are left, by rank, after each rule, rules being applied in their order.
  struct Kept {
    CountRange after_top_k;
    CountRange after_top_p;
    CountRange after_min_p;
  };
  // other: the decider's params, but for greedy, inverse_temperature, top_k, top_p_fixed,
  // min_p_weight and seed.
  Kept Keeps(const kernels::DrawParams& other) const;
  // kToken or kUndecided. Noise of the whole vocabulary is computed where it has to be: about 20 ns
  // an id.
  Decision Decide(const kernels::DrawParams& other) const;

 private:
  struct Known {  // an id whose place is known
    int32_t rank;
    int32_t id;
    float adjusted;
    uint64_t mass_above;  // at the recorded temperature
    uint64_t weight;
  };
  struct MassRange {
    uint64_t low = 0;
    uint64_t high = 0;
  };
  struct Gap {  // behind a known id, up to the next or to the end of the row
    int32_t count = 0;
    MassRange mass;
    uint64_t low_weight = 0;  // of each id in it
    uint64_t high_weight = 0;
  };
  // The row at another temperature.
  struct Masses {
    std::vector<uint64_t> weights;  // of known_
    std::vector<MassRange> above;   // of known_
    std::vector<Gap> gaps;          // behind each of known_
  };

  bool SameTemperature(const kernels::DrawParams& other) const;
  Masses MassesUnder(const kernels::DrawParams& other) const;
  Gap GapBehind(size_t index, const std::vector<uint64_t>& weights,
                const kernels::DrawParams& other) const;
  // Of the first `count` ids.
  MassRange PrefixMass(const Masses& masses, const kernels::DrawParams& other, int32_t count) const;
  CountRange KeptByTopP(const Masses& masses, const kernels::DrawParams& other,
                        int32_t num_top_k) const;
  CountRange KeptByMinP(const Masses& masses, const kernels::DrawParams& other) const;
  Decision DecideFromPerturbed(const CountRange& kept) const;
  Decision DecideFromKnown(const CountRange& kept, const kernels::DrawParams& other) const;
  // The largest that fp32(s + G) of an id can be that no list has.
  float MostOfUnknown(int32_t id, float last_s, const kernels::DrawParams& other) const;

  const Decider& decider_;
  const Candidates& lists_;
  std::vector<Known> known_;  // in the order of ranks
  int32_t first_gap_ = 0;     // the lowest rank whose id is not known; num_in_row: none
};

}  // namespace tandem
