// Attention of one kv head's group over pages of 64 keys, in one pass with a running maximum and
// sum (Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al.,
// "FlashAttention", 2022).
//
// The definition, for a query at position p, whichever rows stand beside it: pages ascend from the
// first that holds a visible key. Within a page
//   score_k = scale * sum over d of q_d k_d: 16 partial sums, d ascending by 16, then ReduceAdd;
//             capped if there is a cap
//   maximum', w = exp(maximum - maximum'), p_k = exp(score_k - maximum')
//   sum     = sum * w + ReduceAdd of (p of keys 0..15 + 16..31) + (32..47 + 48..63)
//   out_d   = out_d * w, then fma(p_k, v_kd, out_d) over visible keys k ascending
// and at the end out_d / sum. Keys that the row may not see enter as p = 0; their v is not read.
#include "kernels/cpu/level_functions.h"
#include "kernels/cpu/vec_math.h"

namespace tandem::kernels::cpu::TANDEM_CPU_LEVEL {
namespace {

constexpr int kLanes = 16;
constexpr int kPage = kPageTokens;
constexpr int kMaxQueries = 64;
#if defined(TANDEM_CPU_AVX512)
constexpr int kKeysTogether = 16;
#else
constexpr int kKeysTogether = 4;
#endif

// State of one query between pages.
struct Query {
  float maximum;
  float sum;
};

// Dot products of q with 16 keys that lie head_dim apart.
TANDEM_SIMD F DotSixteen(const float* q, const float* keys, int32_t head_dim) {
  F dot[kLanes];
  TANDEM_UNROLL for (int first = 0; first < kLanes; first += kKeysTogether) {
    F sum[kKeysTogether];
    TANDEM_UNROLL for (int i = 0; i < kKeysTogether; ++i) sum[i] = Zero();
    const float* key = keys + first * int64_t{head_dim};
    int32_t d = 0;
    for (; d + kLanes <= head_dim; d += kLanes) {
      const F part = Load(q + d);
      TANDEM_UNROLL for (int i = 0; i < kKeysTogether; ++i) {
        sum[i] = Fma(part, Load(key + i * int64_t{head_dim} + d), sum[i]);
      }
    }
    if (d < head_dim) {
      const F part = LoadFirst(q + d, 8);
      TANDEM_UNROLL for (int i = 0; i < kKeysTogether; ++i) {
        sum[i] = Fma(part, LoadFirst(key + i * int64_t{head_dim} + d, 8), sum[i]);
      }
    }
    TANDEM_UNROLL for (int i = 0; i < kKeysTogether; ++i) dot[first + i] = sum[i];
  }
  return ReduceAdd16(dot);
}

TANDEM_SIMD I LanesFrom(int32_t first) {
  alignas(64) static const int32_t kNumbers[kLanes] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                       8, 9, 10, 11, 12, 13, 14, 15};
  return AddI(LoadI(kNumbers), SetI(first));
}

// Turns a page's visible keys [begin, end) into weights p [64] and updates the query. Returns w.
float ScorePage(const AttentionTask& task, const float* q, const float* keys, int32_t begin,
                int32_t end, Query* query, float* weights) {
  const F lowest = Set1(-__builtin_inff());
  F score[kPage / kLanes];
  F largest = lowest;
  for (int j = 0; j < kPage / kLanes; ++j) {
    const int32_t first = j * kLanes;
    score[j] = lowest;
    if (first >= end || first + kLanes <= begin) continue;
    F s =
        Mul(DotSixteen(q, keys + first * int64_t{task.head_dim}, task.head_dim), Set1(task.scale));
    if (task.soft_cap != 0.0f) {
      s = Mul(Set1(task.soft_cap), Tanh(Div(s, Set1(task.soft_cap))));
    }
    const I lane = LanesFrom(first);
    s = Select(LessInt(lane, SetI(end)), s, lowest);
    score[j] = Select(LessInt(lane, SetI(begin)), lowest, s);
    largest = Max(largest, score[j]);
  }
  const float page_maximum = ReduceMax(largest);
  const float maximum = query->maximum < page_maximum ? page_maximum : query->maximum;
  alignas(64) float first_lane[kLanes];
  Store(first_lane, Exp(Set1(query->maximum - maximum)));
  const float rescale = first_lane[0];
  F p[kPage / kLanes];
  TANDEM_UNROLL for (int j = 0; j < kPage / kLanes; ++j) {
    p[j] = Exp(Sub(score[j], Set1(maximum)));
    Store(weights + j * kLanes, p[j]);
  }
  query->maximum = maximum;
  query->sum = query->sum * rescale + ReduceAdd(Add(Add(p[0], p[1]), Add(p[2], p[3])));
  return rescale;
}

// out = out * w + sum over keys [begin, end) of p_k v_k, for kHeads heads and kVectors vectors of
// the head's dimensions (kLast lanes of the last). weights [heads][64], out heads head_dim apart.
template <int kHeads, int kVectors, int kLast>
void AddValues(const float* weights, const float* rescale, const float* values, int32_t head_dim,
               int32_t begin, int32_t end, float* out) {
  constexpr int kWhole = kLast == kLanes ? kVectors : kVectors - 1;
  F sum[kHeads][kVectors];
  TANDEM_UNROLL for (int h = 0; h < kHeads; ++h) {
    TANDEM_UNROLL for (int v = 0; v < kVectors; ++v) {
      const float* from = out + h * int64_t{head_dim} + v * kLanes;
      sum[h][v] = Mul(v < kWhole ? Load(from) : LoadFirst(from, kLast), Set1(rescale[h]));
    }
  }
  for (int32_t k = begin; k < end; ++k) {
    const float* from = values + k * int64_t{head_dim};
    F value[kVectors];
    TANDEM_UNROLL for (int v = 0; v < kVectors; ++v) {
      value[v] = v < kWhole ? Load(from + v * kLanes) : LoadFirst(from + v * kLanes, kLast);
    }
    TANDEM_UNROLL for (int h = 0; h < kHeads; ++h) {
      const F weight = Set1(weights[h * kPage + k]);
      TANDEM_UNROLL for (int v = 0; v < kVectors; ++v) {
        sum[h][v] = Fma(weight, value[v], sum[h][v]);
      }
    }
  }
  TANDEM_UNROLL for (int h = 0; h < kHeads; ++h) {
    TANDEM_UNROLL for (int v = 0; v < kVectors; ++v) {
      float* to = out + h * int64_t{head_dim} + v * kLanes;
      if (v < kWhole) {
        Store(to, sum[h][v]);
      } else {
        StoreFirst(to, kLast, sum[h][v]);
      }
    }
  }
}

template <int kHeads>
void AddValuesOfHeads(const float* weights, const float* rescale, const float* values,
                      int32_t head_dim, int32_t begin, int32_t end, float* out) {
  int32_t d = 0;
  for (; d + 4 * kLanes <= head_dim; d += 4 * kLanes) {
    AddValues<kHeads, 4, kLanes>(weights, rescale, values + d, head_dim, begin, end, out + d);
  }
  for (; d + kLanes <= head_dim; d += kLanes) {
    AddValues<kHeads, 1, kLanes>(weights, rescale, values + d, head_dim, begin, end, out + d);
  }
  if (d < head_dim) {
    AddValues<kHeads, 1, 8>(weights, rescale, values + d, head_dim, begin, end, out + d);
  }
}

void AddValuesOfGroup(const AttentionTask& task, const float* weights, const float* rescale,
                      const float* values, int32_t begin, int32_t end, float* out) {
  int32_t h = 0;
  const int64_t dim = task.head_dim;
  for (; h + 4 <= task.group; h += 4) {
    AddValuesOfHeads<4>(weights + h * kPage, rescale + h, values, task.head_dim, begin, end,
                        out + h * dim);
  }
  switch (task.group - h) {
    case 3:
      return AddValuesOfHeads<3>(weights + h * kPage, rescale + h, values, task.head_dim, begin,
                                 end, out + h * dim);
    case 2:
      return AddValuesOfHeads<2>(weights + h * kPage, rescale + h, values, task.head_dim, begin,
                                 end, out + h * dim);
    case 1:
      return AddValuesOfHeads<1>(weights + h * kPage, rescale + h, values, task.head_dim, begin,
                                 end, out + h * dim);
    default:
      return;
  }
}

// Asks for a page's keys or values.
TANDEM_SIMD void PrefetchPage(const float* page, int32_t head_dim) {
  for (int32_t i = 0; i < kPage * head_dim; i += kLanes) __builtin_prefetch(page + i, 0, 2);
}

int32_t FirstVisible(const AttentionTask& task, int32_t position) {
  const int32_t first = task.window > 0 ? position - task.window + 1 : 0;
  return first > 0 ? first : 0;
}

}  // namespace

