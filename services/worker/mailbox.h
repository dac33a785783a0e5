// What gRPC's threads say to the engine thread, in order.
//
// Thread-safe; one thread takes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

#include "engine/base/clock.h"
#include "engine/decode_engine.h"
#include "services/worker/read_window.h"

namespace tandem {

using EngineCommand = std::variant<OpenCommand, ExtendCommand, FetchCommand, CloseCommand>;

// The commands of one frame, and what to give back once they are applied.
struct CommandFrame {
  std::vector<EngineCommand> commands;
  int64_t bytes = 0;
  std::shared_ptr<ReadWindow> window;  // null: nothing
};
struct StreamEnded {
  int64_t stream = 0;
};
struct DrainRequested {};
using MailboxItem = std::variant<CommandFrame, StreamEnded, DrainRequested>;

class Mailbox final {
 public:
  Mailbox() = default;
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  void Post(MailboxItem item);
  // From now on Wait does not wait, and stopped() is true.
  void Stop();

  // Everything posted since the last call, oldest first.
  std::vector<MailboxItem> TakeAll();
  // Returns when there is something to take, when stopped, or after `patience`.
  void Wait(Nanos patience);
  bool stopped() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable posted_;
  // Guarded by mutex_.
  std::vector<MailboxItem> items_;
  bool stopped_ = false;
};

}  // namespace tandem
