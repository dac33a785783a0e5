// The candidate lists and the draw of logits rows, equal to reference/candidates.h to the bit.
//
//   AdjustKernel   chunk x row    adjusted logits; what the chunk adds to its row
//   ScoreKernel    chunk x row    weights and perturbed values, relative to the row's maximum
//   SelectKernel   column x row   the lists, sorted; the summary
//   CountKernel    chunk x row    ranks and masses of the listed entries, added up in the lists
//   DecideKernel   row            the token drawn, and appended to its slot
//
// The arithmetic of values is that of kernels/draw; all else is comparisons and sums of integers.
#include <cstdint>

#include "kernels/check.h"
#include "kernels/cuda/candidates_edit.cuh"
#include "kernels/cuda/candidates_lists.cuh"
#include "kernels/cuda/candidates_row.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/programmatic.cuh"
#include "kernels/draw/decide.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int32_t kChunkWarps = kChunkThreads / kWarp;
constexpr int32_t kIdsPerThread = kChunkIds / kChunkThreads;

__global__ void __launch_bounds__(kChunkThreads)
    AdjustKernel(CandidatesArgs args, Scratch scratch) {
  __shared__ ChunkEdits edits;
  __shared__ ChunkPart warp_parts[kChunkWarps];
  const int32_t chunk = static_cast<int32_t>(blockIdx.x);
  const int32_t index = static_cast<int32_t>(blockIdx.y);
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const RowContext row = ContextOf(args, index);
  const SlotState& slots = args.slots;
  const int32_t first = chunk * kChunkIds;
  if (!row.idle) CollectEdits(slots, row, first, edits);
  BeginOverlapping();  // only the logits are new
  if (row.idle) return;

  const DrawParams params = *row.params;
  const uint32_t* allowed = nullptr;
  if (slots.allowed_bits != nullptr && slots.has_allowed[row.slot] != 0) {
    allowed = slots.allowed_bits + row.slot * ((int64_t{slots.vocab_size} + 31) / 32);
  }
  float* adjusted = scratch.adjusted + (int64_t{index} * scratch.num_chunks + chunk) * kChunkIds;
  uint32_t* maxima = MaximaOf(scratch, index, kAdjusted) + chunk * kChunkGroups;
  uint32_t* raw_maxima = MaximaOf(scratch, index, kRaw) + chunk * kChunkGroups;
  ChunkPart part = {0, 0, 0, kNoId};
  float raws[kIdsPerThread];
#pragma unroll
  for (int k = 0; k < kIdsPerThread; ++k) {
    const int32_t id = first + thread + k * kChunkThreads;
    raws[k] = id < slots.vocab_size ? row.logits[id] : 0.0f;
  }
#pragma unroll
  for (int k = 0; k < kIdsPerThread; ++k) {
    const int32_t i = thread + k * kChunkThreads;
    const int32_t id = first + i;
    float value = MinusInfinity();
    uint64_t raw_key = 0;
    if (id < slots.vocab_size) {
      const float raw = raws[k];
      const bool is_allowed = (slots.defined_bits == nullptr || BitIsSet(slots.defined_bits, id)) &&
                              (allowed == nullptr || BitIsSet(allowed, id));
      value = AdjustedOrOutside(raw, edits.bias[i], edits.marks[i], is_allowed, params);
      raw_key = OrderKey(raw, id);
      if (!IsFinite(raw)) part.first_nonfinite = min(part.first_nonfinite, id);
    }
    adjusted[i] = value;
    const uint64_t key = value > MinusInfinity() ? OrderKey(value, id) : 0;
    part.num_in_row += key != 0 ? 1 : 0;
    part.max_key = key > part.max_key ? key : part.max_key;
    part.raw_max_key = raw_key > part.raw_max_key ? raw_key : part.raw_max_key;
    const uint32_t largest = __reduce_max_sync(kAllLanes, OrderedBits(value));
    const uint32_t raw_largest = __reduce_max_sync(kAllLanes, static_cast<uint32_t>(raw_key >> 32));
    if (thread % kWarp == 0) {
      maxima[i / kGroupIds] = largest;
      raw_maxima[i / kGroupIds] = raw_largest;
    }
  }
  part.max_key = WarpMax(part.max_key);
  part.raw_max_key = WarpMax(part.raw_max_key);
  part.num_in_row = __reduce_add_sync(kAllLanes, part.num_in_row);
  part.first_nonfinite = __reduce_min_sync(kAllLanes, part.first_nonfinite);
  if (thread % kWarp == 0) warp_parts[thread / kWarp] = part;
  __syncthreads();
  if (thread != 0) return;
  for (int32_t warp = 1; warp < kChunkWarps; ++warp) {
    const ChunkPart& other = warp_parts[warp];
    part.max_key = other.max_key > part.max_key ? other.max_key : part.max_key;
    part.raw_max_key = other.raw_max_key > part.raw_max_key ? other.raw_max_key : part.raw_max_key;
    part.num_in_row += other.num_in_row;
    part.first_nonfinite = min(part.first_nonfinite, other.first_nonfinite);
  }
  scratch.parts[int64_t{index} * scratch.num_chunks + chunk] = part;
}

