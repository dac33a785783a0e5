// Broken files of every kind that we could think of or that the field has met: each gives the right
// status, a message that says what is wrong, and neither reads outside the file nor allocates by a
// number that the file made up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_checkpoint.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_model.h"

namespace tandem {
namespace {

using kernels::DType;
using test::GgufWriter;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
// A file of a few kB may cost this much memory: containers grow in steps, messages are strings.
constexpr int64_t kMaxAllocated = int64_t{1} << 20;

GgufWriter SmallModel() {
  return test::TinyModelWriter({.num_layers = 1,
                                .hidden_size = 16,
                                .ffn_size = 16,
                                .num_heads = 2,
                                .num_kv_heads = 1,
                                .head_dim = 8});
}

struct BrokenCase {
  std::string name;
  absl::StatusCode code;
  std::string message;  // a part of it
  std::function<std::string()> make;
};

void PrintTo(const BrokenCase& broken, std::ostream* out) { *out << broken.name; }

// A whole model with one thing changed.
BrokenCase Model(std::string name, absl::StatusCode code, std::string message,
                 std::function<void(GgufWriter&)> change) {
  return {std::move(name), code, std::move(message), [change = std::move(change)] {
            GgufWriter writer = SmallModel();
            change(writer);
            return writer.Build();
          }};
}

// A header of our own making.
BrokenCase Header(std::string name, absl::StatusCode code, std::string message,
                  std::function<void(GgufWriter&)> fill) {
  return {std::move(name), code, std::move(message), [fill = std::move(fill)] {
            GgufWriter writer;
            fill(writer);
            return writer.Build();
          }};
}

BrokenCase Bytes(std::string name, absl::StatusCode code, std::string message, std::string bytes) {
  return {std::move(name), code, std::move(message), [bytes = std::move(bytes)] { return bytes; }};
}

std::string Start(uint64_t num_tensors, uint64_t num_keys) {
  return "GGUF" + GgufWriter::Number32(3) + GgufWriter::Number64(num_tensors) +
         GgufWriter::Number64(num_keys);
}

std::string ArrayOf(uint32_t type, uint64_t count, const std::string& elements) {
  return GgufWriter::Number32(type) + GgufWriter::Number64(count) + elements;
}

GgufWriter::TensorEntry Entry(DType dtype, std::vector<uint64_t> dims, size_t bytes) {
  return {"t", GgufWriter::GgmlType(dtype), std::move(dims), std::string(bytes, '\0'), {}};
}

std::vector<BrokenCase> HeaderCases() {
  const std::string room(4096, '\0');
  return {
      Bytes("Empty", kInvalid, "ends inside the magic", ""),
      Bytes("B161_MagicOnly", kInvalid, "ends inside the version", "GGUF"),
      Bytes("HalfAVersion", kInvalid, "ends inside the version", "GGUF\3"),
      Bytes("OtherMagic", kInvalid, "not a GGUF file", "GGML" + room),
      Bytes("OldMagicBackwards", kInvalid, "not a GGUF file", "FUGG" + room),
      Bytes("NoCounts", kInvalid, "ends inside the number of tensors",
            "GGUF" + GgufWriter::Number32(3)),
      Header("Version0", kUnimplemented, "version 0", [](GgufWriter& w) { w.version = 0; }),
      Header("Version1", kUnimplemented, "version 1", [](GgufWriter& w) { w.version = 1; }),
      Header("Version4", kUnimplemented, "version 4", [](GgufWriter& w) { w.version = 4; }),
      Header("BigEndian", kUnimplemented, "big-endian",
             [](GgufWriter& w) { w.version = 3u << 24; }),
      Bytes("KeyCount2To64", kInvalid, "18446744073709551615 keys", Start(0, UINT64_MAX) + room),
      Bytes("KeyCount2To63", kInvalid, "9223372036854775808 keys", Start(0, 1ull << 63) + room),
      Bytes("KeyCountAboveTheBytesLeft", kInvalid, "400 keys", Start(0, 400) + room),
      Bytes("KeyCountAboveTheLimit", kInvalid, "20000 keys: at most 16384",
            Start(0, 20000) + std::string(300000, '\0')),
      Bytes("TensorCount2To64", kInvalid, "18446744073709551615 tensors",
            Start(UINT64_MAX, 0) + room),
      Bytes("B159_TooManyTensors", kInvalid, "1290000 tensors: at most 65536",
            Start(1290000, 0) + std::string(1290000 * 33, '\0')),
      Model("OneKeyMoreThanThereAre", kInvalid, "", [](GgufWriter& w) { w.num_keys = 25; }),
      Model("OneTensorMoreThanThereAre", kInvalid, "", [](GgufWriter& w) { w.num_tensors = 13; }),
      Bytes("B155_KeyLengthNear2To64", kInvalid, "has 18446744073709551614 bytes",
            Start(0, 1) + GgufWriter::Number64(UINT64_MAX - 1) + room),
      Bytes("KeyLengthBeyondTheFile", kInvalid, "ends inside the key",
            Start(0, 1) + GgufWriter::Number64(1000) + std::string(20, 'k')),
      Bytes("KeyLongerThanTheLimit", kInvalid, "at most 1024",
            Start(0, 1) + GgufWriter::Number64(1025) + room),
      Header("B155_StringLengthNear2To64", kInvalid, "key \"k\": the string",
             [](GgufWriter& w) {
               w.Raw("k", GgufWriter::kString, GgufWriter::Number64(UINT64_MAX - 7));
             }),
      Header("B169_StringLengthBeyondTheFile", kInvalid, "ends inside the string",
             [](GgufWriter& w) {
               w.Raw("k", GgufWriter::kString, GgufWriter::Number64(16000000) + "short");
             }),
      Header("StringLongerThanTheLimit", kInvalid, "at most 16777216",
             [](GgufWriter& w) {
               w.Raw("k", GgufWriter::kString, GgufWriter::Number64(1 << 30) + "short");
             }),
      Header("ValueType13", kInvalid, "value type 13",
             [](GgufWriter& w) { w.Raw("k", 13, "aaaaaaaa"); }),
      Header("ValueType2To32", kInvalid, "value type 4294967295",
             [](GgufWriter& w) { w.Raw("k", UINT32_MAX, "aaaaaaaa"); }),
      Header("ArrayOfArrays", kUnimplemented, "arrays of arrays",
             [](GgufWriter& w) { w.Raw("k", 9, ArrayOf(9, 1, ArrayOf(4, 1, "aaaa"))); }),
      Header("ArrayOfAnUnknownType", kInvalid, "value type 99",
             [](GgufWriter& w) { w.Raw("k", 9, ArrayOf(99, 1, "aaaa")); }),
      Header("B169_ArrayCountNear2To64", kInvalid, "18446744073709551615 elements",
             [](GgufWriter& w) { w.Raw("k", 9, ArrayOf(4, UINT64_MAX, "aaaa")); }),
      Header("ArrayBytesWrap", kInvalid, "4611686018427387905 elements",
             [](GgufWriter& w) { w.Raw("k", 9, ArrayOf(4, (1ull << 62) + 1, "aaaa")); }),
      Header("B169_ArrayCountBeyondTheFile", kInvalid, "ends inside the value",
             [](GgufWriter& w) { w.Raw("k", 9, ArrayOf(10, 1 << 24, "aaaa")); }),
      Header("B169_StringArrayCountBeyondTheFile", kInvalid, "ends inside the string",
             [](GgufWriter& w) { w.Raw("k", 9, ArrayOf(8, 1 << 24, std::string(80, '\0'))); }),
      Header("StringInAnArrayNear2To64", kInvalid, "at most 16777216",
             [](GgufWriter& w) {
               w.Raw("k", 9, ArrayOf(8, 2, GgufWriter::String("a") + GgufWriter::Number64(~0ull)));
             }),
      Header("BoolOf2", kInvalid, "neither 0 nor 1",
             [](GgufWriter& w) { w.Raw("k", GgufWriter::kBool, "\2"); }),
      Header("KeyTwice", kInvalid, "key \"k\" stands there twice",
             [](GgufWriter& w) { w.Uint32("k", 1).Uint32("k", 1); }),
      Header("Alignment0", kInvalid, "\"general.alignment\" is 0",
             [](GgufWriter& w) { w.Uint32("general.alignment", 0); }),
      Header("Alignment48", kInvalid, "48: it must be a power of two",
             [](GgufWriter& w) { w.Uint32("general.alignment", 48); }),
      Header("Alignment2To31", kInvalid, "2147483648: it must be 8 to 65536",
             [](GgufWriter& w) { w.Uint32("general.alignment", 1u << 31); }),
      Header("B165_AlignmentNear2To64", kInvalid, "above 2^63",
             [](GgufWriter& w) { w.Uint64("general.alignment", 1ull << 63); }),
      Header("AlignmentIsText", kInvalid, "not an integer",
             [](GgufWriter& w) { w.Text("general.alignment", "32"); }),
  };
}

std::vector<BrokenCase> TensorCases() {
  const auto tensor = [](const char* name, absl::StatusCode code, const char* message,
                         GgufWriter::TensorEntry entry) {
    return Header(name, code, message, [entry](GgufWriter& w) { w.Tensor(entry); });
  };
  const auto at = [](GgufWriter::TensorEntry entry, uint64_t offset) {
    entry.offset = offset;
    return entry;
  };
  const auto type = [](uint32_t number) {
    GgufWriter::TensorEntry entry = Entry(DType::kF32, {32}, 128);
    entry.ggml_type = number;
    return entry;
  };
  return {
      tensor("NameTooLong", kInvalid, "at most 256", {std::string(300, 'n'), 0, {1}, "aaaa", {}}),
      tensor("NoDimensions", kInvalid, "tensor \"t\": 0 dimensions", Entry(DType::kF32, {}, 4)),
      tensor("FiveDimensions", kInvalid, "5 dimensions: there must be 1 to 4",
             Entry(DType::kF32, {1, 1, 1, 1, 1}, 4)),
      Bytes("DimensionCountNear2To32", kInvalid, "4294967295 dimensions",
            Start(1, 0) + GgufWriter::String("t") + GgufWriter::Number32(UINT32_MAX) +
                std::string(100, '\1')),
      tensor("DimensionOf0", kInvalid, "dimension 1 is 0", Entry(DType::kF32, {32, 0}, 4)),
      tensor("B163_DimensionWhoseBytesWrapTo0", kInvalid, "pass the end of the file",
             Entry(DType::kF32, {1ull << 42}, 4)),
      tensor("B163_DimensionsThatWrap", kInvalid, "overflows",
             Entry(DType::kF32, {(1ull << 42) + 1, 1ull << 22}, 4)),
      tensor("B157_ShapeOf4Modulo2To64", kInvalid, "overflows",
             Entry(DType::kF32, {4194305, 4194305, 211106198978564}, 16)),
      tensor("DimensionNear2To64", kInvalid, "overflows", Entry(DType::kF32, {UINT64_MAX}, 4)),
      tensor("BytesOverflow", kInvalid, "size in bytes overflows",
             Entry(DType::kF32, {1ull << 62}, 4)),
      tensor("TypeQ5K", kUnimplemented, "type Q5_K is not supported", type(13)),
      tensor("TypeQ6K", kUnimplemented, "type Q6_K is not supported", type(14)),
      tensor("TypeIq4Xs", kUnimplemented, "type IQ4_XS is not supported", type(23)),
      tensor("TypeI32", kUnimplemented, "type I32 is not supported", type(26)),
      tensor("TypeThatWasRemoved", kInvalid, "ggml type 4 does not exist", type(4)),
      tensor("TypeNear2To32", kInvalid, "ggml type 4294967295 does not exist", type(UINT32_MAX)),
      tensor("RowOfHalfABlock", kInvalid, "are not whole Q8_0 blocks of 32",
             Entry(DType::kQ8_0, {48, 2}, 102)),
      tensor("OffsetNotAligned", kInvalid, "offset 4 is not a multiple of the alignment 32",
             at(Entry(DType::kF32, {1}, 64), 4)),
      tensor("OffsetBehindTheFile", kInvalid, "pass the end of the file",
             at(Entry(DType::kF32, {1}, 4), 1 << 20)),
      tensor("OffsetNear2To64", kInvalid, "pass the end of the file",
             at(Entry(DType::kF32, {8}, 32), ~0ull << 5)),
      tensor("OffsetOf2To63", kInvalid, "pass the end of the file",
             at(Entry(DType::kF32, {8}, 32), 1ull << 63)),
      tensor("OneByteTooFew", kInvalid, "40 bytes at offset 0 pass the end of the file",
             Entry(DType::kF32, {10}, 39)),
      tensor("NoData", kInvalid, "pass the end of the file", Entry(DType::kF32, {10}, 0)),
      Header("Overlap", kInvalid, "tensors \"a\" and \"b\" overlap",
             [](GgufWriter& w) {
               w.Tensor({"b", 0, {16}, std::string(64, 'b'), 32});
               w.Tensor({"a", 0, {16}, std::string(64, 'a'), 0});
             }),
      Header("SamePlace", kInvalid, "overlap",
             [](GgufWriter& w) {
               w.Tensor({"a", 0, {8}, std::string(32, 'a'), 0});
               w.Tensor({"b", 0, {8}, std::string(32, 'b'), 0});
             }),
      Header("TensorTwice", kInvalid, "tensor \"a\" stands there twice",
             [](GgufWriter& w) {
               w.Tensor({"a", 0, {8}, std::string(32, 'a'), {}});
               w.Tensor({"a", 0, {8}, std::string(32, 'a'), {}});
             }),
  };
}

BrokenCase Set(const char* name, absl::StatusCode code, const char* message, const char* key,
               uint32_t value) {
  return Model(name, code, message,
               [key, value](GgufWriter& w) { w.Remove(key).Uint32(key, value); });
}
BrokenCase Real(const char* name, absl::StatusCode code, const char* message, const char* key,
                float value) {
  return Model(name, code, message,
               [key, value](GgufWriter& w) { w.Remove(key).Float32(key, value); });
}
BrokenCase Without(const char* name, const char* message, const char* key) {
  return Model(name, kInvalid, message, [key](GgufWriter& w) { w.Remove(key); });
}

std::vector<BrokenCase> ModelCases() {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const char* const eps = "llama.attention.layer_norm_rms_epsilon";
  const char* const heads = "llama.attention.head_count";
  const char* const kv_heads = "llama.attention.head_count_kv";
  return {
      Without("NoArchitecture", "\"general.architecture\" is missing", "general.architecture"),
      Set("ArchitectureIsANumber", kInvalid, "not STRING", "general.architecture", 1),
      Model("OtherArchitecture", kUnimplemented, "architecture \"qwen3\" is not supported",
            [](GgufWriter& w) {
              w.Remove("general.architecture").Text("general.architecture", "qwen3");
            }),
      Without("NoLayerCount", "\"llama.block_count\" is missing", "llama.block_count"),
      Set("NoLayers", kInvalid, "\"llama.block_count\" is 0", "llama.block_count", 0),
      Set("LayersNear2To32", kInvalid, "4294967295: it must be 1 to 4096", "llama.block_count",
          UINT32_MAX),
      Set("MoreLayersThanTensors", kInvalid, "4096 layers", "llama.block_count", 4096),
      Set("OneLayerTooMany", kInvalid, "tensor blk.1.attn_norm.weight is missing",
          "llama.block_count", 2),
      Real("LayerCountIsAFloat", kInvalid, "FLOAT32, not an integer", "llama.block_count", 1.0f),
      Set("OtherWidth", kInvalid, "tensor token_embd.weight has the shape",
          "llama.embedding_length", 32),
      Set("OtherFfnWidth", kInvalid, "tensor blk.0.ffn_gate.weight has the shape",
          "llama.feed_forward_length", 32),
      Set("ContextOf0", kInvalid, "\"llama.context_length\" is 0", "llama.context_length", 0),
      Set("ContextNear2To32", kInvalid, "\"llama.context_length\" is 4294967295",
          "llama.context_length", UINT32_MAX),
      Set("NoHeads", kInvalid, "\"llama.attention.head_count\" is 0", heads, 0),
      Model("HeadsThatDoNotDivide", kInvalid, "3 query heads over 2 kv heads",
            [](GgufWriter& w) {
              w.Remove("llama.attention.head_count").Uint32("llama.attention.head_count", 3);
              w.Remove("llama.attention.head_count_kv").Uint32("llama.attention.head_count_kv", 2);
            }),
      Set("KvHeadsAboveHeads", kInvalid, "2 query heads over 3 kv heads", kv_heads, 3),
      Set("OtherHeads", kInvalid, "tensor blk.0.attn_q.weight has the shape [16, 16]", heads, 4),
      Set("HeadDimNear2To32", kInvalid, "4294967295: it must be", "llama.attention.key_length",
          UINT32_MAX),
      Set("OtherValueLength", kUnimplemented, "different lengths", "llama.attention.value_length",
          16),
      Set("OddRotaryDim", kInvalid, "must be even", "llama.rope.dimension_count", 7),
      Set("RotaryDimAboveHeadDim", kInvalid, "it must be 2 to 8", "llama.rope.dimension_count", 10),
      Real("RopeBaseOf0", kInvalid, "must be above 0", "llama.rope.freq_base", 0.0f),
      Real("RopeBaseNan", kInvalid, "must be finite", "llama.rope.freq_base", kNan),
      Without("B105_NoEpsilon", "layer_norm_rms_epsilon\" is missing", eps),
      Real("EpsilonOf0", kInvalid, "must be above 0", eps, 0.0f),
      Real("EpsilonNegative", kInvalid, "must be above 0", eps, -1e-5f),
      Real("EpsilonNan", kInvalid, "must be finite", eps, kNan),
      Real("EpsilonOf1", kInvalid, "must be between 0 and 1", eps, 1.0f),
      Set("OtherVocabulary", kInvalid, "tensor token_embd.weight has the shape", "llama.vocab_size",
          17),
      Set("UnknownKey", kUnimplemented, "key \"llama.attention.clamp_kqv\" is not supported",
          "llama.attention.clamp_kqv", 8),
      Set("Experts", kUnimplemented, "expert_count is 8", "llama.expert_count", 8),
      Model("NoEmbedding", kInvalid, "tensor token_embd.weight is missing",
            [](GgufWriter& w) { w.RemoveTensor("token_embd.weight"); }),
      Model("NoDownProjection", kInvalid, "tensor blk.0.ffn_down.weight is missing",
            [](GgufWriter& w) { w.RemoveTensor("blk.0.ffn_down.weight"); }),
      Model(
          "UnknownTensor", kUnimplemented, "tensor \"blk.0.attn_sinks.weight\" has no place",
          [](GgufWriter& w) { w.Tensor("blk.0.attn_sinks.weight", DType::kF32, {2}, "aaaabbbb"); }),
      Model("TransposedMatrix", kInvalid,
            "has the shape [16, 8]: the configuration asks for [8, 16]",
            [](GgufWriter& w) {
              w.FindTensor("blk.0.attn_k.weight")->dims = {8, 16};
            }),
      Model("NormAsMatrix", kInvalid, "has the shape [1, 16]: the configuration asks for [16]",
            [](GgufWriter& w) {
              w.FindTensor("output_norm.weight")->dims = {16, 1};
            }),
      Model("QuantisedBias", kUnimplemented, "vectors must be F32, F16 or BF16",
            [](GgufWriter& w) {
              w.Remove("llama.attention.head_count").Uint32("llama.attention.head_count", 4);
              w.FindTensor("blk.0.attn_q.weight")->dims = {16, 32};
              w.FindTensor("blk.0.attn_q.weight")->bytes = std::string(2048, '\0');
              w.Tensor("blk.0.attn_q.bias", DType::kQ8_0, {32}, std::string(34, '\0'));
            }),
      Model("RopeFactorsOfAnotherLength", kInvalid, "rope_freqs.weight must be F32 [4]",
            [](GgufWriter& w) {
              w.Tensor("rope_freqs.weight", DType::kF32, {3}, std::string(12, '\0'));
            }),
      Model("RopeFactorsOf0", kInvalid, "factors must be above 0",
            [](GgufWriter& w) {
              w.Tensor("rope_freqs.weight", DType::kF32, {4}, std::string(16, '\0'));
            }),
  };
}

std::vector<BrokenCase> AllCases() {
  std::vector<BrokenCase> all = HeaderCases();
  for (auto* more : {&TensorCases, &ModelCases}) {
    for (BrokenCase& broken : (*more)()) all.push_back(std::move(broken));
  }
  return all;
}

class BrokenGguf : public testing::TestWithParam<BrokenCase> {};

TEST_P(BrokenGguf, IsRefusedWithAReasonAndWithoutMuchMemory) {
  const std::string made = GetParam().make();
  // A copy of exactly its size: AddressSanitizer sees the first byte that is read behind it.
  const auto bytes = std::make_unique<uint8_t[]>(made.size());
  if (!made.empty()) std::memcpy(bytes.get(), made.data(), made.size());
  const int64_t before = test::AllocatedBytes();
  absl::Status status;
  if (auto file = GgufFile::Parse({bytes.get(), made.size()}); !file.ok()) {
    status = file.status();
  } else {
    status = MakeGgufCheckpoint(*std::move(file)).status();
  }
  EXPECT_LT(test::AllocatedBytes() - before, kMaxAllocated);
  EXPECT_EQ(status.code(), GetParam().code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
}

TEST_P(BrokenGguf, IsRefusedFromDiskWithItsPathInTheMessage) {
  const std::string path =
      testing::TempDir() + "broken_" + std::to_string(getpid()) + "_" + GetParam().name + ".gguf";
  ASSERT_TRUE(test::WriteFile(path, GetParam().make()));
  const absl::Status status = OpenCheckpoint(path).status();
  EXPECT_EQ(status.code(), GetParam().code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path + ": "));
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
  std::remove(path.c_str());
}

INSTANTIATE_TEST_SUITE_P(All, BrokenGguf, testing::ValuesIn(AllCases()),
                         [](const testing::TestParamInfo<BrokenCase>& info) {
                           return info.param.name;
                         });

TEST(BrokenGgufTable, HasFortyFilesOrMoreAndItsStartingPointIsSound) {
  EXPECT_GE(AllCases().size(), 40u);
  EXPECT_GT(test::AllocatedBytes(), 0) << "nothing is counted";
  const std::string bytes = SmallModel().Build();
  auto file = GgufFile::Parse({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  ASSERT_TRUE(file.ok()) << file.status();
  const auto checkpoint = MakeGgufCheckpoint(*std::move(file));
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
}

}  // namespace
}  // namespace tandem
