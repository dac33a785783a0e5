#include "engine/text/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/base/status.h"
#include "tests/support/tokenizer_files.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> Words(const std::string& name, const std::string& text) {
  const PreTokenizer pre_tokenizer = PreTokenizer::Make(name).value();
  Regex::Scratch scratch;
  std::vector<std::string> words;
  const absl::Status status = pre_tokenizer.Split(text, &scratch, [&](std::string_view word) {
    words.emplace_back(word);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return words;
}

class PreTokenizerTest : public testing::TestWithParam<std::string> {};

TEST_P(PreTokenizerTest, CutsTextsAsTheReferenceDoes) {
  int compared = 0;
  for (const nlohmann::json& row : GoldenLines("cases.jsonl")) {
    if (!row.contains("words")) continue;
    const nlohmann::json& words = row.at("words");
    const std::vector<size_t> expected =
        words.contains(GetParam()) ? words.at(GetParam()) : words.at("smollm");
    std::vector<size_t> lengths;
    std::string joined;
    for (const std::string& word : Words(GetParam(), row.at("text"))) {
      lengths.push_back(word.size());
      joined += word;
    }
    ASSERT_EQ(lengths, expected) << row.at("text");
    ASSERT_EQ(joined, row.at("text"));
    ++compared;
  }
  EXPECT_GT(compared, 1500);
}

INSTANTIATE_TEST_SUITE_P(Names, PreTokenizerTest,
                         testing::Values("gpt-2", "smollm", "llama-bpe", "qwen2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST(PreTokenizer, SmolLmTakesEveryNumberCharacterAlone) {
  EXPECT_THAT(Words("smollm", "in 2024 ½"), ElementsAre("in", " ", "2", "0", "2", "4", " ", "½"));
  EXPECT_THAT(Words("gpt-2", "in 2024 ½"), ElementsAre("in", " 2024", " ½"));
}

TEST(PreTokenizer, TheMongolianVowelSeparatorIsNoSpace) {
  EXPECT_THAT(Words("gpt-2", "a\u180e b"), ElementsAre("a", "\u180e", " b"));
}

TEST(PreTokenizer, B055_AnUnknownNameIsRefusedByName) {
  for (const char* name : {"deepseek-llm", "default", "", "GPT-2"}) {
    const absl::Status status = PreTokenizer::Make(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("\"", name, "\"")));
  }
}

TEST(PreTokenizer, B055_NewlineRunsAreSplitByEachModelsOwnPattern) {
  EXPECT_THAT(Words("gpt-2", "a\n\n\nb"), ElementsAre("a", "\n\n", "\n", "b"));
  EXPECT_THAT(Words("llama-bpe", "a\n\n\nb"), ElementsAre("a", "\n\n\n", "b"));
}

TEST(PreTokenizer, StopsAtTheFirstErrorOfTheCaller) {
  const PreTokenizer pre_tokenizer = PreTokenizer::Make("smollm").value();
  Regex::Scratch scratch;
  int calls = 0;
  const absl::Status status =
      pre_tokenizer.Split("a b c", &scratch, [&](std::string_view) -> absl::Status {
        return ++calls == 2 ? ResourceExhausted("enough") : absl::OkStatus();
      });
  EXPECT_EQ(status.message(), "enough");
  EXPECT_EQ(calls, 2);
}

// Backtracking over long runs must not meet a limit of the pattern library.
TEST(PreTokenizer, LongRunsOfOneCharacterAreSplit) {
  for (const char* name : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    for (const char* unit : {" ", "\n", "a", "1", "=", "é", "\u0301", "\t\n"}) {
      std::string text = "x";
      for (int i = 0; i < 1 << 18; ++i) text += unit;
      size_t bytes = 0;
      for (const std::string& word : Words(name, text + "y")) bytes += word.size();
      EXPECT_EQ(bytes, text.size() + 1) << name;
    }
  }
}

}  // namespace
}  // namespace tandem
