// A decode worker's mind without a model: rows of logits are a function of the tokens before them,
// everything else (lists, draw, epochs, run-ahead, cuts, fetches, one Closed for each handle) is as
// the protocol has it. And it is strict: a command that a right text tier never sends is noted in
// `errors`.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/sampling/candidates.h"
#include "engine/sampling/parameters.h"
#include "engine/text/tokenizer_data.h"
#include "tandem/decode/v1/decode.pb.h"

namespace tandem::test {

// [vocab_size] logits of the row that decides the token behind these tokens.
using RowFunction = std::function<std::vector<float>(std::span<const int32_t> tokens)>;

// Logits in [-spread, spread] made of a hash of all tokens.
RowFunction HashRows(int32_t vocab_size, float spread = 6.0f);
// As HashRows, but the token that stands at `position` + i gets script[i] whatever came before
// (greedily, and at any moderate temperature); behind the script, the last token of it for ever.
RowFunction ScriptedRows(int32_t vocab_size, int32_t position, std::vector<int32_t> script);

// A small tokenizer: all bytes (id = byte), merges of "hello" and " world", ChatML's control
// tokens, and its chat template.
TokenizerData SmallTokenizer();
inline constexpr int32_t kImStart = 262, kImEnd = 263, kEndOfText = 264, kSmallVocab = 265;
// Rows are longer than the tokenizer, as real ones are.
inline constexpr int32_t kRowSize = 272;

struct ScriptedDecoderOptions {
  RowFunction rows;  // default: HashRows(kRowSize)
  int32_t vocab_size = kRowSize;
  int32_t context_length = 512;
  int32_t max_rewind = 128;
  TokenizerData tokenizer = SmallTokenizer();
  int32_t prefill_chunk = 0;    // > 0: Prefill events after each so many tokens
  int32_t prompt_chunk = 3;     // positions of a PromptLogprobs event
  bool prompt_logprobs = true;  // a feature of it
  int32_t cached_tokens = 0;    // that it says it has found, of each prompt
  // Changes a Candidates message before it is sent.
  std::function<void(decode::v1::Candidates*)> tamper;
  // Opens are refused with this detail.
  std::optional<std::string> refuse;
};

class ScriptedDecoder final {
 public:
  explicit ScriptedDecoder(ScriptedDecoderOptions options);

  decode::v1::Hello Hello() const;
  std::vector<decode::v1::Event> Apply(const decode::v1::Command& command);
  // Ends a handle from this side.
  std::vector<decode::v1::Event> Close(uint64_t handle, decode::v1::CloseReason reason,
                                       const std::string& detail = "");
  // The stream is gone, and its sessions.
  void Reset();

  ScriptedDecoderOptions& options() { return options_; }
  // Prompt and what follows, as held; empty: not live.
  std::vector<int32_t> Held(uint64_t handle) const;
  std::vector<uint64_t> live() const;

  // What a right text tier would not have sent.
  std::vector<std::string> errors;
  int64_t opens = 0;  // handles
  int64_t extends = 0;
  int64_t fetches = 0;
  int64_t closes = 0;
  std::vector<decode::v1::Open> open_commands;

 private:
  struct Sequence {
    SamplingParameters sampling;
    uint32_t choice = 0;
    int32_t prompt_length = 0;
    int32_t limit = 0;  // tokens
    int32_t run_ahead = 0;
    uint32_t epoch = 0;
    std::vector<int32_t> tokens;
    int32_t confirmed = 0;  // of tokens
    int32_t next = 0;       // position whose candidates go out next
  };
  using Events = std::vector<decode::v1::Event>;

  void Open(const decode::v1::Open& command);
  void OpenMore(const decode::v1::OpenMore& command, Events* out);
  void Admit(Events* out);
  // What Open wants to know of its prompt, for its first live handle.
  void SendPromptLogprobs(const decode::v1::Open& open, Events* out);
  void Extend(const decode::v1::Extend& command, Events* out);
  void Fetch(const decode::v1::Fetch& command, Events* out);
  // Sends candidates as far as run-ahead allows.
  void Advance(uint64_t handle, Events* out);
  Candidates ListsAt(const Sequence& sequence, int32_t position, int32_t num_top,
                     int32_t num_perturbed) const;
  std::vector<float> RowAt(const Sequence& sequence, int32_t position) const;
  void End(uint64_t handle, decode::v1::CloseReason reason, const std::string& detail, Events* out);
  Sequence* Live(uint64_t handle, const char* what);

  ScriptedDecoderOptions options_;
  std::vector<uint32_t> defined_bits_;
  std::map<uint64_t, Sequence> sequences_;
  uint64_t last_handle_ = 0;
  std::optional<decode::v1::Open> opening_;  // whose OpenMores are still to come
};

}  // namespace tandem::test
