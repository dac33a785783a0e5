// A request is the same however the network cut it, and what is no request is an end, not a crash.
#include "services/common/http/request_reader.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace tandem {
namespace {

using State = RequestReader::State;

constexpr RequestLimits kLimits{.max_body_bytes = 1000, .max_header_bytes = 2000};

const std::vector<std::string>& Samples() {
  static const auto& samples = *new std::vector<std::string>{
      "GET /a%20b?c HTTP/1.1\r\nHost: h\r\nX-Name:  value \r\n\r\n",
      "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
      "POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: t\r\n\r\n",
      "POST /p HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello",
  };
  return samples;
}

// Gives the bytes in pieces that end at `cuts`, as a connection does.
State Feed(RequestReader& reader, const std::string& bytes, const std::vector<size_t>& cuts) {
  std::string waiting;
  size_t given = 0;
  State state = State::kHeader;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const size_t end = i < cuts.size() ? cuts[i] : bytes.size();
    waiting.append(bytes, given, end - given);
    given = end;
    size_t used = 0;
    state = reader.Put(waiting, &used);
    EXPECT_LE(used, waiting.size());
    waiting.erase(0, used);
    if (state == State::kDone || state == State::kFailed) break;
  }
  return state;
}

TEST(RequestReader, ARequestIsTheSameHoweverItIsCut) {
  for (const std::string& sample : Samples()) {
    RequestReader whole(kLimits);
    ASSERT_EQ(Feed(whole, sample, {}), State::kDone) << sample << whole.reason();
    const HttpRequest expected = whole.TakeRequest();
    for (size_t first = 0; first < sample.size(); ++first) {
      for (size_t second = first; second < sample.size(); second += 3) {
        RequestReader reader(kLimits);
        ASSERT_EQ(Feed(reader, sample, {first, second}), State::kDone) << first << " " << second;
        EXPECT_EQ(reader.keep_alive(), whole.keep_alive());
        const HttpRequest request = reader.TakeRequest();
        ASSERT_EQ(request.method, expected.method);
        ASSERT_EQ(request.path, expected.path);
        ASSERT_EQ(request.query, expected.query);
        ASSERT_EQ(request.body, expected.body);
      }
    }
  }
}

TEST(RequestReader, ItStopsBehindTheRequest) {
  for (const std::string& sample : Samples()) {
    RequestReader reader(kLimits);
    size_t used = 0;
    EXPECT_EQ(reader.Put(sample + "GET /next", &used), State::kDone);
    EXPECT_EQ(used, sample.size());
  }
}

TEST(RequestReader, DamagedRequestsEndSomehow) {
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return random() % n; };
  int failed = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = Samples()[below(Samples().size())];
    for (size_t edits = 1 + below(3); edits > 0; --edits) {
      const size_t at = below(bytes.size());
      switch (below(3)) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, 1 + below(4));
          break;
        default:
          bytes.insert(at, bytes, below(bytes.size()), 1 + below(8));
      }
      if (bytes.empty()) bytes = "x";
    }
    RequestReader reader(kLimits);
    const State state = Feed(reader, bytes, {below(bytes.size())});
    if (state == State::kFailed) {
      ++failed;
      EXPECT_GE(reader.status(), 400);
      EXPECT_FALSE(reader.reason().empty());
    } else if (state == State::kDone) {
      EXPECT_LE(reader.TakeRequest().body.size(), 1000u);
    }
  }
  EXPECT_GT(failed, 1000);
}

}  // namespace
}  // namespace tandem
