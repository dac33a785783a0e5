// The backends that the shared operation tests run over. A new backend is one line in backends.cc.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "kernels/reference/reference_ops.h"

namespace tandem::kernels {

struct Backend {
  std::string name;
  // The reference that results are compared with, and how far they may differ from it, relative to
  // the largest value of a result.
  ActDType oracle = ActDType::kF32;
  double tolerance = 0.0;
  std::function<std::unique_ptr<Ops>()> make;
};

// Those that this machine can run, without the reference that is the oracle of all.
std::vector<Backend> Backends();
// The same, and the reference: for tests that compare a backend with itself.
std::vector<Backend> BackendsAndReference();

inline std::ostream& operator<<(std::ostream& out, const Backend& backend) {
  return out << backend.name;
}
inline std::string BackendName(const testing::TestParamInfo<Backend>& info) {
  return info.param.name;
}

}  // namespace tandem::kernels
