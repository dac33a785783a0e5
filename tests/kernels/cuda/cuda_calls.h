// Counts the calls that this program makes to the CUDA runtime and to cuBLASLt, in a test program
// that links test_cuda_calls: the linker puts a counting function before each (--wrap). What
// cuBLASLt does inside its own calls is not seen; where no call of it is counted, there is nothing
// to see.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::test {

enum class CudaCallKind : uint8_t {
  kEnqueues,      // returns at once; the device works later
  kAsks,          // returns at once with an answer; nothing is enqueued
  kAllocates,     // takes or gives back memory of the device, or pinned memory
  kSynchronises,  // returns when the device has done something
  kLibrary,       // cuBLASLt
};
const char* CudaCallKindName(CudaCallKind kind);

struct CudaCall {
  std::string name;
  CudaCallKind kind = CudaCallKind::kEnqueues;
  int64_t count = 0;
};

// Calls by all threads since the program started; always the same names in the same order.
std::vector<CudaCall> CudaCalls();

}  // namespace tandem::test
