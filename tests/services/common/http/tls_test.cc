// The same over TLS: handshakes, client certificates, certificates that are renewed.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tests/services/common/certificates.h"
#include "tests/services/common/http/http_fixture.h"
#include "tests/support/process.h"

namespace tandem::test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class HttpTlsTest : public HttpServerTest {
 protected:
  std::string Write(const std::string& name, const std::string& content) {
    const std::string path = folder_.File(name);
    std::ofstream(path) << content;
    return path;
  }
  // The server's certificate, signed by `authority`.
  void Show(const Authority& authority) {
    const Authority::Identity identity = authority.Issue("server");
    options_.tls.certificate = Write("server.crt", identity.certificate);
    options_.tls.key = Write("server.key", identity.key);
  }
  RawClient::Options ClientOf(const Authority& authority, const std::string& name = "ca.crt") {
    return {.tls = true, .authority = Write(name, authority.certificate())};
  }

  TemporaryFolder folder_;
  const Authority authority_{"authority"};
};

TEST_F(HttpTlsTest, ServesRequestsAndStreams) {
  Show(authority_);
  Serve();
  RawClient client(port(), ClientOf(authority_));
  ASSERT_TRUE(client.connected());
  const std::string body(300 << 10, 'b');
  client.Send(RequestText("POST", "/echo", body));
  EXPECT_EQ(client.Read().body, "POST /echo  " + body);
  client.Send(RequestText("GET", "/stream", "", "Connection: close\r\n"));
  const Asked asked = Next();
  asked.exchange->StartStream({});
  std::string expected;
  for (int i = 0; i < 1000; ++i) {
    const std::string event = "event " + std::to_string(i) + "\n\n";
    asked.exchange->Write(event);
    asked.exchange->Flush();
    expected += event;
  }
  asked.exchange->End();
  EXPECT_EQ(client.Read().body, expected);
  EXPECT_TRUE(client.Ended());
}

TEST_F(HttpTlsTest, ADisconnectIsNoticedThoughNothingIsSent) {
  Show(authority_);
  Serve();
  RawClient client(port(), ClientOf(authority_));
  client.Send(RequestText("GET", "/never"));
  const Asked asked = Next();
  client.Close();
  EXPECT_TRUE(Eventually([&] { return asked.events->gone == 1; }));
  EXPECT_TRUE(NoneIsOpen());
}

TEST_F(HttpTlsTest, AHandshakeThatDoesNotComeIsTimed) {
  Show(authority_);
  options_.header_timeout = milliseconds(100);
  Serve();
  RawClient silent(port());
  RawClient plain(port());
  plain.Send("GET /echo HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(silent.Ended());
  plain.ReadAll();
  EXPECT_TRUE(NoneIsOpen());
}

TEST_F(HttpTlsTest, WithAnAuthorityClientsNeedACertificateOfIt) {
  const Authority clients("clients");
  Show(authority_);
  options_.tls.authority = Write("clients.crt", clients.certificate());
  Serve();
  RawClient::Options known = ClientOf(authority_);
  const Authority::Identity identity = clients.Issue("client");
  known.certificate = Write("client.crt", identity.certificate);
  known.key = Write("client.key", identity.key);
  RawClient client(port(), known);
  client.Send(RequestText("GET", "/echo"));
  EXPECT_EQ(client.Read().status, 200);
  RawClient unknown(port(), ClientOf(authority_));  // with TLS 1.3 the refusal comes a little later
  unknown.Send(RequestText("GET", "/echo"));
  EXPECT_EQ(unknown.Read().status, 0);
}

TEST_F(HttpTlsTest, ARenewedCertificateServesNewConnections) {
  Show(authority_);
  Serve();
  RawClient before(port(), ClientOf(authority_));
  ASSERT_TRUE(before.connected());
  const Authority next("next");
  const auto later = std::filesystem::file_time_type::clock::now() + std::chrono::seconds(5);
  Show(next);
  std::filesystem::last_write_time(options_.tls.certificate, later);
  EXPECT_TRUE(
      Eventually([&] { return RawClient(port(), ClientOf(next, "next.crt")).connected(); }));
  before.Send(RequestText("GET", "/echo"));
  EXPECT_EQ(before.Read().status, 200) << "those that were open stay";
  // Files that do not fit leave what there was.
  std::ofstream(options_.tls.key) << "no key";
  std::filesystem::last_write_time(options_.tls.key, later + std::chrono::seconds(5));
  std::this_thread::sleep_for(milliseconds(1100));
  EXPECT_TRUE(RawClient(port(), ClientOf(next, "next.crt")).connected());
}

TEST_F(HttpTlsTest, FilesAreCheckedByName) {
  const auto message = [this] {
    options_.listen = "127.0.0.1:0";
    return std::string(HttpServer::Start(options_, this).status().message());
  };
  options_.tls.authority = "ca";
  EXPECT_THAT(message(), HasSubstr("--http-tls-cert"));
  Show(authority_);
  options_.tls.authority = "/none";
  EXPECT_THAT(message(), HasSubstr("--http-tls-ca /none"));
  options_.tls.authority.clear();
  const std::string certificate = std::exchange(options_.tls.certificate, "/none");
  EXPECT_THAT(message(), HasSubstr("--http-tls-cert /none"));
  options_.tls.certificate = certificate;
  options_.tls.key = Write("other.key", authority_.Issue("other").key);
  EXPECT_THAT(message(), HasSubstr("--http-tls-key"));
}

}  // namespace
}  // namespace tandem::test
