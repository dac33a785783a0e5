// Broken templates: an error or a rendering, never a crash, a hang or an invalid text.
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/text/jinja/unicode.h"
#include "tests/engine/text/template_files.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

class MalformedTemplate : public testing::TestWithParam<std::string> {
 protected:
  MalformedTemplate()
      : source_(ReadFile(kTemplateFolder + GetParam() + ".jinja")),
        variables_(ReadJson(std::string(kTemplateFolder) + "conversations.json")["multi_turn"]) {}

  // Counts what came out, so that a test knows that it reached both sides.
  void Try(const std::string& source) {
    constexpr TemplateLimits kSmall = {.max_output_bytes = 100'000, .max_steps = 50'000};
    const auto text = RenderText(source, variables_, kSmall);
    if (text.ok()) {
      ++rendered_;
      EXPECT_LE(text->size(), kSmall.max_output_bytes);
      EXPECT_TRUE(jinja::IsValidUtf8(*text)) << source;
      return;
    }
    ++refused_;
    const absl::StatusCode code = text.status().code();
    EXPECT_TRUE(code == absl::StatusCode::kInvalidArgument ||
                code == absl::StatusCode::kUnimplemented ||
                code == absl::StatusCode::kResourceExhausted)
        << text.status() << "\n"
        << source;
    EXPECT_FALSE(text.status().message().empty());
  }

  const std::string source_;
  const ordered_json variables_;
  int rendered_ = 0;
  int refused_ = 0;
};

TEST_P(MalformedTemplate, EveryPrefixIsRefusedOrRendered) {
  // Long templates are sampled, with a step that hits every offset of their tags by and by.
  const size_t step = source_.size() < 3000 ? 1 : 7;
  for (size_t length = 0; length <= source_.size(); length += step) {
    Try(source_.substr(0, length));
  }
  EXPECT_GT(refused_, 100);
}

TEST_P(MalformedTemplate, MutationsAreRefusedOrRendered) {
  static constexpr const char* kFragments[] = {"{%",
                                               "%}",
                                               "{{",
                                               "}}",
                                               "{#",
                                               "#}",
                                               "-%}",
                                               "{%-",
                                               "(",
                                               ")",
                                               "[",
                                               "]",
                                               "{",
                                               "}",
                                               "'",
                                               "\"",
                                               "|",
                                               ".",
                                               ",",
                                               ":",
                                               "~",
                                               "=",
                                               "\\",
                                               "0",
                                               "-1",
                                               " in ",
                                               " is ",
                                               " not ",
                                               " if ",
                                               " else ",
                                               "none",
                                               "loop",
                                               "\n",
                                               "\xF0",
                                               "\xC3\xA9",
                                               "{% endif %}",
                                               "{% endfor %}",
                                               "{% else %}",
                                               "{% set x %}",
                                               "| tojson",
                                               "messages",
                                               "[::-1]",
                                               "* 9999999",
                                               ".split('a')",
                                               "{% break %}",
                                               "**"};
  std::mt19937 random(20250730);
  const auto below = [&](size_t bound) { return random() % bound; };
  for (int round = 0; round < 400; ++round) {
    std::string mutated = source_;
    for (size_t edits = 1 + below(3); edits > 0 && !mutated.empty(); --edits) {
      const size_t at = below(mutated.size());
      const size_t length = std::min(below(12), mutated.size() - at);
      switch (below(4)) {
        case 0:
          mutated.erase(at, length);
          break;
        case 1:
          mutated.insert(at, kFragments[below(std::size(kFragments))]);
          break;
        case 2:
          mutated.replace(at, length, kFragments[below(std::size(kFragments))]);
          break;
        default:
          mutated.insert(below(mutated.size()), mutated.substr(at, length * 4));
          break;
      }
    }
    Try(mutated);
  }
  EXPECT_GT(rendered_, 10);
  EXPECT_GT(refused_, 100);
}

INSTANTIATE_TEST_SUITE_P(Real, MalformedTemplate, testing::ValuesIn(TemplateNames()),
                         [](const auto& info) { return info.param; });

TEST(MalformedBytes, AreRefusedOrRendered) {
  std::mt19937 random(42);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string source;
    for (size_t length = random() % 40; length > 0; --length) {
      static constexpr std::string_view kLikely = "{}%#-+'\"|.()[]~ \nabx01:,=<>\\";
      source.push_back(random() % 8 == 0 ? static_cast<char>(random() % 256)
                                         : kLikely[random() % kLikely.size()]);
    }
    const auto text = RenderText("{{" + source, ordered_json::object());
    if (!text.ok()) ++refused;
  }
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace tandem
