// Requests and responses: connections that are kept, bodies of all kinds, versions, disconnects.
#include <gmock/gmock.h>

#include "tests/services/common/http/http_fixture.h"

namespace tandem::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST_F(HttpServerTest, AConnectionServesOneRequestAfterTheOther) {
  Serve();
  RawClient client(port());
  for (int i = 0; i < 3; ++i) {
    const std::string body = "body " + std::to_string(i);
    ASSERT_TRUE(client.Send(RequestText("POST", "/echo?a=b%20c", body)));
    const RawResponse response = client.Read();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "POST /echo a=b%20c " + body);
    EXPECT_EQ(response.Header("content-type"), "text/plain");
    EXPECT_EQ(response.Header("connection"), "");
    EXPECT_EQ(response.Header("date").size(), 29u);
  }
  EXPECT_EQ(server_->connections(), 1);
}

TEST_F(HttpServerTest, ALineBehindABodyIsSkippedHoweverItIsCut) {
  Serve();
  for (const size_t cut : {0, 1, 2}) {
    RawClient client(port());
    const std::string line = "\r\n";
    client.Send(RequestText("POST", "/echo", "first") + line.substr(0, cut));
    EXPECT_EQ(client.Read().body, "POST /echo  first");
    client.Send(line.substr(cut) + RequestText("POST", "/echo", "second"));
    EXPECT_EQ(client.Read().body, "POST /echo  second") << cut;
  }
}

TEST_F(HttpServerTest, AClientThatWantsNoMoreOfTheConnectionHasItClosed) {
  Serve();
  RawClient client(port());
  client.Send(RequestText("GET", "/echo", "", "Connection: close\r\n"));
  const RawResponse response = client.Read();
  EXPECT_EQ(response.Header("connection"), "close");
  EXPECT_TRUE(client.Ended());
  client.Close();
  EXPECT_TRUE(NoneIsOpen());
}

TEST_F(HttpServerTest, RequestsThatComeAheadAreAnsweredInOrderAndAreNoDisconnect) {
  Serve();
  RawClient client(port());
  client.Send(RequestText("GET", "/late") + RequestText("POST", "/echo", "second") +
              RequestText("GET", "/echo"));
  const Asked late = Next();
  // More comes while the response is being made, and nothing of it is answered before.
  client.Send(RequestText("POST", "/echo", "fourth"));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(late.events->gone, 0);
  std::thread other([&] { late.exchange->Send({.body = "first"}); });
  EXPECT_EQ(client.Read().body, "first");
  EXPECT_EQ(client.Read().body, "POST /echo  second");
  EXPECT_EQ(client.Read().body, "GET /echo  ");
  EXPECT_EQ(client.Read().body, "POST /echo  fourth");
  other.join();
}

