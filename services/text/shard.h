// One thread that owns its sessions outright. Everything else talks to it through its mailbox,
// which it empties at each wake-up; what its sessions then want of a worker goes out as one batch,
// and what one of them says to its client as one message, where it can be joined.
//
// What lost its worker is opened again from here, at most kOpensPerWakeUp of them at a wake-up, so
// that those that run do not wait for it; Router bounds how many come to one worker.
//
// A request belongs to the shard that its request id hashes to. Keys are the caller's: one for each
// request, never used again.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "engine/base/clock.h"
#include "services/text/event_frame.h"
#include "services/text/recycled.h"
#include "services/text/request.h"
#include "services/text/router.h"
#include "services/text/session.h"
#include "services/text/shard_counts.h"
#include "services/text/trace_recorder.h"

namespace tandem::text {

// Where a request's answer goes. Thread-safe; never blocks.
class ResponseSink {
 public:
  virtual ~ResponseSink() = default;
  // Takes the message's content; what it holds then is of no meaning. It goes out with the next
  // Flush or Finish, or earlier. True: the client reads too slowly. The session is paused, and
  // Shard::Resume is called once the client has caught up.
  virtual bool Write(v1::GenerateResponse* message) = 0;
  // Once for all that a wake-up wrote.
  virtual void Flush() = 0;
  // The last call.
  virtual void Finish(absl::Status status) = 0;
  // The client is gone. Once true it stays so, and Shard::Cancel was or will be called after it
  // became true.
  virtual bool cancelled() const = 0;
};

class Shard final {
 public:
  static constexpr int32_t kOpensPerWakeUp = 64;

  // router and traces must outlive this. traces: null: nothing is recorded. log_requests: a line of
  // the log for each request that ends, and not only for those that fail by no fault of the client.
  Shard(int32_t index, Router* router, const ReplayPolicy& policy = ReplayPolicy(),
        std::function<Nanos()> clock = SteadyNow, TraceRecorder* traces = nullptr,
        bool log_requests = false);
  // Sessions that still run are cancelled.
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  void Submit(uint64_t key, GenerationRequest request, std::shared_ptr<ResponseSink> sink);
  void Cancel(uint64_t key);
  void Resume(uint64_t key);
  // Every session ends with CANCELLED and this status.
  void CancelAll(const absl::Status& status);

  // A frame with events for this shard.
  void OnEvents(uint64_t connection, std::shared_ptr<const EventFrame> frame);
  // Sessions of that connection are opened elsewhere.
  void OnWorkerLost(uint64_t connection, const absl::Status& status);
  // It has finished no step since then, though it has work. If a session here has waited for it all
  // that time, the connection is dropped.
  void OnNoStep(uint64_t connection, Nanos since);

  // As they were after its last wake-up.
  ShardCounts counts() const;

 private:
  struct Submitted {
    uint64_t key;
    std::unique_ptr<Session> session;
    std::shared_ptr<ResponseSink> sink;
  };
  struct Cancelled {
    uint64_t key;
  };
  struct Resumed {
    uint64_t key;
  };
  struct AllCancelled {
    absl::Status status;
  };
  struct Arrived {
    uint64_t connection;
    std::shared_ptr<const EventFrame> frame;
  };
  struct WorkerLost {
    uint64_t connection;
    absl::Status status;
  };
  struct NoStep {
    uint64_t connection;
    Nanos since;
  };
  using Message =
      std::variant<Submitted, Cancelled, Resumed, AllCancelled, Arrived, WorkerLost, NoStep>;

  // One Open of a session, while a choice of it is on that worker.
  struct Placement {
    WorkerRef worker;
    Session::Opening opening;
    uint64_t first_handle = 0;  // 0: its Open is not sent yet
    bool settled = true;        // false: Router waits for its admission
  };
  struct Entry {
    std::unique_ptr<Session> session;
    std::shared_ptr<ResponseSink> sink;
    std::unique_ptr<RequestTrace> trace;  // null: it is not recorded
    std::vector<Placement> placements;
    Nanos timer = kNoDeadline;  // in timers_
    bool paused = false;
    bool written = false;  // in written_
    // What was counted of it.
    bool admitted = false;
    bool has_tokens = false;
  };

