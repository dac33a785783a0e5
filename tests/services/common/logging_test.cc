#include "services/common/logging.h"

#include <gtest/gtest.h>

#include <algorithm>

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

}  // namespace
}  // namespace tandem