TEST_F(HttpServerTest, AClientFarAheadIsNotReadAndLosesNothing) {
  options_.max_body_bytes = 1 << 20;
  Serve();
  RawClient client(port());
  client.Send(RequestText("GET", "/late"));
  const Asked late = Next();
  const std::string body(200 << 10, 'x');
  std::thread sender([&] {
    for (int i = 0; i < 20; ++i) client.Send(RequestText("POST", "/echo", body));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(late.events->gone, 0);
  late.exchange->Send({.body = "first"});
  EXPECT_EQ(client.Read().body, "first");
  for (int i = 0; i < 20; ++i) EXPECT_EQ(client.Read().body, "POST /echo  " + body);
  sender.join();
}

TEST_F(HttpServerTest, AChunkedBodyIsJoinedHoweverItIsCut) {
  Serve();
  const std::string text =
      "POST /echo HTTP/1.1\r\nhost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\n1;name=value\r\n,\r\n0000A\r\n 0123456\r\n\r\n0\r\nTrailer: t\r\n\r\n";
  {
    RawClient client(port());
    client.Send(text);
    EXPECT_EQ(client.Read().body, "POST /echo  hello, 0123456\r\n");
  }
  RawClient client(port());
  for (const char c : text) {
    client.Send({&c, 1});
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  EXPECT_EQ(client.Read().body, "POST /echo  hello, 0123456\r\n");
}

TEST_F(HttpServerTest, HeadIsAnsweredWithTheHeadersOfGet) {
  Serve();
  RawClient client(port());
  client.Send(RequestText("HEAD", "/echo") + RequestText("GET", "/echo"));
  const RawResponse head = client.Read(/*head_only=*/true);
  EXPECT_EQ(head.Header("content-length"), "12");
  EXPECT_EQ(client.Read().body, "GET /echo  ");
}

TEST_F(HttpServerTest, AClientThatExpectsItIsToldToGoOn) {
  Serve();
  RawClient client(port());
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.Read().status, 100);
  client.Send("body");
  EXPECT_EQ(client.Read().body, "POST /echo  body");
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: tea\r\n\r\n");
  EXPECT_EQ(client.Read().status, 417);
}

TEST_F(HttpServerTest, AnOldClientGetsAStreamUpToTheEndOfTheConnection) {
  Serve();
  RawClient client(port());
  client.Send("GET /stream HTTP/1.0\r\n\r\n");
  const Asked asked = Next();
  asked.exchange->StartStream({.content_type = "text/event-stream"});
  asked.exchange->Write("one ");
  asked.exchange->Flush();
  asked.exchange->Write("two");
  asked.exchange->End();
  const RawResponse response = client.Read();
  EXPECT_EQ(response.Header("transfer-encoding"), "");
  EXPECT_EQ(response.Header("connection"), "close");
  EXPECT_EQ(response.body, "one two");
}

TEST_F(HttpServerTest, AnOldClientKeepsItsConnectionIfItAsks) {
  Serve();
  RawClient client(port());
  for (int i = 0; i < 2; ++i) {
    client.Send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_EQ(client.Read().Header("connection"), "keep-alive");
  }
}

TEST_F(HttpServerTest, AStreamArrivesAsItIsWrittenAndTheConnectionGoesOn) {
  Serve();
  RawClient client(port());
  client.Send(RequestText("GET", "/stream"));
  const Asked asked = Next();
  asked.exchange->StartStream({.content_type = "text/event-stream"});
  asked.exchange->Flush();
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), HasSubstr("Transfer-Encoding: chunked"));
  for (const std::string event : {"data: 1\n\n", "data: 2\n\n"}) {
    asked.exchange->Write(event);
    asked.exchange->Flush();
    EXPECT_EQ(client.ReadUntil("\n\n\r\n"), "00000009\r\n" + event + "\r\n");
  }
  // What is written before a flush is one chunk.
  asked.exchange->Write("data: 3\n\n");
  asked.exchange->Write("data: 4\n\n");
  asked.exchange->End();
  EXPECT_EQ(client.ReadUntil("0\r\n\r\n"), "00000012\r\ndata: 3\n\ndata: 4\n\n\r\n0\r\n\r\n");
  client.Send(RequestText("GET", "/echo"));
  EXPECT_EQ(client.Read().status, 200);
  EXPECT_EQ(asked.events->gone, 0);
  EXPECT_TRUE(Eventually([&] { return statuses() == std::vector<int>{200, 200}; }));
}

TEST_F(HttpServerTest, AnEmptyStreamHasAnEnd) {
  Serve();
  RawClient client(port());
  client.Send(RequestText("GET", "/stream"));
  const Asked asked = Next();
  asked.exchange->StartStream({});
  asked.exchange->End();
  const RawResponse response = client.Read();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "");
}

TEST_F(HttpServerTest, ManyThreadsWriteTheirOwnStreams) {
  constexpr int kStreams = 16;
  Serve();
  std::vector<std::unique_ptr<RawClient>> clients;
  std::vector<std::thread> writers;
  std::string expected;
  for (int e = 0; e < 500; ++e) expected += "event " + std::to_string(e) + "\n";
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<RawClient>(port()));
    clients.back()->Send(RequestText("GET", "/stream"));
    writers.emplace_back([exchange = Next().exchange] {
      exchange->StartStream({});
      for (int e = 0; e < 500; ++e) {
        exchange->Write("event " + std::to_string(e) + "\n");
        exchange->Flush();
      }
      exchange->End();
    });
  }
  for (const auto& client : clients) EXPECT_EQ(client->Read().body, expected);
  for (std::thread& writer : writers) writer.join();
}

