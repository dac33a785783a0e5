#include "tests/simulation/fake_ops.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/base/planted_bugs.h"
#include "kernels/append_draws.h"
#include "tests/simulation/fake_arithmetic.h"

namespace tandem::test {

using kernels::kIdleToken;
using kernels::kPageTokens;
using kernels::KvPool;
using kernels::StepRows;

namespace {

constexpr size_t kMaxOpenMarks = 2;

float* Line(float* base, int32_t row) { return base + int64_t{row} * kFakeWidth; }
const float* Line(const float* base, int32_t row) { return base + int64_t{row} * kFakeWidth; }
float* Act(void* base, int32_t row) { return Line(static_cast<float*>(base), row); }
const float* Act(const void* base, int32_t row) {
  return Line(static_cast<const float*>(base), row);
}

bool IsIdle(const StepRows& rows, int32_t row) { return rows.token[row] == kIdleToken; }

uint8_t* EntryOf(const KvPool& kv, int32_t layer, int32_t page, int32_t in_page) {
  return static_cast<uint8_t*>(kv.data) + kv.ElementOffset(layer, page, 0, 0, in_page) * 4;
}

}  // namespace

FakeOps::FakeOps() {
  info_.name = "fake";
  info_.device = "fake";
  info_.numerics = "hashes";
}

uint64_t FakeOps::SessionKey(uint64_t seed, uint32_t choice) { return Hash(seed, choice); }

template <typename... Parts>
bool FakeOps::Require(bool ok, const Parts&... parts) {
  if (!ok && violation_.empty()) violation_ = absl::StrCat("operations: ", parts...);
  return ok;
}

int32_t FakeOps::GroupOf(const KvPool& kv) const {
  const auto found = std::find(pools_.begin(), pools_.end(), kv.data);
  return found == pools_.end() ? -1 : static_cast<int32_t>(found - pools_.begin());
}

void FakeOps::CheckWrite(int32_t group, int32_t page, const char* what) {
  if (!owners_ || group < 0) return;
  const int32_t count = owners_(group, page);
  Require(count == 1, what, " writes page ", page, " of group ", group, ", which has ", count,
          " owners");
}

const int32_t* FakeOps::Entry(const KvPool& kv, int32_t slot, int32_t position) {
  const int32_t index = position / kPageTokens;
  if (!Require(index < kv.max_pages_per_slot, "position ", position, " is beyond the page table")) {
    return nullptr;
  }
  const int32_t* entry = kv.page_table + int64_t{slot} * kv.max_pages_per_slot + index;
  if (!Require(*entry >= 0 && *entry < kv.num_pages, "slot ", slot, " has page ", *entry, " of ",
               kv.num_pages, " at position ", position)) {
    return nullptr;
  }
  return entry;
}

// Notes the pages of positions [begin, position] for Finish. What the table has behind them has to
// be somebody's page too: a sequence that was cut keeps its own.
void FakeOps::TouchLine(const KvPool& kv, int32_t group, int32_t slot, int32_t begin,
                        int32_t position) {
  const int32_t* line = kv.page_table + int64_t{slot} * kv.max_pages_per_slot;
  for (int32_t index = begin / kPageTokens; index < kv.max_pages_per_slot; ++index) {
    const int32_t page = line[index];
    if (index <= position / kPageTokens) {
      now_.touched.push_back({line + index, group, page});
    } else if (owners_ && page >= 0) {
      Require(page < kv.num_pages && owners_(group, page) > 0, "the table of slot ", slot,
              " keeps page ", page, " of group ", group, ", which has no owner");
    }
  }
}

absl::Status FakeOps::SupportsAttention(const kernels::AttentionShape&, kernels::KvFormat format,
                                        float, int32_t) const {
  if (format == kernels::KvFormat::kF32) return absl::OkStatus();
  return absl::UnimplementedError("the fake backend keeps fp32 pages");
}

absl::StatusOr<kernels::Buffer> FakeOps::Allocate(int64_t bytes, std::string_view) {
  return kernels::Buffer(std::calloc(std::max<int64_t>(bytes, 1), 1), bytes,
                         [](void* data) { std::free(data); });
}

absl::StatusOr<kernels::Weight> FakeOps::PrepareWeight(std::span<const kernels::HostMatrix> parts,
                                                       std::string_view) {
  kernels::Weight weight;
  weight.cols = parts[0].cols;
  for (const kernels::HostMatrix& part : parts) {
    weight.parts.push_back({part.dtype, weight.rows, part.rows, 0});
    weight.rows += part.rows;
  }
  return weight;
}

void FakeOps::CopyToDevice(void* device, const void* host, int64_t bytes) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}