void Attention(const AttentionTask& task, int32_t first_position, int32_t num_rows) {
  Query queries[kMaxQueries];
  alignas(64) float weights[kMaxGroup * kPage];
  float rescale[kMaxGroup];
  const int32_t width = task.group * task.head_dim;
  for (int32_t r = 0; r < num_rows; ++r) {
    float* out = task.out + r * task.row_stride;
    for (int32_t i = 0; i < width; ++i) out[i] = 0.0f;
    for (int32_t h = 0; h < task.group; ++h) {
      queries[r * task.group + h] = {-__builtin_inff(), 0.0f};
    }
  }

  const int32_t last_position = first_position + num_rows - 1;
  for (int32_t page = FirstVisible(task, first_position) / kPage; page <= last_position / kPage;
       ++page) {
    const int64_t offset = task.pages[page] * task.page_stride;
    PrefetchPage(task.values + offset, task.head_dim);
    if (page < last_position / kPage) {
      PrefetchPage(task.keys + task.pages[page + 1] * task.page_stride, task.head_dim);
    }
    for (int32_t r = 0; r < num_rows; ++r) {
      const int32_t position = first_position + r;
      int32_t begin = FirstVisible(task, position) - page * kPage;
      int32_t end = position + 1 - page * kPage;
      begin = begin > 0 ? begin : 0;
      end = end < kPage ? end : kPage;
      if (begin >= end) continue;
      for (int32_t h = 0; h < task.group; ++h) {
        const float* q = task.q + r * task.row_stride + h * int64_t{task.head_dim};
        rescale[h] = ScorePage(task, q, task.keys + offset, begin, end,
                               &queries[r * task.group + h], weights + h * kPage);
      }
      AddValuesOfGroup(task, weights, rescale, task.values + offset, begin, end,
                       task.out + r * task.row_stride);
    }
  }

  for (int32_t r = 0; r < num_rows; ++r) {
    for (int32_t h = 0; h < task.group; ++h) {
      const float inverse = 1.0f / queries[r * task.group + h].sum;
      float* out = task.out + r * task.row_stride + h * int64_t{task.head_dim};
      for (int32_t d = 0; d < task.head_dim; ++d) out[d] = out[d] * inverse;
    }
  }
}

}  // namespace tandem::kernels::cpu::TANDEM_CPU_LEVEL