__global__ void __launch_bounds__(kChunkThreads) ScoreKernel(CandidatesArgs args, Scratch scratch) {
  __shared__ uint64_t warp_sums[kChunkWarps];
  static_assert(kIdsPerThread == 4);  // neighbours, which share a block of the generator
  const int32_t chunk = static_cast<int32_t>(blockIdx.x);
  const int32_t index = static_cast<int32_t>(blockIdx.y);
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const RowContext row = ContextOf(args, index);
  const int32_t first = chunk * kChunkIds;
  const int32_t id = first + kIdsPerThread * thread;
  float noise[kIdsPerThread] = {};
  if (!row.idle && !row.params->greedy) {
    const PhiloxBlock block = DrawWords(row.params->seed, row.params->choice, row.position,
                                        static_cast<uint32_t>(id) >> 2);
    for (int i = 0; i < kIdsPerThread; ++i) noise[i] = GumbelOfWord(block.word[i]);
  }
  BeginOverlapping();
  if (row.idle) return;
  const ChunkPart whole = WholeRow(scratch, index);
  if (whole.first_nonfinite != kNoId) return;

  const DrawParams params = *row.params;
  uint64_t total = 0, raw_total = 0;
  if (whole.num_in_row > 0) {
    const float row_max = RowMax(scratch, index, whole);
    const int64_t line = int64_t{index} * scratch.num_chunks * kChunkIds;
    const float4 values = *reinterpret_cast<const float4*>(scratch.adjusted + line + id);
    float perturbed[kIdsPerThread] = {
        ScaledLogit(values.x, row_max, params), ScaledLogit(values.y, row_max, params),
        ScaledLogit(values.z, row_max, params), ScaledLogit(values.w, row_max, params)};
    for (int i = 0; i < kIdsPerThread; ++i) total += DrawWeight(perturbed[i]);
    if (!params.greedy) {
      for (int i = 0; i < kIdsPerThread; ++i) perturbed[i] = perturbed[i] + noise[i];
    }
    *reinterpret_cast<float4*>(scratch.perturbed + line + id) =
        make_float4(perturbed[0], perturbed[1], perturbed[2], perturbed[3]);
    uint32_t largest = 0;
    for (int i = 0; i < kIdsPerThread; ++i) largest = max(largest, OrderedBits(perturbed[i]));
    for (int offset = 1; offset < kGroupIds / kIdsPerThread; offset *= 2) {
      largest = max(largest, __shfl_xor_sync(kAllLanes, largest, offset));
    }
    if (id % kGroupIds == 0) MaximaOf(scratch, index, kPerturbed)[id / kGroupIds] = largest;
    total = BlockSum(total, warp_sums, kChunkThreads);
  }
  if (params.want_raw) {
    const float raw_max = row.logits[OrderKeyId(whole.raw_max_key)];
    const int32_t end = min(id + kIdsPerThread, args.slots.vocab_size);
    for (int32_t i = id; i < end; ++i) raw_total += DrawWeight(row.logits[i] - raw_max);
    raw_total = BlockSum(raw_total, warp_sums, kChunkThreads);
  }
  if (thread != 0) return;
  scratch.weights[int64_t{index} * scratch.num_chunks + chunk] = {total, raw_total};
}

