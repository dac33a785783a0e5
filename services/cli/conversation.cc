#include "services/cli/conversation.h"

#include <fstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "engine/base/status.h"
#include "services/cli/private_file.h"

namespace tandem::cli {
namespace {

constexpr char kSystem[] = "system";
constexpr char kUser[] = "user";

}  // namespace

void Conversation::Add(const std::string& role, const std::string& text) {
  v1::Message& message = *chat_.add_messages();
  message.set_role(role);
  message.set_content(text);
}

void Conversation::SetSystem(const std::string& text) {
  v1::Chat others;
  if (!text.empty()) {
    others.add_messages()->set_role(kSystem);
    others.mutable_messages(0)->set_content(text);
  }
  for (int i = system_.empty() ? 0 : 1; i < chat_.messages_size(); ++i) {
    *others.add_messages() = chat_.messages(i);
  }
  chat_ = std::move(others);
  system_ = text;
}

void Conversation::Reset() {
  chat_.clear_messages();
  if (!system_.empty()) Add(kSystem, system_);
}

std::optional<std::string> Conversation::TakeBackQuestion() {
  int last = chat_.messages_size() - 1;
  while (last >= 0 && chat_.messages(last).role() != kUser) --last;
  if (last < 0) return std::nullopt;
  const std::string question = chat_.messages(last).content();
  chat_.mutable_messages()->DeleteSubrange(last, chat_.messages_size() - last);
  return question;
}

absl::Status Conversation::Save(const std::string& path) const {
  nlohmann::json messages = nlohmann::json::array();
  for (const v1::Message& message : chat_.messages()) {
    messages.push_back({{"role", message.role()}, {"content", message.content()}});
  }
  const nlohmann::json json = {{"messages", std::move(messages)}};
  return ReplacePrivateFile(
      path, json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

absl::Status Conversation::Load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (file.bad() || !file.is_open() || (text.empty() && !file.eof())) {
    return NotFound(path, " cannot be read");
  }
  if (text.size() > kMaxFileBytes) {
    return ResourceExhausted(path, " has more than ", kMaxFileBytes, " bytes");
  }
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  const auto messages = json.is_object() ? json.find("messages") : json.end();
  if (!json.is_object() || messages == json.end() || !messages->is_array()) {
    return InvalidArgument(path, " is no conversation: an object with \"messages\"");
  }
  v1::Chat loaded;
  for (const nlohmann::json& message : *messages) {
    const auto is_text = [&message](const char* name) {
      return message.is_object() && message.contains(name) && message[name].is_string();
    };
    if (!is_text("role") || !is_text("content")) {
      return InvalidArgument(path, ": messages[", loaded.messages_size(),
                             "] needs a role and a content, both text");
    }
    v1::Message& added = *loaded.add_messages();
    added.set_role(message["role"].get<std::string>());
    added.set_content(message["content"].get<std::string>());
  }
  chat_ = std::move(loaded);
  const bool has_system = chat_.messages_size() > 0 && chat_.messages(0).role() == kSystem;
  system_ = has_system ? chat_.messages(0).content() : "";
  return absl::OkStatus();
}

}  // namespace tandem::cli
