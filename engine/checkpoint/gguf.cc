#include "engine/checkpoint/gguf.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "engine/base/checked_size.h"
#include "engine/base/status.h"
#include "engine/checkpoint/gguf_cursor.h"

namespace tandem {
namespace {

static_assert(std::endian::native == std::endian::little,
              "values are read as they lie in the file");

constexpr std::string_view kMagic = "GGUF";
constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr int64_t kDefaultAlignment = 32;
// The shortest possible pair (empty key, one byte) and tensor (empty name, one dimension) in bytes;
// bounds what a count may reserve.
constexpr int64_t kMinPairBytes = 8 + 4 + 1;
constexpr int64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;

struct GgmlType {
  uint32_t number;
  const char* name;
  std::optional<kernels::DType> dtype;
};
// Numbers as in ggml.h (enum ggml_type).
constexpr GgmlType kGgmlTypes[] = {
    {0, "F32", kernels::DType::kF32},
    {1, "F16", kernels::DType::kF16},
    {2, "Q4_0", kernels::DType::kQ4_0},
    {3, "Q4_1", kernels::DType::kQ4_1},
    {6, "Q5_0", {}},
    {7, "Q5_1", {}},
    {8, "Q8_0", kernels::DType::kQ8_0},
    {9, "Q8_1", {}},
    {10, "Q2_K", {}},
    {11, "Q3_K", {}},
    {12, "Q4_K", {}},
    {13, "Q5_K", {}},
    {14, "Q6_K", {}},
    {15, "Q8_K", {}},
    {16, "IQ2_XXS", {}},
    {17, "IQ2_XS", {}},
    {18, "IQ3_XXS", {}},
    {19, "IQ1_S", {}},
    {20, "IQ4_NL", {}},
    {21, "IQ3_S", {}},
    {22, "IQ2_S", {}},
    {23, "IQ4_XS", {}},
    {24, "I8", {}},
    {25, "I16", {}},
    {26, "I32", {}},
    {27, "I64", {}},
    {28, "F64", {}},
    {29, "IQ1_M", {}},
    {30, "BF16", kernels::DType::kBF16},
    {34, "TQ1_0", {}},
    {35, "TQ2_0", {}},
    {39, "MXFP4", {}},
};

absl::StatusOr<kernels::DType> DTypeOf(uint32_t number) {
  for (const GgmlType& type : kGgmlTypes) {
    if (type.number != number) continue;
    if (type.dtype.has_value()) return *type.dtype;
    return Unimplemented("type ", type.name,
                         " is not supported: F32, F16, BF16, Q8_0, Q4_0 and Q4_1 are");
  }
  return InvalidArgument("ggml type ", number, " does not exist");
}

absl::StatusOr<GgufValue> ReadValue(GgufCursor& cursor) {
  GgufValue value;
  ASSIGN_OR_RETURN(value.type, cursor.ReadType());
  if (value.type == GgufType::kArray) {
    value.is_array = true;
    ASSIGN_OR_RETURN(value.type, cursor.ReadType());
    if (value.type == GgufType::kArray) return Unimplemented("arrays of arrays are not supported");
    ASSIGN_OR_RETURN(const uint64_t count, cursor.Read<uint64_t>("array count"));
    if (!CheckedSize(count).Fits(kMaxGgufArrayElements)) {
      return InvalidArgument("the array has ", count, " elements, at most ", kMaxGgufArrayElements,
                             " are read");
    }
    value.count = static_cast<int64_t>(count);
  }
  if (value.type == GgufType::kString) {
    const GgufCursor begin = cursor;
    for (int64_t i = 0; i < value.count; ++i) {
      RETURN_IF_ERROR(cursor.ReadString("string", kMaxGgufStringBytes).status());
    }
    value.bytes = cursor.Since(begin);
    return value;
  }
  ASSIGN_OR_RETURN(value.bytes,
                   cursor.ReadBytes(CheckedSize(static_cast<uint64_t>(value.count)) *
                                        static_cast<uint64_t>(ElementBytes(value.type)),
                                    "value"));
  if (value.type == GgufType::kBool &&
      std::any_of(value.bytes.begin(), value.bytes.end(), [](uint8_t byte) { return byte > 1; })) {
    return InvalidArgument("a bool is neither 0 nor 1");
  }
  return value;
}

struct TensorInfo {
  GgufTensor tensor;
  CheckedSize bytes;
  uint64_t offset = 0;
};

// Everything that can be said about a tensor without knowing where the data starts.
absl::StatusOr<TensorInfo> ReadTensorInfo(GgufCursor& cursor) {
  TensorInfo info;
  GgufTensor& tensor = info.tensor;
  ASSIGN_OR_RETURN(tensor.name, cursor.ReadString("tensor name", kMaxGgufTensorNameBytes));
  const std::string name = absl::StrCat("tensor ", Quoted(tensor.name), ": ");
  ASSIGN_OR_RETURN(const uint32_t num_dims, cursor.Read<uint32_t>("number of dimensions"));
  if (num_dims < 1 || num_dims > tensor.dims.size()) {
    return InvalidArgument(name, num_dims, " dimensions: there must be 1 to ", tensor.dims.size());
  }
  tensor.num_dims = static_cast<int32_t>(num_dims);
  CheckedSize elements = 1;
  for (uint32_t i = 0; i < num_dims; ++i) {
    ASSIGN_OR_RETURN(const uint64_t dim, cursor.Read<uint64_t>("dimension"));
    if (dim == 0) return InvalidArgument(name, "dimension ", i, " is 0");
    elements = elements * CheckedSize(dim);
    if (!elements.valid()) {
      return InvalidArgument(name, "dimension ", i, " is ", dim, ": the size overflows");
    }
    tensor.dims[i] = static_cast<int64_t>(dim);
  }
  ASSIGN_OR_RETURN(const uint32_t type, cursor.Read<uint32_t>("ggml type"));
  auto dtype = DTypeOf(type);
  if (!dtype.ok()) {
    return absl::Status(dtype.status().code(), absl::StrCat(name, dtype.status().message()));
  }
  tensor.dtype = *dtype;
  const kernels::DTypeInfo format = kernels::Info(tensor.dtype);
  if (tensor.dims[0] % format.block_elements != 0) {
    return InvalidArgument(name, "rows of ", tensor.dims[0], " elements are not whole ",
                           std::string(format.name), " blocks of ", format.block_elements);
  }
  info.bytes = CheckedSize(static_cast<uint64_t>(elements.value() / format.block_elements)) *
               CheckedSize(static_cast<uint64_t>(format.block_bytes));
  if (!info.bytes.valid()) return InvalidArgument(name, "the size in bytes overflows");
  ASSIGN_OR_RETURN(info.offset, cursor.Read<uint64_t>("tensor offset"));
  return info;
}

// data: from the first byte of tensor data to the end of the file.
absl::Status PlaceTensor(std::span<const uint8_t> data, int64_t alignment, TensorInfo& info) {
  const std::string name = absl::StrCat("tensor ", Quoted(info.tensor.name), ": ");
  if (info.offset % static_cast<uint64_t>(alignment) != 0) {
    return InvalidArgument(name, "offset ", info.offset, " is not a multiple of the alignment ",
                           alignment);
  }
  const auto size = static_cast<int64_t>(data.size());
  if (!CheckedSize(info.offset).Fits(size) ||
      !info.bytes.Fits(size - static_cast<int64_t>(info.offset))) {
    return InvalidArgument(name, info.bytes.value(), " bytes at offset ", info.offset,
                           " pass the end of the file, which has ", size, " bytes of tensor data");
  }
  info.tensor.bytes = data.subspan(info.offset, static_cast<size_t>(info.bytes.value()));
  return absl::OkStatus();
}

absl::Status CheckNoOverlap(const std::vector<GgufTensor>& tensors) {
  std::vector<const GgufTensor*> sorted;
  sorted.reserve(tensors.size());
  for (const GgufTensor& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return a->bytes.data() < b->bytes.data();
  });
  for (size_t i = 1; i < sorted.size(); ++i) {
    const GgufTensor& before = *sorted[i - 1];
    if (before.bytes.data() + before.bytes.size() > sorted[i]->bytes.data()) {
      return InvalidArgument("tensors ", Quoted(before.name), " and ", Quoted(sorted[i]->name),
                             " overlap");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckVersion(uint32_t version) {
  if (version == 2 || version == 3) return absl::OkStatus();
  if (version == 1) return Unimplemented("GGUF version 1 is not supported: versions 2 and 3 are");
  if ((version & 0xffff) == 0 && version != 0) {
    return Unimplemented("big-endian GGUF files are not supported");
  }
  return Unimplemented("GGUF version ", version, " is not supported: versions 2 and 3 are");
}

}  // namespace

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> mapped, MappedFile::Open(path));
  auto file = Parse(mapped->bytes());
  if (!file.ok()) {
    return absl::Status(file.status().code(), absl::StrCat(path, ": ", file.status().message()));
  }
  (*file)->file_ = std::move(mapped);
  return file;
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Parse(std::span<const uint8_t> bytes) {
  std::unique_ptr<GgufFile> file(new GgufFile());
  RETURN_IF_ERROR(file->ReadHeader(bytes));
  return file;
}

absl::Status GgufFile::ReadHeader(std::span<const uint8_t> bytes) {
  GgufCursor cursor(bytes);
  ASSIGN_OR_RETURN(const std::span<const uint8_t> magic, cursor.ReadBytes(kMagic.size(), "magic"));
  if (!std::equal(magic.begin(), magic.end(), kMagic.begin())) {
    return InvalidArgument("not a GGUF file: it does not start with \"GGUF\"");
  }
  ASSIGN_OR_RETURN(const uint32_t version, cursor.Read<uint32_t>("version"));
  RETURN_IF_ERROR(CheckVersion(version));
  ASSIGN_OR_RETURN(const uint64_t num_tensors, cursor.Read<uint64_t>("number of tensors"));
  ASSIGN_OR_RETURN(const uint64_t num_keys, cursor.Read<uint64_t>("number of keys"));
  if (!CheckedSize(num_keys).Fits(std::min(kMaxGgufKeys, cursor.remaining() / kMinPairBytes))) {
    return InvalidArgument("the file says that it has ", num_keys, " keys: at most ", kMaxGgufKeys,
                           " are read, and ", cursor.remaining(), " bytes are left");
  }
  if (!CheckedSize(num_tensors)
           .Fits(std::min(kMaxGgufTensors, cursor.remaining() / kMinTensorBytes))) {
    return InvalidArgument("the file says that it has ", num_tensors, " tensors: at most ",
                           kMaxGgufTensors, " are read, and ", cursor.remaining(),
                           " bytes are left");
  }

  for (uint64_t i = 0; i < num_keys; ++i) {
    ASSIGN_OR_RETURN(const std::string_view key, cursor.ReadString("key", kMaxGgufKeyBytes));
    auto value = ReadValue(cursor);
    if (!value.ok()) {
      return absl::Status(value.status().code(),
                          absl::StrCat("key ", Quoted(key), ": ", value.status().message()));
    }
    if (!values_.emplace(key, *value).second) {
      return InvalidArgument("key ", Quoted(key), " stands there twice");
    }
  }

  int64_t alignment = kDefaultAlignment;
  if (Has(kAlignmentKey)) {
    ASSIGN_OR_RETURN(alignment, Int(kAlignmentKey, kMinGgufAlignment, kMaxGgufAlignment));
    if (!std::has_single_bit(static_cast<uint64_t>(alignment))) {
      return InvalidArgument("general.alignment is ", alignment, ": it must be a power of two");
    }
  }

  std::vector<TensorInfo> infos;
  infos.reserve(num_tensors);
  for (uint64_t i = 0; i < num_tensors; ++i) {
    ASSIGN_OR_RETURN(TensorInfo info, ReadTensorInfo(cursor));
    if (!tensor_index_.emplace(info.tensor.name, static_cast<int32_t>(i)).second) {
      return InvalidArgument("tensor ", Quoted(info.tensor.name), " stands there twice");
    }
    infos.push_back(info);
  }

  const CheckedSize data_begin =
      CheckedSize(static_cast<uint64_t>(cursor.position())).AlignUp(alignment);
  // A file without tensors may end before the padding.
  const std::span<const uint8_t> data = data_begin.Fits(static_cast<int64_t>(bytes.size()))
                                            ? bytes.subspan(static_cast<size_t>(data_begin.value()))
                                            : std::span<const uint8_t>();
  tensors_.reserve(infos.size());
  for (TensorInfo& info : infos) {
    RETURN_IF_ERROR(PlaceTensor(data, alignment, info));
    tensors_.push_back(info.tensor);
  }
  return CheckNoOverlap(tensors_);
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[static_cast<size_t>(found->second)];
}

}  // namespace tandem
