#include "tests/support/tiny_model.h"

#include <array>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/quantize.h"

namespace tandem::test {
namespace {

constexpr char kChatTemplate[] =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

constexpr int32_t kNumControl = 3;
constexpr int32_t kNumBytes = 256;

// In the byte alphabet: U+0120 stands for a space.
constexpr std::array<std::pair<std::string_view, std::string_view>, 24> kMerges = {{
    {"t", "h"},        {"i", "n"},  {"e", "r"},      {"a", "n"},      {"r", "e"},      {"o", "n"},
    {"\u0120", "th"},  {"e", "s"},  {"\u0120", "a"}, {"o", "r"},      {"e", "n"},      {"i", "t"},
    {"\u0120th", "e"}, {"an", "d"}, {"in", "g"},     {"\u0120", "s"}, {"\u0120", "w"}, {"o", "u"},
    {"\u0120", "and"}, {"h", "e"},  {"l", "l"},      {"\u0120", "o"}, {"a", "t"},      {"i", "s"},
}};

void AppendUtf8(uint32_t code_point, std::string& out) {
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
  } else {
    out.push_back(static_cast<char>(0xC0 | code_point >> 6));
    out.push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
  }
}

// GPT-2's byte alphabet: bytes that print stand for themselves, the others are U+0100 on, in order.
std::vector<std::string> ByteSpellings() {
  std::vector<std::string> spellings;
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < kNumBytes; ++byte) {
    const bool prints =
        (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    spellings.emplace_back();
    AppendUtf8(prints ? byte : next++, spellings.back());
  }
  return spellings;
}

void AddTokenizer(GgufWriter& writer) {
  std::vector<std::string> tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  std::vector<int32_t> types(kNumControl, 3);
  for (std::string& spelling : ByteSpellings()) tokens.push_back(std::move(spelling));
  std::vector<std::string> merges;
  for (const auto& [left, right] : kMerges) {
    merges.push_back(std::string(left) + " " + std::string(right));
    tokens.push_back(std::string(left) + std::string(right));
  }
  types.resize(tokens.size(), 1);
  writer.Text("tokenizer.ggml.model", "gpt2")
      .Text("tokenizer.ggml.pre", "smollm")
      .TextArray("tokenizer.ggml.tokens", tokens)
      .Int32Array("tokenizer.ggml.token_type", types)
      .TextArray("tokenizer.ggml.merges", merges)
      .Uint32("tokenizer.ggml.bos_token_id", 1)
      .Uint32("tokenizer.ggml.eos_token_id", 2)
      .Uint32("tokenizer.ggml.unknown_token_id", 0)
      .Bool("tokenizer.ggml.add_bos_token", false)
      .Text("tokenizer.chat_template", kChatTemplate);
}

// SplitMix64 (Steele, Lea, Flood 2014); a sum of 12 uniform numbers stands in for a normal one,
// with the same bits everywhere.
class Random final {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  float Normal() {
    float sum = -6.0f;
    for (int i = 0; i < 12; ++i) sum += static_cast<float>(Next() >> 40) * 0x1p-24f;
    return sum;
  }

 private:
  uint64_t Next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

class WeightMaker final {
 public:
  WeightMaker(const TinyModelOptions& options, GgufWriter& writer)
      : options_(options), writer_(writer), random_(options.seed) {}

  void Norm(const std::string& name) {
    std::vector<float> values(static_cast<size_t>(options_.hidden_size));
    for (float& value : values) value = 1.0f + 0.3f * random_.Normal();
    writer_.Tensor(name, kernels::DType::kF32, {values.size()},
                   Quantize(values, kernels::DType::kF32));
  }

  // gain 1 keeps the mean square of what it multiplies.
  void Matrix(const std::string& name, int32_t rows, int32_t cols, float gain) {
    Add(name, Values(rows, cols, gain / std::sqrt(static_cast<float>(cols))), rows, cols,
        options_.matrix_dtype);
  }

