#include "services/cli/explain_output.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/text/utf8.h"

namespace tandem::cli {
namespace {

using Fate = ExplainedToken::Fate;
using Source = RecordedStep::Source;

// Entries that are shown of a step whose whole row is there, beside the perturbed list.
constexpr int32_t kShownRanks = 20;
constexpr size_t kTokenWidth = 16;

double Milliseconds(Nanos nanos) { return static_cast<double>(nanos) / 1e6; }

std::string Count(const CountRange& range) {
  return range.known() ? absl::StrCat(range.low) : absl::StrCat(range.low, " to ", range.high);
}

const char* NameOf(Source source) {
  switch (source) {
    case Source::kNothing:
      return "nothing";
    case Source::kLists:
      return "lists";
    case Source::kWiderLists:
      return "wider lists";
    case Source::kRow:
      return "row";
  }
  return "";
}

const char* NameOf(Fate fate) {
  switch (fate) {
    case Fate::kKept:
      return "kept";
    case Fate::kInDoubt:
      return "in doubt";
    case Fate::kCutByTopK:
      return "top_k";
    case Fate::kCutByTopP:
      return "top_p";
    case Fate::kCutByMinP:
      return "min_p";
  }
  return "";
}

// Of the worker: what it had drawn, and whether it had gone on without waiting.
const char* WorkerOf(const RecordedStep& step) {
  if (step.drawn < 0) return "no draw";
  if (step.drawn != step.token) return "MISS";
  return step.ran_ahead ? "ahead" : "same";
}

bool IsShown(const StepExplanation& explanation, int32_t index) {
  const ExplainedToken& token = explanation.tokens[index];
  return token.rank < kShownRanks || token.in_perturbed || index == explanation.winner;
}

std::string Padded(std::string text, size_t width) {
  size_t length = 0;
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(NextUtf8(rest).length)) {
    ++length;
  }
  if (length < width) text.append(width - length, ' ');
  return text;
}

std::string Decided(const Decision& decision) {
  switch (decision.kind) {
    case Decision::Kind::kToken:
      return "";
    case Decision::Kind::kUndecided:
      return decision.why.empty() ? "the lists do not decide, and nothing else is in the trace"
                                  : decision.why;
    case Decision::Kind::kFault:
      return absl::StrCat("a fault of the lists: ", decision.why);
    case Decision::Kind::kNoToken:
      return "no id is inside the row";
    case Decision::Kind::kNonFinite:
      return absl::StrCat("the logit of id ", decision.token, " is not finite");
  }
  return "";
}

// "512 -> top_k 40 -> top_p 7 to 9", with the rules that there are.
std::string KeptText(const StepExplanation& explanation, const kernels::DrawParams& params) {
  std::string out = absl::StrCat(explanation.num_in_row);
  const auto add = [&out](bool is_on, const char* rule, const CountRange& left) {
    if (is_on) absl::StrAppend(&out, " -> ", rule, " ", Count(left));
  };
  add(params.top_k > 0, "top_k", explanation.kept.after_top_k);
  add(params.top_p_fixed != kernels::kTopPOff, "top_p", explanation.kept.after_top_p);
  add(params.min_p_weight > 0, "min_p", explanation.kept.after_min_p);
  return out;
}

nlohmann::json RangeJson(const CountRange& range) {
  if (range.known()) return range.low;
  return nlohmann::json::array({range.low, range.high});
}

}  // namespace

ExplainOutput::ExplainOutput(const std::map<int32_t, std::string>* texts, std::string other)
    : texts_(*texts), other_(std::move(other)) {}

