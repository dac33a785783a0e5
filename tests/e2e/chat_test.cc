// A person at a terminal who talks to a tiny model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/e2e/fleet.h"
#include "tests/support/pty.h"
#include "tests/support/tiny_model.h"

namespace tandem::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kPrompt[] = "> ";
// An answer that ends with it is not over when somebody presses a key.
constexpr int32_t kContext = 65536;

class Chat : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    std::ofstream(folder_->File("tiny.gguf"), std::ios::binary)
        << TinyModel({.context_length = kContext});
    fleet_ = new Fleet({folder_->File("tiny.gguf"),
                        {"--max-sessions", "2", "--kv-tokens", std::to_string(kContext)},
                        {}});
  }
  static void TearDownTestSuite() {
    delete fleet_;
    delete folder_;
  }
  // A chat, up to its first prompt.
  std::unique_ptr<Pty> Start(std::vector<std::string> flags = {"--max-tokens", "8",
                                                               "--ignore-eos"}) {
    flags.insert(flags.begin(),
                 {ProgramPath("tandem"), "chat", "--server", fleet_->text_address()});
    auto pty = std::make_unique<Pty>(
        flags,
        std::vector<std::string>{"XDG_STATE_HOME=" + state_.File("state"), "LC_ALL=C.UTF-8"});
    EXPECT_THAT(pty->WaitFor(kPrompt), HasSubstr("/help"));
    return pty;
  }
  // What comes between a line and the next prompt.
  static std::string Say(Pty& pty, const std::string& line) {
    pty.Type(line + "\r");
    return pty.WaitFor(std::string("\x1b[?2004h") + kPrompt);
  }
  json Saved(Pty& pty) {
    const std::string file = state_.File("saved.json");
    EXPECT_THAT(Say(pty, "/save " + file), HasSubstr("(saved"));
    std::ifstream in(file);
    return json::parse(in, nullptr, false)["messages"];
  }
  std::string HistoryFile() const { return state_.File("state/tandem/chat_history"); }

  static Fleet* fleet_;
  static TemporaryFolder* folder_;
  const TemporaryFolder state_;
};
Fleet* Chat::fleet_ = nullptr;
TemporaryFolder* Chat::folder_ = nullptr;

TEST_F(Chat, AnswersKeepsTheConversationAndLeavesWithCtrlD) {
  const auto pty = Start();
  Say(*pty, "one");
  Say(*pty, "//two");
  const json messages = Saved(*pty);
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[0]["content"], "one");
  EXPECT_EQ(messages[1]["role"], "assistant");
  EXPECT_EQ(messages[2]["content"], "/two");
  pty->Type("\x04");
  EXPECT_EQ(pty->Wait(), 0);
}

TEST_F(Chat, CtrlCStopsTheAnswerAndNotTheProgramAndLeavesFromAnEmptyPrompt) {
  const auto pty = Start({"--ignore-eos"});
  pty->Type("go on for long\r");
  pty->WaitFor("\x1b[?2004l");
  EXPECT_THAT(pty->WaitFor("a"), Not(HasSubstr("nothing like it"))) << "the answer has begun";
  pty->Type("\x03");
  EXPECT_THAT(pty->WaitFor(std::string("\x1b[?2004h") + kPrompt), HasSubstr("[stopped]"));
  EXPECT_TRUE(fleet_->WorkerIsFreeSoon());
  EXPECT_THAT(Say(*pty, "/set max-tokens 4"), HasSubstr("(max-tokens is 4)"));
  EXPECT_THAT(Say(*pty, "again"), Not(HasSubstr("error")));
  // What is typed is thrown away first.
  pty->Type("half a line");
  pty->WaitFor("half a line");
  pty->Type("\x03");
  pty->WaitFor(std::string("\x1b[?2004h") + kPrompt);
  const json messages = Saved(*pty);
  EXPECT_EQ(messages[messages.size() - 2]["content"], "again");
  pty->Type("\x03");
  EXPECT_EQ(pty->Wait(), 130);
}

