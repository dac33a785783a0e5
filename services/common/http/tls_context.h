// TLS for servers that are no gRPC's: OpenSSL's contexts from files that may be renewed.
#pragma once

#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include <boost/asio/ssl/context.hpp>

#include "absl/status/statusor.h"
#include "services/common/tls_files.h"

namespace tandem {

// Thread-safe.
class TlsContext final {
 public:
  // INVALID_ARGUMENT: the files do not fit each other; NOT_FOUND: one cannot be read, or is no PEM.
  // flag: errors name the flags flag-tls-cert, flag-tls-key and flag-tls-ca.
  static absl::StatusOr<std::unique_ptr<TlsContext>> Load(const TlsFiles& files,
                                                          const std::string& flag);

  // For a new connection: of the files as they are now, looked at at most once a second. Files that
  // do not load leave the last ones that did.
  std::shared_ptr<boost::asio::ssl::context> Get();

 private:
  using Stamp = std::array<std::filesystem::file_time_type, 3>;
  TlsContext(const TlsFiles& files, const std::string& flag);
  Stamp StampOfFiles() const;
  absl::StatusOr<std::shared_ptr<boost::asio::ssl::context>> Make() const;

  const TlsFiles files_;
  const std::string flag_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::shared_ptr<boost::asio::ssl::context> context_;
  Stamp stamp_;
  std::chrono::steady_clock::time_point looked_at_;
};

}  // namespace tandem
