#include "services/common/http/tls_context.h"

#include "engine/base/status.h"
#include "services/common/logging.h"

namespace tandem {
namespace {

namespace ssl = boost::asio::ssl;

constexpr std::chrono::seconds kLookAgainAfter{1};

}  // namespace

TlsContext::TlsContext(const TlsFiles& files, const std::string& flag)
    : files_(files), flag_(flag) {}

absl::StatusOr<std::unique_ptr<TlsContext>> TlsContext::Load(const TlsFiles& files,
                                                             const std::string& flag) {
  if (files.certificate.empty() || files.key.empty()) {
    return InvalidArgument(flag, "-tls-cert and ", flag,
                           "-tls-key go together: a server shows a certificate of its own");
  }
  std::unique_ptr<TlsContext> out(new TlsContext(files, flag));
  out->stamp_ = out->StampOfFiles();
  out->looked_at_ = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(out->context_, out->Make());
  return out;
}

TlsContext::Stamp TlsContext::StampOfFiles() const {
  Stamp stamp{};
  const std::string* const paths[] = {&files_.certificate, &files_.key, &files_.authority};
  for (size_t i = 0; i < stamp.size(); ++i) {
    std::error_code ignored;  // a file that is gone has the same stamp until it is back
    if (!paths[i]->empty()) stamp[i] = std::filesystem::last_write_time(*paths[i], ignored);
  }
  return stamp;
}

absl::StatusOr<std::shared_ptr<ssl::context>> TlsContext::Make() const {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  boost::system::error_code error;
  context->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 |
                           ssl::context::no_tlsv1_1 | ssl::context::no_compression,
                       error);
  const auto failed = [&](const char* suffix, const std::string& path) {
    return NotFound(flag_, suffix, " ", path,
                    ": the file cannot be read, or does not hold it: ", error.message());
  };
  context->use_certificate_chain_file(files_.certificate, error);
  if (error) return failed("-tls-cert", files_.certificate);
  context->use_private_key_file(files_.key, ssl::context::pem, error);
  if (error) return failed("-tls-key", files_.key);
  if (SSL_CTX_check_private_key(context->native_handle()) != 1) {
    return InvalidArgument(flag_, "-tls-key ", files_.key, ": it is not the key of ",
                           files_.certificate);
  }
  // A session that is resumed has to have been one of this server's, whoever else has its key.
  static constexpr unsigned char kSessionName[] = "tandem";
  SSL_CTX_set_session_id_context(context->native_handle(), kSessionName, sizeof(kSessionName) - 1);
  if (!files_.authority.empty()) {
    context->load_verify_file(files_.authority, error);
    if (error) return failed("-tls-ca", files_.authority);
    context->set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert, error);
    if (error) return Internal("TLS: ", error.message());
  }
  return context;
}

std::shared_ptr<ssl::context> TlsContext::Get() {
  std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_at_ < kLookAgainAfter) return context_;
  looked_at_ = now;
  const Stamp stamp = StampOfFiles();
  if (stamp == stamp_) return context_;
  absl::StatusOr<std::shared_ptr<ssl::context>> made = Make();
  if (made.ok()) {
    context_ = *std::move(made);
    stamp_ = stamp;
  } else {
    LogWarning("TLS files changed and do not load, the last ones stay: ", made.status().message());
  }
  return context_;
}

}  // namespace tandem