// The fields of the summary that a column's block answers for, as they are in an idle row.
__device__ void ClearSummary(ColumnKind column, int32_t first_nonfinite, RowSummary& summary) {
  switch (column) {
    case kAdjusted:
      summary.num_top = 0;
      summary.num_in_row = 0;
      summary.row_max = 0.0f;
      summary.total_weight = 0;
      summary.top_k_weight = 0;
      summary.first_nonfinite = first_nonfinite;
      summary.drawn = -1;
      break;
    case kPerturbed:
      summary.num_perturbed = 0;
      summary.next_perturbed = 0.0f;
      break;
    default:
      summary.num_raw_top = 0;
      summary.num_reported = 0;
      summary.raw_max = 0.0f;
      summary.raw_total = 0;
  }
}

__global__ void __launch_bounds__(kSelectThreads)
    SelectKernel(CandidatesArgs args, Scratch scratch) {
  __shared__ SelectShared shared;
  const ColumnKind column = static_cast<ColumnKind>(blockIdx.x);
  const int32_t index = static_cast<int32_t>(blockIdx.y);
  const RowContext row = ContextOf(args, index);
  BeginOverlapping();
  const ChunkPart whole = row.idle ? ChunkPart{} : WholeRow(scratch, index);
  const bool is_finite = !row.idle && whole.first_nonfinite == kNoId;
  if (threadIdx.x == 0) {
    ClearSummary(column, row.idle || is_finite ? -1 : whole.first_nonfinite, args.summary[index]);
  }
  if (!is_finite) return;
  const Selection selection = {args, scratch, index, row, whole, shared};
  switch (column) {
    case kAdjusted:
      return SelectTop(selection);
    case kPerturbed:
      return SelectPerturbed(selection);
    default:
      return SelectRaw(selection);
  }
}

// The keys of a thread's ids of a chunk, and their weights.
struct ThreadIds {
  uint64_t keys[kIdsPerThread];
  uint64_t weights[kIdsPerThread];
};

// Adds the chunk's ids that stand before (value, id) to *rank, their weights to *mass if it is not
// null. chunk_max_key: the largest key of the chunk.
__device__ void AddBefore(const ThreadIds& ids, uint64_t chunk_max_key, float value, int32_t id,
                          int32_t* rank, uint64_t* mass) {
  const uint64_t place = OrderKey(value, id);
  if (chunk_max_key <= place) return;
  uint32_t count = 0;
  uint64_t sum = 0;
#pragma unroll
  for (int i = 0; i < kIdsPerThread; ++i) {
    const bool is_before = ids.keys[i] > place;
    count += is_before ? 1 : 0;
    sum += is_before ? ids.weights[i] : 0;
  }
  count = __reduce_add_sync(kAllLanes, count);
  if (count == 0) return;
  if (mass != nullptr) sum = WarpSum(sum);
  if (threadIdx.x % kWarp != 0) return;
  atomicAdd(rank, static_cast<int32_t>(count));
  if (mass != nullptr) {
    static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
    atomicAdd(reinterpret_cast<unsigned long long*>(mass), static_cast<unsigned long long>(sum));
  }
}

