// Microseconds of each kernel of the CUDA backend at the shapes of an 8B and a 135M model, back to
// back in a graph, as steps run them. One JSON object a line.
//
//   kernel_bench [--rows N ...] [--only NAME]
// floor_us: the bytes that the kernel must read and write at 4.55 TB/s, or its multiplications at
// 790 TFLOP/s, whichever is more (what one H200 was measured to do). For products also what
// cuBLASLt's first choice takes, in any order of summation (ratio_to_cublaslt below 1: faster).
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "engine/base/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/probe.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/timing.h"
#include "tests/bench/bench_support.h"
#include "tests/kernels/cuda/planted.h"

namespace tandem::test {
namespace {

using kernels::StepRows;
using kernels::cuda::AllocateDevice;
using kernels::cuda::DeviceArray;
using kernels::cuda::ProductOutput;

constexpr double kBytesPerSecond = 4.55e12;
constexpr double kFlopsPerSecond = 790e12;
// Copies of what is read take turns, so that the L2 cache does not hold them from before.
constexpr int64_t kTurnBytes = int64_t{256} << 20;
constexpr int kMaxRepeats = 64;

struct ModelShape {
  const char* name;
  int32_t hidden;
  int32_t ffn;
  kernels::AttentionShape attention;
  int32_t vocab;
};
constexpr ModelShape kModels[] = {{"llama3-8b", 4096, 14336, {32, 8, 128}, 128256},
                                  {"smollm2-135m", 576, 1536, {9, 3, 64}, 49152}};
constexpr int32_t kMaxRows = 512;

struct Flags {
  std::vector<int32_t> rows = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
  std::string only;
};

int Repeats(int64_t bytes) {
  return static_cast<int>(
      std::clamp<int64_t>(kTurnBytes / std::max<int64_t>(bytes, 1), 4, kMaxRepeats));
}

class Bench final {
 public:
  explicit Bench(const Flags& flags) : flags_(flags) {
    cudaDeviceProp properties;
    Check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    device_ = properties.name;
    cudaStream_t stream = nullptr;
    Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    stream_.reset(stream);
  }

  void Run() {
    for (const ModelShape& model : kModels) {
      if (Wants("product")) Products(model);
      for (const int32_t rows : flags_.rows) {
        if (Wants("norm")) Norm(model, rows);
        if (Wants("gate")) Gate(model, rows);
        if (Wants("rope")) Rope(model, rows);
        if (Wants("candidates")) Candidates(model, rows);
        for (const int32_t context : {512, 2048}) {
          if (Wants("attention")) DecodeAttention(model, rows, context);
        }
      }
      if (Wants("attention")) PrefillAttention(model, kMaxRows);
    }
  }

 private:
  static void Check(cudaError_t error, const char* what) {
    TANDEM_CHECK(error == cudaSuccess) << what << ": " << cudaGetErrorString(error);
  }
  bool Wants(const char* name) const { return flags_.only.empty() || flags_.only == name; }

