// Vocabularies and golden cases under tests/golden/tokenizers, for tests that run from the
// repository root.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/text/tokenizer_data.h"

namespace tandem {

// SmolLM2's byte-level BPE vocabulary, as its GGUF file has it (no chat template).
TokenizerData SmolLm2Data();

// Mistral's third vocabulary: the serialised sentencepiece model and its bos and eos. Nothing is
// added to a text.
TokenizerData MistralData();

// The lines of a file of JSON lines there. Ends the program if the file cannot be read.
std::vector<nlohmann::json> GoldenLines(const std::string& name);

}  // namespace tandem
