// A block owns 16 weight rows for each of its warps and a group of up to 64 tokens, and walks k in
// stages of 128 that come through a ring in shared memory, written by asynchronous copies several
// stages ahead. A warp multiplies its 16 rows (the A operand) with all tokens of the group (the B
// operand, 8 at a time). Each output element has one accumulator, from k = 0 up: nothing is split
// along k, so the tiling changes no bits.
//
// A row of a stage lies in 16 pieces of 16 bytes; piece p of row r stands at place p ^ (r & 7), so
// that the eight rows that ldmatrix reads at one p lie in different banks.
#include <algorithm>

#include "kernels/check.h"
#include "kernels/cuda/chain.h"
#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/programmatic.cuh"

namespace tandem::kernels::cuda {
namespace {

constexpr int kStep = 16;     // k of one mma
constexpr int kStageK = 128;  // k of one stage
constexpr int kStageSteps = kStageK / kStep;
constexpr int kPiece = 8;  // elements of one 16-byte copy
constexpr int kPieces = kStageK / kPiece;
constexpr int kRowBytes = kStageK * 2;
constexpr int kWarpRows = 16;  // weight rows of a warp
constexpr int kTileTokens = 8;
constexpr int kRingBytes = 96 * 1024;  // two blocks fit a multiprocessor of 227 KB, one of 163 KB

template <int kTiles, int kWarps>
struct Tiling {
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kRows = kWarpRows * kWarps;
  static constexpr int kTokens = kTileTokens * kTiles;
  static constexpr int kStageBytes = (kRows + kTokens) * kRowBytes;
  static constexpr int kStages = kRingBytes / kStageBytes;
  static_assert(kStages >= 3);
  // A thread's copies for one stage, one piece each: first weights, then tokens.
  static constexpr int kRowsAtOnce = kThreads / kPieces;
  static constexpr int kWeightCopies = kRows / kRowsAtOnce;
  static constexpr int kCopies = kWeightCopies + kTokens / kRowsAtOnce;
  static_assert(kThreads % kPieces == 0 && kTokens % kRowsAtOnce == 0);
};

// bytes: 16, or 0 to read nothing and store zeros.
__device__ __forceinline__ void CopyPiece(uint32_t to_shared, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to_shared), "l"(from),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most kPending of the calling thread's latest groups are still on their way.
template <int kPending>
__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Two or four 8x8 matrices; lane 8 i + j gives the address of row j of matrix i.
__device__ __forceinline__ void LoadMatrices2(uint32_t (&out)[2], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(out[0]), "=r"(out[1])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void LoadMatrices4(uint32_t (&out)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void Multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Byte offset of a piece within the rows of a stage.
__device__ __forceinline__ uint32_t PlaceOf(int row, int piece) {
  return row * kRowBytes + (piece ^ (row & 7)) * 16;
}

// What a warp multiplies in one step of 16 k.
template <int kTiles>
struct Operands {
  uint32_t weights[4];         // rows 0..7 and 8..15 of k 0..7, then of k 8..15
  uint32_t tokens[kTiles][2];  // of a tile k 0..7, then k 8..15
};

// Addresses that this lane gives to ldmatrix for step 0 of a stage; for another step, bits 5 to 7
// are turned by it, since PlaceOf is a multiple of 256 plus (piece ^ row) * 16 and a step is two
// pieces.
struct LaneAddresses {
  uint32_t weights;
  uint32_t tokens;
};

template <int kTiles>
__device__ __forceinline__ void Load(LaneAddresses from, int step, Operands<kTiles>& out) {
  const uint32_t turn = step * 32;
  LoadMatrices4(out.weights, from.weights ^ turn);
  if constexpr (kTiles == 1) {
    LoadMatrices2(out.tokens[0], from.tokens ^ turn);
  } else {
#pragma unroll
    for (int tile = 0; tile < kTiles; tile += 2) {
      uint32_t pair[4];
      LoadMatrices4(pair, (from.tokens ^ turn) + tile * kTileTokens * kRowBytes);
      out.tokens[tile][0] = pair[0];
      out.tokens[tile][1] = pair[1];
      out.tokens[tile + 1][0] = pair[2];
      out.tokens[tile + 1][1] = pair[3];
    }
  }
}

template <int kTiles>
__device__ __forceinline__ void MultiplyAll(const Operands<kTiles>& operands,
                                            float (&sums)[kTiles][4]) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    Multiply(sums[tile], operands.weights, operands.tokens[tile][0], operands.tokens[tile][1]);
  }
}

// What becomes of the sums: an output as they are, or, of a weight with the parts gate and up,
// kind(gate) * up. Then a pair of warps has 16 rows of the gate and the same 16 of up.
struct Store {
  ProductOutput output;
  bool is_gated;
  GateKind kind;
};

// sums[tile] of a lane: rows g and g + 8 of its warp, tokens 2 t and 2 t + 1 of the tile, with
// g = lane / 4 and t = lane % 4.
__device__ __forceinline__ int RowOfSum(int i) { return threadIdx.x % 32 / 4 + i / 2 * 8; }
__device__ __forceinline__ int TokenOfSum(int tile, int i) {
  return tile * kTileTokens + 2 * (threadIdx.x % 4) + i % 2;
}

// What a sum is added to, read long before it is there. REQUIRES y fp32.
template <int kTiles>
__device__ __forceinline__ void LoadAddends(int first_row, int first_token, int m, int n,
                                            const void* y, float (&addends)[kTiles][4]) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first_row + threadIdx.x / 32 * kWarpRows + RowOfSum(i);
      const int token = first_token + TokenOfSum(tile, i);
      addends[tile][i] =
          row < n && token < m ? static_cast<const float*>(y)[int64_t{token} * n + row] : 0.0f;
    }
  }
}

