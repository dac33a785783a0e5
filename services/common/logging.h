// Log lines to stderr: one line an event, whatever the texts in it hold. Prompts and generated text
// are not logged.
//
//   LogInfo("stream ", id, " opened by ", peer);
//   LogEvent(LogLevel::kInfo, "request_finished", {{"request_id", id}, {"output_tokens", count}});
//
// As text:  2026-11-29T20:45:40.123Z tandem-text info: request_finished request_id=a
// output_tokens=7 As JSON:
// {"time":"2026-11-29T20:45:40.123Z","level":"info","service":"tandem-text",
//            "event":"request_finished","message":"request_finished request_id=a output_tokens=7",
//            "request_id":"a","output_tokens":7}   (on one line)
// A line without fields is the event "log".
//
// Thread-safe.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

#include "absl/strings/str_cat.h"

namespace tandem {

enum class LogLevel : uint8_t { kInfo, kWarning, kError };
enum class LogFormat : uint8_t { kText, kJson };

struct LogOptions {
  LogFormat format = LogFormat::kText;
  LogLevel level = LogLevel::kInfo;  // lines below it are not written
};

// Called once, before the first line; without it lines come out as text, under the name "tandem".
void InitLogging(std::string_view program, const LogOptions& options = {});

// Writes the message as one line: as text, EscapeControl(message).
void Log(LogLevel level, std::string_view message);

// A name, of lower-case letters and underscores, and a value. Looks at a text, does not hold it.
class LogField final {
 public:
  using Value = std::variant<std::string_view, int64_t, double, bool>;

  LogField(std::string_view name, std::string_view value) : name_(name), value_(value) {}
  LogField(std::string_view name, const std::string& value)
      : LogField(name, std::string_view(value)) {}
  LogField(std::string_view name, const char* value) : LogField(name, std::string_view(value)) {}
  LogField(std::string_view name, std::same_as<bool> auto value) : name_(name), value_(value) {}
  LogField(std::string_view name, std::floating_point auto value)
      : name_(name), value_(static_cast<double>(value)) {}
  template <std::integral Integer>
  requires(!std::same_as<Integer, bool>) LogField(std::string_view name, Integer value)
      : name_(name), value_(static_cast<int64_t>(value)) {}

  std::string_view name() const { return name_; }
  const Value& value() const { return value_; }

 private:
  std::string_view name_;
  Value value_;
};
using LogFields = std::initializer_list<LogField>;

// event: what happened, a name as a field's. message: the line for people; empty: the event and its
// fields, as EventText has them.
void LogEvent(LogLevel level, std::string_view event, LogFields fields,
              std::string_view message = {});

// "event name=value name="a value with blanks"", with control characters escaped.
std::string EventText(std::string_view event, LogFields fields);
// The members of a JSON object, without its braces: service, event, message and the fields. ASCII
// alone: other characters are escaped, and bytes that are no UTF-8 become U+FFFD.
std::string EventJson(std::string_view service, std::string_view event, LogFields fields,
                      std::string_view message);

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
