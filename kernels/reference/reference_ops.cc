#include "kernels/reference/reference_ops.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/append_draws.h"
#include "kernels/check.h"
#include "kernels/check_finite_host.h"
#include "kernels/random_weight.h"
#include "kernels/reference/candidates.h"
#include "kernels/reference/dequantize.h"
#include "kernels/reference/layer_math.h"

namespace tandem::kernels {
namespace {

constexpr int64_t kAlignment = 256;

bool IsIdle(const StepRows& rows, int32_t row) { return rows.token[row] == kIdleToken; }

// A result of a seam, [rows, cols], zero at first.
class Table final {
 public:
  Table(int32_t rows, int32_t cols)
      : rows_(rows), cols_(cols), values_(static_cast<size_t>(rows) * cols) {}
  float* line(int32_t row) { return values_.data() + int64_t{row} * cols_; }
  void Show(Tap* tap, std::string_view name) const {
    if (tap != nullptr) tap->OnTensor(name, rows_, cols_, values_.data());
  }

 private:
  int32_t rows_;
  int32_t cols_;
  std::vector<float> values_;
};

void CheckShape(const AttentionShape& shape, const KvPool& kv, int32_t layer) {
  KERNELS_REQUIRE(shape.num_kv_heads > 0 && shape.num_heads > 0 &&
                      shape.num_heads % shape.num_kv_heads == 0 &&
                      shape.num_heads / shape.num_kv_heads <= 64,
                  "%d heads, %d kv heads", shape.num_heads, shape.num_kv_heads);
  KERNELS_REQUIRE(kv.head_dim == shape.head_dim && kv.num_kv_heads == shape.num_kv_heads,
                  "cache %d x %d, shape %d x %d", kv.num_kv_heads, kv.head_dim, shape.num_kv_heads,
                  shape.head_dim);
  KERNELS_REQUIRE(layer >= 0 && layer < kv.num_layers, "layer %d of %d", layer, kv.num_layers);
}

// Where the K (side 0) or V (side 1) vector of a slot's position lies.
struct KvPlace {
  uint8_t* elements;
  float* scale;  // null unless the format has scales
};
KvPlace Place(const KvPool& kv, int32_t slot, int32_t position, int32_t layer, int32_t side,
              int32_t kv_head) {
  const int32_t entry = position / kPageTokens;
  KERNELS_REQUIRE(entry < kv.max_pages_per_slot, "position %d, %d pages a slot", position,
                  kv.max_pages_per_slot);
  const int32_t page = kv.page_table[int64_t{slot} * kv.max_pages_per_slot + entry];
  KERNELS_REQUIRE(page >= 0 && page < kv.num_pages, "slot %d position %d: page %d of %d", slot,
                  position, page, kv.num_pages);
  const int64_t element = kv.ElementOffset(layer, page, side, kv_head, position % kPageTokens);
  return {static_cast<uint8_t*>(kv.data) + element * ElementBytes(kv.format),
          HasScales(kv.format) ? kv.scales + element / kv.head_dim : nullptr};
}

class ReferenceOps final : public Ops {
 public:
  explicit ReferenceOps(ActDType act) : act_(act) {
    const bool is_bf16 = act == ActDType::kBF16;
    info_.name = "reference";
    info_.device = "host, one thread";
    info_.numerics = is_bf16 ? "reference-1 bf16" : "reference-1 fp32";
    info_.act_bytes = is_bf16 ? 2 : 4;
    info_.default_kv = is_bf16 ? KvFormat::kBF16 : KvFormat::kF32;
  }

  const BackendInfo& info() const override { return info_; }

  absl::Status SupportsAttention(const AttentionShape&, KvFormat, float, int32_t) const override {
    return absl::OkStatus();
  }

