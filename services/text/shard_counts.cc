#include "services/text/shard_counts.h"

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

namespace tandem::text {
namespace {

template <typename Array>
void AddEach(const Array& from, Array* to) {
  for (size_t i = 0; i < from.size(); ++i) {
    if constexpr (requires { from[i].size(); }) {
      AddEach(from[i], &(*to)[i]);
    } else {
      (*to)[i] += from[i];
    }
  }
}

}  // namespace

void ShardCounts::Add(const ShardCounts& other) {
  running += other.running;
  waiting += other.waiting;
  AddEach(other.requests, &requests);
  AddEach(other.choices, &choices);
  AddEach(other.reopened, &reopened);
  prompt_tokens += other.prompt_tokens;
  cached_tokens += other.cached_tokens;
  from_lists += other.from_lists;
  fetched += other.fetched;
  confirmed_draws += other.confirmed_draws;
  misses += other.misses;
  faults += other.faults;
  rewinds += other.rewinds;
  pauses += other.pauses;
  queue_seconds.Add(other.queue_seconds);
  first_token_seconds.Add(other.first_token_seconds);
  inter_token_seconds.Add(other.inter_token_seconds);
  worker_wait_seconds.Add(other.worker_wait_seconds);
  fetch_seconds.Add(other.fetch_seconds);
  request_seconds.Add(other.request_seconds);
  decide_seconds.Add(other.decide_seconds);
}

std::string FinishLabel(v1::FinishReason reason) {
  const std::string name = v1::FinishReason_Name(reason);
  return absl::AsciiStrToLower(absl::StripPrefix(name, "FINISH_REASON_"));
}

ChoiceMark::ChoiceMark(const Choice& choice)
    : from_lists_(choice.counters().from_lists()),
      fetched_(choice.counters().fetched()),
      misses_(choice.counters().misses()),
      faults_(choice.counters().faults()),
      rewound_(choice.counters().rewound()),
      confirmed_draws_(choice.confirmed_draws()),
      last_token_at_(choice.last_token_at()),
      idle_since_(choice.idle_since()),
      fetching_since_(choice.fetching_since()) {}

int32_t ChoiceMark::Count(const Choice& choice, Nanos received, Nanos now,
                          ShardCounts* counts) const {
  const v1::Counters& counters = choice.counters();
  counts->faults += counters.faults() - faults_;
  const int32_t from_lists = counters.from_lists() - from_lists_;
  const int32_t fetched = counters.fetched() - fetched_;
  const int32_t tokens = from_lists + fetched;
  if (tokens == 0) return 0;
  counts->from_lists += from_lists;
  counts->fetched += fetched;
  counts->misses += counters.misses() - misses_;
  counts->rewinds += counters.rewound() - rewound_;
  counts->confirmed_draws += choice.confirmed_draws() - confirmed_draws_;
  if (last_token_at_ < 0) {
    counts->first_token_seconds.Observe(Seconds(now - received));
  } else {
    counts->inter_token_seconds.Observe(Seconds(now - last_token_at_));
    if (idle_since_ >= 0) counts->worker_wait_seconds.Observe(Seconds(now - idle_since_));
  }
  if (tokens > 1) counts->inter_token_seconds.Observe(0.0, tokens - 1);
  if (fetched > 0 && fetching_since_ >= 0) {
    counts->fetch_seconds.Observe(Seconds(now - fetching_since_));
  }
  return tokens;
}

}  // namespace tandem::text
