#include "tests/simulation/features.h"

#include <iterator>

namespace tandem::test {
namespace {

constexpr std::string_view kNames[] = {
    "run-ahead", "drafts",      "cache",     "epochs",     "fair-queue", "victims",
    "drain",     "choices",     "grow",      "rewind",     "several",    "fetch",
    "cancel",    "misbehave",   "deadlines", "priorities", "echo",       "prompt-logprobs",
    "replicas",  "stream-loss", "slow",      "tight",      "two-steps",  "collisions"};
static_assert(std::size(kNames) == static_cast<size_t>(Feature::kEnd));

constexpr uint32_t kAllBits = (uint32_t{1} << static_cast<int>(Feature::kEnd)) - 1;

}  // namespace

std::string_view Name(Feature feature) { return kNames[static_cast<size_t>(feature)]; }

Features Features::All() {
  Features out;
  out.bits_ = kAllBits;
  return out;
}

bool Features::Parse(std::string_view text, Features* features) {
  *features = Features();
  while (!text.empty()) {
    const size_t comma = text.find(',');
    std::string_view name = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    const bool takes_out = name.starts_with('-');
    if (takes_out) name.remove_prefix(1);
    uint32_t bits = name == "all" ? kAllBits : 0;
    for (size_t i = 0; i < std::size(kNames); ++i) {
      if (kNames[i] == name) bits = uint32_t{1} << i;
    }
    if (bits == 0) return false;
    features->bits_ = takes_out ? features->bits_ & ~bits : features->bits_ | bits;
  }
  return true;
}

Features Features::Without(Feature feature) const {
  Features out = *this;
  out.bits_ &= ~(uint32_t{1} << static_cast<int>(feature));
  return out;
}

std::string Features::ToString() const {
  std::string out = bits_ == kAllBits ? "all" : "";
  for (size_t i = 0; i < std::size(kNames) && bits_ != kAllBits; ++i) {
    if ((bits_ >> i & 1) == 0) continue;
    if (!out.empty()) out += ',';
    out += kNames[i];
  }
  return out;
}

}  // namespace tandem::test
