#include "tests/kernels/backends.h"

#include <cctype>
#include <string>
#include <utility>

#include "kernels/check.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cuda/cuda_ops.h"

namespace tandem::kernels {
namespace {

constexpr double kF32Tolerance = 2e-5;
constexpr double kBf16Tolerance = 0.03;

std::unique_ptr<Ops> MakeCpu(SimdLevel simd, int32_t num_threads) {
  absl::StatusOr<std::unique_ptr<Ops>> ops = MakeCpuOps({num_threads, simd});
  KERNELS_REQUIRE(ops.ok(), "%s", ops.status().ToString().c_str());
  return *std::move(ops);
}

// Gtest takes letters, digits and underscores in a name.
std::string Identifier(std::string name) {
  std::erase_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); });
  return name;
}

}  // namespace

std::vector<Backend> Backends() {
  std::vector<Backend> backends;
  backends.push_back({"reference_bf16", ActDType::kF32, kBf16Tolerance,
                      [] { return MakeReferenceOps(ActDType::kBF16); }});
  for (const SimdLevel simd : {SimdLevel::kPortable, SimdLevel::kAvx2, SimdLevel::kAvx512}) {
    if (simd > DetectSimdLevel()) continue;
    backends.push_back({"cpu_" + Identifier(std::string(Name(simd))), ActDType::kF32, kF32Tolerance,
                        [simd] { return MakeCpu(simd, 2); }});
  }
  if (MakeCudaOps({}).ok()) {
    backends.push_back({"cuda", ActDType::kBF16, kBf16Tolerance, [] {
                          absl::StatusOr<std::unique_ptr<Ops>> ops = MakeCudaOps({});
                          KERNELS_REQUIRE(ops.ok(), "%s", ops.status().ToString().c_str());
                          return *std::move(ops);
                        }});
  }
  return backends;
}

std::vector<Backend> BackendsAndReference() {
  std::vector<Backend> backends = Backends();
  backends.insert(backends.begin(), {"reference_f32", ActDType::kF32, 0.0,
                                     [] { return MakeReferenceOps(ActDType::kF32); }});
  return backends;
}

}  // namespace tandem::kernels
