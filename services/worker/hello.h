// What a worker tells each peer first: who it is, what it serves, its limits.
#pragma once

#include <cstdint>
#include <string>

#include "engine/checkpoint/model_config.h"
#include "engine/decode_engine.h"
#include "engine/text/tokenizer_data.h"
#include "kernels/ops.h"
#include "tandem/decode/v1/decode.pb.h"

namespace tandem {

struct HelloParts {
  std::string model_name;
  EngineOptions engine;
  const ModelConfig& config;
  int32_t context_length = 0;
  int64_t total_pages = 0;
  const kernels::BackendInfo& backend;
  const TokenizerData& tokenizer;
  std::string weights_fingerprint;
};

// With a new incarnation. The numerics fingerprint covers what the bits depend on beside the
// weights: the backend's own account (kernel version, SIMD level, activation dtype) and the KV
// format.
decode::v1::Hello MakeHello(const HelloParts& parts);

}  // namespace tandem
