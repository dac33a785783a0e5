#include "tests/simulation/workload.h"

#include <algorithm>

#include "tests/simulation/fake_arithmetic.h"

namespace tandem::test {
namespace {

using kernels::kPageTokens;

constexpr int32_t kPrefixLength = 300;
constexpr size_t kMaxRemembered = 8;
constexpr Nanos kMilli = 1'000'000;

int32_t MaxLength(const EngineOptions& options) {
  return std::min<int32_t>(kFakeContext - 1,
                           static_cast<int32_t>(options.kv_tokens) - options.ahead_tokens);
}

std::vector<int32_t> RandomTokens(int64_t count, Random* random) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(random->Below(kFakeVocab)));
  }
  return tokens;
}

}  // namespace

Shape RandomShape(Features features, Random* random) {
  Shape shape;
  EngineOptions& options = shape.options;
  options.max_sessions = static_cast<int32_t>(random->Between(2, 12));
  options.max_queued = static_cast<int32_t>(random->Between(1, 20));
  options.step_tokens = static_cast<int32_t>(random->Between(4, 64));
  options.max_rewind = static_cast<int32_t>(random->Between(8, 64));
  const bool is_tight = features.has(Feature::kTightPools) && random->Percent(70);
  options.kv_tokens = kPageTokens * (is_tight ? random->Between(6, 16) : random->Between(40, 60));
  options.ahead_tokens = static_cast<int32_t>(random->Between(8, 64));
  options.max_choices = 3;
  options.max_run_ahead = 6;
  options.max_drafts = features.has(Feature::kDrafts) && random->Percent(80)
                           ? static_cast<int32_t>(random->Between(1, 5))
                           : 0;
  options.prefix_cache = features.has(Feature::kCache) && random->Percent(85);
  options.max_retain = kNanosPerSecond;
  options.decode_slowdown = random->Percent(50) ? 1.5 : 0;
  options.drain_spread = kMilli * random->Between(20, 200);
  options.hash_seed = random->Next();
  if (features.has(Feature::kCollisions) && random->Percent(20)) {
    options.hash_mask = static_cast<uint64_t>(random->Below(2));
  }
  const int64_t kind = random->Below(100);
  if (kind < 12) {  // many sessions, narrow steps: decode rows leave prefill no room
    shape.pace = Shape::Pace::kBusy;
    options.max_sessions = static_cast<int32_t>(random->Between(8, 12));
    options.max_queued = 20;
    options.step_tokens = static_cast<int32_t>(random->Between(2, 4));
    shape.longest_prompt = 60;
    shape.shortest_new = 60;
    shape.longest_new = 150;
    options.kv_tokens = 60 * kPageTokens;
  } else if (kind < 30 && is_tight) {  // sessions that grow take each other's pages
    shape.grow_percent = 80;
    options.max_sessions = static_cast<int32_t>(random->Between(4, 12));
    options.ahead_tokens = static_cast<int32_t>(random->Between(8, 20));
  }
  if (kind >= 12 && random->Percent(50)) shape.pace = Shape::Pace::kHasty;
  shape.two_steps = features.has(Feature::kTwoSteps) && random->Percent(70);
  return shape;
}

Workload::Workload(uint64_t seed, const Shape& shape, Features features)
    : random_(Hash(seed, 0x10AD)),
      shape_(shape),
      options_(shape_.options),
      features_(features),
      max_length_(MaxLength(shape.options)) {
  for (int32_t i = 0; i < 4; ++i) prefixes_.push_back(RandomTokens(kPrefixLength, &random_));
}

void Workload::Remember(std::vector<int32_t> tokens) {
  if (!features_.has(Feature::kEcho)) return;
  if (remembered_.size() < kMaxRemembered) {
    remembered_.push_back(std::move(tokens));
  } else {
    remembered_[next_remembered_++ % kMaxRemembered] = std::move(tokens);
  }
}

