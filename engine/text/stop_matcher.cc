#include "engine/text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"
#include "engine/text/utf8.h"

namespace tandem {
namespace {

std::vector<int32_t> Fallbacks(std::string_view text) {
  std::vector<int32_t> fallback(text.size() + 1, 0);
  int32_t matched = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    while (matched > 0 && text[i] != text[matched]) matched = fallback[matched];
    if (text[i] == text[matched]) ++matched;
    fallback[i + 1] = matched;
  }
  return fallback;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<Stop> stops, bool include_stop)
    : stops_(std::move(stops)), include_stop_(include_stop) {}

absl::StatusOr<StopMatcher> StopMatcher::Make(std::vector<std::string> stops, bool include_stop) {
  if (stops.size() > static_cast<size_t>(kMaxStops)) {
    return InvalidArgument("there are ", stops.size(), " stop strings: at most ", kMaxStops,
                           " are allowed");
  }
  std::vector<Stop> made;
  for (size_t i = 0; i < stops.size(); ++i) {
    std::string& text = stops[i];
    if (text.empty()) return InvalidArgument("stop string ", i, " is empty");
    if (text.size() > static_cast<size_t>(kMaxStopBytes)) {
      return InvalidArgument("stop string ", i, " has ", text.size(), " bytes: at most ",
                             kMaxStopBytes, " are allowed");
    }
    const int64_t invalid = FindInvalidUtf8(text);
    if (invalid >= 0) return InvalidArgument("stop string ", i, " is not UTF-8 at byte ", invalid);
    std::vector<int32_t> fallback = Fallbacks(text);
    made.push_back({std::move(text), std::move(fallback)});
  }
  return StopMatcher(std::move(made), include_stop);
}

int32_t StopMatcher::Step(char byte) {
  int32_t longest = -1;
  for (size_t i = 0; i < stops_.size(); ++i) {
    Stop& stop = stops_[i];
    while (stop.matched > 0 && stop.text[stop.matched] != byte)
      stop.matched = stop.fallback[stop.matched];
    if (stop.text[stop.matched] == byte) ++stop.matched;
    if (stop.matched < static_cast<int32_t>(stop.text.size())) continue;
    if (longest < 0 || stop.text.size() > stops_[longest].text.size())
      longest = static_cast<int32_t>(i);
  }
  return longest;
}

StopMatcher::Result StopMatcher::Add(std::string_view text) {
  if (stop_ >= 0) return {"", stop_};
  for (size_t i = 0; i < text.size(); ++i) {
    stop_ = Step(text[i]);
    if (stop_ < 0) continue;
    std::string out = std::exchange(held_, {}) + std::string(text.substr(0, i + 1));
    if (!include_stop_) out.resize(out.size() - stops_[stop_].text.size());
    return {std::move(out), stop_};
  }
  int32_t keep = 0;
  for (const Stop& stop : stops_) keep = std::max(keep, stop.matched);
  std::string out = std::exchange(held_, {});
  out.append(text);
  held_ = out.substr(out.size() - keep);
  out.resize(out.size() - keep);
  return {std::move(out), -1};
}

std::string StopMatcher::Flush() {
  for (Stop& stop : stops_) stop.matched = 0;
  return std::exchange(held_, {});
}

}  // namespace tandem
