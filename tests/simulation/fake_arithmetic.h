// The arithmetic of the fake model: 64-bit hashes in place of activations, so that a mix-up of
// sessions, pages, positions or tokens anywhere before a row shows in the row's hash. FakeOps
// computes it through page tables and slot arrays, ListModel from a plain token list.
#pragma once

#include <cstdint>
#include <cstring>

namespace tandem::test {

inline constexpr int32_t kFakeVocab = 61;
inline constexpr int32_t kFakeWidth = 8;    // hidden size, head_dim and ffn_size
inline constexpr int32_t kFakeWindow = 96;  // of layer 1; layer 0 sees everything
inline constexpr int32_t kFakeContext = 512;
inline constexpr int32_t kFakeLayers = 2;

// The finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
// generators", OOPSLA 2014).
constexpr uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
constexpr uint64_t Hash(uint64_t a, uint64_t b) {
  return Mix(a * 0x9E3779B97F4A7C15u + Mix(b + 0xD1B54A32D192ED03u));
}
template <typename... More>
constexpr uint64_t Hash(uint64_t a, uint64_t b, More... more) {
  return Hash(Hash(a, b), more...);
}

constexpr uint64_t EmbedHash(int32_t token, int32_t position) {
  return Mix((uint64_t{static_cast<uint32_t>(token)} << 32) + static_cast<uint32_t>(position) +
             0x1234567800000000u);
}
// What a layer writes into the cache. Never 0: an entry of 0 was never written.
constexpr uint64_t EntryHash(int32_t layer, uint64_t residual, int32_t position) {
  return Mix(residual + 0x9E3779B97F4A7C15u * (uint64_t{static_cast<uint32_t>(position)} * 4 +
                                               static_cast<uint32_t>(layer) + 1)) |
         1;
}
// sum: of the visible entries, modulo 2^64.
constexpr uint64_t AttentionHash(uint64_t sum, uint64_t q) { return Mix(sum ^ (q << 1)); }
constexpr uint64_t ProjectHash(uint64_t residual, uint64_t x) {
  return Mix(residual * 0x9E3779B97F4A7C15u + x);
}
constexpr uint64_t GateHash(uint64_t residual) { return Mix(residual + 0xA5A5A5A5u); }

// Order-sensitive, of a token list; Begin, then one Step for each token.
inline constexpr uint64_t kTokensHashBegin = 0xCBF29CE484222325u;
constexpr uint64_t TokensHashStep(uint64_t hash, int32_t token) {
  return (hash ^ (uint64_t{static_cast<uint32_t>(token)} + 1)) * 0x9FB21C651E98DF25u + (hash >> 47);
}

// What a row's lists say, given the hash of the row, of the tokens before the decided position, and
// of the slot's parameters.
constexpr uint64_t WeightHash(uint64_t row, uint64_t tokens, uint64_t edits) {
  return Hash(row, tokens, edits);
}
inline uint64_t EditsHash(int32_t prompt_length, const int32_t* bias_ids, const float* bias_values,
                          int32_t num_bias) {
  uint64_t hash = Hash(static_cast<uint64_t>(prompt_length), static_cast<uint64_t>(num_bias));
  for (int32_t i = 0; i < num_bias; ++i) {
    uint32_t bits;
    std::memcpy(&bits, bias_values + i, sizeof(bits));
    hash = Hash(hash, static_cast<uint64_t>(bias_ids[i]) << 32 | bits);
  }
  return hash;
}
// The draw for a position, behind token `last`; -1, undecided, for about one hash in twenty. Odd
// seeds repeat themselves, most of the time, so that drafts are taken.
constexpr int32_t FakeDraw(uint64_t row, int32_t last, uint64_t seed, uint32_t choice,
                           int32_t position) {
  const uint64_t hash = Hash(row, seed, choice, static_cast<uint64_t>(position));
  if (hash % 20 == 0) return -1;
  if (seed % 2 == 1 && hash % 8 != 1) return (last + 1) % 7;
  return static_cast<int32_t>((hash >> 16) % kFakeVocab);
}
constexpr int32_t FakeListId(uint64_t weight, int32_t entry) {
  return static_cast<int32_t>(((weight >> 8) + static_cast<uint64_t>(entry)) % kFakeVocab);
}
// The logit of an id, for ids from 2 on; ids 0 and 1 hold the row's hash bit by bit.
constexpr float FakeLogit(uint64_t row, int32_t id) {
  return static_cast<float>((row >> (id % 40)) & 0xFFFF) + static_cast<float>(id);
}

inline uint64_t LoadHash(const void* from) {
  uint64_t hash;
  std::memcpy(&hash, from, sizeof(hash));
  return hash;
}
inline void StoreHash(uint64_t hash, void* to) { std::memcpy(to, &hash, sizeof(hash)); }

}  // namespace tandem::test
