// Both tiers as real processes on free loopback ports, and a client.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "tandem/decode/v1/decode.pb.h"
#include "tandem/v1/generation.grpc.pb.h"
#include "tests/support/process.h"

namespace tandem::test {

// One finished call.
struct CallResult {
  grpc::Status status;
  v1::Started started;
  std::vector<std::string> texts;               // by choice
  std::vector<std::vector<int32_t>> token_ids;  // by choice, where asked for
  std::vector<v1::Finished> finished;           // in the order they came
};

class Fleet final {
 public:
  struct Options {
    std::string model;  // path of a .gguf, or random:NAME
    std::vector<std::string> worker_flags;
    std::vector<std::string> text_flags;
    int workers = 1;
    double patience_seconds = 120;  // for loading, at most
  };
  // Starts all and waits until all serve.
  explicit Fleet(Options options);
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  // Workers are numbered from 0; where no number is given it is the first.
  void KillWorker(int worker = 0);
  // Starts the worker again on the same port and waits until all serve.
  void RestartWorker(int worker = 0);
  // The same, without the wait.
  void StartWorkerAgain(int worker);
  bool WaitServing(double timeout_seconds);

  v1::Generation::Stub& stub() { return *stub_; }
  const std::string& text_address() const { return text_address_; }
  const std::string& http_address() const { return http_address_; }
  const std::string& worker_address(int worker = 0) const { return worker_addresses_[worker]; }
  Process& worker(int worker = 0) { return *workers_[worker]; }
  Process& text() { return *text_; }

  CallResult Generate(const v1::GenerateRequest& request);
  // What the worker says of itself; nothing if it does not answer.
  std::optional<decode::v1::Load> WorkerLoad(int worker = 0);
  // Sessions that run or wait on the worker; -1 if it does not answer.
  int WorkerSessions();
  // Waits until the worker has no session. A Close is on its way when the client has its last
  // message, and the worker applies it within a step; the bound is generous.
  bool WorkerIsFreeSoon();

 private:
  std::unique_ptr<Process> StartWorker(int worker, const std::string& listen);
  std::string PortFile(int worker) const;
  const Options options_;
  const TemporaryFolder folder_;
  std::vector<std::unique_ptr<Process>> workers_;
  std::unique_ptr<Process> text_;
  std::vector<std::string> worker_addresses_;
  std::string text_address_;
  std::string http_address_;
  std::unique_ptr<v1::Generation::Stub> stub_;
};

// Paths of the programs under test, beside this one, and of the default model (nothing where
// TANDEM_TEST_MODEL is unset).
std::string ProgramPath(const std::string& name);
std::optional<std::string> DefaultModel();
// An interpreter that has tests/python/requirements.txt (nothing where TANDEM_TEST_PYTHON is unset).
std::optional<std::string> TestPython();

// SERVING by grpc.health.v1 within the time-out.
bool IsServing(const std::string& address, double timeout_seconds);

}  // namespace tandem::test
