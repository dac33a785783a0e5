#include "tests/support/scripted_decoder.h"

#include <algorithm>
#include <utility>

#include "engine/sampling/decision.h"
#include "engine/text/byte_alphabet.h"
#include "engine/text/tokenizer_data.h"
#include "kernels/draw/candidates.h"
#include "kernels/draw/order.h"
#include "services/common/decode_codec.h"
#include "services/common/prompt_logprobs_codec.h"

namespace tandem::test {
namespace {

namespace pb = decode::v1;

// splitmix64 (Steele, Lea, Flood 2014).
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

constexpr char kChatMl[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}";

}  // namespace

RowFunction HashRows(int32_t vocab_size, float spread) {
  return [vocab_size, spread](std::span<const int32_t> tokens) {
    uint64_t state = tokens.size();
    for (const int32_t token : tokens) state = Mix(state ^ static_cast<uint64_t>(token));
    std::vector<float> row(vocab_size);
    for (int32_t id = 0; id < vocab_size; ++id) {
      const float unit =
          static_cast<float>(Mix(state + static_cast<uint64_t>(id)) >> 40) * 0x1p-24f;
      row[id] = (2.0f * unit - 1.0f) * spread;
    }
    return row;
  };
}

RowFunction ScriptedRows(int32_t vocab_size, int32_t position, std::vector<int32_t> script) {
  return [position, script, hashed = HashRows(vocab_size, 1.0f)](std::span<const int32_t> tokens) {
    std::vector<float> row = hashed(tokens);
    const size_t at = static_cast<size_t>(static_cast<int32_t>(tokens.size()) - position);
    row[script[std::min(at, script.size() - 1)]] = 40.0f;
    return row;
  };
}

TokenizerData SmallTokenizer() {
  TokenizerData data;
  data.pre_tokenizer = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.push_back(SpellingOfBytes(std::string(1, static_cast<char>(byte))));
  }
  data.merges = {"h e", "l l", "he ll", "hell o", "o r", "Ġ w"};
  for (const char* token : {"he", "ll", "hell", "hello", "or", "Ġw"}) data.tokens.push_back(token);
  data.types.assign(data.tokens.size(), TokenType::kNormal);
  for (const char* token : {"<|im_start|>", "<|im_end|>", "<|endoftext|>"}) {
    data.tokens.push_back(token);
    data.types.push_back(TokenType::kControl);
  }
  data.bos_id = kEndOfText;
  data.eos_id = kImEnd;
  data.end_ids = {kImEnd, kEndOfText};
  data.chat_template = kChatMl;
  return data;
}

ScriptedDecoder::ScriptedDecoder(ScriptedDecoderOptions options) : options_(std::move(options)) {
  if (!options_.rows) options_.rows = HashRows(options_.vocab_size);
  defined_bits_ = DefinedBits(options_.tokenizer, options_.vocab_size);
}

pb::Hello ScriptedDecoder::Hello() const {
  pb::Hello hello;
  hello.set_protocol_major(kProtocolMajor);
  hello.set_protocol_minor(kProtocolMinor);
  hello.set_incarnation("scripted");
  hello.set_model("scripted");
  hello.set_architecture("none");
  hello.set_weights_fingerprint(std::string(32, 'a'));
  hello.set_tokenizer_fingerprint(TokenizerFingerprint(options_.tokenizer));
  hello.set_numerics_fingerprint(std::string(32, 'b'));
  hello.set_vocab_size(options_.vocab_size);
  hello.set_context_length(options_.context_length);
  for (const int32_t id : options_.tokenizer.end_ids) hello.add_end_ids(id);
  hello.set_max_sessions(256);
  hello.set_max_rewind(options_.max_rewind);
  hello.set_max_run_ahead(8);
  hello.set_max_top(64);
  hello.set_max_perturbed(16);
  hello.set_max_raw_top(kernels::kMaxRawTop);
  hello.set_max_report_ids(kernels::kMaxReported);
  hello.set_max_choices(16);
  hello.set_max_salt_bytes(64);
  hello.mutable_max_retain()->set_seconds(600);
  if (options_.prompt_logprobs) hello.add_features(kPromptLogprobsFeature);
  hello.add_features(kRequestIdFeature);
  return hello;
}

