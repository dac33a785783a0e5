// Speed of the CPU backend's operations on the shapes of SmolLM2-135M (Q4_1, output Q8_0): us per
// operation and step, tokens per second, and GB/s of weights read.
//
//   cpu_ops_bench [--threads N] [--simd portable|avx2|avx512] [--context N] [--repeat N]
//
// Decode rows are single rows of as many slots, each with a context of its own; prefill rows are
// one slot's. Weights are random; every layer has its own, so that a step reads what a real one
// reads. Of all repeats the fastest counts: on a machine that others use the mean says little. With
// --threads 1 the times are processor time.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "kernels/check.h"
#include "kernels/cpu/cpu_ops.h"

namespace tandem::kernels {
namespace {

constexpr int32_t kLayers = 30, kHidden = 576, kFfn = 1536, kHeads = 9, kKvHeads = 3;
constexpr int32_t kHeadDim = 64, kVocab = 49152, kContextLength = 4096;

struct Flags {
  CpuOptions options;
  int32_t context = 512;
  int32_t repeat = 10;
};

Flags ParseFlags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--threads") flags.options.num_threads = std::atoi(value.c_str());
    if (name == "--context") flags.context = std::atoi(value.c_str());
    if (name == "--repeat") flags.repeat = std::atoi(value.c_str());
    if (name == "--simd") {
      flags.options.simd = value == "avx512" ? SimdLevel::kAvx512
                           : value == "avx2" ? SimdLevel::kAvx2
                                             : SimdLevel::kPortable;
    }
  }
  return flags;
}

