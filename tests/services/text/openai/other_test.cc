#include "services/text/openai/other.h"

#include <gmock/gmock.h>

#include <string>

#include <nlohmann/json.hpp>

#include "services/text/openai/field_names.h"

namespace tandem::text {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(TokenizeJson, ACallHasItsDefaultsAndFields) {
  const auto plain = ParseTokenizeCall(R"({"prompt":"a\u0000b"})");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->text(), std::string("a\0b", 3));
  EXPECT_TRUE(plain->add_special());
  EXPECT_FALSE(plain->parse_special());
  const auto all = ParseTokenizeCall(
      R"({"prompt":"","model":"m","add_special_tokens":false,"parse_special_tokens":true,
          "return_token_strs":true})");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->model(), "m");
  EXPECT_FALSE(all->add_special());
  EXPECT_TRUE(all->parse_special());
  const auto back = ParseDetokenizeCall(R"({"tokens":[1,2],"skip_special_tokens":true})");
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_THAT(back->ids(), ElementsAre(1, 2));
  EXPECT_FALSE(back->include_special());
  EXPECT_TRUE(ParseDetokenizeCall(R"({"tokens":[]})")->include_special());
}

TEST(TokenizeJson, BadCallsAreRefusedByName) {
  struct Case {
    absl::Status status;
    const char* param;
    const char* part;
  };
  const Case cases[] = {
      {ParseTokenizeCall("{}").status(), "prompt", "missing"},
      {ParseTokenizeCall(R"({"prompt":5})").status(), "prompt", "string"},
      {ParseTokenizeCall(R"({"text":"a","prompt":"b"})").status(), "text", "/tokenize"},
      {ParseTokenizeCall("{\"prompt\":\"" + std::string((4 << 20) + 1, 'x') + "\"}").status(),
       "prompt", "4194305"},
      {ParseTokenizeCall("[").status(), "", "the body"},
      {ParseDetokenizeCall("{}").status(), "tokens", "missing"},
      {ParseDetokenizeCall(R"({"tokens":[1,-1]})").status(), "tokens[1]", "-1"},
      {ParseDetokenizeCall(R"({"tokens":[1],"x":1})").status(), "x", "/detokenize"},
  };
  for (const Case& c : cases) {
    ASSERT_TRUE(absl::IsInvalidArgument(c.status)) << c.status;
    EXPECT_EQ(ParamOf(c.status), c.param);
    EXPECT_THAT(std::string(c.status.message()), HasSubstr(c.part));
  }
}

TEST(TokenizeJson, TokensAndTextAreAsVllmShapesThem) {
  v1::TokenizeResponse tokens;
  for (int i = 0; i < 2; ++i) {
    v1::Token& token = *tokens.add_tokens();
    token.set_id(7 + i);
    token.set_piece(i == 0 ? "\"a"
                           : "\xC4\xA0"
                             "b");
    token.set_begin(2 * i);
    token.set_end(2 * i + 2);
  }
  EXPECT_EQ(json::parse(TokenizeJson(tokens)),
            json::parse(R"({"count":2,"tokens":[7,8],"token_strs":["\"a","\u0120b"],
                            "offsets":[[0,2],[2,4]]})"));
  EXPECT_EQ(json::parse(TokenizeJson({}))["tokens"], json::array());
  v1::DetokenizeResponse text;
  text.set_text("a\n\"");
  EXPECT_EQ(json::parse(DetokenizeJson(text)), json::parse(R"({"prompt":"a\n\""})"));
}

TEST(ModelsJson, ModelsAreOpenAisWithMore) {
  v1::ListModelsResponse response;
  v1::Model& model = *response.add_models();
  model.set_name("tiny");
  model.set_architecture("llama");
  model.set_context_length(512);
  model.set_vocab_size(272);
  model.set_weights_fingerprint("w");
  model.set_tokenizer_fingerprint("t");
  model.add_end_ids(2);
  model.add_end_ids(3);
  model.set_workers(1);
  model.set_has_chat_template(true);
  const json expected = json::parse(R"({"id":"tiny","object":"model","created":5,
      "owned_by":"tandem","root":"tiny","parent":null,"max_model_len":512,
      "tandem":{"architecture":"llama","vocab_size":272,"weights_fingerprint":"w",
        "tokenizer_fingerprint":"t","end_ids":[2,3],"workers":1,"has_chat_template":true}})");
  EXPECT_EQ(json::parse(ModelJson(model, 5)), expected);
  *response.add_models() = model;
  EXPECT_EQ(json::parse(ModelsJson(response, 5)),
            json({{"object", "list"}, {"data", {expected, expected}}}));
  EXPECT_EQ(json::parse(ModelsJson({}, 5))["data"], json::array());
}

}  // namespace
}  // namespace tandem::text
