// `tandem explain`: a recorded generation, decided again and shown step by step. Needs no server.
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "services/cli/commands.h"
#include "services/cli/explain_output.h"
#include "services/common/flags.h"
#include "services/trace/trace_replay.h"

namespace tandem::cli {
namespace {

struct Flags {
  std::string file;
  std::optional<int32_t> choice;
  std::optional<int32_t> step;
  std::optional<int32_t> from;
  std::optional<int32_t> to;
  bool details = false;
  bool json = false;
  // What else might have been drawn.
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<uint64_t> seed;
};

bool IsWanted(const Flags& flags, const RecordedStep& step) {
  if (flags.choice.has_value() && step.choice != *flags.choice) return false;
  if (flags.step.has_value() && step.position != *flags.step) return false;
  return step.position >= flags.from.value_or(0) && step.position <= flags.to.value_or(INT32_MAX);
}

// The parameters with what the flags say instead, and what that is ("": nothing).
std::string Change(const Flags& flags, SamplingParameters* parameters) {
  std::string what;
  const auto set = [&what](const char* name, const auto& flag, auto* field) {
    if (!flag.has_value()) return;
    *field = *flag;
    absl::StrAppend(&what, what.empty() ? "" : ", ", name, " ", *flag);
  };
  set("temperature", flags.temperature, &parameters->temperature);
  set("top_k", flags.top_k, &parameters->top_k);
  set("top_p", flags.top_p, &parameters->top_p);
  set("min_p", flags.min_p, &parameters->min_p);
  set("seed", flags.seed, &parameters->seed);
  return what;
}

std::string EndOf(const Trace& trace) {
  switch (trace.end.reason()) {
    case trace::v1::End::REASON_DONE:
      return "";
    case trace::v1::End::REASON_BYTES:
      return "it ends early, since it has as many bytes as it may have";
    case trace::v1::End::REASON_OVERFLOW:
      return "it ends early, since records came faster than they were written";
    case trace::v1::End::REASON_DISK:
      return "it ends early, since a write failed: " + trace.end.detail();
    default:
      return "it is cut off: what comes after its last whole record is lost";
  }
}

class Explainer final {
 public:
  Explainer(const Flags& flags, const Trace& trace, TraceReplay& replay)
      : flags_(flags), trace_(trace), replay_(replay), other_(replay.parameters()) {
    other_text_ = Change(flags, &other_);
  }

  absl::Status Run() {
    RETURN_IF_ERROR(Validate(other_, replay_.vocab_size()));
    const ExplainOutput output(&replay_.texts(), other_text_);
    const absl::Status status = replay_.Run([&](const RecordedStep& step) { Visit(step, output); });
    if (!flags_.json) {
      std::cout << output.Header(trace_.header, replay_.parameters());
    }
    for (const auto& [choice, text] : shown_) {
      if (!flags_.json && !InFull()) {
        std::cout << "\nchoice " << choice << "\n" << output.TableHead();
      } else if (!flags_.json) {
        std::cout << "\n";
      }
      std::cout << text;
      if (!flags_.json && !InFull()) std::cout << EndOfChoice(choice);
    }
    return status;
  }
  bool InFull() const { return flags_.details || flags_.step.has_value(); }
  int64_t num_steps() const { return num_steps_; }
  int64_t num_shown() const { return num_shown_; }
  const std::vector<std::string>& mismatches() const { return mismatches_; }

 private:
  void Visit(const RecordedStep& step, const ExplainOutput& output) {
    ++num_steps_;
    if (!step.agrees()) {
      mismatches_.push_back(absl::StrCat(
          "choice ", step.choice, " position ", step.position, ": recorded is ",
          output.TokenText(step.token), ", decided again is ",
          step.decision.kind == Decision::Kind::kToken ? output.TokenText(step.decision.token)
                                                       : "nothing"));
    }
    if (!IsWanted(flags_, step)) return;
    ++num_shown_;
    ShownStep shown{.step = &step};
    const bool has_lists = step.lists != nullptr && !step.lists->top.empty() &&
                           (step.decision.kind == Decision::Kind::kToken ||
                            step.decision.kind == Decision::Kind::kUndecided);
    if (has_lists) {
      shown.explanation = ExplainStep(*step.decider, *step.lists, step.token);
      if (!other_text_.empty()) shown.otherwise = Otherwise(step);
    }
    std::string& text = shown_[step.choice];
    int32_t& reopened = reopened_[step.choice];
    if (step.reopened > reopened && !flags_.json && !InFull()) {
      absl::StrAppend(&text, "          opened again, on connection ", step.connection, "\n");
    }
    reopened = step.reopened;
    text += flags_.json ? output.Json(shown)
            : InFull()  ? output.Details(shown)
                        : output.Line(shown);
  }

