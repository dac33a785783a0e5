// A file mapped read-only into memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace tandem {

// The bytes stay valid while the object lives. A file that another process shortens meanwhile ends
// this process with SIGBUS, as with every mapping: model files are replaced, not edited.
class MappedFile final {
 public:
  // NOT_FOUND: no such file; PERMISSION_DENIED; INVALID_ARGUMENT: not a regular file; INTERNAL:
  // anything else the system says. An empty file gives an empty span.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const uint8_t> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  std::span<const uint8_t> bytes_;
};

}  // namespace tandem
