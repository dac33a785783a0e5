#include "engine/memory_plan.h"

#include <algorithm>
#include <memory>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"
#include "engine/decode_engine_arrays.h"

namespace tandem {
namespace {

// Adds up what is asked for. Its memory has addresses that nobody follows; its operations do
// nothing.
class CountingOps final : public kernels::Ops {
 public:
  CountingOps(const kernels::Ops& ops, MemoryPlan& plan) : ops_(ops), plan_(plan) {}

  // From now on what is allocated belongs to the engine.
  void CountEngine() { other_ = &plan_.slots; }

  const kernels::BackendInfo& info() const override { return ops_.info(); }
  absl::Status SupportsAttention(const kernels::AttentionShape& shape, kernels::KvFormat format,
                                 float soft_cap, int32_t window) const override {
    return ops_.SupportsAttention(shape, format, soft_cap, window);
  }
  absl::StatusOr<kernels::Buffer> Allocate(int64_t bytes, std::string_view what) override {
    const bool is_kv = what == kKvPagesName || what == kKvScalesName;
    (is_kv ? plan_.kv_pages : *other_) += bytes;
    return Nothing(bytes);
  }
  absl::StatusOr<kernels::Weight> PrepareWeight(std::span<const kernels::HostMatrix> parts,
                                                std::string_view) override {
    kernels::Weight weight;
    weight.cols = parts[0].cols;
    int64_t bytes = 0;
    for (const kernels::HostMatrix& part : parts) {
      weight.parts.push_back({part.dtype, weight.rows, part.rows, bytes});
      weight.rows += part.rows;
      bytes += ops_.WeightBytes(part);
    }
    plan_.weights += bytes;
    widest_ = std::max({widest_, weight.rows, weight.cols});
    weight.storage = Nothing(bytes);
    return weight;
  }
  int32_t widest() const { return widest_; }

  void CopyToDevice(void*, const void*, int64_t) override {}
  void CopyToHost(void*, const void*, int64_t) override {}
  int64_t Mark() override { return ++mark_; }
  absl::Status Finish(int64_t) override { return absl::OkStatus(); }
  void PrepareRows(const kernels::StepRows&, const kernels::SlotState&) override {}
  void Embed(const kernels::EmbedArgs&) override {}
  void Qkv(const kernels::QkvArgs&) override {}
  void Attention(const kernels::AttentionArgs&) override {}
  void Project(const kernels::ProjectArgs&) override {}
  void GateUp(const kernels::GateUpArgs&) override {}
  void Head(const kernels::HeadArgs&) override {}
  void Candidates(const kernels::CandidatesArgs&) override {}
  void CopyPage(const kernels::KvPool&, int32_t, int32_t, int32_t) override {}
  void SetTap(kernels::Tap*) override {}

 private:
  static kernels::Buffer Nothing(int64_t bytes) {
    return kernels::Buffer(reinterpret_cast<void*>(uintptr_t{256}), bytes, [](void*) {});
  }

  const kernels::Ops& ops_;
  MemoryPlan& plan_;
  int64_t* other_ = &plan_.activations;
  int32_t widest_ = 0;
  int64_t mark_ = 0;
};

std::string Amount(int64_t bytes) {
  return absl::StrFormat("%12.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

std::string MemoryPlan::Table() const {
  std::string text = absl::StrCat(
      "memory: weights     ", Amount(weights), "\nmemory: activations ", Amount(activations),
      "\nmemory: slots       ", Amount(slots), "\nmemory: KV pages    ", Amount(kv_pages),
      "\nmemory: workspace   ", Amount(workspace), "\nmemory: needed      ", Amount(needed()));
  if (device.total > 0) {
    absl::StrAppend(&text, " of", Amount(device.free), " free,", Amount(device.total), " in all");
  }
  for (const absl::string_view line : absl::StrSplit(capacity, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&text, "\nmemory: ", line);
  }
  return text;
}

absl::Status MemoryPlan::Fits() const {
  if (device.total == 0 || needed() <= device.free) return absl::OkStatus();
  return ResourceExhausted("it does not fit: ", needed(), " bytes of the device are needed, ",
                           device.free, " of ", device.total, " are free (", kv_pages,
                           " for KV pages: fewer --kv-tokens, --max-sessions or a shorter "
                           "--context need less)");
}

absl::StatusOr<MemoryPlan> PlanMemory(const Checkpoint& checkpoint,
                                      const Model::Options& model_options,
                                      const EngineOptions& engine_options,
                                      const kernels::Ops& ops) {
  MemoryPlan plan;
  plan.device = ops.Memory();
  CountingOps counting(ops, plan);
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Model> model,
      Model::Load(checkpoint, engine_options.kv_format, model_options, counting, nullptr));
  counting.CountEngine();
  ASSIGN_OR_RETURN(const std::unique_ptr<DecodeEngine> engine,
                   DecodeEngine::Make(engine_options, {}, *model, counting));
  plan.capacity = engine->CapacityText();
  plan.workspace = ops.WorkspaceBytes(
      {.rows = engine_options.step_tokens,
       .logits_rows = std::min(engine_options.step_tokens, engine_options.max_sessions),
       .widest = counting.widest(),
       .vocab_size = model->config().vocab_size,
       .context_length = model->context_length(),
       .attention = model->config().attention});
  return plan;
}

}  // namespace tandem
