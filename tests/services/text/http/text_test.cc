// The text of a stream over HTTP is that of the whole answer over HTTP and that over gRPC, to the
// byte, for every text that the text layer is tested with. A scripted worker "says" the texts: the
// prompt is the number of one.
#include <random>

#include "engine/text/tokenizer.h"
#include "tests/services/text/http/http_fixture.h"
#include "tests/support/tokenizer_files.h"

namespace tandem::text {
namespace {

using Script = std::vector<int32_t>;

// Logits that give the tokens of script p.tokens[0] * 256 + p.tokens[1], and `end` behind them.
test::RowFunction Speak(std::vector<Script> scripts, int32_t vocab_size, int32_t end) {
  return [scripts = std::move(scripts), vocab_size, end](std::span<const int32_t> tokens) {
    std::vector<float> row(static_cast<size_t>(vocab_size));
    const Script& script = scripts.at(static_cast<size_t>(tokens[0] * 256 + tokens[1]));
    const size_t position = tokens.size() - 2;
    row[static_cast<size_t>(position < script.size() ? script[position] : end)] = 50;
    return row;
  };
}

Script BytesOf(std::string_view text) {
  Script script;
  for (const char c : text) script.push_back(static_cast<uint8_t>(c));
  return script;
}

class HttpTextTest : public HttpTest {
 protected:
  void Say(std::vector<Script> scripts, TokenizerData tokenizer, int32_t vocab_size, int32_t end) {
    test::ScriptedWorkerOptions options;
    options.decoder.context_length = 4096;
    options.decoder.vocab_size = vocab_size;
    options.decoder.tokenizer = std::move(tokenizer);
    options.decoder.rows = Speak(std::move(scripts), vocab_size, end);
    AddWorker(std::move(options));
    Serve();
  }

  static Json BodyOf(size_t index, const std::vector<std::string>& stops, bool stream,
                     bool logprobs) {
    Json body = {{"prompt", {index / 256, index % 256}},
                 {"max_tokens", 2000},
                 {"temperature", 0},
                 {"stream", stream},
                 {"add_special_tokens", nullptr}};
    if (!stops.empty()) body["stop"] = stops;
    if (logprobs) body["logprobs"] = 2;
    return body;
  }

  // Asks in the three ways, and gives the text.
  std::string Text(size_t index, const std::vector<std::string>& stops = {},
                   bool logprobs = false) {
    const RawResponse whole = Post("/v1/completions", BodyOf(index, stops, false, logprobs));
    EXPECT_EQ(whole.status, 200) << whole.body;
    const Json choice = ParseJson(whole.body)["choices"][0];
    const std::string text = choice["text"];

    const RawResponse stream = Post("/v1/completions", BodyOf(index, stops, true, logprobs));
    const Events events = ParseEvents(stream.body);
    EXPECT_TRUE(events.done);
    EXPECT_EQ(events.text.count(0) != 0 ? events.text.at(0) : "", text);
    EXPECT_EQ(events.reasons.at(0), choice["finish_reason"]);
    if (logprobs) {
      EXPECT_EQ(LogprobsOf(stream.body), choice["logprobs"]);
    }

    v1::GenerateRequest request;
    request.mutable_token_ids()->add_ids(static_cast<int32_t>(index / 256));
    request.mutable_token_ids()->add_ids(static_cast<int32_t>(index % 256));
    request.mutable_sampling()->set_temperature(0);
    request.set_max_tokens(2000);
    for (const std::string& stop : stops) request.mutable_stopping()->add_stop_strings(stop);
    Answer answer = Ask(request);
    EXPECT_EQ(answer.text[0], text);
    return text;
  }

