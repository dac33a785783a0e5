#include "kernels/cuda/products.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/check.h"
#include "kernels/cuda/chain.h"
#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/probe.h"
#include "kernels/cuda/timing.h"

namespace tandem::kernels::cuda {
namespace {

constexpr ProductOutput kOutputs[] = {ProductOutput::kBf16, ProductOutput::kF32,
                                      ProductOutput::kAdd};
constexpr int32_t kFirstBucket = 8;
// Outputs of the largest probe: 512 MiB of fp32.
constexpr int64_t kMostProbed = int64_t{1} << 27;
// Up to this many rows the chain kernel is timed too; above, it does what no algorithm can.
constexpr int32_t kMostRowsByChain = 256;
// What a step gains by a chain kernel and the timing does not show, in microseconds: it begins
// while the kernel before it ends, and the kernel after it begins while it ends. cuBLASLt's do
// neither.
constexpr float kOverlapMicros = 2.0f;
constexpr size_t kMostTimed = 6;  // algorithms for each bucket and output
// Where the heuristic offers nothing for a bucket, it is asked about more rows, up to this.
constexpr int32_t kMostRowsAsked = 4096;
// Timed products take turns between copies of the weights, 128 MiB together where 64 copies give
// that: as in a step, the L2 cache does not hold them from before.
constexpr int64_t kTimedWeights = int64_t{1} << 26;
constexpr int64_t kMostCopies = 64;
// fp32 sums that wait for their bias. Of fixed size, so that no later Prepare moves what a graph
// has captured; products of more rows go through it in parts.
constexpr int64_t kMostSums = int64_t{1} << 24;
static_assert(kMostSums >= kMaxProductWidth);

constexpr uint32_t kWeightSeed = 1;
constexpr uint32_t kInputSeed = 2;
constexpr uint32_t kResidualSeed = 3;

// Products of (rows of the bucket before, rows] rows; the last bucket takes all larger ones too.
struct Bucket {
  int32_t rows = 0;
  // For each ProductOutput; none: the chain kernel.
  std::array<std::optional<cublasLtMatmulAlgo_t>, std::size(kOutputs)> algorithms;

  const std::optional<cublasLtMatmulAlgo_t>& For(ProductOutput output) const {
    return algorithms[static_cast<size_t>(output)];
  }
};

struct Shape {
  std::vector<Bucket> buckets;

  const Bucket& BucketOf(int32_t m) const {
    for (const Bucket& bucket : buckets) {
      if (m <= bucket.rows) return bucket;
    }
    return buckets.back();
  }
};

// Powers of two below rows, and rows.
std::vector<int32_t> BucketRows(int32_t rows) {
  std::vector<int32_t> all;
  for (int64_t bucket = kFirstBucket; bucket < rows; bucket *= 2) {
    all.push_back(static_cast<int32_t>(bucket));
  }
  all.push_back(rows);
  return all;
}

// The data that one shape's algorithms are probed with.
struct ProbeData {
  int32_t n = 0;
  int32_t k = 0;
  int64_t copies = 1;            // of the weights
  DeviceArray<__nv_bfloat16> w;  // [copies, n, k]
  DeviceArray<__nv_bfloat16> x;  // [rows, k]
  DeviceArray<float> sums;       // [rows, n], by the chain kernel from the first copy
  DeviceArray<float> y;          // [rows, n], or bf16
  DeviceArray<unsigned long long> differences;

  const __nv_bfloat16* Weights(int i) const { return w.get() + i % copies * n * k; }
};

}  // namespace

struct Products::State {
  int32_t max_rows = 0;
  int32_t num_multiprocessors = 0;
  OwnedStream stream;  // of Prepare
  std::unique_ptr<CublasLt> lt;
  DeviceArray<float> sums;  // that wait for their bias
  int64_t num_sums = 0;
  std::map<std::pair<int32_t, int32_t>, Shape> shapes;  // by (n, k)

