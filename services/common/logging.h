// Log lines to stderr: one line an event, whatever the texts in it hold. Prompts and generated text
// are not logged.
//
//   LogInfo("stream ", id, " opened by ", peer);
//
// Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace tandem {

enum class LogLevel { kInfo, kWarning, kError };

// Lines look like "2026-11-29T20:45:40.123Z tandem-worker info: message". Called once, before the
// first line; without it lines come out under the name "tandem".
void InitLogging(std::string_view program);

// Writes EscapeControl(message) as one line.
void Log(LogLevel level, std::string_view message);

// What could end a line or steer a terminal becomes visible: control characters, C1 controls and
// U+2028, U+2029 byte by byte as \xNN, a backslash as two, so that the text can be had back. Other
// bytes stay as they are.
std::string EscapeControl(std::string_view text);

template <typename... Parts>
void LogInfo(const Parts&... parts) {
  Log(LogLevel::kInfo, absl::StrCat(parts...));
}
template <typename... Parts>
void LogWarning(const Parts&... parts) {
  Log(LogLevel::kWarning, absl::StrCat(parts...));
}
template <typename... Parts>
void LogError(const Parts&... parts) {
  Log(LogLevel::kError, absl::StrCat(parts...));
}

}  // namespace tandem
