#include "tests/services/common/certificates.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "engine/base/check.h"

namespace tandem::test {
namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;

Key NewKey() {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  TANDEM_CHECK(key != nullptr) << "no key";
  return Key(key, EVP_PKEY_free);
}

template <typename Write>
std::string Pem(const Write& write) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new(BIO_s_mem()), BIO_free);
  TANDEM_CHECK(write(bio.get()) == 1) << "no PEM";
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

std::string CertificatePem(X509* certificate) {
  return Pem([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

void AddExtension(X509* certificate, int kind, const char* value) {
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value);
  TANDEM_CHECK(extension != nullptr) << value;
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// Unsigned.
Certificate NewCertificate(const std::string& name, EVP_PKEY* key, long serial) {
  Certificate certificate(X509_new(), X509_free);
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return certificate;
}

}  // namespace

struct Authority::State {
  Key key = NewKey();
  Certificate certificate{nullptr, X509_free};
};

Authority::Authority(const std::string& name) : state_(std::make_unique<State>()) {
  state_->certificate = NewCertificate(name, state_->key.get(), 1);
  X509* certificate = state_->certificate.get();
  X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
  AddExtension(certificate, NID_basic_constraints, "critical,CA:TRUE");
  TANDEM_CHECK(X509_sign(certificate, state_->key.get(), EVP_sha256()) != 0) << name;
}

Authority::~Authority() = default;

Authority::Identity Authority::Issue(const std::string& name) const {
  const Key key = NewKey();
  const Certificate certificate = NewCertificate(name, key.get(), 2);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(state_->certificate.get()));
  AddExtension(certificate.get(), NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
  TANDEM_CHECK(X509_sign(certificate.get(), state_->key.get(), EVP_sha256()) != 0) << name;
  return {CertificatePem(certificate.get()), Pem([&](BIO* bio) {
            return PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
          })};
}

std::string Authority::certificate() const { return CertificatePem(state_->certificate.get()); }

}  // namespace tandem::test
