// Certificates for tests, made on the spot: elliptic-curve keys, valid for an hour, in PEM.
#pragma once

#include <memory>
#include <string>

namespace tandem::test {

class Authority final {
 public:
  // A self-signed authority of this name.
  explicit Authority(const std::string& name);
  ~Authority();
  Authority(const Authority&) = delete;
  Authority& operator=(const Authority&) = delete;

  struct Identity {
    std::string certificate;
    std::string key;
  };
  // Signed by this authority, for the host names "localhost" and 127.0.0.1.
  Identity Issue(const std::string& name) const;
  std::string certificate() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::test
