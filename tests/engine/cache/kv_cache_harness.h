// What the tests of KvCache share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/cache/kv_cache.h"

namespace tandem::test {

inline CacheOptions Options(std::vector<CacheGroup> groups, int32_t max_rewind = 16,
                            int32_t step_tokens = 64) {
  CacheOptions options;
  options.groups = std::move(groups);
  options.max_rewind = max_rewind;
  options.step_tokens = step_tokens;
  options.hash_seed = 7;
  return options;
}

// first, first + 1, ...
inline std::vector<int32_t> Tokens(int32_t num, int32_t first = 0) {
  std::vector<int32_t> tokens(num);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// The copies that an admission asks for are appended to `copies` where it is given.
inline KvCache::Admission Admit(KvCache* cache, std::span<const int32_t> tokens, int32_t length,
                                int32_t choices = 1, const std::string& salt = "",
                                std::vector<PageCopy>* copies = nullptr) {
  std::vector<PageCopy> unused;
  return cache->Admit({tokens, length, choices, true, salt}, copies == nullptr ? &unused : copies);
}

// Prepares rows [from, to), of which none is valid yet, in steps of 64. No row below keep_from, or
// below the step, is written later.
inline std::vector<PageCopy> Write(KvCache* cache, PageTable* table, int32_t from, int32_t to,
                                   int32_t keep_from = 0) {
  std::vector<PageCopy> copies;
  for (; from < to; from += 64) {
    cache->PrepareWrite(from, std::min(from + 64, to), from, std::min(from, keep_from), table,
                        &copies);
  }
  return copies;
}

// A sequence that has computed all of `tokens`, and is in the index. REQUIRES free pages.
inline PageTable Compute(KvCache* cache, std::span<const int32_t> tokens,
                         const std::string& salt = "") {
  const int32_t length = static_cast<int32_t>(tokens.size());
  KvCache::Admission admission = Admit(cache, tokens, length, 1, salt);
  TANDEM_CHECK(admission.tables.size() == 1) << "no pages for " << length << " tokens";
  Write(cache, &admission.tables[0], admission.cached_tokens, length);
  cache->IndexPages(tokens, &admission.tables[0]);
  return std::move(admission.tables[0]);
}

// How many tokens of a prompt the cache has. REQUIRES that it can be admitted.
inline int32_t CachedTokens(KvCache* cache, std::span<const int32_t> prompt,
                            const std::string& salt = "") {
  KvCache::Admission admission = Admit(cache, prompt, static_cast<int32_t>(prompt.size()), 1, salt);
  TANDEM_CHECK(admission.tables.size() == 1) << "no pages for " << prompt.size() << " tokens";
  cache->Release(&admission.tables[0], 0);
  return admission.cached_tokens;
}

inline std::string Check(const KvCache& cache, std::vector<const PageTable*> tables) {
  return cache.CheckInvariants(tables).ToString();
}

inline int32_t Reserved(const PageTable& table, int32_t group = 0) {
  return table.groups()[group].num_reserved;
}

inline const std::vector<int32_t>& Pages(const PageTable& table, int32_t group = 0) {
  return table.groups()[group].pages;
}

}  // namespace tandem::test