void FakeOps::CopyToHost(void* host, const void* device, int64_t bytes) {
  ToHost& copy = to_host_.emplace_back();
  if (!free_bytes_.empty()) {
    copy.bytes = std::move(free_bytes_.back());
    free_bytes_.pop_back();
  }
  const uint8_t* from = static_cast<const uint8_t*>(device);
  copy.bytes.assign(from, from + bytes);
  copy.host = host;
  copy.mark = last_mark_ + 1;
  std::memset(host, 0xA7, bytes);
}

int64_t FakeOps::Mark() {
  now_.mark = ++last_mark_;
  open_.push_back(std::move(now_));
  now_ = Step();
  // The engine's destructor marks once more than steps may be in flight.
  Require(open_.size() <= kMaxOpenMarks || open_.back().num_rows == 0, open_.size(),
          " marks are open");
  return last_mark_;
}

absl::Status FakeOps::Finish(int64_t mark) {
  while (!to_host_.empty() && to_host_.front().mark <= mark) {
    ToHost& copy = to_host_.front();
    std::memcpy(copy.host, copy.bytes.data(), copy.bytes.size());
    free_bytes_.push_back(std::move(copy.bytes));
    to_host_.pop_front();
  }
  while (!open_.empty() && open_.front().mark <= mark) {
    for (const Step::Touched& touched : open_.front().touched) {
      // A page that the sequence itself replaced since then is no longer in its table.
      if (!owners_ || *touched.table_entry != touched.page) continue;
      Require(owners_(touched.group, touched.page) > 0, "page ", touched.page, " of group ",
              touched.group, " has no owner, and a step in flight uses it");
    }
    open_.pop_front();
  }
  return absl::OkStatus();
}

void FakeOps::PrepareRows(const StepRows& rows, const kernels::SlotState& slots) {
  now_.num_rows = rows.num_rows;
  num_slots_ = slots.num_slots;
  std::vector<bool> seen(static_cast<size_t>(slots.num_slots), false);
  for (int32_t i = 0; i < rows.num_rows; ++i) {
    rows.token[i] = kIdleToken;
    rows.row_position[i] = -1;
    const int32_t slot = rows.slot[i];
    if (slot < 0) continue;
    if (!Require(slot < slots.num_slots, "slot ", slot, " of ", slots.num_slots)) continue;
    const bool follows = i > 0 && rows.slot[i - 1] == slot;
    Require(follows || !seen[slot], "rows of slot ", slot, " are not adjacent");
    if (!seen[slot]) {
      const kernels::DrawParams& params = slots.params[slot];
      now_.sessions.push_back(SessionKey(params.seed, params.choice));
    }
    seen[slot] = true;
    const int32_t position = rows.position[i] >= 0 ? rows.position[i] : slots.num_tokens[slot] - 1;
    if (position < 0) continue;
    if (!Require(position < slots.context_length, "position ", position, " of ",
                 slots.context_length)) {
      continue;
    }
    Require(!follows || position > rows.row_position[i - 1], "rows of slot ", slot,
            " do not ascend: ", position, " after ", rows.row_position[i - 1]);
    Require(position < slots.num_tokens[slot], "slot ", slot, " holds ", slots.num_tokens[slot],
            " tokens, and a row is for position ", position);
    const int32_t token = slots.tokens[int64_t{slot} * slots.context_length + position];
    rows.row_position[i] = position;
    if (Require(token == kIdleToken || (token >= 0 && token < slots.vocab_size), "token ", token,
                " of ", slots.vocab_size)) {
      rows.token[i] = token;
    }
  }
}

void FakeOps::Embed(const kernels::EmbedArgs& args) {
  layer_ = -1;
  for (int32_t i = 0; i < args.rows.num_rows; ++i) {
    if (IsIdle(args.rows, i)) continue;
    StoreHash(EmbedHash(args.rows.token[i], args.rows.row_position[i]), Line(args.residual, i));
  }
}