__global__ void __launch_bounds__(kChunkThreads) CountKernel(CandidatesArgs args, Scratch scratch) {
  const int32_t chunk = static_cast<int32_t>(blockIdx.x);
  const int32_t index = static_cast<int32_t>(blockIdx.y);
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const RowContext row = ContextOf(args, index);
  BeginOverlapping();
  if (row.idle) return;
  const RowSummary& summary = args.summary[index];
  if (summary.first_nonfinite >= 0) return;
  const DrawParams& params = *row.params;
  const ChunkPart part = scratch.parts[int64_t{index} * scratch.num_chunks + chunk];
  const int32_t first = chunk * kChunkIds;
  const int32_t num_top = summary.num_top;
  const int32_t num_perturbed = summary.num_perturbed;
  PerturbedEntry* perturbed = args.perturbed + int64_t{index} * args.max_perturbed;

  uint64_t lowest = ~uint64_t{0};  // of the places that are asked for
  for (int32_t i = 0; i < num_perturbed; ++i) {
    const uint64_t place = OrderKey(perturbed[i].adjusted, perturbed[i].id);
    lowest = place < lowest ? place : lowest;
  }
  if (part.max_key > lowest) {
    const float row_max = summary.row_max;
    const float* adjusted = scratch.adjusted + int64_t{index} * scratch.num_chunks * kChunkIds;
    ThreadIds ids;
#pragma unroll
    for (int i = 0; i < kIdsPerThread; ++i) {
      const int32_t id = first + i * kChunkThreads + thread;
      ids.keys[i] = OrderKey(adjusted[id], id);
      ids.weights[i] = DrawWeight(ScaledLogit(adjusted[id], row_max, params));
    }
    for (int32_t i = 0; i < num_perturbed; ++i) {
      PerturbedEntry& entry = perturbed[i];
      AddBefore(ids, part.max_key, entry.adjusted, entry.id, &entry.rank, &entry.mass_above);
    }
  }
  if (!params.want_raw) return;

  ThreadIds ids;
#pragma unroll
  for (int i = 0; i < kIdsPerThread; ++i) {
    const int32_t id = first + i * kChunkThreads + thread;
    ids.keys[i] = id < args.slots.vocab_size ? OrderKey(row.logits[id], id) : 0;
    ids.weights[i] = 0;
  }
  TopEntry* top = args.top + int64_t{index} * args.max_top;
  for (int32_t i = 0; i < num_top; ++i) {
    AddBefore(ids, part.raw_max_key, top[i].raw, top[i].id, &top[i].raw_rank, nullptr);
  }
  for (int32_t i = 0; i < num_perturbed; ++i) {
    PerturbedEntry& entry = perturbed[i];
    AddBefore(ids, part.raw_max_key, entry.raw, entry.id, &entry.raw_rank, nullptr);
  }
  RawEntry* reported = args.reported + int64_t{index} * kMaxReported;
  for (int32_t i = 0; i < summary.num_reported; ++i) {
    AddBefore(ids, part.raw_max_key, reported[i].raw, reported[i].id, &reported[i].raw_rank,
              nullptr);
  }
  if (args.next != nullptr) {
    RawEntry& next = args.next[index];
    AddBefore(ids, part.raw_max_key, next.raw, next.id, &next.raw_rank, nullptr);
  }
}

