#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"
#include "kernels/cuda/launch.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int64_t kStagingBytes = int64_t{16} << 20;
constexpr int kMinCompute = 80;
// What recorded steps may take of the device; and room for fragments.
constexpr int64_t kGraphBytes = int64_t{256} << 20;
constexpr size_t kMaxGraphs = 64;  // more shapes than that are not recorded

const char* KernelVersion() { return "cuda-1"; }

absl::Status Missing(cudaError_t error) {
  if (error == cudaErrorInsufficientDriver) {
    return absl::FailedPreconditionError(
        "no usable NVIDIA driver: none is installed, or it is older than this build's CUDA");
  }
  return absl::FailedPreconditionError(absl::StrCat("no CUDA device: ", cudaGetErrorString(error)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaBackend>> CudaBackend::Make(const CudaOptions& options) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return Missing(error);
  }
  if (options.device < 0 || options.device >= count) {
    return absl::FailedPreconditionError(
        absl::StrCat("CUDA device ", options.device, ": there are ", count));
  }
  cudaDeviceProp properties;
  int driver = 0, runtime = 0;
  cudaError_t error = cudaSetDevice(options.device);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, options.device);
  if (error == cudaSuccess) error = cudaDriverGetVersion(&driver);
  if (error == cudaSuccess) error = cudaRuntimeGetVersion(&runtime);
  if (error != cudaSuccess) return Missing(error);
  const int compute = properties.major * 10 + properties.minor;
  if (compute < kMinCompute) {
    return absl::FailedPreconditionError(absl::StrCat(properties.name, " has compute ",
                                                      properties.major, ".", properties.minor,
                                                      ": at least 8.0 is needed"));
  }
  std::unique_ptr<CudaBackend> backend(new CudaBackend());
  backend->max_rows_ = options.max_rows;
  if (error = cudaStreamCreateWithFlags(&backend->stream_, cudaStreamNonBlocking);
      error != cudaSuccess) {
    return absl::InternalError(absl::StrCat("cudaStreamCreate: ", cudaGetErrorString(error)));
  }
  absl::StatusOr<std::unique_ptr<Staging>> staging = Staging::Make(kStagingBytes, backend->stream_);
  if (!staging.ok()) return staging.status();
  backend->staging_ = *std::move(staging);
  absl::StatusOr<std::unique_ptr<Products>> products = Products::Make(options.max_rows);
  if (!products.ok()) return products.status();
  backend->products_ = *std::move(products);
  backend->info_.name = "cuda";
  backend->info_.device =
      absl::StrCat(properties.name, ", CUDA ", runtime / 1000, ".", runtime % 1000 / 10);
  backend->info_.numerics = absl::StrCat(KernelVersion(), " bf16 compute ", compute);
  backend->info_.act_bytes = 2;
  backend->info_.default_kv = KvFormat::kBF16;
  backend->info_.asynchronous = true;
  backend->info_.records = true;
  return backend;
}

CudaBackend::~CudaBackend() {
  if (stream_ == nullptr) return;
  cudaStreamSynchronize(stream_);
  DropGraphs();
  staging_.reset();
  products_.reset();
  for (Buffer& buffer : scratch_) buffer = Buffer();
  cudaStreamDestroy(stream_);
}

absl::Status CudaBackend::SupportsAttention(const AttentionShape& shape, KvFormat format,
                                            float soft_cap, int32_t window) const {
  return AttentionSupported(shape, format, soft_cap, window);
}

absl::StatusOr<Buffer> CudaBackend::Allocate(int64_t bytes, std::string_view what) {
  KERNELS_REQUIRE(bytes >= 0, "%lld bytes", static_cast<long long>(bytes));
  void* data = nullptr;
  const size_t size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  if (const cudaError_t error = cudaMalloc(&data, size); error != cudaSuccess) {
    cudaGetLastError();  // not sticky
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    return absl::ResourceExhaustedError(absl::StrCat("no device memory for ", std::string(what),
                                                     ": ", bytes, " bytes, ", free, " of ", total,
                                                     " are free"));
  }
  Buffer buffer(data, bytes, [](void* memory) { cudaFree(memory); });
  if (const cudaError_t error = cudaMemsetAsync(data, 0, size, stream_); error != cudaSuccess) {
    return absl::InternalError(absl::StrCat("cudaMemset: ", cudaGetErrorString(error)));
  }
  return buffer;
}

