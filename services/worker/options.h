// The worker's command line.
#pragma once

#include <optional>
#include <string>

#include "engine/decode_engine.h"
#include "services/common/flags.h"
#include "services/common/http/http_server.h"
#include "services/common/logging.h"
#include "services/common/server.h"

namespace tandem {

struct WorkerOptions {
  std::string model;  // path of a .gguf file
  std::string
      name;  // that the model is served under; by default the file's name without its ending
  std::string port_file;  // empty: none
  std::string device = "auto";
  int32_t threads = 0;  // 0: one per core
  bool checked = false;
  bool log_sessions = false;
  LogOptions log;
  int status_seconds = kDefaultStatusSeconds;
  ServerOptions server;
  HttpServerOptions status_pages;  // listen empty: none
  std::string metrics_port_file;   // empty: none
  EngineOptions engine;  // but hash_seed and kv_format, which are not the command line's to say
};

// Null: *options holds what was asked for. Else the exit code to leave with; what there is to say
// was printed.
std::optional<int> ParseOptions(int argc, const char* const* argv, WorkerOptions* options);

}  // namespace tandem
