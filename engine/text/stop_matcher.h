// Stop strings over streamed text: holds back exactly the longest suffix that is a proper prefix of
// a stop string, cuts at the earliest match (by the end of the match; of several that end there,
// the one that begins first).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// One Knuth-Morris-Pratt automaton a stop string: each byte costs amortised one step a stop,
// however the text is split. Texts and stops are UTF-8, so what is given out ends between
// characters.
class StopMatcher final {
 public:
  static constexpr int32_t kMaxStops = 16;
  static constexpr int32_t kMaxStopBytes = 256;

  // include_stop: the matched string stays in the text. INVALID_ARGUMENT: an empty stop, one over
  // kMaxStopBytes, one that is not UTF-8, or more than kMaxStops.
  static absl::StatusOr<StopMatcher> Make(std::vector<std::string> stops, bool include_stop);

  struct Result {
    std::string text;  // may be given out
    // Index of the stop string that matched, else -1. text then ends there and nothing may follow.
    int32_t stop = -1;
  };
  // text: whole characters, UTF-8. After a match: nothing more, and the same stop.
  Result Add(std::string_view text);
  // What is held, for every end but a match; the state is as new afterwards, a match aside.
  std::string Flush();

 private:
  struct Stop {
    std::string text;
    // By length of a matched prefix: that of its longest proper suffix that is a prefix too.
    std::vector<int32_t> fallback;
    int32_t matched = 0;  // bytes of text that the stream now ends with
  };

  StopMatcher(std::vector<Stop> stops, bool include_stop);
  // Moves every automaton on; the index of the longest stop that ends with byte, -1 if none.
  int32_t Step(char byte);

  std::vector<Stop> stops_;
  bool include_stop_;
  int32_t stop_ = -1;  // the match, once there is one
  std::string held_;
};

}  // namespace tandem
