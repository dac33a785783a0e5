// Shapes and formats of everything the operations read and write. Plain data; nothing here owns memory.
//
// The layout of the KV cache. Tokens live in pages of kPageTokens positions. Layers with the same attention window form a
// layer group with a pool and page tables of its own. One pool:
//
//   data    [layer of the group][page][K or V][kv head][kPageTokens][head_dim]   in the pool's KvFormat
//   scales  [layer of the group][page][K or V][kv head][kPageTokens]             fp32, 8-bit formats only
//
// A slot is a place in the running batch that one sequence occupies. page_table[slot][j] is the page that holds positions
// [64 j, 64 j + 64); -1 where no page is held (a window group drops the oldest).
// Worked example, 2 layers, 5 pages, 3 kv heads, head_dim 64: V of layer 1, page 4, head 2, position 70 of a slot whose
// page_table row is {0, 4}: page 4, offset in page 70 % 64 = 6; element ((((1*5 + 4)*2 + 1)*3 + 2)*64 + 6)*64.
#pragma once

#include <cstdint>
#include <string_view>

namespace tandem::kernels {

inline constexpr int32_t kPageTokens = 64;
inline constexpr int32_t kIdleToken = -1;  // a row whose token is kIdleToken is padding: it writes nothing anywhere

enum class DType : uint8_t { kF32, kF16, kBF16, kQ8_0, kQ4_0, kQ4_1, kI32 };

// Blocks along a row: kQ8_0 {f16 d; int8 q[32]} = d*q; kQ4_0 {f16 d; u8 q[16]} = d*(q-8); kQ4_1 {f16 d; f16 m; u8 q[16]} =
// d*q + m; of the 4-bit formats the low nibbles are elements 0..15, the high ones 16..31.
struct DTypeInfo {
  std::string_view name;
  int32_t block_elements;
  int32_t block_bytes;
};
constexpr DTypeInfo Info(DType dtype) {
  switch (dtype) {
    case DType::kF32: return {"F32", 1, 4};
    case DType::kF16: return {"F16", 1, 2};
    case DType::kBF16: return {"BF16", 1, 2};
    case DType::kQ8_0: return {"Q8_0", 32, 34};
    case DType::kQ4_0: return {"Q4_0", 32, 18};
    case DType::kQ4_1: return {"Q4_1", 32, 20};
    case DType::kI32: return {"I32", 1, 4};
  }
  return {"?", 1, 0};
}

enum class KvFormat : uint8_t { kF32, kBF16, kFp8E4M3, kInt8 };

constexpr std::string_view Name(KvFormat format) {
  switch (format) {
    case KvFormat::kF32: return "fp32";
    case KvFormat::kBF16: return "bf16";
    case KvFormat::kFp8E4M3: return "fp8_e4m3";
    case KvFormat::kInt8: return "int8";
  }
  return "?";
}
constexpr int64_t ElementBytes(KvFormat format) {
  return format == KvFormat::kF32 ? 4 : format == KvFormat::kBF16 ? 2 : 1;
}
constexpr bool HasScales(KvFormat format) {
  return format == KvFormat::kFp8E4M3 || format == KvFormat::kInt8;
}

// A matrix in host memory as a checkpoint stores it: row-major, rows of blocks. cols % block_elements == 0. Without data it
// is drawn (random_weight.h): then dtype is kBF16.
struct HostMatrix {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int32_t rows = 0;  // output features
  int32_t cols = 0;  // input features
  uint64_t seed = 0;
  float deviation = 0.0f;
};

// As a checkpoint stores it.
constexpr int64_t StoredBytes(const HostMatrix& matrix) {
  const DTypeInfo info = Info(matrix.dtype);
  return int64_t{matrix.rows} * (matrix.cols / info.block_elements) * info.block_bytes;
}

// One layer group's cache, seen by the operations of one step. Device memory.
struct KvPool {
  void* data = nullptr;
  float* scales = nullptr;  // null unless HasScales(format)
  KvFormat format = KvFormat::kF32;
  int32_t num_layers = 0;
  int32_t num_pages = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  const int32_t* page_table = nullptr;  // [num_slots, max_pages_per_slot]
  int32_t max_pages_per_slot = 0;

  // Bytes of data and of scales for these dimensions.
  int64_t DataBytes() const {
    return int64_t{2} * num_layers * num_pages * num_kv_heads * kPageTokens * head_dim * ElementBytes(format);
  }
  int64_t ScaleBytes() const {
    return HasScales(format) ? int64_t{8} * num_layers * num_pages * num_kv_heads * kPageTokens : 0;
  }
  // Index of element 0 of a token's K (side 0) or V (side 1) vector.
  int64_t ElementOffset(int32_t layer, int32_t page, int32_t side, int32_t kv_head, int32_t in_page) const {
    return (((((int64_t{layer} * num_pages + page) * 2 + side) * num_kv_heads + kv_head) * kPageTokens + in_page)) *
           head_dim;
  }
};

}  // namespace tandem::kernels
