// Files cut short and files with bytes changed: whatever comes, there is a status and no crash, and
// memory stays in bounds.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_checkpoint.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_model.h"

namespace tandem {
namespace {

constexpr int64_t kMaxAllocated = int64_t{1} << 20;

std::string SmallModel() {
  test::GgufWriter writer = test::TinyModelWriter({.num_layers = 1,
                                                   .hidden_size = 16,
                                                   .ffn_size = 16,
                                                   .num_heads = 2,
                                                   .num_kv_heads = 1,
                                                   .head_dim = 8});
  return writer.FloatArray("tokenizer.ggml.scores", std::vector<float>(10, 1.0f)).Build();
}

// Reads everything that a worker would read.
absl::Status ReadAll(const std::string& made) {
  const auto bytes = std::make_unique<uint8_t[]>(made.size());
  std::memcpy(bytes.get(), made.data(), made.size());
  auto file = GgufFile::Parse({bytes.get(), made.size()});
  if (!file.ok()) return file.status();
  auto checkpoint = MakeGgufCheckpoint(*std::move(file));
  if (!checkpoint.ok()) return checkpoint.status();
  EXPECT_EQ((*checkpoint)->WeightsFingerprint().size(), 32u);
  for (int32_t layer = 0; layer < (*checkpoint)->config().num_layers; ++layer) {
    EXPECT_TRUE((*checkpoint)->Matrix(TensorRole::kQ, layer).ok());
    EXPECT_TRUE((*checkpoint)->Vector(TensorRole::kAttentionNorm, layer).ok());
  }
  return (*checkpoint)->Tokenizer().status();
}

TEST(GgufFuzz, AFileCutAnywhereIsRefused) {
  const std::string whole = SmallModel();
  ASSERT_TRUE(ReadAll(whole).ok()) << ReadAll(whole);
  for (size_t size = 0; size < whole.size(); size += size < 16384 ? 1 : 97) {
    const absl::Status status = ReadAll(whole.substr(0, size));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << size << " bytes: " << status;
  }
}

TEST(GgufFuzz, ChangedBytesGiveAStatusAndBoundedMemory) {
  const std::string whole = SmallModel();
  std::mt19937_64 random(7);
  int accepted = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string changed = whole;
    // Most of the file is data; the header is where bytes have power.
    const size_t reach = round % 4 == 0 ? changed.size() : 9000;
    for (uint64_t flips = 1 + random() % 4; flips > 0; --flips) {
      char& byte = changed[random() % reach];
      const uint64_t kind = random() % 4;
      byte = static_cast<char>(kind == 0   ? 0xff
                               : kind == 1 ? 0x7f
                               : kind == 2 ? byte ^ (1 << random() % 8)
                                           : random());
    }
    const int64_t before = test::AllocatedBytes();
    accepted += ReadAll(changed).ok();
    EXPECT_LT(test::AllocatedBytes() - before, kMaxAllocated) << "round " << round;
  }
  // Neither everything nor nothing gets through, or the flips miss the parser.
  EXPECT_GT(accepted, 50);
  EXPECT_LT(accepted, 4500);
}

TEST(GgufFuzz, EightByteNumbersReplacedByLargeOnesGiveAStatus) {
  const std::string whole = SmallModel();
  for (size_t at = 4; at + 8 <= 9000; ++at) {
    for (const uint64_t number : {~uint64_t{0}, uint64_t{1} << 63, uint64_t{1} << 32}) {
      std::string changed = whole;
      std::memcpy(changed.data() + at, &number, sizeof(number));
      const int64_t before = test::AllocatedBytes();
      (void)ReadAll(changed);
      ASSERT_LT(test::AllocatedBytes() - before, kMaxAllocated) << "at " << at;
    }
  }
}

}  // namespace
}  // namespace tandem
