// Reads GGUF, llama.cpp's model format, versions 2 and 3, little-endian.
// Specification: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
//
//   magic "GGUF", u32 version, u64 number of tensors, u64 number of key-value pairs
//   pairs    string key, u32 type, value        (string: u64 length, bytes; array: u32 type, u64
//   count, values) tensors  string name, u32 number of dimensions, u64 dimensions[], u32 ggml type,
//   u64 offset padding to general.alignment, then tensor data; offsets count from there
//
// The file is not trusted. A number from it is compared with what is left of the file, by
// subtraction or through CheckedSize, before anything is read or allocated by it; memory used is a
// small multiple of the header. What holds after Parse: every value and every tensor lies inside
// the file; keys and tensor names are distinct; tensors start aligned and do not overlap; every
// tensor's type is one of kernels::DType and its rows are whole blocks.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/mapped_file.h"
#include "kernels/tensor.h"

namespace tandem {

// Limits far above real files (the largest of these had 1.1k tensors, 50 keys, 260k tokens); beyond
// them a file is refused.
inline constexpr int64_t kMaxGgufTensors = 1 << 16;
inline constexpr int64_t kMaxGgufKeys = 1 << 14;
inline constexpr int64_t kMaxGgufKeyBytes = 1 << 10;
inline constexpr int64_t kMaxGgufTensorNameBytes = 1 << 8;
inline constexpr int64_t kMaxGgufStringBytes = 1 << 24;
inline constexpr int64_t kMaxGgufArrayElements = 1 << 24;
inline constexpr int64_t kMinGgufAlignment = 8;
inline constexpr int64_t kMaxGgufAlignment = 1 << 16;

enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

struct GgufValue {
  GgufType type = GgufType::kUint8;  // of the elements where is_array
  bool is_array = false;
  int64_t count = 1;
  std::span<const uint8_t>
      bytes;  // the elements, as they lie in the file (of a string: with its length)
};

struct GgufTensor {
  std::string_view name;
  kernels::DType dtype = kernels::DType::kF32;
  int32_t num_dims = 0;
  // Fastest dimension first, as in the file; 1 beyond num_dims. A matrix [rows, cols] has dims
  // {cols, rows, 1, 1}.
  std::array<int64_t, 4> dims = {1, 1, 1, 1};
  std::span<const uint8_t> bytes;
};

class GgufFile final {
 public:
  // INVALID_ARGUMENT: broken; UNIMPLEMENTED: a version, byte order or tensor type that is not read,
  // by name. Open also gives MappedFile's errors, and prefixes every message with the path.
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path);
  // The bytes must outlive the object.
  static absl::StatusOr<std::unique_ptr<GgufFile>> Parse(std::span<const uint8_t> bytes);

  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  bool Has(std::string_view key) const { return values_.contains(key); }
  const std::map<std::string_view, GgufValue>& values() const { return values_; }

  // Typed access. INVALID_ARGUMENT: the key is missing, has another type, or a value out of range;
  // the message has the key.
  absl::StatusOr<int64_t> Int(std::string_view key, int64_t low,
                              int64_t high) const;          // any integer type
  absl::StatusOr<double> Real(std::string_view key) const;  // FLOAT32 or FLOAT64, finite
  absl::StatusOr<bool> Bool(std::string_view key) const;
  absl::StatusOr<std::string> Text(std::string_view key) const;  // UTF-8
  absl::StatusOr<std::vector<std::string_view>> TextArray(
      std::string_view key) const;  // UTF-8; views into the file
  absl::StatusOr<std::vector<int32_t>> Int32Array(
      std::string_view key) const;  // INT32, or UINT32 that fit
  absl::StatusOr<std::vector<float>> FloatArray(std::string_view key) const;  // FLOAT32
  absl::StatusOr<std::string_view> ByteArray(std::string_view key) const;     // UINT8 or INT8

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* FindTensor(std::string_view name) const;  // null: none

 private:
  GgufFile() = default;
  absl::Status ReadHeader(std::span<const uint8_t> bytes);
  absl::StatusOr<const GgufValue*> Find(std::string_view key, bool is_array) const;

  std::unique_ptr<MappedFile> file_;  // null after Parse
  std::map<std::string_view, GgufValue> values_;
  std::vector<GgufTensor> tensors_;                   // in file order
  std::map<std::string_view, int32_t> tensor_index_;  // name -> index into tensors_
};

// For messages: text from a file in quotes, escaped, shortened to 64 bytes.
std::string Quoted(std::string_view text);

}  // namespace tandem
