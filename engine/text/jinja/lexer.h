// Template source -> tokens, by the rules of Jinja2 3.1 with trim_blocks and lstrip_blocks set, as
// chat templates are rendered everywhere:
//   - the newline after a block or comment tag goes, and so do the spaces between the start of the
//     line and such a tag; `+` at that side of the tag keeps them;
//   - `-` at a side of any tag takes all white space there;
//   - one newline at the end of the source goes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/text/jinja/value.h"

namespace tandem::jinja {

struct Token {
  enum class Kind {
    kData,           // text outside of tags
    kVariableBegin,  // {{
    kVariableEnd,
    kBlockBegin,  // {%
    kBlockEnd,
    kName,
    kString,  // value without quotes, escapes resolved
    kInteger,
    kFloat,
    kOperator,  // value is the operator itself
    kEnd,       // of the source
  };
  Kind kind = Kind::kEnd;
  std::string value;
  Int integer = 0;
  double number = 0;
  int line = 0;  // 1-based
};

// INVALID_ARGUMENT with the line for what is not a template. The last token is kEnd.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

// "line 12: message", the form of all errors of a template.
absl::Status SyntaxError(int line, std::string_view message);

}  // namespace tandem::jinja
