#include "tests/kernels/cuda/separate_ops.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <utility>

#include "kernels/check.h"
#include "kernels/cuda/chain.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/launch.h"
#include "tests/kernels/cuda/planted.h"

namespace tandem::kernels {
namespace {

using cuda::ProductOutput;

void Require(cudaError_t error, const char* what) {
  KERNELS_REQUIRE(error == cudaSuccess, "%s: %s", what, cudaGetErrorString(error));
}

// Memory that grows.
template <typename T>
class Scratch {
 public:
  T* Take(int64_t count) {
    if (count > count_) {
      memory_.reset();
      auto larger = cuda::AllocateDevice<T>(count);
      KERNELS_REQUIRE(larger.ok(), "%s", larger.status().ToString().c_str());
      memory_ = *std::move(larger);
      count_ = count;
    }
    return memory_.get();
  }

 private:
  cuda::DeviceArray<T> memory_;
  int64_t count_ = 0;
};

class SeparateCudaOps final : public SeparableOps {
 public:
  SeparateCudaOps(std::unique_ptr<Ops> ops, const SeparateOptions& options, bool separate,
                  std::unique_ptr<cuda::HeuristicProducts> split_k, int num_multiprocessors)
      : SeparableOps(std::move(ops)),
        options_(options),
        separate_(separate),
        split_k_(std::move(split_k)),
        num_multiprocessors_(num_multiprocessors) {
    cudaStream_t stream = nullptr;
    Require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    stream_.reset(stream);
  }

  void UseSeparate(bool separate) override { separate_ = separate; }
  bool BeginGraph(uint64_t key) override { return separate_ || SeparableOps::BeginGraph(key); }
  void EndGraph() override {
    if (!separate_) SeparableOps::EndGraph();
  }

  void Qkv(const QkvArgs& args) override {
    if (!separate_) return SeparableOps::Qkv(args);
    Begin();
    const int32_t n = args.rows.num_rows;
    const Weight& weight = *args.qkv;
    __nv_bfloat16* const qkv = wide_.Take(int64_t{n} * weight.rows);
    const float* const sums = Sums(Normed(args.residual, nullptr, n, args.norm), n, weight);
    cuda::LaunchFinish(sums, n, weight.rows, args.bias, ProductOutput::kBf16, qkv, stream_.get());
    cuda::RopeArgs rope;
    rope.rows = args.rows;
    rope.qkv = qkv;
    rope.q_norm = args.q_norm;
    rope.k_norm = args.k_norm;
    rope.rope = args.rope;
    rope.shape = args.shape;
    rope.kv = args.kv;
    rope.layer = args.layer;
    rope.q = static_cast<__nv_bfloat16*>(args.q);
    cuda::LaunchRope(rope, stream_.get());
    End();
  }

  void Attention(const AttentionArgs& args) override {
    using Kind = SeparateOptions::Attention;
    if (!separate_ || options_.attention == Kind::kBackend) return SeparableOps::Attention(args);
    Begin();
    cuda::LaunchPlantedAttention(
        args,
        options_.attention == Kind::kConstantSplits   ? cuda::PlantedAttention::kConstantSplits
        : options_.attention == Kind::kSplitsByLength ? cuda::PlantedAttention::kSplitsByLength
                                                      : cuda::PlantedAttention::kStaleValues,
        stream_.get());
    End();
  }

  void Project(const ProjectArgs& args) override {
    if (!separate_) return SeparableOps::Project(args);
    Begin();
    const int32_t n = args.rows.num_rows;
    const int32_t width = args.weight->rows;
    float* const sums = Sums(static_cast<const __nv_bfloat16*>(args.x), n, *args.weight);
    if (args.post_norm == nullptr) {
      cuda::LaunchFinish(sums, n, width, args.bias, ProductOutput::kAdd, args.residual,
                         stream_.get());
    } else {
      cuda::LaunchFinish(sums, n, width, args.bias, ProductOutput::kF32, sums, stream_.get());
      cuda::LaunchPostNormAdd(sums, n, *args.post_norm, args.residual, stream_.get());
    }
    End();
  }

