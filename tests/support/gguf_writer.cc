#include "tests/support/gguf_writer.h"

#include <algorithm>
#include <bit>
#include <fstream>
#include <utility>

namespace tandem::test {
namespace {

template <typename T>
std::string LittleEndian(T value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(T); ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

std::string ArrayHead(uint32_t type, size_t count) {
  return LittleEndian(type) + LittleEndian(static_cast<uint64_t>(count));
}

}  // namespace

uint32_t GgufWriter::GgmlType(kernels::DType dtype) {
  switch (dtype) {
    case kernels::DType::kF32:
      return 0;
    case kernels::DType::kF16:
      return 1;
    case kernels::DType::kQ4_0:
      return 2;
    case kernels::DType::kQ4_1:
      return 3;
    case kernels::DType::kQ8_0:
      return 8;
    case kernels::DType::kI32:
      return 26;
    case kernels::DType::kBF16:
      return 30;
  }
  return UINT32_MAX;
}

std::string GgufWriter::Number32(uint32_t value) { return LittleEndian(value); }
std::string GgufWriter::Number64(uint64_t value) { return LittleEndian(value); }
std::string GgufWriter::String(std::string_view value) {
  return LittleEndian(static_cast<uint64_t>(value.size())) + std::string(value);
}

GgufWriter& GgufWriter::Raw(std::string_view key, uint32_t type, std::string_view bytes) {
  pairs_.push_back({std::string(key), type, std::string(bytes)});
  return *this;
}
GgufWriter& GgufWriter::Uint32(std::string_view key, uint32_t value) {
  return Raw(key, kUint32, Number32(value));
}
GgufWriter& GgufWriter::Uint64(std::string_view key, uint64_t value) {
  return Raw(key, kUint64, Number64(value));
}
GgufWriter& GgufWriter::Float32(std::string_view key, float value) {
  return Raw(key, kFloat32, Number32(std::bit_cast<uint32_t>(value)));
}
GgufWriter& GgufWriter::Bool(std::string_view key, bool value) {
  return Raw(key, kBool, std::string(1, value ? '\1' : '\0'));
}
GgufWriter& GgufWriter::Text(std::string_view key, std::string_view value) {
  return Raw(key, kString, String(value));
}

GgufWriter& GgufWriter::TextArray(std::string_view key, const std::vector<std::string>& values) {
  std::string bytes = ArrayHead(kString, values.size());
  for (const std::string& value : values) bytes += String(value);
  return Raw(key, kArray, bytes);
}
GgufWriter& GgufWriter::Int32Array(std::string_view key, const std::vector<int32_t>& values) {
  std::string bytes = ArrayHead(kInt32, values.size());
  for (const int32_t value : values) bytes += Number32(static_cast<uint32_t>(value));
  return Raw(key, kArray, bytes);
}
GgufWriter& GgufWriter::FloatArray(std::string_view key, const std::vector<float>& values) {
  std::string bytes = ArrayHead(kFloat32, values.size());
  for (const float value : values) bytes += Number32(std::bit_cast<uint32_t>(value));
  return Raw(key, kArray, bytes);
}

GgufWriter& GgufWriter::Remove(std::string_view key) {
  std::erase_if(pairs_, [key](const Pair& pair) { return pair.key == key; });
  return *this;
}

GgufWriter& GgufWriter::Tensor(std::string_view name, kernels::DType dtype,
                               std::vector<uint64_t> dims, std::string bytes) {
  return Tensor({std::string(name), GgmlType(dtype), std::move(dims), std::move(bytes), {}});
}
GgufWriter& GgufWriter::Tensor(TensorEntry entry) {
  tensors_.push_back(std::move(entry));
  return *this;
}
GgufWriter::TensorEntry* GgufWriter::FindTensor(std::string_view name) {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [name](const TensorEntry& entry) { return entry.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}
GgufWriter& GgufWriter::RemoveTensor(std::string_view name) {
  std::erase_if(tensors_, [name](const TensorEntry& entry) { return entry.name == name; });
  return *this;
}

std::string GgufWriter::Build() const {
  std::string out = magic + Number32(version) + Number64(num_tensors.value_or(tensors_.size())) +
                    Number64(num_keys.value_or(pairs_.size()));
  for (const Pair& pair : pairs_) out += String(pair.key) + Number32(pair.type) + pair.bytes;
  const auto padding = [this](size_t size) {
    return std::string((alignment - size % alignment) % alignment, '\0');
  };
  std::string data;
  for (const TensorEntry& tensor : tensors_) {
    data += padding(data.size());
    out += String(tensor.name) + Number32(static_cast<uint32_t>(tensor.dims.size()));
    for (const uint64_t dim : tensor.dims) out += Number64(dim);
    out += Number32(tensor.ggml_type) + Number64(tensor.offset.value_or(data.size()));
    data += tensor.bytes;
  }
  return out + padding(out.size()) + data;
}

bool WriteFile(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  return file.good();
}

}  // namespace tandem::test