// Seconds of the clock, or of processor time: what one thread uses, also on a busy machine.
double Now(bool processor_time) {
  timespec now;
  clock_gettime(processor_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class Bench {
 public:
  explicit Bench(const Flags& flags) : flags_(flags) {
    auto ops = MakeCpuOps(flags.options);
    KERNELS_REQUIRE(ops.ok(), "%s", ops.status().ToString().c_str());
    ops_ = *std::move(ops);
    std::printf("%s\n", ops_->info().device.c_str());
    for (int32_t i = 0; i < kLayers; ++i) {
      layers_.push_back(
          {RandomWeight(DType::kQ4_1, {kHeads * kHeadDim, kKvHeads * kHeadDim, kKvHeads * kHeadDim},
                        kHidden),
           RandomWeight(DType::kQ4_1, {kHidden}, kHeads * kHeadDim),
           RandomWeight(DType::kQ4_1, {kFfn, kFfn}, kHidden),
           RandomWeight(DType::kQ4_1, {kHidden}, kFfn)});
    }
    output_ = RandomWeight(DType::kQ8_0, {kVocab}, kHidden);
    norm_weight_.assign(kFfn, 1.0f);
    rope_.assign(kContextLength * kHeadDim / 2, 0.7f);
  }

  // A step of num_rows rows; slots 1: prefill of one slot that ends at the context; else one row
  // each.
  void Run(int32_t num_rows, int32_t num_slots) {
    const int32_t pages_per_slot = flags_.context / kPageTokens + 1;
    KvPool kv;
    kv.num_layers = kLayers;
    kv.num_pages = num_slots * pages_per_slot;
    kv.num_kv_heads = kKvHeads;
    kv.head_dim = kHeadDim;
    kv.max_pages_per_slot = pages_per_slot;
    Buffer cache = Take(kv.DataBytes());
    kv.data = cache.data();
    for (int64_t i = 0; i < kv.DataBytes() / 4; ++i) cache.as<float>()[i] = 0.01f * (i % 101);
    std::vector<int32_t> pages(kv.num_pages);
    for (int32_t i = 0; i < kv.num_pages; ++i) pages[i] = i;
    kv.page_table = pages.data();

    std::vector<int32_t> slot(num_rows), position(num_rows), token(num_rows),
        row_position(num_rows);
    std::vector<int32_t> logits_rows;
    for (int32_t i = 0; i < num_rows; ++i) {
      slot[i] = num_slots == 1 ? 0 : i;
      position[i] = num_slots == 1 ? flags_.context - num_rows + i : flags_.context - 1;
      if (num_slots > 1 || i + 1 == num_rows) logits_rows.push_back(i);
    }
    const int32_t num_logits = static_cast<int32_t>(logits_rows.size());
    std::vector<int32_t> tokens(num_slots * kContextLength), num_tokens(num_slots, flags_.context);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 7 % kVocab);
    std::vector<DrawParams> params(num_slots);
    for (int32_t i = 0; i < num_slots; ++i) {
      params[i].greedy = false;
      params[i].seed = i;
      params[i].inverse_temperature = 1.25f;
      params[i].repetition_penalty = 1.1f;
    }
    SlotState slots;
    slots.num_slots = num_slots;
    slots.context_length = kContextLength;
    slots.vocab_size = kVocab;
    slots.tokens = tokens.data();
    slots.num_tokens = num_tokens.data();
    slots.params = params.data();
    const StepRows rows{num_rows, slot.data(), position.data(), token.data(), row_position.data()};

    Buffer residual = Take(int64_t{4} * num_rows * kHidden), q = Take(residual.bytes());
    Buffer attn = Take(residual.bytes()), gated = Take(int64_t{4} * num_rows * kFfn);
    Buffer logits = Take(int64_t{4} * num_logits * kVocab);
    std::vector<RowSummary> summary(num_logits);
    std::vector<TopEntry> top(num_logits * 20);
    std::vector<PerturbedEntry> perturbed(num_logits * 8);
    Norm norm{norm_weight_.data(), kHidden, 1e-5f};
    Rope rope{rope_.data(), rope_.data(), kContextLength, kHeadDim, RopePairs::kHalves};
    AttentionShape shape{kHeads, kKvHeads, kHeadDim};

    std::map<std::string, double> best;
    double best_step = 1e9;
    const bool one_thread = flags_.options.num_threads == 1;
    for (int32_t repeat = 0; repeat < flags_.repeat; ++repeat) {
      std::map<std::string, double> spent;
      const auto time = [&](const char* name, const std::function<void()>& run) {
        const double start = Now(one_thread);
        run();
        spent[name] += Now(one_thread) - start;
      };
      ops_->PrepareRows(rows, slots);
      time("1 embed", [&] { ops_->Embed({rows, &output_, 1.0f, residual.as<float>()}); });
      for (int32_t i = 0; i < kLayers; ++i) {
        time("2 qkv", [&] {
          ops_->Qkv({rows, residual.as<float>(), norm, &layers_[i].qkv, nullptr, nullptr, nullptr,
                     rope, shape, kv, i, q.data()});
        });
        time("3 attention", [&] {
          ops_->Attention({rows, q.data(), shape, kv, i, 0.125f, 0.0f, 0, attn.data()});
        });
        time("4 o", [&] {
          ops_->Project({rows, attn.data(), &layers_[i].o, nullptr, nullptr, residual.as<float>()});
        });
        time("5 gate_up", [&] {
          ops_->GateUp({rows, residual.as<float>(), norm, &layers_[i].gate_up, nullptr,
                        GateKind::kSilu, gated.data()});
        });
        time("6 down", [&] {
          ops_->Project(
              {rows, gated.data(), &layers_[i].down, nullptr, nullptr, residual.as<float>()});
        });
      }
      time("7 head", [&] {
        ops_->Head({rows, residual.as<float>(), num_logits, logits_rows.data(), norm, &output_,
                    nullptr, 1.0f, 0.0f, logits.as<float>()});
      });
      time("8 candidates", [&] {
        ops_->Candidates({rows, num_logits, logits_rows.data(), logits.as<float>(), slots, false,
                          summary.data(), top.data(), perturbed.data(), nullptr, nullptr, 20, 8});
      });
      double step = 0.0;
      for (const auto& [name, seconds] : spent) {
        step += seconds;
        if (best.count(name) == 0 || seconds < best[name]) best[name] = seconds;
      }
      best_step = std::min(best_step, step);
    }
    std::printf("%4d rows %-7s context %d:", num_rows, num_slots == 1 ? "of one" : "decode",
                flags_.context);
    for (const auto& [name, seconds] : best) {
      const bool per_layer = name[0] >= '2' && name[0] <= '6';
      std::printf("  %s %.1f", name.c_str() + 2, 1e6 * seconds / (per_layer ? kLayers : 1));
    }
    std::printf(" us  | step %.2f ms, %.0f tok/s, %.1f GB/s\n", 1e3 * best_step,
                num_rows / best_step, weight_bytes_ / best_step * 1e-9);
  }

 private:
  struct Layer {
    Weight qkv, o, gate_up, down;
  };

  Buffer Take(int64_t bytes) {
    auto buffer = ops_->Allocate(bytes, "bench");
    KERNELS_REQUIRE(buffer.ok(), "%s", buffer.status().ToString().c_str());
    return *std::move(buffer);
  }

  Weight RandomWeight(DType dtype, const std::vector<int32_t>& rows, int32_t cols) {
    std::vector<std::vector<uint8_t>> data;
    std::vector<HostMatrix> parts;
    const int32_t block_bytes = Info(dtype).block_bytes;
    for (const int32_t count : rows) {
      data.emplace_back(int64_t{count} * cols / Info(dtype).block_elements * block_bytes);
      for (size_t i = 0; i < data.back().size(); ++i)
        data.back()[i] = static_cast<uint8_t>(random_());
      for (size_t i = 0; i < data.back().size(); i += block_bytes) {
        const uint16_t scale[2] = {0x1400, 0x9800};  // about 1e-3 and -2e-3
        std::memcpy(&data.back()[i], scale, dtype == DType::kQ4_1 ? 4 : 2);
      }
      parts.push_back({nullptr, dtype, count, cols});
      weight_bytes_ += static_cast<double>(data.back().size());
    }
    for (size_t i = 0; i < parts.size(); ++i) parts[i].data = data[i].data();
    auto weight = ops_->PrepareWeight(parts, "bench");
    KERNELS_REQUIRE(weight.ok(), "%s", weight.status().ToString().c_str());
    return *std::move(weight);
  }

  const Flags flags_;
  std::unique_ptr<Ops> ops_;
  std::mt19937 random_{1};
  std::vector<Layer> layers_;
  Weight output_;
  std::vector<float> norm_weight_, rope_;
  double weight_bytes_ = 0.0;
};

}  // namespace
}  // namespace tandem::kernels

int main(int argc, char** argv) {
  tandem::kernels::Bench bench(tandem::kernels::ParseFlags(argc, argv));
  for (const int32_t rows : {1, 2, 4, 8, 32, 128}) bench.Run(rows, rows);
  for (const int32_t rows : {32, 128, 512}) bench.Run(rows, 1);
}