  absl::StatusOr<Buffer> Allocate(int64_t bytes, std::string_view what) override {
    KERNELS_REQUIRE(bytes >= 0, "%lld bytes", static_cast<long long>(bytes));
    const int64_t rounded =
        std::max((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
    void* data = std::aligned_alloc(kAlignment, rounded);
    if (data == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory for ", std::string(what), ": ", bytes, " bytes"));
    }
    std::memset(data, 0, rounded);
    return Buffer(data, bytes, [](void* memory) { std::free(memory); });
  }

  absl::StatusOr<Weight> PrepareWeight(std::span<const HostMatrix> parts,
                                       std::string_view what) override {
    KERNELS_REQUIRE(!parts.empty(), "%s", std::string(what).c_str());
    Weight weight;
    weight.cols = parts[0].cols;
    for (const HostMatrix& part : parts) {
      KERNELS_REQUIRE(part.cols == weight.cols, "%d and %d columns", part.cols, weight.cols);
      if (part.dtype == DType::kI32) {
        return absl::UnimplementedError(
            absl::StrCat(std::string(what), ": weights of type I32 are not multiplied"));
      }
      weight.parts.push_back(
          {DType::kF32, weight.rows, part.rows, int64_t{4} * weight.rows * weight.cols});
      weight.rows += part.rows;
    }
    absl::StatusOr<Buffer> storage = Allocate(int64_t{4} * weight.rows * weight.cols, what);
    if (!storage.ok()) return storage.status();
    weight.storage = *std::move(storage);
    float* out = weight.storage.as<float>();
    for (const HostMatrix& part : parts) {
      const std::vector<uint16_t> drawn =
          part.data == nullptr ? DrawMatrix(part) : std::vector<uint16_t>();
      const uint8_t* row =
          static_cast<const uint8_t*>(part.data == nullptr ? drawn.data() : part.data);
      for (int32_t i = 0; i < part.rows; ++i, row += RowBytes(part.dtype, part.cols)) {
        DequantizeRow(part.dtype, row, part.cols, out);
        for (int32_t j = 0; j < part.cols; ++j) out[j] = RoundToAct(act_, out[j]);
        out += part.cols;
      }
    }
    return weight;
  }

  void CopyToDevice(void* device, const void* host, int64_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, bytes);
  }
  void CopyToHost(void* host, const void* device, int64_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, bytes);
  }
  int64_t Mark() override { return ++marks_; }
  absl::Status Finish(int64_t mark) override {
    KERNELS_REQUIRE(mark > 0 && mark <= marks_, "mark %lld", static_cast<long long>(mark));
    return absl::OkStatus();
  }

  void PrepareRows(const StepRows& rows, const SlotState& slots) override {
    for (int32_t i = 0; i < rows.num_rows; ++i) {
      rows.token[i] = kIdleToken;
      rows.row_position[i] = -1;
      const int32_t slot = rows.slot[i];
      if (slot < 0) continue;
      KERNELS_REQUIRE(slot < slots.num_slots, "slot %d of %d", slot, slots.num_slots);
      const int32_t position =
          rows.position[i] >= 0 ? rows.position[i] : slots.num_tokens[slot] - 1;
      if (position < 0) continue;
      KERNELS_REQUIRE(position < slots.context_length, "position %d of %d", position,
                      slots.context_length);
      rows.row_position[i] = position;
      rows.token[i] = slots.tokens[int64_t{slot} * slots.context_length + position];
    }
  }

  void Embed(const EmbedArgs& args) override {
    const Weight& table = *args.table;
    Table embed(args.rows.num_rows, table.cols);
    for (int32_t i = 0; i < args.rows.num_rows; ++i) {
      if (IsIdle(args.rows, i)) continue;
      const int32_t token = args.rows.token[i];
      KERNELS_REQUIRE(token >= 0 && token < table.rows, "token %d of %d", token, table.rows);
      const float* from = table.storage.as<float>() + int64_t{token} * table.cols;
      for (int32_t j = 0; j < table.cols; ++j) embed.line(i)[j] = from[j] * args.scale;
      std::copy_n(embed.line(i), table.cols, args.residual + int64_t{i} * table.cols);
    }
    embed.Show(tap_, "embed");
  }

