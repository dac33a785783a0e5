// What a token costs in the text tier, part by part, without a network: CPU time of the code that
// text_tier_bench runs as a whole, over the same messages.
#pragma once

#include <cstdint>

#include <nlohmann/json.hpp>

#include "tandem/v1/generation.pb.h"

namespace tandem::test {

struct PartsOptions {
  int32_t sessions = 64;
  int32_t tokens = 512;           // of each session
  int32_t events_per_frame = 64;  // that come from the worker
  int32_t commands_per_frame = 64;
  int32_t tokens_per_message = 1;  // to a client
};

// Microseconds of one thread's CPU time a token:
//   parse     a frame's bytes to events (protobuf)
//   lists     an event to Candidates, checked
//   decide    Decider: DecideFromCandidates, Append
//   text      OutputText: detokeniser and stop strings
//   session   Session::OnEvent in all, of which lists, decide and text are parts
//   commands  a frame of Extends to bytes
//   message   a client's message to bytes
nlohmann::json MeasureParts(const PartsOptions& options);

// What every session of the bench asks for.
v1::GenerateRequest BenchRequest(int32_t tokens);

}  // namespace tandem::test
