#include "tests/engine/sampling/worker_lists.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "tests/kernels/device_data.h"

namespace tandem::test {
namespace {

template <typename T>
T Made(absl::StatusOr<T> made) {
  TANDEM_CHECK(made.ok()) << made.status();
  return *std::move(made);
}

template <typename T>
bool SameBits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <typename T>
std::string DifferenceOfLists(const char* name, const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return absl::StrCat(name, " has ", a.size(), " and ", b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (!SameBits(a[i], b[i])) {
      return absl::StrCat(name, "[", i, "] is of id ", a[i].id, " and ", b[i].id);
    }
  }
  return "";
}

std::string DifferenceOfSummaries(const kernels::RowSummary& a, const kernels::RowSummary& b) {
  std::string difference;
  const auto compare = [&](const char* name, auto x, auto y) {
    if (difference.empty() && !SameBits(x, y)) difference = absl::StrCat(name, " ", x, " and ", y);
  };
  compare("first_nonfinite", a.first_nonfinite, b.first_nonfinite);
  compare("drawn", a.drawn, b.drawn);
  compare("num_in_row", a.num_in_row, b.num_in_row);
  if (a.first_nonfinite >= 0) return difference;
  compare("row_max", a.row_max, b.row_max);
  compare("next_perturbed", a.next_perturbed, b.next_perturbed);
  compare("total_weight", a.total_weight, b.total_weight);
  compare("top_k_weight", a.top_k_weight, b.top_k_weight);
  compare("raw_max", a.raw_max, b.raw_max);
  compare("raw_total", a.raw_total, b.raw_total);
  return difference;
}

}  // namespace

WorkerLists::WorkerLists(int32_t max_rows, kernels::Ops& ops)
    : ops_(ops), lists_(Made(DeviceLists::Make(max_rows, ops))) {}

std::vector<Candidates> WorkerLists::Make(std::span<const RandomCase* const> cases) {
  const RandomCase& first = *cases.front();
  const int32_t n = static_cast<int32_t>(cases.size());
  size_t context_length = 0;
  for (const RandomCase* it : cases) context_length = std::max(context_length, it->tokens.size());
  const std::unique_ptr<SlotArrays> slots = Made(SlotArrays::Make(
      n, static_cast<int32_t>(context_length), first.vocab_size, first.defined_bits, ops_));
  std::vector<int32_t> all_rows(n);
  std::vector<float> logits;
  logits.reserve(static_cast<size_t>(n) * static_cast<size_t>(first.vocab_size));
  host_.max_top = host_.max_perturbed = 0;
  host_.has_raw = false;
  for (int32_t i = 0; i < n; ++i) {
    const RandomCase& it = *cases[i];
    TANDEM_CHECK(it.vocab_size == first.vocab_size) << it.vocab_size << ", " << first.vocab_size;
    all_rows[i] = i;
    logits.insert(logits.end(), it.logits.begin(), it.logits.end());
    slots->SetEdits(i, it.parameters);
    slots->SetParams(i, ToDrawParams(it.parameters, it.choice, it.prompt_length, it.vocab_size));
    slots->SetTokens(i, 0, it.tokens);
    host_.max_top = std::max(host_.max_top, it.parameters.num_top);
    host_.max_perturbed = std::max(host_.max_perturbed, it.parameters.num_perturbed);
    host_.has_raw |= it.parameters.want_raw;
  }
  kernels::DeviceData data(ops_);
  kernels::CandidatesArgs args;
  args.logits_rows = data.Put(all_rows);
  args.rows = {n, args.logits_rows, data.Put(std::vector<int32_t>(n, -1)), data.Zeroes<int32_t>(n),
               data.Zeroes<int32_t>(n)};
  args.slots = slots->state();
  args.num_logits_rows = n;
  args.logits = data.Put(logits);
  ops_.PrepareRows(args.rows, args.slots);
  lists_->Compute(args, host_);
  lists_->Download(n, &host_);
  const absl::Status done = ops_.Finish(ops_.Mark());
  TANDEM_CHECK(done.ok()) << done;
  std::vector<Candidates> out;
  out.reserve(cases.size());
  for (int32_t i = 0; i < n; ++i) out.push_back(host_.Row(i));
  return out;
}

bool Widen(SamplingParameters* parameters) {
  SamplingParameters& p = *parameters;
  if (p.num_perturbed < kernels::kMaxPerturbed) {
    p.num_perturbed = std::min(2 * p.num_perturbed, kernels::kMaxPerturbed);
  } else if (p.num_top < kernels::kMaxTop) {
    p.num_top = std::min(2 * p.num_top, kernels::kMaxTop);
  } else {
    return false;
  }
  return true;
}

std::string DifferenceOf(const Candidates& a, const Candidates& b) {
  std::string difference = DifferenceOfSummaries(a.summary, b.summary);
  if (difference.empty()) difference = DifferenceOfLists("top", a.top, b.top);
  if (difference.empty()) difference = DifferenceOfLists("perturbed", a.perturbed, b.perturbed);
  if (difference.empty()) difference = DifferenceOfLists("raw_top", a.raw_top, b.raw_top);
  if (difference.empty()) difference = DifferenceOfLists("reported", a.reported, b.reported);
  return difference;
}

}  // namespace tandem::test