  void Qkv(const QkvArgs& args) override;
  void Attention(const AttentionArgs& args) override;
  void Project(const ProjectArgs& args) override;
  void GateUp(const GateUpArgs& args) override;
  void Head(const HeadArgs& args) override;
  void Candidates(const CandidatesArgs& args) override;
  void CopyPage(const KvPool& kv, int32_t from_page, int32_t to_page, int32_t num_tokens) override;
  void CheckFinite(const CheckFiniteArgs& args) override {
    CheckFiniteOnHost(args, info_.act_bytes);
  }
  void SetTap(Tap* tap) override { tap_ = tap; }

 private:
  void RoundLine(float* line, int32_t count) const {
    for (int32_t i = 0; i < count; ++i) line[i] = RoundToAct(act_, line[i]);
  }
  // One line of an activation in memory, [.., cols], as fp32 and back.
  void LoadAct(const void* act, int32_t row, int32_t cols, float* line) const {
    const DType dtype = act_ == ActDType::kBF16 ? DType::kBF16 : DType::kF32;
    const uint8_t* bytes = static_cast<const uint8_t*>(act);
    DequantizeRow(dtype, bytes + int64_t{row} * cols * info_.act_bytes, cols, line);
  }
  void StoreAct(const float* line, int32_t row, int32_t cols, void* act) const {
    for (int32_t j = 0; j < cols; ++j) {
      const int64_t index = int64_t{row} * cols + j;
      if (act_ == ActDType::kBF16) {
        static_cast<uint16_t*>(act)[index] = FloatToBFloat16(line[j]);
      } else {
        static_cast<float*>(act)[index] = line[j];
      }
    }
  }

