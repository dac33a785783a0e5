#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"
#include "kernels/check_finite_host.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/rope.h"

namespace tandem::kernels::cpu {
namespace {

constexpr int32_t kQueriesTogether = 24;  // (row, head) pairs of a piece of attention

bool IsIdle(const StepRows& rows, int32_t row) { return rows.token[row] == kIdleToken; }

void CheckShape(const AttentionShape& shape, const KvPool& kv, int32_t layer) {
  KERNELS_REQUIRE(shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0,
                  "%d heads, %d kv heads", shape.num_heads, shape.num_kv_heads);
  KERNELS_REQUIRE(kv.head_dim == shape.head_dim && kv.num_kv_heads == shape.num_kv_heads,
                  "cache %d x %d, shape %d x %d", kv.num_kv_heads, kv.head_dim, shape.num_kv_heads,
                  shape.head_dim);
  KERNELS_REQUIRE(kv.format == KvFormat::kF32, "format %d", static_cast<int>(kv.format));
  KERNELS_REQUIRE(layer >= 0 && layer < kv.num_layers, "layer %d of %d", layer, kv.num_layers);
}

const int32_t* PagesOf(const KvPool& kv, int32_t slot) {
  return kv.page_table + int64_t{slot} * kv.max_pages_per_slot;
}

// Checks that a row's pages [first_position / 64, position / 64] are held.
void CheckPages(const KvPool& kv, int32_t slot, int32_t first_position, int32_t position) {
  KERNELS_REQUIRE(position >= 0 && position / kPageTokens < kv.max_pages_per_slot,
                  "position %d, %d pages a slot", position, kv.max_pages_per_slot);
  const int32_t* pages = PagesOf(kv, slot);
  for (int32_t j = first_position / kPageTokens; j <= position / kPageTokens; ++j) {
    KERNELS_REQUIRE(pages[j] >= 0 && pages[j] < kv.num_pages, "slot %d entry %d: page %d of %d",
                    slot, j, pages[j], kv.num_pages);
  }
}

NormTask TaskOf(const Norm& norm) {
  KERNELS_REQUIRE(norm.width > 0 && norm.epsilon > 0.0f, "width %d, epsilon %g", norm.width,
                  norm.epsilon);
  return {norm.weight, norm.width, norm.epsilon, norm.offset};
}

}  // namespace

CpuBackend::CpuBackend(BackendInfo info, const Kernels& kernels, int32_t num_threads)
    : info_(std::move(info)),
      kernels_(kernels),
      pool_(num_threads),
      multiplier_(kernels, &pool_),
      candidate_maker_(kernels, &pool_) {}

void CpuBackend::Normalise(const Norm& norm, const float* x, int32_t num_rows, float* out) {
  const NormTask task = TaskOf(norm);
  pool_.ForRows(num_rows, [&](int32_t row) {
    const int64_t offset = int64_t{row} * norm.width;
    kernels_.norm(task, x + offset, out + offset);
  });
}

void CpuBackend::Show(std::string_view name, int32_t rows, int32_t cols, const float* values) {
  if (tap_ != nullptr) tap_->OnTensor(name, rows, cols, values);
}

void CpuBackend::ShowColumns(std::string_view name, int32_t rows, int64_t stride, int32_t first,
                             int32_t cols, const float* values) {
  if (tap_ == nullptr) return;
  std::vector<float> table;
  table.reserve(int64_t{rows} * cols);
  for (int32_t row = 0; row < rows; ++row) {
    const float* line = values + row * stride + first;
    table.insert(table.end(), line, line + cols);
  }
  tap_->OnTensor(name, rows, cols, table.data());
}

absl::Status CpuBackend::SupportsAttention(const AttentionShape& shape, KvFormat format, float,
                                           int32_t) const {
  const int32_t kv_heads = shape.num_kv_heads;
  const int32_t group = kv_heads > 0 ? shape.num_heads / kv_heads : 0;
  if (kv_heads <= 0 || group < 1 || group > kMaxGroup || shape.num_heads % kv_heads != 0) {
    return absl::UnimplementedError(absl::StrCat("the CPU backend takes 1 to ", kMaxGroup,
                                                 " query heads per kv head, not ", shape.num_heads,
                                                 " heads over ", kv_heads));
  }
  if (shape.head_dim <= 0 || shape.head_dim > kMaxHeadDim || shape.head_dim % 8 != 0) {
    return absl::UnimplementedError(
        absl::StrCat("the CPU backend takes head dimensions that are a multiple of 8 up to ",
                     kMaxHeadDim, ", not ", shape.head_dim));
  }
  if (format != KvFormat::kF32) {
    return absl::UnimplementedError(absl::StrCat(
        "the CPU backend keeps the KV cache in fp32, not in ", std::string(Name(format))));
  }
  return absl::OkStatus();
}

absl::StatusOr<Buffer> CpuBackend::Allocate(int64_t bytes, std::string_view what) {
  return AllocateZeroed(bytes, what);
}

absl::StatusOr<Weight> CpuBackend::PrepareWeight(std::span<const HostMatrix> parts,
                                                 std::string_view what) {
  return PackWeight(parts, what, &pool_);
}

void CpuBackend::CopyToDevice(void* device, const void* host, int64_t bytes) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}