void FakeOps::Qkv(const kernels::QkvArgs& args) {
  ++layer_;
  int32_t group = GroupOf(args.kv);
  if (group < 0) {
    group = static_cast<int32_t>(pools_.size());
    pools_.push_back(args.kv.data);
  }
  const int32_t* last = nullptr;
  for (int32_t i = 0; i < args.rows.num_rows; ++i) {
    if (IsIdle(args.rows, i)) continue;
    const int32_t position = args.rows.row_position[i];
    const int32_t* entry = Entry(args.kv, args.rows.slot[i], position);
    if (entry == nullptr) continue;
    if (entry != last) CheckWrite(group, *entry, "a row");
    last = entry;
    const uint64_t residual = LoadHash(Line(args.residual, i));
    StoreHash(EntryHash(layer_, residual, position),
              EntryOf(args.kv, args.layer, *entry, position % kPageTokens));
    StoreHash(residual, Act(args.q, i));
  }
}

void FakeOps::Attention(const kernels::AttentionArgs& args) {
  const int32_t group = GroupOf(args.kv);
  constexpr int64_t kStride = kFakeWidth * 4;  // bytes from a token's K to the next one's
  for (int32_t i = 0; i < args.rows.num_rows; ++i) {
    if (IsIdle(args.rows, i)) continue;
    const int32_t position = args.rows.row_position[i];
    const int32_t begin = args.window > 0 ? std::max(0, position - args.window + 1) : 0;
    uint64_t sum = 0;
    bool unwritten = false;
    for (int32_t at = begin; at <= position;) {
      const int32_t end = std::min(position + 1, (at / kPageTokens + 1) * kPageTokens);
      const int32_t* entry = Entry(args.kv, args.rows.slot[i], at);
      if (entry == nullptr) return;
      const uint8_t* from = EntryOf(args.kv, args.layer, *entry, at % kPageTokens);
      for (; at < end; ++at, from += kStride) {
        const uint64_t value = LoadHash(from);
        unwritten |= value == 0;
        sum += value;
      }
    }
    const bool is_last = i + 1 == args.rows.num_rows || args.rows.slot[i + 1] != args.rows.slot[i];
    if (is_last) TouchLine(args.kv, group, args.rows.slot[i], begin, position);
    Require(!unwritten, "the row of slot ", args.rows.slot[i], " at position ", position,
            " reads an entry of group ", group, " that was never written");
    StoreHash(AttentionHash(sum, LoadHash(Act(args.q, i))), Act(args.out, i));
  }
}

void FakeOps::Project(const kernels::ProjectArgs& args) {
  for (int32_t i = 0; i < args.rows.num_rows; ++i) {
    if (IsIdle(args.rows, i)) continue;
    float* line = Line(args.residual, i);
    StoreHash(ProjectHash(LoadHash(line), LoadHash(Act(args.x, i))), line);
  }
}

void FakeOps::GateUp(const kernels::GateUpArgs& args) {
  for (int32_t i = 0; i < args.rows.num_rows; ++i) {
    if (IsIdle(args.rows, i)) continue;
    StoreHash(GateHash(LoadHash(Line(args.residual, i))), Act(args.out, i));
  }
}

void FakeOps::Head(const kernels::HeadArgs& args) {
  now_.num_logits_rows = args.num_logits_rows;
  for (int32_t i = 0; i < args.num_logits_rows; ++i) {
    const int32_t row = args.logits_rows[i];
    if (!Require(row >= 0 && row < args.rows.num_rows, "logits row ", row, " of ",
                 args.rows.num_rows)) {
      continue;
    }
    if (IsIdle(args.rows, row)) continue;
    const uint64_t hash = LoadHash(Line(args.residual, row));
    float* logits = args.logits + int64_t{i} * kFakeVocab;
    for (int32_t id = 2; id < kFakeVocab; ++id) logits[id] = FakeLogit(hash, id);
    StoreHash(hash, logits);
  }
}

void FakeOps::Candidates(const kernels::CandidatesArgs& args) {
  if (args.next != nullptr) now_.num_logits_rows -= args.num_logits_rows;  // they are of prefills
  for (int32_t i = 0; i < args.num_logits_rows; ++i) {
    kernels::RowSummary& summary = args.summary[i];
    summary = {};
    summary.first_nonfinite = -1;
    summary.drawn = -1;
    const int32_t row = args.logits_rows[i];
    if (!Require(row >= 0 && row < args.rows.num_rows, "logits row ", row, " of ",
                 args.rows.num_rows) ||
        IsIdle(args.rows, row)) {
      continue;
    }
    const int32_t slot = args.rows.slot[row];
    const int32_t position = args.rows.row_position[row] + 1;
    FillLists(args, i, slot, position);
    if (i == 0 || args.rows.slot[args.logits_rows[i - 1]] != slot) continue;
    const int32_t before = args.logits_rows[i - 1];
    Require(args.rows.row_position[before] == position - 2, "logits rows of slot ", slot,
            " do not follow each other");
  }
  if (args.advance) kernels::AppendDraws(args);
}

