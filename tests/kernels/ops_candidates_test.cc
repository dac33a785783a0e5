// The candidate operation of each backend against the sorted row: every entry, rank, mass and draw
// to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/reference/candidates.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/device_data.h"

namespace tandem::kernels {
namespace {

constexpr int32_t kSlots = 12;
constexpr int32_t kContext = 64;
constexpr int32_t kMaxBias = 40;
constexpr int32_t kMaxEndIds = 3;
constexpr int32_t kMaxReports = 5;

// The arrays of a SlotState; an empty one is a null pointer in the state.
struct SlotArrays {
  int32_t vocab_size = 0;
  std::vector<int32_t> tokens, num_tokens;
  std::vector<DrawParams> params;
  std::vector<uint32_t> allowed_bits, defined_bits;
  std::vector<uint8_t> has_allowed;
  std::vector<int32_t> bias_ids, num_bias, end_ids, num_end_ids, report_ids, num_report_ids;
  std::vector<float> bias_values;

  template <typename Place>
  SlotState State(Place place) {
    SlotState state;
    state.num_slots = kSlots;
    state.context_length = kContext;
    state.vocab_size = vocab_size;
    state.tokens = place(tokens);
    state.num_tokens = place(num_tokens);
    state.params = place(params);
    state.allowed_bits = place(allowed_bits);
    state.has_allowed = place(has_allowed);
    state.defined_bits = place(defined_bits);
    state.max_bias = kMaxBias;
    state.bias_ids = place(bias_ids);
    state.bias_values = place(bias_values);
    state.num_bias = place(num_bias);
    state.max_end_ids = kMaxEndIds;
    state.end_ids = place(end_ids);
    state.num_end_ids = place(num_end_ids);
    state.max_report_ids = kMaxReports;
    state.report_ids = place(report_ids);
    state.num_report_ids = place(num_report_ids);
    return state;
  }
  SlotState OnHost() {
    return State([]<typename T>(std::vector<T>& v) { return v.empty() ? nullptr : v.data(); });
  }
  SlotState OnDevice(DeviceData& data) {
    return State(
        [&]<typename T>(std::vector<T>& v) -> T* { return v.empty() ? nullptr : data.Put(v); });
  }
};

struct Outputs {
  std::vector<RowSummary> summary;
  std::vector<TopEntry> top;
  std::vector<PerturbedEntry> perturbed;
  std::vector<RawEntry> raw_top, reported, next;
  std::vector<int32_t> tokens, num_tokens;
};

class OpsCandidatesTest : public testing::TestWithParam<Backend> {
 protected:
  bool OneIn(int32_t n) { return random_.Below(n) == 0; }

  std::vector<uint32_t> RandomBits(int32_t words, int32_t one_in) {
    std::vector<uint32_t> bits(words);
    for (int32_t i = 0; i < 32 * words; ++i) {
      if (!OneIn(one_in)) bits[i / 32] |= uint32_t{1} << (i % 32);
    }
    return bits;
  }

  // Sequences of 1 to 60 tokens and draw parameters of every kind. Without edits no array of them
  // exists.
  SlotArrays RandomSlots(int32_t vocab_size, bool with_edits) {
    SlotArrays slots;
    slots.vocab_size = vocab_size;
    slots.tokens.assign(kSlots * kContext, kIdleToken);
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      const int32_t length = 1 + random_.Below(60);
      slots.num_tokens.push_back(length);
      for (int32_t i = 0; i < length; ++i) {
        slots.tokens[slot * kContext + i] = random_.Below(std::min(vocab_size, 20));
      }
      // Behind the last row, of any rank.
      slots.tokens[slot * kContext + length] = random_.Below(vocab_size);
      slots.params.push_back(RandomParams(vocab_size, length, with_edits));
    }
    if (!with_edits) return slots;
    const int32_t words = (vocab_size + 31) / 32;
    slots.allowed_bits = RandomBits(words * kSlots, 3);
    slots.defined_bits = RandomBits(words, 50);
    std::fill_n(slots.allowed_bits.begin(), words, 0);  // slot 0: nothing allowed
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      slots.has_allowed.push_back(slot == 0 || OneIn(3));
      const std::vector<int32_t> distinct = random_.Permutation(vocab_size);
      slots.num_bias.push_back(random_.Below(std::min(vocab_size, kMaxBias) + 1));
      slots.num_end_ids.push_back(random_.Below(kMaxEndIds + 1));
      slots.num_report_ids.push_back(random_.Below(kMaxReports + 1));
      for (int32_t i = 0; i < kMaxBias; ++i) {
        slots.bias_ids.push_back(distinct[i % vocab_size]);
        slots.bias_values.push_back(OneIn(5) ? 0.0f : random_.Normal(3.0f));
      }
      for (int32_t i = 0; i < kMaxEndIds; ++i) slots.end_ids.push_back(random_.Below(vocab_size));
      for (int32_t i = 0; i < kMaxReports; ++i) {
        slots.report_ids.push_back(random_.Below(vocab_size));
      }
    }
    return slots;
  }

