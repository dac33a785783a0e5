#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/text/tokenizer.h"
#include "services/cli/commands.h"
#include "services/cli/connection.h"
#include "services/common/grpc_status.h"

namespace tandem::cli {
namespace {

struct Flags {
  ConnectionFlags connection;
  std::string vocabulary;
  std::string model;
  std::string text;
  bool add_special = false;
  bool parse_special = false;
  bool ids_only = false;
  bool json = false;
};

absl::StatusOr<TokenizerData> ReadVocabulary(const std::string& path) {
  if (path.size() > 5 && path.compare(path.size() - 5, 5, ".gguf") == 0) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, OpenCheckpoint(path));
    return checkpoint->Tokenizer();
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound("--vocabulary ", path, ": it cannot be read");
  TokenizerData data;
  data.kind = TokenizerKind::kSentencePiece;
  data.sentencepiece_model.assign(std::istreambuf_iterator<char>(file), {});
  return data;
}

absl::StatusOr<v1::TokenizeResponse> TokenizeHere(const Flags& flags) {
  ASSIGN_OR_RETURN(TokenizerData data, ReadVocabulary(flags.vocabulary));
  absl::StatusOr<std::unique_ptr<Tokenizer>> made = MakeTokenizer(std::move(data));
  if (!made.ok()) {
    return InvalidArgument("--vocabulary ", flags.vocabulary, ": ", made.status().message());
  }
  const std::unique_ptr<Tokenizer> tokenizer = *std::move(made);
  EncodeOptions options;
  options.add_special = flags.add_special;
  options.parse_special = flags.parse_special;
  ASSIGN_OR_RETURN(const Encoding encoding, tokenizer->Encode(flags.text, options));
  v1::TokenizeResponse response;
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    v1::Token& token = *response.add_tokens();
    token.set_id(encoding.ids[i]);
    token.set_piece(tokenizer->Piece(encoding.ids[i]));
    token.set_begin(encoding.offsets[i].begin);
    token.set_end(encoding.offsets[i].end);
  }
  return response;
}

absl::StatusOr<v1::TokenizeResponse> TokenizeThere(const Flags& flags) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection,
                   Connection::Dial(flags.connection));
  v1::TokenizeRequest request;
  request.set_model(flags.model);
  request.set_text(flags.text);
  request.set_add_special(flags.add_special);
  request.set_parse_special(flags.parse_special);
  grpc::ClientContext context;
  connection->Authorize(&context);
  v1::TokenizeResponse response;
  RETURN_IF_ERROR(FromGrpc(connection->generation().Tokenize(&context, request, &response)));
  return response;
}

int RunTokenize(Flags& flags) {
  if (flags.text == "-") flags.text.assign(std::istreambuf_iterator<char>(std::cin), {});
  const auto response = flags.vocabulary.empty() ? TokenizeThere(flags) : TokenizeHere(flags);
  if (!response.ok()) return Fail(response.status());
  if (flags.json) {
    nlohmann::json tokens = nlohmann::json::array();
    for (const v1::Token& token : response->tokens()) {
      tokens.push_back({{"id", token.id()},
                        {"piece", token.piece()},
                        {"begin", token.begin()},
                        {"end", token.end()}});
    }
    // A piece may be half a character: replaced rather than refused.
    std::cout << tokens.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return 0;
  }
  const char* separator = "";
  for (const v1::Token& token : response->tokens()) {
    if (flags.ids_only) {
      std::cout << separator << token.id();
      separator = " ";
    } else {
      std::cout << token.id() << "\t" << token.begin() << "-" << token.end() << "\t"
                << token.piece() << "\n";
    }
  }
  if (flags.ids_only) std::cout << "\n";
  return 0;
}

}  // namespace

void AddTokenize(CLI::App& app, const std::function<void(Run)>& set_run) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* command =
      app.add_subcommand("tokenize", "Text to token ids: id, byte range, piece, a line each");
  flags->connection.AddTo(*command);
  command->add_option(
      "--vocabulary", flags->vocabulary,
      "Tokenize here with this file instead of asking a server: a .gguf, or a sentencepiece model");
  command->add_option("--model", flags->model, "Model name; needed only where several are served");
  command->add_option("text", flags->text, "The text; '-' reads it from stdin")->required();
  command->add_flag("--add-special", flags->add_special,
                    "Add bos and eos where the vocabulary asks for them");
  command->add_flag("--parse-special", flags->parse_special,
                    "Special tokens written in the text become their ids");
  CLI::Option* ids =
      command->add_flag("--ids", flags->ids_only, "Print the ids alone, on one line");
  command->add_flag("--json", flags->json, "Print a JSON array")->excludes(ids);
  command->callback([flags, set_run] { set_run([flags] { return RunTokenize(*flags); }); });
}

}  // namespace tandem::cli
