#include "engine/drafts/ngram_drafts.h"

#include <algorithm>
#include <bit>

#include "engine/base/check.h"

namespace tandem {
namespace {

constexpr int32_t kEntriesPerToken = 8;
constexpr uint32_t kMostEntries = 1u << 18;
constexpr uint32_t kFewestEntries = 1u << 8;

}  // namespace

void NgramDrafts::Reserve(int32_t num_tokens) {
  TANDEM_CHECK(num_tokens >= 0) << num_tokens << " tokens";
  const uint64_t wanted = uint64_t{kEntriesPerToken} * static_cast<uint64_t>(num_tokens);
  places_.assign(std::bit_ceil(std::clamp<uint64_t>(wanted, kFewestEntries, kMostEntries)), 0);
  num_seen_ = 0;
}

void NgramDrafts::Truncate(int32_t length) {
  TANDEM_CHECK(length >= 0) << length << " tokens";
  num_seen_ = std::min(num_seen_, length);
}

int32_t& NgramDrafts::EntryOf(std::span<const int32_t> ngram) {
  // Multiply and add, then the upper bits of a product with 2^64 / phi (Knuth, The Art of Computer
  // Programming, volume 3, 6.4).
  uint64_t hash = ngram.size();
  for (const int32_t token : ngram) {
    hash = (hash ^ hash >> 29) * 0xBF58476D1CE4E5B9u + static_cast<uint32_t>(token) + 1;
  }
  const int bits = std::bit_width(places_.size()) - 1;
  return places_[(hash * 0x9E3779B97F4A7C15u) >> (64 - bits)];
}

NgramDrafts::Match NgramDrafts::Find(std::span<const int32_t> tokens) {
  TANDEM_CHECK(!places_.empty()) << "Find before Reserve";
  const int32_t length = static_cast<int32_t>(tokens.size());
  const int32_t end = std::min(length, num_seen_ + kTokensAtOnce);
  for (; num_seen_ < end; ++num_seen_) {
    for (int32_t n = kMinMatch; n <= std::min(kMaxMatch, num_seen_); ++n) {
      EntryOf(tokens.subspan(num_seen_ - n, n)) = num_seen_;
    }
  }
  for (int32_t n = std::min(kMaxMatch, length); n >= kMinMatch; --n) {
    const std::span<const int32_t> last = tokens.last(n);
    const int32_t next = EntryOf(last);
    // An entry may be another n-gram's, or from before a cut.
    if (next < n || next >= length) continue;
    if (std::ranges::equal(tokens.subspan(next - n, n), last)) return {n, next};
  }
  return {};
}

void NgramDrafts::Continue(std::span<const int32_t> tokens, const Match& match, int32_t count,
                           std::vector<int32_t>* out) {
  const int32_t length = static_cast<int32_t>(tokens.size());
  TANDEM_CHECK(match.next > 0 && match.next < length) << match.next << " of " << length;
  const int32_t period = length - match.next;
  for (int32_t i = 0; i < count; ++i) out->push_back(tokens[match.next + i % period]);
}

}  // namespace tandem