std::vector<pb::Event> ScriptedDecoder::Apply(const pb::Command& command) {
  Events out;
  if (opening_.has_value() && !command.has_open_more()) errors.push_back("an Open misses tokens");
  switch (command.command_case()) {
    case pb::Command::kOpen:
      Open(command.open());
      Admit(&out);
      break;
    case pb::Command::kOpenMore:
      OpenMore(command.open_more(), &out);
      break;
    case pb::Command::kExtend:
      Extend(command.extend(), &out);
      break;
    case pb::Command::kFetch:
      Fetch(command.fetch(), &out);
      break;
    case pb::Command::kClose:
      ++closes;
      if (command.close().retain().seconds() > 600)
        errors.push_back("a Close that retains too long");
      if (sequences_.count(command.close().handle()) > 0) {
        End(command.close().handle(), pb::CLOSE_REASON_DONE, "", &out);
      } else if (command.close().handle() > last_handle_) {
        errors.push_back("Close of a handle that was never opened");
      }
      break;
    case pb::Command::COMMAND_NOT_SET:
      errors.push_back("an empty command");
  }
  return out;
}

void ScriptedDecoder::Open(const pb::Open& command) {
  open_commands.push_back(command);
  if (command.first_handle() <= last_handle_) errors.push_back("handles do not rise");
  last_handle_ = command.first_handle() + command.choices() - 1;
  opens += command.choices();
  opening_ = command;
}

void ScriptedDecoder::OpenMore(const pb::OpenMore& command, Events* out) {
  if (!opening_.has_value() || opening_->first_handle() != command.first_handle()) {
    errors.push_back("OpenMore without its Open");
    return;
  }
  opening_->mutable_tokens()->MergeFrom(command.tokens());
  Admit(out);
}

void ScriptedDecoder::Admit(Events* out) {
  if (opening_->tokens_size() < opening_->total_tokens()) return;
  const pb::Open open = *std::exchange(opening_, std::nullopt);
  auto sampling = FromProto(open.draw());
  absl::Status valid = sampling.status();
  if (valid.ok()) valid = Validate(*sampling, options_.vocab_size);
  if (!valid.ok()) errors.push_back("bad Open: " + valid.ToString());
  for (int32_t i = 0; i < open.choices(); ++i) {
    const uint64_t handle = open.first_handle() + i;
    Sequence& sequence = sequences_[handle];
    if (!valid.ok() || options_.refuse.has_value()) {
      End(handle, pb::CLOSE_REASON_REFUSED, options_.refuse.value_or("bad Open"), out);
      continue;
    }
    sequence.sampling = *sampling;
    sequence.choice = open.first_choice() + i;
    sequence.prompt_length = open.prompt_length();
    sequence.limit =
        open.has_max_new() ? open.prompt_length() + open.max_new() : options_.context_length;
    if (sequence.limit > options_.context_length) errors.push_back("an Open past the context");
    sequence.run_ahead = open.run_ahead();
    if (open.run_ahead() > Hello().max_run_ahead()) errors.push_back("an Open runs too far ahead");
    if (open.salt().size() > 64) errors.push_back("an Open with a long salt");
    sequence.tokens = TokensFromProto(open.tokens());
    sequence.confirmed = sequence.next = static_cast<int32_t>(sequence.tokens.size());
    pb::Opened* const opened = out->emplace_back().mutable_opened();
    opened->set_handle(handle);
    opened->set_cached_tokens(options_.cached_tokens);
  }
  if (open.has_prompt_logprobs()) SendPromptLogprobs(open, out);
  for (int32_t i = 0; i < open.choices(); ++i) {
    const uint64_t handle = open.first_handle() + i;
    if (sequences_.count(handle) == 0) continue;
    for (int32_t done = options_.prefill_chunk; done > 0 && done < open.total_tokens();
         done += options_.prefill_chunk) {
      pb::Prefill* prefill = out->emplace_back().mutable_prefill();
      prefill->set_handle(handle);
      prefill->set_done_tokens(done);
      prefill->set_total_tokens(open.total_tokens());
    }
    Advance(handle, out);
  }
}

