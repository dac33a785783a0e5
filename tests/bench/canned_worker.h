// A decode worker without a model that costs next to nothing, for benches of the text tier: it
// answers at once, from lists that it computed once.
//
// Rows are a function of the position alone, and all sessions are one request: its parameters, seed
// and prompt give the lists of every position. Beyond that it keeps to the protocol: positions come
// in order, no more of them than may run ahead, and each handle is closed once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/text/tokenizer_data.h"
#include "services/common/server.h"
#include "tandem/decode/v1/decode.grpc.pb.h"

namespace tandem::test {

// A vocabulary as large as a real one: bytes, some control tokens, and words of six bytes.
inline constexpr int32_t kCannedVocab = 49152;
TokenizerData CannedTokenizer();

decode::v1::Hello CannedHello(int32_t max_run_ahead);

// The Candidates of the positions [open.total_tokens, + count), without their handle, in epoch 0,
// for the whole Open. Milliseconds each.
std::vector<decode::v1::Candidates> CannedCandidates(const decode::v1::Open& open, int32_t count);

// Serves Decode and GetTokenizer.
class CannedWorker final {
 public:
  // Sessions may have at most max_new output tokens, of which max_run_ahead are not confirmed.
  CannedWorker(int32_t max_new, int32_t max_run_ahead);
  ~CannedWorker();
  CannedWorker(const CannedWorker&) = delete;
  CannedWorker& operator=(const CannedWorker&) = delete;

  int port() const { return server_->port(); }

 private:
  class Service;
  std::unique_ptr<Service> service_;
  std::unique_ptr<RpcServer> server_;
};

}  // namespace tandem::test
