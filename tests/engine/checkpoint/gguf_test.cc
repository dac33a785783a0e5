#include "engine/checkpoint/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/gguf_writer.h"

namespace tandem {
namespace {

using test::GgufWriter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Gguf : public testing::Test {
 protected:
  // The file must be sound.
  const GgufFile& Parse(const GgufWriter& writer) {
    bytes_ = writer.Build();
    auto file = GgufFile::Parse({reinterpret_cast<const uint8_t*>(bytes_.data()), bytes_.size()});
    EXPECT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
    return *file_;
  }

  std::string bytes_;
  std::unique_ptr<GgufFile> file_;
};

template <typename T>
std::string ErrorOf(const absl::StatusOr<T>& result) {
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(result.status().message());
}

TEST_F(Gguf, ReadsEveryKindOfValue) {
  GgufWriter writer;
  writer.Uint32("u32", 7)
      .Uint64("u64", 1ull << 40)
      .Float32("f32", 0.5f)
      .Bool("yes", true)
      .Bool("no", false);
  writer.Text("text", "grüße").TextArray("texts", {"a", "", "bc"}).Int32Array("ints", {-1, 2});
  writer.FloatArray("floats", {1.5f}).Raw("i8", GgufWriter::kInt8, "\xff");
  const GgufFile& file = Parse(writer);
  EXPECT_EQ(*file.Int("u32", 0, 10), 7);
  EXPECT_EQ(*file.Int("u64", 0, INT64_MAX), int64_t{1} << 40);
  EXPECT_EQ(*file.Int("i8", -1, -1), -1);
  EXPECT_EQ(*file.Real("f32"), 0.5);
  EXPECT_TRUE(*file.Bool("yes"));
  EXPECT_FALSE(*file.Bool("no"));
  EXPECT_EQ(*file.Text("text"), "grüße");
  EXPECT_THAT(*file.TextArray("texts"), ElementsAre("a", "", "bc"));
  EXPECT_THAT(*file.Int32Array("ints"), ElementsAre(-1, 2));
  EXPECT_THAT(*file.FloatArray("floats"), ElementsAre(1.5f));
}

TEST_F(Gguf, ReadsVersion2) {
  GgufWriter writer;
  writer.version = 2;
  writer.Uint32("a", 1);
  EXPECT_EQ(*Parse(writer).Int("a", 0, 1), 1);
}

TEST_F(Gguf, FindsTensorsWithShapeTypeAndBytes) {
  GgufWriter writer;
  writer.Tensor("one", kernels::DType::kF32, {3}, "aaaabbbbcccc");
  writer.Tensor("two", kernels::DType::kQ8_0, {32, 2}, std::string(68, 'q'));
  const GgufFile& file = Parse(writer);
  ASSERT_EQ(file.tensors().size(), 2u);
  const GgufTensor* one = file.FindTensor("one");
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(one->num_dims, 1);
  EXPECT_EQ(one->dims[0], 3);
  EXPECT_EQ(std::string(one->bytes.begin(), one->bytes.end()), "aaaabbbbcccc");
  const GgufTensor* two = file.FindTensor("two");
  ASSERT_NE(two, nullptr);
  EXPECT_EQ(two->dtype, kernels::DType::kQ8_0);
  EXPECT_THAT(two->dims, ElementsAre(32, 2, 1, 1));
  EXPECT_EQ(two->bytes.size(), 68u);
  EXPECT_EQ(file.FindTensor("three"), nullptr);
}

TEST_F(Gguf, PutsTensorsWhereTheAlignmentOfTheFileSays) {
  for (const uint32_t alignment : {8u, 64u, 4096u}) {
    GgufWriter writer;
    writer.alignment = alignment;
    writer.Uint32("general.alignment", alignment);
    writer.Tensor("a", kernels::DType::kF32, {1}, "1234")
        .Tensor("b", kernels::DType::kF32, {1}, "5678");
    const GgufTensor* tensor = Parse(writer).FindTensor("b");
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(std::string(tensor->bytes.begin(), tensor->bytes.end()), "5678") << alignment;
  }
}

TEST_F(Gguf, NeedsNoPaddingBehindTheLastTensorOrBehindAHeaderWithoutTensors) {
  GgufWriter writer;
  writer.Uint32("a", 1);
  std::string bytes = writer.Build();
  bytes.resize(4 + 4 + 8 + 8 + 8 + 1 + 4 + 4);
  EXPECT_TRUE(GgufFile::Parse({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}).ok());
}

TEST_F(Gguf, NamesTheMissingKey) {
  EXPECT_THAT(ErrorOf(Parse(GgufWriter()).Int("llama.block_count", 0, 1)),
              HasSubstr("\"llama.block_count\" is missing"));
}

TEST_F(Gguf, ChecksTheRangeOfIntegers) {
  GgufWriter writer;
  writer.Uint32("n", 7)
      .Uint64("huge", UINT64_MAX)
      .Raw("minus", GgufWriter::kInt32, GgufWriter::Number32(UINT32_MAX));
  const GgufFile& file = Parse(writer);
  EXPECT_THAT(ErrorOf(file.Int("n", 8, 9)), HasSubstr("is 7: it must be 8 to 9"));
  EXPECT_THAT(ErrorOf(file.Int("n", 0, 6)), HasSubstr("is 7: it must be 0 to 6"));
  EXPECT_THAT(ErrorOf(file.Int("minus", 0, 6)), HasSubstr("is -1"));
  EXPECT_THAT(ErrorOf(file.Int("huge", 0, INT64_MAX)), HasSubstr("above 2^63"));
}

TEST_F(Gguf, RefusesNumbersThatAreNotFinite) {
  GgufWriter writer;
  writer.Float32("nan", std::numeric_limits<float>::quiet_NaN());
  writer.Float32("inf", std::numeric_limits<float>::infinity());
  const GgufFile& file = Parse(writer);
  EXPECT_THAT(ErrorOf(file.Real("nan")), HasSubstr("finite"));
  EXPECT_THAT(ErrorOf(file.Real("inf")), HasSubstr("finite"));
}

TEST_F(Gguf, TakesTextThatIsUtf8) {
  for (const char* text :
       {"", "plain", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
        "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "a\xF4\x8F\xBF\xBFz"}) {
    GgufWriter writer;
    EXPECT_EQ(*Parse(writer.Text("text", text)).Text("text"), text);
  }
}

// Lone and missing continuation bytes, overlong forms, surrogates, beyond U+10FFFF, bytes that
// never occur.
TEST_F(Gguf, RefusesTextThatIsNotUtf8) {
  for (const char* text :
       {"a\x80", "\xC3", "\xC3(", "\xE2\x82", "\xE2(\xA1", "\xF0\x9F\x9A", "\xC0\x80", "\xC1\xBF",
        "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF", "\xED\xA0\x80", "\xED\xBF\xBF", "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80", "\xF8\x88\x80\x80\x80", "\xFE", "\xFF"}) {
    GgufWriter writer;
    writer.Text("text", text).TextArray("texts", {"fine", text});
    const GgufFile& file = Parse(writer);
    EXPECT_THAT(ErrorOf(file.Text("text")), HasSubstr("not UTF-8")) << text;
    EXPECT_THAT(ErrorOf(file.TextArray("texts")), HasSubstr("not UTF-8")) << text;
  }
}

// scores declared INT8 and read as float would be read past their end.
TEST_F(Gguf, B167_ChecksTypeOfEveryTypedAccess) {
  GgufWriter writer;
  std::string int8_array =
      GgufWriter::Number32(GgufWriter::kInt8) + GgufWriter::Number64(4) + "abcd";
  writer.Raw("scores", GgufWriter::kArray, int8_array);
  writer.Uint32("int", 1).Float32("real", 1.0f).Text("text", "t").TextArray("texts", {"t"});
  const GgufFile& file = Parse(writer);
  EXPECT_THAT(ErrorOf(file.FloatArray("scores")),
              HasSubstr("\"scores\" is an array of INT8, not an array of FLOAT32"));
  EXPECT_THAT(ErrorOf(file.Int32Array("scores")), HasSubstr("not an array of INT32"));
  EXPECT_THAT(ErrorOf(file.TextArray("scores")), HasSubstr("not an array of STRING"));
  EXPECT_THAT(ErrorOf(file.Int("scores", 0, 1)), HasSubstr("not a single value"));
  EXPECT_THAT(ErrorOf(file.Text("texts")), HasSubstr("not a single value"));
  EXPECT_THAT(ErrorOf(file.TextArray("text")), HasSubstr("not an array"));
  EXPECT_THAT(ErrorOf(file.Text("int")), HasSubstr("not STRING"));
  EXPECT_THAT(ErrorOf(file.Bool("int")), HasSubstr("not BOOL"));
  EXPECT_THAT(ErrorOf(file.Real("int")), HasSubstr("not FLOAT32"));
  EXPECT_THAT(ErrorOf(file.Int("real", 0, 1)), HasSubstr("not an integer"));
  EXPECT_THAT(ErrorOf(file.ByteArray("texts")), HasSubstr("not an array of UINT8"));
  EXPECT_EQ(*file.ByteArray("scores"), "abcd");
}

TEST_F(Gguf, TakesUnsignedArraysForInt32WhereTheyFit) {
  const auto array = [](uint32_t value) {
    return GgufWriter::Number32(GgufWriter::kUint32) + GgufWriter::Number64(1) +
           GgufWriter::Number32(value);
  };
  GgufWriter writer;
  writer.Raw("fits", GgufWriter::kArray, array(INT32_MAX))
      .Raw("too_large", GgufWriter::kArray, array(1u << 31));
  const GgufFile& file = Parse(writer);
  EXPECT_THAT(*file.Int32Array("fits"), ElementsAre(INT32_MAX));
  EXPECT_THAT(ErrorOf(file.Int32Array("too_large")), HasSubstr("2147483648 at index 0"));
}

TEST_F(Gguf, B177_EscapesAndShortensWhatItQuotesFromAFile) {
  EXPECT_EQ(Quoted("a\r\nERROR forged\x1b"), "\"a\\r\\nERROR forged\\x1b\"");
  EXPECT_EQ(Quoted(std::string(200, 'x')).size(), 64u + 5u);
}

TEST(GgufOpen, SaysWhatIsWrongWithThePath) {
  EXPECT_EQ(GgufFile::Open("/nonexistent/model.gguf").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(ErrorOf(GgufFile::Open(".")), HasSubstr(". is not a regular file"));
}

}  // namespace
}  // namespace tandem