  struct Opening {
    uint64_t key;
    Session::Opening opening;
  };
  struct Outgoing {
    WorkerLink* link = nullptr;
    RecycledVector<decode::v1::Command> commands;  // if there are any, its connection is in due_
    std::vector<Opening> openings;                 // one for each Open among commands
  };

  void Post(Message message);
  void Run();
  // Sleeps until there is something to do: mail, or the nearest timer.
  void WaitForMail(std::unique_lock<std::mutex>& lock);

  void Handle(Submitted message);
  void Handle(Cancelled message);
  void Handle(Resumed message);
  void Handle(AllCancelled message);
  void Handle(Arrived message);
  void Handle(WorkerLost message);
  void Handle(NoStep message);
  void FireTimers();
  // The entry may be gone afterwards.
  void Deliver(uint64_t key, Entry& entry, SessionOutput& output);
  // Counts what an input made of a choice.
  void Count(const ChoiceMark& before, int32_t choice, Entry* entry);
  void CountAdmitted(Entry* entry);
  void CountRequest(const GenerationRequest& request, const absl::Status& status);
  void CountEnd(const Entry& entry, const absl::Status& status);
  void LogEnd(const Session& session, const absl::Status& status) const;
  // What goes out, into the entry's trace. REQUIRES it has one.
  void Record(const Entry& entry, const SessionOutput& output) const;
  void Remove(uint64_t key, Entry& entry);
  void SetTimer(uint64_t key, Entry& entry, Nanos timer);
  std::vector<uint64_t> KeysOn(uint64_t connection) const;

  // Finds workers for all that the session wants to open now. The entry may be gone afterwards.
  void PlaceWhatIsDue(uint64_t key, Entry& entry);
  void CountReopening(const Session& session, const Session::Opening& opening,
                      const ServedModel& worker);
  void LogReopening(const Entry& entry, const Placement& placement) const;
  void Settle(Placement& placement);
  // Of placements that no choice is on any more.
  void DropPlacements(Entry& entry);
  void EndPlacement(Placement& placement);
  // Sends what sessions want, and gives handles to those that were opened.
  void Flush();
  void AfterSend(uint64_t connection, WorkerLink* link, const std::vector<Opening>& openings,
                 const std::vector<uint64_t>& first_handles);
  Outgoing& OutgoingTo(uint64_t connection);
  // A command for that worker, to be filled. link: null, where one was given before.
  decode::v1::Command& AddCommand(uint64_t connection, WorkerLink* link);
  // The same for clients: what was written goes out.
  void FlushClients();
  Entry* Find(uint64_t key);

  const int32_t index_;
  Router* const router_;
  const ReplayPolicy policy_;
  const std::function<Nanos()> clock_;
  TraceRecorder* const traces_;
  const bool log_requests_;

  mutable std::mutex mutex_;
  std::condition_variable posted_;
  ShardCounts published_;         // guarded by mutex_
  std::vector<Message> mailbox_;  // guarded by mutex_
  bool stop_ = false;             // guarded by mutex_

  // The thread's own.
  Nanos now_ = 0;
  int32_t opens_left_ = 0;                                         // of this wake-up
  absl::flat_hash_map<uint64_t, std::unique_ptr<Entry>> entries_;  // by key
  absl::flat_hash_map<std::pair<uint64_t, uint64_t>, uint64_t>
      keys_;                                     // (connection, block of handles) -> key
  std::set<std::pair<Nanos, uint64_t>> timers_;  // (when, key): of what is due, the oldest first
  absl::flat_hash_map<uint64_t, std::unique_ptr<Outgoing>> outgoing_;  // by connection
  std::vector<uint64_t> due_;                                          // connections with commands
  std::vector<uint64_t> lost_;                                         // connections that are gone
  // Keys and sinks of what was written to since the last FlushClients.
  std::vector<std::pair<uint64_t, std::shared_ptr<ResponseSink>>> written_;
  std::vector<Message> taken_;  // from the mailbox
  SessionOutput output_;        // of an event
  ShardCounts counts_;
  std::thread thread_;
};

}  // namespace tandem::text
