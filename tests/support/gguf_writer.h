// Writes GGUF files for tests: sound ones, and broken ones where a test sets a field against the
// rules. It shares no code with the reader.
//
//   GgufWriter writer;
//   writer.Text("general.architecture", "llama").Uint32("llama.block_count", 2);
//   writer.Tensor("output_norm.weight", kernels::DType::kF32, {64}, bytes);
//   ASSERT_TRUE(WriteFile(path, writer.Build()));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/tensor.h"

namespace tandem::test {

class GgufWriter final {
 public:
  // Numbers of value types and of tensor types, as in the GGUF specification.
  static constexpr uint32_t kUint8 = 0, kInt8 = 1, kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7,
                            kString = 8, kArray = 9, kUint64 = 10;
  static uint32_t GgmlType(kernels::DType dtype);

  // A pair; the same key twice stands there twice.
  GgufWriter& Uint32(std::string_view key, uint32_t value);
  GgufWriter& Uint64(std::string_view key, uint64_t value);
  GgufWriter& Float32(std::string_view key, float value);
  GgufWriter& Bool(std::string_view key, bool value);
  GgufWriter& Text(std::string_view key, std::string_view value);
  GgufWriter& TextArray(std::string_view key, const std::vector<std::string>& values);
  GgufWriter& Int32Array(std::string_view key, const std::vector<int32_t>& values);
  GgufWriter& FloatArray(std::string_view key, const std::vector<float>& values);
  // bytes: what follows the type.
  GgufWriter& Raw(std::string_view key, uint32_t type, std::string_view bytes);
  // Takes a key out, where it is.
  GgufWriter& Remove(std::string_view key);

  // dims: fastest first. The offset is the next aligned place unless it is given.
  struct TensorEntry {
    std::string name;
    uint32_t ggml_type = 0;
    std::vector<uint64_t> dims;
    std::string bytes;
    std::optional<uint64_t> offset;
  };
  GgufWriter& Tensor(std::string_view name, kernels::DType dtype, std::vector<uint64_t> dims,
                     std::string bytes);
  GgufWriter& Tensor(TensorEntry entry);
  TensorEntry* FindTensor(std::string_view name);  // null: none
  GgufWriter& RemoveTensor(std::string_view name);

  // What the header says instead of the truth.
  uint32_t version = 3;
  std::string magic = "GGUF";
  std::optional<uint64_t> num_tensors;
  std::optional<uint64_t> num_keys;
  // Where data is put. A general.alignment key is the caller's own.
  uint64_t alignment = 32;

  std::string Build() const;

  // Bytes of numbers and strings as GGUF has them, for Raw.
  static std::string Number32(uint32_t value);
  static std::string Number64(uint64_t value);
  static std::string String(std::string_view value);

 private:
  struct Pair {
    std::string key;
    uint32_t type;
    std::string bytes;
  };
  std::vector<Pair> pairs_;
  std::vector<TensorEntry> tensors_;
};

// False: the file could not be written.
bool WriteFile(const std::string& path, std::string_view bytes);

}  // namespace tandem::test
