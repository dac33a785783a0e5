// Every way in which a sequence can be computed, against the sequence alone, token by token: how
// many rows of logits differ in a bit. For tests of the bits contract.
//
// Rows are compared by XXH3-128 of their bytes, every position's row of every variant: 2,048 rows
// of 128 k logits are a gigabyte, which each variant makes again, and a row that differs would pass
// with probability 2^-128.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model.h"
#include "kernels/ops.h"

namespace tandem::test {

struct BitsPlan {
  int32_t length = 0;             // tokens of the sequence; at most the model's max_rows
  std::vector<int32_t> chunks;    // the prompt cut into pieces of so many
  std::vector<int32_t> rewinds;   // so many wrong tokens are taken back, then the right ones fed
  std::vector<int32_t> prefixes;  // so many tokens are another slot's: shared pages, a copied rest
  std::vector<int32_t> batches;   // so many sequences at once, of many lengths and chunk sizes
  // Switches between the backend's own operations (false) and the same as sequences of separate
  // ones. Null: there are no separate ones, and the variant is left out.
  std::function<void(bool separate)> use_separate;
};

struct BitsVariant {
  std::string name;
  int64_t rows = 0;       // compared
  int64_t differing = 0;  // of these
  std::string first;      // which row differs first; empty: none
};

// The first variant is the sequence alone; there, rows that are not finite count as differing.
// Pools start as NaN in every run. Errors: those of the device.
absl::StatusOr<std::vector<BitsVariant>> CompareBits(const BitsPlan& plan, Model& model,
                                                     kernels::Ops& ops);

// Over all variants.
int64_t NumDiffering(const std::vector<BitsVariant>& variants);
// A line for each variant.
std::string BitsTable(const std::vector<BitsVariant>& variants);

}  // namespace tandem::test
