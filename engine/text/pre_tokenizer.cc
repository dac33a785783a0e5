#include "engine/text/pre_tokenizer.h"

#include <utility>

#include "engine/base/status.h"

namespace tandem {
namespace {

// The published patterns say \s and mean Unicode's White_Space. PCRE2's \s has U+180E too.
#define WHITE_SPACE                                                                               \
  "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{" \
  "205F}\\x{3000}"
#define SPACES "[" WHITE_SPACE "]"
// "Spaces, but not the last one where something else follows": that one goes with the next word.
#define SPACES_BUT_LAST SPACES "+(?![^" WHITE_SPACE "])|" SPACES "+"

constexpr char kNumberCharacter[] = "\\p{N}";
constexpr char kGpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WHITE_SPACE
                         "\\p{L}\\p{N}]+|" SPACES_BUT_LAST;
constexpr char kLlama3[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^" WHITE_SPACE
    "\\p{L}\\p{N}]+[\\r\\n]*|" SPACES "*[\\r\\n]+|" SPACES_BUT_LAST;
constexpr char kQwen2[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" WHITE_SPACE
    "\\p{L}\\p{N}]+[\\r\\n]*|" SPACES "*[\\r\\n]+|" SPACES_BUT_LAST;

#undef SPACES_BUT_LAST
#undef SPACES
#undef WHITE_SPACE

struct Definition {
  std::string_view name;
  std::string_view stages[2];  // an empty one ends the list
  bool whole_words_first = false;
  bool normalizes = false;
};

constexpr Definition kDefinitions[] = {
    {.name = "gpt-2", .stages = {kGpt2}},
    {.name = "smollm", .stages = {kNumberCharacter, kGpt2}},
    {.name = "llama-bpe", .stages = {kLlama3}, .whole_words_first = true},
    {.name = "qwen2", .stages = {kQwen2}, .normalizes = true},
};

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::Make(std::string_view name) {
  std::string known;
  for (const Definition& definition : kDefinitions) {
    if (definition.name == name) {
      PreTokenizer out;
      for (const std::string_view pattern : definition.stages) {
        if (pattern.empty()) break;
        ASSIGN_OR_RETURN(Regex stage, Regex::Compile(pattern));
        out.stages_.push_back(std::move(stage));
      }
      out.whole_words_first_ = definition.whole_words_first;
      out.normalizes_ = definition.normalizes;
      return out;
    }
    if (!known.empty()) known += ", ";
    known += definition.name;
  }
  return Unimplemented("pre-tokenizer \"", std::string(name), "\" is not implemented; there are ",
                       known);
}

absl::Status PreTokenizer::Split(std::string_view text, Regex::Scratch* scratch,
                                 absl::FunctionRef<absl::Status(std::string_view)> word) const {
  return SplitStage(0, text, scratch, word);
}

absl::Status PreTokenizer::SplitStage(
    size_t stage, std::string_view part, Regex::Scratch* scratch,
    absl::FunctionRef<absl::Status(std::string_view)> word) const {
  if (part.empty()) return absl::OkStatus();
  if (stage == stages_.size()) return word(part);
  // A later stage sees this part alone, as if nothing stood before or behind it: its look-ahead
  // ends with the part.
  const int64_t size = static_cast<int64_t>(part.size());
  int64_t done = 0;
  while (done < size) {
    Regex::Match match;
    ASSIGN_OR_RETURN(const bool found, stages_[stage].Find(part, done, scratch, &match));
    if (!found) match = {size, size};
    RETURN_IF_ERROR(SplitStage(stage + 1, part.substr(done, match.begin - done), scratch, word));
    RETURN_IF_ERROR(
        SplitStage(stage + 1, part.substr(match.begin, match.end - match.begin), scratch, word));
    done = match.end;
  }
  return absl::OkStatus();
}

}  // namespace tandem
