#include "engine/base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdio>

namespace tandem {

uint64_t KeyedHash(uint64_t seed, const void* data, size_t bytes) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}

struct Fingerprinter::State {
  XXH3_state_t xxh;
};

Fingerprinter::Fingerprinter() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->xxh);
}
Fingerprinter::~Fingerprinter() = default;

Fingerprinter& Fingerprinter::Add(const void* data, size_t bytes) {
  XXH3_128bits_update(&state_->xxh, data, bytes);
  return *this;
}

Fingerprinter& Fingerprinter::Add(int64_t number) {
  unsigned char bytes[8];
  for (int i = 0; i < 8; ++i)
    bytes[i] = static_cast<unsigned char>(static_cast<uint64_t>(number) >> (8 * i));
  return Add(bytes, sizeof(bytes));
}

Fingerprinter& Fingerprinter::Add(std::string_view text) {
  Add(static_cast<int64_t>(text.size()));
  return Add(text.data(), text.size());
}

std::string Fingerprinter::Hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

}  // namespace tandem