  template <typename T>
  DeviceArray<T> Zeroes(int64_t count) const {
    DeviceArray<T> memory = Must(AllocateDevice<T>(count));
    Check(cudaMemset(memory.get(), 0, static_cast<size_t>(count) * sizeof(T)), "cudaMemset");
    return memory;
  }
  DeviceArray<__nv_bfloat16> Halves(int64_t count, uint32_t seed) const {
    DeviceArray<__nv_bfloat16> memory = Must(AllocateDevice<__nv_bfloat16>(count));
    kernels::cuda::LaunchFillRandom(memory.get(), count, seed, stream_.get());
    return memory;
  }
  DeviceArray<float> Floats(int64_t count, uint32_t seed) const {
    DeviceArray<float> memory = Must(AllocateDevice<float>(count));
    kernels::cuda::LaunchFillRandom(memory.get(), count, seed, stream_.get());
    return memory;
  }
  template <typename T>
  DeviceArray<T> Put(const std::vector<T>& values) const {
    DeviceArray<T> memory = Must(AllocateDevice<T>(static_cast<int64_t>(values.size())));
    Check(
        cudaMemcpy(memory.get(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
        "cudaMemcpy");
    return memory;
  }

  // Enqueued once before, which loads the kernels.
  double Microseconds(int repeats, const std::function<bool(int)>& enqueue) const {
    if (!enqueue(0)) return 0.0;
    Check(cudaStreamSynchronize(stream_.get()), "a kernel");
    return Must(kernels::cuda::TimeInGraph(stream_.get(), repeats, enqueue));
  }

  nlohmann::json Line(const char* bench, const ModelShape& model, int32_t rows, double us,
                      double bytes, double flops) const {
    const double floor_us = 1e6 * std::max(bytes / kBytesPerSecond, flops / kFlopsPerSecond);
    return {{"bench", bench},
            {"model", model.name},
            {"device", device_},
            {"rows", rows},
            {"us", us},
            {"floor_us", floor_us},
            {"share_of_floor", us > 0.0 ? floor_us / us : 0.0}};
  }
  static void Print(const nlohmann::json& line) {
    std::puts(line.dump().c_str());
    std::fflush(stdout);
  }

  void Products(const ModelShape& model) {
    using kernels::cuda::HeuristicProducts;
    const int32_t head_dim = model.attention.head_dim;
    const struct {
      const char* name;
      int32_t n;
      int32_t k;
      ProductOutput output;
    } shapes[] = {
        {"qkv", (model.attention.num_heads + 2 * model.attention.num_kv_heads) * head_dim,
         model.hidden, ProductOutput::kBf16},
        {"o", model.hidden, model.attention.num_heads * head_dim, ProductOutput::kAdd},
        {"gate_up", 2 * model.ffn, model.hidden, ProductOutput::kBf16},
        {"down", model.hidden, model.ffn, ProductOutput::kAdd},
        {"output", model.vocab, model.hidden, ProductOutput::kF32},
    };
    const auto products = Must(kernels::cuda::Products::Make(kMaxRows));
    const auto cublaslt = Must(HeuristicProducts::Make(HeuristicProducts::Wanted::kAny));
    for (const auto& [name, n, k, output] : shapes) {
      const absl::Status prepared = products->Prepare(n, k);
      TANDEM_CHECK(prepared.ok()) << prepared;
      const int64_t weights = int64_t{n} * k;
      const int repeats = Repeats(2 * weights);
      const auto w = Halves(repeats * weights, 1);
      const auto x = Halves(int64_t{kMaxRows} * k, 2);
      const auto y = Floats(int64_t{kMaxRows} * n, 3);
      for (const int32_t m : flags_.rows) {
        const double us = Microseconds(repeats, [&](int i) {
          products->Run(x.get(), m, w.get() + i * weights, n, k, nullptr, output, y.get(),
                        stream_.get());
          return true;
        });
        const double theirs_us = Microseconds(repeats, [&](int i) {
          return cublaslt->Multiply(x.get(), m, w.get() + i * weights, n, k, y.get(),
                                    stream_.get());
        });
        const double y_bytes = output == ProductOutput::kBf16  ? 2
                               : output == ProductOutput::kF32 ? 4
                                                               : 8;
        nlohmann::json line =
            Line("product", model, m, us, 2.0 * weights + 2.0 * m * k + y_bytes * m * n,
                 2.0 * m * static_cast<double>(weights));
        line["product"] = name;
        line["n"] = n;
        line["k"] = k;
        line["cublaslt_us"] = theirs_us;
        line["ratio_to_cublaslt"] = theirs_us > 0.0 ? us / theirs_us : 0.0;
        Print(line);
      }
    }
  }

  void Norm(const ModelShape& model, int32_t rows) {
    const int64_t count = int64_t{rows} * model.hidden;
    const double bytes = 6.0 * static_cast<double>(count) + 4.0 * model.hidden;
    const int repeats = Repeats(static_cast<int64_t>(bytes));
    const auto x = Floats(repeats * count, 1);
    const auto out = Zeroes<__nv_bfloat16>(count);
    const auto weight = Floats(model.hidden, 2);
    const kernels::Norm norm = {.weight = weight.get(), .width = model.hidden, .epsilon = 1e-5f};
    const double us = Microseconds(repeats, [&](int i) {
      kernels::cuda::LaunchNorm(x.get() + i * count, nullptr, rows, norm, out.get(), stream_.get());
      return true;
    });
    Print(Line("norm", model, rows, us, bytes, 0.0));
  }

  void Gate(const ModelShape& model, int32_t rows) {
    const int64_t count = int64_t{rows} * model.ffn;
    const double bytes = 6.0 * static_cast<double>(count);
    const int repeats = Repeats(static_cast<int64_t>(bytes));
    const auto gate_up = Halves(repeats * 2 * count, 1);
    const auto out = Zeroes<__nv_bfloat16>(count);
    const double us = Microseconds(repeats, [&](int i) {
      kernels::cuda::LaunchGate(gate_up.get() + i * 2 * count, rows, model.ffn,
                                kernels::GateKind::kSilu, out.get(), stream_.get());
      return true;
    });
    Print(Line("gate", model, rows, us, bytes, 0.0));
  }

  // A cache, and rows over it.
  struct Cache {
    DeviceArray<__nv_bfloat16> data;
    DeviceArray<int32_t> table, slot, position, token;
    kernels::KvPool kv;
    StepRows rows;
  };
  // `rows` rows: one at the end of each of `rows` contexts (decode), or the last of one (prefill).
  Cache MakeCache(const ModelShape& model, int32_t rows, int32_t context, int32_t layers,
                  bool is_decode) const {
    Cache cache;
    const int32_t slots = is_decode ? rows : 1;
    const int32_t pages = (context + kernels::kPageTokens - 1) / kernels::kPageTokens;
    std::vector<int32_t> table, slot, position;
    for (int32_t i = 0; i < slots * pages; ++i) table.push_back(i);
    for (int32_t i = 0; i < rows; ++i) {
      slot.push_back(is_decode ? i : 0);
      position.push_back(is_decode ? context - 1 : context - rows + i);
    }
    cache.kv.format = kernels::KvFormat::kBF16;
    cache.kv.num_layers = layers;
    cache.kv.num_pages = slots * pages;
    cache.kv.num_kv_heads = model.attention.num_kv_heads;
    cache.kv.head_dim = model.attention.head_dim;
    cache.kv.max_pages_per_slot = pages;
    cache.data = Halves(cache.kv.DataBytes() / 2, 7);
    cache.table = Put(table);
    cache.slot = Put(slot);
    cache.position = Put(position);
    cache.token = Zeroes<int32_t>(rows);
    cache.kv.data = cache.data.get();
    cache.kv.page_table = cache.table.get();
    cache.rows = {rows, cache.slot.get(), cache.position.get(), cache.token.get(),
                  cache.position.get()};
    return cache;
  }

  void Rope(const ModelShape& model, int32_t rows) {
    const int32_t head_dim = model.attention.head_dim;
    const int32_t width = (model.attention.num_heads + 2 * model.attention.num_kv_heads) * head_dim;
    const int64_t count = int64_t{rows} * width;
    const double bytes = 4.0 * static_cast<double>(count) + 4.0 * rows * head_dim;
    const int repeats = Repeats(static_cast<int64_t>(bytes));
    const Cache cache = MakeCache(model, rows, 512, 1, true);
    const auto qkv = Halves(repeats * count, 1);
    const auto q = Zeroes<__nv_bfloat16>(count);
    const auto tables = Floats(int64_t{512} * head_dim, 2);
    kernels::cuda::RopeArgs args;
    args.rows = cache.rows;
    args.rope = {.cos = tables.get(),
                 .sin = tables.get() + 256 * head_dim,
                 .context_length = 512,
                 .rotary_dim = head_dim};
    args.shape = model.attention;
    args.kv = cache.kv;
    args.q = q.get();
    const double us = Microseconds(repeats, [&](int i) {
      args.qkv = qkv.get() + i * count;
      kernels::cuda::LaunchRope(args, stream_.get());
      return true;
    });
    Print(Line("rope", model, rows, us, bytes, 0.0));
  }

  void DecodeAttention(const ModelShape& model, int32_t rows, int32_t context) {
    const double layer_bytes =
        4.0 * rows * context * model.attention.num_kv_heads * model.attention.head_dim;
    Attention("attention_decode", model, rows, context, Repeats(static_cast<int64_t>(layer_bytes)),
              true, layer_bytes, 0.0);
  }

  // A prompt from its first token on.
  void PrefillAttention(const ModelShape& model, int32_t rows) {
    const double width = model.attention.num_heads * model.attention.head_dim;
    Attention("attention_prefill", model, rows, rows, 4, false,
              4.0 * rows * model.attention.num_kv_heads * model.attention.head_dim,
              2.0 * rows * (rows + 1) * width);
  }

  void Attention(const char* name, const ModelShape& model, int32_t rows, int32_t context,
                 int repeats, bool is_decode, double kv_bytes, double flops) {
    const Cache cache = MakeCache(model, rows, context, repeats, is_decode);
    const int64_t width = int64_t{model.attention.num_heads} * model.attention.head_dim;
    const auto q = Halves(rows * width, 1);
    const auto out = Zeroes<__nv_bfloat16>(rows * width);
    const auto scratch = Zeroes<uint8_t>(
        std::max<int64_t>(1, kernels::cuda::AttentionScratchBytes(model.attention, rows, context)));
    kernels::AttentionArgs args;
    args.rows = cache.rows;
    args.q = q.get();
    args.shape = model.attention;
    args.kv = cache.kv;
    args.scale = 0.1f;
    args.out = out.get();
    const double us = Microseconds(repeats, [&](int i) {
      args.layer = i;
      kernels::cuda::LaunchAttention(args, context, scratch.get(), stream_.get());
      return true;
    });
    nlohmann::json line =
        Line(name, model, rows, us, kv_bytes + 4.0 * rows * static_cast<double>(width), flops);
    line["context"] = context;
    Print(line);
  }

  void Candidates(const ModelShape& model, int32_t rows) {
    constexpr int32_t kTop = 64, kPerturbed = 16;
    const int64_t count = int64_t{rows} * model.vocab;
    const double bytes = 4.0 * static_cast<double>(count);
    const int repeats = std::min(8, Repeats(static_cast<int64_t>(bytes)));
    const auto logits = Floats(repeats * count, 1);
    std::vector<kernels::DrawParams> host_params(static_cast<size_t>(rows));
    for (kernels::DrawParams& params : host_params) {
      params.num_top = kTop;
      params.num_perturbed = kPerturbed;
    }
    std::vector<int32_t> index, position(static_cast<size_t>(rows), 3);
    for (int32_t i = 0; i < rows; ++i) index.push_back(i);
    const auto params = Put(host_params);
    const auto rows_index = Put(index);
    const auto rows_position = Put(position);
    const auto token = Zeroes<int32_t>(rows);
    const auto tokens = Zeroes<int32_t>(int64_t{rows} * 16);
    const auto num_tokens = Put(std::vector<int32_t>(static_cast<size_t>(rows), 4));
    const auto summary = Zeroes<kernels::RowSummary>(rows);
    const auto top = Zeroes<kernels::TopEntry>(int64_t{rows} * kTop);
    const auto perturbed = Zeroes<kernels::PerturbedEntry>(int64_t{rows} * kPerturbed);
    const auto scratch = Zeroes<uint8_t>(kernels::cuda::CandidatesScratchBytes(rows, model.vocab));
    kernels::CandidatesArgs args;
    args.rows = {rows, rows_index.get(), rows_position.get(), token.get(), rows_position.get()};
    args.num_logits_rows = rows;
    args.logits_rows = rows_index.get();
    args.slots.num_slots = rows;
    args.slots.context_length = 16;
    args.slots.vocab_size = model.vocab;
    args.slots.tokens = tokens.get();
    args.slots.num_tokens = num_tokens.get();
    args.slots.params = params.get();
    args.summary = summary.get();
    args.top = top.get();
    args.perturbed = perturbed.get();
    args.max_top = kTop;
    args.max_perturbed = kPerturbed;
    const double us = Microseconds(repeats, [&](int i) {
      args.logits = logits.get() + i * count;
      kernels::cuda::LaunchCandidates(args, scratch.get(), stream_.get());
      return true;
    });
    Print(Line("candidates", model, rows, us, bytes, 0.0));
  }

  const Flags flags_;
  std::string device_;
  kernels::cuda::OwnedStream stream_;
};

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Microseconds of each CUDA kernel.", "kernel_bench");
  app.add_option("--rows", flags.rows, "Rows of a step")->check(CLI::Range(1, kMaxRows));
  app.add_option("--only", flags.only, "One kind of kernel")
      ->check(CLI::IsMember({"product", "norm", "gate", "rope", "attention", "candidates"}));
  CLI11_PARSE(app, argc, argv);
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    std::fprintf(stderr, "kernel_bench: no CUDA device: %s\n", cudaGetErrorString(error));
    return 1;
  }
  Bench(flags).Run();
  return 0;
}

}  // namespace
}  // namespace tandem::test

int main(int argc, char** argv) { return tandem::test::Main(argc, argv); }
