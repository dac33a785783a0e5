// Where a server or a channel finds its certificates.
#pragma once

#include <string>

namespace tandem {

// PEM files, looked at again every second, so that a renewed certificate serves new connections
// without a restart. The files of one identity should change together, for instance by a renamed
// folder or link. All empty: no TLS.
//
// A server needs certificate and key; with an authority it also demands a client certificate signed
// by it (mutual TLS). A channel needs the authority that signed the server's certificate; with
// certificate and key it shows them. The name that was dialled must be in the server's certificate.
struct TlsFiles {
  std::string certificate;
  std::string key;
  std::string authority;
  bool empty() const { return certificate.empty() && key.empty() && authority.empty(); }
};

}  // namespace tandem
