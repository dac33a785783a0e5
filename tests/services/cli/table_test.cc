// Tables, numbers and times for people.
#include "services/cli/table.h"

#include <gtest/gtest.h>

#include "services/cli/terminal.h"

namespace tandem::cli {
namespace {

using enum Table::Align;

TEST(Table, AlignsByCharactersAndLeavesNoSpacesAtTheEnd) {
  Table table({{"NAME", kLeft}, {"N"}, {"", kLeft}});
  table.AddRow({"wörld", "7", "x"});
  table.AddRow({"a", "1,234", ""});
  EXPECT_EQ(table.Text(0),
            "NAME       N\n"
            "wörld      7  x\n"
            "a      1,234\n");
}

TEST(Table, ColumnsThatDoNotFitComeBelowBehindTheFirstOne) {
  Table table({{"FIRST", kLeft}, {"SECOND"}, {"THIRD"}});
  table.AddRow({"a", "b", "c"});
  EXPECT_EQ(table.Text(20), "FIRST  SECOND  THIRD\na           b      c\n");
  const std::string two = "FIRST  SECOND\na           b\n\nFIRST  THIRD\na          c\n";
  EXPECT_EQ(table.Text(19), two);
  EXPECT_EQ(table.Text(1), two) << "one at a time, at least";
}

TEST(Table, ShowsNoControlCharacters) {
  Table table({{"A", kLeft}});
  table.AddRow({"a\x1b[2J\tb\nc"});
  EXPECT_EQ(table.Text(0), "A\na\xEF\xBF\xBD[2J b c\n");
}

TEST(Terminal, CutsALineAtCodePoints) {
  EXPECT_EQ(CutToWidth("wörld", 5), "wörld");
  EXPECT_EQ(CutToWidth("wörld", 2), "wö");
  EXPECT_EQ(CutToWidth("", 3), "");
  EXPECT_EQ(CutToWidth("abc", 0), "");
}

TEST(Terminal, ControlCharactersOfATextBecomeReplacementCharacters) {
  EXPECT_EQ(ForTerminal("a\x1b]0;t\x07\r\x7f\xC2\x9B"
                        "b\n\t\xC2\xA0"),
            "a\xEF\xBF\xBD]0;t\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
            "b\n\t\xC2\xA0");
}

TEST(Numbers, HaveCommas) {
  EXPECT_EQ(WithCommas(0), "0");
  EXPECT_EQ(WithCommas(999), "999");
  EXPECT_EQ(WithCommas(1000), "1,000");
  EXPECT_EQ(WithCommas(-123456), "-123,456");
  EXPECT_EQ(WithCommas(INT64_MIN), "-9,223,372,036,854,775,808");
}

TEST(Times, HaveAUnitThatFits) {
  EXPECT_EQ(ShortTime(0), "0 us");
  EXPECT_EQ(ShortTime(0.000850), "850 us");
  EXPECT_EQ(ShortTime(0.0009996), "1.0 ms");
  EXPECT_EQ(ShortTime(0.01234), "12.3 ms");
  EXPECT_EQ(ShortTime(0.4567), "457 ms");
  EXPECT_EQ(ShortTime(0.9997), "1.00 s");
  EXPECT_EQ(ShortTime(4.561), "4.56 s");
  EXPECT_EQ(ShortTime(123.4), "123 s");
}

}  // namespace
}  // namespace tandem::cli
