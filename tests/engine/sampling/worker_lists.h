// The lists that a worker makes of random cases: its arrays of slots and lists on any backend, as
// in a step of DecodeEngine.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/decode_engine_arrays.h"
#include "engine/sampling/candidates.h"
#include "kernels/ops.h"
#include "tests/engine/sampling/random_rows.h"

namespace tandem::test {

class WorkerLists final {
 public:
  // ops must outlive it.
  WorkerLists(int32_t max_rows, kernels::Ops& ops);

  // The candidates of each case, in order, in one call of the candidate operation. REQUIRES 1 to
  // max_rows cases of one vocabulary, valid parameters.
  std::vector<Candidates> Make(std::span<const RandomCase* const> cases);

 private:
  kernels::Ops& ops_;
  std::unique_ptr<DeviceLists> lists_;
  HostLists host_;
};

// The sizes that the text tier asks for where lists do not decide: K' doubled up to its limit, then
// K. False: both are at their limits, and the row is next.
bool Widen(SamplingParameters* parameters);

// Empty, or the first field that differs in its bits. Of rows with a non-finite logit, what
// kernels/draw/candidates.h defines.
std::string DifferenceOf(const Candidates& a, const Candidates& b);

}  // namespace tandem::test
