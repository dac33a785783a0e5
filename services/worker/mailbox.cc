#include "services/worker/mailbox.h"

#include <chrono>
#include <utility>

namespace tandem {

void Mailbox::Post(MailboxItem item) {
  {
    std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
  }
  posted_.notify_one();
}

void Mailbox::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  posted_.notify_one();
}

std::vector<MailboxItem> Mailbox::TakeAll() {
  std::lock_guard lock(mutex_);
  return std::exchange(items_, {});
}

void Mailbox::Wait(Nanos patience) {
  std::unique_lock lock(mutex_);
  posted_.wait_for(lock, std::chrono::nanoseconds(patience),
                   [this] { return stopped_ || !items_.empty(); });
}

bool Mailbox::stopped() const {
  std::lock_guard lock(mutex_);
  return stopped_;
}

}  // namespace tandem
