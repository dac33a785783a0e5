// KERNELS_REQUIRE: a precondition of an operation. A violation is a mistake in the caller's program, never bad input: it
// prints the place, the condition and the values, and aborts, in release builds too.
#pragma once

#include <cstdio>
#include <cstdlib>

#define KERNELS_REQUIRE(condition, ...)                                                       \
  do {                                                                                        \
    if (!(condition)) [[unlikely]] {                                                          \
      std::fprintf(stderr, "%s:%d: REQUIRES %s: ", __FILE__, __LINE__, #condition);           \
      std::fprintf(stderr, __VA_ARGS__);                                                      \
      std::fputc('\n', stderr);                                                               \
      std::abort();                                                                           \
    }                                                                                         \
  } while (false)
