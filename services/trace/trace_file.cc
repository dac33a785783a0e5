#include "services/trace/trace_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/status.h"

namespace tandem {
namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

constexpr size_t kMaxDetail = 100;

}  // namespace

std::string DelimitedRecord(const trace::v1::Record& record) {
  const std::string body = record.SerializeAsString();
  uint8_t length[10];
  uint8_t* const end = CodedOutputStream::WriteVarint64ToArray(body.size(), length);
  return std::string(reinterpret_cast<const char*>(length), static_cast<size_t>(end - length)) +
         body;
}

absl::StatusOr<std::unique_ptr<TraceFile>> TraceFile::Create(const std::string& path,
                                                             int64_t max_bytes) {
  const int descriptor =
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    return absl::UnavailableError(absl::StrCat("cannot create ", path, ": ", std::strerror(errno)));
  }
  return std::make_unique<TraceFile>(descriptor, max_bytes);
}

TraceFile::TraceFile(int descriptor, int64_t max_bytes)
    : descriptor_(descriptor), max_bytes_(max_bytes) {}

TraceFile::~TraceFile() { close(descriptor_); }

int TraceFile::Write(std::string_view bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written = write(descriptor_, bytes.data() + done, bytes.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      // If this fails too, the file ends with half a record, which readers know.
      if (ftruncate(descriptor_, bytes_) == 0) lseek(descriptor_, bytes_, SEEK_SET);
      return error;
    }
    done += static_cast<size_t>(written);
  }
  bytes_ += static_cast<int64_t>(bytes.size());
  return 0;
}

absl::Status TraceFile::Append(const trace::v1::Record& record) {
  if (ended_) return absl::OkStatus();
  std::string bytes = DelimitedRecord(record);
  if (bytes_ == 0) bytes.insert(0, kTraceMagic);
  if (bytes_ + static_cast<int64_t>(bytes.size()) + kRoomForEnd > max_bytes_) {
    End(trace::v1::End::REASON_BYTES, absl::StrCat("the limit is ", max_bytes_, " bytes"));
    return ResourceExhausted("the trace would have more than ", max_bytes_, " bytes");
  }
  const int error = Write(bytes);
  if (error == 0) return absl::OkStatus();
  const std::string why = std::strerror(error);
  End(trace::v1::End::REASON_DISK, why);
  return absl::UnavailableError(why);
}

void TraceFile::End(trace::v1::End::Reason reason, std::string_view detail) {
  if (ended_) return;
  ended_ = true;
  trace::v1::Record record;
  record.mutable_end()->set_reason(reason);
  record.mutable_end()->set_detail(std::string(detail.substr(0, kMaxDetail)));
  // Without it the file reads as cut off, which is true.
  if (bytes_ > 0) Write(DelimitedRecord(record));
}

absl::StatusOr<Trace> ParseTrace(std::string_view bytes) {
  if (bytes.substr(0, kTraceMagic.size()) != kTraceMagic.substr(0, bytes.size())) {
    return InvalidArgument("it is no trace");
  }
  Trace out;
  bool has_header = false;
  size_t at = std::min(kTraceMagic.size(), bytes.size());
  while (at < bytes.size() && out.end.reason() == trace::v1::End::REASON_UNSPECIFIED) {
    const auto* data = reinterpret_cast<const uint8_t*>(bytes.data()) + at;
    const size_t left = bytes.size() - at;
    CodedInputStream in(data, static_cast<int>(std::min<size_t>(left, 10)));
    uint64_t length = 0;
    if (!in.ReadVarint64(&length)) {
      if (left < 10) break;  // cut off within a length
      return InvalidArgument("it is damaged at byte ", at);
    }
    const size_t begin = static_cast<size_t>(in.CurrentPosition());
    if (length > left - begin) break;  // cut off within a record
    trace::v1::Record record;
    if (!record.ParseFromArray(data + begin, static_cast<int>(length)) ||
        record.has_header() == has_header) {
      return InvalidArgument("it is damaged at byte ", at);
    }
    at += begin + length;
    if (record.has_header()) {
      if (record.header().version() != kTraceVersion) {
        return InvalidArgument("it has version ", record.header().version(),
                               ": this program reads ", kTraceVersion);
      }
      has_header = true;
      out.header = std::move(*record.mutable_header());
    } else if (record.has_end()) {
      out.end = std::move(*record.mutable_end());
    } else {
      out.records.push_back(std::move(record));
    }
  }
  if (!has_header) return InvalidArgument("it is cut off before the end of its header");
  return out;
}

absl::StatusOr<Trace> ReadTrace(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) return NotFound("cannot read ", path, ": ", error.message());
  if (size > static_cast<uint64_t>(kMaxTraceBytes)) {
    return ResourceExhausted(path, " has ", size, " bytes: at most ", kMaxTraceBytes);
  }
  std::ifstream file(path, std::ios::binary);
  std::string bytes(static_cast<size_t>(size), '\0');
  if (!file.read(bytes.data(), static_cast<std::streamsize>(size))) {
    return NotFound("cannot read ", path);
  }
  absl::StatusOr<Trace> trace = ParseTrace(bytes);
  if (trace.ok()) return trace;
  return InvalidArgument(path, ": ", trace.status().message());
}

}  // namespace tandem
