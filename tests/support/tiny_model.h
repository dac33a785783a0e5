// A seeded random model of the llama architecture, small enough to run anywhere, as a GGUF file
// with everything that a whole system needs: norms that are not all ones, weights whose logits
// spread (greedy output wanders), a byte-level BPE tokenizer and a ChatML chat template. The same
// options give the same bytes on every machine.
//
// The vocabulary: 0 "<|endoftext|>", 1 "<|im_start|>", 2 "<|im_end|>" (control tokens; bos 1, eos
// 2, no bos added), then the 256 bytes in order, then one token per merge; vocab_size is
// TinyVocabSize(). Pre-tokenizer "smollm". Output rows of tokens that are not printable ASCII are
// smaller, so that most of what is generated can be read.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/tensor.h"
#include "tests/support/gguf_writer.h"

namespace tandem::test {

struct TinyModelOptions {
  uint64_t seed = 1;
  int32_t num_layers = 2;
  int32_t hidden_size =
      64;  // sizes that are columns of a matrix must be whole blocks of matrix_dtype
  int32_t ffn_size = 96;
  int32_t num_heads = 4;
  int32_t num_kv_heads = 2;
  int32_t head_dim = 64;
  int32_t context_length = 512;
  float norm_epsilon = 1e-5f;
  float rope_base = 10000.0f;
  kernels::DType matrix_dtype = kernels::DType::kF32;
  kernels::DType embedding_dtype = kernels::DType::kF32;  // of the embedding and the output matrix
  bool tied_output = false;
};

int32_t TinyVocabSize();

// The file, to be changed before it is built.
GgufWriter TinyModelWriter(const TinyModelOptions& options);

inline std::string TinyModel(const TinyModelOptions& options) {
  return TinyModelWriter(options).Build();
}

}  // namespace tandem::test
