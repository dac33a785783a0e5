// The ways in. Metrics and logs name them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tandem::text {

enum class Door : uint8_t { kGrpc, kHttp };
inline constexpr size_t kNumDoors = 2;

constexpr std::string_view Name(Door door) { return door == Door::kGrpc ? "grpc" : "http"; }

}  // namespace tandem::text
