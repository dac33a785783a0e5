// Attention on the GPU against a double loop, and its bits against themselves: a row has the same
// bits alone, in a batch and in chunks of a prompt. Everything a row may not read is NaN: free
// pages, positions past the step and those below every window.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/launch.h"
#include "kernels/reference/dequantize.h"

namespace tandem::test {
namespace {

using kernels::AttentionArgs;
using kernels::AttentionShape;
using kernels::kPageTokens;
using kernels::KvFormat;

constexpr int kHeadDims[] = {64, 80, 96, 128, 256};
constexpr int kGroups[] = {1, 3, 4, 8, 16, 24};

template <typename T>
class DeviceArray final {
 public:
  explicit DeviceArray(size_t count) {
    EXPECT_EQ(cudaMalloc(&data_, std::max<size_t>(count * sizeof(T), 1)), cudaSuccess);
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  T* data() const { return static_cast<T*>(data_); }
  std::vector<T> Get(size_t count) const {
    std::vector<T> values(count);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, count * sizeof(T), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return values;
  }

 private:
  void* data_ = nullptr;
};

struct Row {
  int32_t slot;
  int32_t position;
};
constexpr Row kIdle = {-1, -1};

struct Config {
  int32_t head_dim = 64;
  int32_t group = 1;
  int32_t window = 0;
  float soft_cap = 0.0f;
  std::vector<int32_t> lengths;  // of each slot
  KvFormat format = KvFormat::kBF16;
  int32_t context_length = 2048;

  std::string Text() const {
    return absl::StrCat("head_dim ", head_dim, " group ", group, " window ", window, " cap ",
                        soft_cap, " format ", static_cast<int>(format));
  }
};

// Sequences with random q, k and v, and attention over them.
class Sequences final {
 public:
  static constexpr int32_t kKvHeads = 2;
  static constexpr int32_t kLayers = 2;
  static constexpr int32_t kLayer = 1;

  explicit Sequences(Config config)
      : config_(std::move(config)), heads_(kKvHeads * config_.group), random_(7) {
    const int32_t table_width = (config_.context_length + kPageTokens - 1) / kPageTokens;
    int32_t used = 0;
    for (const int32_t length : config_.lengths) used += (length + kPageTokens - 1) / kPageTokens;
    num_pages_ = used + 3;
    std::vector<int32_t> pages(num_pages_);
    for (int32_t i = 0; i < num_pages_; ++i) pages[i] = i;
    std::shuffle(pages.begin(), pages.end(), random_);
    for (const int32_t length : config_.lengths) {
      std::vector<int32_t>& line = tables_.emplace_back(table_width, -1);
      for (int32_t j = 0; j * kPageTokens < length; ++j) {
        line[j] = pages.back();
        pages.pop_back();
      }
      std::vector<uint8_t>& bytes = stored_.emplace_back(Vectors(length) * VectorBytes());
      std::vector<float>& scales = scales_.emplace_back(Vectors(length));
      for (float& scale : scales) scale = RandomScale();
      FillRandom(bytes);
    }
  }

  int32_t width() const { return heads_ * config_.head_dim; }

  // The bits of attention for a step of these rows.
  std::vector<uint16_t> Run(const std::vector<Row>& rows) {
    const int32_t n = static_cast<int32_t>(rows.size());
    std::vector<uint16_t> q(size_t{1} * n * width());
    std::vector<int32_t> slot, position, token;
    for (int32_t i = 0; i < n; ++i) {
      slot.push_back(rows[i].slot);
      position.push_back(rows[i].position);
      token.push_back(rows[i].slot < 0 ? kernels::kIdleToken : 5);
      const std::vector<uint16_t> line = Query(rows[i]);
      std::copy(line.begin(), line.end(), q.begin() + size_t{1} * i * width());
    }
    DeviceArray<int32_t> device_slot(slot), device_position(position), device_token(token);
    DeviceArray<uint16_t> device_q(q);
    DeviceArray<uint16_t> out(std::vector<uint16_t>(q.size(), 0x7fc0));

    kernels::KvPool kv;
    kv.format = config_.format;
    kv.num_layers = kLayers;
    kv.num_pages = num_pages_;
    kv.num_kv_heads = kKvHeads;
    kv.head_dim = config_.head_dim;
    kv.max_pages_per_slot = static_cast<int32_t>(tables_[0].size());
    std::vector<int32_t> table;
    std::vector<uint8_t> data(kv.DataBytes(), 0xff);  // NaN in bf16 and e4m3
    std::vector<float> scales(kv.ScaleBytes() / 4, std::numeric_limits<float>::quiet_NaN());
    Place(rows, kv, data, scales, table);
    DeviceArray<uint8_t> device_data(data);
    DeviceArray<float> device_scales(scales);
    DeviceArray<int32_t> device_table(table);
    kv.data = device_data.data();
    kv.scales = HasScales(kv.format) ? device_scales.data() : nullptr;
    kv.page_table = device_table.data();

    AttentionArgs args;
    args.rows = {n, device_slot.data(), nullptr, device_token.data(), device_position.data()};
    args.q = device_q.data();
    args.shape = {heads_, kKvHeads, config_.head_dim};
    args.kv = kv;
    args.layer = kLayer;
    args.scale = Scale();
    args.soft_cap = config_.soft_cap;
    args.window = config_.window;
    args.out = out.data();
    DeviceArray<uint8_t> scratch(std::vector<uint8_t>(
        kernels::cuda::AttentionScratchBytes(args.shape, n, config_.context_length), 0xff));
    kernels::cuda::LaunchAttention(args, config_.context_length, scratch.data(), nullptr);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess) << config_.Text();
    return out.Get(q.size());
  }