  // A line on how it ended, where that is recorded.
  std::string EndOfChoice(int32_t choice) const {
    for (const trace::v1::Record& record : trace_.records) {
      const v1::Finished& finished = record.ended().finished();
      if (!record.has_ended() || finished.choice() != choice) continue;
      return absl::StrCat("ended with ", v1::FinishReason_Name(finished.reason()), "; ",
                          finished.counters().from_lists(), " tokens from lists, ",
                          finished.counters().fetched(), " from what was fetched; opened again ",
                          finished.counters().reopened(), " times\n");
    }
    return "";
  }

  Decision Otherwise(const RecordedStep& step) const {
    const kernels::DrawParams params =
        ToDrawParams(other_, step.decider->params().choice, step.decider->params().prompt_length,
                     replay_.vocab_size());
    return ListedRow(*step.decider, *step.lists).Decide(params);
  }

  const Flags& flags_;
  const Trace& trace_;
  TraceReplay& replay_;
  SamplingParameters other_;
  std::string other_text_;
  std::map<int32_t, std::string> shown_;  // by choice
  std::map<int32_t, int32_t> reopened_;   // by choice
  int64_t num_steps_ = 0;
  int64_t num_shown_ = 0;
  std::vector<std::string> mismatches_;
};

int Fail(const absl::Status& status) {
  std::cerr << "error: " << std::string(status.message()) << "\n";
  return 1;
}

int RunExplain(const Flags& flags) {
  const absl::StatusOr<Trace> trace = ReadTrace(flags.file);
  if (!trace.ok()) return Fail(trace.status());
  const absl::StatusOr<std::unique_ptr<TraceReplay>> replay = TraceReplay::Make(&*trace);
  if (!replay.ok()) return Fail(replay.status());
  Explainer explainer(flags, *trace, **replay);
  const absl::Status status = explainer.Run();
  std::cout << std::flush;
  for (const std::string& mismatch : explainer.mismatches()) {
    std::cerr << "MISMATCH: " << mismatch << "\n";
  }
  const std::string end = EndOf(*trace);
  if (!end.empty()) std::cerr << "note: the trace is not whole: " << end << "\n";
  if (!status.ok()) return Fail(status);
  const int64_t agreeing =
      explainer.num_steps() - static_cast<int64_t>(explainer.mismatches().size());
  (flags.json ? std::cerr : std::cout)
      << (flags.json || explainer.InFull() ? "" : "\n") << agreeing << " of "
      << explainer.num_steps() << " recorded tokens were decided again and are the same\n";
  if (!explainer.mismatches().empty()) return 1;
  if (explainer.num_shown() > 0 || explainer.num_steps() == 0) return 0;
  return Fail(NotFound("the trace has no such step"));
}

}  // namespace

void AddExplain(CLI::App& app, const std::function<void(Run)>& set_run) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand(
      "explain",
      "Decide a recorded generation again, from a file of tandem-text --trace-dir: a line a token; "
      "exit status 1 if one differs from what was recorded");
  command->add_option("file", flags->file, "The trace")->required();
  command->add_option("--choice", flags->choice, "Only this choice");
  command->footer(
      "Of each token: its probability at the temperature, before any cut; its rank; how many ids "
      "the "
      "cuts kept; what decided it (the worker's lists, or wider ones or the row, which were "
      "fetched); "
      "and whether the worker had drawn the same, ahead (before it could know the token before), "
      "or nothing.");
  CLI::Option* step = command->add_option(
      "--step", flags->step, "Only this position, in full; the first token of the prompt is 0");
  command->add_option("--from", flags->from, "Only positions from this one on")->excludes(step);
  command->add_option("--to", flags->to, "Only positions up to this one")->excludes(step);
  CLI::Option* details = command->add_flag("--details", flags->details, "Every step in full");
  command->add_flag("--json", flags->json, "A JSON object a step, in full")->excludes(details);
  command->add_option("--temperature", flags->temperature,
                      "Say what would have been drawn at each step with this temperature instead; "
                      "the other parameters likewise, and together");
  command->add_option("--top-k", flags->top_k, "0: off");
  command->add_option("--top-p", flags->top_p, "1: off");
  command->add_option("--min-p", flags->min_p, "0: off");
  command->add_option("--seed", flags->seed, "Of the noise")->check(CheckUnsigned);
  command->callback([flags, set_run] { set_run([flags] { return RunExplain(*flags); }); });
}

}  // namespace tandem::cli
