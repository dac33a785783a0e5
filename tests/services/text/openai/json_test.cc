// JSON from callers that are not trusted, and JSON that is written piece by piece.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include <nlohmann/json.hpp>

#include "services/text/openai/field_names.h"
#include "services/text/openai/json_body.h"
#include "services/text/openai/json_writer.h"

namespace tandem::text {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string Nested(int depth) {
  return R"({"a":)" + std::string(depth, '[') + std::string(depth, ']') + "}";
}

TEST(JsonBody, ValuesAreReadAsTheyStand) {
  const auto value = ParseJsonObject(
      R"({"a":[1,-2,2.5,true,null,"\u00e9\ud83d\ude00"],"b":{"c":[],"d":{}},"":18446744073709551615})");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ((*value)["a"][5], "\xC3\xA9\xF0\x9F\x98\x80");
  EXPECT_EQ((*value)["a"].size(), 6u);
  EXPECT_EQ((*value)["b"]["d"], json::object());
  EXPECT_EQ((*value)[""], 18446744073709551615u);
}

TEST(JsonBody, WhatIsNoObjectOrNoJsonIsRefusedByPlace) {
  struct Case {
    std::string body;
    const char* param;
    const char* part;
  };
  const Case cases[] = {
      {"", "", "the body is not JSON"},
      {"{", "", "the body is not JSON"},
      {"[]", "", "must be an object"},
      {"5", "", "must be an object"},
      {"\"x\"", "", "must be an object"},
      {"1e400", "", "the body"},
      {"{} {}", "", "the body is not JSON"},
      {R"({"a":NaN})", "", "in a"},
      {R"({"a":Infinity})", "", "in a"},
      {R"({"a":01})", "", "the body is not JSON"},
      {R"({"a":[1,2,}])", "", "in a[2]"},
      {R"({'a':1})", "", "the body is not JSON"},
      {R"({"a":1,})", "", "the body is not JSON"},
      {R"({"a":1 /* */})", "", "the body is not JSON"},
      {"{\"a\":\"\x01\"}", "", "in a"},
      {R"({"a":"\ud800"})", "", "surrogate"},
      {R"({"a":"\udc00x"})", "", "surrogate"},
      {R"({"a":"\ud800\u0041"})", "", "surrogate"},
      {"{\"a\":\"\xff\"}", "", "not UTF-8: byte 6 of 9"},
      {"{\"a\":\"\xed\xa0\x80\"}", "", "not UTF-8"},
      {R"({"a":1e400})", "a", "too large"},
      {R"({"a":[{"b":-1e400}]})", "a[0].b", "too large"},
      {R"({"a":1,"a":1})", "a", "twice"},
      {R"({"a":[0,{"b":1,"b":1}]})", "a[1].b", "twice"},
      {R"({"b":1,"\u0062":1})", "b", "twice"},
      {R"({"":1,"":2})", "\"\"", "twice"},
      {R"({"a":{"":1e400}})", "a.\"\"", "too large"},
      {Nested(64), "", "deeper than 64"},
      {Nested(100'000), "", "deeper than 64"},
      {std::string(kMaxBodyBytes + 1, ' '), "", "8388609 bytes"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.body.substr(0, 60));
    const absl::Status status = ParseJsonObject(c.body).status();
    ASSERT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.part));
    EXPECT_EQ(ParamOf(status), c.param);
  }
  EXPECT_TRUE(ParseJsonObject(Nested(63)).ok());
}

TEST(JsonBody, ManySmallArraysAreRefused) {
  std::string body = R"({"a":[)";
  for (int i = 0; i < kMaxJsonNodes; ++i) body += "[],";
  const absl::Status status = ParseJsonObject(body + "[]]}").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("more than 65536"));
  std::string numbers = R"({"a":[0)";
  for (int i = 0; i < 4 * kMaxJsonNodes; ++i) numbers += ",7";
  EXPECT_TRUE(ParseJsonObject(numbers + "]}").ok()) << "a prompt of ids may be long";
}

TEST(JsonBody, ALongNameIsCutOffInErrors) {
  std::string body = "{\"";
  for (int i = 0; i < 40; ++i) body += "\xC3\xA9";
  const std::string name = body.substr(2);
  const absl::Status status = ParseJsonObject(body + "\":1,\"" + name + "\":1}").status();
  EXPECT_EQ(ParamOf(status), name.substr(0, 64) + "...");
}

TEST(JsonWriter, StringsAreTheSameWhenParsed) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (int n = static_cast<int>(random() % 20); n > 0; --n) {
      static const char* const kParts[] = {"a",
                                           "\"",
                                           "\\",
                                           "\n",
                                           "\x01",
                                           "\x1f",
                                           "\x7f",
                                           "\t",
                                           "/",
                                           "\xE2\x80\xA8",
                                           "\xF0\x9F\x98\x80",
                                           "\r",
                                           "\b",
                                           "\f"};
      text += kParts[random() % std::size(kParts)];
    }
    if (random() % 3 == 0) text.push_back('\0');
    std::string out;
    AppendJsonString(text, &out);
    EXPECT_EQ(json::parse(out), json(text)) << out;
    EXPECT_EQ(out.find('\n'), std::string::npos);
  }
}

TEST(JsonWriter, B003_TextThatIsNotUtf8IsReplaced) {
  std::string out;
  AppendJsonString("a\xff\"\xE4\xBD", &out);
  EXPECT_EQ(json::parse(out), json("a\xEF\xBF\xBD\"\xEF\xBF\xBD"));
}

TEST(JsonWriter, B045_ALogprobIsAlwaysANumber) {
  const auto written = [](float value) {
    std::string out;
    AppendLogprob(value, &out);
    return json::parse(out).get<float>();
  };
  for (const float value : {-INFINITY, INFINITY, NAN, -1e30f, -9999.5f}) {
    EXPECT_EQ(written(value), -9999.0f) << value;
  }
  std::mt19937 random(2);
  std::uniform_real_distribution<float> logprobs(-30.0f, 0.0f);
  for (int i = 0; i < 2000; ++i) {
    const float value = logprobs(random);
    EXPECT_EQ(written(value), value);
  }
  EXPECT_EQ(written(-1e-12f), -1e-12f);
}

TEST(JsonWriter, DurationsAreMilliseconds) {
  const auto written = [](int64_t nanos) {
    std::string out;
    AppendMilliseconds(nanos, &out);
    return out;
  };
  EXPECT_EQ(written(0), "0.000");
  EXPECT_EQ(written(1'234'567), "1.235");
  EXPECT_EQ(written(7'000), "0.007");
  EXPECT_EQ(written(60'000'000'000), "60000.000");
}

}  // namespace
}  // namespace tandem::text