  // The row's bits in a step of its own.
  std::vector<uint16_t> Alone(Row row) { return Run({row}); }

  // The row's attention in double, over the values that the cache holds rounded to bf16.
  std::vector<double> Want(Row row) const {
    const int32_t head_dim = config_.head_dim;
    const int32_t first = FirstVisible(row.position);
    const std::vector<uint16_t> q = Query(row);
    std::vector<double> out(width());
    for (int32_t kv_head = 0; kv_head < kKvHeads; ++kv_head) {
      std::vector<std::vector<float>> keys, values;
      for (int32_t j = first; j <= row.position; ++j) {
        keys.push_back(Decode({row.slot, j}, 0, kv_head));
        values.push_back(Decode({row.slot, j}, 1, kv_head));
      }
      for (int32_t head = kv_head * config_.group; head < (kv_head + 1) * config_.group; ++head) {
        std::vector<double> scores;
        for (const std::vector<float>& key : keys) {
          double score = 0.0;
          for (int32_t d = 0; d < head_dim; ++d) {
            score += double{kernels::BFloat16ToFloat(q[head * head_dim + d])} * key[d];
          }
          score *= Scale();
          if (config_.soft_cap > 0) {
            score = config_.soft_cap * std::tanh(score / config_.soft_cap);
          }
          scores.push_back(score);
        }
        const double largest = *std::max_element(scores.begin(), scores.end());
        double sum = 0.0;
        for (size_t j = 0; j < scores.size(); ++j) {
          const double p = std::exp(scores[j] - largest);
          sum += p;
          for (int32_t d = 0; d < head_dim; ++d) out[head * head_dim + d] += p * values[j][d];
        }
        for (int32_t d = 0; d < head_dim; ++d) out[head * head_dim + d] /= sum;
      }
    }
    return out;
  }

  void ExpectClose(Row row, const uint16_t* got) const {
    const std::vector<double> want = Want(row);
    for (int32_t head = 0; head < heads_; ++head) {
      const int32_t begin = head * config_.head_dim;
      const int32_t end = begin + config_.head_dim;
      double largest = 0.0;
      for (int32_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(want[i]));
      for (int32_t i = begin; i < end; ++i) {
        ASSERT_LE(std::abs(kernels::BFloat16ToFloat(got[i]) - want[i]), 0.012 * largest)
            << config_.Text() << " slot " << row.slot << " position " << row.position << " head "
            << head;
      }
    }
  }

 private:
  size_t Vectors(int32_t length) const { return size_t{2} * kKvHeads * length; }
  size_t VectorBytes() const { return config_.head_dim * ElementBytes(config_.format); }
  // Of a token's K (side 0) or V (side 1) among a slot's vectors.
  size_t VectorIndex(int32_t position, int32_t side, int32_t kv_head) const {
    return (size_t{2} * position + side) * kKvHeads + kv_head;
  }
  float Scale() const { return 1.5f / std::sqrt(static_cast<float>(config_.head_dim)); }
  int32_t FirstVisible(int32_t position) const {
    return config_.window > 0 ? std::max(0, position - config_.window + 1) : 0;
  }

