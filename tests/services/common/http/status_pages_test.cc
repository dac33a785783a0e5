#include "services/common/http/status_pages.h"

#include <gmock/gmock.h>

#include <atomic>

#include "tests/support/raw_client.h"

namespace tandem::test {
namespace {

TEST(StatusPages, SayHowTheServerIsAndWhatItCounted) {
  std::atomic<bool> serving{true};
  StatusPages pages(
      [&] { return serving ? absl::OkStatus() : absl::UnavailableError("it drains"); },
      [] { return std::string("up 1\n"); });
  const auto server = HttpServer::Start({.listen = "127.0.0.1:0", .threads = 1}, &pages);
  ASSERT_TRUE(server.ok()) << server.status();
  const int port = (*server)->port();
  EXPECT_EQ(Fetch(port, "GET", "/health").status, 200);
  const RawResponse metrics = Fetch(port, "GET", "/metrics");
  EXPECT_EQ(metrics.body, "up 1\n");
  EXPECT_THAT(metrics.Header("content-type"), testing::HasSubstr("version=0.0.4"));
  serving = false;
  const RawResponse drains = Fetch(port, "GET", "/health");
  EXPECT_EQ(drains.status, 503);
  EXPECT_THAT(drains.body, testing::HasSubstr("it drains"));
  EXPECT_EQ(Fetch(port, "POST", "/health", "x").Header("allow"), "GET, HEAD");
  EXPECT_EQ(Fetch(port, "GET", "/v1/models").status, 404);
}

TEST(StatusPages, WithoutMetricsThereIsNoSuchPage) {
  StatusPages pages([] { return absl::OkStatus(); }, nullptr);
  const auto server = HttpServer::Start({.listen = "127.0.0.1:0", .threads = 1}, &pages);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(Fetch((*server)->port(), "GET", "/metrics").status, 404);
}

}  // namespace
}  // namespace tandem::test