absl::StatusOr<Weight> CudaBackend::PrepareWeight(std::span<const HostMatrix> parts,
                                                  std::string_view what) {
  KERNELS_REQUIRE(!parts.empty(), "%s", std::string(what).c_str());
  Weight weight;
  weight.cols = parts[0].cols;
  int64_t largest = 0;
  for (const HostMatrix& part : parts) {
    KERNELS_REQUIRE(part.cols == weight.cols, "%d and %d columns", part.cols, weight.cols);
    if (part.dtype == DType::kI32) {
      return absl::UnimplementedError(
          absl::StrCat(std::string(what), ": weights of type I32 are not multiplied"));
    }
    weight.parts.push_back(
        {DType::kBF16, weight.rows, part.rows, int64_t{2} * weight.rows * weight.cols});
    weight.rows += part.rows;
    if (part.data != nullptr) largest = std::max(largest, StoredBytes(part));
  }
  if (weight.cols % 16 != 0) {
    return absl::UnimplementedError(absl::StrCat(std::string(what), " has ", weight.cols,
                                                 " columns: cuda needs a multiple of 16"));
  }
  absl::StatusOr<Buffer> storage = Allocate(int64_t{2} * weight.rows * weight.cols, what);
  if (!storage.ok()) return storage.status();
  weight.storage = *std::move(storage);
  absl::StatusOr<Buffer> stored = Allocate(largest, absl::StrCat(std::string(what), " as stored"));
  if (!stored.ok()) return stored.status();
  for (size_t i = 0; i < parts.size(); ++i) {
    auto* out = weight.storage.as<__nv_bfloat16>() + weight.parts[i].offset / 2;
    if (parts[i].data == nullptr) {
      LaunchRandomWeight(parts[i].seed, parts[i].deviation, int64_t{parts[i].rows} * parts[i].cols,
                         out, stream_);
      continue;
    }
    CopyToDevice(stored->data(), parts[i].data, StoredBytes(parts[i]));
    LaunchDequantize(stored->data(), parts[i].dtype, parts[i].rows, parts[i].cols, out, stream_);
  }
  if (const absl::Status done = Finish(Mark()); !done.ok()) return done;
  if (const absl::Status chosen = products_->Prepare(weight.rows, weight.cols); !chosen.ok()) {
    return chosen;
  }
  return weight;
}

int64_t CudaBackend::WeightBytes(const HostMatrix& matrix) const {
  return int64_t{2} * matrix.rows * matrix.cols;
}

int64_t CudaBackend::WorkspaceBytes(const WorkspaceShape& shape) const {
  const int64_t wide_row = int64_t{shape.widest} * 2;
  return int64_t{shape.rows} * (2 * wide_row + int64_t{shape.widest} * 4) +
         AttentionScratchBytes(shape.attention, shape.rows, shape.context_length) +
         CandidatesScratchBytes(shape.logits_rows, shape.vocab_size) + kGraphBytes;
}

