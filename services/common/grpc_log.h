// gRPC's own complaints, in the process's log.
#pragma once

namespace tandem {

// From now on they are lines of the log, instead of lines of another form beside it. Call it before
// gRPC is used.
void LogWhatGrpcSays();

}  // namespace tandem