  DrawParams RandomParams(int32_t vocab_size, int32_t length, bool with_edits) {
    DrawParams params;
    params.seed = (uint64_t{static_cast<uint32_t>(random_.Below(1 << 30))} << 34) + 77;
    params.choice = random_.Below(3);
    params.greedy = OneIn(4);
    if (!params.greedy) {
      const float temperatures[] = {1e-5f, 0.5f, 0.8f, 1.0f, 1.7f, 100.0f};
      params.inverse_temperature = 1.0f / temperatures[random_.Below(6)];
    }
    if (OneIn(2)) params.top_k = 1 + random_.Below(vocab_size + 5);
    if (OneIn(2)) params.top_p_fixed = kTopPOff / 100 * random_.Below(100);
    if (OneIn(3)) params.min_p_weight = (kTopPOff / 1000 * random_.Below(300)) << 8;
    params.prompt_length = 1 + random_.Below(length);
    params.num_top = random_.Below(40);
    params.num_perturbed = random_.Below(12);
    if (with_edits) {
      params.want_raw = OneIn(2);
      params.num_raw_top = random_.Below(kMaxRawTop + 1);
      params.min_tokens = random_.Below(60);
      params.repetition_penalty = 1.0f + 0.1f * static_cast<float>(random_.Below(4));
      params.presence_penalty = 0.25f * static_cast<float>(random_.Below(3));
      params.frequency_penalty = 0.3f * static_cast<float>(random_.Below(3) - 1);
      params.repetition_window = OneIn(2) ? random_.Below(30) : 0;
      params.presence_window = OneIn(2) ? random_.Below(30) : 0;
      params.frequency_window = OneIn(2) ? random_.Below(30) : 0;
    }
    return params;
  }

  // Rounded ones, so that many are equal; -0 beside 0.
  std::vector<float> RandomLogits(int32_t count) {
    std::vector<float> logits = random_.Normals(count, 4.0f);
    if (OneIn(2)) {
      for (float& logit : logits) logit = std::round(logit);
    }
    return logits;
  }

  // Runs the operation once for all slots, each at its last token, with idle rows at both ends.
  Outputs Run(SlotArrays& slots, const std::vector<float>& logits, bool advance) {
    std::vector<int32_t> slot = {-1}, position = {-1}, logits_rows = {0};
    for (int32_t i = 0; i < kSlots; ++i) {
      slot.push_back(i);
      position.push_back(-1);
      logits_rows.push_back(i + 1);
    }
    slot.push_back(-1);
    position.push_back(5);
    logits_rows.push_back(kSlots + 1);
    return RunRows(slots, slot, position, logits_rows, logits, advance);
  }

  Outputs RunRows(SlotArrays& slots, const std::vector<int32_t>& slot,
                  const std::vector<int32_t>& position, const std::vector<int32_t>& logits_rows,
                  const std::vector<float>& logits, bool advance) {
    DeviceData data(*ops_);
    SlotState state = slots.OnDevice(data);
    const int32_t n = static_cast<int32_t>(slot.size());
    CandidatesArgs args;
    args.rows = {n, data.Put(slot), data.Put(position), data.Zeroes<int32_t>(n),
                 data.Zeroes<int32_t>(n)};
    ops_->PrepareRows(args.rows, state);
    args.num_logits_rows = n;
    args.logits_rows = data.Put(logits_rows);
    args.logits = data.Put(logits);
    args.slots = state;
    args.advance = advance;
    args.max_top = 40;
    args.max_perturbed = 13;
    args.summary = data.Zeroes<RowSummary>(n);
    args.top = data.Zeroes<TopEntry>(n * args.max_top);
    args.perturbed = data.Zeroes<PerturbedEntry>(n * args.max_perturbed);
    args.raw_top = data.Zeroes<RawEntry>(n * kMaxRawTop);
    args.reported = data.Zeroes<RawEntry>(n * kMaxReported);
    if (!advance) args.next = data.Zeroes<RawEntry>(n);
    ops_->Candidates(args);
    return {data.Get(args.summary, n),
            data.Get(args.top, n * args.max_top),
            data.Get(args.perturbed, n * args.max_perturbed),
            data.Get(args.raw_top, n * kMaxRawTop),
            data.Get(args.reported, n * kMaxReported),
            advance ? std::vector<RawEntry>() : data.Get(args.next, n),
            data.Get(state.tokens, kSlots * kContext),
            data.Get(state.num_tokens, kSlots)};
  }

