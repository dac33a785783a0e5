// The decisions of a recorded generation, made again from what the workers sent, without them.
//
// Commands and events are followed as a session follows them: which choice a handle is, epochs,
// wider lists and rows that were fetched, choices that were opened again. Each token that was
// recorded is decided anew at its position, from the prompt and the tokens recorded before it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/sampling/decision.h"
#include "services/trace/trace_file.h"

namespace tandem {

// One position of a choice that was decided.
struct RecordedStep {
  enum class Source : uint8_t { kNothing, kLists, kWiderLists, kRow };
  int32_t choice = 0;  // index of the request's
  int32_t position = 0;
  int32_t token = -1;  // as recorded
  Source source = Source::kNothing;
  Decision decision;   // made again; kUndecided where there is nothing to decide from
  std::string fault;   // of the lists, where the session went to the row
  int32_t drawn = -1;  // by the worker; -1: it drew nothing, since its lists did not decide
  // Its lists were on their way before the worker could know the decision of the position before.
  bool ran_ahead = false;
  int32_t reopened = 0;     // how often the choice was opened again before it
  uint64_t connection = 0;  // that the lists came on
  Nanos arrived = 0;        // since the request was taken up; of the lists
  Nanos decided = 0;
  // Null where the source is kNothing. The decider stands before the token; the lists are those
  // that decided, or the whole row as lists (all of it in the top list). Valid during the visit.
  const Decider* decider = nullptr;
  const Candidates* lists = nullptr;

  // The token that was recorded is the one that is decided.
  bool agrees() const { return decision.kind == Decision::Kind::kToken && decision.token == token; }
};

class TraceReplay final {
 public:
  // INVALID_ARGUMENT: a header whose numbers contradict themselves. trace must outlive this.
  static absl::StatusOr<std::unique_ptr<TraceReplay>> Make(const Trace* trace);

  // Calls visit for each token that was recorded, in the order of the records. INVALID_ARGUMENT:
  // records that contradict themselves or the header, by number; what came before was visited.
  absl::Status Run(const std::function<void(const RecordedStep&)>& visit);

  const SamplingParameters& parameters() const { return parameters_; }
  int32_t vocab_size() const { return trace_->header.vocab_size(); }
  // Texts of the ids that the trace names.
  const std::map<int32_t, std::string>& texts() const { return texts_; }

 private:
  struct Pending {  // what came for a position that is not decided
    Candidates lists;
    RecordedStep::Source source = RecordedStep::Source::kNothing;
    int32_t drawn = -1;
    bool ran_ahead = false;
    Nanos arrived = 0;
    std::vector<float> row;  // received so far
  };
  struct ChoiceState {
    std::unique_ptr<Decider> decider;
    uint64_t connection = 0;
    uint64_t handle = 0;  // 0: none yet
    uint32_t epoch = 0;
    int32_t opens = 0;
    Nanos decided = -1;                  // its last token, since it was opened; -1: none
    std::map<int32_t, Pending> pending;  // by position
  };
  using Visit = std::function<void(const RecordedStep&)>;

  explicit TraceReplay(const Trace* trace) : trace_(trace) {}
  absl::Status OnOpen(uint64_t connection, const decode::v1::Open& open);
  absl::Status OnHandles(uint64_t connection, const trace::v1::Handles& handles);
  absl::Status OnExtend(uint64_t connection, Nanos now, const decode::v1::Extend& extend,
                        const Visit& visit);
  absl::Status OnCandidates(uint64_t connection, Nanos now, const decode::v1::Candidates& event);
  absl::Status OnFetched(uint64_t connection, const decode::v1::Fetched& event);
  absl::Status OnEnded(const trace::v1::Ended& ended, Nanos now, const Visit& visit);
  absl::Status Step(int32_t choice, uint32_t token, Nanos now, const Visit& visit);
  ChoiceState* Find(uint64_t connection, uint64_t handle, int32_t* choice);

  const Trace* const trace_;
  SamplingParameters parameters_;
  std::vector<int32_t> prompt_;
  std::vector<int32_t> begin_;  // prompt and resumed output
  std::vector<uint32_t> defined_bits_;
  std::map<int32_t, std::string> texts_;
  std::vector<ChoiceState> choices_;
};

}  // namespace tandem