template <int kTiles>
__device__ __forceinline__ void StoreSums(const float (&sums)[kTiles][4],
                                          const float (&addends)[kTiles][4], int first_row,
                                          int first_token, int m, int n, const float* bias,
                                          ProductOutput output, void* y) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first_row + threadIdx.x / 32 * kWarpRows + RowOfSum(i);
      const int token = first_token + TokenOfSum(tile, i);
      if (row < n && token < m) {
        StoreOutput(sums[tile][i], addends[tile][i], bias != nullptr ? bias + row : nullptr, output,
                    y, int64_t{token} * n + row);
      }
    }
  }
}

// Up's warp of a pair hands its values to the gate's. handed: shared memory for 16 rows and the
// block's tokens, for each pair.
template <int kTiles, int kWarps>
__device__ __forceinline__ void StoreGated(const float (&sums)[kTiles][4], int first_column,
                                           int first_token, int m, int width, const float* bias,
                                           GateKind kind, float* handed, __nv_bfloat16* y) {
  constexpr int kTokens = kTileTokens * kTiles;
  const int warp = threadIdx.x / 32;
  const bool is_up = warp % 2 == 1;
  const int first = first_column + warp / 2 * kWarpRows;
  handed += warp / 2 * kWarpRows * kTokens;
  float values[kTiles][4];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float value = sums[tile][i];
      if (bias != nullptr) {
        value = __fadd_rn(value, bias[min(first + RowOfSum(i), width - 1) + (is_up ? width : 0)]);
      }
      values[tile][i] = __bfloat162float(__float2bfloat16_rn(value));
      if (is_up) handed[RowOfSum(i) * kTokens + TokenOfSum(tile, i)] = values[tile][i];
    }
  }
  __syncthreads();
  if (is_up) return;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = first + RowOfSum(i);
      const int token = first_token + TokenOfSum(tile, i);
      if (column >= width || token >= m) continue;
      y[int64_t{token} * width + column] =
          Gated(kind, values[tile][i], handed[RowOfSum(i) * kTokens + TokenOfSum(tile, i)]);
    }
  }
}

