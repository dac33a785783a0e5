// A connection to a text tier (or, for health, to any Tandem server), and the flags that name it.
#pragma once

#include <ctime>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include <google/protobuf/duration.pb.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include "absl/status/statusor.h"
#include "services/common/grpc_status.h"
#include "services/common/transport.h"
#include "tandem/v1/generation.grpc.pb.h"

namespace tandem::cli {

struct ConnectionFlags {
  std::string server = "127.0.0.1:7700";
  TlsFiles tls;
  std::string file_key;  // of --api-key-file; empty: there is none

  void AddTo(CLI::App& app);
  // What the server is shown: the file's key, else that of TANDEM_API_KEY, else nothing.
  // INVALID_ARGUMENT: the variable holds no key.
  absl::StatusOr<std::string> ApiKey() const;
};

// For a check of an option: empty where it is host:port, or another gRPC target; else what is
// wrong.
std::string CheckAddress(const std::string& address);

// The first key of a file that has one a line. INVALID_ARGUMENT names the file: it cannot be read,
// or holds none.
absl::StatusOr<std::string> ReadApiKey(const std::string& path);

class Connection final {
 public:
  // UNAVAILABLE: nobody answers there within 5 s. INVALID_ARGUMENT: see ApiKey; others: TLS files.
  static absl::StatusOr<std::unique_ptr<Connection>> Dial(const ConnectionFlags& flags);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  v1::Generation::Stub& generation() { return *generation_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  // Shows the key, if there is one. For each call, before it starts.
  void Authorize(grpc::ClientContext* context) const;

 private:
  Connection(std::shared_ptr<grpc::Channel> channel, std::string api_key);
  const std::shared_ptr<grpc::Channel> channel_;
  const std::string api_key_;
  std::unique_ptr<v1::Generation::Stub> generation_;
};

// What a person is told of a failure, in one line: what the server says, and the flag that a key is
// missing from.
std::string FailureText(const absl::Status& status);
// "error: " and that, on stderr. Returns a command's exit status, 1.
int Fail(const absl::Status& status);

// What people are shown of a fingerprint: its first 8 digits.
std::string ShortFingerprint(const std::string& fingerprint);

double Seconds(const google::protobuf::Duration& duration);
// UTC, as "2026-01-31T12:00:00Z".
std::string IsoTime(std::time_t time);

}  // namespace tandem::cli
