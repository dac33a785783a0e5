// Engine types <-> messages of tandem.decode.v1.
//
// From a message: what a peer sent is not trusted. Every function checks what the types cannot say
// (parallel arrays of equal length, list sizes within the hard limits, ids within the vocabulary,
// finite numbers) and answers INVALID_ARGUMENT with the field, the value and the limit. What needs
// the history of a session (order of the lists, edits, weights, noise) is the Decider's to check,
// and the ranges of sampling parameters are Validate's.
//
// To a message: the caller's data is right; nothing fails.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/decode_engine.h"
#include "engine/sampling/candidates.h"
#include "engine/sampling/parameters.h"
#include "engine/text/tokenizer_data.h"
#include "tandem/decode/v1/decode.pb.h"

namespace tandem {

// The largest legal frame of a Decode or GetTokenizer stream, and the receive limit of both sides:
// one byte more ends the stream with RESOURCE_EXHAUSTED.
inline constexpr int32_t kMaxFrameBytes = 256 << 10;

inline constexpr uint32_t kProtocolMajor = 1;
inline constexpr uint32_t kProtocolMinor = 3;
inline constexpr uint32_t kTokenizerDataVersion = 1;
// Of Hello.
inline constexpr char kDraftsFeature[] = "drafts";
inline constexpr char kPromptLogprobsFeature[] = "prompt_logprobs";
inline constexpr char kRequestIdFeature[] = "request_id";

// Token ids travel as fixed32. An id above INT32_MAX becomes INT32_MAX, which no vocabulary holds.
std::vector<int32_t> TokensFromProto(const google::protobuf::RepeatedField<uint32_t>& tokens);
void TokensToProto(std::span<const int32_t> tokens, google::protobuf::RepeatedField<uint32_t>* out);

// Lists without `drawn`, which is the Candidates message's own field and comes out as -1. The raw
// part is written iff summary.raw_total is not 0 (where it was computed it is at least 2^40);
// without it raw ranks read as -1. REQUIRES candidates.summary.first_nonfinite < 0: such a row has
// no lists.
void ToProto(const Candidates& candidates, decode::v1::Lists* out);
absl::StatusOr<Candidates> FromProto(const decode::v1::Lists& lists, int32_t vocab_size);

// With `drawn`. Position and epoch are left to the caller.
absl::StatusOr<Candidates> FromProto(const decode::v1::Candidates& message, int32_t vocab_size);

// The same, into *out, whatever it holds; it allocates nothing where *out has room. After an error
// *out is of no meaning.
absl::Status FromProto(const decode::v1::Lists& lists, int32_t vocab_size, Candidates* out);
absl::Status FromProto(const decode::v1::Candidates& message, int32_t vocab_size, Candidates* out);

// FromProto checks the parallel arrays; ranges are Validate's.
void ToProto(const SamplingParameters& parameters, decode::v1::DrawParameters* out);
absl::StatusOr<SamplingParameters> FromProto(const decode::v1::DrawParameters& message);

// UNIMPLEMENTED: another version or a kind that this build does not know.
void ToProto(const TokenizerData& data, decode::v1::TokenizerData* out);
absl::StatusOr<TokenizerData> FromProto(const decode::v1::TokenizerData& message);

// Whole nanoseconds; not negative.
void ToProto(Nanos nanos, google::protobuf::Duration* out);
// seconds and nanos added up, whatever their signs; what no Nanos can hold is the nearest that can.
Nanos FromProto(const google::protobuf::Duration& duration);

// A reason that this build does not know (from a newer peer) reads as kFault.
decode::v1::CloseReason ToProto(ClosedEvent::Reason reason);
ClosedEvent::Reason FromProto(decode::v1::CloseReason reason);

void ToProto(const EngineLoad& load, decode::v1::Load* out);

// Ids that the tokenizer defines, one bit each, [ceil(vocab_size / 32)]: those with a spelling
// whose type is not kUnused. Both tiers take this set, since the row that is drawn from has no
// other ids. All ids, where the data lists no tokens.
std::vector<uint32_t> DefinedBits(const TokenizerData& data, int32_t vocab_size);

}  // namespace tandem
