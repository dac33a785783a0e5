// A connection to a text tier (or, for health, to any Tandem server), and the flags that name it.
#pragma once

#include <ctime>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include <google/protobuf/duration.pb.h>
#include <grpcpp/channel.h>

#include "absl/status/statusor.h"
#include "services/common/grpc_status.h"
#include "services/common/transport.h"
#include "tandem/v1/generation.grpc.pb.h"

namespace tandem::cli {

struct ConnectionFlags {
  std::string server = "127.0.0.1:7700";
  TlsFiles tls;

  void AddTo(CLI::App& app);
};

class Connection final {
 public:
  // UNAVAILABLE: nobody answers there within 5 s.
  static absl::StatusOr<std::unique_ptr<Connection>> Dial(const ConnectionFlags& flags);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  v1::Generation::Stub& generation() { return *generation_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

 private:
  explicit Connection(std::shared_ptr<grpc::Channel> channel);
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Generation::Stub> generation_;
};

// The one line that says why a command failed, on stderr. Returns its exit status, 1.
int Fail(const absl::Status& status);

// What people are shown of a fingerprint: its first 8 digits.
std::string ShortFingerprint(const std::string& fingerprint);

double Seconds(const google::protobuf::Duration& duration);
// UTC, as "2026-01-31T12:00:00Z".
std::string IsoTime(std::time_t time);

}  // namespace tandem::cli
