// How `tandem explain` shows a recorded generation: a line a step, a step in full, or JSON.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "engine/sampling/explanation.h"
#include "services/trace/trace_replay.h"

namespace tandem::cli {

// A recorded step with what was made of it.
struct ShownStep {
  const RecordedStep* step = nullptr;
  std::optional<StepExplanation> explanation;  // where there was something to decide from
  std::optional<Decision> otherwise;           // with other parameters, where they were asked for
};

class ExplainOutput final {
 public:
  // texts: of ids, must outlive this; other: what the other parameters are, for people ("": none).
  ExplainOutput(const std::map<int32_t, std::string>* texts, std::string other);

  // What was asked for and on what, a few lines.
  std::string Header(const trace::v1::Header& header, const SamplingParameters& parameters) const;
  std::string TableHead() const;
  std::string Line(const ShownStep& shown) const;
  std::string Details(const ShownStep& shown) const;
  // One JSON object and a newline. Shares and logits are numbers; a range that is known is one
  // number, else [least, most].
  std::string Json(const ShownStep& shown) const;
  // The token's text in quotes, with what would steer a terminal made visible; "#ID" where the
  // trace does not have it.
  std::string TokenText(int32_t id) const;

 private:
  std::string Otherwise(const Decision& decision) const;
  std::string EntryLine(const ExplainedToken& token, bool drawn) const;
  std::string WhyDrawn(const StepExplanation& explanation, const RecordedStep& step) const;

  const std::map<int32_t, std::string>& texts_;
  const std::string other_;
};

}  // namespace tandem::cli
