#include "engine/text/utf8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tandem {
namespace {

std::string Character(char32_t code_point) {
  std::string out;
  AppendUtf8(code_point, &out);
  return out;
}

// Every way to put bytes at the edges of table 3-7 one after another, up to `length` bytes.
std::vector<std::string> EdgeBytes(int length) {
  const unsigned char bytes[] = {0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                                 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED,
                                 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF};
  std::vector<std::string> all = {""};
  size_t begin = 0;
  for (int i = 0; i < length; ++i) {
    const size_t end = all.size();
    for (; begin < end; ++begin) {
      for (const unsigned char byte : bytes) all.push_back(all[begin] + static_cast<char>(byte));
    }
  }
  return all;
}

TEST(Utf8, EveryScalarValueRoundTrips) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c == 0xD800) c = 0xE000;
    const std::string bytes = Character(c);
    const Utf8Step step = NextUtf8(bytes);
    ASSERT_EQ(step.state, Utf8State::kComplete) << static_cast<uint32_t>(c);
    ASSERT_EQ(step.code_point, c);
    ASSERT_EQ(step.length, static_cast<int32_t>(bytes.size()));
  }
}

TEST(Utf8, SurrogatesOverlongFormsAndCodePointsBeyondTheLastAreInvalid) {
  EXPECT_EQ(FindInvalidUtf8("ab\xED\xA0\x80"), 2);
  EXPECT_EQ(FindInvalidUtf8("\xC0\x80"), 0);
  EXPECT_EQ(FindInvalidUtf8("\xE0\x9F\xBF"), 0);
  EXPECT_EQ(FindInvalidUtf8("x\xF0\x8F\xBF\xBF"), 1);
  EXPECT_EQ(FindInvalidUtf8("\xF4\x90\x80\x80"), 0);
  EXPECT_EQ(FindInvalidUtf8("é\xF5"), 2);
  EXPECT_EQ(FindInvalidUtf8(std::string_view("a\0é", 4)), -1);
}

// The examples of the standard's tables 3-8 to 3-11 ("U+FFFD Substitution of Maximal Subparts"),
// with R for U+FFFD.
TEST(Utf8, ReplacesEachMaximalSubpartOnce) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(ReplaceInvalidUtf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(ReplaceInvalidUtf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(ReplaceInvalidUtf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(ReplaceInvalidUtf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
  EXPECT_EQ(ReplaceInvalidUtf8("ok é\xE4\xBD"), "ok é" + r);
}

TEST(Utf8, TheIncompleteSuffixIsExactlyWhatMoreBytesCouldComplete) {
  std::vector<std::string> continuations;  // up to three continuation bytes
  for (const std::string& bytes : EdgeBytes(3)) {
    if (std::all_of(bytes.begin(), bytes.end(), [](char c) { return (c & 0xC0) == 0x80; }))
      continuations.push_back(bytes);
  }
  for (const std::string& text : EdgeBytes(3)) {
    // Brute force: the longest suffix that is no character and that some bytes make one whole
    // character.
    int32_t expected = 0;
    for (size_t length = 1; length <= text.size() && length <= 3; ++length) {
      const std::string suffix = text.substr(text.size() - length);
      for (const std::string& more : continuations) {
        if (more.empty()) continue;
        const Utf8Step step = NextUtf8(suffix + more);
        if (step.state == Utf8State::kComplete &&
            step.length == static_cast<int32_t>(suffix.size() + more.size())) {
          expected = static_cast<int32_t>(length);
          break;
        }
      }
    }
    ASSERT_EQ(IncompleteUtf8Suffix(text), expected) << testing::PrintToString(text);
  }
}

TEST(Utf8, ReplacingGivesUtf8AndChangesNothingThatIs) {
  for (const std::string& text : EdgeBytes(3)) {
    const std::string replaced = ReplaceInvalidUtf8(text);
    ASSERT_EQ(FindInvalidUtf8(replaced), -1);
    ASSERT_EQ(replaced == text, FindInvalidUtf8(text) == -1);
  }
}

// One-byte texts whose lead byte promises more: nothing past the end is read (the sanitizer build
// sees to that).
TEST(Utf8, B061_ALoneLeadByteIsReadWithinItsBounds) {
  for (const char* lead : {"\xC2", "\xE0", "\xF0"}) {
    const std::vector<char> exact(lead, lead + 1);
    const std::string_view text(exact.data(), 1);
    EXPECT_EQ(NextUtf8(text).state, Utf8State::kIncomplete);
    EXPECT_EQ(FindInvalidUtf8(text), 0);
    EXPECT_EQ(IncompleteUtf8Suffix(text), 1);
    EXPECT_EQ(ReplaceInvalidUtf8(text), kReplacementBytes);
  }
}

}  // namespace
}  // namespace tandem