MemoryInfo CudaBackend::Memory() const {
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return {};
  return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

void CudaBackend::CopyToDevice(void* device, const void* host, int64_t bytes) {
  staging_->Upload(device, host, bytes);
}
void CudaBackend::CopyToHost(void* host, const void* device, int64_t bytes) {
  staging_->Download(host, device, bytes);
}
int64_t CudaBackend::Mark() { return staging_->Mark(); }
absl::Status CudaBackend::Finish(int64_t mark) { return staging_->Finish(mark); }

void* CudaBackend::Take(Scratch which, int64_t bytes) {
  Buffer& buffer = scratch_[which];
  if (buffer.bytes() < bytes) {
    KERNELS_REQUIRE(captured_ == nullptr, "scratch %d grows to %lld bytes in a recorded step",
                    which, static_cast<long long>(bytes));
    // What is enqueued, and what was recorded, may still read the old one.
    cudaStreamSynchronize(stream_);
    DropGraphs();
    buffer = Buffer();
    absl::StatusOr<Buffer> larger = Allocate(bytes, "scratch of a step");
    KERNELS_REQUIRE(larger.ok(), "%s", larger.status().ToString().c_str());
    buffer = *std::move(larger);
  }
  return buffer.data();
}

// ---- the seams -----------------------------------------------------------------------------

void CudaBackend::PrepareRows(const StepRows& rows, const SlotState& slots) {
  KERNELS_REQUIRE(rows.num_rows >= 1 && rows.num_rows <= max_rows_, "%d rows of at most %d",
                  rows.num_rows, max_rows_);
  context_length_ = slots.context_length;
  LaunchPrepareRows(rows, slots, stream_);
}

void CudaBackend::Embed(const EmbedArgs& args) {
  const Weight& table = *args.table;
  LaunchEmbed(args.rows, table.storage.as<__nv_bfloat16>(), table.cols, args.scale, args.residual,
              stream_);
  Show("embed", args.rows.num_rows, table.cols, args.residual);
}

void CudaBackend::Qkv(const QkvArgs& args) {
  const int32_t n = args.rows.num_rows;
  const Weight& weight = *args.qkv;
  auto* normed = Take<__nv_bfloat16>(kNormed, int64_t{n} * weight.cols);
  auto* qkv = Take<__nv_bfloat16>(kWide, int64_t{n} * weight.rows);
  LaunchNorm(args.residual, nullptr, n, args.norm, normed, stream_);
  products_->Run(normed, n, weight.storage.as<__nv_bfloat16>(), weight.rows, weight.cols, args.bias,
                 ProductOutput::kBf16, qkv, stream_);
  RopeArgs rope;
  rope.rows = args.rows;
  rope.qkv = qkv;
  rope.q_norm = args.q_norm;
  rope.k_norm = args.k_norm;
  rope.rope = args.rope;
  rope.shape = args.shape;
  rope.kv = args.kv;
  rope.layer = args.layer;
  rope.q = static_cast<__nv_bfloat16*>(args.q);
  LaunchRope(rope, stream_);
  Show("attn_norm", n, weight.cols, normed);
  Show("q_rope", n, args.shape.num_heads * args.shape.head_dim, rope.q);
}

void CudaBackend::Attention(const AttentionArgs& args) {
  const int64_t bytes = AttentionScratchBytes(args.shape, args.rows.num_rows, context_length_);
  LaunchAttention(args, context_length_, Take(kAttention, bytes), stream_);
  Show("attn", args.rows.num_rows, args.shape.num_heads * args.shape.head_dim,
       static_cast<const __nv_bfloat16*>(args.out));
}

void CudaBackend::Project(const ProjectArgs& args) {
  const int32_t n = args.rows.num_rows;
  const Weight& weight = *args.weight;
  const auto* x = static_cast<const __nv_bfloat16*>(args.x);
  const auto* w = weight.storage.as<__nv_bfloat16>();
  if (args.post_norm == nullptr) {
    products_->Run(x, n, w, weight.rows, weight.cols, args.bias, ProductOutput::kAdd, args.residual,
                   stream_);
  } else {
    float* sums = Take<float>(kSums, int64_t{n} * weight.rows);
    products_->Run(x, n, w, weight.rows, weight.cols, args.bias, ProductOutput::kF32, sums,
                   stream_);
    LaunchPostNormAdd(sums, n, *args.post_norm, args.residual, stream_);
    Show("project", n, weight.rows, sums);
  }
  Show("residual", n, weight.rows, args.residual);
}

void CudaBackend::GateUp(const GateUpArgs& args) {
  const int32_t n = args.rows.num_rows;
  const Weight& weight = *args.gate_up;
  auto* normed = Take<__nv_bfloat16>(kNormed, int64_t{n} * weight.cols);
  auto* gate_up = Take<__nv_bfloat16>(kWide, int64_t{n} * weight.rows);
  auto* out = static_cast<__nv_bfloat16*>(args.out);
  const auto* w = weight.storage.as<__nv_bfloat16>();
  LaunchNorm(args.residual, nullptr, n, args.norm, normed, stream_);
  if (!products_->RunGated(normed, n, w, weight.rows, weight.cols, args.bias, args.kind, out,
                           stream_)) {
    products_->Run(normed, n, w, weight.rows, weight.cols, args.bias, ProductOutput::kBf16, gate_up,
                   stream_);
    LaunchGate(gate_up, n, weight.rows / 2, args.kind, out, stream_);
  }
  Show("ffn_norm", n, weight.cols, normed);
  Show("gated", n, weight.rows / 2, out);
}

void CudaBackend::Head(const HeadArgs& args) {
  const int32_t n = args.num_logits_rows;
  if (n == 0) return;
  const Weight& weight = *args.output;
  auto* normed = Take<__nv_bfloat16>(kNormed, int64_t{n} * weight.cols);
  LaunchNorm(args.residual, args.logits_rows, n, args.norm, normed, stream_);
  products_->Run(normed, n, weight.storage.as<__nv_bfloat16>(), weight.rows, weight.cols, args.bias,
                 ProductOutput::kF32, args.logits, stream_);
  if (args.logit_scale != 1.0f || args.soft_cap > 0.0f) {
    LaunchScaleCap(args.logits, int64_t{n} * weight.rows, args.logit_scale, args.soft_cap, stream_);
  }
  Show("final_norm", n, weight.cols, normed);
  Show("logits", n, weight.rows, args.logits);
}

void CudaBackend::Candidates(const CandidatesArgs& args) {
  if (args.num_logits_rows == 0) return;
  const int64_t bytes = CandidatesScratchBytes(args.num_logits_rows, args.slots.vocab_size);
  LaunchCandidates(args, Take(kCandidates, bytes), stream_);
}

void CudaBackend::CopyPage(const KvPool& kv, int32_t from_page, int32_t to_page,
                           int32_t num_tokens) {
  LaunchCopyPage(kv, from_page, to_page, num_tokens, stream_);
}

void CudaBackend::CheckFinite(const CheckFiniteArgs& args) { LaunchCheckFinite(args, stream_); }

// ---- graphs --------------------------------------------------------------------------------

bool CudaBackend::BeginGraph(uint64_t key) {
  if (tap_ != nullptr) return true;
  if (graphs_.size() >= kMaxGraphs && !graphs_.contains(key)) return true;
  Graph& graph = graphs_[key];
  if (graph.exec != nullptr) {
    staging_->Check(cudaGraphLaunch(graph.exec, stream_), "cudaGraphLaunch");
    return false;
  }
  if (std::exchange(graph.was_seen, true)) {
    staging_->Check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                    "cudaStreamBeginCapture");
    captured_ = &graph;
  }
  return true;
}

