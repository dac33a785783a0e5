// Bytes of a connection into one request, within limits. The HTTP grammar is Boost.Beast's; what a
// request is refused for beside that is here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "services/common/http/http_message.h"

namespace tandem {

struct RequestLimits {
  int64_t max_body_bytes = 0;
  int32_t max_header_bytes = 0;
};

// Not thread-safe.
class RequestReader final {
 public:
  enum class State {
    kHeader,  // more bytes are needed: of the headers
    kBody,    // more bytes are needed: of the body
    kDone,
    kFailed,  // status and reason say why; what follows on the connection cannot be understood
  };

  explicit RequestReader(const RequestLimits& limits);
  ~RequestReader();

  // Takes of `bytes` what it can use, and says how much; the rest is to be given again, with more
  // behind it. Stops behind the request.
  State Put(std::string_view bytes, size_t* used);

  // Of the body, so far.
  int64_t body_bytes() const;
  // With kBody: the client waits to be told to send it. Once true, then false.
  bool TakeExpectation();
  // With kDone, once.
  HttpRequest TakeRequest();
  bool keep_alive() const;
  bool http_1_0() const;

  // With kFailed: the HTTP status, and a sentence.
  int status() const { return status_; }
  const std::string& reason() const { return reason_; }

 private:
  struct Parser;
  State Fail(int status, std::string reason);
  // Of headers that are whole. False: they are refused.
  bool CheckHeaders();

  const RequestLimits limits_;
  const std::unique_ptr<Parser> parser_;
  HttpRequest request_;
  bool checked_ = false;
  bool expects_ = false;
  int status_ = 0;
  std::string reason_;
};

}  // namespace tandem
