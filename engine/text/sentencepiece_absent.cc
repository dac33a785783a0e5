// Stands in for sentencepiece_tokenizer.cc in builds without the library.
#include "engine/base/status.h"
#include "engine/text/sentencepiece_tokenizer.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(TokenizerData /*data*/) {
  return Unimplemented(
      "tokenizer kind sentencepiece: this program was built with TANDEM_SENTENCEPIECE=OFF");
}

}  // namespace tandem
