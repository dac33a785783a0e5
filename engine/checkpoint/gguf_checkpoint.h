// A GGUF file as a Checkpoint.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/gguf.h"

namespace tandem {

// Reads the configuration and checks every tensor against it. Errors as OpenCheckpoint.
// INVALID_ARGUMENT: a tensor is missing or has another shape; UNIMPLEMENTED: a tensor that the
// architecture does not have, by name.
absl::StatusOr<std::unique_ptr<Checkpoint>> MakeGgufCheckpoint(std::unique_ptr<GgufFile> file);

}  // namespace tandem