void CpuBackend::CopyToHost(void* host, const void* device, int64_t bytes) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}

absl::Status CpuBackend::Finish(int64_t mark) {
  KERNELS_REQUIRE(mark > 0 && mark <= marks_, "mark %lld of %lld", static_cast<long long>(mark),
                  static_cast<long long>(marks_));
  return absl::OkStatus();
}

void CpuBackend::PrepareRows(const StepRows& rows, const SlotState& slots) {
  for (int32_t i = 0; i < rows.num_rows; ++i) {
    rows.token[i] = kIdleToken;
    rows.row_position[i] = -1;
    const int32_t slot = rows.slot[i];
    if (slot < 0) continue;
    KERNELS_REQUIRE(slot < slots.num_slots, "slot %d of %d", slot, slots.num_slots);
    const int32_t position = rows.position[i] >= 0 ? rows.position[i] : slots.num_tokens[slot] - 1;
    if (position < 0) continue;
    KERNELS_REQUIRE(position < slots.context_length, "position %d of %d", position,
                    slots.context_length);
    rows.row_position[i] = position;
    rows.token[i] = slots.tokens[int64_t{slot} * slots.context_length + position];
  }
}

void CpuBackend::Embed(const EmbedArgs& args) {
  const Weight& table = *args.table;
  pool_.ForRows(args.rows.num_rows, [&](int32_t row) {
    float* line = args.residual + int64_t{row} * table.cols;
    const int32_t token = args.rows.token[row];
    if (token == kIdleToken) {  // later operations compute the row: let it be finite
      std::fill_n(line, table.cols, 0.0f);
      return;
    }
    KERNELS_REQUIRE(token >= 0 && token < table.rows, "token %d of %d", token, table.rows);
    UnpackWeightRow(table, token, line);
    for (int32_t j = 0; j < table.cols; ++j) line[j] *= args.scale;
  });
  Show("embed", args.rows.num_rows, table.cols, args.residual);
}

void CpuBackend::Qkv(const QkvArgs& args) {
  CheckShape(args.shape, args.kv, args.layer);
  const int32_t n = args.rows.num_rows;
  const int32_t head_dim = args.shape.head_dim;
  const int32_t q_heads = args.shape.num_heads, kv_heads = args.shape.num_kv_heads;
  const int32_t q_width = q_heads * head_dim, kv_width = kv_heads * head_dim;
  const int32_t width = q_width + 2 * kv_width;
  KERNELS_REQUIRE(args.qkv->rows == width && args.qkv->cols == args.norm.width,
                  "weight %d x %d, hidden size %d", args.qkv->rows, args.qkv->cols,
                  args.norm.width);
  KERNELS_REQUIRE(args.rope.rotary_dim % 2 == 0 && args.rope.rotary_dim <= head_dim,
                  "rotary_dim %d, head_dim %d", args.rope.rotary_dim, head_dim);
  float* normed = normed_.Floats(int64_t{n} * args.norm.width);
  float* qkv = product_.Floats(int64_t{n} * width);
  Normalise(args.norm, args.residual, n, normed);
  Show("attn_norm", n, args.norm.width, normed);
  multiplier_.Multiply(*args.qkv, normed, n, args.bias, false, qkv);
  ShowColumns("q", n, width, 0, q_width, qkv);
  ShowColumns("k", n, width, q_width, kv_width, qkv);
  ShowColumns("v", n, width, q_width + kv_width, kv_width, qkv);

  if (args.q_norm != nullptr || args.k_norm != nullptr) {
    pool_.ForRows(n, [&](int32_t row) {
      float* line = qkv + int64_t{row} * width;
      for (int32_t head = 0; head < q_heads + kv_heads; ++head) {
        const Norm* norm = head < q_heads ? args.q_norm : args.k_norm;
        float* values = line + head * head_dim;
        if (norm != nullptr) kernels_.norm(TaskOf(*norm), values, values);
      }
    });
    if (args.q_norm != nullptr) ShowColumns("q_norm", n, width, 0, q_width, qkv);
    if (args.k_norm != nullptr) ShowColumns("k_norm", n, width, q_width, kv_width, qkv);
  }

  float* q = static_cast<float*>(args.q);
  float* cache = static_cast<float*>(args.kv.data);
  pool_.ForRows(n, [&](int32_t row) {
    if (IsIdle(args.rows, row)) return;
    const int32_t slot = args.rows.slot[row], position = args.rows.row_position[row];
    CheckPages(args.kv, slot, position, position);
    float* line = qkv + int64_t{row} * width;
    const int32_t page = PagesOf(args.kv, slot)[position / kPageTokens];
    const auto place = [&](int32_t side, int32_t head) {
      return cache + args.kv.ElementOffset(args.layer, page, side, head, position % kPageTokens);
    };
    for (int32_t head = 0; head < q_heads + kv_heads; ++head) {
      TurnHead(args.rope, position, line + head * head_dim);
    }
    std::copy_n(line, q_width, q + int64_t{row} * q_width);
    const float* k = line + q_width;
    const float* v = k + kv_width;
    for (int32_t head = 0; head < kv_heads; ++head) {
      std::copy_n(k + head * head_dim, head_dim, place(0, head));
      std::copy_n(v + head * head_dim, head_dim, place(1, head));
    }
  });
  ShowColumns("q_rope", n, width, 0, q_width, qkv);
  ShowColumns("k_rope", n, width, q_width, kv_width, qkv);
}

