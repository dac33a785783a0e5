#include "tests/support/tokenizer_files.h"

#include <fstream>
#include <sstream>

#include "engine/base/check.h"

namespace tandem {
namespace {

constexpr char kFolder[] = "tests/golden/tokenizers/";

std::string ReadFile(const std::string& name) {
  std::ifstream file(kFolder + name, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  TANDEM_CHECK(file.good()) << kFolder << name
                            << " cannot be read: tests run from the repository root";
  return content.str();
}

}  // namespace

TokenizerData SmolLm2Data() {
  const nlohmann::json file = nlohmann::json::parse(ReadFile("smollm2.tokenizer"));
  TokenizerData data;
  data.kind = TokenizerKind::kByteLevelBpe;
  data.pre_tokenizer = file.at("pre_tokenizer");
  data.tokens = file.at("tokens").get<std::vector<std::string>>();
  data.merges = file.at("merges").get<std::vector<std::string>>();
  data.types.assign(data.tokens.size(), TokenType::kNormal);
  for (const int32_t id : file.at("control")) data.types.at(id) = TokenType::kControl;
  data.bos_id = file.at("bos_id");
  data.eos_id = file.at("eos_id");
  data.unknown_id = file.at("unknown_id");
  data.padding_id = file.at("padding_id");
  data.add_bos = file.at("add_bos");
  data.end_ids = {data.eos_id};
  return data;
}

TokenizerData MistralData() {
  TokenizerData data;
  data.kind = TokenizerKind::kSentencePiece;
  data.sentencepiece_model = ReadFile("mistral_v3.model");
  data.unknown_id = 0;
  data.bos_id = 1;
  data.eos_id = 2;
  data.add_space_prefix = true;
  data.end_ids = {data.eos_id};
  return data;
}

std::vector<nlohmann::json> GoldenLines(const std::string& name) {
  std::istringstream file(ReadFile(name));
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

}  // namespace tandem
