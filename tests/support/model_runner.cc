#include "tests/support/model_runner.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/hash.h"
#include "engine/base/status.h"

namespace tandem::test {
namespace {

constexpr int64_t kPoisonBytes = int64_t{16} << 20;  // at once

absl::StatusOr<kernels::Buffer> ToDevice(kernels::Ops& ops, const std::vector<int32_t>& values,
                                         const char* what) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(int32_t));
  ASSIGN_OR_RETURN(kernels::Buffer buffer, ops.Allocate(bytes, what));
  ops.CopyToDevice(buffer.data(), values.data(), bytes);
  return buffer;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Make(const Options& options, Model& model,
                                                               kernels::Ops& ops) {
  TANDEM_CHECK(options.num_slots > 0) << options.num_slots;
  TANDEM_CHECK(options.slot_tokens.empty() ||
               static_cast<int32_t>(options.slot_tokens.size()) == options.num_slots)
      << options.slot_tokens.size() << " sizes of " << options.num_slots << " slots";
  std::unique_ptr<ModelRunner> runner(new ModelRunner(options, model, ops));
  for (int32_t slot = 0; slot < options.num_slots; ++slot) {
    const int32_t tokens = runner->Capacity(slot);
    TANDEM_CHECK(tokens > 0 && tokens <= model.context_length()) << tokens << " tokens of a slot";
  }
  RETURN_IF_ERROR(runner->Allocate());
  RETURN_IF_ERROR(runner->AllocatePools());
  return runner;
}

ModelRunner::~ModelRunner() {
  ops_.Finish(ops_.Mark()).IgnoreError();
  ops_.DropGraphs();  // which name this memory
}

int32_t ModelRunner::Capacity(int32_t slot) const {
  return options_.slot_tokens.empty() ? options_.tokens_per_slot
                                      : options_.slot_tokens[static_cast<size_t>(slot)];
}

int32_t ModelRunner::PagesOf(int32_t slot) const {
  return (Capacity(slot) + kernels::kPageTokens - 1) / kernels::kPageTokens;
}

absl::Status ModelRunner::Allocate() {
  tokens_.resize(static_cast<size_t>(options_.num_slots));
  max_logits_rows_ = std::min(options_.max_logits_rows, model_.max_rows());
  const int64_t slots = options_.num_slots;
  const int64_t rows = model_.max_rows();
  ASSIGN_OR_RETURN(slot_tokens_, ops_.Allocate(slots * model_.context_length() * 4, "slot tokens"));
  ASSIGN_OR_RETURN(num_tokens_, ops_.Allocate(slots * 4, "slot lengths"));
  ASSIGN_OR_RETURN(params_,
                   ops_.Allocate(slots * int64_t{sizeof(kernels::DrawParams)}, "slot parameters"));
  ASSIGN_OR_RETURN(row_slot_, ops_.Allocate(rows * 4, "row slots"));
  ASSIGN_OR_RETURN(row_position_in_, ops_.Allocate(rows * 4, "row positions"));
  ASSIGN_OR_RETURN(row_token_, ops_.Allocate(rows * 4, "row tokens"));
  ASSIGN_OR_RETURN(row_position_, ops_.Allocate(rows * 4, "row positions"));
  ASSIGN_OR_RETURN(logits_rows_, ops_.Allocate(int64_t{max_logits_rows_} * 4, "logits rows"));
  ASSIGN_OR_RETURN(
      logits_, ops_.Allocate(int64_t{max_logits_rows_} * model_.config().vocab_size * 4, "logits"));
  return absl::OkStatus();
}

absl::Status ModelRunner::AllocatePools() {
  int32_t num_pages = 0;
  int32_t most_pages = 0;
  for (int32_t slot = 0; slot < options_.num_slots; ++slot) {
    num_pages += PagesOf(slot);
    most_pages = std::max(most_pages, PagesOf(slot));
  }
  for (const LayerGroup& group : model_.layer_groups()) {
    kernels::KvPool pool;
    pool.format = options_.kv_format;
    pool.num_layers = static_cast<int32_t>(group.layers.size());
    pool.num_pages = num_pages;
    pool.num_kv_heads = model_.config().attention.num_kv_heads;
    pool.head_dim = model_.config().attention.head_dim;
    pool.max_pages_per_slot = most_pages;

    ASSIGN_OR_RETURN(kernels::Buffer data, ops_.Allocate(pool.DataBytes(), "KV pool"));
    pool.data = data.data();
    if (options_.poison_cache) Poison(data);
    pool_data_.push_back(std::move(data));
    if (kernels::HasScales(pool.format)) {
      ASSIGN_OR_RETURN(kernels::Buffer scales, ops_.Allocate(pool.ScaleBytes(), "KV scales"));
      pool.scales = scales.as<float>();
      if (options_.poison_cache) Poison(scales);
      pool_scales_.push_back(std::move(scales));
    }

    std::vector<int32_t> pages(static_cast<size_t>(num_pages));
    std::iota(pages.begin(), pages.end(), 0);
    std::mt19937_64 random(options_.page_seed);
    for (size_t i = pages.size(); i > 1; --i) std::swap(pages[i - 1], pages[random() % i]);
    std::vector<int32_t>& lines = host_tables_.emplace_back();
    auto next = pages.begin();
    for (int32_t slot = 0; slot < options_.num_slots; ++slot) {
      lines.insert(lines.end(), next, next + PagesOf(slot));
      next += PagesOf(slot);
      lines.resize(static_cast<size_t>(slot + 1) * static_cast<size_t>(most_pages), -1);
    }
    ASSIGN_OR_RETURN(kernels::Buffer table, ToDevice(ops_, lines, "page table"));
    pool.page_table = table.as<int32_t>();
    page_tables_.push_back(std::move(table));
    pools_.push_back(pool);
  }
  return absl::OkStatus();
}

// All bits set is NaN in fp32, bf16 and fp8, and in the scale of int8.
void ModelRunner::Poison(const kernels::Buffer& buffer) {
  const std::vector<uint8_t> ones(static_cast<size_t>(std::min(kPoisonBytes, buffer.bytes())),
                                  uint8_t{0xFF});
  for (int64_t begin = 0; begin < buffer.bytes(); begin += kPoisonBytes) {
    ops_.CopyToDevice(buffer.as<uint8_t>() + begin, ones.data(),
                      std::min(kPoisonBytes, buffer.bytes() - begin));
  }
}

void ModelRunner::Reset(int32_t slot) { tokens_[static_cast<size_t>(slot)].clear(); }

void ModelRunner::Rewind(int32_t slot, int32_t num_tokens) {
  TANDEM_CHECK(num_tokens >= 0 && num_tokens <= Length(slot)) << num_tokens;
  tokens_[static_cast<size_t>(slot)].resize(static_cast<size_t>(Length(slot) - num_tokens));
}

void ModelRunner::SharePrefix(int32_t from, int32_t to, int32_t num_tokens) {
  TANDEM_CHECK(Length(to) == 0 && num_tokens <= Length(from) && num_tokens <= Capacity(to))
      << num_tokens << " tokens of " << Length(from) << " for a slot of " << Length(to);
  const int32_t full_pages = num_tokens / kernels::kPageTokens;
  for (size_t group = 0; group < pools_.size(); ++group) {
    const kernels::KvPool& pool = pools_[group];
    int32_t* const source = host_tables_[group].data() + int64_t{from} * pool.max_pages_per_slot;
    int32_t* const line = host_tables_[group].data() + int64_t{to} * pool.max_pages_per_slot;
    std::copy_n(source, full_pages, line);
    if (full_pages > 0) {
      ops_.CopyToDevice(page_tables_[group].as<int32_t>() + int64_t{to} * pool.max_pages_per_slot,
                        line, int64_t{full_pages} * 4);
    }
    if (const int32_t rest = num_tokens % kernels::kPageTokens; rest > 0) {
      ops_.CopyPage(pool, source[full_pages], line[full_pages], rest);
    }
  }
  const std::vector<int32_t>& tokens = tokens_[static_cast<size_t>(from)];
  tokens_[static_cast<size_t>(to)].assign(tokens.begin(), tokens.begin() + num_tokens);
  ops_.CopyToDevice(slot_tokens_.as<int32_t>() + int64_t{to} * model_.context_length(),
                    tokens.data(), int64_t{num_tokens} * 4);
}

absl::StatusOr<std::vector<std::vector<float>>> ModelRunner::Step(std::span<const Work> work) {
  std::vector<float> all;
  RETURN_IF_ERROR(StepInto(work, /*records=*/false, &all));
  std::vector<std::vector<float>> logits;
  for (auto row = all.begin(); row != all.end(); row += model_.config().vocab_size) {
    logits.emplace_back(row, row + model_.config().vocab_size);
  }
  return logits;
}

absl::Status ModelRunner::StepInto(std::span<const Work> work, bool records,
                                   std::vector<float>* logits) {
  std::vector<int32_t> slots, positions, logits_rows;
  for (const Work& item : work) {
    std::vector<int32_t>& held = tokens_[static_cast<size_t>(item.slot)];
    const auto first_position = static_cast<int32_t>(held.size());
    const auto count = static_cast<int32_t>(item.tokens.size());
    TANDEM_CHECK(first_position + count <= Capacity(item.slot)) << first_position << " + " << count;
    TANDEM_CHECK(item.num_logits <= count) << item.num_logits << " logits of " << count << " rows";
    TANDEM_CHECK(!item.continues || count == 1) << count;
    if (count == 0) {
      // The slot's next token is none: the row that continues from it is idle.
      slots.push_back(item.slot);
      positions.push_back(-1);
      const int32_t idle = kernels::kIdleToken;
      const int32_t length = first_position + 1;
      ops_.CopyToDevice(slot_tokens_.as<int32_t>() + int64_t{item.slot} * model_.context_length() +
                            first_position,
                        &idle, 4);
      ops_.CopyToDevice(num_tokens_.as<int32_t>() + item.slot, &length, 4);
      continue;
    }
    held.insert(held.end(), item.tokens.begin(), item.tokens.end());
    const auto length = static_cast<int32_t>(held.size());
    ops_.CopyToDevice(
        slot_tokens_.as<int32_t>() + int64_t{item.slot} * model_.context_length() + first_position,
        item.tokens.data(), int64_t{count} * 4);
    ops_.CopyToDevice(num_tokens_.as<int32_t>() + item.slot, &length, 4);
    for (int32_t i = 0; i < count; ++i) {
      if (i >= count - item.num_logits) logits_rows.push_back(static_cast<int32_t>(slots.size()));
      slots.push_back(item.slot);
      positions.push_back(item.continues ? -1 : first_position + i);
    }
  }
  const auto num_rows = static_cast<int32_t>(slots.size());
  const auto num_logits_rows = static_cast<int32_t>(logits_rows.size());
  TANDEM_CHECK(num_rows <= model_.max_rows() && num_logits_rows <= max_logits_rows_)
      << num_rows << " rows, " << num_logits_rows << " of them with logits";
  ops_.CopyToDevice(row_slot_.data(), slots.data(), int64_t{num_rows} * 4);
  ops_.CopyToDevice(row_position_in_.data(), positions.data(), int64_t{num_rows} * 4);
  ops_.CopyToDevice(logits_rows_.data(), logits_rows.data(), int64_t{num_logits_rows} * 4);

  kernels::SlotState state;
  state.num_slots = options_.num_slots;
  state.context_length = model_.context_length();
  state.vocab_size = model_.config().vocab_size;
  state.tokens = slot_tokens_.as<int32_t>();
  state.num_tokens = num_tokens_.as<int32_t>();
  state.params = params_.as<kernels::DrawParams>();
  const ForwardArgs forward = {.rows = {.num_rows = num_rows,
                                        .slot = row_slot_.as<int32_t>(),
                                        .position = row_position_in_.as<int32_t>(),
                                        .token = row_token_.as<int32_t>(),
                                        .row_position = row_position_.as<int32_t>()},
                               .slots = state,
                               .pools = pools_,
                               .num_logits_rows = num_logits_rows,
                               .logits_rows = logits_rows_.as<int32_t>(),
                               .logits = logits_.as<float>()};
  const std::array<uint64_t, 3> shape = {reinterpret_cast<uintptr_t>(row_slot_.data()),
                                         static_cast<uint64_t>(num_rows),
                                         static_cast<uint64_t>(num_logits_rows)};
  if (!records) {
    model_.Forward(forward);
  } else if (ops_.BeginGraph(KeyedHash(0, shape.data(), sizeof(shape)))) {
    model_.Forward(forward);
    ops_.EndGraph();
  }

  logits->resize(static_cast<size_t>(num_logits_rows) *
                 static_cast<size_t>(model_.config().vocab_size));
  if (num_logits_rows > 0) {
    ops_.CopyToHost(logits->data(), logits_.data(), static_cast<int64_t>(logits->size() * 4));
  }
  return ops_.Finish(ops_.Mark());
}

absl::StatusOr<std::vector<std::vector<float>>> ModelRunner::Run(int32_t slot,
                                                                 std::span<const int32_t> tokens,
                                                                 int32_t chunk,
                                                                 int32_t num_logits) {
  std::vector<std::vector<float>> all;
  const auto total = static_cast<int32_t>(tokens.size());
  for (int32_t begin = 0; begin < total; begin += chunk) {
    const int32_t end = std::min(total, begin + chunk);
    const int32_t wanted = std::clamp(end - (total - num_logits), 0, end - begin);
    const Work work = {.slot = slot,
                       .tokens = {tokens.begin() + begin, tokens.begin() + end},
                       .num_logits = wanted};
    ASSIGN_OR_RETURN(std::vector<std::vector<float>> logits, Step({&work, 1}));
    std::move(logits.begin(), logits.end(), std::back_inserter(all));
  }
  return all;
}

int32_t ArgMax(std::span<const float> values) {
  return static_cast<int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

}  // namespace tandem::test
