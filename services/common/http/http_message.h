// Requests and responses of HTTP as plain values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// ASCII letters alone; the rest as it is.
bool EqualsIgnoringCase(std::string_view a, std::string_view b);

struct HttpHeader {
  std::string name;
  std::string value;
};

class HttpHeaders final {
 public:
  void Add(std::string name, std::string value) {
    headers_.push_back({std::move(name), std::move(value)});
  }
  // The value of the first header of that name, in any case of letters; null: none.
  const std::string* Find(std::string_view name) const;
  auto begin() const { return headers_.begin(); }
  auto end() const { return headers_.end(); }

 private:
  std::vector<HttpHeader> headers_;
};

struct HttpRequest {
  std::string method;   // "GET"; as it came, since methods know upper from lower case
  std::string path;     // percent-decoded, without control characters; begins with "/", or is "*"
  std::string query;    // what follows "?", as it came
  HttpHeaders headers;  // values without the white space around them
  std::string body;     // chunks are joined
};

// Names and values of its headers are the server's own words, or checked to be printable ASCII.
// Content-Length, Transfer-Encoding, Connection and Date are added.
struct HttpResponse {
  int status = 200;
  std::string content_type;  // empty: no such header
  HttpHeaders headers;
  std::string body;
};

// "Not Found"; empty for a status that this does not know.
std::string_view ReasonPhrase(int status);

// A target in origin form ("/a%20b?c") or absolute form ("http://host/a") into path and query.
// False: it is neither, has an escape that is none, or hides a control character.
bool ParseTarget(std::string_view target, HttpRequest* request);

// How a response's body is told from what follows it.
struct HttpFraming {
  enum class Body { kSized, kChunked, kUntilClose };
  Body body = Body::kSized;
  bool close = false;     // the connection ends behind it
  bool http_1_0 = false;  // the client's version
};
// Status line, headers and empty line. REQUIRES headers without control characters.
void AppendHead(const HttpResponse& response, const HttpFraming& framing, std::string* out);

}  // namespace tandem