// Entries carry the hash in what they are: the ids follow from it.
void FakeOps::FillLists(const kernels::CandidatesArgs& args, int32_t index, int32_t slot,
                        int32_t position) {
  const kernels::SlotState& slots = args.slots;
  const kernels::DrawParams& params = slots.params[slot];
  kernels::RowSummary& summary = args.summary[index];
  const uint64_t row = LoadHash(args.logits + int64_t{index} * slots.vocab_size);
  uint64_t tokens = kTokensHashBegin;
  const int32_t* token = slots.tokens + int64_t{slot} * slots.context_length;
  int32_t counted = position;
  if (Planted(Bug::kDraftsUncounted)) {
    for (int32_t i = index; i > 0 && args.rows.slot[args.logits_rows[i - 1]] == slot; --i) {
      --counted;
    }
  }
  for (int32_t i = 0; i < counted; ++i) tokens = TokensHashStep(tokens, token[i]);
  const uint64_t weight = WeightHash(
      row, tokens,
      EditsHash(params.prompt_length, slots.bias_ids + int64_t{slot} * slots.max_bias,
                slots.bias_values + int64_t{slot} * slots.max_bias, slots.num_bias[slot]));
  summary.total_weight = weight;
  summary.top_k_weight = weight;
  summary.num_in_row = slots.vocab_size;
  summary.drawn = FakeDraw(row, token[position - 1], params.seed, params.choice, position);
  if (!Require(params.num_top <= args.max_top && params.num_perturbed <= args.max_perturbed,
               "lists of ", params.num_top, " and ", params.num_perturbed, ", room for ",
               args.max_top, " and ", args.max_perturbed)) {
    return;
  }
  summary.num_top = std::min(params.num_top, slots.vocab_size);
  for (int32_t i = 0; i < summary.num_top; ++i) {
    args.top[int64_t{index} * args.max_top + i] = {FakeListId(weight, i), 0.0f, 0.0f, -1};
  }
  summary.num_perturbed = std::min(params.num_perturbed, slots.vocab_size);
  for (int32_t i = 0; i < summary.num_perturbed; ++i) {
    args.perturbed[int64_t{index} * args.max_perturbed + i] = {
        FakeListId(weight, i), 0.0f, 0.0f, 0.0f, i, -1, weight};
  }
  if (!params.want_raw) return;
  if (!Require(args.raw_top != nullptr && args.reported != nullptr, "slot ", slot,
               " wants raw lists")) {
    return;
  }
  summary.raw_total = row;  // no edit counts
  summary.num_raw_top = std::min(params.num_raw_top, slots.vocab_size);
  for (int32_t i = 0; i < summary.num_raw_top; ++i) {
    args.raw_top[int64_t{index} * kernels::kMaxRawTop + i] = {FakeListId(weight, i), 0.0f, i};
  }
  summary.num_reported = slots.num_report_ids[slot];
  for (int32_t i = 0; i < summary.num_reported; ++i) {
    const int32_t id = slots.report_ids[int64_t{slot} * slots.max_report_ids + i];
    args.reported[int64_t{index} * kernels::kMaxReported + i] = {id, 0.0f, i};
  }
  if (args.next != nullptr)
    args.next[index] = {token[position], FakeLogit(row, token[position]), 0};
}

void FakeOps::CopyPage(const KvPool& kv, int32_t from_page, int32_t to_page, int32_t num_tokens) {
  if (!Require(from_page >= 0 && from_page < kv.num_pages && to_page >= 0 &&
                   to_page < kv.num_pages && from_page != to_page,
               "pages ", from_page, " and ", to_page, " of ", kv.num_pages) ||
      !Require(num_tokens > 0 && num_tokens <= kPageTokens, num_tokens, " tokens are copied")) {
    return;
  }
  CheckWrite(GroupOf(kv), to_page, "a copy");
  for (int32_t layer = 0; layer < kv.num_layers; ++layer) {
    std::memcpy(EntryOf(kv, layer, to_page, 0), EntryOf(kv, layer, from_page, 0),
                size_t(num_tokens) * kFakeWidth * 4);
  }
}

}  // namespace tandem::test