  void GateUp(const GateUpArgs& args) override {
    if (!separate_) return SeparableOps::GateUp(args);
    Begin();
    const int32_t n = args.rows.num_rows;
    const Weight& weight = *args.gate_up;
    __nv_bfloat16* const gate_up = wide_.Take(int64_t{n} * weight.rows);
    const float* const sums = Sums(Normed(args.residual, nullptr, n, args.norm), n, weight);
    cuda::LaunchFinish(sums, n, weight.rows, args.bias, ProductOutput::kBf16, gate_up,
                       stream_.get());
    cuda::LaunchGate(gate_up, n, weight.rows / 2, args.kind, static_cast<__nv_bfloat16*>(args.out),
                     stream_.get());
    End();
  }

  void Head(const HeadArgs& args) override {
    if (!separate_ || args.num_logits_rows == 0) return SeparableOps::Head(args);
    Begin();
    const int32_t n = args.num_logits_rows;
    const Weight& weight = *args.output;
    const float* const sums =
        Sums(Normed(args.residual, args.logits_rows, n, args.norm), n, weight);
    cuda::LaunchFinish(sums, n, weight.rows, args.bias, ProductOutput::kF32, args.logits,
                       stream_.get());
    cuda::LaunchScaleCap(args.logits, int64_t{n} * weight.rows, args.logit_scale, args.soft_cap,
                         stream_.get());
    End();
  }

 private:
  // The backend's stream is its own: both sides wait for each other.
  void Begin() {
    const absl::Status done = Finish(Mark());
    KERNELS_REQUIRE(done.ok(), "%s", done.ToString().c_str());
  }
  void End() {
    Require(cudaGetLastError(), "a launch");
    Require(cudaStreamSynchronize(stream_.get()), "a separate operation");
  }

  const __nv_bfloat16* Normed(const float* x, const int32_t* index, int32_t n, const Norm& norm) {
    __nv_bfloat16* const normed = normed_.Take(int64_t{n} * norm.width);
    cuda::LaunchNorm(x, index, n, norm, normed, stream_.get());
    return normed;
  }

  // [m, weight.rows]
  float* Sums(const __nv_bfloat16* x, int32_t m, const Weight& weight) {
    using Kind = SeparateOptions::Product;
    float* const sums = sums_.Take(int64_t{m} * weight.rows);
    const auto* const w = weight.storage.as<__nv_bfloat16>();
    const bool is_planted = options_.product != Kind::kChain && m <= kFewRows;
    if (is_planted && options_.product == Kind::kSplitK) {
      if (split_k_->Multiply(x, m, w, weight.rows, weight.cols, sums, stream_.get())) return sums;
    } else if (is_planted) {
      cuda::LaunchPlantedProduct(x, m, w, weight.rows, weight.cols,
                                 options_.product == Kind::kOneAccumulator ? 1 : 2, sums,
                                 stream_.get());
      return sums;
    }
    cuda::LaunchChain(x, m, w, weight.rows, weight.cols, nullptr, ProductOutput::kF32, sums,
                      num_multiprocessors_, stream_.get());
    return sums;
  }

  const SeparateOptions options_;
  bool separate_;
  const std::unique_ptr<cuda::HeuristicProducts> split_k_;
  const int num_multiprocessors_;
  cuda::OwnedStream stream_;
  Scratch<__nv_bfloat16> normed_;
  Scratch<__nv_bfloat16> wide_;
  Scratch<float> sums_;
};

absl::StatusOr<std::unique_ptr<Ops>> Make(const SeparateOptions& options, bool separate) {
  absl::StatusOr<std::unique_ptr<Ops>> ops = MakeCudaOps({});
  if (!ops.ok()) return ops.status();
  int device = 0, multiprocessors = 0;
  CUDA_RETURN_IF_ERROR(cudaGetDevice(&device));
  CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  std::unique_ptr<cuda::HeuristicProducts> split_k;
  CUDA_ASSIGN_OR_RETURN(split_k,
                        cuda::HeuristicProducts::Make(cuda::HeuristicProducts::Wanted::kSplitK));
  return std::make_unique<SeparateCudaOps>(*std::move(ops), options, separate, std::move(split_k),
                                           multiprocessors);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Ops>> MakeSeparableCudaOps() { return Make({}, false); }
absl::StatusOr<std::unique_ptr<Ops>> MakeSeparateCudaOps(const SeparateOptions& options) {
  return Make(options, true);
}

}  // namespace tandem::kernels
