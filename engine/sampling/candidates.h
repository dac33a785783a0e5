// What a worker sent for one position, on the host.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/draw/candidates.h"

namespace tandem {

struct Candidates {
  kernels::RowSummary summary{};
  std::vector<kernels::TopEntry> top;              // best adjusted first
  std::vector<kernels::PerturbedEntry> perturbed;  // best perturbed first
  std::vector<kernels::RawEntry> raw_top;          // best raw first
  std::vector<kernels::RawEntry> reported;         // in the order of report_ids
};

}  // namespace tandem
