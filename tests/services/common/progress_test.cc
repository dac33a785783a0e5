#include "services/common/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace tandem {
namespace {

TEST(Progress, IsALineEveryQuarterWhereNobodyWatches) {
  std::ostringstream out;
  Progress progress("loading", false, out);
  for (int done = 0; done <= 1000; ++done) progress.Update(done, 1000);
  EXPECT_EQ(out.str(), "loading: 25 %\nloading: 50 %\nloading: 75 %\nloading: 100 %\n");
}

TEST(Progress, OneJumpIsOneLine) {
  std::ostringstream out;
  Progress progress("loading", false, out);
  progress.Update(80, 100);
  progress.Update(100, 100);
  EXPECT_EQ(out.str(), "loading: 75 %\nloading: 100 %\n");
}

TEST(Progress, RedrawsOneLineOnATerminalAndEndsIt) {
  std::ostringstream out;
  Progress progress("loading", true, out);
  for (int done = 0; done <= 1000; ++done) progress.Update(done, 1000);
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 101) << "one drawing for each percent";
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  EXPECT_NE(text.find("[" + std::string(16, '#') + std::string(16, '.') + "] 50 %"),
            std::string::npos);
}

TEST(Progress, ABarThatIsCutShortEndsItsLine) {
  std::ostringstream out;
  { Progress("loading", true, out).Update(1, 2); }
  EXPECT_EQ(out.str().back(), '\n');
}

TEST(Progress, ABarFitsANarrowTerminal) {
  for (const int columns : {32, 40, 60, 80, 200}) {
    std::ostringstream out;
    Progress progress("reading the prompt", true, out, columns);
    progress.Update(1, 1);
    const size_t width = out.str().size() - 2;  // without \r and \n
    EXPECT_LT(width, static_cast<size_t>(columns)) << out.str();
    EXPECT_LT(width, 64u);
  }
}

TEST(Progress, NothingToDoIsDone) {
  std::ostringstream out;
  Progress("loading", false, out).Update(0, 0);
  EXPECT_EQ(out.str(), "loading: 100 %\n");
}

}  // namespace
}  // namespace tandem
