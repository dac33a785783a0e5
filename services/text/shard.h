// One thread that owns its sessions outright. Everything else talks to it through its mailbox,
// which it empties at each wake-up; what its sessions then want of a worker goes out as one batch.
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
#include "services/text/request.h"
#include "services/text/router.h"
#include "services/text/session.h"

namespace tandem::text {

// Where a request's answer goes. Thread-safe; never blocks.
class ResponseSink {
 public:
  virtual ~ResponseSink() = default;
  // True: the client reads too slowly. The session is paused, and Shard::Resume is called once the
  // client has caught up.
  virtual bool Write(v1::GenerateResponse message) = 0;
  // The last call.
  virtual void Finish(absl::Status status) = 0;
  // The client is gone. Once true it stays so, and Shard::Cancel was or will be called after it
  // became true.
  virtual bool cancelled() const = 0;
};

class Shard final {
 public:
  // router must outlive this.
  Shard(int32_t index, Router* router, std::function<Nanos()> clock = SteadyNow);
  // Sessions that still run are cancelled.
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  void Submit(uint64_t key, GenerationRequest request, std::shared_ptr<ResponseSink> sink);
  void Cancel(uint64_t key);
  void Resume(uint64_t key);
  // Every session ends with CANCELLED and this status.
  void CancelAll(const absl::Status& status);

  // Events for handles of this shard, in the order they came.
  void OnEvents(uint64_t connection, std::vector<decode::v1::Event> events);
  // Sessions of that connection end with this status.
  void OnWorkerLost(uint64_t connection, const absl::Status& status);

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
    std::vector<decode::v1::Event> events;
  };
  struct WorkerLost {
    uint64_t connection;
    absl::Status status;
  };
  using Message = std::variant<Submitted, Cancelled, Resumed, AllCancelled, Arrived, WorkerLost>;

  struct Entry {
    std::unique_ptr<Session> session;
    std::shared_ptr<ResponseSink> sink;
    WorkerRef worker;
    uint64_t first_handle = 0;  // 0: its Open is not sent yet
    bool paused = false;
  };

  struct Opening {
    uint64_t key;
    int32_t choices;
  };
  struct Outgoing {
    WorkerLink* link = nullptr;
    std::vector<decode::v1::Command> commands;
    std::vector<Opening> openings;  // one for each Open among commands
  };

  void Post(Message message);
  void Run();
  // Sleeps until there is something to do: mail, or the nearest deadline.
  void WaitForMail(std::unique_lock<std::mutex>& lock);

  void Handle(Submitted message);
  void Handle(Cancelled message);
  void Handle(Resumed message);
  void Handle(AllCancelled message);
  void Handle(Arrived message);
  void Handle(WorkerLost message);
  void FireDeadlines();
  void Deliver(uint64_t key, Entry& entry, SessionOutput output);
  void Remove(uint64_t key, Entry& entry);
  // Sends what sessions want, and gives handles to those that were opened.
  void Flush();
  void AfterSend(uint64_t connection, const Outgoing& sent,
                 const std::vector<uint64_t>& first_handles);
  Entry* Find(uint64_t key);

  const int32_t index_;
  Router* const router_;
  const std::function<Nanos()> clock_;

  std::mutex mutex_;
  std::condition_variable posted_;
  std::vector<Message> mailbox_;  // guarded by mutex_
  bool stop_ = false;             // guarded by mutex_

  // The thread's own.
  Nanos now_ = 0;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Entry>> entries_;  // by key
  absl::flat_hash_map<std::pair<uint64_t, uint64_t>, uint64_t>
      keys_;                                          // (connection, block of handles) -> key
  std::set<std::pair<Nanos, uint64_t>> deadlines_;    // (deadline, key)
  absl::flat_hash_map<uint64_t, Outgoing> outgoing_;  // by connection
  std::thread thread_;
};

}  // namespace tandem::text
