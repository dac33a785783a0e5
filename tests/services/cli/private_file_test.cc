// Files for one user alone.
#include "services/cli/private_file.h"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/support/process.h"

namespace tandem::cli {
namespace {

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
mode_t ModeOf(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

TEST(PrivateFile, ReplacesAndKeepsALink) {
  const test::TemporaryFolder folder;
  std::ofstream(folder.File("real")) << "a longer text that was there before";
  ASSERT_EQ(symlink(folder.File("real").c_str(), folder.File("link").c_str()), 0);
  EXPECT_TRUE(ReplacePrivateFile(folder.File("link"), "new").ok());
  EXPECT_EQ(Read(folder.File("real")), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder.File("link")));
  EXPECT_EQ(ModeOf(folder.File("real")), 0600u);
  EXPECT_FALSE(ReplacePrivateFile(folder.File("none/file"), "x").ok());
}

TEST(InputHistory, IsKeptForTheNextTimeInAFileOfThisUserAlone) {
  const test::TemporaryFolder folder;
  const std::string path = folder.File("state/tandem/chat_history");
  {
    InputHistory history(path);
    ASSERT_TRUE(history.Open().ok());
    EXPECT_TRUE(history.lines().empty());
    history.Add("one");
    history.Add("one");
    history.Add("");
    history.Add("two\nlines");
    history.Add("zwölf");
    history.Add(std::string(InputHistory::kMaxLineBytes + 1, 'x'));
  }
  EXPECT_EQ(ModeOf(path), 0600u);
  EXPECT_EQ(ModeOf(folder.File("state/tandem")), 0700u);
  EXPECT_EQ(Read(path), "one\nzwölf\n");
  InputHistory next(path);
  ASSERT_TRUE(next.Open().ok());
  EXPECT_EQ(next.lines(), (std::vector<std::string>{"one", "zwölf"}));
}

TEST(InputHistory, AFileThatOthersCouldReadIsMadePrivate) {
  const test::TemporaryFolder folder;
  std::ofstream(folder.File("h")) << "old\n";
  chmod(folder.File("h").c_str(), 0644);
  InputHistory history(folder.File("h"));
  ASSERT_TRUE(history.Open().ok());
  EXPECT_EQ(ModeOf(folder.File("h")), 0600u);
}

TEST(InputHistory, IsCutToItsLastLines) {
  const test::TemporaryFolder folder;
  std::ofstream file(folder.File("h"));
  const size_t count = 3 * InputHistory::kMaxLines;
  for (size_t i = 0; i < count; ++i) file << i << "\n";
  file.close();
  InputHistory history(folder.File("h"));
  ASSERT_TRUE(history.Open().ok());
  ASSERT_EQ(history.lines().size(), InputHistory::kMaxLines);
  EXPECT_EQ(history.lines().back(), std::to_string(count - 1));
  EXPECT_EQ(history.lines().front(), std::to_string(count - InputHistory::kMaxLines));
  const std::string left = Read(folder.File("h"));
  EXPECT_EQ(static_cast<size_t>(std::count(left.begin(), left.end(), '\n')),
            InputHistory::kMaxLines);
}

TEST(InputHistory, ThatCannotBeOpenedKeepsNothingAndGoesOn) {
  const test::TemporaryFolder folder;
  std::ofstream(folder.File("real")) << "secret\n";
  ASSERT_EQ(symlink(folder.File("real").c_str(), folder.File("link").c_str()), 0);
  InputHistory link(folder.File("link"));
  EXPECT_FALSE(link.Open().ok());
  link.Add("more");
  EXPECT_EQ(Read(folder.File("real")), "secret\n");
  EXPECT_EQ(link.lines(), std::vector<std::string>{"more"});
  InputHistory none("");
  EXPECT_TRUE(none.Open().ok());
}

TEST(InputHistory, BelongsWhereTheXdgSpecificationSays) {
  setenv("HOME", "/home/u", 1);
  setenv("XDG_STATE_HOME", "/state", 1);
  EXPECT_EQ(InputHistory::DefaultPath(), "/state/tandem/chat_history");
  setenv("XDG_STATE_HOME", "relative", 1);
  EXPECT_EQ(InputHistory::DefaultPath(), "/home/u/.local/state/tandem/chat_history");
  unsetenv("XDG_STATE_HOME");
  EXPECT_EQ(InputHistory::DefaultPath(), "/home/u/.local/state/tandem/chat_history");
  unsetenv("HOME");
  EXPECT_EQ(InputHistory::DefaultPath(), "");
}

}  // namespace
}  // namespace tandem::cli