TEST_F(HttpServerTest, AClientThatClosesIsNoticedThoughNothingIsSent) {
  Serve();
  for (const bool reset : {false, true}) {
    RawClient client(port());
    client.Send(RequestText("GET", "/never"));
    const Asked asked = Next();
    EXPECT_FALSE(asked.exchange->gone());
    reset ? client.Reset() : client.Close();
    EXPECT_TRUE(Eventually([&] { return asked.events->gone == 1; }));
    EXPECT_TRUE(asked.exchange->gone());
    // All of this is ignored.
    asked.exchange->StartStream({});
    asked.exchange->Write("x");
    asked.exchange->Flush();
    asked.exchange->End();
    EXPECT_EQ(asked.exchange->waiting_bytes(), 0);
  }
  EXPECT_TRUE(NoneIsOpen());
  EXPECT_THAT(statuses(), ElementsAre(499, 499));
}

TEST_F(HttpServerTest, AClientThatClosesBehindMoreRequestsIsNoticed) {
  Serve();
  RawClient client(port());
  client.Send(RequestText("GET", "/never") + RequestText("GET", "/never"));
  const Asked asked = Next();
  client.Close();
  EXPECT_TRUE(Eventually([&] { return asked.events->gone == 1; }));
  EXPECT_TRUE(NoneIsOpen());
  EXPECT_EQ(waiting(), 0u) << "nobody waits for the second";
}

TEST_F(HttpServerTest, WhoeverAsksToBeToldLateIsToldThatTheClientIsGone) {
  Serve();
  RawClient client(port());
  client.Send(RequestText("GET", "/never"));
  const Asked asked = Next();
  client.Close();
  ASSERT_TRUE(Eventually([&] { return asked.exchange->gone(); }));
  const auto late = std::make_shared<SeenEvents>();
  asked.exchange->Watch(late);
  EXPECT_EQ(late->gone, 1);
}

TEST_F(HttpServerTest, AClientThatSendsNoMoreGetsWhatIsReadyAndIsGoneForWhatIsNot) {
  Serve();
  {
    RawClient client(port());
    client.Send(RequestText("GET", "/echo") + RequestText("POST", "/echo", "two"));
    client.EndSending();
    EXPECT_EQ(client.Read().body, "GET /echo  ");
    EXPECT_EQ(client.Read().body, "POST /echo  two");
    EXPECT_TRUE(client.Ended());
  }
  RawClient client(port());
  client.Send(RequestText("GET", "/never"));
  const Asked asked = Next();
  client.EndSending();
  EXPECT_TRUE(Eventually([&] { return asked.events->gone == 1; }));
  EXPECT_TRUE(client.Ended());
}

TEST_F(HttpServerTest, AddressesAreCheckedByName) {
  const auto message = [this](const std::string& listen) {
    options_.listen = listen;
    return std::string(HttpServer::Start(options_, this).status().message());
  };
  for (const char* bad : {"", "x", ":80", "host:", "host:65536", "host:-1", "host:1x"}) {
    EXPECT_THAT(message(bad), AllOf(HasSubstr("--http-listen"), HasSubstr("host:port"))) << bad;
  }
  EXPECT_THAT(message("::1:80"), HasSubstr("brackets"));
  Serve();
  options_.listen = server_->address();
  const absl::Status taken = HttpServer::Start(options_, this).status();
  EXPECT_EQ(taken.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(taken.message()), HasSubstr(server_->address()));
  EXPECT_THAT(server_->address(), Not(HasSubstr(":0")));
}

}  // namespace
}  // namespace tandem::test