void CpuBackend::FindRuns(const StepRows& rows, int32_t max_rows) {
  runs_.clear();
  for (int32_t row = 0; row < rows.num_rows; ++row) {
    if (IsIdle(rows, row)) continue;
    const bool goes_on = !runs_.empty() && runs_.back().num_rows < max_rows &&
                         runs_.back().first_row + runs_.back().num_rows == row &&
                         rows.slot[row] == rows.slot[row - 1] &&
                         rows.row_position[row] == rows.row_position[row - 1] + 1;
    if (goes_on) {
      ++runs_.back().num_rows;
    } else {
      runs_.push_back({row, 1});
    }
  }
}

void CpuBackend::Attention(const AttentionArgs& args) {
  CheckShape(args.shape, args.kv, args.layer);
  KERNELS_REQUIRE(args.window >= 0 && args.soft_cap >= 0.0f, "window %d, soft cap %g", args.window,
                  args.soft_cap);
  const int32_t head_dim = args.shape.head_dim, kv_heads = args.shape.num_kv_heads;
  const int32_t group = args.shape.num_heads / kv_heads;
  const int64_t width = int64_t{args.shape.num_heads} * head_dim;
  KERNELS_REQUIRE(group <= kMaxGroup && head_dim <= kMaxHeadDim && head_dim % 8 == 0,
                  "group %d, head_dim %d", group, head_dim);
  FindRuns(args.rows, std::max(1, kQueriesTogether / group));
  const float* cache = static_cast<const float*>(args.kv.data);
  pool_.Run(static_cast<int32_t>(runs_.size()) * kv_heads, [&](int32_t item, int32_t) {
    const RowRun run = runs_[item / kv_heads];
    const int32_t head = item % kv_heads;
    const int32_t slot = args.rows.slot[run.first_row];
    const int32_t position = args.rows.row_position[run.first_row];
    const int32_t first_visible = args.window > 0 ? std::max(0, position - args.window + 1) : 0;
    CheckPages(args.kv, slot, first_visible, position + run.num_rows - 1);
    const int64_t offset = run.first_row * width + int64_t{head} * group * head_dim;
    AttentionTask task;
    task.keys = cache + args.kv.ElementOffset(args.layer, 0, 0, head, 0);
    task.values = cache + args.kv.ElementOffset(args.layer, 0, 1, head, 0);
    task.page_stride = int64_t{2} * kv_heads * kPageTokens * head_dim;
    task.pages = PagesOf(args.kv, slot);
    task.head_dim = head_dim;
    task.group = group;
    task.window = args.window;
    task.scale = args.scale;
    task.soft_cap = args.soft_cap;
    task.q = static_cast<const float*>(args.q) + offset;
    task.out = static_cast<float*>(args.out) + offset;
    task.row_stride = width;
    kernels_.attention(task, position, run.num_rows);
  });
  Show("attn", args.rows.num_rows, static_cast<int32_t>(width),
       static_cast<const float*>(args.out));
}

void CpuBackend::Project(const ProjectArgs& args) {
  const Weight& weight = *args.weight;
  const int32_t n = args.rows.num_rows;
  const float* x = static_cast<const float*>(args.x);
  if (args.post_norm == nullptr && tap_ == nullptr) {
    multiplier_.Multiply(weight, x, n, args.bias, true, args.residual);
    return;
  }
  float* project = product_.Floats(int64_t{n} * weight.rows);
  multiplier_.Multiply(weight, x, n, args.bias, false, project);
  Show("project", n, weight.rows, project);
  if (args.post_norm != nullptr) {
    KERNELS_REQUIRE(args.post_norm->width == weight.rows, "norm width %d, rows %d",
                    args.post_norm->width, weight.rows);
    Normalise(*args.post_norm, project, n, project);
    Show("project_norm", n, weight.rows, project);
  }
  pool_.ForRows(n, [&](int32_t row) {
    float* line = args.residual + int64_t{row} * weight.rows;
    const float* added = project + int64_t{row} * weight.rows;
    for (int32_t j = 0; j < weight.rows; ++j) line[j] += added[j];
  });
  Show("residual", n, weight.rows, args.residual);
}