  static void ExpectSummary(const RowSummary& got, const RowSummary& want) {
    EXPECT_EQ(got.num_top, want.num_top);
    EXPECT_EQ(got.num_perturbed, want.num_perturbed);
    EXPECT_EQ(got.num_raw_top, want.num_raw_top);
    EXPECT_EQ(got.num_reported, want.num_reported);
    EXPECT_EQ(got.num_in_row, want.num_in_row);
    EXPECT_EQ(got.first_nonfinite, want.first_nonfinite);
    EXPECT_EQ(got.drawn, want.drawn);
    if (want.first_nonfinite >= 0) return;
    EXPECT_EQ(got.row_max, want.row_max);
    EXPECT_EQ(got.next_perturbed, want.next_perturbed);
    EXPECT_EQ(got.total_weight, want.total_weight);
    EXPECT_EQ(got.top_k_weight, want.top_k_weight);
    EXPECT_EQ(got.raw_max, want.raw_max);
    EXPECT_EQ(got.raw_total, want.raw_total);
  }

  template <typename T>
  static void ExpectEntries(const T* got, const std::vector<T>& want, const char* list) {
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(std::memcmp(&got[i], &want[i], sizeof(T)), 0)
          << list << " entry " << i << ": id " << got[i].id << ", expected " << want[i].id;
    }
  }

  void ExpectEqualsSortedRows(int32_t vocab_size, bool with_edits) {
    SCOPED_TRACE("vocabulary " + std::to_string(vocab_size));
    SlotArrays slots = RandomSlots(vocab_size, with_edits);
    std::vector<float> logits = RandomLogits((kSlots + 2) * vocab_size);
    const float kBad[] = {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()};
    if (with_edits) {
      for (int32_t i = 0; i < 2; ++i) {
        logits[(3 + i) * vocab_size + random_.Below(vocab_size)] = kBad[random_.Below(3)];
      }
    }
    std::fill_n(logits.begin(), vocab_size, kBad[0]);  // the idle row's line is not read
    const Outputs got = Run(slots, logits, false);
    const SlotState host = slots.OnHost();
    ExpectSummary(got.summary[0], EmptySummary());
    ExpectSummary(got.summary[kSlots + 1], EmptySummary());
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      SCOPED_TRACE("slot " + std::to_string(slot));
      const int32_t row = slot + 1;
      const RowCandidates want = ComputeCandidates(
          {logits.data() + int64_t{row} * vocab_size, static_cast<size_t>(vocab_size)}, host, slot,
          slots.num_tokens[slot] - 1);
      ExpectSummary(got.summary[row], want.summary);
      ExpectEntries(got.top.data() + row * 40, want.top, "top");
      ExpectEntries(got.perturbed.data() + row * 13, want.perturbed, "perturbed");
      ExpectEntries(got.raw_top.data() + row * kMaxRawTop, want.raw_top, "raw top");
      ExpectEntries(got.reported.data() + row * kMaxReported, want.reported, "reported");
      if (!slots.params[slot].want_raw || want.summary.first_nonfinite >= 0) continue;
      const int32_t behind = slots.tokens[slot * kContext + slots.num_tokens[slot]];
      ExpectEntries(got.next.data() + row,
                    {RawEntryOf({logits.data() + int64_t{row} * vocab_size,
                                 static_cast<size_t>(vocab_size)},
                                behind)},
                    "next");
    }
    EXPECT_EQ(got.tokens, slots.tokens);
    EXPECT_EQ(got.num_tokens, slots.num_tokens);
  }

  const std::unique_ptr<Ops> ops_ = GetParam().make();
  RandomData random_{5};
};

TEST_P(OpsCandidatesTest, EqualTheSortedRowWithoutEdits) {
  for (const int32_t vocab_size : {1, 2, 7, 31, 32, 33, 64, 1000, 5003}) {
    ExpectEqualsSortedRows(vocab_size, false);
  }
}

TEST_P(OpsCandidatesTest, B039_EqualTheSortedRowWithEveryEditAndRawLists) {
  for (const int32_t vocab_size : {1, 2, 7, 31, 32, 33, 64, 1000, 5003}) {
    ExpectEqualsSortedRows(vocab_size, true);
  }
}

