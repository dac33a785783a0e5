#include "services/common/grpc_log.h"

#include <grpc/support/log.h>

#include "services/common/logging.h"

namespace tandem {

void LogWhatGrpcSays() {
  gpr_set_log_function([](gpr_log_func_args* args) {
    const LogLevel level =
        args->severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kError : LogLevel::kInfo;
    Log(level, absl::StrCat("grpc: ", args->message));
  });
}

}  // namespace tandem