TEST_F(Chat, AMessageOfSeveralLinesIsTypedWithABackslashOrPasted) {
  const auto pty = Start();
  pty->Type("first\\\r");
  pty->WaitFor(". ");
  Say(*pty,
      "s\xC3\xA9"
      "cond");
  Say(*pty, "\x1b[200~pasted\r\n\x1b[31mlines\x1b[201~!");
  const json messages = Saved(*pty);
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[0]["content"], "first\nsécond");
  EXPECT_EQ(messages[2]["content"], "pasted\n\n[31mlines!");
}

TEST_F(Chat, UndoRetryResetAndTheSystemMessageChangeWhatIsSent) {
  const auto pty = Start({"--max-tokens", "4", "--ignore-eos", "--system", "be brief"});
  EXPECT_THAT(Say(*pty, "/undo"), HasSubstr("no question"));
  Say(*pty, "one");
  Say(*pty, "two");
  EXPECT_THAT(Say(*pty, "/undo"), HasSubstr("took back"));
  EXPECT_THAT(Say(*pty, "/retry"), Not(HasSubstr("error")));
  json messages = Saved(*pty);
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(messages[0]["content"], "be brief");
  EXPECT_EQ(messages[1]["content"], "one");
  EXPECT_THAT(Say(*pty, "/system"), HasSubstr("be brief"));
  Say(*pty, "/system -");
  messages = Saved(*pty);
  EXPECT_EQ(messages.size(), 2u);
  Say(*pty, "/reset");
  EXPECT_EQ(Saved(*pty).size(), 0u);
}

TEST_F(Chat, LoadGoesOnWithWhatWasSavedAndABadFileChangesNothing) {
  const auto pty = Start();
  Say(*pty, "one");
  const json before = Saved(*pty);
  Say(*pty, "/reset");
  EXPECT_THAT(Say(*pty, "/load " + state_.File("saved.json")), HasSubstr("loaded 2 messages"));
  std::ofstream(state_.File("bad")) << "{}";
  EXPECT_THAT(Say(*pty, "/load " + state_.File("bad")), HasSubstr("error: "));
  EXPECT_EQ(Saved(*pty), before);
}

TEST_F(Chat, SetIsCheckedAndShownAndUnsetGoesBack) {
  const auto pty = Start();
  EXPECT_THAT(Say(*pty, "/set"), HasSubstr("nothing is set"));
  EXPECT_THAT(Say(*pty, "/set temperature warm"), HasSubstr("error: "));
  EXPECT_THAT(Say(*pty, "/set top-q 3"), HasSubstr("top-q"));
  EXPECT_THAT(Say(*pty, "/set temperature -1"), HasSubstr("is -1"));
  // The range is the server's: the question is taken back, and asked again once it is right.
  EXPECT_THAT(Say(*pty, "hello"), AllOf(HasSubstr("temperature"), HasSubstr("taken back")));
  Say(*pty, "/unset temperature");
  EXPECT_THAT(Say(*pty, "hello"), Not(HasSubstr("error")));
  EXPECT_THAT(Say(*pty, "/stats"), HasSubstr("1 answers"));
  EXPECT_THAT(Say(*pty, "/nonsense"), HasSubstr("unknown command /nonsense"));
  EXPECT_THAT(Say(*pty, "/undo now"), HasSubstr("takes no argument"));
  EXPECT_EQ(Saved(*pty).size(), 2u);
}

TEST_F(Chat, WhatWasTypedIsThereAgainNextTimeForThisUserAlone) {
  {
    const auto pty = Start();
    Say(*pty, "/set seed 5");
    pty->Type("/quit\r");
    EXPECT_EQ(pty->Wait(), 0);
  }
  struct stat info {};
  ASSERT_EQ(stat(HistoryFile().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const auto pty = Start();
  pty->Type("\x1b[A\x1b[A");  // up, past /quit
  EXPECT_THAT(pty->WaitFor("/set seed 5"), Not(HasSubstr("nothing like it")));
}

TEST_F(Chat, NoHistoryKeepsNothing) {
  const auto pty = Start({"--no-history"});
  Say(*pty, "/set seed 5");
  pty->Type("/quit\r");
  EXPECT_EQ(pty->Wait(), 0);
  EXPECT_NE(access(HistoryFile().c_str(), F_OK), 0);
}

}  // namespace
}  // namespace tandem::test
