// A compiled PCRE2 pattern over UTF-8 with Unicode properties, as pre-tokenizers need it.
//
// The Unicode version is that of the PCRE2 library (10.42: Unicode 14). `\s`, `\w` and `\d` mean
// other sets in PCRE2 than in the libraries that tokenizers are defined with: patterns here spell
// out the sets instead.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem {

// Thread-safe.
class Regex final {
 public:
  // Room for the results of one search. Of one thread; for any number of patterns.
  class Scratch final {
   public:
    Scratch();
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

   private:
    friend class Regex;
    struct State;
    std::unique_ptr<State> state_;
  };

  struct Match {
    int64_t begin = 0;
    int64_t end = 0;
  };

  // INVALID_ARGUMENT: a syntax error, with its offset.
  static absl::StatusOr<Regex> Compile(std::string_view pattern);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // Finds the first match in text from offset `from` on; false if there is none.
  // RESOURCE_EXHAUSTED: PCRE2 gave up at one of its limits. REQUIRES text is UTF-8 and from, at
  // most its size, stands between characters.
  absl::StatusOr<bool> Find(std::string_view text, int64_t from, Scratch* scratch,
                            Match* match) const;

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

}  // namespace tandem
