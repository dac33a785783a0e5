#include "services/common/http/http_message.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(HttpMessage, HeadersAreFoundInAnyCase) {
  HttpHeaders headers;
  headers.Add("X-Request-Id", "one");
  headers.Add("x-request-id", "two");
  ASSERT_NE(headers.Find("x-REQUEST-id"), nullptr);
  EXPECT_EQ(*headers.Find("x-REQUEST-id"), "one");
  EXPECT_EQ(headers.Find("x-request"), nullptr);
}

TEST(HttpMessage, TargetsAreReadInEachForm) {
  struct Case {
    const char* target;
    const char* path;
    const char* query;
  };
  for (const Case& c :
       {Case{"/", "/", ""}, Case{"/a/b?c=d?e", "/a/b", "c=d?e"}, Case{"/a%20b%2Fc", "/a b/c", ""},
        Case{"/a%2fc?%20", "/a/c", "%20"}, Case{"*", "*", ""}, Case{"http://host:1/a?b", "/a", "b"},
        Case{"HTTPS://host", "/", ""}, Case{"http://host?b", "/", "b"}, Case{"?b", "/", "b"},
        Case{"/\xC3\xA9", "/\xC3\xA9", ""}}) {
    HttpRequest request;
    EXPECT_TRUE(ParseTarget(c.target, &request)) << c.target;
    EXPECT_EQ(request.path, c.path) << c.target;
    EXPECT_EQ(request.query, c.query) << c.target;
  }
}

TEST(HttpMessage, TargetsThatHideSomethingAreRefused) {
  for (const char* target : {"a", "a/b", "/%", "/%4", "/%4g", "/%0a", "/%0D%0A", "/%7f", "/%00"}) {
    HttpRequest request;
    EXPECT_FALSE(ParseTarget(target, &request)) << target;
  }
}

TEST(HttpMessage, AHeadSaysHowItsBodyEnds) {
  HttpResponse response{.status = 404, .content_type = "text/plain", .body = "four"};
  response.headers.Add("Allow", "GET");
  std::string head;
  AppendHead(response, {}, &head);
  EXPECT_EQ(head.substr(0, 24), "HTTP/1.1 404 Not Found\r\n");
  EXPECT_NE(head.find("\r\nAllow: GET\r\n"), std::string::npos);
  EXPECT_NE(head.find("\r\nContent-Length: 4\r\n"), std::string::npos);
  EXPECT_EQ(head.find("Connection"), std::string::npos);
  EXPECT_EQ(head.substr(head.size() - 4), "\r\n\r\n");
  head.clear();
  AppendHead({.status = 204}, {.close = true}, &head);
  EXPECT_EQ(head.find("Content-Length"), std::string::npos);
  EXPECT_NE(head.find("\r\nConnection: close\r\n"), std::string::npos);
}

TEST(HttpMessageDeathTest, AHeaderCannotEndItsLine) {
  HttpResponse response;
  response.headers.Add("x", "a\r\nSet-Cookie: b");
  std::string head;
  EXPECT_DEATH(AppendHead(response, {}, &head), "control character");
}

}  // namespace
}  // namespace tandem
