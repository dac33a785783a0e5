// Models without a file: shapes of well-known models with drawn weights, for benches and tests. The
// same name gives the same values on every machine and backend. Norms are not all ones, Qwen2's
// biases not zero, and activations stay in the range of a trained model's: each product keeps the
// size of its input, and what the layers add to the residual stream grows to about one.
//
// The tokenizer spells the 256 bytes (ids 0 to 255) and has no merges; ids behind them stand for
// nothing but their number, and the last one ends a text. There is no chat template.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint.h"

namespace tandem {

inline constexpr std::string_view kRandomPrefix = "random:";

// "tiny", "smollm2-135m", "qwen2-1.5b", "llama3-8b", "llama2-7b". NOT_FOUND names those there are.
absl::StatusOr<std::unique_ptr<Checkpoint>> RandomCheckpoint(const std::string& shape);
std::vector<std::string> RandomShapes();

}  // namespace tandem
