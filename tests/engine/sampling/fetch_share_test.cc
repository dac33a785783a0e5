// How often lists of the default sizes do not decide, over the rows that the default model computes
// for tests/golden/sampling/mixed_text.txt.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/decode_engine_arrays.h"
#include "engine/model/model.h"
#include "engine/sampling/decision.h"
#include "engine/text/tokenizer.h"
#include "kernels/cpu/cpu_ops.h"
#include "tests/kernels/device_data.h"
#include "tests/support/model_runner.h"

namespace tandem::test {
namespace {

constexpr int32_t kPassages = 4;
constexpr int32_t kRows = 190;  // of each passage
constexpr int32_t kSeeds = 20;
constexpr int32_t kChunk = 64;  // positions that are computed at once

// Parameters, and the largest share of undecided positions that is allowed.
struct Setting {
  const char* name;
  SamplingParameters parameters;
  double limit;
};

SamplingParameters Draw(float temperature, int32_t top_k, float top_p, float min_p) {
  SamplingParameters p;
  p.temperature = temperature;
  p.top_k = top_k;
  p.top_p = top_p;
  p.min_p = min_p;
  return p;
}

SamplingParameters WithPenalties(SamplingParameters p) {
  p.repetition_penalty = 1.1f;
  p.presence_penalty = 0.5f;
  return p;
}

std::vector<Setting> Settings() {
  const SamplingParameters cold = Draw(0.7f, 0, 0.9f, 0), plain = Draw(1, 0, 0.95f, 0),
                           narrow = Draw(0.8f, 40, 0.95f, 0);
  return {{"T 1", Draw(1, 0, 1, 0), 0.0005},
          {"T 0.7, top_p 0.9", cold, 0.0005},
          {"T 1, top_p 0.95", plain, 0.0005},
          {"T 0.8, top_k 40, top_p 0.95", narrow, 0.0005},
          {"T 1, top_k 500, top_p 0.9", Draw(1, 500, 0.9f, 0), 0.0005},
          {"T 1.5, top_p 0.95", Draw(1.5f, 0, 0.95f, 0), 0.0005},
          {"T 1.5, min_p 0.05", Draw(1.5f, 0, 1, 0.05f), 0.029},
          {"T 2, top_k 100", Draw(2, 100, 1, 0), 0.14},
          {"T 2, min_p 0.02", Draw(2, 0, 1, 0.02f), 0.049},
          {"T 0.7, top_p 0.9, penalties", WithPenalties(cold), 0.001},
          {"T 1, top_p 0.95, penalties", WithPenalties(plain), 0.001},
          {"T 0.8, top_k 40, top_p 0.95, penalties", WithPenalties(narrow), 0.001}};
}

class FetchShare : public testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("TANDEM_TEST_MODEL");
    if (path == nullptr) GTEST_SKIP() << "TANDEM_TEST_MODEL does not name the default model's file";
    const auto checkpoint = OpenCheckpoint(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    auto model =
        Model::Load(**checkpoint, kernels::KvFormat::kF32, {.max_rows = kChunk}, *ops_, nullptr);
    ASSERT_TRUE(model.ok()) << model.status();
    vocab_size_ = (*model)->config().vocab_size;
    ReadPassages(**checkpoint);
    ComputeRows(**model);
  }

  // The first kRows tokens of each passage.
  void ReadPassages(const Checkpoint& checkpoint) {
    auto data = checkpoint.Tokenizer();
    ASSERT_TRUE(data.ok()) << data.status();
    auto tokenizer = MakeTokenizer(*std::move(data));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    std::ifstream file("tests/golden/sampling/mixed_text.txt");
    std::string passage;
    for (std::string line; std::getline(file, line) || !passage.empty();) {
      if (file && line != "----") {
        passage += line + "\n";
        continue;
      }
      auto encoding = (*tokenizer)->Encode(passage, {});
      ASSERT_TRUE(encoding.ok()) << encoding.status();
      ASSERT_GE(encoding->ids.size(), static_cast<size_t>(kRows));
      encoding->ids.resize(kRows);
      passages_.push_back(std::move(encoding->ids));
      passage.clear();
    }
    ASSERT_EQ(passages_.size(), static_cast<size_t>(kPassages));
  }

