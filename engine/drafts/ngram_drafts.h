// Drafts of what follows a token list, out of the list itself: where its last tokens stood before,
// what followed them there. It pays where a text repeats its prompt or itself (edits, quotes, code,
// lists).
//
// Source: prompt lookup decoding (Apoorv Saxena, 2023); inference with reference (Yang et al.,
// arXiv:2304.04487, 2023).
//
// A match is as long as can be found, kMaxMatch tokens down to kMinMatch, and of equal lengths the
// most recent. Places are kept in one table, by the hash of the tokens before them; a newer place
// takes an entry from an older one. So a match may be overlooked, but what is found is compared
// token by token. O(1) for each token that is appended and for each Find; no allocation but in
// Reserve.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem {

class NgramDrafts final {
 public:
  static constexpr int32_t kMinMatch = 2;
  static constexpr int32_t kMaxMatch = 4;
  // Tokens that one Find takes in; the rest of a long list waits for the next one.
  static constexpr int32_t kTokensAtOnce = 4096;

  struct Match {
    int32_t length = 0;  // tokens; 0: none
    int32_t next = 0;    // index of the token that followed them
  };

  // For lists of up to about this many tokens: 32 bytes each, at most 1 MiB. Longer ones lose
  // places sooner. Forgets everything.
  void Reserve(int32_t num_tokens);
  // The list was cut to `length`: what is behind it may differ from now on.
  void Truncate(int32_t length);
  // Where the last tokens of the list stood before. The list is that of the last call, but for what
  // Truncate said and tokens that were appended. REQUIRES Reserve.
  Match Find(std::span<const int32_t> tokens);
  // Appends to out the `count` tokens that follow the list if it goes on as it did at the match;
  // where the list ends, with what the drafts themselves repeat. REQUIRES a match of Find for these
  // tokens.
  static void Continue(std::span<const int32_t> tokens, const Match& match, int32_t count,
                       std::vector<int32_t>* out);

 private:
  int32_t& EntryOf(std::span<const int32_t> ngram);

  std::vector<int32_t> places_;  // index of the token behind an n-gram; 0: none
  int32_t num_seen_ = 0;         // n-grams followed by tokens [0, num_seen_) stand in places_
};

}  // namespace tandem
