#include "services/cli/line_reader.h"

#include <cerrno>
#include <clocale>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <memory>
#include <utility>

#include <editline/readline.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "engine/base/check.h"
#include "services/cli/interrupt.h"

namespace tandem::cli {
namespace {

constexpr char kNewlineSign[] = "\xE2\x90\xA4";  // U+2424, in place of a pasted newline
constexpr int kNewlineSignCode = 0x2424;
constexpr char kPasteOn[] = "\x1b[?2004h";
constexpr char kPasteOff[] = "\x1b[?2004l";
constexpr char kPasteBegin[] = "\x1b[200~";
constexpr char kPasteEnd[] = "\x1b[201~";
constexpr int kEscapePatience = 30;  // milliseconds between the bytes of an escape sequence

// The keyboard as libedit reads it. libedit calls back without an argument, so there is one.
class Keyboard final {
 public:
  Keyboard() : interrupt_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    TANDEM_CHECK(interrupt_fd_ >= 0) << "errno " << errno;
  }

  // From any thread: the line that is being edited ends.
  void Interrupt() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(interrupt_fd_, &one, sizeof(one));
  }
  // Whether that happened since the last call.
  bool TakeInterrupt() {
    uint64_t count = 0;
    const bool drained = read(interrupt_fd_, &count, sizeof(count)) == sizeof(count);
    if (!std::exchange(interrupted_, false) && !drained) return false;
    // Half a paste is no paste.
    pushed_back_.clear();
    pasting_ = false;
    return true;
  }

  // The next code point, or EOF.
  int Next() {
    while (true) {
      const int first = NextByte(-1);
      if (first < 0) return interrupted_ ? '\n' : EOF;
      if (first == 0x1B && Matches(pasting_ ? kPasteEnd : kPasteBegin)) {
        pasting_ = !pasting_;
        continue;
      }
      if (!pasting_) return first < 0x80 ? first : Rest(first);
      if (first == '\r' || first == '\n') return kNewlineSignCode;
      if (first == '\t') return ' ';
      if (first < 0x20 || first == 0x7F) continue;  // a pasted control character is no command
      return first < 0x80 ? first : Rest(first);
    }
  }

 private:
  // patience: milliseconds; -1: for ever. -1: nothing came, the input has ended, or Ctrl-C.
  int NextByte(int patience) {
    if (!pushed_back_.empty()) {
      const unsigned char byte = pushed_back_.front();
      pushed_back_.pop_front();
      return byte;
    }
    while (true) {
      pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {interrupt_fd_, POLLIN, 0}};
      const int ready = poll(fds, 2, patience);
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) return -1;
      if (fds[1].revents != 0) {
        interrupted_ = true;
        return -1;
      }
      unsigned char byte = 0;
      const ssize_t count = read(STDIN_FILENO, &byte, 1);
      if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      return count == 1 ? byte : -1;
    }
  }

  // Whether what follows the ESC is the rest of `sequence`; if not, it will be read again.
  bool Matches(const std::string& sequence) {
    std::string got;
    while (got.size() + 1 < sequence.size()) {
      const int byte = NextByte(kEscapePatience);
      if (byte < 0) break;
      got += static_cast<char>(byte);
      if (got.back() != sequence[got.size()]) break;
    }
    if (sequence.compare(1, std::string::npos, got) == 0) return true;
    pushed_back_.insert(pushed_back_.begin(), got.begin(), got.end());
    return false;
  }

  // The code point that begins with this byte; U+FFFD for what is not UTF-8.
  int Rest(int first) {
    const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : first >= 0xC2 ? 1 : 0;
    if (more == 0 || first > 0xF4) return 0xFFFD;
    int code = first & (0x3F >> more);
    for (int i = 0; i < more; ++i) {
      const int byte = NextByte(kEscapePatience);
      if (byte < 0) return 0xFFFD;
      if ((byte & 0xC0) != 0x80) {
        pushed_back_.push_front(static_cast<unsigned char>(byte));
        return 0xFFFD;
      }
      code = code << 6 | (byte & 0x3F);
    }
    return code;
  }

  const int interrupt_fd_;
  std::deque<unsigned char> pushed_back_;
  bool pasting_ = false;
  bool interrupted_ = false;
};

// Never destroyed: a signal may still come.
Keyboard& TheKeyboard() {
  static Keyboard& keyboard = *new Keyboard;
  return keyboard;
}

int ReadKey(FILE*) { return TheKeyboard().Next(); }

void Tell(const char* text) {
  std::fputs(text, stdout);
  std::fflush(stdout);
}

std::string ReplaceAll(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

}  // namespace

LineReader::LineReader(bool terminal) : terminal_(terminal) {
  if (!terminal_) return;
  // libedit keeps lines as wide characters; the C locale has no more than ASCII.
  if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) {
    std::setlocale(LC_CTYPE, "C.UTF-8");
  }
  rl_readline_name = "tandem";
  rl_catch_signals = 0;
  rl_getc_function = ReadKey;
  rl_initialize();
  rl_bind_key('\t', rl_insert);
  stifle_history(1000);
  SetRestoreTerminal([] {
    rl_deprep_terminal();
    Tell(kPasteOff);
  });
}

LineReader::~LineReader() {
  if (terminal_) SetRestoreTerminal(nullptr);
}

void LineReader::SetHistory(const std::vector<std::string>& lines) {
  if (!terminal_) return;
  for (const std::string& line : lines) add_history(line.c_str());
}

std::optional<std::string> LineReader::ReadLine(const char* prompt) {
  if (!terminal_) {
    std::string line;
    if (!std::getline(std::cin, line)) return std::nullopt;
    return line;
  }
  const InterruptScope interrupt([] { TheKeyboard().Interrupt(); });
  Tell(kPasteOn);
  rl_prep_terminal(1);  // before the prompt, so that what is typed at its sight is edited
  const std::unique_ptr<char, decltype(&std::free)> line(readline(prompt), &std::free);
  Tell(kPasteOff);
  interrupted_ = TheKeyboard().TakeInterrupt();
  if (line == nullptr) return std::nullopt;
  return std::string(line.get());
}

std::optional<LineReader::Input> LineReader::Read() {
  Input input;
  bool more = false;
  while (true) {
    const std::optional<std::string> line = ReadLine(more ? ". " : "> ");
    if (interrupted_) {
      if (!more && (!line.has_value() || line->empty())) return std::nullopt;
      input = Input();
      more = false;
      continue;
    }
    if (!line.has_value()) {
      if (!more) return std::nullopt;
      break;
    }
    const bool goes_on = !line->empty() && line->back() == '\\';
    const std::string part = goes_on ? line->substr(0, line->size() - 1) : *line;
    if (more) {
      input.text += "\n";
      input.history += kNewlineSign;
    }
    input.text += terminal_ ? ReplaceAll(part, kNewlineSign, "\n") : part;
    input.history += part;
    more = goes_on;
    if (!more) break;
  }
  if (terminal_ && !input.text.empty()) add_history(input.history.c_str());
  return input;
}

}  // namespace tandem::cli