void CudaBackend::EndGraph() {
  Graph* const graph = std::exchange(captured_, nullptr);
  if (graph == nullptr) return;
  cudaGraph_t recorded = nullptr;
  staging_->Check(cudaStreamEndCapture(stream_, &recorded), "cudaStreamEndCapture");
  if (recorded == nullptr) return;
  staging_->Check(cudaGraphInstantiate(&graph->exec, recorded, 0), "cudaGraphInstantiate");
  cudaGraphDestroy(recorded);
  if (graph->exec != nullptr) {
    staging_->Check(cudaGraphLaunch(graph->exec, stream_), "cudaGraphLaunch");
  }
}

void CudaBackend::DropGraphs() {
  for (auto& [key, graph] : graphs_) {
    if (graph.exec != nullptr) cudaGraphExecDestroy(graph.exec);
  }
  graphs_.clear();
}

// ---- the tap -------------------------------------------------------------------------------

void CudaBackend::Show(std::string_view name, int32_t rows, int32_t cols, const float* values) {
  if (tap_ == nullptr) return;
  std::vector<float> host(static_cast<size_t>(rows) * static_cast<size_t>(cols));
  CopyToHost(host.data(), values, static_cast<int64_t>(host.size() * sizeof(float)));
  if (Finish(Mark()).ok()) tap_->OnTensor(name, rows, cols, host.data());
}

void CudaBackend::Show(std::string_view name, int32_t rows, int32_t cols,
                       const __nv_bfloat16* values) {
  if (tap_ == nullptr) return;
  std::vector<uint16_t> bits(static_cast<size_t>(rows) * static_cast<size_t>(cols));
  CopyToHost(bits.data(), values, static_cast<int64_t>(bits.size() * sizeof(uint16_t)));
  if (!Finish(Mark()).ok()) return;
  std::vector<float> host(bits.size());
  for (size_t i = 0; i < bits.size(); ++i) {
    const uint32_t wide = uint32_t{bits[i]} << 16;
    std::memcpy(&host[i], &wide, sizeof(float));
  }
  tap_->OnTensor(name, rows, cols, host.data());
}

}  // namespace tandem::kernels::cuda

namespace tandem::kernels {

absl::StatusOr<std::unique_ptr<Ops>> MakeCudaOps(const CudaOptions& options) {
  absl::StatusOr<std::unique_ptr<cuda::CudaBackend>> backend = cuda::CudaBackend::Make(options);
  if (!backend.ok()) return backend.status();
  return std::unique_ptr<Ops>(*std::move(backend));
}

}  // namespace tandem::kernels