std::string ExplainOutput::TokenText(int32_t id) const {
  const auto found = texts_.find(id);
  if (found == texts_.end()) return absl::StrCat("#", id);
  std::string out = "\"";
  std::string_view rest = found->second;
  while (!rest.empty()) {
    const Utf8Step step = NextUtf8(rest);
    const std::string_view piece = rest.substr(0, step.length);
    rest.remove_prefix(step.length);
    if (piece == "\n") {
      out += "\\n";
    } else if (piece == "\"" || piece == "\\") {
      absl::StrAppend(&out, "\\", std::string(piece));
    } else if (step.state != Utf8State::kComplete || step.code_point < 0x20 ||
               (step.code_point >= 0x7F && step.code_point < 0xA0) || step.code_point == 0x2028 ||
               step.code_point == 0x2029) {
      for (const char c : piece) absl::StrAppendFormat(&out, "\\x%02X", static_cast<uint8_t>(c));
    } else {
      out += piece;
    }
  }
  return out + "\"";
}

std::string ExplainOutput::Header(const trace::v1::Header& header,
                                  const SamplingParameters& p) const {
  std::string sampling = absl::StrFormat("temperature %g", p.temperature);
  const auto add = [&sampling](const char* name, double value, bool is_on) {
    if (is_on) absl::StrAppendFormat(&sampling, ", %s %g", name, value);
  };
  add("top_k", p.top_k, p.top_k > 0);
  add("top_p", p.top_p, p.top_p < 1.0f);
  add("min_p", p.min_p, p.min_p > 0.0f);
  add("repetition_penalty", p.repetition_penalty, p.repetition_penalty != 1.0f);
  add("presence_penalty", p.presence_penalty, p.presence_penalty != 0.0f);
  add("frequency_penalty", p.frequency_penalty, p.frequency_penalty != 0.0f);
  add("min_tokens", p.min_tokens, p.min_tokens > 0);
  if (!p.logit_bias.empty()) absl::StrAppend(&sampling, ", bias on ", p.logit_bias.size(), " ids");
  if (!p.allowed_ids.empty()) absl::StrAppend(&sampling, ", ", p.allowed_ids.size(), " allowed");
  if (!p.banned_ids.empty()) absl::StrAppend(&sampling, ", ", p.banned_ids.size(), " banned");
  absl::StrAppend(&sampling, ", seed ", p.seed);
  // The names came over the network.
  const auto plain = [](const std::string& text) {
    std::string out = ReplaceInvalidUtf8(text);
    std::replace_if(
        out.begin(), out.end(), [](char c) { return static_cast<uint8_t>(c) < 0x20 || c == 0x7F; },
        '?');
    return out;
  };
  return absl::StrCat("request    ", plain(header.request_id()), "\n",     //
                      "model      ", plain(header.model()), ", weights ",  //
                      plain(header.weights_fingerprint()), ", numerics ",  //
                      plain(header.numerics_fingerprint()), "\n",          //
                      "sampling   ", sampling, "\n",                       //
                      "prompt     ", header.prompt_size(), " tokens, ", header.choices(),
                      header.choices() == 1 ? " choice\n" : " choices\n",
                      other_.empty() ? "" : absl::StrCat("otherwise  ", other_, "\n"));
}

std::string ExplainOutput::TableHead() const {
  return absl::StrCat(
      "position  probability   rank          kept  decided from  worker         ms  ",
      other_.empty() ? "token" : Padded("token", kTokenWidth) + "  otherwise", "\n");
}

std::string ExplainOutput::Otherwise(const Decision& decision) const {
  if (decision.kind == Decision::Kind::kToken) return TokenText(decision.token);
  return absl::StrCat("undecided: ", Decided(decision));
}

std::string ExplainOutput::Line(const ShownStep& shown) const {
  const RecordedStep& step = *shown.step;
  std::string probability = "-", rank = "-", kept = "-";
  if (shown.explanation.has_value() && shown.explanation->winner >= 0) {
    const ExplainedToken& token = shown.explanation->tokens[shown.explanation->winner];
    probability = absl::StrFormat("%.4f %%", 100.0 * token.probability);
    rank = absl::StrCat(token.rank);
  }
  if (shown.explanation.has_value()) kept = Count(shown.explanation->kept.after_min_p);
  std::string token = TokenText(step.token);
  if (shown.otherwise.has_value()) {
    token = absl::StrCat(Padded(token, kTokenWidth), "  ",
                         shown.otherwise->kind != Decision::Kind::kToken ? "undecided"
                         : shown.otherwise->token == step.token          ? "the same"
                                                                : Otherwise(*shown.otherwise));
  }
  return absl::StrFormat("%8d  %11s  %5s  %12s  %-12s  %-8s  %7.1f  %s%s\n", step.position,
                         probability, rank, kept, NameOf(step.source), WorkerOf(step),
                         Milliseconds(step.decided), token, step.agrees() ? "" : "  MISMATCH");
}

