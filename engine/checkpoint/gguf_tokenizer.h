// The tokenizer in a GGUF file's tokenizer.* keys.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/checkpoint/gguf.h"
#include "engine/text/tokenizer_data.h"

namespace tandem {

// Vocabularies "gpt2" (byte-level BPE with merges) and "llama" (sentencepiece BPE; its ModelProto
// is written anew). Where keys are missing, llama.cpp's defaults hold, because converters leave out
// what equals them; a missing pre-tokenizer is refused.
//
// end_ids: the end-of-text, end-of-turn and end-of-message ids that keys name, and control tokens
// that chat formats end a turn or text with ("<|im_end|>", "<|eot_id|>", ...), ascending.
// added_tokens: control, unknown (both special) and user-defined tokens.
//
// INVALID_ARGUMENT: keys contradict each other or vocab_size; UNIMPLEMENTED: another kind of
// vocabulary, by name.
absl::StatusOr<TokenizerData> ReadTokenizer(const GgufFile& file, int32_t vocab_size);

}  // namespace tandem