  const ActDType act_;
  BackendInfo info_;
  int64_t marks_ = 0;
  Tap* tap_ = nullptr;
};

void ReferenceOps::Qkv(const QkvArgs& args) {
  CheckShape(args.shape, args.kv, args.layer);
  const int32_t n = args.rows.num_rows;
  const int32_t head_dim = args.shape.head_dim;
  const int32_t q_width = args.shape.num_heads * head_dim;
  const int32_t kv_width = args.shape.num_kv_heads * head_dim;
  const Weight& weight = *args.qkv;
  KERNELS_REQUIRE(weight.rows == q_width + 2 * kv_width && weight.cols == args.norm.width,
                  "weight %d x %d, hidden size %d", weight.rows, weight.cols, args.norm.width);
  KERNELS_REQUIRE(args.rope.rotary_dim % 2 == 0 && args.rope.rotary_dim <= head_dim,
                  "rotary_dim %d, head_dim %d", args.rope.rotary_dim, head_dim);
  Table normed(n, weight.cols), q(n, q_width), k(n, kv_width), v(n, kv_width);
  for (int32_t i = 0; i < n; ++i) {
    if (IsIdle(args.rows, i)) continue;
    ApplyNorm(args.norm, act_, args.residual + int64_t{i} * weight.cols, normed.line(i));
    std::vector<float> products(weight.rows);
    Product(weight, args.bias, normed.line(i), products.data());
    RoundLine(products.data(), weight.rows);
    std::copy_n(products.data(), q_width, q.line(i));
    std::copy_n(products.data() + q_width, kv_width, k.line(i));
    std::copy_n(products.data() + q_width + kv_width, kv_width, v.line(i));
  }
  normed.Show(tap_, "attn_norm");
  q.Show(tap_, "q");
  k.Show(tap_, "k");
  v.Show(tap_, "v");

  const auto norm_heads = [&](const Norm* norm, int32_t num_heads, Table& table,
                              std::string_view name) {
    if (norm == nullptr) return;
    KERNELS_REQUIRE(norm->width == head_dim, "norm width %d, head_dim %d", norm->width, head_dim);
    for (int32_t i = 0; i < n; ++i) {
      if (IsIdle(args.rows, i)) continue;
      for (int32_t head = 0; head < num_heads; ++head) {
        float* vector = table.line(i) + head * head_dim;
        ApplyNorm(*norm, ActDType::kF32, vector, vector);
      }
    }
    table.Show(tap_, name);
  };
  norm_heads(args.q_norm, args.shape.num_heads, q, "q_norm");
  norm_heads(args.k_norm, args.shape.num_kv_heads, k, "k_norm");

  for (int32_t i = 0; i < n; ++i) {
    if (IsIdle(args.rows, i)) continue;
    const int32_t position = args.rows.row_position[i];
    for (int32_t head = 0; head < args.shape.num_heads; ++head) {
      ApplyRope(args.rope, position, q.line(i) + head * head_dim);
    }
    RoundLine(q.line(i), q_width);
    StoreAct(q.line(i), i, q_width, args.q);
    for (int32_t head = 0; head < args.shape.num_kv_heads; ++head) {
      ApplyRope(args.rope, position, k.line(i) + head * head_dim);
      const KvPlace to_k = Place(args.kv, args.rows.slot[i], position, args.layer, 0, head);
      EncodeKv(args.kv.format, k.line(i) + head * head_dim, head_dim, to_k.elements, to_k.scale);
      const KvPlace to_v = Place(args.kv, args.rows.slot[i], position, args.layer, 1, head);
      EncodeKv(args.kv.format, v.line(i) + head * head_dim, head_dim, to_v.elements, to_v.scale);
    }
  }
  q.Show(tap_, "q_rope");
  k.Show(tap_, "k_rope");
}

void ReferenceOps::Attention(const AttentionArgs& args) {
  CheckShape(args.shape, args.kv, args.layer);
  KERNELS_REQUIRE(args.window >= 0 && args.soft_cap >= 0.0f, "window %d, soft cap %g", args.window,
                  args.soft_cap);
  const int32_t head_dim = args.shape.head_dim;
  const int32_t group = args.shape.num_heads / args.shape.num_kv_heads;
  const int32_t width = args.shape.num_heads * head_dim;
  Table attn(args.rows.num_rows, width);
  std::vector<float> q(width);
  std::vector<float> vector(head_dim);
  for (int32_t i = 0; i < args.rows.num_rows; ++i) {
    if (IsIdle(args.rows, i)) continue;
    LoadAct(args.q, i, width, q.data());
    const int32_t slot = args.rows.slot[i];
    const int32_t position = args.rows.row_position[i];
    const int32_t begin = args.window > 0 ? std::max(0, position - args.window + 1) : 0;
    for (int32_t head = 0; head < args.shape.num_heads; ++head) {
      std::vector<double> scores;
      for (int32_t j = begin; j <= position; ++j) {
        const KvPlace k = Place(args.kv, slot, j, args.layer, 0, head / group);
        DecodeKv(args.kv.format, k.elements, k.scale, head_dim, vector.data());
        const double score = Dot(q.data() + head * head_dim, vector.data(), head_dim);
        scores.push_back(SoftCap(score * args.scale, args.soft_cap));
      }
      double largest = scores[0];
      for (const double score : scores) largest = std::max(largest, score);
      double sum = 0.0;
      std::vector<double> out(head_dim);
      for (int32_t j = begin; j <= position; ++j) {
        const double p = std::exp(scores[j - begin] - largest);
        const double rounded_p =
            act_ == ActDType::kBF16 ? RoundToAct(act_, static_cast<float>(p)) : p;
        sum += p;
        const KvPlace v = Place(args.kv, slot, j, args.layer, 1, head / group);
        DecodeKv(args.kv.format, v.elements, v.scale, head_dim, vector.data());
        for (int32_t d = 0; d < head_dim; ++d) out[d] += rounded_p * vector[d];
      }
      for (int32_t d = 0; d < head_dim; ++d) {
        attn.line(i)[head * head_dim + d] = RoundToAct(act_, static_cast<float>(out[d] / sum));
      }
    }
    StoreAct(attn.line(i), i, width, args.out);
  }
  attn.Show(tap_, "attn");
}

void ReferenceOps::Project(const ProjectArgs& args) {
  const Weight& weight = *args.weight;
  const int32_t n = args.rows.num_rows;
  Table project(n, weight.rows), normed(n, weight.rows), residual(n, weight.rows);
  std::vector<float> x(weight.cols);
  for (int32_t i = 0; i < n; ++i) {
    if (IsIdle(args.rows, i)) continue;
    LoadAct(args.x, i, weight.cols, x.data());
    Product(weight, args.bias, x.data(), project.line(i));
    const float* added = project.line(i);
    if (args.post_norm != nullptr) {
      KERNELS_REQUIRE(args.post_norm->width == weight.rows, "norm width %d, rows %d",
                      args.post_norm->width, weight.rows);
      ApplyNorm(*args.post_norm, ActDType::kF32, project.line(i), normed.line(i));
      added = normed.line(i);
    }
    float* line = args.residual + int64_t{i} * weight.rows;
    for (int32_t j = 0; j < weight.rows; ++j) line[j] += added[j];
    std::copy_n(line, weight.rows, residual.line(i));
  }
  project.Show(tap_, "project");
  if (args.post_norm != nullptr) normed.Show(tap_, "project_norm");
  residual.Show(tap_, "residual");
}

void ReferenceOps::GateUp(const GateUpArgs& args) {
  const Weight& weight = *args.gate_up;
  KERNELS_REQUIRE(weight.rows % 2 == 0 && weight.cols == args.norm.width, "weight %d x %d, norm %d",
                  weight.rows, weight.cols, args.norm.width);
  const int32_t n = args.rows.num_rows;
  const int32_t ffn_size = weight.rows / 2;
  Table normed(n, weight.cols), gate(n, ffn_size), up(n, ffn_size), gated(n, ffn_size);
  for (int32_t i = 0; i < n; ++i) {
    if (IsIdle(args.rows, i)) continue;
    ApplyNorm(args.norm, act_, args.residual + int64_t{i} * weight.cols, normed.line(i));
    std::vector<float> products(weight.rows);
    Product(weight, args.bias, normed.line(i), products.data());
    RoundLine(products.data(), weight.rows);
    std::copy_n(products.data(), ffn_size, gate.line(i));
    std::copy_n(products.data() + ffn_size, ffn_size, up.line(i));
    for (int32_t j = 0; j < ffn_size; ++j) {
      gated.line(i)[j] = RoundToAct(act_, Gated(args.kind, gate.line(i)[j], up.line(i)[j]));
    }
    StoreAct(gated.line(i), i, ffn_size, args.out);
  }
  normed.Show(tap_, "ffn_norm");
  gate.Show(tap_, "gate");
  up.Show(tap_, "up");
  gated.Show(tap_, "gated");
}

void ReferenceOps::Head(const HeadArgs& args) {
  const Weight& output = *args.output;
  Table normed(args.num_logits_rows, output.cols), logits(args.num_logits_rows, output.rows);
  for (int32_t i = 0; i < args.num_logits_rows; ++i) {
    const int32_t row = args.logits_rows[i];
    KERNELS_REQUIRE(row >= 0 && row < args.rows.num_rows, "row %d of %d", row, args.rows.num_rows);
    if (IsIdle(args.rows, row)) continue;
    ApplyNorm(args.norm, act_, args.residual + int64_t{row} * output.cols, normed.line(i));
    Product(output, args.bias, normed.line(i), logits.line(i));
    for (int32_t id = 0; id < output.rows; ++id) {
      const double scaled = static_cast<double>(logits.line(i)[id]) * args.logit_scale;
      logits.line(i)[id] = static_cast<float>(SoftCap(scaled, args.soft_cap));
    }
    std::copy_n(logits.line(i), output.rows, args.logits + int64_t{i} * output.rows);
  }
  normed.Show(tap_, "final_norm");
  logits.Show(tap_, "logits");
}

void ReferenceOps::Candidates(const CandidatesArgs& args) {
  const SlotState& slots = args.slots;
  for (int32_t i = 0; i < args.num_logits_rows; ++i) {
    const int32_t row = args.logits_rows[i];
    KERNELS_REQUIRE(row >= 0 && row < args.rows.num_rows, "row %d of %d", row, args.rows.num_rows);
    if (IsIdle(args.rows, row)) {
      args.summary[i] = EmptySummary();
      continue;
    }
    const int32_t slot = args.rows.slot[row];
    const int32_t position = args.rows.row_position[row];
    const DrawParams& params = slots.params[slot];
    KERNELS_REQUIRE(params.num_top <= args.max_top && params.num_perturbed <= args.max_perturbed,
                    "lists of %d and %d, room for %d and %d", params.num_top, params.num_perturbed,
                    args.max_top, args.max_perturbed);
    const float* logits = args.logits + int64_t{i} * slots.vocab_size;
    const RowCandidates result =
        ComputeCandidates({logits, static_cast<size_t>(slots.vocab_size)}, slots, slot, position);
    args.summary[i] = result.summary;
    std::copy(result.top.begin(), result.top.end(), args.top + int64_t{i} * args.max_top);
    std::copy(result.perturbed.begin(), result.perturbed.end(),
              args.perturbed + int64_t{i} * args.max_perturbed);
    if (!result.raw_top.empty()) {
      KERNELS_REQUIRE(args.raw_top != nullptr, "slot %d wants raw candidates", slot);
      std::copy(result.raw_top.begin(), result.raw_top.end(),
                args.raw_top + int64_t{i} * kMaxRawTop);
    }
    if (!result.reported.empty()) {
      KERNELS_REQUIRE(args.reported != nullptr && result.summary.num_reported <= kMaxReported,
                      "slot %d wants %d reports", slot, result.summary.num_reported);
      std::copy(result.reported.begin(), result.reported.end(),
                args.reported + int64_t{i} * kMaxReported);
    }
    if (args.next != nullptr && params.want_raw && result.summary.first_nonfinite < 0) {
      const int64_t behind = int64_t{slot} * slots.context_length + position + 1;
      args.next[i] =
          RawEntryOf({logits, static_cast<size_t>(slots.vocab_size)}, slots.tokens[behind]);
    }
  }
  if (args.advance) AppendDraws(args);
}

void ReferenceOps::CopyPage(const KvPool& kv, int32_t from_page, int32_t to_page,
                            int32_t num_tokens) {
  KERNELS_REQUIRE(from_page >= 0 && from_page < kv.num_pages && to_page >= 0 &&
                      to_page < kv.num_pages && from_page != to_page,
                  "pages %d and %d of %d", from_page, to_page, kv.num_pages);
  KERNELS_REQUIRE(num_tokens > 0 && num_tokens <= kPageTokens, "%d tokens", num_tokens);
  const int64_t bytes = ElementBytes(kv.format);
  uint8_t* data = static_cast<uint8_t*>(kv.data);
  for (int32_t layer = 0; layer < kv.num_layers; ++layer) {
    for (int32_t side = 0; side < 2; ++side) {
      for (int32_t head = 0; head < kv.num_kv_heads; ++head) {
        const int64_t from = kv.ElementOffset(layer, from_page, side, head, 0);
        const int64_t to = kv.ElementOffset(layer, to_page, side, head, 0);
        std::memcpy(data + to * bytes, data + from * bytes, bytes * num_tokens * kv.head_dim);
        if (HasScales(kv.format)) {
          std::copy_n(kv.scales + from / kv.head_dim, num_tokens, kv.scales + to / kv.head_dim);
        }
      }
    }
  }
}

}  // namespace

std::unique_ptr<Ops> MakeReferenceOps(ActDType act) { return std::make_unique<ReferenceOps>(act); }

}  // namespace tandem::kernels