  float RandomScale() {
    const float uniform = (random_() % 1000 + 500) / 1000.0f;
    return uniform * (config_.format == KvFormat::kInt8 ? 0.015f : 0.2f);
  }

  void FillRandom(std::vector<uint8_t>& bytes) {
    if (config_.format == KvFormat::kBF16) {
      std::normal_distribution<float> normal;
      for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
        const uint16_t value = kernels::FloatToBFloat16(normal(random_));
        std::memcpy(&bytes[i], &value, 2);
      }
      return;
    }
    for (uint8_t& byte : bytes) {
      byte = static_cast<uint8_t>(random_());
      // e4m3: exponents below 2^3, so that no value is NaN and none drowns the others.
      if (config_.format == KvFormat::kFp8E4M3) byte &= 0xcf;
    }
  }

  std::vector<uint16_t> Query(Row row) const {
    std::mt19937 random(row.slot * 100003 + row.position + 1);
    std::normal_distribution<float> normal;
    std::vector<uint16_t> q(width());
    for (uint16_t& value : q) value = kernels::FloatToBFloat16(normal(random));
    return q;
  }

  std::vector<float> Decode(Row row, int32_t side, int32_t kv_head) const {
    std::vector<float> values(config_.head_dim);
    const size_t index = VectorIndex(row.position, side, kv_head);
    kernels::DecodeKv(config_.format, stored_[row.slot].data() + index * VectorBytes(),
                      &scales_[row.slot][index], config_.head_dim, values.data());
    for (float& value : values) {
      value = kernels::BFloat16ToFloat(kernels::FloatToBFloat16(value));
    }
    return values;
  }

  // Fills in what rows of a step may read: each slot's positions from its first row's first visible
  // one to its last row's; pages below are not held.
  void Place(const std::vector<Row>& rows, const kernels::KvPool& kv, std::vector<uint8_t>& data,
             std::vector<float>& scales, std::vector<int32_t>& table) const {
    for (int32_t slot = 0; slot < static_cast<int32_t>(tables_.size()); ++slot) {
      int32_t begin = std::numeric_limits<int32_t>::max();
      int32_t end = 0;
      for (const Row& row : rows) {
        if (row.slot != slot) continue;
        begin = std::min(begin, FirstVisible(row.position));
        end = std::max(end, row.position + 1);
      }
      for (int32_t position = begin; position < end; ++position) {
        for (int32_t i = 0; i < 2 * kKvHeads; ++i) {
          const int32_t side = i / kKvHeads;
          const int32_t kv_head = i % kKvHeads;
          const int64_t element = kv.ElementOffset(kLayer, tables_[slot][position / kPageTokens],
                                                   side, kv_head, position % kPageTokens);
          const size_t index = VectorIndex(position, side, kv_head);
          std::memcpy(data.data() + element * ElementBytes(kv.format),
                      stored_[slot].data() + index * VectorBytes(), VectorBytes());
          if (HasScales(kv.format)) scales[element / kv.head_dim] = scales_[slot][index];
        }
      }
      for (int32_t j = 0; j < kv.max_pages_per_slot; ++j) {
        table.push_back(begin < end && j < begin / kPageTokens ? -1 : tables_[slot][j]);
      }
    }
  }

  const Config config_;
  const int32_t heads_;
  std::mt19937 random_;
  int32_t num_pages_ = 0;
  std::vector<std::vector<int32_t>> tables_;  // of each slot
  std::vector<std::vector<uint8_t>> stored_;  // of each slot, by VectorIndex
  std::vector<std::vector<float>> scales_;    // of each slot, by VectorIndex
};

class CudaAttentionTest : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "no CUDA device";
  }
};

// The rows [begin, end) of a slot.
std::vector<Row> Chunk(int32_t slot, int32_t begin, int32_t end) {
  std::vector<Row> rows;
  for (int32_t position = begin; position < end; ++position) rows.push_back({slot, position});
  return rows;
}

// The rows [begin, end) of slot 0, in steps of at most chunk rows.
std::vector<uint16_t> InChunks(Sequences& sequences, int32_t begin, int32_t end, int32_t chunk) {
  std::vector<uint16_t> bits;
  for (; begin < end; begin += chunk) {
    const std::vector<uint16_t> part = sequences.Run(Chunk(0, begin, std::min(end, begin + chunk)));
    bits.insert(bits.end(), part.begin(), part.end());
  }
  return bits;
}

