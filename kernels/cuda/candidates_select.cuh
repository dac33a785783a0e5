// The largest keys of a column, by one block: exact, for any number of them and any ties.
//
// Keys are OrderKeys (value descending, id ascending), unique in a row, 0 for none. The largest
// value of every group of 32 ids is known. If k groups reach a bound, then so do k ids, and what
// lies below it is not among the k largest: only groups that reach it are read. Mostly few ids are
// left then, which are sorted; otherwise a radix selection over the keys cuts them to k first.
#pragma once

#include <cstdint>

#include "kernels/cuda/candidates_row.cuh"
#include "kernels/draw/order.h"

namespace tandem::kernels::cuda {

inline constexpr int32_t kSelectThreads = 1024;
inline constexpr int32_t kSelectWarps = kSelectThreads / kWarp;
inline constexpr int32_t kSortKeys = 2 * kMaxTop;  // a power of two

struct SelectShared {
  uint64_t keys[kSortKeys];
  uint32_t histogram[256];
  uint32_t digit;      // the digit where the k-th largest lies,
  uint32_t num_above;  // the keys with larger digits,
  uint32_t num_in;     // and those with this one
  int32_t num_keys;
};

struct Column {
  const float* values;     // [count]
  const uint32_t* maxima;  // [num_groups] OrderedBits of the largest value of each group
  int32_t count;
  int32_t num_groups;
};

// Sources of keys. ForEach calls visit(key) for every key >= at_least and perhaps for others; whole
// warps call it together, with key 0 in lanes that have none.

// The maxima themselves, each with its group as the id.
struct MaximaSource {
  Column column;

  template <typename Visit>
  __device__ void ForEach(uint64_t /* at_least */, Visit visit) const {
    const int32_t thread = static_cast<int32_t>(threadIdx.x);
    const int32_t lane = thread % kWarp;
    for (int32_t first = thread - lane; first < column.num_groups; first += kSelectThreads) {
      const int32_t group = first + lane;
      visit(group < column.num_groups
                ? (uint64_t{column.maxima[group]} << 32) | (0xFFFFFFFFu - group)
                : 0);
    }
  }
};

// Ids of groups whose largest value is at least bound (OrderedBits).
struct IdSource {
  Column column;
  uint32_t bound;

  template <typename Visit>
  __device__ void ForEach(uint64_t at_least, Visit visit) const {
    const uint32_t value_at_least = static_cast<uint32_t>(at_least >> 32);
    const uint32_t limit = value_at_least > bound ? value_at_least : bound;
    const int32_t thread = static_cast<int32_t>(threadIdx.x);
    const int32_t lane = thread % kWarp;
    for (int32_t first = thread - lane; first < column.num_groups; first += kSelectThreads) {
      const int32_t group = first + lane;
      uint32_t reach =
          __ballot_sync(kAllLanes, group < column.num_groups && column.maxima[group] >= limit);
      while (reach != 0) {
        const int32_t id = (first + __ffs(static_cast<int32_t>(reach)) - 1) * kGroupIds + lane;
        reach &= reach - 1;
        visit(id < column.count ? OrderKey(column.values[id], id) : 0);
      }
    }
  }
};

// Finds the digit of the k-th largest key from the histogram, k in [1, sum of it]. One warp.
__device__ inline void ChooseDigit(SelectShared& shared, uint32_t k) {
  constexpr int32_t kBinsPerLane = 256 / kWarp;
  const int32_t lane = static_cast<int32_t>(threadIdx.x);
  const uint32_t* bins = shared.histogram + lane * kBinsPerLane;
  uint32_t own = 0;
  for (int32_t i = 0; i < kBinsPerLane; ++i) own += bins[i];
  uint32_t from_here = own;  // keys in this lane's bins and in all higher ones
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const uint32_t other = __shfl_down_sync(kAllLanes, from_here, offset);
    if (lane + offset < kWarp) from_here += other;
  }
  uint32_t above = from_here - own;
  if (above >= k || from_here < k) return;
  for (int32_t i = kBinsPerLane - 1; i >= 0; --i) {
    if (above + bins[i] >= k) {
      shared.digit = lane * kBinsPerLane + i;
      shared.num_above = above;
      shared.num_in = bins[i];
      return;
    }
    above += bins[i];
  }
}

