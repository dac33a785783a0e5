#include "services/common/logging.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include <nlohmann/json.hpp>

namespace tandem {
namespace {

TEST(EscapeControl, B177_NoTextCanEndALineOrSteerATerminal) {
  EXPECT_EQ(EscapeControl("id\r\n2026-01-01T00:00:00Z info: forged"),
            "id\\x0d\\x0a2026-01-01T00:00:00Z info: forged");
  EXPECT_EQ(EscapeControl(std::string("a\0b\x7f\x1b[2J", 8)), "a\\x00b\\x7f\\x1b[2J");
  EXPECT_EQ(EscapeControl("\xc2\x85 next line, \xe2\x80\xa8 line separator"),
            "\\xc2\\x85 next line, \\xe2\\x80\\xa8 line separator");
}

TEST(EscapeControl, KeepsLettersAndCanBeReadBack) {
  EXPECT_EQ(EscapeControl("gr\xc3\xbc\xc3\x9f \xe4\xb8\xad"), "gr\xc3\xbc\xc3\x9f \xe4\xb8\xad");
  EXPECT_EQ(EscapeControl("\\x0a"), "\\\\x0a") << "a backslash is not an escape of ours";
}

TEST(Log, WritesOneLineAnEventToStderrWithLevelAndName) {
  testing::internal::CaptureStderr();
  LogWarning("count ", 3, " of\n", "many");
  LogInfo("next");
  const std::string out = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 2) << out;
  EXPECT_NE(out.find(" warning: count 3 of\\x0amany\n"), std::string::npos) << out;
  EXPECT_NE(out.find(" info: next\n"), std::string::npos) << out;
}

TEST(LogEvent, WritesTheEventAndItsFieldsOrTheMessageForPeople) {
  testing::internal::CaptureStderr();
  LogEvent(LogLevel::kError, "request_failed", {{"request_id", "a\nb"}, {"tokens", 3}});
  LogEvent(LogLevel::kInfo, "status", {{"running", 1}}, "1 running\n");
  const std::string out = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 2) << out;
  EXPECT_NE(out.find(" error: request_failed request_id=a\\x0ab tokens=3\n"), std::string::npos)
      << out;
  EXPECT_NE(out.find(" info: 1 running\\x0a\n"), std::string::npos) << out;
}

TEST(EventText, B177_AValueCannotLookLikeAnotherField) {
  EXPECT_EQ(EventText("x", {{"id", "a b=c"}, {"empty", ""}, {"quote", "say \"x\""}}),
            "x id=\"a b=c\" empty=\"\" quote=\"say \\\"x\\\"\"");
  EXPECT_EQ(EventText("x", {{"id", "a\r\nid=forged"}}), "x id=\"a\\x0d\\x0aid=forged\"");
}

TEST(EventText, HasEveryKindOfValue) {
  const std::string text = "t";
  EXPECT_EQ(EventText("x", {{"a", text},
                            {"b", uint64_t{7}},
                            {"c", -7},
                            {"d", 0.5},
                            {"e", true},
                            {"f", std::string_view("v")}}),
            "x a=t b=7 c=-7 d=0.5 e=true f=v");
}

// The object whose members EventJson gives.
nlohmann::json Parsed(const std::string& members) {
  return nlohmann::json::parse("{" + members + "}", nullptr, /*allow_exceptions=*/false);
}

TEST(EventJson, IsAnObjectWithTheFieldsInTheirTypes) {
  const nlohmann::json line = Parsed(EventJson(
      "tandem-text", "done", {{"id", "a"}, {"n", 7}, {"x", 0.5}, {"b", false}}, "it is done"));
  EXPECT_EQ(line, nlohmann::json({{"service", "tandem-text"},
                                  {"event", "done"},
                                  {"message", "it is done"},
                                  {"id", "a"},
                                  {"n", 7},
                                  {"x", 0.5},
                                  {"b", false}}));
}

TEST(EventJson, B177_IsOneLineOfValidJsonWhateverTheTextsHold) {
  std::string every_byte;
  for (int i = 0; i < 256; ++i) every_byte += static_cast<char>(i);
  const std::string texts[] = {"id\r\n{\"level\":\"error\"}",
                               "\",\"level\":\"error",
                               every_byte,
                               "\xc3\x28 \xff \xe2\x80",
                               "\x7f\xc2\x85\xe2\x80\xa8\xe2\x80\xa9",
                               std::string("a\0b", 3)};
  for (const std::string& text : texts) {
    const std::string members = EventJson("s", "e", {{"id", text}}, text);
    for (const char c : members) {
      EXPECT_TRUE(c >= 0x20 && c < 0x7f) << static_cast<int>(c) << " in " << members;
    }
    const nlohmann::json line = Parsed(members);
    ASSERT_TRUE(line.is_object()) << members;
    EXPECT_EQ(line.size(), 4u) << "no text adds a member";
    EXPECT_EQ(line["service"], "s");
  }
  EXPECT_EQ(Parsed(EventJson("s", "e", {{"id", "gr\xc3\xbc\xc3\x9f\n"}}, ""))["id"],
            "gr\xc3\xbc\xc3\x9f\n");
  EXPECT_EQ(Parsed(EventJson("s", "e", {{"id", "a\xff"}}, ""))["id"], "a\xef\xbf\xbd");
}

TEST(EventJson, ANumberThatJsonDoesNotHaveIsNull) {
  const nlohmann::json line =
      Parsed(EventJson("s", "e", {{"x", std::numeric_limits<double>::infinity()}}, ""));
  ASSERT_TRUE(line.is_object());
  EXPECT_TRUE(line["x"].is_null());
}

}  // namespace
}  // namespace tandem
