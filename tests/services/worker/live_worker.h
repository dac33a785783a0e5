// A whole worker in the test's process, on loopback, with a tiny model.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "grpc/health/v1/health.grpc.pb.h"
#include "services/worker/worker.h"
#include "tests/services/worker/breakable_ops.h"
#include "tests/support/process.h"
#include "tests/support/tiny_model.h"

namespace tandem::test {

class LiveWorker final {
 public:
  struct Options {
    EngineOptions engine = {.max_sessions = 8, .step_tokens = 64, .drain_spread = 0};
    Keepalive keepalive;
    bool checked = false;
    int32_t nan_token = -1;     // its embedding is NaN
    std::string chat_template;  // empty: the tiny model's own
    bool load = true;           // else the test calls Load
  };
  explicit LiveWorker(const Options& options);
  LiveWorker() : LiveWorker(Options()) {}
  // Drains.
  ~LiveWorker();
  LiveWorker(const LiveWorker&) = delete;
  LiveWorker& operator=(const LiveWorker&) = delete;

  // Loads, and serves if that succeeds.
  absl::Status Load();
  void RequestDrain() { worker_->RequestDrain(); }
  // Waits until Run has returned, and says what it returned.
  absl::Status WaitForEnd();

  const std::string& address() const { return worker_->address(); }
  std::string metrics_text() const { return worker_->MetricsText(); }
  const decode::v1::Hello& hello() const { return worker_->hello(); }
  OpsSwitches& switches() { return *switches_; }
  grpc::health::v1::HealthCheckResponse::ServingStatus health() const;
  // What a DecodeEngine without any service draws, greedily.
  std::vector<int32_t> GenerateWithoutService(const std::vector<int32_t>& prompt,
                                              int32_t num_tokens) const;
  const TokenizerData& tokenizer() const { return tokenizer_; }

 private:
  std::unique_ptr<Checkpoint> OpenModel() const;

  const Options options_;
  const TemporaryFolder folder_;
  const std::shared_ptr<OpsSwitches> switches_ = std::make_shared<OpsSwitches>();
  TokenizerData tokenizer_;
  std::unique_ptr<Worker> worker_;
  absl::Status ended_;
  std::thread runner_;
};

}  // namespace tandem::test