void CpuBackend::GateUp(const GateUpArgs& args) {
  const Weight& weight = *args.gate_up;
  KERNELS_REQUIRE(weight.rows % 2 == 0 && weight.cols == args.norm.width, "weight %d x %d, norm %d",
                  weight.rows, weight.cols, args.norm.width);
  const int32_t n = args.rows.num_rows;
  const int32_t ffn_size = weight.rows / 2;
  float* normed = normed_.Floats(int64_t{n} * weight.cols);
  float* products = product_.Floats(int64_t{n} * weight.rows);
  float* out = static_cast<float*>(args.out);
  Normalise(args.norm, args.residual, n, normed);
  Show("ffn_norm", n, weight.cols, normed);
  multiplier_.Multiply(weight, normed, n, args.bias, false, products);
  ShowColumns("gate", n, weight.rows, 0, ffn_size, products);
  ShowColumns("up", n, weight.rows, ffn_size, ffn_size, products);
  pool_.ForRows(n, [&](int32_t row) {
    const float* gate = products + int64_t{row} * weight.rows;
    kernels_.gate(static_cast<int32_t>(args.kind), gate, gate + ffn_size, ffn_size,
                  out + int64_t{row} * ffn_size);
  });
  Show("gated", n, ffn_size, out);
}

void CpuBackend::Head(const HeadArgs& args) {
  const Weight& output = *args.output;
  const int32_t n = args.num_logits_rows;
  float* normed = normed_.Floats(int64_t{n} * output.cols);
  const NormTask task = TaskOf(args.norm);
  KERNELS_REQUIRE(args.norm.width == output.cols, "norm width %d, columns %d", args.norm.width,
                  output.cols);
  pool_.ForRows(n, [&](int32_t i) {
    const int32_t row = args.logits_rows[i];
    KERNELS_REQUIRE(row >= 0 && row < args.rows.num_rows, "row %d of %d", row, args.rows.num_rows);
    kernels_.norm(task, args.residual + int64_t{row} * output.cols,
                  normed + int64_t{i} * output.cols);
  });
  Show("final_norm", n, output.cols, normed);
  multiplier_.Multiply(output, normed, n, args.bias, false, args.logits);
  if (args.logit_scale != 1.0f || args.soft_cap != 0.0f) {
    pool_.ForPieces(int64_t{n} * output.rows, 4096, [&](int64_t begin, int64_t end) {
      kernels_.scale_and_cap(args.logit_scale, args.soft_cap, args.logits + begin,
                             static_cast<int32_t>(end - begin));
    });
  }
  Show("logits", n, output.rows, args.logits);
}

void CpuBackend::Candidates(const CandidatesArgs& args) { candidate_maker_.Run(args); }

void CpuBackend::CheckFinite(const CheckFiniteArgs& args) {
  CheckFiniteOnHost(args, info_.act_bytes);
}

void CpuBackend::CopyPage(const KvPool& kv, int32_t from_page, int32_t to_page,
                          int32_t num_tokens) {
  KERNELS_REQUIRE(from_page >= 0 && from_page < kv.num_pages && to_page >= 0 &&
                      to_page < kv.num_pages && from_page != to_page,
                  "pages %d and %d of %d", from_page, to_page, kv.num_pages);
  KERNELS_REQUIRE(num_tokens > 0 && num_tokens <= kPageTokens, "%d tokens", num_tokens);
  const int64_t size = ElementBytes(kv.format);
  uint8_t* data = static_cast<uint8_t*>(kv.data);
  pool_.ForRows(kv.num_layers, [&](int32_t layer) {
    for (int32_t line = 0; line < 2 * kv.num_kv_heads; ++line) {
      const int32_t side = line / kv.num_kv_heads, head = line % kv.num_kv_heads;
      const int64_t from = kv.ElementOffset(layer, from_page, side, head, 0);
      const int64_t to = kv.ElementOffset(layer, to_page, side, head, 0);
      std::memcpy(data + to * size, data + from * size, size * num_tokens * kv.head_dim);
      if (HasScales(kv.format)) {
        std::copy_n(kv.scales + from / kv.head_dim, num_tokens, kv.scales + to / kv.head_dim);
      }
    }
  });
}

}  // namespace tandem::kernels::cpu
