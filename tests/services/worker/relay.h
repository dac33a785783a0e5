// A TCP relay that can fall silent: connections stay open, and nothing passes any more, as when a
// cable is pulled.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

namespace tandem::test {

class Relay final {
 public:
  // target: "127.0.0.1:port". Takes one connection.
  explicit Relay(const std::string& target);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // "127.0.0.1:port"
  const std::string& address() const { return address_; }
  void Freeze() { frozen_ = true; }

 private:
  void Run();

  const int target_port_;
  std::string address_;
  int listener_ = -1;
  int stop_ = -1;
  std::atomic<bool> frozen_ = false;
  std::thread thread_;
};

}  // namespace tandem::test
