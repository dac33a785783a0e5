#include "services/common/http/request_reader.h"

#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

namespace http = boost::beast::http;

// Of a chunk's size line, or of trailers: what a body may wait for without giving a byte.
constexpr size_t kMaxUnusedBytes = 16 << 10;

std::string ToString(boost::beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

struct RequestReader::Parser {
  http::request_parser<http::string_body> http;
};

RequestReader::RequestReader(const RequestLimits& limits)
    : limits_(limits), parser_(std::make_unique<Parser>()) {
  parser_->http.header_limit(limits.max_header_bytes);
  parser_->http.body_limit(limits.max_body_bytes);
}

RequestReader::~RequestReader() = default;

RequestReader::State RequestReader::Fail(int status, std::string reason) {
  status_ = status;
  reason_ = std::move(reason);
  return State::kFailed;
}

RequestReader::State RequestReader::Put(std::string_view bytes, size_t* used) {
  auto& parser = parser_->http;
  *used = 0;
  while (!parser.is_done()) {
    const std::string_view rest = bytes.substr(*used);
    if (rest.empty()) return parser.is_header_done() ? State::kBody : State::kHeader;
    boost::system::error_code error;
    const size_t taken = parser.put(boost::asio::buffer(rest.data(), rest.size()), error);
    *used += taken;
    if (error == http::error::body_limit) {
      return Fail(
          413, absl::StrCat("the body is too large: at most ", limits_.max_body_bytes, " bytes"));
    }
    if (error == http::error::header_limit) {
      return Fail(431, absl::StrCat("the headers are too large: at most ", limits_.max_header_bytes,
                                    " bytes"));
    }
    if (error == http::error::bad_version) return Fail(505, "the version is not HTTP/1.0 or 1.1");
    if (error && error != http::error::need_more) {
      return Fail(400, absl::StrCat("this is no HTTP request: ", error.message()));
    }
    if (parser.is_header_done() && !checked_) {
      checked_ = true;
      if (!CheckHeaders()) return State::kFailed;
      if (parser.is_done()) break;
    }
    if (error == http::error::need_more || taken == 0) {
      if (bytes.size() - *used > kMaxUnusedBytes && parser.is_header_done()) {
        return Fail(
            400, absl::StrCat("a chunk's line is too long: at most ", kMaxUnusedBytes, " bytes"));
      }
      return parser.is_header_done() ? State::kBody : State::kHeader;
    }
  }
  return State::kDone;
}

bool RequestReader::CheckHeaders() {
  auto& message = parser_->http.get();
  const auto refuse = [this](int status, std::string reason) {
    Fail(status, std::move(reason));
    return false;
  };
  if (message.version() != 10 && message.version() != 11) {
    return refuse(505, "the version is not HTTP/1.0 or 1.1");
  }
  // Where a proxy in front and this server disagree about a body's end, the rest of one client's
  // body is another's request; so no guess is made.
  if (const auto coding = message.find(http::field::transfer_encoding); coding != message.end()) {
    if (message.version() == 10) return refuse(400, "Transfer-Encoding: HTTP/1.0 has none");
    if (!EqualsIgnoringCase(ToString(coding->value()), "chunked")) {
      return refuse(501, "Transfer-Encoding: only chunked is supported");
    }
  }
  if (message.version() == 11 && message.count(http::field::host) != 1) {
    return refuse(400, "Host: one such header is needed");
  }
  const auto target = message.target();
  if (!ParseTarget({target.data(), target.size()}, &request_)) {
    return refuse(400,
                  "the target is no path: it must begin with /, escapes be %XX, and none of "
                  "its characters be a control character");
  }
  for (const auto& field : message.base()) {
    request_.headers.Add(ToString(field.name_string()), ToString(field.value()));
  }
  request_.method = ToString(message.method_string());
  if (const std::string* expect = request_.headers.Find("expect"); expect != nullptr) {
    if (!EqualsIgnoringCase(*expect, "100-continue")) {
      return refuse(417, "Expect: only 100-continue is supported");
    }
    expects_ = message.version() == 11;
  }
  return true;
}

int64_t RequestReader::body_bytes() const {
  return static_cast<int64_t>(parser_->http.get().body().size());
}

bool RequestReader::TakeExpectation() { return std::exchange(expects_, false); }

HttpRequest RequestReader::TakeRequest() {
  request_.body = std::move(parser_->http.get().body());
  return std::move(request_);
}

bool RequestReader::keep_alive() const { return parser_->http.get().keep_alive(); }

bool RequestReader::http_1_0() const { return parser_->http.get().version() == 10; }

}  // namespace tandem
