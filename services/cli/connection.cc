#include "services/cli/connection.h"

#include <chrono>
#include <utility>

#include "engine/base/status.h"
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

}  // namespace tandem::cli