TEST_P(OpsCandidatesTest, EqualTheSortedRowOverALargeVocabulary) {
  ExpectEqualsSortedRows(20011, true);
}

TEST_P(OpsCandidatesTest, ListsMayBeAsLongAsTheirLimits) {
  SlotArrays slots = RandomSlots(3000, false);
  DeviceData data(*ops_);
  for (DrawParams& params : slots.params) {
    params.num_top = kMaxTop;
    params.num_perturbed = kMaxPerturbed;
  }
  const std::vector<float> logits = RandomLogits(3000);
  CandidatesArgs args;
  args.rows = {1, data.Put(std::vector<int32_t>{4}), data.Put(std::vector<int32_t>{-1}),
               data.Zeroes<int32_t>(1), data.Zeroes<int32_t>(1)};
  args.slots = slots.OnDevice(data);
  ops_->PrepareRows(args.rows, args.slots);
  args.num_logits_rows = 1;
  args.logits_rows = data.Zeroes<int32_t>(1);
  args.logits = data.Put(logits);
  args.max_top = kMaxTop;
  args.max_perturbed = kMaxPerturbed;
  args.summary = data.Zeroes<RowSummary>(1);
  args.top = data.Zeroes<TopEntry>(kMaxTop);
  args.perturbed = data.Zeroes<PerturbedEntry>(kMaxPerturbed);
  ops_->Candidates(args);
  const RowCandidates want = ComputeCandidates(logits, slots.OnHost(), 4, slots.num_tokens[4] - 1);
  ExpectSummary(data.Get(args.summary, 1)[0], want.summary);
  ExpectEntries(data.Get(args.top, kMaxTop).data(), want.top, "top");
  ExpectEntries(data.Get(args.perturbed, kMaxPerturbed).data(), want.perturbed, "perturbed");
}

TEST_P(OpsCandidatesTest, AdvanceAppendsTheDrawnTokenOrMarksItUndecided) {
  const int32_t vocab_size = 64;
  SlotArrays slots = RandomSlots(vocab_size, false);
  for (int32_t slot = 0; slot < kSlots; ++slot) {
    DrawParams& params = slots.params[slot];
    params = DrawParams();
    params.greedy = slot % 2 == 0;
    if (params.greedy) continue;
    params.top_k = 2;  // of 64 equal logits, with one candidate: nearly always undecided
    params.num_top = 1;
    params.num_perturbed = 1;
  }
  std::vector<float> logits((kSlots + 2) * vocab_size);
  for (int32_t row = 0; row < kSlots + 2; ++row) logits[row * vocab_size + 9 + row] = 1e-3f;
  const Outputs got = Run(slots, logits, true);
  int32_t undecided = 0;
  for (int32_t slot = 0; slot < kSlots; ++slot) {
    const int32_t length = slots.num_tokens[slot];
    const int32_t drawn = got.summary[slot + 1].drawn;
    if (slot % 2 == 0) {
      EXPECT_EQ(drawn, 10 + slot);
    }
    undecided += drawn < 0;
    EXPECT_EQ(got.num_tokens[slot], length + 1) << slot;
    EXPECT_EQ(got.tokens[slot * kContext + length], drawn >= 0 ? drawn : kIdleToken) << slot;
    slots.tokens[slot * kContext + length] = got.tokens[slot * kContext + length];
  }
  EXPECT_GT(undecided, 0);
  EXPECT_EQ(got.tokens, slots.tokens);  // nothing else changed
}

TEST_P(OpsCandidatesTest, AdvanceStopsAtTheContextLength) {
  SlotArrays slots = RandomSlots(16, false);
  slots.num_tokens[2] = kContext;
  std::fill_n(slots.tokens.begin() + 2 * kContext, kContext, 3);
  const Outputs got = Run(slots, RandomLogits((kSlots + 2) * 16), true);
  EXPECT_EQ(got.num_tokens[2], kContext);
  EXPECT_EQ(got.tokens[3 * kContext], slots.tokens[3 * kContext]);
}

