#include "engine/text/aligned_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/tokenizer_files.h"

namespace tandem {
namespace {

ByteRange RangeOf(const AlignedText& aligned, std::string_view part) {
  const size_t at = aligned.text().find(part);
  return aligned.InputRange(static_cast<int64_t>(at), static_cast<int64_t>(at + part.size()));
}

void ExpectRange(ByteRange range, int64_t begin, int64_t end) {
  EXPECT_EQ(range.begin, begin);
  EXPECT_EQ(range.end, end);
}

TEST(AlignedText, VerbatimTextOnlyMoves) {
  const AlignedText aligned = AlignedText::Verbatim("abc", 10);
  EXPECT_EQ(aligned.text(), "abc");
  ExpectRange(aligned.InputRange(1, 3), 11, 13);
  ExpectRange(aligned.InputRange(3, 3), 13, 13);
}

TEST(AlignedText, FormCComposesAndRemembersWhere) {
  const AlignedText aligned = AlignedText::FormC("ab e\u0301 cd \u212B x", 0).value();
  EXPECT_EQ(aligned.text(), "ab \u00E9 cd \u00C5 x");
  ExpectRange(RangeOf(aligned, "ab "), 0, 3);
  ExpectRange(RangeOf(aligned, "\u00E9"), 3, 6);
  ExpectRange(RangeOf(aligned, "\xA9"), 3, 6);
  ExpectRange(RangeOf(aligned, "cd"), 7, 9);
  ExpectRange(RangeOf(aligned, "\u00C5"), 10, 13);
  ExpectRange(RangeOf(aligned, " x"), 13, 15);
}

TEST(AlignedText, MarksAreReorderedAndHangulIsComposed) {
  EXPECT_EQ(AlignedText::FormC("q\u0307\u0323", 0)->text(), "q\u0323\u0307");
  EXPECT_EQ(AlignedText::FormC("\u1100\u1161\u11A8", 0)->text(), "\uAC01");
}

TEST(AlignedText, OffsetsOfInputBytesAreFoundAgain) {
  const AlignedText aligned = AlignedText::FormC("ab e\u0301 c", 100).value();
  EXPECT_EQ(aligned.OffsetOf(90, true), 0);
  EXPECT_EQ(aligned.OffsetOf(102, true), 2);
  EXPECT_EQ(aligned.OffsetOf(104, true), 5);
  EXPECT_EQ(aligned.OffsetOf(104, false), 3);
  EXPECT_EQ(aligned.OffsetOf(107, false), 6);
  EXPECT_EQ(aligned.OffsetOf(1000, false), 7);
}

TEST(AlignedText, StretchesCoverTheInputInOrder) {
  for (const nlohmann::json& row : GoldenLines("cases.jsonl")) {
    const std::string text = row.at("text");
    const AlignedText aligned = AlignedText::FormC(text, 0).value();
    int64_t done = 0;
    for (size_t i = 0; i < aligned.text().size(); ++i) {
      const ByteRange range =
          aligned.InputRange(static_cast<int64_t>(i), static_cast<int64_t>(i + 1));
      ASSERT_TRUE(range.begin == done || (range.begin < done && range.end == done))
          << text << " at " << i;
      done = range.end;
    }
    ASSERT_EQ(done, static_cast<int64_t>(text.size())) << text;
  }
}

}  // namespace
}  // namespace tandem
