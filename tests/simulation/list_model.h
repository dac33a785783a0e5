// The oracle: what the fake model says behind a token list, from the list alone. Knows no pages, no
// slots, no steps. Each token costs a few hashes; a position's values are kept, so that cutting is
// free.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem::test {

class ListModel final {
 public:
  // edits: EditsHash of the session's parameters.
  ListModel(uint64_t seed, uint32_t choice, uint64_t edits)
      : seed_(seed), choice_(choice), edits_(edits) {}

  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  void Push(int32_t token);
  void Push(std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) Push(token);
  }
  // REQUIRES 0 <= length <= size().
  void Truncate(int32_t length);

  // For deciding `position`, behind tokens [0, position). REQUIRES 1 <= position <= size().
  uint64_t Row(int32_t position) const { return places_[position - 1].row; }
  uint64_t Weight(int32_t position) const;
  int32_t Draw(int32_t position) const;
  // Of tokens [0, length).
  uint64_t TokensHash(int32_t length) const;

 private:
  struct Place {
    uint64_t sum[2];  // of the entries of each layer at positions up to this one
    uint64_t row;
    uint64_t tokens_hash;  // up to and with this one
  };
  uint64_t seed_;
  uint32_t choice_;
  uint64_t edits_;
  std::vector<int32_t> tokens_;
  std::vector<Place> places_;
};

}  // namespace tandem::test
