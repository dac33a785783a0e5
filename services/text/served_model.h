// A model as the text tier serves it: what a worker's Hello says, and the text side of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "tandem/decode/v1/decode.pb.h"

namespace tandem::text {

// What a tokenizer fingerprint stands for. Shared by all workers that have it. Thread-safe.
struct ModelText {
  std::string fingerprint;
  std::unique_ptr<const Tokenizer> tokenizer;
  // Null: the model has none, or one outside of the supported subset; the status then says which.
  std::unique_ptr<const ChatTemplate> chat_template;
  absl::Status chat_template_status;
};

// INVALID_ARGUMENT, UNIMPLEMENTED: MakeTokenizer's. A chat template that cannot be read is no error
// here: prompts and token ids can still be served.
absl::StatusOr<std::shared_ptr<const ModelText>> MakeModelText(std::string fingerprint,
                                                               TokenizerData data);

// Most sizes that a worker takes.
struct WorkerLimits {
  int32_t max_top = 0;
  int32_t max_perturbed = 0;
  int32_t max_raw_top = 0;
  int32_t max_report_ids = 0;
  int32_t max_choices = 0;
  int32_t max_run_ahead = 0;
  int32_t max_drafts = 0;
  int32_t max_salt_bytes = 0;
  Nanos max_retain = 0;          // of a Close
  bool prompt_logprobs = false;  // it gives them
  bool request_id = false;       // it takes one
};

struct ServedModel {
  std::string name;
  std::string architecture;
  std::string weights_fingerprint;
  std::string tokenizer_fingerprint;
  std::string numerics_fingerprint;
  int32_t vocab_size = 0;      // of the logits row: at least the tokenizer's
  int32_t context_length = 0;  // tokens, prompt and output together
  std::vector<int32_t> end_ids;
  WorkerLimits limits;
  std::shared_ptr<const ModelText> text;
  std::vector<uint32_t> defined_bits;  // [ceil(vocab_size / 32)]

  const Tokenizer& tokenizer() const { return *text->tokenizer; }
  // Weights and numerics: equal means that equal tokens give equal bits.
  std::string WorkerFingerprint() const;
  // A session of one can be opened on a worker of the other.
  bool SameModel(const ServedModel& other) const;
};

// FAILED_PRECONDITION: another protocol major; INVALID_ARGUMENT: numbers that contradict
// themselves. Does not look at the tokenizer, so that a Hello can be refused before anything is
// fetched.
absl::Status CheckHello(const decode::v1::Hello& hello);

// REQUIRES CheckHello passed. FAILED_PRECONDITION: the tokenizer is not the one that Hello names,
// or does not fit its sizes.
absl::StatusOr<std::shared_ptr<const ServedModel>> MakeServedModel(
    const decode::v1::Hello& hello, std::shared_ptr<const ModelText> text);

}  // namespace tandem::text