  // The arrays of all chunks' logprobs, joined.
  static Json LogprobsOf(const std::string& body) {
    Json joined = {{"tokens", Json::array()},
                   {"token_logprobs", Json::array()},
                   {"top_logprobs", Json::array()},
                   {"text_offset", Json::array()}};
    size_t at = 0;
    for (size_t end = body.find("\n\n"); end != std::string::npos; end = body.find("\n\n", at)) {
      const Json event = ParseJson(body.substr(at + 6, end - at - 6));
      at = end + 2;
      if (event.is_discarded() || event["choices"][0]["logprobs"].is_null()) continue;
      for (auto& [name, list] : joined.items()) {
        for (const Json& value : event["choices"][0]["logprobs"][name]) list.push_back(value);
      }
    }
    return joined;
  }
};

TEST_F(HttpTextTest, B001_EveryTextOfTheTokenizersArrivesAsItsBytes) {
  std::vector<std::string> texts;
  std::vector<Script> scripts;
  for (const Json& line : GoldenLines("cases.jsonl")) {
    texts.push_back(line["text"]);
    scripts.push_back(BytesOf(texts.back()));
  }
  ASSERT_GT(texts.size(), 2000u);
  Say(scripts, test::SmallTokenizer(), test::kRowSize, test::kEndOfText);
  for (size_t i = 0; i < texts.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(Text(i), texts[i]);
  }
}

TEST_F(HttpTextTest, TokensOfARealVocabularyArriveAsTheirText) {
  const TokenizerData data = SmolLm2Data();
  const auto tokenizer = *MakeTokenizer(data);
  std::vector<Script> scripts;
  size_t line_number = 0;
  for (const Json& line : GoldenLines("cases.jsonl")) {
    if (line_number++ % 64 == 0) scripts.push_back(line["smollm"].get<Script>());
  }
  const auto vocab_size = static_cast<int32_t>(data.tokens.size());
  Say(scripts, data, vocab_size, data.eos_id);
  for (size_t i = 0; i < scripts.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(Text(i, {}, i % 2 == 0), *tokenizer->Decode(scripts[i], false));
  }
}

TEST_F(HttpTextTest, B003_B007_BytesThatAreNoTextAreAlikeInAllWaysAndAlwaysUtf8) {
  std::mt19937 random(7);
  std::vector<Script> scripts;
  for (int i = 0; i < 300; ++i) {
    Script script(random() % 24);
    // Bytes of every class, so that characters begin, go on and break off in all ways.
    static constexpr uint8_t kBytes[] = {'a',  0x80, 0xbf, 0xc0, 0xc3, 0xe2, 0x82,
                                         0xac, 0xed, 0xa0, 0xf0, 0x9f, 0x98, 0x80,
                                         0xf4, 0x90, 0xff, '"',  '\\', '\n'};
    for (int32_t& id : script) id = kBytes[random() % std::size(kBytes)];
    scripts.push_back(std::move(script));
  }
  const auto tokenizer = *MakeTokenizer(test::SmallTokenizer());
  Say(scripts, test::SmallTokenizer(), test::kRowSize, test::kEndOfText);
  for (size_t i = 0; i < scripts.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(Text(i, {}, i % 3 == 0), *tokenizer->Decode(scripts[i], false));
  }
}

TEST_F(HttpTextTest, B015_B017_B019_StopStringsCutAllWaysAtTheSameByte) {
  std::mt19937 random(11);
  std::vector<std::string> texts;
  std::vector<Script> scripts;
  for (int i = 0; i < 250; ++i) {
    std::string text;
    const size_t length = 1 + random() % 40;
    while (text.size() < length) {
      static constexpr const char* kParts[] = {"a", "b", "ab", "é", "€", "\n", "<|im_end|>"};
      text += kParts[random() % std::size(kParts)];
    }
    texts.push_back(text);
    scripts.push_back(BytesOf(text));
  }
  Say(scripts, test::SmallTokenizer(), test::kRowSize, test::kEndOfText);
  for (size_t i = 0; i < texts.size(); ++i) {
    SCOPED_TRACE(i);
    std::vector<std::string> stops;
    for (size_t n = 1 + random() % 3; n > 0; --n) {
      static constexpr const char* kStops[] = {"aab", "b\n", "é€", "<|im_end|>", "abab", "€€"};
      stops.push_back(kStops[random() % std::size(kStops)]);
    }
    const std::string text = Text(i, stops);
    // The stop whose last byte comes first ends it, from where the longest such one begins.
    size_t end = std::string::npos, begin = std::string::npos;
    for (const std::string& stop : stops) {
      const size_t at = texts[i].find(stop);
      if (at == std::string::npos || at + stop.size() > end) continue;
      begin = at + stop.size() < end ? at : std::min(begin, at);
      end = at + stop.size();
    }
    ASSERT_EQ(text, begin == std::string::npos ? texts[i] : texts[i].substr(0, begin));
  }
}

}  // namespace
}  // namespace tandem::text