  absl::StatusOr<ProbeData> MakeProbeData(int32_t n, int32_t k, int32_t rows);
  absl::Status Wait() const {
    return CudaStatus(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
  }
  absl::StatusOr<bool> HasTheBits(const cublasLtMatmulAlgo_t& algorithm, const ProbeData& data,
                                  int32_t m, ProductOutput output);
  absl::StatusOr<std::optional<cublasLtMatmulAlgo_t>> Choose(const ProbeData& data,
                                                             int32_t rows_before, int32_t rows,
                                                             ProductOutput output);
  // y without a bias.
  void Multiply(const std::optional<cublasLtMatmulAlgo_t>& algorithm, const __nv_bfloat16* x,
                int32_t m, const __nv_bfloat16* w, int32_t n, int32_t k, ProductOutput output,
                void* y, cudaStream_t on) {
    // Where cuBLASLt does not take this very m, the chain kernel gives the same bits.
    if (algorithm.has_value() && lt->Multiply(*algorithm, x, m, w, n, k, output, y, on)) return;
    LaunchChain(x, m, w, n, k, nullptr, output, y, num_multiprocessors, on);
  }
  void MultiplyAddBias(const Shape& shape, const __nv_bfloat16* x, int32_t m,
                       const __nv_bfloat16* w, int32_t n, int32_t k, const float* bias,
                       ProductOutput output, void* y, cudaStream_t on);
};

absl::StatusOr<ProbeData> Products::State::MakeProbeData(int32_t n, int32_t k, int32_t rows) {
  ProbeData data;
  data.n = n;
  data.k = k;
  const int64_t weights = int64_t{n} * k;
  data.copies = std::clamp<int64_t>(kTimedWeights / weights, 1, kMostCopies);
  CUDA_ASSIGN_OR_RETURN(data.w, AllocateDevice<__nv_bfloat16>(data.copies * weights));
  CUDA_ASSIGN_OR_RETURN(data.x, AllocateDevice<__nv_bfloat16>(int64_t{rows} * k));
  CUDA_ASSIGN_OR_RETURN(data.sums, AllocateDevice<float>(int64_t{rows} * n));
  CUDA_ASSIGN_OR_RETURN(data.y, AllocateDevice<float>(int64_t{rows} * n));
  CUDA_ASSIGN_OR_RETURN(data.differences, AllocateDevice<unsigned long long>(1));
  LaunchFillRandom(data.w.get(), data.copies * weights, kWeightSeed, stream.get());
  LaunchFillRandom(data.x.get(), int64_t{rows} * k, kInputSeed, stream.get());
  LaunchChain(data.x.get(), rows, data.w.get(), n, k, nullptr, ProductOutput::kF32, data.sums.get(),
              num_multiprocessors, stream.get());
  if (absl::Status status = Wait(); !status.ok()) return status;
  return data;
}

// Whether m rows come out as the chain's, bit for bit.
absl::StatusOr<bool> Products::State::HasTheBits(const cublasLtMatmulAlgo_t& algorithm,
                                                 const ProbeData& data, int32_t m,
                                                 ProductOutput output) {
  const int64_t count = int64_t{m} * data.n;
  if (output == ProductOutput::kAdd) {
    LaunchFillRandom(data.y.get(), count, kResidualSeed, stream.get());
  } else {  // NaN, so that an output that is not written shows
    CUDA_RETURN_IF_ERROR(cudaMemsetAsync(data.y.get(), 0xFF, count * sizeof(float), stream.get()));
  }
  CUDA_RETURN_IF_ERROR(
      cudaMemsetAsync(data.differences.get(), 0, sizeof(unsigned long long), stream.get()));
  if (!lt->Multiply(algorithm, data.x.get(), m, data.w.get(), data.n, data.k, output, data.y.get(),
                    stream.get())) {
    return false;
  }
  LaunchCountDifferences(data.sums.get(), data.y.get(), count, output, kResidualSeed,
                         data.differences.get(), stream.get());
  unsigned long long differences = 0;
  CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(&differences, data.differences.get(), sizeof(differences),
                                       cudaMemcpyDeviceToHost, stream.get()));
  if (absl::Status status = Wait(); !status.ok()) return status;
  return differences == 0;
}

// The fastest algorithm for (rows_before, rows] rows that has the chain's bits; none where the
// chain kernel is faster or no algorithm has them.
absl::StatusOr<std::optional<cublasLtMatmulAlgo_t>> Products::State::Choose(const ProbeData& data,
                                                                            int32_t rows_before,
                                                                            int32_t rows,
                                                                            ProductOutput output) {
  // Where lines of y are not aligned to 16 bytes an algorithm may run another kernel for another m.
  if (data.n % 8 != 0) return std::nullopt;
  std::vector<cublasLtMatmulAlgo_t> offered;
  for (int64_t asked = rows; offered.empty() && (asked == rows || asked <= kMostRowsAsked);
       asked *= 2) {
    CUDA_ASSIGN_OR_RETURN(offered,
                          lt->Candidates(static_cast<int32_t>(asked), data.n, data.k, output));
  }
  if (offered.size() > kMostTimed) offered.resize(kMostTimed);

  const int repeats =
      rows <= kMostRowsByChain ? static_cast<int>(std::max<int64_t>(data.copies, 4)) : 2;
  float chain_time = std::numeric_limits<float>::infinity();
  if (rows <= kMostRowsByChain) {
    CUDA_ASSIGN_OR_RETURN(chain_time, TimeInGraph(stream.get(), repeats, [&](int i) {
                            LaunchChain(data.x.get(), rows, data.Weights(i), data.n, data.k,
                                        nullptr, output, data.y.get(), num_multiprocessors,
                                        stream.get());
                            return true;
                          }));
  }
  struct Timed {
    float time;
    cublasLtMatmulAlgo_t algorithm;
  };
  std::vector<Timed> timed;
  for (const cublasLtMatmulAlgo_t& algorithm : offered) {
    const auto multiply = [&](int i) {
      return lt->Multiply(algorithm, data.x.get(), rows, data.Weights(i), data.n, data.k, output,
                          data.y.get(), stream.get());
    };
    if (!multiply(0)) continue;  // also loads the kernel, which a capture could not
    if (absl::Status status = Wait(); !status.ok()) return status;
    float time = 0.0f;
    CUDA_ASSIGN_OR_RETURN(time, TimeInGraph(stream.get(), repeats, multiply));
    if (time < chain_time - kOverlapMicros) timed.push_back({time, algorithm});
  }
  std::stable_sort(timed.begin(), timed.end(),
                   [](const Timed& a, const Timed& b) { return a.time < b.time; });

  for (const Timed& candidate : timed) {
    bool is_equal = true;
    for (const int32_t m : {rows_before + 1, rows_before + (rows - rows_before) / 2, rows}) {
      if (!is_equal || m <= rows_before) continue;
      CUDA_ASSIGN_OR_RETURN(is_equal, HasTheBits(candidate.algorithm, data, m, output));
    }
    if (is_equal) return candidate.algorithm;
  }
  return std::nullopt;
}

// The sums in fp32, then the bias, as a kernel of its own where cuBLASLt makes the sums.
void Products::State::MultiplyAddBias(const Shape& shape, const __nv_bfloat16* x, int32_t m,
                                      const __nv_bfloat16* w, int32_t n, int32_t k,
                                      const float* bias, ProductOutput output, void* y,
                                      cudaStream_t on) {
  const bool in_place = output == ProductOutput::kF32;
  const int32_t part_rows = in_place ? m : static_cast<int32_t>(std::min<int64_t>(m, num_sums / n));
  const int64_t y_bytes = output == ProductOutput::kBf16 ? 2 : 4;
  for (int32_t first = 0; first < m; first += part_rows) {
    const int32_t part = std::min(part_rows, m - first);
    const __nv_bfloat16* part_x = x + int64_t{first} * k;
    void* part_y = static_cast<uint8_t*>(y) + int64_t{first} * n * y_bytes;
    float* part_sums = in_place ? static_cast<float*>(y) : sums.get();
    const auto& algorithm = shape.BucketOf(part).For(ProductOutput::kF32);
    if (algorithm.has_value() &&
        lt->Multiply(*algorithm, part_x, part, w, n, k, ProductOutput::kF32, part_sums, on)) {
      LaunchFinish(part_sums, part, n, bias, output, part_y, on);
    } else {
      LaunchChain(part_x, part, w, n, k, bias, output, part_y, num_multiprocessors, on);
    }
  }
}

Products::Products() : state_(std::make_unique<State>()) {}
Products::~Products() = default;

absl::StatusOr<std::unique_ptr<Products>> Products::Make(int32_t max_rows) {
  KERNELS_REQUIRE(max_rows > 0, "max_rows %d", max_rows);
  std::unique_ptr<Products> products(new Products());
  State& state = *products->state_;
  state.max_rows = max_rows;
  int device = 0;
  CUDA_RETURN_IF_ERROR(cudaGetDevice(&device));
  int multiprocessors = 0;
  CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  state.num_multiprocessors = multiprocessors;
  cudaStream_t stream = nullptr;
  CUDA_RETURN_IF_ERROR(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  state.stream.reset(stream);
  CUDA_RETURN_IF_ERROR(PrepareChain());
  CUDA_ASSIGN_OR_RETURN(state.lt, CublasLt::Make());
  state.num_sums = std::min(kMostSums, int64_t{max_rows} * kMaxProductWidth);
  CUDA_ASSIGN_OR_RETURN(state.sums, AllocateDevice<float>(state.num_sums));
  // Once, for tools that check what is read: some of cuBLASLt's kernels store past the tools'
  // sight. That they store every output is known from the probes, which run on NaN.
  CUDA_RETURN_IF_ERROR(cudaMemsetAsync(state.sums.get(), 0,
                                       static_cast<size_t>(state.num_sums) * sizeof(float),
                                       state.stream.get()));
  CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(state.stream.get()));
  return products;
}

absl::Status Products::Prepare(int32_t n, int32_t k) {
  KERNELS_REQUIRE(n > 0 && n <= kMaxProductWidth && k > 0 && k % 16 == 0, "n %d, k %d", n, k);
  if (state_->shapes.contains({n, k})) return absl::OkStatus();
  const int32_t rows =
      static_cast<int32_t>(std::clamp<int64_t>(kMostProbed / n, 1, state_->max_rows));
  absl::StatusOr<ProbeData> data = state_->MakeProbeData(n, k, rows);
  if (!data.ok()) return data.status();
  Shape shape;
  int32_t rows_before = 0;
  for (const int32_t bucket_rows : BucketRows(rows)) {
    Bucket& bucket = shape.buckets.emplace_back();
    bucket.rows = bucket_rows;
    for (const ProductOutput output : kOutputs) {
      CUDA_ASSIGN_OR_RETURN(bucket.algorithms[static_cast<size_t>(output)],
                            state_->Choose(*data, rows_before, bucket_rows, output));
    }
    rows_before = bucket_rows;
  }
  state_->shapes.emplace(std::pair(n, k), std::move(shape));
  return absl::OkStatus();
}

void Products::Run(const __nv_bfloat16* x, int32_t m, const __nv_bfloat16* w, int32_t n, int32_t k,
                   const float* bias, ProductOutput output, void* y, cudaStream_t stream) {
  KERNELS_REQUIRE(m > 0 && m <= state_->max_rows, "m %d of %d", m, state_->max_rows);
  for (const void* pointer :
       {static_cast<const void*>(x), static_cast<const void*>(w), static_cast<const void*>(y)}) {
    KERNELS_REQUIRE(reinterpret_cast<uintptr_t>(pointer) % 16 == 0, "%p", pointer);
  }
  const auto shape = state_->shapes.find({n, k});
  KERNELS_REQUIRE(shape != state_->shapes.end(), "n %d, k %d: Prepare comes first", n, k);
  if (bias == nullptr) {
    state_->Multiply(shape->second.BucketOf(m).For(output), x, m, w, n, k, output, y, stream);
  } else {
    state_->MultiplyAddBias(shape->second, x, m, w, n, k, bias, output, y, stream);
  }
}

bool Products::RunGated(const __nv_bfloat16* x, int32_t m, const __nv_bfloat16* w, int32_t n,
                        int32_t k, const float* bias, GateKind kind, __nv_bfloat16* y,
                        cudaStream_t stream) {
  const auto shape = state_->shapes.find({n, k});
  KERNELS_REQUIRE(shape != state_->shapes.end(), "n %d, k %d: Prepare comes first", n, k);
  const ProductOutput output = bias == nullptr ? ProductOutput::kBf16 : ProductOutput::kF32;
  if (m > state_->max_rows || shape->second.BucketOf(m).For(output).has_value()) return false;
  LaunchGatedChain(x, m, w, n, k, bias, kind, y, state_->num_multiprocessors, stream);
  return true;
}

void Products::RunChain(const __nv_bfloat16* x, int32_t m, const __nv_bfloat16* w, int32_t n,
                        int32_t k, const float* bias, ProductOutput output, void* y,
                        cudaStream_t stream) {
  LaunchChain(x, m, w, n, k, bias, output, y, state_->num_multiprocessors, stream);
}

}  // namespace tandem::kernels::cuda
