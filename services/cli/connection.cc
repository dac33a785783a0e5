#include "services/cli/connection.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string_view>
#include <utility>

#include "engine/base/status.h"
#include "services/cli/terminal.h"
#include "services/common/api_key.h"
#include "services/common/channel.h"
#include "services/common/flags.h"

namespace tandem::cli {

void ConnectionFlags::AddTo(CLI::App& app) {
  app.add_option("--server", server, "host:port of the text tier")
      ->envname("TANDEM_SERVER")
      ->check(CheckAddress)
      ->capture_default_str();
  // Not a flag with the key itself: whoever lists this machine's processes would read it.
  app.add_option_function<std::string>(
      "--api-key-file",
      [this](const std::string& path) {
        absl::StatusOr<std::string> key = ReadApiKey(path);
        if (!key.ok()) throw CLI::ValidationError(std::string(key.status().message()));
        file_key = *std::move(key);
      },
      "File whose first line is the API key that the server asks for; default: the variable "
      "TANDEM_API_KEY");
  AddTlsFlags(app, &tls);
}

absl::StatusOr<std::string> ConnectionFlags::ApiKey() const {
  if (!file_key.empty()) return file_key;
  const char* const variable = std::getenv("TANDEM_API_KEY");
  if (variable == nullptr || *variable == '\0') return std::string();
  if (!IsApiKey(variable)) {
    return InvalidArgument("TANDEM_API_KEY is no key: it must be 1 to ", kMaxApiKeyBytes,
                           " visible ASCII characters");
  }
  return std::string(variable);
}

std::string CheckAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon != std::string::npos && colon + 1 < address.size() && address.back() != ']') return "";
  return absl::StrCat("it must be host:port, not ", address);
}

absl::StatusOr<std::string> ReadApiKey(const std::string& path) {
  std::ifstream file(path);
  if (!file) return InvalidArgument("--api-key-file ", path, ": the file cannot be read");
  std::string line;
  while (std::getline(file, line)) {
    const std::string_view key = TrimKeyLine(line);
    if (key.empty()) continue;
    if (IsApiKey(key)) return std::string(key);
    break;
  }
  return InvalidArgument("--api-key-file ", path, ": its first line must be a key of 1 to ",
                         kMaxApiKeyBytes, " visible ASCII characters");
}

Connection::Connection(std::shared_ptr<grpc::Channel> channel, std::string api_key)
    : channel_(std::move(channel)),
      api_key_(std::move(api_key)),
      generation_(v1::Generation::NewStub(channel_)) {}

void Connection::Authorize(grpc::ClientContext* context) const {
  if (!api_key_.empty()) context->AddMetadata("authorization", absl::StrCat("Bearer ", api_key_));
}

absl::StatusOr<std::unique_ptr<Connection>> Connection::Dial(const ConnectionFlags& flags) {
  ASSIGN_OR_RETURN(std::string api_key, flags.ApiKey());
  ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel, MakeChannel({flags.server, flags.tls}));
  constexpr int kSeconds = 5;
  if (!channel->WaitForConnected(std::chrono::system_clock::now() +
                                 std::chrono::seconds(kSeconds))) {
    return absl::UnavailableError(
        absl::StrCat("nobody answers at ", flags.server, " within ", kSeconds, " s"));
  }
  return std::unique_ptr<Connection>(new Connection(std::move(channel), std::move(api_key)));
}

std::string FailureText(const absl::Status& status) {
  // A server that does not know a method says so by the code alone.
  std::string message =
      ForTerminal(status.message().empty() ? absl::StatusCodeToString(status.code())
                                           : std::string(status.message()));
  std::replace(message.begin(), message.end(), '\n', ' ');
  if (absl::IsUnauthenticated(status)) message += " (--api-key-file FILE, or TANDEM_API_KEY)";
  return message;
}

int Fail(const absl::Status& status) {
  std::cerr << "error: " << FailureText(status) << "\n";
  return 1;
}

std::string ShortFingerprint(const std::string& fingerprint) { return fingerprint.substr(0, 8); }

double Seconds(const google::protobuf::Duration& duration) {
  return static_cast<double>(duration.seconds()) + 1e-9 * duration.nanos();
}

std::string IsoTime(std::time_t time) {
  std::tm utc{};
  gmtime_r(&time, &utc);
  char text[32];
  return std::string(text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc));
}

}  // namespace tandem::cli
