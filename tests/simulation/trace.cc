#include "tests/simulation/trace.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem::test {
namespace {

std::string HandleText(const SessionHandle& handle) {
  return absl::StrCat(handle.stream, ".", handle.number);
}

constexpr const char* kReasons[] = {"DONE",    "PREEMPTED",  "DRAINING", "EXPIRED",
                                    "REFUSED", "NON_FINITE", "FAULT"};

struct CommandText {
  std::string operator()(const OpenCommand& open) const {
    return absl::StrCat("open ", HandleText(open.first), " choices ", open.choices, " tokens ",
                        open.tokens.size(), " prompt ", open.prompt_length, " max_new ",
                        open.max_new, " run_ahead ", open.run_ahead, " drafts ", open.drafts,
                        " prompt logprobs from ", open.prompt_logprobs_from, " priority ",
                        open.priority, " age ", open.age, open.use_cache ? "" : " no cache",
                        " salt '", open.salt, "'");
  }
  std::string operator()(const ExtendCommand& extend) const {
    return absl::StrCat("extend ", HandleText(extend.handle), " at ", extend.position, " epoch ",
                        extend.epoch, " [", absl::StrJoin(extend.tokens, " "), "]");
  }
  std::string operator()(const FetchCommand& fetch) const {
    return absl::StrCat("fetch ", HandleText(fetch.handle), " at ", fetch.position, " what ",
                        static_cast<int>(fetch.what));
  }
  std::string operator()(const CloseCommand& close) const {
    return absl::StrCat("close ", HandleText(close.handle), " retain ", close.retain);
  }
};

struct EventText {
  std::string operator()(const OpenedEvent& event) const {
    return absl::StrCat("Opened ", HandleText(event.handle), " cached ", event.cached_tokens);
  }
  std::string operator()(const PrefillEvent& event) const {
    return absl::StrCat("Prefill ", HandleText(event.handle), " ", event.done, " of ", event.total,
                        " cached ", event.cached);
  }
  std::string operator()(const PromptLogprobsEvent& event) const {
    return absl::StrCat("PromptLogprobs ", HandleText(event.handle), " at ",
                        event.logprobs.position, ": ", event.logprobs.size());
  }
  std::string operator()(const CandidatesEvent& event) const {
    return absl::StrCat("Candidates ", HandleText(event.handle), " at ", event.position, " epoch ",
                        event.epoch, " drawn ", event.candidates.summary.drawn);
  }
  std::string operator()(const FetchedEvent& event) const {
    return absl::StrCat("Fetched ", HandleText(event.handle), " at ", event.position, " what ",
                        static_cast<int>(event.what));
  }
  std::string operator()(const ClosedEvent& event) const {
    return absl::StrCat("Closed ", HandleText(event.handle), " ",
                        kReasons[static_cast<size_t>(event.reason)], " ", event.detail);
  }
};

}  // namespace

std::string TraceLine(const SimCommand& command) { return std::visit(CommandText(), command.body); }
std::string TraceLine(const EngineEvent& event) { return std::visit(EventText(), event); }

std::string TraceLine(const EngineOptions& options) {
  return absl::StrCat("max_sessions ", options.max_sessions, " max_queued ", options.max_queued,
                      " step_tokens ", options.step_tokens, " kv_tokens ", options.kv_tokens,
                      " ahead_tokens ", options.ahead_tokens, " max_rewind ", options.max_rewind,
                      " prefix_cache ", options.prefix_cache, " decode_slowdown ",
                      options.decode_slowdown, " hash_mask ", options.hash_mask);
}

}  // namespace tandem::test