void ScriptedDecoder::SendPromptLogprobs(const pb::Open& open, Events* out) {
  const int32_t first = open.prompt_logprobs().first_position();
  if (first < 1 || first >= open.prompt_length() || !options_.prompt_logprobs) {
    errors.push_back("an Open wants logprobs of its prompt from " + std::to_string(first) + " on");
  }
  const auto live = sequences_.lower_bound(open.first_handle());
  if (live == sequences_.end()) return;
  SamplingParameters raw_only;
  raw_only.want_raw = true;
  raw_only.num_raw_top = open.prompt_logprobs().num_raw_top();
  raw_only.report_ids = live->second.sampling.report_ids;
  const std::span<const int32_t> prompt =
      std::span(live->second.tokens).first(open.prompt_length());
  for (int32_t begin = first; begin < open.prompt_length(); begin += options_.prompt_chunk) {
    PromptLogprobs part;
    part.position = begin;
    const int32_t end = std::min(begin + options_.prompt_chunk, open.prompt_length());
    for (int32_t position = begin; position < end; ++position) {
      const std::vector<float> row = options_.rows(prompt.first(position));
      const Candidates lists =
          Decider(raw_only, 0, position, prompt.first(position), options_.vocab_size, defined_bits_)
              .CandidatesFromRow(row);
      kernels::RawEntry token{prompt[position], row[prompt[position]], 0};
      for (int32_t id = 0; id < options_.vocab_size; ++id) {
        token.raw_rank += kernels::ComesBefore(row[id], id, token.raw, token.id) ? 1 : 0;
      }
      part.tokens.push_back(token);
      part.num_raw_top = lists.summary.num_raw_top;
      part.num_reported = lists.summary.num_reported;
      part.raw_top.insert(part.raw_top.end(), lists.raw_top.begin(), lists.raw_top.end());
      part.reported.insert(part.reported.end(), lists.reported.begin(), lists.reported.end());
      part.raw_max.push_back(lists.summary.raw_max);
      part.raw_total.push_back(lists.summary.raw_total);
    }
    out->emplace_back().mutable_prompt_logprobs()->set_handle(live->first);
    ToProto(part, out->back().mutable_prompt_logprobs());
  }
}

ScriptedDecoder::Sequence* ScriptedDecoder::Live(uint64_t handle, const char* what) {
  const auto found = sequences_.find(handle);
  if (found != sequences_.end()) return &found->second;
  if (handle > last_handle_ || handle == 0) {
    errors.push_back(std::string(what) + " of a handle that was never opened");
  }
  return nullptr;
}

void ScriptedDecoder::Extend(const pb::Extend& command, Events* out) {
  ++extends;
  Sequence* sequence = Live(command.handle(), "Extend");
  if (sequence == nullptr) return;
  const std::vector<int32_t> given = TokensFromProto(command.tokens());
  const int32_t held = static_cast<int32_t>(sequence->tokens.size());
  const int32_t position = command.position();
  if (position < sequence->prompt_length || position > held) {
    errors.push_back("Extend at a position beyond what is held");
    return End(command.handle(), pb::CLOSE_REASON_REFUSED, "position", out);
  }
  size_t same = 0;
  while (same < given.size() && position + static_cast<int32_t>(same) < held &&
         sequence->tokens[position + same] == given[same]) {
    ++same;
  }
  const bool cuts =
      given.empty() || (same < given.size() && position + static_cast<int32_t>(same) < held);
  // A right text tier names no token whose draw it has not received.
  if (command.epoch() != sequence->epoch + (cuts ? 1 : 0)) {
    errors.push_back("Extend of epoch " + std::to_string(command.epoch()) + " in epoch " +
                     std::to_string(sequence->epoch));
    return End(command.handle(), pb::CLOSE_REASON_REFUSED, "epoch", out);
  }
  if (same < given.size()) {
    sequence->tokens.resize(position + same);
    sequence->tokens.insert(sequence->tokens.end(), given.begin() + same, given.end());
  }
  const int32_t end = position + static_cast<int32_t>(given.size());
  sequence->confirmed = cuts ? end : std::max(sequence->confirmed, end);
  if (cuts) {
    sequence->epoch = command.epoch();
    sequence->tokens.resize(end);
    sequence->next = end;
  }
  Advance(command.handle(), out);
}

void ScriptedDecoder::Advance(uint64_t handle, Events* out) {
  while (true) {
    Sequence& sequence = sequences_.at(handle);
    const int32_t held = static_cast<int32_t>(sequence.tokens.size());
    if (sequence.next > held || sequence.next >= sequence.limit ||
        sequence.next - sequence.confirmed > sequence.run_ahead) {
      return;
    }
    const int32_t position = sequence.next++;
    const Candidates lists =
        ListsAt(sequence, position, sequence.sampling.num_top, sequence.sampling.num_perturbed);
    if (lists.summary.first_nonfinite >= 0) {
      return End(handle, pb::CLOSE_REASON_NON_FINITE,
                 "id " + std::to_string(lists.summary.first_nonfinite), out);
    }
    pb::Candidates* message = out->emplace_back().mutable_candidates();
    message->set_handle(handle);
    message->set_position(position);
    message->set_epoch(sequence.epoch);
    ToProto(lists, message->mutable_lists());
    if (lists.summary.drawn >= 0) message->set_drawn(lists.summary.drawn);
    if (options_.tamper) options_.tamper(message);
    // What was drawn is the worker's own choice, also where the message was changed.
    if (message->has_drawn() && position == held) sequence.tokens.push_back(message->drawn());
  }
}