std::string ExplainOutput::EntryLine(const ExplainedToken& token, bool drawn) const {
  std::string edits;
  if (token.edit.bias != 0.0f) absl::StrAppendFormat(&edits, " bias %+g", token.edit.bias);
  if (token.adjusted != token.raw && token.edit.repetition_count > 0) {
    absl::StrAppend(&edits, " seen ", token.edit.repetition_count, "x");
  }
  if (token.adjusted != token.raw && token.edit.frequency_count + token.edit.presence_count > 0) {
    absl::StrAppend(&edits, " output ",
                    std::max(token.edit.frequency_count, token.edit.presence_count), "x");
  }
  return absl::StrFormat("  %s %7d %5d %10.4f %10.4f %10.4f %% %9.4f %% %9.4f %10.4f  %-8s  %s%s\n",
                         drawn ? "*" : " ", token.id, token.rank, token.raw, token.adjusted,
                         100.0 * token.probability, 100.0 * token.mass_above, token.noise,
                         token.perturbed, drawn ? "drawn" : NameOf(token.fate), TokenText(token.id),
                         edits.empty() ? "" : "  (" + edits.substr(1) + ")");
}

std::string ExplainOutput::WhyDrawn(const StepExplanation& explanation,
                                    const RecordedStep& step) const {
  if (explanation.winner < 0) return "it is in none of the lists";
  if (step.decider->params().greedy) return "temperature 0 takes rank 0";
  const ExplainedToken& winner = explanation.tokens[explanation.winner];
  if (explanation.kept.after_min_p.high == 1) return "it is the only id that is kept";
  std::string out = "the largest perturbed value of the ids that are kept";
  if (explanation.second >= 0) {
    const ExplainedToken& second = explanation.tokens[explanation.second];
    absl::StrAppendFormat(&out, ", %.4f above %s", winner.perturbed - second.perturbed,
                          TokenText(second.id));
  }
  return out;
}

std::string ExplainOutput::Details(const ShownStep& shown) const {
  const RecordedStep& step = *shown.step;
  std::string out = absl::StrFormat("choice %d, position %d: %s (id %d)\n", step.choice,
                                    step.position, TokenText(step.token), step.token);
  absl::StrAppendFormat(
      &out, "  times      lists after %.1f ms, decided after %.1f ms, on connection %d%s\n",
      Milliseconds(step.arrived), Milliseconds(step.decided), step.connection,
      step.reopened > 0 ? absl::StrCat(", opened again ", step.reopened, " times before") : "");
  absl::StrAppend(&out, "  from       ", NameOf(step.source),
                  step.fault.empty() ? "" : absl::StrCat(", after a fault: ", step.fault), "\n");
  absl::StrAppend(&out, "  worker     ",
                  step.drawn < 0             ? "drew nothing: its lists do not decide"
                  : step.drawn != step.token ? absl::StrCat("MISS: it drew ", TokenText(step.drawn))
                                             : "drew the same",
                  step.ran_ahead ? ", ahead of the decision before" : "", "\n");
  if (!step.agrees()) {
    absl::StrAppend(&out, "  MISMATCH   decided again: ",
                    step.decision.kind == Decision::Kind::kToken ? TokenText(step.decision.token)
                                                                 : Decided(step.decision),
                    "\n");
  }
  if (!shown.explanation.has_value()) return out + "\n";
  const StepExplanation& explanation = *shown.explanation;
  absl::StrAppend(&out, "  row        ", explanation.num_in_row, " ids, ", explanation.num_outside,
                  " outside it", explanation.end_ids_held ? " (min_tokens holds end ids back)" : "",
                  "; of ", explanation.tokens.size(), " listed, bias changes ",
                  explanation.num_biased, " and penalties ", explanation.num_penalised, "\n");
  absl::StrAppend(&out, "  kept       ", KeptText(explanation, step.decider->params()), "\n");
  absl::StrAppend(&out, "  drawn      ", WhyDrawn(explanation, step), "\n");
  if (shown.otherwise.has_value()) {
    absl::StrAppend(&out, "  otherwise  ", Otherwise(*shown.otherwise), "\n");
  }
  absl::StrAppend(&out,
                  "         id  rank        raw   adjusted  probability  mass above     noise  "
                  "perturbed  fate      token\n");
  for (int32_t i = 0; i < static_cast<int32_t>(explanation.tokens.size()); ++i) {
    if (!IsShown(explanation, i)) continue;
    const ExplainedToken& token = explanation.tokens[i];
    out += EntryLine(token, i == explanation.winner);
  }
  return out + "\n";
}

