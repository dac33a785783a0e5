// What runs once an event allocates nothing once it is warm.
#include <gtest/gtest.h>

#include "tests/services/common/http/http_fixture.h"
#include "tests/support/allocation_counter.h"

namespace tandem::test {
namespace {

TEST_F(HttpServerTest, AnEventOfAStreamAllocatesNothing) {
  Serve();
  RawClient client(port());
  client.Send(RequestText("GET", "/stream"));
  const Asked asked = Next();
  asked.exchange->StartStream({.content_type = "text/event-stream"});
  asked.exchange->Flush();
  client.ReadUntil("\r\n\r\n");
  const std::string event(300, 'e');
  const int64_t chunk = 10 + 300 + 2;
  const auto send = [&](int count) {
    for (int i = 0; i < count; ++i) {
      asked.exchange->Write(event);
      asked.exchange->Flush();
      ASSERT_TRUE(client.Discard(chunk));
    }
  };
  send(100);
  const int64_t before = AllocatedBytes();
  send(1000);
  EXPECT_EQ(AllocatedBytes() - before, 0);
}

}  // namespace
}  // namespace tandem::test