std::vector<int32_t> Workload::Prompt() {
  const bool is_echo = !remembered_.empty() && random_.Percent(25);
  const std::vector<int32_t>& base =
      is_echo ? remembered_[random_.Below(static_cast<int64_t>(remembered_.size()))]
              : prefixes_[random_.Below(static_cast<int64_t>(prefixes_.size()))];
  int64_t length = is_echo ? static_cast<int64_t>(base.size()) : random_.Below(kPrefixLength + 1);
  // Around the ends of pages, and anywhere.
  if (random_.Percent(40)) {
    const int64_t page = length / kPageTokens * kPageTokens;
    length = page + random_.Between(-2, 2);
  }
  if (random_.Percent(25)) length = std::min<int64_t>(length, random_.Below(20));
  length = std::clamp<int64_t>(length, 0, static_cast<int64_t>(base.size()));
  std::vector<int32_t> prompt(base.begin(), base.begin() + length);
  const std::vector<int32_t> tail =
      RandomTokens(random_.Percent(40) ? 0 : random_.Below(20), &random_);
  prompt.insert(prompt.end(), tail.begin(), tail.end());
  const int32_t longest = std::min(max_length_ - 2, shape_.longest_prompt);
  prompt.resize(std::min<size_t>(prompt.size(), static_cast<size_t>(longest)));
  // A prompt of whole pages could be found whole.
  if (random_.Percent(15)) prompt.resize(prompt.size() / kPageTokens * kPageTokens);
  if (prompt.empty()) prompt.push_back(static_cast<int32_t>(random_.Below(kFakeVocab)));
  return prompt;
}

SamplingParameters Workload::Sampling() {
  SamplingParameters out;
  out.seed = random_.Next();
  out.num_top = static_cast<int32_t>(random_.Between(1, 6));
  out.num_perturbed = static_cast<int32_t>(random_.Between(1, 3));
  if (random_.Percent(20)) {
    out.want_raw = true;
    out.num_raw_top = static_cast<int32_t>(random_.Below(4));
    if (random_.Percent(50)) out.report_ids = {3, 5};
  }
  if (random_.Percent(30)) {
    out.logit_bias = {{static_cast<int32_t>(random_.Below(kFakeVocab)), 1.5f}};
  }
  return out;
}

std::vector<SequenceSpec> Workload::Next() {
  SequenceSpec spec;
  spec.id = next_id_++;
  spec.prompt = Prompt();
  const int32_t length = static_cast<int32_t>(spec.prompt.size());
  const int32_t room = max_length_ - length;
  const bool grows = features_.has(Feature::kGrow) && random_.Percent(shape_.grow_percent);
  if (grows) {
    const int64_t wanted = random_.Percent(50) ? random_.Between(1, 20) : random_.Between(40, 150);
    spec.target = length + static_cast<int32_t>(std::min<int64_t>(room, wanted));
  } else {
    spec.max_new = static_cast<int32_t>(
        std::min<int64_t>(room, random_.Between(shape_.shortest_new, shape_.longest_new)));
    const int64_t wanted = random_.Percent(60) ? spec.max_new : random_.Between(1, spec.max_new);
    spec.target = length + static_cast<int32_t>(wanted);
  }
  // Draws that run ahead of a cut are never confirmed, so they do not count.
  spec.max_back = options_.max_rewind;
  spec.rewinds = features_.has(Feature::kRewind) && random_.Percent(60);
  spec.several = features_.has(Feature::kSeveral) && random_.Percent(60);
  spec.sampling = Sampling();
  if (features_.has(Feature::kPriorities) && random_.Percent(20)) {
    spec.priority = static_cast<int32_t>(random_.Between(-1, 1));
  }
  if (features_.has(Feature::kDeadlines) && random_.Percent(10)) {
    spec.patience = kMilli * random_.Between(1, 200);
  }
  if (features_.has(Feature::kRunAhead)) {
    spec.run_ahead = static_cast<int32_t>(random_.Between(0, options_.max_run_ahead));
  }
  if (random_.Percent(70))
    spec.drafts = static_cast<int32_t>(random_.Between(0, options_.max_drafts));
  spec.use_cache = !random_.Percent(10);
  if (random_.Percent(20)) spec.salt = random_.Percent(50) ? "a" : std::string(kMaxSalt, 'b');

  if (features_.has(Feature::kPromptLogprobs) && random_.Percent(15)) {
    spec.prompt_logprobs = true;
    spec.prompt_raw_top = static_cast<int32_t>(random_.Below(4));
  }

  int32_t choices = 1;
  if (features_.has(Feature::kChoices) && random_.Percent(20)) {
    choices = static_cast<int32_t>(
        random_.Between(1, std::min(options_.max_choices, options_.max_sessions)));
    // With copies for rewinds into what is shared, each choice takes at most twice its own pages.
    const int32_t pages = (spec.target + options_.ahead_tokens + spec.max_new) / kPageTokens + 1;
    if (2 * choices * pages * kPageTokens > options_.kv_tokens) choices = 1;
  }
  const uint32_t first = static_cast<uint32_t>(random_.Below(5));
  std::vector<SequenceSpec> out(static_cast<size_t>(choices), spec);
  for (int32_t i = 0; i < choices; ++i) out[i].choice = first + static_cast<uint32_t>(i);
  return out;
}

}  // namespace tandem::test
