// Byte-pair encoding of one word: bytes become tokens, then the most important merge that applies
// is done, the leftmost first, until none applies (Sennrich et al. 2016, arXiv:1508.07909; over
// bytes as in GPT-2, Radford et al. 2019).
//
// A heap holds the merges that could be done next, by (rank, position); symbols form a linked list.
// A merge makes at most two new entries and an entry that a neighbour's merge made stale is dropped
// when it comes up: O(n log n) for n bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "engine/text/tokenizer.h"

namespace tandem {

// Thread-safe.
class BpeModel final {
 public:
  // spellings: tokens by id in the byte alphabet; those that are empty or have characters outside
  // of it take no part in merging. merges: "left right" in the byte alphabet, most important first;
  // of equal ones the last counts, as in `tokenizers`. whole_words: by id, whether a word that is
  // this token is it without looking at merges; empty: none is. INVALID_ARGUMENT: two equal tokens,
  // a merge that is not two tokens or does not give one.
  static absl::StatusOr<BpeModel> Make(const std::vector<std::string>& spellings,
                                       const std::vector<std::string>& merges,
                                       const std::vector<bool>& whole_words);

  // Memory that EncodeWord uses again and again. Of one thread.
  struct Scratch {
    struct Symbol {
      int32_t id;
      int32_t begin;  // bytes of the word
      int32_t end;
      int32_t previous;  // -1: none
      int32_t next;      // -1: none, -2: merged away
      int32_t rank;      // of the merge with the next symbol; -1: none
    };
    std::vector<Symbol> symbols;
    std::vector<uint64_t> heap;
  };

  // Appends the tokens of word with their offsets, base added. max_tokens: most tokens that out may
  // have; RESOURCE_EXHAUSTED beyond, before merging where the count is clear from the length. Bytes
  // that the vocabulary lacks are left out, as `tokenizers` does, and counted in
  // out->dropped_bytes. REQUIRES word is shorter than 2^31 bytes.
  absl::Status EncodeWord(std::string_view word, int64_t base, int64_t max_tokens, Scratch* scratch,
                          Encoding* out) const;

 private:
  struct Token {
    int32_t id;
    // A word of these bytes is this token: because merging makes it so, or by whole_words.
    // Looking it up is an exact short cut, which most words of ordinary text take.
    bool whole_word;
  };
  struct Merge {
    int32_t rank;
    int32_t result;
  };

  BpeModel() = default;
  int32_t Find(std::string_view bytes) const;  // a token's id, -1 if none
  // The rank of the merge of symbols i and its next one, -1 if none.
  int32_t RankAt(const Scratch& scratch, int32_t i) const;
  void RunMerges(Scratch* scratch) const;
  // Fills scratch->symbols with the tokens of single bytes; returns how many bytes have none.
  int64_t LoadBytes(std::string_view word, Scratch* scratch) const;
  void FindWholeWords();  // those that merging makes

  int32_t byte_ids_[256];                           // -1: the vocabulary has none
  absl::flat_hash_map<std::string, Token> tokens_;  // by bytes
  absl::flat_hash_map<uint64_t, Merge> merges_;     // by left id << 32 | right id
  std::vector<int32_t> results_;                    // by rank
  int64_t longest_token_ = 1;                       // in bytes
};

}  // namespace tandem
