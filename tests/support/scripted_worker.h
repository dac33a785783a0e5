// A decode worker as a server: ScriptedDecoder behind the real protocol, for tests of whole text
// tiers. It can fall silent, drop its streams, be killed and come back on the same port.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "services/common/server.h"
#include "tandem/decode/v1/decode.grpc.pb.h"
#include "tests/support/scripted_decoder.h"

namespace tandem::test {

struct ScriptedWorkerOptions {
  // Each stream has a decoder of its own, made from these.
  ScriptedDecoderOptions decoder;
  // Events of one command wait so long; 0: they go at once.
  std::chrono::milliseconds step_time{0};
  std::chrono::milliseconds heartbeat{100};
  // What its frames say of it, beside the sessions that run.
  decode::v1::Load load;
  // Changes the Hello, or what stands for it.
  std::function<void(decode::v1::Hello*)> tamper_hello;
  // Changes the tokenizer's bytes.
  std::function<void(std::string*)> tamper_tokenizer;
};

class ScriptedWorker final {
 public:
  explicit ScriptedWorker(ScriptedWorkerOptions options);
  ~ScriptedWorker();

  // 127.0.0.1:port, the same after Start again. REQUIRES not running.
  void Start();
  // Ends every stream at once, as a killed process does.
  void Kill();
  const std::string& address() const { return address_; }

  // While silent nothing is sent, not even a heartbeat, and nothing is read.
  void SetSilent(bool silent) { silent_ = silent; }
  // Ends every stream with UNAVAILABLE; the server stays.
  void DropStreams();
  // Closes every session with DRAINING; the streams stay.
  void Drain();
  // What the next streams are like; those that run stay as they are.
  void SetOptions(ScriptedWorkerOptions options);
  // An event out of order, on every stream.
  void Inject(const decode::v1::Event& event);

  struct Totals {
    int64_t opens = 0;
    int64_t extends = 0;
    int64_t closes = 0;
    int64_t frames = 0;  // received
    int64_t max_frame_bytes = 0;
    int64_t live = 0;        // sessions
    int64_t streams = 0;     // so far
    int64_t tokenizers = 0;  // fetched
    std::vector<std::string> errors;
  };
  // Over all streams.
  Totals totals() const;

 private:
  class Stream;
  class Service;

  void Beat();
  void Absorb(const ScriptedDecoder& decoder);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  ScriptedWorkerOptions options_;
  std::set<Stream*> streams_;
  Totals ended_;  // of streams that are gone
  bool stop_ = false;

  std::atomic<bool> silent_{false};
  std::string address_ = "127.0.0.1:0";
  std::unique_ptr<Service> service_;
  std::unique_ptr<RpcServer> server_;
  std::thread beat_;
};

}  // namespace tandem::test
