#include "engine/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "engine/base/status.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer; regular files ignore it.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  struct stat info = {};
  if (fstat(file, &info) != 0) {
    const int error = errno;
    close(file);
    return absl::ErrnoToStatus(error, absl::StrCat("cannot read the size of ", path));
  }
  if (!S_ISREG(info.st_mode)) {
    close(file);
    return InvalidArgument(path, " is not a regular file");
  }
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) {
    close(file);
    return std::unique_ptr<MappedFile>(new MappedFile({}));
  }
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  const int error = errno;
  close(file);
  if (data == MAP_FAILED) {
    return Internal("cannot map ", path, " (", size, " bytes): error ", error);
  }
  return std::unique_ptr<MappedFile>(new MappedFile({static_cast<const uint8_t*>(data), size}));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

}  // namespace tandem
