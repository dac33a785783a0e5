#include "tests/simulation/counters.h"

#include <iterator>

namespace tandem::test {
namespace {

constexpr std::string_view kNames[] = {"requests",
                                       "finished",
                                       "closed while queued",
                                       "closed in prefill",
                                       "closed while waiting",
                                       "closed in flight",
                                       "duplicate closes",
                                       "duplicate extends",
                                       "late commands",
                                       "extends",
                                       "draws taken",
                                       "other tokens",
                                       "several tokens",
                                       "rewinds",
                                       "blind extends",
                                       "needless epochs",
                                       "stale candidates",
                                       "undecided",
                                       "run-ahead candidates",
                                       "drafted",
                                       "drafts taken",
                                       "forks",
                                       "fetched more",
                                       "fetched ids",
                                       "fetched rows",
                                       "fetches cut",
                                       "hits",
                                       "late hits",
                                       "refused, bad command",
                                       "refused, never fits",
                                       "refused, queue full",
                                       "gave up",
                                       "expired",
                                       "preempted",
                                       "reopened",
                                       "streams lost",
                                       "drains",
                                       "drained queued",
                                       "drained running",
                                       "steps",
                                       "rows",
                                       "prefill events",
                                       "prompt logprobs",
                                       "prompt logprobs asked again",
                                       "prompt logprobs moved",
                                       "commands",
                                       "events"};
static_assert(std::size(kNames) == static_cast<size_t>(Counter::kEnd));

}  // namespace

std::string_view Name(Counter counter) { return kNames[static_cast<size_t>(counter)]; }

std::string Counters::ToString() const {
  std::string out;
  for (size_t i = 0; i < values_.size(); ++i) {
    out += kNames[i];
    out += ' ' + std::to_string(values_[i]) + '\n';
  }
  return out;
}

}  // namespace tandem::test
