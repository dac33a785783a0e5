// The one thread that owns DecodeEngine: commands from the mailbox, steps, events to the
// dispatcher.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/status/status.h"
#include "engine/base/clock.h"
#include "engine/decode_engine.h"
#include "services/worker/dispatcher.h"
#include "services/worker/mailbox.h"

namespace tandem {

class EngineLoop final {
 public:
  // mailbox and dispatcher must outlive this. on_fatal runs in the engine's thread, once, when the
  // device is lost; the loop takes no step afterwards.
  EngineLoop(std::unique_ptr<DecodeEngine> engine, Mailbox& mailbox, Dispatcher& dispatcher,
             std::function<void(const absl::Status&)> on_fatal);
  // Stops the mailbox and waits for the step in progress.
  ~EngineLoop();
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  // No new sessions; those that run are closed with kDraining. True: all of them are, and their
  // events are posted; false: not within `patience`.
  bool Drain(Nanos patience);

 private:
  void Run();
  // Applies everything posted; true if there was anything.
  bool ApplyCommands();
  void Apply(MailboxItem item);
  // One step, if there is work. False: there was none, or the device is lost.
  bool Step();
  // Posts the events there are, and the load where it changed.
  void PostEvents();

  const std::unique_ptr<DecodeEngine> engine_;
  Mailbox& mailbox_;
  Dispatcher& dispatcher_;
  const std::function<void(const absl::Status&)> on_fatal_;
  // Of the engine's thread.
  bool lost_ = false;
  bool draining_ = false;
  EngineLoad posted_load_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool drained_ = false;  // guarded by mutex_

  std::thread thread_;
};

}  // namespace tandem
