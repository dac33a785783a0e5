#include "services/cli/connection.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <utility>

#include "engine/base/status.h"
#include "services/cli/terminal.h"
#include "services/common/channel.h"
#include "services/common/flags.h"

namespace tandem::cli {

void ConnectionFlags::AddTo(CLI::App& app) {
  app.add_option("--server", server, "host:port of the text tier")
      ->envname("TANDEM_SERVER")
      ->capture_default_str();
  AddTlsFlags(app, &tls);
}

Connection::Connection(std::shared_ptr<grpc::Channel> channel)
    : channel_(std::move(channel)), generation_(v1::Generation::NewStub(channel_)) {}

absl::StatusOr<std::unique_ptr<Connection>> Connection::Dial(const ConnectionFlags& flags) {
  ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel, MakeChannel({flags.server, flags.tls}));
  constexpr int kSeconds = 5;
  if (!channel->WaitForConnected(std::chrono::system_clock::now() +
                                 std::chrono::seconds(kSeconds))) {
    return absl::UnavailableError(
        absl::StrCat("nobody answers at ", flags.server, " within ", kSeconds, " s"));
  }
  return std::unique_ptr<Connection>(new Connection(std::move(channel)));
}

int Fail(const absl::Status& status) {
  // A server that does not know a method says so by the code alone.
  std::string message =
      ForTerminal(status.message().empty() ? absl::StatusCodeToString(status.code())
                                           : std::string(status.message()));
  std::replace(message.begin(), message.end(), '\n', ' ');
  std::cerr << "error: " << message << "\n";
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
