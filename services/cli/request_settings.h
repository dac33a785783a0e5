// Sampling flags that are changed while a program runs: `temperature 0.7` is what --temperature 0.7
// is on the command line.
//
// Not thread-safe.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "services/cli/generation_client.h"

namespace tandem::cli {

class RequestSettings final {
 public:
  // What the command line said.
  explicit RequestSettings(RequestFlags base) : base_(base), flags_(std::move(base)) {}

  // name: of a flag of RequestFlags, without the dashes; a second value replaces the first.
  // INVALID_ARGUMENT: no such flag, or no such value; then nothing changes.
  absl::Status Set(const std::string& name, const std::string& value);
  // What the command line said of it counts again. NOT_FOUND: it was not set.
  absl::Status Unset(const std::string& name);

  const RequestFlags& flags() const { return flags_; }
  // What was set, by name.
  const std::map<std::string, std::string>& values() const { return values_; }

 private:
  const RequestFlags base_;
  std::map<std::string, std::string> values_;
  RequestFlags flags_;
};

}  // namespace tandem::cli
