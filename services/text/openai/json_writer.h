// JSON written straight into a string, for what is written once a token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::text {

// Below it a log probability is no number that a client could use; OpenAI gives it for tokens that
// are very unlikely.
inline constexpr float kMinLogprob = -9999.0f;

// Without the quotes. What is not UTF-8 becomes U+FFFD, so that the JSON is valid whatever the text
// is; control characters are escaped.
void AppendJsonEscaped(std::string_view text, std::string* out);
// With the quotes.
void AppendJsonString(std::string_view text, std::string* out);

void AppendInteger(int64_t value, std::string* out);
// The shortest decimal that is this float again; kMinLogprob for one that is less or not finite.
void AppendLogprob(float logprob, std::string* out);
// The shortest decimal that is this float again; 0 for one that is not in [0, 1].
void AppendProbability(float probability, std::string* out);
// Milliseconds with three digits behind the point. REQUIRES nanos >= 0.
void AppendMilliseconds(int64_t nanos, std::string* out);

}  // namespace tandem::text