// Grid: x over groups of kRows weight rows, y over groups of kTokens tokens.
template <int kTiles, int kWarps, bool kGated>
__global__ void __launch_bounds__(32 * kWarps, 2)
    Chain(const __nv_bfloat16* __restrict__ x, int m, const __nv_bfloat16* __restrict__ w, int n,
          int k, const float* __restrict__ bias, Store store, void* __restrict__ y) {
  using T = Tiling<kTiles, kWarps>;
  static_assert(!kGated || kWarps % 2 == 0);
  extern __shared__ __align__(256) uint8_t ring[];
  const uint32_t ring_address = static_cast<uint32_t>(__cvta_generic_to_shared(ring));
  const int first_row = blockIdx.x * T::kRows;
  const int first_token = blockIdx.y * T::kTokens;
  const int warp = threadIdx.x / 32;
  const int num_stages = (k + kStageK - 1) / kStageK;
  // The weight row that stands at a place of the block.
  const auto weight_row = [&](int place) {
    if constexpr (!kGated) return min(first_row + place, n - 1);
    const int column = first_row / 2 + place / (2 * kWarpRows) * kWarpRows + place % kWarpRows;
    return min(column, n / 2 - 1) + place / kWarpRows % 2 * (n / 2);
  };

  // Starts copy i of the thread for a stage. Rows past the last repeat it: what comes of them is
  // not stored. Columns past the last become zeros, which nothing reads, so that no warp parts
  // here.
  const auto copy = [&](int stage, int i) {
    const int row = threadIdx.x / kPieces + i * T::kRowsAtOnce;
    const int piece = threadIdx.x % kPieces;
    const int column = stage * kStageK + piece * kPiece;
    const __nv_bfloat16* from = i < T::kWeightCopies
                                    ? w + int64_t{weight_row(row)} * k
                                    : x + int64_t{min(first_token + row - T::kRows, m - 1)} * k;
    const uint32_t at = ring_address + stage % T::kStages * T::kStageBytes;
    const bool is_there = column < k;
    CopyPiece(at + PlaceOf(row, piece), is_there ? from + column : from, is_there ? 16 : 0);
  };

  // Within a stage. Matrices of the weights: rows 0..7 and 8..15 of k 0..7, then of k 8..15; of the
  // tokens: k 0..7 and k 8..15 of a tile, then of the next tile.
  const int lane = threadIdx.x % 32;
  const uint32_t lane_weights = PlaceOf(warp * kWarpRows + lane % 16, lane / 16);
  const uint32_t lane_tokens =
      PlaceOf(T::kRows + lane % 8 + (kTiles > 1 ? lane / 16 * 8 : 0), lane / 8 % 2);

  // Weights are constants: they come while the kernels before this one still run.
  float sums[kTiles][4] = {};
#pragma unroll 1
  for (int stage = 0; stage < T::kStages - 1; ++stage) {
#pragma unroll
    for (int i = 0; i < T::kWeightCopies; ++i) copy(stage, i);
  }
  BeginOverlapping();
  float addends[kTiles][4] = {};
  if (!kGated && store.output == ProductOutput::kAdd) {
    LoadAddends<kTiles>(first_row, first_token, m, n, y, addends);
  }
#pragma unroll 1
  for (int stage = 0; stage < T::kStages - 1; ++stage) {
#pragma unroll
    for (int i = T::kWeightCopies; i < T::kCopies; ++i) copy(stage, i);
    CommitCopies();
  }
#pragma unroll 1
  for (int stage = 0; stage < num_stages; ++stage) {
    WaitForCopies<T::kStages - 2>();
    // Now this stage is there for every thread, and no warp reads the one before it any more: its
    // place in the ring is filled anew.
    __syncthreads();
    const int next_stage = stage + T::kStages - 1;
    const uint32_t at = ring_address + stage % T::kStages * T::kStageBytes;
    const LaneAddresses from = {at + lane_weights, at + lane_tokens};
    const int steps = min(k - stage * kStageK, kStageK) / kStep;
    Operands<kTiles> operands[2];
    if (steps == kStageSteps) {
      // Operands come one step ahead, and the copies are spread over the steps: both pass while the
      // chain waits for its last mma.
      Load(from, 0, operands[0]);
#pragma unroll
      for (int step = 0; step < kStageSteps; ++step) {
        if (step + 1 < kStageSteps) Load(from, step + 1, operands[(step + 1) % 2]);
        MultiplyAll(operands[step % 2], sums);
#pragma unroll
        for (int i = step * T::kCopies / kStageSteps; i < (step + 1) * T::kCopies / kStageSteps;
             ++i) {
          copy(next_stage, i);
        }
      }
    } else {  // the last stage: nothing is left to copy
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        Load(from, step, operands[0]);
        MultiplyAll(operands[0], sums);
      }
    }
    CommitCopies();
  }

  if constexpr (kGated) {
    WaitForCopies<0>();  // the ring's place is used again
    __syncthreads();
    StoreGated<kTiles, kWarps>(sums, first_row / 2, first_token, m, n / 2, bias, store.kind,
                               reinterpret_cast<float*>(ring), static_cast<__nv_bfloat16*>(y));
  } else {
    StoreSums<kTiles>(sums, addends, first_row, first_token, m, n, bias, store.output, y);
  }
}

__global__ void Finish(const float* sums, int64_t count, int n, const float* bias,
                       ProductOutput output, void* y) {
  BeginOverlapping();
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const float addend = output == ProductOutput::kAdd ? static_cast<const float*>(y)[i] : 0.0f;
    StoreOutput(sums[i], addend, bias != nullptr ? bias + i % n : nullptr, output, y, i);
  }
}

struct Product {
  const __nv_bfloat16* x;
  int32_t m;
  const __nv_bfloat16* w;
  int32_t n;
  int32_t k;
  const float* bias;
  Store store;
  void* y;
};

int32_t CeilDiv(int32_t a, int32_t b) { return (a + b - 1) / b; }

template <int kTiles, int kWarps>
void Launch(const Product& p, cudaStream_t stream) {
  using T = Tiling<kTiles, kWarps>;
  auto* kernel = Chain<kTiles, kWarps, false>;
  if constexpr (kWarps % 2 == 0) {
    if (p.store.is_gated) kernel = Chain<kTiles, kWarps, true>;
  }
  LaunchOverlapping(kernel, dim3(CeilDiv(p.n, T::kRows), CeilDiv(p.m, T::kTokens)),
                    dim3(T::kThreads), T::kStages * T::kStageBytes, stream, p.x, p.m, p.w, p.n, p.k,
                    p.bias, p.store, p.y);
}

