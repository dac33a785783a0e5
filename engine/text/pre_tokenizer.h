// Pre-tokenizers of byte-level BPE: how text is cut into words before merges work inside each word.
//
// A pre-tokenizer is a list of stages. Each stage cuts every part that it is handed at the matches
// of a pattern; matches and what stands between them are both parts. Names are those of the GGUF
// key `tokenizer.ggml.pre`; the definitions are those of the `tokenizer.json` that the models'
// makers published. A name that is not in the table is refused: another pattern in its place would
// give other tokens than the model was trained with.
//
//   name       stages                                   also                             published
//   with gpt-2      GPT-2 pattern openai-community/gpt2 smollm     each number character alone,
//   GPT-2                                        HuggingFaceTB/SmolLM2 llama-bpe  Llama 3 pattern
//   (up to 3 digits a word)  words that are tokens stay whole meta-llama/Meta-Llama-3 qwen2 Qwen 2
//   pattern (1 digit a word)          text is brought to NFC first     Qwen/Qwen2
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/text/regex.h"

namespace tandem {

// Thread-safe.
class PreTokenizer final {
 public:
  // UNIMPLEMENTED: no such name, with the names that there are.
  static absl::StatusOr<PreTokenizer> Make(std::string_view name);

  // Calls word for each word of text in order; joined they are text, and none is empty. Stops at
  // the first error, of word or of pattern matching (RESOURCE_EXHAUSTED), and returns it. REQUIRES
  // text is UTF-8.
  absl::Status Split(std::string_view text, Regex::Scratch* scratch,
                     absl::FunctionRef<absl::Status(std::string_view)> word) const;

  // A word that is in the vocabulary is one token, whatever the merges say.
  bool whole_words_first() const { return whole_words_first_; }
  // Text is put into Unicode normalisation form C before it is split.
  bool normalizes() const { return normalizes_; }

 private:
  PreTokenizer() = default;
  absl::Status SplitStage(size_t stage, std::string_view part, Regex::Scratch* scratch,
                          absl::FunctionRef<absl::Status(std::string_view)> word) const;

  std::vector<Regex> stages_;
  bool whole_words_first_ = false;
  bool normalizes_ = false;
};

}  // namespace tandem
