// What a chat can take back, save and load.
#include "services/cli/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <fstream>

#include "tests/support/process.h"

namespace tandem::cli {
namespace {

using testing::HasSubstr;

std::string Text(const Conversation& conversation) {
  std::string text;
  for (const v1::Message& message : conversation.chat().messages()) {
    text += message.role() + ":" + message.content() + ";";
  }
  return text;
}

TEST(Conversation, TheSystemMessageStaysFirstThroughEverything) {
  Conversation conversation;
  conversation.AddQuestion("q");
  conversation.SetSystem("one");
  conversation.AddAnswer("a");
  conversation.SetSystem("two");
  EXPECT_EQ(Text(conversation), "system:two;user:q;assistant:a;");
  conversation.Reset();
  EXPECT_EQ(Text(conversation), "system:two;");
  conversation.SetSystem("");
  EXPECT_EQ(Text(conversation), "");
  EXPECT_EQ(conversation.system(), "");
}

TEST(Conversation, TakesBackTheLastQuestionWithItsAnswer) {
  Conversation conversation;
  conversation.SetSystem("s");
  conversation.AddQuestion("q1");
  conversation.AddAnswer("a1");
  conversation.AddQuestion("q2");
  conversation.AddAnswer("a2");
  EXPECT_EQ(conversation.TakeBackQuestion(), "q2");
  EXPECT_EQ(Text(conversation), "system:s;user:q1;assistant:a1;");
  conversation.AddQuestion("q3");
  EXPECT_EQ(conversation.TakeBackQuestion(), "q3");
  EXPECT_EQ(conversation.TakeBackQuestion(), "q1");
  EXPECT_EQ(conversation.TakeBackQuestion(), std::nullopt);
  EXPECT_EQ(Text(conversation), "system:s;");
}

class ConversationFile : public testing::Test {
 protected:
  absl::Status Load(const std::string& content) {
    std::ofstream(path_) << content;
    return conversation_.Load(path_);
  }
  const test::TemporaryFolder folder_;
  const std::string path_ = folder_.File("c.json");
  Conversation conversation_;
};

TEST_F(ConversationFile, LoadedIsWhatWasSaved) {
  conversation_.SetSystem("be\nbrief");
  conversation_.AddQuestion("\"ö\" \x1b");
  conversation_.AddAnswer("");
  ASSERT_TRUE(conversation_.Save(path_).ok());
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  Conversation loaded;
  loaded.AddQuestion("what was there before");
  ASSERT_TRUE(loaded.Load(path_).ok());
  EXPECT_EQ(Text(loaded), Text(conversation_));
  EXPECT_EQ(loaded.system(), "be\nbrief");
  loaded.Reset();
  EXPECT_EQ(Text(loaded), "system:be\nbrief;");
}

TEST_F(ConversationFile, AnErrorChangesNothing) {
  conversation_.AddQuestion("kept");
  for (const char* content :
       {"", "no json", "[]", "{\"messages\": 3}", "{\"messages\": [{\"role\": \"user\"}]}",
        "{\"messages\": [{\"role\": \"user\", \"content\": 3}]}", "{\"messages\": [\"x\"]}"}) {
    const absl::Status status = Load(content);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << content << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
  }
  EXPECT_EQ(conversation_.Load(folder_.File("none")).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(conversation_.Load("/").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Load(std::string(Conversation::kMaxFileBytes + 1, ' ')).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Text(conversation_), "user:kept;");
  EXPECT_EQ(conversation_.Save(folder_.File("no/such/folder")).code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tandem::cli