  // One row per token.
  void Table(const std::string& name, float scale, float scale_unreadable) {
    const int32_t rows = TinyVocabSize();
    const int32_t cols = options_.hidden_size;
    std::vector<float> values = Values(rows, cols, scale);
    for (int32_t id = kNumControl; id < kNumControl + kNumBytes; ++id) {
      const int32_t byte = id - kNumControl;
      const bool readable = (byte >= 0x20 && byte <= 0x7E) || byte == '\n';
      if (readable) continue;
      for (int32_t i = 0; i < cols; ++i) {
        values[static_cast<size_t>(id) * static_cast<size_t>(cols) + static_cast<size_t>(i)] *=
            scale_unreadable / scale;
      }
    }
    Add(name, values, rows, cols, options_.embedding_dtype);
  }

 private:
  std::vector<float> Values(int32_t rows, int32_t cols, float scale) {
    std::vector<float> values(static_cast<size_t>(rows) * static_cast<size_t>(cols));
    for (float& value : values) value = scale * random_.Normal();
    return values;
  }
  void Add(const std::string& name, const std::vector<float>& values, int32_t rows, int32_t cols,
           kernels::DType dtype) {
    writer_.Tensor(name, dtype, {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)},
                   Quantize(values, dtype));
  }

  const TinyModelOptions& options_;
  GgufWriter& writer_;
  Random random_;
};

}  // namespace

int32_t TinyVocabSize() { return kNumControl + kNumBytes + static_cast<int32_t>(kMerges.size()); }

GgufWriter TinyModelWriter(const TinyModelOptions& options) {
  GgufWriter writer;
  writer.Text("general.architecture", "llama")
      .Text("general.name", "tiny random model")
      .Uint32("llama.block_count", static_cast<uint32_t>(options.num_layers))
      .Uint32("llama.context_length", static_cast<uint32_t>(options.context_length))
      .Uint32("llama.embedding_length", static_cast<uint32_t>(options.hidden_size))
      .Uint32("llama.feed_forward_length", static_cast<uint32_t>(options.ffn_size))
      .Uint32("llama.attention.head_count", static_cast<uint32_t>(options.num_heads))
      .Uint32("llama.attention.head_count_kv", static_cast<uint32_t>(options.num_kv_heads))
      .Uint32("llama.attention.key_length", static_cast<uint32_t>(options.head_dim))
      .Uint32("llama.attention.value_length", static_cast<uint32_t>(options.head_dim))
      .Float32("llama.attention.layer_norm_rms_epsilon", options.norm_epsilon)
      .Float32("llama.rope.freq_base", options.rope_base)
      .Uint32("llama.rope.dimension_count", static_cast<uint32_t>(options.head_dim))
      .Uint32("llama.vocab_size", static_cast<uint32_t>(TinyVocabSize()));
  AddTokenizer(writer);

  const int32_t q_rows = options.num_heads * options.head_dim;
  const int32_t kv_rows = options.num_kv_heads * options.head_dim;
  WeightMaker make(options, writer);
  // Logits have a standard deviation of about 3: a clear favourite, and room for chance. Tied
  // matrices are embedding and output at once, and the last norm takes their scale out again on one
  // side only.
  const float output_scale = 3.0f / std::sqrt(static_cast<float>(options.hidden_size));
  make.Table("token_embd.weight", options.tied_output ? output_scale : 1.0f,
             options.tied_output ? 0.4f * output_scale : 1.0f);
  for (int32_t layer = 0; layer < options.num_layers; ++layer) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    make.Norm(block + "attn_norm.weight");
    // Sharp attention, so that a wrong position or head is seen.
    make.Matrix(block + "attn_q.weight", q_rows, options.hidden_size, 1.5f);
    make.Matrix(block + "attn_k.weight", kv_rows, options.hidden_size, 1.5f);
    make.Matrix(block + "attn_v.weight", kv_rows, options.hidden_size, 1.0f);
    make.Matrix(block + "attn_output.weight", options.hidden_size, q_rows, 1.0f);
    make.Norm(block + "ffn_norm.weight");
    make.Matrix(block + "ffn_gate.weight", options.ffn_size, options.hidden_size, 1.0f);
    make.Matrix(block + "ffn_up.weight", options.ffn_size, options.hidden_size, 1.0f);
    make.Matrix(block + "ffn_down.weight", options.hidden_size, options.ffn_size, 1.0f);
  }
  make.Norm("output_norm.weight");
  if (!options.tied_output) make.Table("output.weight", output_scale, 0.4f * output_scale);
  return writer;
}

}  // namespace tandem::test