// A number t with k to k + slack keys >= t. REQUIRES 1 <= k <= number of keys. The whole block
// calls it, and all threads get t.
template <typename Source>
__device__ uint64_t Threshold(const Source& source, int32_t k, uint32_t slack,
                              SelectShared& shared) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  uint64_t prefix = 0;
  uint32_t left = static_cast<uint32_t>(k);
  for (int shift = 56;; shift -= 8) {
    if (thread < 256) shared.histogram[thread] = 0;
    __syncthreads();
    source.ForEach(prefix, [&](uint64_t key) {
      constexpr uint32_t kNone = 256;
      const bool counts = key != 0 && (shift == 56 || key >> (shift + 8) == prefix >> (shift + 8));
      const uint32_t digit = counts ? static_cast<uint32_t>(key >> shift) & 255u : kNone;
      const uint32_t equal = __match_any_sync(kAllLanes, digit);  // one addition for a digit
      if (digit != kNone && thread % kWarp == __ffs(static_cast<int32_t>(equal)) - 1) {
        atomicAdd(&shared.histogram[digit], static_cast<uint32_t>(__popc(equal)));
      }
    });
    __syncthreads();
    if (thread < kWarp) ChooseDigit(shared, left);
    __syncthreads();
    prefix |= uint64_t{shared.digit} << shift;
    left -= shared.num_above;
    if (shared.num_in - left <= slack || shift == 0) return prefix;
  }
}

// Ids that can be among the k largest. REQUIRES k >= 1. A few groups more than k cost less than the
// passes that would find them.
__device__ inline IdSource SourceOf(const Column& column, int32_t k, SelectShared& shared) {
  constexpr uint32_t kSlack = 32;
  if (k >= column.num_groups) return {column, 0};
  const uint64_t bound = Threshold(MaximaSource{column}, k, kSlack, shared);
  return {column, static_cast<uint32_t>(bound >> 32)};
}

// Writes the keys >= at_least to shared.keys, as far as they have room, in no order, and returns
// their number.
__device__ inline int32_t Collect(const IdSource& source, uint64_t at_least, SelectShared& shared) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kWarp;
  __syncthreads();
  if (threadIdx.x == 0) shared.num_keys = 0;
  __syncthreads();
  source.ForEach(at_least, [&](uint64_t key) {
    const bool takes = key != 0 && key >= at_least;
    const uint32_t takers = __ballot_sync(kAllLanes, takes);
    int32_t place = 0;
    if (lane == 0) place = atomicAdd(&shared.num_keys, __popc(takers));
    place = __shfl_sync(kAllLanes, place, 0) + __popc(takers & ((1u << lane) - 1));
    if (takes && place < kSortKeys) shared.keys[place] = key;
  });
  __syncthreads();
  return shared.num_keys;
}

// Sorts shared.keys[0, count), largest first (Batcher's bitonic network). count <= kSortKeys. Few
// keys are sorted by one warp, which needs no barrier of the block between steps.
__device__ inline void SortKeys(int32_t count, SelectShared& shared) {
  constexpr int32_t kFewKeys = 4 * kWarp;
  int32_t size = 2;
  while (size < count) size *= 2;
  const bool are_few = size <= kFewKeys;
  const int32_t num_threads = are_few ? kWarp : kSelectThreads;
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const bool works = thread < num_threads;
  for (int32_t i = count + thread; works && i < size; i += num_threads) shared.keys[i] = 0;
  for (int32_t run = 2; run <= size; run *= 2) {
    for (int32_t step = run / 2; step > 0; step /= 2) {
      if (!are_few) __syncthreads();
      if (are_few && works) __syncwarp();
      for (int32_t i = thread; works && i < size / 2; i += num_threads) {
        const int32_t low = i / step * 2 * step + i % step;
        const int32_t high = low + step;
        const uint64_t a = shared.keys[low], b = shared.keys[high];
        const bool largest_first = (low & run) == 0;
        if ((a < b) == largest_first) {
          shared.keys[low] = b;
          shared.keys[high] = a;
        }
      }
    }
  }
  __syncthreads();
}

// The k largest keys, largest first, in shared.keys. REQUIRES 0 <= k <= kSortKeys, k <= ids.
__device__ inline void LargestKeys(const Column& column, int32_t k, SelectShared& shared) {
  if (k == 0) return;
  const IdSource source = SourceOf(column, k, shared);
  int32_t count = Collect(source, uint64_t{source.bound} << 32, shared);
  if (count > kSortKeys) count = Collect(source, Threshold(source, k, 0, shared), shared);
  SortKeys(count, shared);
}

}  // namespace tandem::kernels::cuda