std::string ExplainOutput::Json(const ShownStep& shown) const {
  const RecordedStep& step = *shown.step;
  const auto token_json = [this](int32_t id) {
    nlohmann::json out = {{"id", id}};
    const auto found = texts_.find(id);
    if (found != texts_.end()) out["text"] = found->second;
    return out;
  };
  nlohmann::json out = {{"choice", step.choice},
                        {"position", step.position},
                        {"token", token_json(step.token)},
                        {"agrees", step.agrees()},
                        {"from", NameOf(step.source)},
                        {"connection", step.connection},
                        {"reopened", step.reopened},
                        {"arrived_ms", Milliseconds(step.arrived)},
                        {"decided_ms", Milliseconds(step.decided)}};
  out["worker"] = {{"ran_ahead", step.ran_ahead}};
  out["worker"]["drawn"] = step.drawn >= 0 ? nlohmann::json(step.drawn) : nlohmann::json();
  if (!step.fault.empty()) out["fault"] = step.fault;
  if (!step.agrees()) {
    out["decided"] = step.decision.kind == Decision::Kind::kToken
                         ? token_json(step.decision.token)
                         : nlohmann::json(Decided(step.decision));
  }
  if (shown.explanation.has_value()) {
    const StepExplanation& explanation = *shown.explanation;
    out["row"] = {{"ids", explanation.num_in_row},
                  {"outside", explanation.num_outside},
                  {"end_ids_held", explanation.end_ids_held}};
    out["kept"] = {{"top_k", RangeJson(explanation.kept.after_top_k)},
                   {"top_p", RangeJson(explanation.kept.after_top_p)},
                   {"min_p", RangeJson(explanation.kept.after_min_p)}};
    out["why"] = WhyDrawn(explanation, step);
    out["candidates"] = nlohmann::json::array();
    for (int32_t i = 0; i < static_cast<int32_t>(explanation.tokens.size()); ++i) {
      if (!IsShown(explanation, i)) continue;
      const ExplainedToken& token = explanation.tokens[i];
      nlohmann::json entry = token_json(token.id);
      entry["rank"] = token.rank;
      entry["raw"] = token.raw;
      entry["adjusted"] = token.adjusted;
      entry["bias"] = token.edit.bias;
      entry["repetition_count"] = token.edit.repetition_count;
      entry["presence_count"] = token.edit.presence_count;
      entry["frequency_count"] = token.edit.frequency_count;
      entry["probability"] = token.probability;
      entry["mass_above"] = token.mass_above;
      entry["noise"] = token.noise;
      entry["perturbed"] = token.perturbed;
      entry["fate"] = i == explanation.winner ? "drawn" : NameOf(token.fate);
      out["candidates"].push_back(std::move(entry));
    }
  }
  if (shown.otherwise.has_value()) {
    out["otherwise"] = shown.otherwise->kind == Decision::Kind::kToken
                           ? token_json(shown.otherwise->token)
                           : nlohmann::json{{"undecided", Decided(*shown.otherwise)}};
  }
  // A text may be half a character: replaced rather than refused.
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace tandem::cli
