// The one thread that owns DecodeEngine: commands from the mailbox, steps, events to the
// dispatcher.
//
// Steps in flight. A backend that computes in Launch gets one: it is collected at once, since a
// second would only keep the first one's sessions waiting. An asynchronous backend gets two: while
// it works on one, this thread collects the other, applies what came meanwhile and launches the
// next. With nothing to launch, what is in flight is collected.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/status/status.h"
#include "engine/base/clock.h"
#include "engine/decode_engine.h"
#include "services/worker/dispatcher.h"
#include "services/worker/mailbox.h"
#include "services/worker/session_ends.h"
#include "services/worker/worker_counts.h"

namespace tandem {

class EngineLoop final {
 public:
  // asynchronous: of the engine's backend. mailbox, dispatcher and ends, which is told how sessions
  // end, must outlive this. on_fatal runs in the engine's thread, once, when the device is lost;
  // the loop takes no step afterwards.
  EngineLoop(std::unique_ptr<DecodeEngine> engine, bool asynchronous, Mailbox& mailbox,
             Dispatcher& dispatcher, SessionEnds& ends,
             std::function<void(const absl::Status&)> on_fatal);
  // Stops the mailbox and waits for the steps in flight.
  ~EngineLoop();
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  // No new sessions; those that live are closed with kDraining, in the engine's own time, or end as
  // ever, and steps go on until none lives. True: none does, and their events are posted; false:
  // not within `patience`.
  bool Drain(Nanos patience);

  // As they were after the last step, or the last commands.
  WorkerCounts counts() const;

 private:
  void Run();
  // Applies everything posted; true if there was anything.
  bool ApplyCommands();
  void Apply(MailboxItem item);
  // Launches a step if there is work, and collects one where that is due. False: neither, or the
  // device is lost.
  bool Step();
  // The oldest step in flight. False: there was none, or the device is lost.
  bool Collect();
  // Adds the time since the phase before it ended to the phase that ends now.
  void EndPhase(EnginePhase phase);
  void CountEvents(const std::vector<EngineEvent>& events);
  // Posts the events there are, and the load where it changed.
  void PostEvents();
  void PublishCounts();

  const std::unique_ptr<DecodeEngine> engine_;
  const int32_t max_in_flight_;  // steps
  Mailbox& mailbox_;
  Dispatcher& dispatcher_;
  SessionEnds& ends_;
  const std::function<void(const absl::Status&)> on_fatal_;
  // Of the engine's thread.
  bool lost_ = false;
  bool draining_ = false;
  int32_t in_flight_ = 0;
  EngineLoad posted_load_;
  WorkerCounts counts_;
  Nanos phase_began_ = 0;
  Nanos busy_since_ = 0;  // when the first of the steps in flight was launched

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool drained_ = false;    // guarded by mutex_
  WorkerCounts published_;  // guarded by mutex_

  std::thread thread_;
};

}  // namespace tandem
