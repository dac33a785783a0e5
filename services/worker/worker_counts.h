// What the engine's thread counts while it works: a plain struct, of which EngineLoop gives copies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/base/clock.h"
#include "services/common/histogram.h"

namespace tandem {

// Where the time of the engine's thread goes while it does not sleep.
enum class EnginePhase : uint8_t {
  kCommands,  // what peers sent
  kLaunch,    // putting a step together and starting it; of a backend that computes then, the step
  kWait,      // for the device
  kCollect,   // results to events
  kPost,      // handing events to the dispatcher
};
inline constexpr size_t kNumEnginePhases = 5;

// Bounds of buckets: seconds, rows.
inline constexpr std::array<double, 13> kStepBounds = {
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5};
inline constexpr std::array<double, 12> kRowBounds = {0,  1,  2,   4,   8,    16,
                                                      32, 64, 128, 256, 1024, 4096};

// Since the start.
struct WorkerCounts {
  int64_t steps = 0;  // collected
  int64_t candidates = 0;
  int64_t opened = 0;                // sessions
  std::array<int64_t, 3> fetches{};  // by FetchCommand::What
  std::array<double, kNumEnginePhases> engine_seconds{};
  double busy_seconds = 0.0;  // with a step in flight
  Histogram<kStepBounds> step_seconds;
  Histogram<kRowBounds> decode_rows;
  Histogram<kRowBounds> prefill_rows;
};

inline double ToSeconds(Nanos nanos) { return static_cast<double>(nanos) * 1e-9; }

}  // namespace tandem
