#include "services/worker/hello.h"

#include <cstdint>
#include <random>

#include "engine/base/hash.h"
#include "engine/text/tokenizer_data.h"
#include "services/common/decode_codec.h"

namespace tandem {
namespace {

// 32 hex digits from the system's source of randomness.
std::string NewIncarnation() {
  std::random_device source;
  Fingerprinter digits;
  for (int i = 0; i < 8; ++i) digits.Add(static_cast<int64_t>(source()));
  return digits.Hex();
}

}  // namespace

decode::v1::Hello MakeHello(const HelloParts& parts) {
  decode::v1::Hello hello;
  hello.set_protocol_major(kProtocolMajor);
  hello.set_protocol_minor(kProtocolMinor);
  hello.set_incarnation(NewIncarnation());
  hello.set_model(parts.model_name);
  hello.set_architecture(parts.config.architecture);
  hello.set_weights_fingerprint(parts.weights_fingerprint);
  hello.set_tokenizer_fingerprint(TokenizerFingerprint(parts.tokenizer));
  hello.set_numerics_fingerprint(
      Fingerprinter().Add(parts.backend.numerics).Add(kernels::Name(parts.engine.kv_format)).Hex());
  hello.set_device(parts.backend.device);
  hello.set_vocab_size(parts.config.vocab_size);
  hello.set_context_length(parts.context_length);
  for (int32_t id : parts.tokenizer.end_ids) hello.add_end_ids(id);
  hello.set_page_tokens(kernels::kPageTokens);
  hello.set_total_pages(parts.total_pages);
  hello.set_max_sessions(parts.engine.max_sessions);
  hello.set_max_rewind(parts.engine.max_rewind);
  hello.set_max_run_ahead(parts.engine.max_run_ahead);
  hello.set_max_top(kernels::kMaxTop);
  hello.set_max_perturbed(kernels::kMaxPerturbed);
  hello.set_max_raw_top(kernels::kMaxRawTop);
  hello.set_max_report_ids(kernels::kMaxReported);
  hello.set_max_choices(parts.engine.max_choices);
  hello.set_max_salt_bytes(kMaxSalt);
  ToProto(parts.engine.max_retain, hello.mutable_max_retain());
  if (parts.engine.max_drafts > 0) hello.add_features(kDraftsFeature);
  hello.add_features(kPromptLogprobsFeature);
  hello.add_features(kRequestIdFeature);
  hello.set_max_drafts(parts.engine.max_drafts);
  return hello;
}

}  // namespace tandem
