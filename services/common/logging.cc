#include "services/common/logging.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdint>
#include <memory>

namespace tandem {
namespace {

constexpr char kPattern[] = "%Y-%m-%dT%H:%M:%S.%eZ %n %l: %v";

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

// The process's one logger, made by the first call, which names it; safe from any thread, and there
// until the process ends. Not spdlog's default one, which writes to stdout, which belongs to the
// program's output.
spdlog::logger& Logger(std::string_view program) {
  static spdlog::logger* const logger = [&] {
    auto* made =
        new spdlog::logger(std::string(program), std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern(kPattern, spdlog::pattern_time_type::utc);
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *logger;
}

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

}  // namespace

void InitLogging(std::string_view program) { Logger(program); }

void Log(LogLevel level, std::string_view message) {
  Logger("tandem").log(ToSpdlog(level), "{}", EscapeControl(message));
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
