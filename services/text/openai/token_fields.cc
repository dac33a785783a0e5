#include "services/text/openai/token_fields.h"

#include <string>
#include <utility>
#include <vector>

namespace tandem::text {
namespace {

using Tokenize = v1::TokenizeRequest;
using Detokenize = v1::DetokenizeRequest;

constexpr int64_t kMaxTextBytes = 4 << 20;
constexpr char kModel[] =
    "The model's name, as /v1/models lists it. Without it: the only one that is served.";

constexpr Field<Tokenize> kTokenize[] = {
    {"model", kOfTokens, kModel,
     Text<Tokenize>{1024, [](std::string value, Tokenize* r) { r->set_model(std::move(value)); }}},
    {"prompt", kOfTokens, "The text, of up to 4 MiB.",
     Text<Tokenize>{kMaxTextBytes,
                    [](std::string value, Tokenize* r) { r->set_text(std::move(value)); }},
     true},
    {"add_special_tokens", kOfTokens,
     "Whether the tokens begin with the one that the vocabulary asks for. Default true.",
     Boolean<Tokenize>{[](bool value, Tokenize* r) { r->set_add_special(value); }}},
    {"parse_special_tokens", kOfTokens, "Whether the text may spell special tokens. Default false.",
     Boolean<Tokenize>{[](bool value, Tokenize* r) { r->set_parse_special(value); }}},
    {"return_token_strs", kOfTokens, "Unused: the answer always has them.",
     Boolean<Tokenize>{[](bool, Tokenize*) {}}},
};

constexpr Field<Detokenize> kDetokenize[] = {
    {"model", kOfTokens, kModel,
     Text<Detokenize>{1024,
                      [](std::string value, Detokenize* r) { r->set_model(std::move(value)); }}},
    {"tokens", kOfTokens, "Token ids.",
     Ids<Detokenize>{0, kMaxBodyBytes,
                     [](std::vector<int32_t> value, Detokenize* r) {
                       r->mutable_ids()->Assign(value.begin(), value.end());
                     }},
     true},
    {"skip_special_tokens", kOfTokens, "Special tokens have no text. Default false.",
     Boolean<Detokenize>{[](bool value, Detokenize* r) { r->set_include_special(!value); }}},
};

}  // namespace

std::span<const Field<Tokenize>> TokenizeFields() { return kTokenize; }
std::span<const Field<Detokenize>> DetokenizeFields() { return kDetokenize; }

}  // namespace tandem::text
