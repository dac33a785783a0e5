#include "services/cli/fleet_output.h"

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/cli/connection.h"
#include "services/cli/table.h"
#include "services/cli/terminal.h"

namespace tandem::cli {
namespace {

std::string Name(v1::WorkerState state) {
  constexpr size_t kPrefix = sizeof("WORKER_STATE_") - 1;
  const std::string name = v1::WorkerState_Name(state);
  return name.size() > kPrefix ? absl::AsciiStrToLower(name.substr(kPrefix)) : name;
}

std::string Share(int64_t part, int64_t whole) {
  if (whole <= 0) return "-";
  return absl::StrFormat("%.0f%%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::vector<std::string> Row(const v1::Worker& worker) {
  std::vector<std::string> row = {worker.address(), Name(worker.state()), "-"};
  if (worker.state() != v1::WORKER_STATE_CONNECTING) row[2] = std::to_string(worker.sessions());
  if (worker.has_load()) {
    const v1::WorkerLoad& load = worker.load();
    const std::vector<std::string> cells = {
        WithCommas(load.running()),
        WithCommas(load.queued()),
        ShortTime(Seconds(load.step_time())),
        absl::StrCat(WithCommas(load.free_pages()), "/", WithCommas(load.total_pages())),
        WithCommas(load.cached_pages()),
        WithCommas(load.queued_prefill_tokens()),
        WithCommas(load.prefilled_tokens()),
        WithCommas(load.reused_tokens()),
        Share(load.reused_tokens(), load.reused_tokens() + load.prefilled_tokens()),
        WithCommas(load.preempted()),
        absl::StrCat(WithCommas(load.taken_drafts()), "/", WithCommas(load.drafted_tokens())),
        ShortTime(Seconds(load.age()))};
    row.insert(row.end(), cells.begin(), cells.end());
  } else {
    row.resize(15, "-");
  }
  const auto or_dash = [](const std::string& text) { return text.empty() ? "-" : text; };
  row.push_back(or_dash(worker.model()));
  row.push_back(or_dash(ShortFingerprint(worker.numerics_fingerprint())));
  row.push_back(or_dash(worker.device()));
  return row;
}

nlohmann::json ToJson(const v1::Worker& worker) {
  nlohmann::json out = {{"address", worker.address()},
                        {"state", Name(worker.state())},
                        {"last_error", worker.last_error()},
                        {"model", worker.model()},
                        {"device", worker.device()},
                        {"weights_fingerprint", worker.weights_fingerprint()},
                        {"numerics_fingerprint", worker.numerics_fingerprint()},
                        {"sessions", worker.sessions()},
                        {"load", nullptr}};
  if (!worker.has_load()) return out;
  const v1::WorkerLoad& load = worker.load();
  out["load"] = {{"age_seconds", Seconds(load.age())},
                 {"step", load.step()},
                 {"running", load.running()},
                 {"queued", load.queued()},
                 {"free_pages", load.free_pages()},
                 {"total_pages", load.total_pages()},
                 {"cached_pages", load.cached_pages()},
                 {"step_seconds", Seconds(load.step_time())},
                 {"queued_prefill_tokens", load.queued_prefill_tokens()},
                 {"prefilled_tokens", load.prefilled_tokens()},
                 {"reused_tokens", load.reused_tokens()},
                 {"evicted_pages", load.evicted_pages()},
                 {"preempted", load.preempted()},
                 {"drafted_tokens", load.drafted_tokens()},
                 {"taken_drafts", load.taken_drafts()}};
  return out;
}

}  // namespace

std::string FleetTable(const absl::StatusOr<v1::ListWorkersResponse>& workers, int width) {
  if (!workers.ok()) {
    return absl::StrCat("no answer: ", ForTerminal(std::string(workers.status().message())), "\n");
  }
  using enum Table::Align;
  Table table({{"WORKER", kLeft},
               {"STATE", kLeft},
               {"HERE"},
               {"RUNNING"},
               {"QUEUED"},
               {"STEP"},
               {"FREE PAGES"},
               {"CACHED"},
               {"TO PREFILL"},
               {"PREFILLED"},
               {"REUSED"},
               {"HIT"},
               {"PREEMPTED"},
               {"DRAFTS TAKEN"},
               {"AGE"},
               {"MODEL", kLeft},
               {"NUMERICS", kLeft},
               {"DEVICE", kLeft}});
  std::string errors;
  for (const v1::Worker& worker : workers->workers()) {
    table.AddRow(Row(worker));
    if (worker.state() == v1::WORKER_STATE_CONNECTING && !worker.last_error().empty()) {
      absl::StrAppend(&errors, worker.address(), ": ", ForTerminal(worker.last_error()), "\n");
    }
  }
  return table.Text(width) + errors;
}

std::string FleetJson(const absl::StatusOr<v1::ListWorkersResponse>& workers, std::time_t time) {
  nlohmann::json out = {{"time", IsoTime(time)}};
  if (!workers.ok()) {
    out["error"] = std::string(workers.status().message());
  } else {
    out["workers"] = nlohmann::json::array();
    for (const v1::Worker& worker : workers->workers()) out["workers"].push_back(ToJson(worker));
  }
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tandem::cli
