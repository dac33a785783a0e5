// TANDEM_CHECK(condition) << "values": our own mistakes, kept on in release. Prints and aborts.
#pragma once

#include <cstdlib>
#include <iostream>
#include <sstream>

namespace tandem::base_internal {

class CheckFailure final {
 public:
  CheckFailure(const char* file, int line, const char* condition) {
    stream_ << file << ":" << line << ": CHECK failed: " << condition << " ";
  }
  [[noreturn]] ~CheckFailure() {
    std::cerr << stream_.str() << std::endl;
    std::abort();
  }
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

}  // namespace tandem::base_internal

#define TANDEM_CHECK(condition) \
  if (condition) [[likely]] {   \
  } else                        \
    ::tandem::base_internal::CheckFailure(__FILE__, __LINE__, #condition).stream()
