// The file of a recorded generation: see proto/tandem/trace/v1/trace.proto for what is in it.
//
// Every record goes to the system at once and whole, so that what a killed process leaves is a
// trace of the records before.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/trace/v1/trace.pb.h"

namespace tandem {

inline constexpr uint32_t kTraceVersion = 1;
inline constexpr std::string_view kTraceMagic = "tandem trace\n";
inline constexpr int64_t kMaxTraceBytes = int64_t{1} << 30;  // of a file that is read

// A record with its length before it.
std::string DelimitedRecord(const trace::v1::Record& record);

// Writes one trace. Not thread-safe; its calls block as long as the disk does.
class TraceFile final {
 public:
  // For the closing record, beyond which a file never grows.
  static constexpr int64_t kRoomForEnd = 256;

  // A new file that its owner alone can read and write (mode 0600). Whatever is there already is
  // an error, be it a link. max_bytes: of the whole file.
  static absl::StatusOr<std::unique_ptr<TraceFile>> Create(const std::string& path,
                                                           int64_t max_bytes);
  // Takes over a descriptor that is open for writing, at its beginning.
  TraceFile(int descriptor, int64_t max_bytes);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Once this has failed the file has ended, where possible with a record that says why; all later
  // calls do nothing. RESOURCE_EXHAUSTED: the file has as many bytes as it may; UNAVAILABLE: a
  // write failed, and what it left of a record is cut away.
  absl::Status Append(const trace::v1::Record& record);
  // The last record; at most 100 bytes of detail are kept.
  void End(trace::v1::End::Reason reason, std::string_view detail);
  bool ended() const { return ended_; }
  int64_t bytes() const { return bytes_; }

 private:
  // All of the bytes or, but for a disk that refuses even this, none. 0, or the error's number.
  int Write(std::string_view bytes);

  const int descriptor_;
  const int64_t max_bytes_;
  int64_t bytes_ = 0;  // whole records, and the magic
  bool ended_ = false;
};

struct Trace {
  trace::v1::Header header;
  std::vector<trace::v1::Record> records;  // behind the header; none is an End
  trace::v1::End end;                      // REASON_UNSPECIFIED: the file was cut off
};

// INVALID_ARGUMENT: it is no trace, of another version, without a whole header, or damaged (the
// offset is named). A file that was cut off at any byte behind its header is none of these.
absl::StatusOr<Trace> ParseTrace(std::string_view bytes);
// NOT_FOUND, RESOURCE_EXHAUSTED beyond kMaxTraceBytes, and those of ParseTrace.
absl::StatusOr<Trace> ReadTrace(const std::string& path);

}  // namespace tandem
