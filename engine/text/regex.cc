#include "engine/text/regex.h"

#include <utility>

#include "engine/base/check.h"
#include "engine/base/status.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace tandem {
namespace {

std::string ErrorText(int code) {
  PCRE2_UCHAR buffer[256];
  const int length = pcre2_get_error_message(code, buffer, sizeof(buffer));
  return length < 0 ? "unknown error" : std::string(reinterpret_cast<const char*>(buffer), length);
}

}  // namespace

struct Regex::Scratch::State {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  ~State() { pcre2_match_data_free(data); }
};

Regex::Scratch::Scratch() : state_(std::make_unique<State>()) {
  TANDEM_CHECK(state_->data != nullptr) << "out of memory";
}
Regex::Scratch::~Scratch() = default;

struct Regex::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

absl::StatusOr<Regex> Regex::Compile(std::string_view pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_unique<Code>();
  code->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code->code == nullptr) {
    return InvalidArgument("pattern ", std::string(pattern), ": ", ErrorText(error), " at offset ",
                           offset);
  }
  // Without just-in-time compilation (PCRE2 built without it, memory that may not be executable)
  // the interpreter does the same.
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);
  return Regex(std::move(code));
}

absl::StatusOr<bool> Regex::Find(std::string_view text, int64_t from, Scratch* scratch,
                                 Match* match) const {
  TANDEM_CHECK(from >= 0 && from <= static_cast<int64_t>(text.size()))
      << from << " of " << text.size();
  // The caller's text is UTF-8; PCRE2 would check all of it again at each call.
  const int result = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()),
                                 text.size(), static_cast<PCRE2_SIZE>(from), PCRE2_NO_UTF_CHECK,
                                 scratch->state_->data, nullptr);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0) return ResourceExhausted("pattern matching: ", ErrorText(result));
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(scratch->state_->data);
  match->begin = static_cast<int64_t>(bounds[0]);
  match->end = static_cast<int64_t>(bounds[1]);
  return true;
}

}  // namespace tandem
