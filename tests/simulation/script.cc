#include "tests/simulation/script.h"

#include <algorithm>

#include "engine/base/check.h"
#include "tests/simulation/fake_arithmetic.h"
#include "tests/simulation/list_model.h"

namespace tandem::test {
namespace {

constexpr int32_t kMaxRewinds = 3;

int32_t TokenOf(uint64_t hash) { return static_cast<int32_t>((hash >> 16) % kFakeVocab); }

}  // namespace

Script::Script(const SequenceSpec& spec)
    : seed_(Hash(spec.id, spec.choice)),
      target_(spec.target),
      max_back_(spec.max_back),
      rewinds_(spec.rewinds),
      several_(spec.several),
      list_(spec.prompt),
      longest_(static_cast<int32_t>(spec.prompt.size())) {}

uint64_t Script::Decision() const {
  return Hash(seed_, static_cast<uint64_t>(size()), static_cast<uint64_t>(num_rewinds_));
}

Script::Action::Kind Script::KindOf(uint64_t hash) const {
  const uint64_t percent = hash % 100;
  if (percent < 10) return Action::Kind::kOther;
  if (percent < 18 && several_) return Action::Kind::kSeveral;
  if (percent < 25 && rewinds_ && num_rewinds_ < kMaxRewinds) return Action::Kind::kRewind;
  return Action::Kind::kDraw;
}

bool Script::NeedsDraw() const {
  const uint64_t hash = Decision();
  const Action::Kind kind = KindOf(hash);
  return kind == Action::Kind::kDraw || (kind == Action::Kind::kSeveral && (hash >> 8) % 2 == 0);
}

int32_t Script::RewindTo(uint64_t hash) const {
  const int32_t lowest = std::max(1, longest_ - max_back_);
  const int32_t room = std::max(0, size() - lowest);
  return size() - static_cast<int32_t>((hash >> 24) % static_cast<uint64_t>(room + 1));
}

Script::Action Script::Next(int32_t draw) {
  TANDEM_CHECK(!done()) << size();
  const uint64_t hash = Decision();
  Action action;
  action.kind = KindOf(hash);
  action.position = size();
  int32_t count = 1;  // tokens that are not the draw
  switch (action.kind) {
    case Action::Kind::kDraw:
      if (draw >= 0) {
        action.tokens.push_back(draw);
        count = 0;
      }
      break;
    case Action::Kind::kOther:
      break;
    case Action::Kind::kSeveral:
      count = 1 + static_cast<int32_t>((hash >> 32) % 4);
      if ((hash >> 8) % 2 == 0 && draw >= 0) action.tokens.push_back(draw);
      break;
    case Action::Kind::kRewind:
      action.position = RewindTo(hash);
      count = static_cast<int32_t>((hash >> 32) % 4);
      ++num_rewinds_;
      break;
  }
  for (int32_t i = 0; i < count; ++i) {
    int32_t token = TokenOf(Hash(hash, static_cast<uint64_t>(i)));
    // A rewind changes the token that it goes back to.
    if (i == 0 && action.position < size() && token == list_[action.position]) {
      token = (token + 1) % kFakeVocab;
    }
    if (action.position + static_cast<int32_t>(action.tokens.size()) < target_) {
      action.tokens.push_back(token);
    }
  }
  list_.resize(action.position);
  list_.insert(list_.end(), action.tokens.begin(), action.tokens.end());
  longest_ = std::max(longest_, size());
  return action;
}

uint64_t EditsOf(const SamplingParameters& sampling, int32_t prompt_length) {
  std::vector<int32_t> ids;
  std::vector<float> values;
  for (const auto& [id, value] : sampling.logit_bias) {
    ids.push_back(id);
    values.push_back(value);
  }
  return EditsHash(prompt_length, ids.data(), values.data(), static_cast<int32_t>(ids.size()));
}

std::vector<int32_t> FinalList(const SequenceSpec& spec) {
  Script script(spec);
  ListModel model(spec.sampling.seed, spec.choice,
                  EditsOf(spec.sampling, static_cast<int32_t>(spec.prompt.size())));
  model.Push(spec.prompt);
  while (!script.done()) {
    const Script::Action action = script.Next(model.Draw(model.size()));
    model.Truncate(action.position);
    model.Push(action.tokens);
  }
  return model.tokens();
}

}  // namespace tandem::test
