#include "engine/decode_engine_arrays.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/checked_size.h"
#include "engine/base/status.h"

namespace tandem {
namespace {

using kernels::Buffer;
using kernels::kPageTokens;

// Allocates count elements of T and hands out both the buffer and its pointer.
template <typename T, typename Pointer>
absl::Status AllocateArray(kernels::Ops& ops, int64_t count, const char* what, Buffer* buffer,
                           Pointer* pointer) {
  const CheckedSize bytes = CheckedSize(count) * sizeof(T);
  if (!bytes.valid()) return ResourceExhausted(what, ": ", count, " elements are too many");
  ASSIGN_OR_RETURN(*buffer, ops.Allocate(bytes.value(), what));
  *pointer = buffer->template as<T>();
  return absl::OkStatus();
}

template <typename T>
void Upload(kernels::Ops& ops, const T* device, int64_t offset, const T* host, int64_t count) {
  if (count > 0) ops.CopyToDevice(const_cast<T*>(device) + offset, host, count * sizeof(T));
}

int32_t BitWords(int32_t vocab_size) { return (vocab_size + 31) / 32; }

}  // namespace

absl::StatusOr<std::unique_ptr<SlotArrays>> SlotArrays::Make(int32_t num_slots,
                                                             int32_t context_length,
                                                             int32_t vocab_size,
                                                             std::span<const uint32_t> defined_bits,
                                                             kernels::Ops& ops) {
  std::unique_ptr<SlotArrays> out(new SlotArrays(ops));
  kernels::SlotState& state = out->state_;
  state.num_slots = num_slots;
  state.context_length = context_length;
  state.vocab_size = vocab_size;
  state.max_bias = kMaxBias;
  state.max_end_ids = kMaxEndIds;
  state.max_report_ids = kernels::kMaxReported;
  const int64_t n = num_slots;
  RETURN_IF_ERROR(AllocateArray<int32_t>(ops, n * context_length, "tokens of the slots",
                                         &out->tokens_, &state.tokens));
  RETURN_IF_ERROR(AllocateArray<int32_t>(ops, n, "token counts of the slots", &out->num_tokens_,
                                         &state.num_tokens));
  RETURN_IF_ERROR(AllocateArray<kernels::DrawParams>(ops, n, "parameters of the slots",
                                                     &out->params_, &state.params));
  RETURN_IF_ERROR(AllocateArray<uint32_t>(ops, n * BitWords(vocab_size), "allowed ids of the slots",
                                          &out->allowed_bits_, &state.allowed_bits));
  RETURN_IF_ERROR(AllocateArray<uint8_t>(ops, n, "allowed ids of the slots", &out->has_allowed_,
                                         &state.has_allowed));
  RETURN_IF_ERROR(AllocateArray<int32_t>(ops, n * kMaxBias, "bias of the slots", &out->bias_ids_,
                                         &state.bias_ids));
  RETURN_IF_ERROR(AllocateArray<float>(ops, n * kMaxBias, "bias of the slots", &out->bias_values_,
                                       &state.bias_values));
  RETURN_IF_ERROR(
      AllocateArray<int32_t>(ops, n, "bias of the slots", &out->num_bias_, &state.num_bias));
  RETURN_IF_ERROR(AllocateArray<int32_t>(ops, n * kMaxEndIds, "end ids of the slots",
                                         &out->end_ids_, &state.end_ids));
  RETURN_IF_ERROR(AllocateArray<int32_t>(ops, n, "end ids of the slots", &out->num_end_ids_,
                                         &state.num_end_ids));
  RETURN_IF_ERROR(AllocateArray<int32_t>(ops, n * kernels::kMaxReported, "ids to report",
                                         &out->report_ids_, &state.report_ids));
  RETURN_IF_ERROR(AllocateArray<int32_t>(ops, n, "ids to report", &out->num_report_ids_,
                                         &state.num_report_ids));
  if (!defined_bits.empty()) {
    RETURN_IF_ERROR(AllocateArray<uint32_t>(ops, BitWords(vocab_size), "defined ids",
                                            &out->defined_bits_, &state.defined_bits));
    Upload(ops, state.defined_bits, 0, defined_bits.data(), BitWords(vocab_size));
  }
  out->host_bias_ids_.resize(kMaxBias);
  out->host_bias_values_.resize(kMaxBias);
  return out;
}

void SlotArrays::SetEdits(int32_t slot, const SamplingParameters& parameters) {
  const int64_t s = slot;
  const int32_t num_words = BitWords(state_.vocab_size);
  const std::vector<uint32_t> allowed = AllowedBits(parameters, state_.vocab_size);
  const uint8_t has_allowed = allowed.empty() ? 0 : 1;
  Upload(ops_, state_.has_allowed, s, &has_allowed, 1);
  if (has_allowed != 0) {
    Upload(ops_, state_.allowed_bits, s * num_words, allowed.data(), num_words);
  }
  const int32_t num_bias = static_cast<int32_t>(parameters.logit_bias.size());
  for (int32_t i = 0; i < num_bias; ++i) {
    host_bias_ids_[i] = parameters.logit_bias[i].first;
    host_bias_values_[i] = parameters.logit_bias[i].second;
  }
  Upload(ops_, state_.bias_ids, s * kMaxBias, host_bias_ids_.data(), num_bias);
  Upload(ops_, state_.bias_values, s * kMaxBias, host_bias_values_.data(), num_bias);
  Upload(ops_, state_.num_bias, s, &num_bias, 1);
  const int32_t num_end_ids = static_cast<int32_t>(parameters.end_ids.size());
  Upload(ops_, state_.end_ids, s * kMaxEndIds, parameters.end_ids.data(), num_end_ids);
  Upload(ops_, state_.num_end_ids, s, &num_end_ids, 1);
  const int32_t num_report_ids = static_cast<int32_t>(parameters.report_ids.size());
  Upload(ops_, state_.report_ids, s * kernels::kMaxReported, parameters.report_ids.data(),
         num_report_ids);
  Upload(ops_, state_.num_report_ids, s, &num_report_ids, 1);
}

void SlotArrays::SetParams(int32_t slot, const kernels::DrawParams& params) {
  Upload(ops_, state_.params, slot, &params, 1);
}

void SlotArrays::SetTokens(int32_t slot, int32_t begin, std::span<const int32_t> tokens) {
  const int32_t num_tokens = begin + static_cast<int32_t>(tokens.size());
  TANDEM_CHECK(num_tokens <= state_.context_length)
      << num_tokens << " tokens of " << state_.context_length;
  Upload(ops_, state_.tokens, int64_t{slot} * state_.context_length + begin, tokens.data(),
         static_cast<int64_t>(tokens.size()));
  Upload(ops_, state_.num_tokens, slot, &num_tokens, 1);
}

Candidates HostLists::Row(int32_t row) const {
  const auto line = [row](const auto& array, int32_t length, int32_t count) {
    TANDEM_CHECK(count >= 0 && count <= length) << count << " entries of " << length;
    const auto begin = array.begin() + int64_t{row} * length;
    return std::vector(begin, begin + count);
  };
  Candidates out;
  out.summary = summary[row];
  if (out.summary.first_nonfinite >= 0) return out;
  out.top = line(top, max_top, out.summary.num_top);
  out.perturbed = line(perturbed, max_perturbed, out.summary.num_perturbed);
  if (has_raw) {
    out.raw_top = line(raw_top, kernels::kMaxRawTop, out.summary.num_raw_top);
    out.reported = line(reported, kernels::kMaxReported, out.summary.num_reported);
  }
  return out;
}

absl::StatusOr<std::unique_ptr<DeviceLists>> DeviceLists::Make(int32_t max_rows,
                                                               kernels::Ops& ops) {
  std::unique_ptr<DeviceLists> out(new DeviceLists(max_rows, ops));
  const auto allocate = [&](int64_t line_bytes, const char* what) {
    return ops.Allocate(max_rows * line_bytes, what);
  };
  ASSIGN_OR_RETURN(out->summary_, allocate(sizeof(kernels::RowSummary), "row summaries"));
  ASSIGN_OR_RETURN(out->top_, allocate(sizeof(kernels::TopEntry) * kernels::kMaxTop, "top lists"));
  ASSIGN_OR_RETURN(
      out->perturbed_,
      allocate(sizeof(kernels::PerturbedEntry) * kernels::kMaxPerturbed, "perturbed lists"));
  ASSIGN_OR_RETURN(out->raw_top_,
                   allocate(sizeof(kernels::RawEntry) * kernels::kMaxRawTop, "raw lists"));
  ASSIGN_OR_RETURN(out->reported_,
                   allocate(sizeof(kernels::RawEntry) * kernels::kMaxReported, "raw lists"));
  ASSIGN_OR_RETURN(out->next_, allocate(sizeof(kernels::RawEntry), "raw lists"));
  return out;
}

void DeviceLists::Compute(kernels::CandidatesArgs args, const HostLists& host) {
  TANDEM_CHECK(args.num_logits_rows <= max_rows_)
      << args.num_logits_rows << " logits rows of " << max_rows_;
  args.summary = summary_.as<kernels::RowSummary>();
  args.top = top_.as<kernels::TopEntry>();
  args.perturbed = perturbed_.as<kernels::PerturbedEntry>();
  args.raw_top = host.has_raw ? raw_top_.as<kernels::RawEntry>() : nullptr;
  args.reported = host.has_raw ? reported_.as<kernels::RawEntry>() : nullptr;
  args.next = host.has_next ? next_.as<kernels::RawEntry>() : nullptr;
  args.max_top = host.max_top;
  args.max_perturbed = host.max_perturbed;
  ops_.Candidates(args);
}

void DeviceLists::Download(int32_t num_rows, HostLists* host) {
  const auto fetch = [&](const Buffer& device, int64_t line, auto* array) {
    if (line == 0) return;
    const size_t count = static_cast<size_t>(num_rows * line);
    if (array->size() < count) array->resize(count);
    ops_.CopyToHost(array->data(), device.data(),
                    static_cast<int64_t>(count * sizeof((*array)[0])));
  };
  fetch(summary_, 1, &host->summary);
  fetch(top_, host->max_top, &host->top);
  fetch(perturbed_, host->max_perturbed, &host->perturbed);
  if (host->has_raw) {
    fetch(raw_top_, kernels::kMaxRawTop, &host->raw_top);
    fetch(reported_, kernels::kMaxReported, &host->reported);
  }
  if (host->has_next) fetch(next_, 1, &host->next);
}

absl::StatusOr<std::unique_ptr<PoolArrays>> PoolArrays::Make(
    std::span<const CacheGroup> groups, int32_t num_slots, int32_t context_length,
    kernels::KvFormat format, const Model& model, kernels::Ops& ops) {
  std::unique_ptr<PoolArrays> out(new PoolArrays(ops));
  const int32_t max_pages = (context_length + kPageTokens - 1) / kPageTokens;
  out->empty_line_.assign(max_pages, -1);
  for (size_t i = 0; i < groups.size(); ++i) {
    kernels::KvPool pool;
    pool.format = format;
    pool.num_layers = static_cast<int32_t>(model.layer_groups()[i].layers.size());
    pool.num_pages = groups[i].num_pages;
    pool.num_kv_heads = model.config().attention.num_kv_heads;
    pool.head_dim = model.config().attention.head_dim;
    pool.max_pages_per_slot = max_pages;
    ASSIGN_OR_RETURN(Buffer data, ops.Allocate(pool.DataBytes(), kKvPagesName));
    pool.data = data.data();
    out->buffers_.push_back(std::move(data));
    if (kernels::HasScales(format)) {
      ASSIGN_OR_RETURN(Buffer scales, ops.Allocate(pool.ScaleBytes(), kKvScalesName));
      pool.scales = scales.as<float>();
      out->buffers_.push_back(std::move(scales));
    }
    Buffer table;
    int32_t* entries = nullptr;
    RETURN_IF_ERROR(AllocateArray<int32_t>(ops, int64_t{num_slots} * max_pages, "page tables",
                                           &table, &entries));
    pool.page_table = entries;
    out->tables_.push_back(entries);
    out->buffers_.push_back(std::move(table));
    out->pools_.push_back(pool);
  }
  for (int32_t slot = 0; slot < num_slots; ++slot) out->ClearTable(slot);
  return out;
}

int64_t PoolArrays::TokenBytes(int32_t group) const {
  const kernels::KvPool& pool = pools_[group];
  return (pool.DataBytes() + pool.ScaleBytes()) / (int64_t{pool.num_pages} * kPageTokens);
}

void PoolArrays::ClearTable(int32_t slot) {
  for (int32_t* table : tables_) {
    Upload(ops_, table, int64_t{slot} * static_cast<int64_t>(empty_line_.size()),
           empty_line_.data(), static_cast<int64_t>(empty_line_.size()));
  }
}

void PoolArrays::UpdateTable(int32_t slot, PageTable* table) {
  for (size_t i = 0; i < tables_.size(); ++i) {
    const PageTable::Group& group = table->groups()[i];
    Upload(ops_, tables_[i], int64_t{slot} * pools_[i].max_pages_per_slot + group.changed_begin,
           group.pages.data() + group.changed_begin, group.changed_end - group.changed_begin);
  }
  table->ClearChanges();
}

void PoolArrays::Copy(const PageCopy& copy) {
  ops_.CopyPage(pools_[copy.group], copy.from, copy.to, copy.num_tokens);
}

}  // namespace tandem
