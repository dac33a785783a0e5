// Renderings against Jinja2's, recorded by tests/golden/templates/make_goldens.py.
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/engine/text/template_files.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

// `expected` has the text, or says that there was an error and, if the template raised it, which.
void ExpectSame(const absl::StatusOr<std::string>& rendered, const ordered_json& expected) {
  if (expected.contains("text")) {
    ASSERT_TRUE(rendered.ok()) << rendered.status();
    EXPECT_EQ(*rendered, expected["text"].get<std::string>());
    return;
  }
  ASSERT_FALSE(rendered.ok()) << *rendered;
  if (expected.contains("raised")) {
    EXPECT_EQ(rendered.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(rendered.status().message(), expected["raised"].get<std::string>());
  }
}

class GoldenTemplate : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTemplate, RendersEveryConversationAsJinja2Does) {
  const std::string path = kTemplateFolder + GetParam();
  const std::string source = ReadFile(path + ".jinja");
  const ordered_json conversations = ReadJson(std::string(kTemplateFolder) + "conversations.json");
  const ordered_json expected = ReadJson(path + ".json");
  ASSERT_EQ(expected.size(), conversations.size());
  ASSERT_EQ(expected.size(), 20);
  for (const ordered_json& result : expected) {
    const auto name = result["name"].get<std::string>();
    SCOPED_TRACE(name);
    ExpectSame(RenderText(source, conversations[name]), result);
  }
}

INSTANTIATE_TEST_SUITE_P(Real, GoldenTemplate, testing::ValuesIn(TemplateNames()),
                         [](const auto& info) { return info.param; });

TEST(GoldenTemplates, AreTheDefaultModelsAndTwelveOthers) { EXPECT_EQ(TemplateNames().size(), 13); }

TEST(GoldenSnippets, RenderAsJinja2Does) {
  const ordered_json golden = ReadJson(std::string(kTemplateFolder) + "snippets.json");
  ASSERT_GT(golden["snippets"].size(), 400);
  for (const ordered_json& snippet : golden["snippets"]) {
    const auto source = snippet["template"].get<std::string>();
    SCOPED_TRACE(source);
    ExpectSame(RenderText(source, golden["variables"]), snippet);
  }
}

}  // namespace
}  // namespace tandem