// One block, a warp, for the rows of each slot, which stand next to each other: that of the first
// row, a lane for a row.
__global__ void __launch_bounds__(kWarp) DecideKernel(CandidatesArgs args) {
  const int32_t index = static_cast<int32_t>(blockIdx.x);
  const int32_t lane = static_cast<int32_t>(threadIdx.x);
  const SlotState& slots = args.slots;
  const RowContext first = ContextOf(args, index);
  const auto is_of_slot = [&](int32_t other) {
    if (other < 0 || other >= args.num_logits_rows) return false;
    const RowContext row = ContextOf(args, other);
    return !row.idle && row.slot == first.slot;
  };
  BeginOverlapping();
  if (first.idle || is_of_slot(index - 1)) return;
  bool is_appended = !args.advance;
  int32_t count = kWarp;
  for (int32_t begin = index; count == kWarp; begin += kWarp) {
    const uint32_t others = ~__ballot_sync(kAllLanes, is_of_slot(begin + lane));
    count = others == 0 ? kWarp : __ffs(static_cast<int32_t>(others)) - 1;
    const int32_t mine = begin + lane;
    int32_t drawn = -1;
    bool ends = false;  // the draw is not the draft behind it
    if (lane < count) {
      const RowContext row = ContextOf(args, mine);
      RowSummary& summary = args.summary[mine];
      drawn = DecideFromLists(summary, args.top + int64_t{mine} * args.max_top,
                              args.perturbed + int64_t{mine} * args.max_perturbed, *row.params,
                              row.position);
      summary.drawn = drawn;
      ends = !is_of_slot(mine + 1) || args.rows.token[args.logits_rows[mine + 1]] != drawn;
    }
    const uint32_t ending = __ballot_sync(kAllLanes, ends);
    if (is_appended || ending == 0) continue;
    is_appended = true;
    const int32_t position = first.position + (begin - index) + lane;
    if (lane != __ffs(static_cast<int32_t>(ending)) - 1 || position >= slots.context_length) {
      continue;
    }
    slots.tokens[int64_t{first.slot} * slots.context_length + position] =
        drawn >= 0 ? drawn : kIdleToken;
    slots.num_tokens[first.slot] = position + 1;
  }
}

int32_t NumChunks(int32_t vocab_size) { return (vocab_size + kChunkIds - 1) / kChunkIds; }

}  // namespace

int64_t CandidatesScratchBytes(int32_t logits_rows, int32_t vocab_size) {
  constexpr int64_t kChunkBytes = sizeof(ChunkPart) + sizeof(ChunkWeights) +
                                  2 * kChunkIds * sizeof(float) +
                                  kNumColumns * kChunkGroups * sizeof(uint32_t);
  return int64_t{logits_rows} * NumChunks(vocab_size) * kChunkBytes;
}

void LaunchCandidates(const CandidatesArgs& args, void* scratch_memory, cudaStream_t stream) {
  const int32_t n = args.num_logits_rows;
  if (n == 0) return;
  KERNELS_REQUIRE(args.slots.vocab_size > 0, "vocabulary %d", args.slots.vocab_size);
  KERNELS_REQUIRE(args.max_top >= 0 && args.max_top <= kMaxTop && args.max_perturbed >= 0 &&
                      args.max_perturbed <= kMaxPerturbed,
                  "room for %d and %d", args.max_top, args.max_perturbed);
  Scratch scratch;
  scratch.num_chunks = NumChunks(args.slots.vocab_size);
  const int64_t chunks = int64_t{n} * scratch.num_chunks;
  scratch.adjusted = static_cast<float*>(scratch_memory);
  scratch.perturbed = scratch.adjusted + chunks * kChunkIds;
  scratch.maxima = reinterpret_cast<uint32_t*>(scratch.perturbed + chunks * kChunkIds);
  scratch.parts =
      reinterpret_cast<ChunkPart*>(scratch.maxima + chunks * kNumColumns * kChunkGroups);
  scratch.weights = reinterpret_cast<ChunkWeights*>(scratch.parts + chunks);

  const dim3 chunk_grid(scratch.num_chunks, n);
  LaunchOverlapping(AdjustKernel, chunk_grid, dim3(kChunkThreads), 0, stream, args, scratch);
  LaunchOverlapping(ScoreKernel, chunk_grid, dim3(kChunkThreads), 0, stream, args, scratch);
  LaunchOverlapping(SelectKernel, dim3(kNumColumns, n), dim3(kSelectThreads), 0, stream, args,
                    scratch);
  LaunchOverlapping(CountKernel, chunk_grid, dim3(kChunkThreads), 0, stream, args, scratch);
  LaunchOverlapping(DecideKernel, dim3(n), dim3(kWarp), 0, stream, args);
  Settle(stream);
}

}  // namespace tandem::kernels::cuda
