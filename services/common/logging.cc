#include "services/common/logging.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdint>
#include <memory>

#include <nlohmann/json.hpp>

namespace tandem {
namespace {

constexpr char kTextPattern[] = "%Y-%m-%dT%H:%M:%S.%eZ %n %l: %v";
constexpr char kJsonPattern[] = R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})";

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

struct ProcessLog {
  spdlog::logger logger;
  LogFormat format;
};

// The process's one log, made by the first call, which names it; safe from any thread, and there
// until the process ends. Not spdlog's default one, which writes to stdout, which belongs to the
// program's output.
ProcessLog& TheLog(std::string_view program, const LogOptions& options) {
  static ProcessLog* const log = [&] {
    auto* made = new ProcessLog{
        spdlog::logger(std::string(program), std::make_shared<spdlog::sinks::stderr_sink_mt>()),
        options.format};
    made->logger.set_pattern(options.format == LogFormat::kJson ? kJsonPattern : kTextPattern,
                             spdlog::pattern_time_type::utc);
    made->logger.set_level(ToSpdlog(options.level));
    made->logger.flush_on(spdlog::level::trace);
    return made;
  }();
  return *log;
}
ProcessLog& TheLog() { return TheLog("tandem", {}); }

// Bytes at text[i] that must not reach a terminal or a log as they are; 0: none.
size_t UnsafeBytes(std::string_view text, size_t i) {
  const auto byte = [&](size_t at) {
    return at < text.size() ? static_cast<uint8_t>(text[at]) : uint8_t{0};
  };
  if (byte(i) < 0x20 || byte(i) == 0x7f) return 1;
  if (byte(i) == 0xc2 && byte(i + 1) >= 0x80 && byte(i + 1) <= 0x9f) return 2;
  if (byte(i) == 0xe2 && byte(i + 1) == 0x80 && (byte(i + 2) == 0xa8 || byte(i + 2) == 0xa9)) {
    return 3;
  }
  return 0;
}

// A value that a reader can tell from what stands beside it.
std::string Quoted(std::string_view text) {
  std::string out = EscapeControl(text);
  if (!out.empty() && out.find_first_of(" \"=") == std::string::npos) return out;
  std::string quoted = "\"";
  for (const char c : out) {
    if (c == '"') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

}  // namespace

void InitLogging(std::string_view program, const LogOptions& options) { TheLog(program, options); }

void Log(LogLevel level, std::string_view message) {
  ProcessLog& log = TheLog();
  if (!log.logger.should_log(ToSpdlog(level))) return;
  log.logger.log(ToSpdlog(level), "{}",
                 log.format == LogFormat::kText ? EscapeControl(message)
                                                : EventJson(log.logger.name(), "log", {}, message));
}

void LogEvent(LogLevel level, std::string_view event, LogFields fields, std::string_view message) {
  ProcessLog& log = TheLog();
  if (!log.logger.should_log(ToSpdlog(level))) return;
  const std::string text = message.empty() ? EventText(event, fields) : EscapeControl(message);
  log.logger.log(
      ToSpdlog(level), "{}",
      log.format == LogFormat::kText ? text : EventJson(log.logger.name(), event, fields, text));
}

std::string EventText(std::string_view event, LogFields fields) {
  std::string out(event);
  for (const LogField& field : fields) {
    out += ' ';
    out += field.name();
    out += '=';
    std::visit(Overloaded{[&](std::string_view text) { out += Quoted(text); },
                          [&](bool value) { out += value ? "true" : "false"; },
                          [&](auto number) { absl::StrAppend(&out, number); }},
               field.value());
  }
  return out;
}

std::string EventJson(std::string_view service, std::string_view event, LogFields fields,
                      std::string_view message) {
  nlohmann::ordered_json line = {{"service", service}, {"event", event}, {"message", message}};
  for (const LogField& field : fields) {
    std::visit([&](const auto& value) { line[std::string(field.name())] = value; }, field.value());
  }
  using nlohmann::json;
  const std::string object =
      line.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  return object.substr(1, object.size() - 2);
}

std::string EscapeControl(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t unsafe = UnsafeBytes(text, i);
    for (size_t j = i; j < i + unsafe; ++j) {
      const auto byte = static_cast<uint8_t>(text[j]);
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
    if (unsafe == 0) {
      if (text[i] == '\\') out += '\\';
      out += text[i];
    }
    i += unsafe == 0 ? 1 : unsafe;
  }
  return out;
}

}  // namespace tandem