TEST_P(OpsCandidatesTest, B041_B043_ASlotsDrawDoesNotDependOnItsSlotOrNeighbours) {
  const int32_t vocab_size = 500;
  SlotArrays slots = RandomSlots(vocab_size, false);
  const std::vector<float> line = RandomLogits(vocab_size);
  std::vector<float> logits;
  for (int32_t row = 0; row < kSlots + 2; ++row) {
    logits.insert(logits.end(), line.begin(), line.end());
  }
  DrawParams params;
  params.greedy = false;
  params.seed = 42;
  for (const int32_t slot : {1, 6, 11}) {
    slots.params[slot] = params;
    slots.num_tokens[slot] = 7;
    std::fill_n(slots.tokens.begin() + slot * kContext, 7, 1);
  }
  const Outputs got = Run(slots, logits, false);
  EXPECT_GE(got.summary[2].drawn, 0);
  EXPECT_EQ(got.summary[2].drawn, got.summary[7].drawn);
  EXPECT_EQ(got.summary[2].drawn, got.summary[12].drawn);
}

// Every slot runs its last token and drafts behind it, most of them what will be
// drawn.
TEST_P(OpsCandidatesTest, RowsOfDraftsGiveWhatTheyGiveOneByOneAndTheFirstOtherDrawIsAppended) {
  const int32_t vocab_size = 300;
  int32_t num_taken = 0, num_rejected = 0, num_undecided = 0, num_all_taken = 0;
  for (int32_t round = 0; round < 20; ++round) {
    SlotArrays slots = RandomSlots(vocab_size, true);
    std::vector<int32_t> slot = {-1}, position = {-1}, logits_rows = {0};
    std::vector<float> logits = RandomLogits((kSlots * 7 + 1) * vocab_size);
    std::vector<RowCandidates> want = {RowCandidates{.summary = EmptySummary()}};
    std::vector<int32_t> num_tokens;                    // as they have to be
    std::vector<std::pair<int64_t, int32_t>> appended;  // place and token
    const SlotState host = slots.OnHost();
    for (int32_t s = 0; s < kSlots; ++s) {
      const int32_t length = slots.num_tokens[s];
      const int32_t num_drafts = std::min(random_.Below(7), kContext - length);
      const int64_t line = int64_t{s} * kContext;
      bool ended = false;
      for (int32_t i = 0; i <= num_drafts; ++i) {
        const int64_t row = static_cast<int64_t>(slot.size());
        slot.push_back(s);
        position.push_back(length - 1 + i);
        logits_rows.push_back(static_cast<int32_t>(row));
        const int32_t drawn = want.emplace_back(ComputeCandidates({logits.data() + row * vocab_size,
                                                                   static_cast<size_t>(vocab_size)},
                                                                  host, s, length - 1 + i))
                                  .summary.drawn;
        int32_t draft = -2;
        if (i < num_drafts) {
          draft = drawn >= 0 && !OneIn(4) ? drawn : random_.Below(vocab_size);
          slots.tokens[line + length + i] = draft;
        }
        num_taken += !ended && draft == drawn;
        num_rejected += !ended && draft >= 0 && draft != drawn;
        num_undecided += !ended && drawn < 0;
        num_all_taken += !ended && i == num_drafts && i > 0;
        if (ended || draft == drawn) continue;
        ended = true;
        num_tokens.push_back(std::min(length + i + 1, kContext));
        if (length + i < kContext) {
          appended.emplace_back(line + length + i, drawn >= 0 ? drawn : kIdleToken);
        }
      }
      slots.num_tokens[s] = length + num_drafts;
    }
    const Outputs got = RunRows(slots, slot, position, logits_rows, logits, true);
    for (size_t row = 0; row < slot.size(); ++row) {
      SCOPED_TRACE("slot " + std::to_string(slot[row]) + ", position " +
                   std::to_string(position[row]));
      ExpectSummary(got.summary[row], want[row].summary);
      ExpectEntries(got.top.data() + row * 40, want[row].top, "top");
      ExpectEntries(got.perturbed.data() + row * 13, want[row].perturbed, "perturbed");
      ExpectEntries(got.raw_top.data() + row * kMaxRawTop, want[row].raw_top, "raw top");
      ExpectEntries(got.reported.data() + row * kMaxReported, want[row].reported, "reported");
    }
    EXPECT_EQ(got.num_tokens, num_tokens);
    for (const auto& [place, token] : appended) slots.tokens[place] = token;
    EXPECT_EQ(got.tokens, slots.tokens);
  }
  EXPECT_GT(num_taken, 100);
  EXPECT_GT(num_rejected, 20);
  EXPECT_GT(num_undecided, 5);
  EXPECT_GT(num_all_taken, 5);
}

INSTANTIATE_TEST_SUITE_P(Backends, OpsCandidatesTest, testing::ValuesIn(Backends()), BackendName);

}  // namespace
}  // namespace tandem::kernels
