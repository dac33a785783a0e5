#include "services/common/server.h"

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "grpc/health/v1/health.grpc.pb.h"
#include "services/common/channel.h"
#include "services/common/health_service.h"
#include "tests/services/common/certificates.h"
#include "tests/support/process.h"

namespace tandem {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Authority;
using test::TemporaryFolder;

constexpr char kService[] = "some.Service";

// A liveness bound, far above what any call here takes.
void SetPatience(grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() + seconds(20));
}

// A health server on a free loopback port, and a client of it.
struct Fixture {
  explicit Fixture(ServerOptions options = {}) {
    options.listen = "127.0.0.1:0";
    grpc::Service* const services[] = {&health};
    absl::StatusOr<std::unique_ptr<RpcServer>> started = RpcServer::Start(options, services);
    EXPECT_TRUE(started.ok()) << started.status();
    server = *std::move(started);
  }

  std::unique_ptr<grpc::health::v1::Health::Stub> Client(ChannelOptions options = {}) const {
    if (options.target.empty()) options.target = server->address();
    absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = MakeChannel(options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return grpc::health::v1::Health::NewStub(*channel);
  }

  HealthService health{{kService}};
  std::unique_ptr<RpcServer> server;
};

grpc::Status Check(grpc::health::v1::Health::Stub& client, const std::string& service,
                   HealthCheckResponse::ServingStatus* status = nullptr) {
  grpc::ClientContext context;
  SetPatience(&context);
  HealthCheckRequest request;
  request.set_service(service);
  HealthCheckResponse response;
  const grpc::Status result = client.Check(&context, request, &response);
  if (status != nullptr) *status = response.status();
  return result;
}

TEST(Health, ServesOnceTheServiceIsSetAndNeverAgainAfterShutdown) {
  Fixture fixture;
  const auto client = fixture.Client();
  const auto status = [&](const std::string& service) {
    HealthCheckResponse::ServingStatus out = HealthCheckResponse::UNKNOWN;
    EXPECT_TRUE(Check(*client, service, &out).ok());
    return out;
  };
  EXPECT_EQ(status(kService), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(status(""), HealthCheckResponse::NOT_SERVING);
  fixture.health.Set(kService, true);
  EXPECT_EQ(status(kService), HealthCheckResponse::SERVING);
  EXPECT_EQ(status(""), HealthCheckResponse::SERVING);
  fixture.health.Shutdown();
  fixture.health.Set(kService, true);
  EXPECT_EQ(status(kService), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(status(""), HealthCheckResponse::NOT_SERVING);
}

TEST(Health, AnUnknownServiceIsNotFoundByCheckAndUnknownByWatch) {
  Fixture fixture;
  const auto client = fixture.Client();
  EXPECT_EQ(Check(*client, "no.such.Service").error_code(), grpc::StatusCode::NOT_FOUND);
  grpc::ClientContext context;
  SetPatience(&context);
  HealthCheckRequest request;
  request.set_service("no.such.Service");
  const auto watch = client->Watch(&context, request);
  HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVICE_UNKNOWN);
  context.TryCancel();
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST(Health, WatchTellsTheStatusAndEachChange) {
  Fixture fixture;
  const auto client = fixture.Client();
  grpc::ClientContext context;
  SetPatience(&context);
  HealthCheckRequest request;
  request.set_service(kService);
  const auto watch = client->Watch(&context, request);
  HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  fixture.health.Set(kService, true);
  fixture.health.Set(kService, true);
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  fixture.health.Set(kService, false);
  ASSERT_TRUE(watch->Read(&response)) << "setting the same status twice is no change";
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  context.TryCancel();
  watch->Finish();
}

TEST(Server, B143_TakesAMessageAtTheLimitAndNotOneByteMore) {
  ServerOptions options;
  options.max_receive_bytes = 5000;
  Fixture fixture(options);
  const auto client = fixture.Client();
  HealthCheckRequest request;
  request.set_service(std::string(4997, 'x'));
  ASSERT_EQ(request.ByteSizeLong(), 5000u);
  EXPECT_EQ(Check(*client, request.service()).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Check(*client, request.service() + "x").error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST(Channel, B143_TakesAMessageAtTheLimitAndNotOneByteMore) {
  Fixture fixture;
  ChannelOptions options;
  options.max_receive_bytes = 2;
  EXPECT_TRUE(Check(*fixture.Client(options), kService).ok()) << "one field is two bytes";
  options.max_receive_bytes = 1;
  EXPECT_EQ(Check(*fixture.Client(options), kService).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST(Server, APortThatIsTakenIsAnErrorNotASharedPort) {
  Fixture first;
  HealthService health({});
  grpc::Service* const services[] = {&health};
  ServerOptions options;
  options.listen = first.server->address();
  EXPECT_TRUE(absl::IsUnavailable(RpcServer::Start(options, services).status()));
}

TEST(Server, AnAddressThatIsNoneIsInvalid) {
  HealthService health({});
  grpc::Service* const services[] = {&health};
  for (const char* listen : {"", "nowhere", ":80", "a:", "a:-1", "a:65536", "a:99999999999", "a:8x",
                             "::1:80", "[::1:80"}) {
    ServerOptions options;
    options.listen = listen;
    EXPECT_TRUE(absl::IsInvalidArgument(RpcServer::Start(options, services).status())) << listen;
  }
}

TEST(Server, ReflectionNamesTheServices) {
  Fixture fixture;
  ChannelOptions options;
  options.target = fixture.server->address();
  grpc::GenericStub stub(*MakeChannel(options));
  // ServerReflectionRequest{list_services: "*"}: field 7, one byte.
  const grpc::Slice slice(std::string("\x3a\x01*"));
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  grpc::ClientContext context;
  SetPatience(&context);
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                 grpc::StubOptions(), &request, &response,
                 [&](grpc::Status status) { done.set_value(std::move(status)); });
  const grpc::Status status = done.get_future().get();
  ASSERT_TRUE(status.ok()) << status.error_message();
  grpc::Slice answer;
  ASSERT_TRUE(response.DumpToSingleSlice(&answer).ok());
  const std::string text(reinterpret_cast<const char*>(answer.begin()), answer.size());
  EXPECT_NE(text.find("grpc.health.v1.Health"), std::string::npos);
}

TEST(Keepalive, B139_AnIdleStreamLivesOnThroughManyPings) {
  ServerOptions server;
  server.keepalive = {1000, 1000, 500};
  Fixture fixture(server);
  ChannelOptions options;
  options.keepalive = {1000, 1000, 500};
  const auto client = fixture.Client(options);
  grpc::ClientContext context;
  SetPatience(&context);
  HealthCheckRequest request;
  request.set_service(kService);
  const auto watch = client->Watch(&context, request);
  HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  // gRPC ends a connection after two pings too many; here are four or more.
  std::this_thread::sleep_for(milliseconds(5500));
  fixture.health.Set(kService, true);
  ASSERT_TRUE(watch->Read(&response)) << "the server took the pings for an attack";
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  context.TryCancel();
  watch->Finish();
}

TEST(Keepalive, B139_AServerEndsConnectionsThatPingTooOften) {
  ServerOptions server;
  server.keepalive.min_interval_ms = 60'000;
  Fixture fixture(server);
  ChannelOptions options;
  options.keepalive = {1000, 1000, 500};
  const auto client = fixture.Client(options);
  grpc::ClientContext context;
  SetPatience(&context);
  HealthCheckRequest request;
  request.set_service(kService);
  const auto watch = client->Watch(&context, request);
  HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_FALSE(watch->Read(&response));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(Keepalive, B141_BothSidesSetEveryValue) {
  const auto value = [](const IntArguments& arguments, const std::string& name) {
    for (const auto& [key, number] : arguments) {
      if (key == name) return number;
    }
    return -1;
  };
  for (const IntArguments& arguments :
       {ServerKeepaliveArguments({}), ChannelKeepaliveArguments({})}) {
    EXPECT_EQ(value(arguments, GRPC_ARG_KEEPALIVE_TIME_MS), 10'000);
    EXPECT_EQ(value(arguments, GRPC_ARG_KEEPALIVE_TIMEOUT_MS), 5'000);
    EXPECT_EQ(value(arguments, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS), 1);
    EXPECT_EQ(value(arguments, GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA), 0);
  }
  EXPECT_EQ(
      value(ServerKeepaliveArguments({}), GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS),
      5'000);
}

// Files of one identity and its authority, as flags name them.
class TlsTest : public ::testing::Test {
 protected:
  TlsFiles Write(const std::string& prefix, const Authority::Identity& identity,
                 const Authority& authority) {
    const auto write = [&](const std::string& name, const std::string& content) {
      // Through a rename, so that a watcher sees all or nothing of a file.
      const std::string path = folder_.File(prefix + name);
      std::ofstream(path + ".new") << content;
      std::filesystem::rename(path + ".new", path);
      return path;
    };
    return {write(".crt", identity.certificate), write(".key", identity.key),
            write(".ca", authority.certificate())};
  }

  // A client with these files; the server's address is in its certificate.
  static grpc::Status CheckWith(const Fixture& fixture, const TlsFiles& tls) {
    ChannelOptions options;
    options.target = fixture.server->address();
    options.tls = tls;
    const auto client = fixture.Client(options);
    grpc::ClientContext context;
    SetPatience(&context);
    HealthCheckRequest request;
    HealthCheckResponse response;
    return client->Check(&context, request, &response);
  }

  static ServerOptions With(const TlsFiles& tls) {
    ServerOptions options;
    options.tls = tls;
    return options;
  }

  const TemporaryFolder folder_;
  const Authority authority_{"Tandem test authority"};
  const Authority stranger_{"another authority"};
};

TEST_F(TlsTest, AClientWithACertificateOfTheAuthorityIsServed) {
  Fixture fixture(With(Write("server", authority_.Issue("server"), authority_)));
  const TlsFiles client = Write("client", authority_.Issue("client"), authority_);
  const grpc::Status status = CheckWith(fixture, client);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(TlsTest, AClientWithoutACertificateOrWithAStrangersIsRefused) {
  Fixture fixture(With(Write("server", authority_.Issue("server"), authority_)));
  TlsFiles client = Write("client", stranger_.Issue("client"), authority_);
  EXPECT_EQ(CheckWith(fixture, client).error_code(), grpc::StatusCode::UNAVAILABLE);
  client.certificate.clear();
  client.key.clear();
  EXPECT_EQ(CheckWith(fixture, client).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(CheckWith(fixture, TlsFiles()).error_code(), grpc::StatusCode::UNAVAILABLE)
      << "plain text";
}

TEST_F(TlsTest, AServerWithAStrangersCertificateIsNotTrusted) {
  Fixture fixture(With(Write("server", stranger_.Issue("server"), authority_)));
  const TlsFiles client = Write("client", authority_.Issue("client"), authority_);
  EXPECT_EQ(CheckWith(fixture, client).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TlsTest, ARenewedCertificateServesNewConnectionsWithoutARestart) {
  TlsFiles server = Write("server", authority_.Issue("server"), authority_);
  server.authority.clear();
  Fixture fixture(With(server));
  TlsFiles client = Write("client", stranger_.Issue("client"), stranger_);
  client.certificate.clear();
  client.key.clear();
  ASSERT_FALSE(CheckWith(fixture, client).ok()) << "the old certificate is the authority's";
  Write("server", stranger_.Issue("server"), stranger_);
  grpc::Status status;
  for (int attempt = 0; attempt < 20; ++attempt) {
    status = CheckWith(fixture, client);
    if (status.ok()) break;
    std::this_thread::sleep_for(milliseconds(250));
  }
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(TlsTest, FilesThatAreMissingOrNoPemAreErrorsAtTheStart) {
  TlsFiles good = Write("server", authority_.Issue("server"), authority_);
  TlsFiles tls = good;
  tls.key = folder_.File("absent");
  EXPECT_TRUE(absl::IsNotFound(MakeServerCredentials(tls).status()));
  tls = good;
  tls.key = folder_.File("text");
  std::ofstream(tls.key) << "no key\n";
  EXPECT_TRUE(absl::IsNotFound(MakeServerCredentials(tls).status()));
  tls = good;
  tls.key.clear();
  EXPECT_TRUE(absl::IsInvalidArgument(MakeServerCredentials(tls).status()));
  tls = {};
  tls.authority = good.authority;
  EXPECT_TRUE(absl::IsInvalidArgument(MakeServerCredentials(tls).status()));
  tls = good;
  tls.authority.clear();
  EXPECT_TRUE(absl::IsInvalidArgument(MakeChannelCredentials(tls).status()));
}

}  // namespace
}  // namespace tandem
