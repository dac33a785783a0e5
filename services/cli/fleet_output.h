// The workers of a text tier as text and as JSON.
#pragma once

#include <ctime>
#include <string>

#include "absl/status/statusor.h"
#include "tandem/v1/fleet.grpc.pb.h"

namespace tandem::cli {

// A line a worker, then a line for each one that is not connected and says why; or, where the text
// tier did not answer, a line that says so. width: as Table::Text's.
std::string FleetTable(const absl::StatusOr<v1::ListWorkersResponse>& workers, int width);

// One line without its end: {"time", "workers": [...]}, or {"time", "error"} where the text tier
// did not answer. time: UTC, ISO 8601. A worker has the names of tandem.v1.Worker's fields;
// durations are numbers of seconds, named age_seconds and step_seconds; load is null where there is
// none.
std::string FleetJson(const absl::StatusOr<v1::ListWorkersResponse>& workers, std::time_t time);

}  // namespace tandem::cli
