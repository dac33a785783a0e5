#include "services/text/client_call.h"

#include "engine/base/check.h"

namespace tandem::text {

void ClientCall::Finish(absl::Status status) {
  TANDEM_CHECK(!end_.has_value()) << "a call is finished once";
  end_ = std::move(status);
}

}  // namespace tandem::text