// Index of the first row that differs, or -1.
int32_t FirstDifference(const std::vector<uint16_t>& a, const std::vector<uint16_t>& b,
                        int32_t width) {
  if (a.size() != b.size()) return 0;
  const auto at = std::mismatch(a.begin(), a.end(), b.begin()).first;
  return at == a.end() ? -1 : static_cast<int32_t>((at - a.begin()) / width);
}

std::vector<uint16_t> Line(const std::vector<uint16_t>& bits, int32_t row, int32_t width) {
  return {bits.begin() + size_t{1} * row * width, bits.begin() + size_t{1} * (row + 1) * width};
}

TEST_F(CudaAttentionTest, IsCloseToADoubleLoopForEveryShapeLengthWindowAndCap) {
  for (const int head_dim : kHeadDims) {
    for (const int group : kGroups) {
      for (const auto& [window, cap] :
           {std::pair(0, 0.0f), std::pair(40, 30.0f), std::pair(600, 0.0f)}) {
        const Config config = {head_dim, group, window, cap, {1, 63, 64, 65, 511, 512, 513, 1500}};
        Sequences sequences(config);
        std::vector<Row> rows;
        for (int32_t slot = 0; slot < 8; ++slot) rows.push_back({slot, config.lengths[slot] - 1});
        const std::vector<uint16_t> got = sequences.Run(rows);
        for (int32_t i = 0; i < 8; ++i) {
          ASSERT_NO_FATAL_FAILURE(
              sequences.ExpectClose(rows[i], got.data() + size_t{1} * i * sequences.width()));
        }
      }
    }
  }
}

TEST_F(CudaAttentionTest, ARowHasTheSameBitsAloneAndInChunksOfAnySize) {
  constexpr int32_t kBegin = 420, kEnd = 620;
  int32_t number = 0;
  for (const int head_dim : kHeadDims) {
    for (const int group : kGroups) {
      const int32_t window = std::vector<int32_t>{0, 40, 600, 0}[number % 4];
      const Config config = {head_dim, group, window, number % 2 == 0 ? 0.0f : 30.0f, {kEnd}};
      ++number;
      Sequences sequences(config);
      const std::vector<uint16_t> whole = InChunks(sequences, kBegin, kEnd, 200);
      for (const int32_t chunk : {7, 64, 65}) {
        ASSERT_EQ(
            FirstDifference(whole, InChunks(sequences, kBegin, kEnd, chunk), sequences.width()), -1)
            << config.Text() << " chunk " << chunk;
      }
      for (int32_t position = kBegin; position < kEnd; position += 13) {
        ASSERT_EQ(sequences.Alone({0, position}), Line(whole, position - kBegin, sequences.width()))
            << config.Text() << " position " << position;
      }
      ASSERT_NO_FATAL_FAILURE(sequences.ExpectClose({0, kBegin}, whole.data()));
    }
  }
}

TEST_F(CudaAttentionTest, ARowHasTheSameBitsBesideAnyOthersAndIdleRowsAreZero) {
  for (const int group : {1, 4, 24}) {
    for (const int32_t window : {0, 40}) {
      const Config config = {128, group, window, 0.0f, {1500, 700, 65, 1, 513, 120}};
      Sequences sequences(config);
      const int32_t width = sequences.width();
      std::vector<Row> few = {{3, 0},  kIdle,    {0, 1498}, {0, 1499},
                              {2, 64}, {1, 699}, kIdle,     {4, 512}};
      std::vector<Row> many = few;
      for (const Row& row : Chunk(5, 20, 120)) many.push_back(row);
      many.push_back(kIdle);
      std::vector<Row> padded = few;
      padded.resize(300, kIdle);
      for (const std::vector<Row>& rows : {few, many, padded}) {
        const std::vector<uint16_t> bits = sequences.Run(rows);
        for (size_t i = 0; i < rows.size(); ++i) {
          if (i > 12 && i + 12 < rows.size()) continue;
          const std::vector<uint16_t> want =
              rows[i].slot < 0 ? std::vector<uint16_t>(width) : sequences.Alone(rows[i]);
          ASSERT_EQ(Line(bits, static_cast<int32_t>(i), width), want)
              << config.Text() << " row " << i << " of " << rows.size();
        }
      }
    }
  }
}

