// Time as the state machines see it: a number they are handed, so that a simulator can hand them
// any.
#pragma once

#include <chrono>
#include <cstdint>

namespace tandem {

using Nanos = int64_t;  // since an arbitrary, steady origin
inline constexpr Nanos kNanosPerSecond = 1'000'000'000;
inline constexpr Nanos kNoDeadline = INT64_MAX;

inline Nanos SteadyNow() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace tandem
