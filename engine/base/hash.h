// Fingerprints: XXH3-128 of canonical bytes, printed as 32 hex digits. Not for keys that an
// adversary chooses; those go through KeyedHash, and are compared as well.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tandem {

// XXH3-64 of the bytes under a secret seed.
uint64_t KeyedHash(uint64_t seed, const void* data, size_t bytes);

class Fingerprinter final {
 public:
  Fingerprinter();
  ~Fingerprinter();
  Fingerprinter(const Fingerprinter&) = delete;
  Fingerprinter& operator=(const Fingerprinter&) = delete;

  Fingerprinter& Add(const void* data, size_t bytes);
  // Numbers are added as 8 little-endian bytes, strings behind their length, so that fields cannot
  // run into each other.
  Fingerprinter& Add(int64_t number);
  Fingerprinter& Add(std::string_view text);
  // 32 hex digits of everything added so far.
  std::string Hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem
