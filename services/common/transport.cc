#include "services/common/transport.h"

#include <grpc/grpc.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <fstream>
#include <iterator>

#include "engine/base/status.h"

namespace tandem {
namespace {

constexpr unsigned kRefreshSeconds = 1;

absl::Status CheckPem(const char* flag, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound(flag, " ", path, ": the file cannot be read");
  const std::string content(std::istreambuf_iterator<char>(file), {});
  if (content.find("-----BEGIN ") == std::string::npos) {
    return NotFound(flag, " ", path, ": the file holds no PEM block");
  }
  return absl::OkStatus();
}

absl::Status CheckFiles(const TlsFiles& tls) {
  if (tls.certificate.empty() != tls.key.empty()) {
    return InvalidArgument("--tls-cert and --tls-key go together: only ",
                           tls.key.empty() ? "--tls-cert" : "--tls-key", " is given");
  }
  if (!tls.certificate.empty()) {
    RETURN_IF_ERROR(CheckPem("--tls-cert", tls.certificate));
    RETURN_IF_ERROR(CheckPem("--tls-key", tls.key));
  }
  if (!tls.authority.empty()) RETURN_IF_ERROR(CheckPem("--tls-ca", tls.authority));
  return absl::OkStatus();
}

std::shared_ptr<grpc::experimental::CertificateProviderInterface> WatchFiles(const TlsFiles& tls) {
  return std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      tls.key, tls.certificate, tls.authority, kRefreshSeconds);
}

}  // namespace

IntArguments ServerKeepaliveArguments(const Keepalive& keepalive) {
  return {{GRPC_ARG_KEEPALIVE_TIME_MS, keepalive.time_ms},
          {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive.timeout_ms},
          {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
          {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
          {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, keepalive.min_interval_ms}};
}

IntArguments ChannelKeepaliveArguments(const Keepalive& keepalive) {
  return {{GRPC_ARG_KEEPALIVE_TIME_MS, keepalive.time_ms},
          {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive.timeout_ms},
          {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
          {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0}};
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const TlsFiles& tls) {
  if (tls.empty()) return grpc::InsecureServerCredentials();
  if (tls.certificate.empty() && tls.key.empty()) {
    return InvalidArgument("--tls-ca needs --tls-cert and --tls-key: a server shows its own");
  }
  RETURN_IF_ERROR(CheckFiles(tls));
  grpc::experimental::TlsServerCredentialsOptions options(WatchFiles(tls));
  options.watch_identity_key_cert_pairs();
  if (!tls.authority.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const TlsFiles& tls) {
  if (tls.empty()) return grpc::InsecureChannelCredentials();
  if (tls.authority.empty()) {
    return InvalidArgument(
        "--tls-cert needs --tls-ca: a client checks the server's certificate against it");
  }
  RETURN_IF_ERROR(CheckFiles(tls));
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(WatchFiles(tls));
  options.watch_root_certs();
  if (!tls.certificate.empty()) options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace tandem
