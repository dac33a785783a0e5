#include "services/cli/load_plan.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "engine/base/status.h"

namespace tandem::cli {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

// [0, 1), of 53 bits: std's distributions differ between libraries.
double Uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1.0p-53; }

void AppendIds(std::mt19937_64& random, int32_t count, const RandomPrompts& prompts,
               std::vector<int32_t>* ids) {
  while (count > 0) {
    const auto id = static_cast<int32_t>(random() % static_cast<uint64_t>(prompts.vocab_size));
    if (std::binary_search(prompts.avoid.begin(), prompts.avoid.end(), id)) continue;
    ids->push_back(id);
    --count;
  }
}

std::optional<BenchPrompt> FromJson(const std::string& line) {
  nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  if (json.is_object()) {
    const auto found = json.contains("prompt") ? json.find("prompt") : json.find("text");
    if (found == json.end()) return std::nullopt;
    json = nlohmann::json(*found);
  }
  BenchPrompt prompt;
  if (json.is_string()) {
    prompt.text = json.get<std::string>();
    return prompt;
  }
  if (!json.is_array() || json.empty()) return std::nullopt;
  for (const nlohmann::json& id : json) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) return std::nullopt;
    prompt.ids.push_back(id.get<int32_t>());
  }
  return prompt;
}

}  // namespace

Nanos PoissonArrivals::Next() {
  seconds_ += -std::log1p(-Uniform(random_)) / rate_;
  return static_cast<Nanos>(seconds_ * static_cast<double>(kNanosPerSecond));
}

absl::StatusOr<PromptSource> PromptSource::Random(RandomPrompts prompts, uint64_t seed) {
  if (prompts.tokens < 1) {
    return InvalidArgument("--prompt-tokens is ", prompts.tokens, ": at least 1");
  }
  if (prompts.shared_prefix < 0 || prompts.shared_prefix > prompts.tokens) {
    return InvalidArgument("--shared-prefix is ", prompts.shared_prefix, ": it must be 0 to ",
                           prompts.tokens, ", the tokens of a prompt");
  }
  std::sort(prompts.avoid.begin(), prompts.avoid.end());
  prompts.avoid.erase(std::unique(prompts.avoid.begin(), prompts.avoid.end()), prompts.avoid.end());
  if (prompts.vocab_size <= static_cast<int32_t>(prompts.avoid.size())) {
    return InvalidArgument("the vocabulary has ", prompts.vocab_size,
                           " ids, and none of them may be used");
  }
  PromptSource source;
  std::mt19937_64 random(seed);
  AppendIds(random, prompts.shared_prefix, prompts, &source.prefix_);
  source.random_ = std::move(prompts);
  source.seed_ = seed;
  return source;
}

absl::StatusOr<PromptSource> PromptSource::FromFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return NotFound("--prompt-file ", path, ": it cannot be read");
  PromptSource source;
  std::string line;
  int64_t bytes = 0;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    bytes += static_cast<int64_t>(line.size());
    if (bytes > kMaxFileBytes) {
      return ResourceExhausted("--prompt-file ", path, ": more than ", kMaxFileBytes, " bytes");
    }
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    BenchPrompt prompt;
    if (line[0] == '{' || line[0] == '"') {
      std::optional<BenchPrompt> parsed = FromJson(line);
      if (!parsed.has_value()) {
        return InvalidArgument("--prompt-file ", path, ": line ", number,
                               " is no JSON string, and no object with a prompt or text");
      }
      prompt = *std::move(parsed);
    } else {
      prompt.text = line;
    }
    source.fixed_.push_back(std::move(prompt));
  }
  if (source.fixed_.empty()) {
    return InvalidArgument("--prompt-file ", path, ": it holds no prompt");
  }
  return source;
}

BenchPrompt PromptSource::Get(int64_t number) const {
  if (!fixed_.empty()) return fixed_[static_cast<size_t>(number) % fixed_.size()];
  BenchPrompt prompt;
  prompt.ids = prefix_;
  // Sequences of neighbouring seeds have nothing in common.
  std::mt19937_64 random(seed_ ^ (0x9E3779B97F4A7C15u * (static_cast<uint64_t>(number) + 1)));
  AppendIds(random, random_.tokens - random_.shared_prefix, random_, &prompt.ids);
  return prompt;
}

}  // namespace tandem::cli