std::vector<float> ScriptedDecoder::RowAt(const Sequence& sequence, int32_t position) const {
  return options_.rows(std::span(sequence.tokens).first(position));
}

Candidates ScriptedDecoder::ListsAt(const Sequence& sequence, int32_t position, int32_t num_top,
                                    int32_t num_perturbed) const {
  SamplingParameters sampling = sequence.sampling;
  sampling.num_top = num_top;
  sampling.num_perturbed = num_perturbed;
  const Decider decider(sampling, sequence.choice, sequence.prompt_length,
                        std::span(sequence.tokens).first(position), options_.vocab_size,
                        defined_bits_);
  const std::vector<float> row = RowAt(sequence, position);
  Candidates lists = decider.CandidatesFromRow(row);
  if (lists.summary.first_nonfinite >= 0) return lists;
  const Decision decision = decider.DecideFromCandidates(lists);
  lists.summary.drawn = decision.kind == Decision::Kind::kToken ? decision.token : -1;
  return lists;
}

void ScriptedDecoder::Fetch(const pb::Fetch& command, Events* out) {
  ++fetches;
  Sequence* sequence = Live(command.handle(), "Fetch");
  if (sequence == nullptr) return;
  if (command.position() > static_cast<int32_t>(sequence->tokens.size()) ||
      command.position() < sequence->prompt_length) {
    errors.push_back("Fetch at a position beyond what is held");
    return End(command.handle(), pb::CLOSE_REASON_REFUSED, "position", out);
  }
  if (command.has_more()) {
    const pb::Hello limits = Hello();
    if (command.more().num_top() > limits.max_top() || command.more().num_top() < 1 ||
        command.more().num_perturbed() > limits.max_perturbed() ||
        command.more().num_perturbed() < 1) {
      errors.push_back("Fetch beyond the limits");
    }
    pb::Fetched* fetched = out->emplace_back().mutable_fetched();
    fetched->set_handle(command.handle());
    fetched->set_position(command.position());
    ToProto(ListsAt(*sequence, command.position(), command.more().num_top(),
                    command.more().num_perturbed()),
            fetched->mutable_more());
    return;
  }
  const std::vector<float> row = RowAt(*sequence, command.position());
  constexpr int32_t kChunk = 100;
  for (int32_t offset = 0; offset < options_.vocab_size; offset += kChunk) {
    pb::Fetched* fetched = out->emplace_back().mutable_fetched();
    fetched->set_handle(command.handle());
    fetched->set_position(command.position());
    pb::Fetched::Values* values = fetched->mutable_values();
    values->set_row(true);
    values->set_offset(offset);
    values->set_total(options_.vocab_size);
    const int32_t end = std::min(offset + kChunk, options_.vocab_size);
    values->mutable_values()->Add(row.begin() + offset, row.begin() + end);
  }
}

void ScriptedDecoder::End(uint64_t handle, pb::CloseReason reason, const std::string& detail,
                          Events* out) {
  sequences_.erase(handle);
  pb::Closed* closed = out->emplace_back().mutable_closed();
  closed->set_handle(handle);
  closed->set_reason(reason);
  closed->set_detail(detail);
}

std::vector<pb::Event> ScriptedDecoder::Close(uint64_t handle, pb::CloseReason reason,
                                              const std::string& detail) {
  Events out;
  End(handle, reason, detail, &out);
  return out;
}

void ScriptedDecoder::Reset() {
  sequences_.clear();
  opening_.reset();
  last_handle_ = 0;
}

std::vector<int32_t> ScriptedDecoder::Held(uint64_t handle) const {
  const auto found = sequences_.find(handle);
  return found == sequences_.end() ? std::vector<int32_t>() : found->second.tokens;
}

std::vector<uint64_t> ScriptedDecoder::live() const {
  std::vector<uint64_t> out;
  for (const auto& [handle, sequence] : sequences_) out.push_back(handle);
  return out;
}

}  // namespace tandem::test
