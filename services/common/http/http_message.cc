#include "services/common/http/http_message.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"

namespace tandem {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = Lower(c);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

bool IsPlain(std::string_view text) { return std::none_of(text.begin(), text.end(), IsControl); }

void AppendHeader(std::string_view name, std::string_view value, std::string* out) {
  TANDEM_CHECK(IsPlain(name) && IsPlain(value)) << "a response header holds a control character";
  out->append(name).append(": ").append(value).append("\r\n");
}

// RFC 9110, 5.6.7, which knows English names only.
void AppendDate(std::string* out) {
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm t{};
  gmtime_r(&now, &t);
  char date[40];
  char clock[24];
  std::strftime(clock, sizeof(clock), "%Y %H:%M:%S GMT", &t);
  const int size = std::snprintf(date, sizeof(date), "%s, %02d %s %s", kDays[t.tm_wday], t.tm_mday,
                                 kMonths[t.tm_mon], clock);
  AppendHeader("Date", {date, static_cast<size_t>(size)}, out);
}

}  // namespace

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](char x, char y) { return Lower(x) == Lower(y); });
}

const std::string* HttpHeaders::Find(std::string_view name) const {
  for (const HttpHeader& header : headers_) {
    if (EqualsIgnoringCase(header.name, name)) return &header.value;
  }
  return nullptr;
}

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 412:
      return "Precondition Failed";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 416:
      return "Range Not Satisfiable";
    case 417:
      return "Expectation Failed";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "";
  }
}

bool ParseTarget(std::string_view target, HttpRequest* request) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.size() > scheme.size() &&
        EqualsIgnoringCase(target.substr(0, scheme.size()), scheme)) {
      const size_t path = target.find_first_of("/?", scheme.size());
      target = path == std::string_view::npos ? "/" : target.substr(path);
      break;
    }
  }
  const size_t question = target.find('?');
  const std::string_view path = target.substr(0, question);
  if (question != std::string_view::npos) request->query = target.substr(question + 1);
  request->path.clear();
  if (target == "*") {
    request->path.push_back('*');
    return true;
  }
  for (size_t i = 0; i < path.size(); ++i) {
    char c = path[i];
    if (c == '%') {
      if (i + 2 >= path.size()) return false;
      const int high = HexDigit(path[i + 1]);
      const int low = HexDigit(path[i + 2]);
      if (high < 0 || low < 0) return false;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (IsControl(c)) return false;
    request->path.push_back(c);
  }
  if (request->path.empty()) request->path.push_back('/');
  return request->path.front() == '/';
}

void AppendHead(const HttpResponse& response, const HttpFraming& framing, std::string* out) {
  absl::StrAppend(out, "HTTP/1.1 ", response.status, " ");
  out->append(ReasonPhrase(response.status)).append("\r\n");
  AppendDate(out);
  if (!response.content_type.empty()) AppendHeader("Content-Type", response.content_type, out);
  for (const HttpHeader& header : response.headers) AppendHeader(header.name, header.value, out);
  switch (framing.body) {
    case HttpFraming::Body::kSized:
      if (response.status != 204 && response.status != 304) {
        absl::StrAppend(out, "Content-Length: ", response.body.size(), "\r\n");
      }
      break;
    case HttpFraming::Body::kChunked:
      out->append("Transfer-Encoding: chunked\r\n");
      break;
    case HttpFraming::Body::kUntilClose:
      break;
  }
  if (framing.close) {
    out->append("Connection: close\r\n");
  } else if (framing.http_1_0) {
    out->append("Connection: keep-alive\r\n");
  }
  out->append("\r\n");
}

}  // namespace tandem