TEST_F(CudaAttentionTest, APromptFromItsFirstTokenHasTheBitsOfDecoding) {
  const Config config = {128, 4, 0, 0.0f, {1500}};
  Sequences sequences(config);
  const std::vector<uint16_t> prompt = sequences.Run(Chunk(0, 0, 1500));
  for (int32_t position = 0; position < 1500; position += 37) {
    ASSERT_EQ(sequences.Alone({0, position}), Line(prompt, position, sequences.width()))
        << position;
    ASSERT_NO_FATAL_FAILURE(sequences.ExpectClose(
        {0, position}, prompt.data() + size_t{1} * position * sequences.width()));
  }
}

TEST_F(CudaAttentionTest, B085_PromptsAroundAndAboveTheWindowSeeTheirOwnPastAlone) {
  constexpr int32_t kWindow = 40;
  for (const int32_t length : {kWindow - 1, kWindow, kWindow + 1, 3 * kWindow}) {
    const Config config = {64, 4, kWindow, 0.0f, {length}};
    Sequences sequences(config);
    const int32_t width = sequences.width();
    const std::vector<uint16_t> prompt = sequences.Run(Chunk(0, 0, length));
    for (int32_t position = 0; position < length; ++position) {
      ASSERT_NO_FATAL_FAILURE(
          sequences.ExpectClose({0, position}, prompt.data() + size_t{1} * position * width));
    }
    ASSERT_EQ(sequences.Alone({0, length - 1}), Line(prompt, length - 1, width)) << length;
  }
}

TEST_F(CudaAttentionTest, B083_EightBitCachesInChunksAndWindowsAreCloseAndKeepTheBits) {
  for (const KvFormat format : {KvFormat::kFp8E4M3, KvFormat::kInt8}) {
    for (const int head_dim : kHeadDims) {
      for (const int32_t window : {0, 40}) {
        const Config config = {head_dim, 4, window, 0.0f, {620}, format};
        Sequences sequences(config);
        const std::vector<uint16_t> whole = sequences.Run(Chunk(0, 500, 620));
        for (int32_t position = 500; position < 620; position += 17) {
          const std::vector<uint16_t> alone = sequences.Alone({0, position});
          ASSERT_EQ(alone, Line(whole, position - 500, sequences.width()))
              << config.Text() << " position " << position;
          ASSERT_NO_FATAL_FAILURE(sequences.ExpectClose({0, position}, alone.data()));
        }
      }
    }
  }
}

// Steps of 3 rows run their splits side by side for a context of 2,048 tokens, and one after the
// other for a context whose scratch would be too large.
TEST_F(CudaAttentionTest, TheContextLengthDoesNotChangeBits) {
  Config config = {128, 4, 0, 0.0f, {1500}};
  const std::vector<Row> rows = Chunk(0, 1497, 1500);
  const std::vector<uint16_t> bits = Sequences(config).Run(rows);
  config.context_length = 1 << 24;
  const AttentionShape shape = {8, 2, 128};
  ASSERT_EQ(kernels::cuda::AttentionScratchBytes(shape, 3, config.context_length), 0);
  EXPECT_EQ(Sequences(config).Run(rows), bits);
}

TEST(CudaAttentionSupportTest, ScratchNeverShrinksWithTheNumberOfRows) {
  const AttentionShape shape = {32, 8, 128};
  for (const int32_t context_length : {512, 8192, 131072, 1 << 20}) {
    int64_t before = 0;
    for (int32_t rows = 1; rows <= 4096; ++rows) {
      const int64_t bytes = kernels::cuda::AttentionScratchBytes(shape, rows, context_length);
      ASSERT_GE(bytes, before) << rows << " rows of " << context_length;
      before = bytes;
    }
  }
}

TEST(CudaAttentionSupportTest, NamesWhatItDoesNotSupport) {
  using kernels::cuda::AttentionSupported;
  EXPECT_TRUE(AttentionSupported({32, 8, 128}, KvFormat::kBF16, 0.0f, 0).ok());
  EXPECT_TRUE(AttentionSupported({64, 1, 80}, KvFormat::kInt8, 30.0f, 600).ok());
  const absl::Status head_dim = AttentionSupported({8, 8, 72}, KvFormat::kBF16, 0.0f, 0);
  EXPECT_EQ(head_dim.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(head_dim.message().find("72"), absl::string_view::npos);
  EXPECT_EQ(AttentionSupported({65, 1, 64}, KvFormat::kBF16, 0.0f, 0).code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(AttentionSupported({8, 8, 64}, KvFormat::kF32, 0.0f, 0).code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace tandem::test
