// What is compiled once per SIMD level: choice of the level, accuracy of the elementary functions,
// equal bits of AVX2 and AVX-512, and that no level's code can stand in for another's.
#include "tests/kernels/cpu_levels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace tandem::kernels::cpu {
namespace {

constexpr int32_t kSilu = static_cast<int32_t>(GateKind::kSilu);
constexpr int32_t kGeluTanh = static_cast<int32_t>(GateKind::kGeluTanh);
constexpr int32_t kGeluErf = static_cast<int32_t>(GateKind::kGeluErf);

double Gate(int32_t kind, double x) {
  if (kind == kSilu) return x / (1.0 + std::exp(-x));
  if (kind == kGeluErf) return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0)));
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

std::vector<float> RandomFloats(int32_t count, float scale, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(CpuLevels, RefusesThreadCountsOutOfRange) {
  for (const int32_t num_threads : {-1, 257}) {
    const auto ops = MakeCpuOps({.num_threads = num_threads});
    EXPECT_EQ(ops.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(ops.status().message().find(std::to_string(num_threads)), absl::string_view::npos);
  }
}

TEST(CpuLevels, RefusesALevelThatTheMachineLacks) {
  if (DetectSimdLevel() == SimdLevel::kAvx512) GTEST_SKIP() << "this machine runs every level";
  const auto ops = MakeCpuOps({.num_threads = 1, .simd = SimdLevel::kAvx512});
  EXPECT_EQ(ops.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(CpuLevels, InfoNamesTheLevelAndTheThreads) {
  const auto ops = MakeCpuOps({.num_threads = 3, .simd = SimdLevel::kPortable});
  ASSERT_TRUE(ops.ok());
  EXPECT_NE((*ops)->info().device.find("portable"), std::string::npos);
  EXPECT_NE((*ops)->info().device.find("3 threads"), std::string::npos);
  EXPECT_NE((*ops)->info().numerics.find("portable"), std::string::npos);
}

TEST(CpuLevels, RefusesKvFormatsByName) {
  const auto ops = MakeCpuOps({.num_threads = 1});
  ASSERT_TRUE(ops.ok());
  const AttentionShape shape{9, 3, 64};
  EXPECT_TRUE((*ops)->SupportsAttention(shape, KvFormat::kF32, 0.0f, 0).ok());
  for (const KvFormat format : {KvFormat::kBF16, KvFormat::kFp8E4M3, KvFormat::kInt8}) {
    const absl::Status status = (*ops)->SupportsAttention(shape, format, 0.0f, 0);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_NE(status.message().find(std::string(Name(format))), absl::string_view::npos);
  }
  const absl::Status odd = (*ops)->SupportsAttention({4, 4, 65}, KvFormat::kF32, 0.0f, 0);
  EXPECT_NE(odd.message().find("65"), absl::string_view::npos);
}

TEST(CpuLevels, GatesAreAccurate) {
  std::vector<float> x;
  for (double value = -100.0; value < 100.0; value += 0.00731) {
    x.push_back(static_cast<float>(value));
  }
  const int32_t count = static_cast<int32_t>(x.size());
  const std::vector<float> ones(count, 1.0f);
  std::vector<float> out(count);
  for (const NamedLevel& level : LevelsHere()) {
    for (const int32_t kind : {kSilu, kGeluTanh, kGeluErf}) {
      level.kernels->gate(kind, x.data(), ones.data(), count, out.data());
      for (int32_t i = 0; i < count; ++i) {
        ASSERT_NEAR(out[i], Gate(kind, x[i]), 4e-7 * std::max(1.0f, std::abs(x[i])))
            << Name(level.level) << " kind " << kind << " of " << x[i];
      }
    }
  }
}

TEST(CpuLevels, CapsAreAccurate) {
  const std::vector<float> x = RandomFloats(1001, 40.0f, 1);
  for (const NamedLevel& level : LevelsHere()) {
    std::vector<float> out = x;
    level.kernels->scale_and_cap(0.5f, 30.0f, out.data(), 1001);
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(out[i], 30.0 * std::tanh(0.5 * x[i] / 30.0), 1e-5) << Name(level.level);
    }
  }
}

TEST(CpuLevels, NaNStaysNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const NamedLevel& level : LevelsHere()) {
    for (const int32_t kind : {kSilu, kGeluTanh, kGeluErf}) {
      float gate = nan, up = 1.0f, out = 0.0f;
      level.kernels->gate(kind, &gate, &up, 1, &out);
      EXPECT_TRUE(std::isnan(out)) << Name(level.level) << " kind " << kind;
    }
    float value = nan;
    level.kernels->scale_and_cap(1.0f, 30.0f, &value, 1);
    EXPECT_TRUE(std::isnan(value)) << Name(level.level);
    std::vector<float> row(40, 1.0f), ones(40, 1.0f), normed(40);
    row[17] = nan;
    level.kernels->norm({ones.data(), 40, 1e-5f, 0.0f}, row.data(), normed.data());
    EXPECT_TRUE(std::isnan(normed[0])) << Name(level.level);
  }
}

TEST(CpuLevels, RowsOfAnyWidthAreNormedAndTheirNeighboursKept) {
  for (const NamedLevel& level : LevelsHere()) {
    for (int32_t width = 1; width < 150; ++width) {
      const std::vector<float> x = RandomFloats(width, 3.0f, width);
      const std::vector<float> weight = RandomFloats(width, 1.0f, width + 1000);
      std::vector<float> out(width + 1, 77.0f);
      level.kernels->norm({weight.data(), width, 1e-5f, 1.0f}, x.data(), out.data());
      double sum = 0.0;
      for (const float value : x) sum += double{value} * value;
      for (int32_t i = 0; i < width; ++i) {
        ASSERT_NEAR(out[i], x[i] / std::sqrt(sum / width + 1e-5) * (1.0 + weight[i]), 1e-5);
      }
      ASSERT_EQ(out[width], 77.0f);
    }
  }
}

// Attention of `rows` query rows from first_position on, over pages whose keys and values are
// random.
std::vector<float> Attend(const Kernels& kernels, int32_t head_dim, int32_t group, int32_t window,
                          float cap, int32_t first_position, int32_t rows) {
  const int32_t num_pages = (first_position + rows) / kPageTokens + 1;
  const int64_t page_stride = int64_t{2} * kPageTokens * head_dim;
  const std::vector<float> cache =
      RandomFloats(static_cast<int32_t>(num_pages * page_stride), 1, 7);
  std::vector<int32_t> pages(num_pages);
  for (int32_t i = 0; i < num_pages; ++i) pages[i] = num_pages - 1 - i;
  const int32_t width = group * head_dim;
  // A row's query is a function of its position, however many rows there are.
  const std::vector<float> all = RandomFloats((first_position + rows) * width, 1.0f, 9);
  std::vector<float> out(rows * width);
  AttentionTask task;
  task.keys = cache.data();
  task.values = cache.data() + kPageTokens * head_dim;
  task.page_stride = page_stride;
  task.pages = pages.data();
  task.head_dim = head_dim;
  task.group = group;
  task.window = window;
  task.scale = 0.125f;
  task.soft_cap = cap;
  task.q = all.data() + int64_t{first_position} * width;
  task.out = out.data();
  task.row_stride = width;
  kernels.attention(task, first_position, rows);
  return out;
}

TEST(CpuLevels, Avx2AndAvx512GiveTheSameBits) {
  const std::vector<NamedLevel> levels = LevelsHere();
  if (levels.size() < 3) GTEST_SKIP() << "this machine runs " << Name(DetectSimdLevel());
  const Kernels &narrow = *levels[1].kernels, &wide = *levels[2].kernels;
  for (const int32_t head_dim : {8, 64, 72, 80, 128}) {
    for (const int32_t group : {1, 3, 6}) {
      EXPECT_EQ(Attend(narrow, head_dim, group, 0, 0.0f, 130, 3),
                Attend(wide, head_dim, group, 0, 0.0f, 130, 3));
      EXPECT_EQ(Attend(narrow, head_dim, group, 70, 20.0f, 130, 3),
                Attend(wide, head_dim, group, 70, 20.0f, 130, 3));
    }
  }
  const std::vector<float> x = RandomFloats(777, 4.0f, 11), up = RandomFloats(777, 1.0f, 12);
  std::vector<float> first(777), second(777);
  for (const int32_t kind : {kSilu, kGeluTanh, kGeluErf}) {
    narrow.gate(kind, x.data(), up.data(), 777, first.data());
    wide.gate(kind, x.data(), up.data(), 777, second.data());
    EXPECT_EQ(first, second) << "gate " << kind;
  }
  narrow.norm({up.data(), 777, 1e-5f, 0.0f}, x.data(), first.data());
  wide.norm({up.data(), 777, 1e-5f, 0.0f}, x.data(), second.data());
  EXPECT_EQ(first, second) << "norm";
}

// An inline function with external linkage in a level's object could be the copy that the linker
// keeps for all levels, and a machine without that level would run it.
TEST(CpuLevels, ObjectsOfALevelShareNoFunctions) {
  const std::string command = "nm -A -C --defined-only " TANDEM_KERNELS_CPU_ARCHIVE;
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  int32_t kernel_tables = 0;
  char line[4096];
  while (std::fgets(line, sizeof(line), pipe) != nullptr) {
    const std::string text = line;
    bool is_level_object = false;
    for (const char* source : {"attention", "draw_rows", "products", "rows", "table"}) {
      is_level_object |= text.find(std::string(":") + source + ".cc.o:") != std::string::npos;
    }
    if (!is_level_object) continue;
    if (text.find("::Table()") != std::string::npos) ++kernel_tables;
    EXPECT_EQ(text.find(" W "), std::string::npos) << text;
  }
  ASSERT_EQ(pclose(pipe), 0);
  EXPECT_GE(kernel_tables, static_cast<int32_t>(LevelsHere().size()));
}

}  // namespace
}  // namespace tandem::kernels::cpu
