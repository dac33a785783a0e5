// A place in a GGUF header. Every read is compared with what is left before it happens.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "absl/status/statusor.h"
#include "engine/base/checked_size.h"
#include "engine/base/status.h"
#include "engine/checkpoint/gguf.h"

namespace tandem {

const char* Name(GgufType type);
// Bytes of one element; 0 for strings and arrays, whose elements differ in size.
int64_t ElementBytes(GgufType type);

class GgufCursor final {
 public:
  explicit GgufCursor(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  int64_t position() const { return position_; }
  int64_t remaining() const { return static_cast<int64_t>(bytes_.size()) - position_; }
  // REQUIRES begin: an earlier copy of this cursor.
  std::span<const uint8_t> Since(const GgufCursor& begin) const {
    return bytes_.subspan(static_cast<size_t>(begin.position_),
                          static_cast<size_t>(position_ - begin.position_));
  }

  // INVALID_ARGUMENT: the file ends first; `what` names what was to be read.
  absl::StatusOr<std::span<const uint8_t>> ReadBytes(CheckedSize size, const char* what) {
    if (!size.Fits(remaining())) {
      return InvalidArgument("the file ends inside the ", what, " at byte ", position_, ": ",
                             remaining(), " bytes are left");
    }
    const auto out =
        bytes_.subspan(static_cast<size_t>(position_), static_cast<size_t>(size.value()));
    position_ += size.value();
    return out;
  }

  template <typename T>
  absl::StatusOr<T> Read(const char* what) {
    static_assert(std::is_trivially_copyable_v<T>);
    ASSIGN_OR_RETURN(const std::span<const uint8_t> bytes, ReadBytes(sizeof(T), what));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

  // Also INVALID_ARGUMENT where it is longer than max_bytes.
  absl::StatusOr<std::string_view> ReadString(const char* what, int64_t max_bytes) {
    ASSIGN_OR_RETURN(const uint64_t length, Read<uint64_t>(what));
    if (!CheckedSize(length).Fits(max_bytes)) {
      return InvalidArgument("the ", what, " at byte ", position_, " has ", length,
                             " bytes, at most ", max_bytes, " are read");
    }
    ASSIGN_OR_RETURN(const std::span<const uint8_t> bytes, ReadBytes(length, what));
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  absl::StatusOr<GgufType> ReadType() {
    ASSIGN_OR_RETURN(const uint32_t type, Read<uint32_t>("value type"));
    if (type > static_cast<uint32_t>(GgufType::kFloat64)) {
      return InvalidArgument("value type ", type, " does not exist");
    }
    return static_cast<GgufType>(type);
  }

 private:
  std::span<const uint8_t> bytes_;
  int64_t position_ = 0;
};

}  // namespace tandem
