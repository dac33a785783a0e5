// Counts what operator new is asked for, in a test program that links it. For tests of bounds on
// memory.
#pragma once

#include <cstdint>

namespace tandem::test {

// Bytes asked of operator new by all threads since the program started. Never falls: the difference
// of two readings bounds what was alive at once between them.
int64_t AllocatedBytes();
// Bytes, rounded up as malloc does, that operator new gave out and that were not deleted yet.
int64_t LiveBytes();

}  // namespace tandem::test
