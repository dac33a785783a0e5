// A conversation: what a chat sends to the model, and what /undo, /retry, /save and /load work on.
//
// Not thread-safe.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::cli {

class Conversation final {
 public:
  static constexpr size_t kMaxFileBytes = size_t{16} << 20;

  // Empty: none. It stays through Reset.
  void SetSystem(const std::string& text);
  const std::string& system() const { return system_; }

  void AddQuestion(const std::string& text) { Add("user", text); }
  void AddAnswer(const std::string& text) { Add("assistant", text); }
  // Nothing but the system message is left.
  void Reset();
  // Takes back the last message of the user, and what came after it; returns it. Nothing, if there
  // is none.
  std::optional<std::string> TakeBackQuestion();

  // As it is sent: the system message first.
  const v1::Chat& chat() const { return chat_; }

  // {"messages": [{"role", "content"}, ...]}, replaced at once, for this user alone (0600).
  // UNAVAILABLE: it cannot be written.
  absl::Status Save(const std::string& path) const;
  // Takes such a file's messages in place of these. On an error nothing changes. NOT_FOUND: it
  // cannot be read; INVALID_ARGUMENT: it is no such file; RESOURCE_EXHAUSTED: more than
  // kMaxFileBytes.
  absl::Status Load(const std::string& path);

 private:
  void Add(const std::string& role, const std::string& text);

  std::string system_;
  v1::Chat chat_;
};

}  // namespace tandem::cli
