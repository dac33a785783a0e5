// Events out of bytes, however these are cut.
#include "services/cli/sse_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::cli {
namespace {

std::vector<std::string> Events(const std::string& bytes, size_t piece) {
  SseReader reader;
  std::vector<std::string> events;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    EXPECT_TRUE(reader
                    .Feed(bytes.substr(at, piece),
                          [&events](const std::string& data) { events.push_back(data); })
                    .ok());
  }
  return events;
}

TEST(SseReader, GivesTheSameEventsHoweverTheBytesAreCut) {
  const std::string bytes =
      ": a comment\n\ndata: {\"a\": 1}\n\nevent: x\r\nid: 7\r\ndata:two\r\ndata: lines\r\n\r\n"
      "data\rdata:  kept space\r\rretry: 3\n\ndata: [DONE]\n\ndata: not ended\n";
  const std::vector<std::string> expected = {"{\"a\": 1}", "two\nlines", "\n kept space", "[DONE]"};
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    EXPECT_EQ(Events(bytes, piece), expected) << "pieces of " << piece;
  }
}

TEST(SseReader, AFieldWhoseNameOnlyBeginsWithDataIsNone) {
  EXPECT_EQ(Events("database: x\n\ndata: y\n\n", 3), std::vector<std::string>{"y"});
}

TEST(SseReader, AnEventHasALimit) {
  SseReader reader;
  int events = 0;
  const auto count = [&events](const std::string&) { ++events; };
  const std::string most(SseReader::kMaxEventBytes - 6, 'x');
  EXPECT_TRUE(reader.Feed("data: " + most + "\n\n", count).ok());
  EXPECT_EQ(events, 1);
  EXPECT_EQ(reader.Feed("data: " + most + "x", count).code(), absl::StatusCode::kResourceExhausted);
}

TEST(SseReader, TheLimitIsOfAllLinesOfAnEvent) {
  SseReader reader;
  absl::Status status;
  const std::string line = "data: " + std::string(100'000, 'x') + "\n";
  for (int i = 0; i < 100 && status.ok(); ++i)
    status = reader.Feed(line, [](const std::string&) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tandem::cli