  void ComputeRows(Model& model) {
    auto runner =
        ModelRunner::Make({.num_slots = kPassages, .tokens_per_slot = kRows}, model, *ops_);
    ASSERT_TRUE(runner.ok()) << runner.status();
    for (int32_t i = 0; i < kPassages; ++i) {
      auto rows = (*runner)->Run(i, passages_[i], kChunk, kRows);
      ASSERT_TRUE(rows.ok()) << rows.status();
      rows_.push_back(*std::move(rows));
    }
  }

  // Undecided positions of a passage, by setting, over all seeds. Row i stands behind tokens
  // [0, i], all of them output but the first.
  void CountUndecided(int32_t passage, const std::vector<Setting>& settings,
                      std::vector<int64_t>* undecided) {
    auto slots = SlotArrays::Make(kRows, kRows, vocab_size_, {}, *ops_);
    ASSERT_TRUE(slots.ok()) << slots.status();
    auto lists = DeviceLists::Make(kRows, *ops_);
    ASSERT_TRUE(lists.ok()) << lists.status();
    std::vector<int32_t> all_rows;
    std::vector<float> logits;
    for (int32_t i = 0; i < kRows; ++i) {
      all_rows.push_back(i);
      logits.insert(logits.end(), rows_[passage][i].begin(), rows_[passage][i].end());
      (*slots)->SetTokens(i, 0, History(passage, i));
    }
    kernels::DeviceData data(*ops_);
    kernels::CandidatesArgs args;
    args.logits_rows = data.Put(all_rows);
    args.rows = {kRows, args.logits_rows, data.Put(std::vector<int32_t>(kRows, -1)),
                 data.Zeroes<int32_t>(kRows), data.Zeroes<int32_t>(kRows)};
    args.slots = (*slots)->state();
    args.num_logits_rows = kRows;
    args.logits = data.Put(logits);
    ops_->PrepareRows(args.rows, args.slots);
    HostLists host;
    for (size_t i = 0; i < settings.size(); ++i) {
      SamplingParameters parameters = settings[i].parameters;
      host.max_top = parameters.num_top;
      host.max_perturbed = parameters.num_perturbed;
      for (int32_t seed = 0; seed < kSeeds; ++seed) {
        parameters.seed = static_cast<uint64_t>(1000 * seed + 17);
        for (int32_t row = 0; row < kRows; ++row) {
          (*slots)->SetParams(row, ToDrawParams(parameters, 0, 1, vocab_size_));
        }
        (*lists)->Compute(args, host);
        (*lists)->Download(kRows, &host);
        for (int32_t row = 0; row < kRows; ++row) {
          const Decider decider(parameters, 0, 1, History(passage, row), vocab_size_, {});
          const Decision listed = decider.DecideFromCandidates(host.Row(row));
          ASSERT_NE(listed.kind, Decision::Kind::kFault) << listed.why;
          (*undecided)[i] += listed.kind == Decision::Kind::kUndecided;
          const bool is_sample = seed % 4 == 0 && row == 9 * seed;
          if (!is_sample || listed.kind == Decision::Kind::kUndecided) continue;
          ASSERT_EQ(listed.token, decider.DecideFromRow(rows_[passage][row]).token);
        }
      }
    }
  }

  std::span<const int32_t> History(int32_t passage, int32_t row) const {
    return std::span(passages_[passage]).first(row + 1);
  }

  const std::unique_ptr<kernels::Ops> ops_ = *kernels::MakeCpuOps({});
  int32_t vocab_size_ = 0;
  std::vector<std::vector<int32_t>> passages_;         // [kPassages][kRows]
  std::vector<std::vector<std::vector<float>>> rows_;  // [kPassages][kRows][vocab_size]
};

TEST_F(FetchShare, OfRealRowsIsNoMoreThanTheMeasuredOnes) {
  const std::vector<Setting> settings = Settings();
  std::vector<int64_t> undecided(settings.size(), 0);
  for (int32_t i = 0; i < kPassages; ++i) CountUndecided(i, settings, &undecided);
  for (size_t i = 0; i < settings.size(); ++i) {
    const double share =
        static_cast<double>(undecided[i]) / static_cast<double>(kPassages * kRows * kSeeds);
    std::printf("%-40s %6.3f %% undecided\n", settings[i].name, 100.0 * share);
    EXPECT_LE(share, settings[i].limit) << settings[i].name;
  }
}

}  // namespace
}  // namespace tandem::test