// The wider block reads x (or, for many tokens, w) less often; the narrower one is for weights with
// so few rows that wide blocks would leave multiprocessors idle.
template <int kTiles, int kNarrow, int kWide>
void LaunchNarrowOrWide(const Product& p, int32_t num_multiprocessors, cudaStream_t stream) {
  const int64_t wide_blocks = int64_t{CeilDiv(p.n, Tiling<kTiles, kWide>::kRows)} *
                              CeilDiv(p.m, Tiling<kTiles, kWide>::kTokens);
  // Within 1/8 of a full device counts as full.
  constexpr bool kPairs = kNarrow % 2 == 0;  // of warps, which a gate needs
  if ((p.store.is_gated && !kPairs) || wide_blocks * 8 >= int64_t{num_multiprocessors} * 7) {
    Launch<kTiles, kWide>(p, stream);
  } else {
    Launch<kTiles, kNarrow>(p, stream);
  }
}

template <int kTiles, int kWarps>
cudaError_t AllowRing() {
  using T = Tiling<kTiles, kWarps>;
  constexpr auto kAttribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  constexpr int kBytes = T::kStages * T::kStageBytes;
  if constexpr (kWarps % 2 == 0) {
    if (const cudaError_t error =
            cudaFuncSetAttribute(Chain<kTiles, kWarps, true>, kAttribute, kBytes);
        error != cudaSuccess) {
      return error;
    }
  }
  return cudaFuncSetAttribute(Chain<kTiles, kWarps, false>, kAttribute, kBytes);
}

}  // namespace

cudaError_t PrepareChain() {
  for (cudaError_t (*allow)() :
       {AllowRing<1, 1>, AllowRing<1, 2>, AllowRing<2, 1>, AllowRing<2, 2>, AllowRing<4, 2>,
        AllowRing<4, 4>, AllowRing<8, 2>, AllowRing<8, 4>}) {
    if (const cudaError_t error = allow(); error != cudaSuccess) return error;
  }
  // Loads the kernel: a first launch within a capture might not be able to.
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, Finish);
}

namespace {

void LaunchProduct(const Product& product, int32_t num_multiprocessors, cudaStream_t stream) {
  const int32_t m = product.m;
  KERNELS_REQUIRE(m > 0 && product.n > 0 && product.k > 0 && product.k % kStep == 0,
                  "m %d, n %d, k %d", m, product.n, product.k);
  for (const void* pointer :
       {static_cast<const void*>(product.x), static_cast<const void*>(product.w)}) {
    KERNELS_REQUIRE(reinterpret_cast<uintptr_t>(pointer) % 16 == 0, "%p", pointer);
  }
  if (m <= 8) {
    LaunchNarrowOrWide<1, 1, 2>(product, num_multiprocessors, stream);
  } else if (m <= 16) {
    LaunchNarrowOrWide<2, 1, 2>(product, num_multiprocessors, stream);
  } else if (m <= 32) {
    LaunchNarrowOrWide<4, 2, 4>(product, num_multiprocessors, stream);
  } else {
    LaunchNarrowOrWide<8, 2, 4>(product, num_multiprocessors, stream);
  }
}

}  // namespace

void LaunchChain(const __nv_bfloat16* x, int32_t m, const __nv_bfloat16* w, int32_t n, int32_t k,
                 const float* bias, ProductOutput output, void* y, int32_t num_multiprocessors,
                 cudaStream_t stream) {
  LaunchProduct({x, m, w, n, k, bias, {output, false, GateKind::kSilu}, y}, num_multiprocessors,
                stream);
}

void LaunchGatedChain(const __nv_bfloat16* x, int32_t m, const __nv_bfloat16* w, int32_t n,
                      int32_t k, const float* bias, GateKind kind, __nv_bfloat16* y,
                      int32_t num_multiprocessors, cudaStream_t stream) {
  KERNELS_REQUIRE(n % 2 == 0, "n %d", n);
  LaunchProduct({x, m, w, n, k, bias, {ProductOutput::kBf16, true, kind}, y}, num_multiprocessors,
                stream);
}

void LaunchFinish(const float* sums, int32_t m, int32_t n, const float* bias, ProductOutput output,
                  void* y, cudaStream_t stream) {
  constexpr int kThreads = 256;
  constexpr int64_t kMostBlocks = 4096;
  const int64_t count = int64_t{m} * n;
  LaunchOverlapping(Finish, dim3(std::min<int64_t>((count + kThreads - 1) / kThreads, kMostBlocks)),
                    dim3(kThreads), 0, stream, sums, count, n, bias, output, y);
}

}  // namespace tandem::kernels::cuda
