#include "engine/text/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "engine/text/utf8.h"

namespace tandem {
namespace {

StopMatcher Make(std::vector<std::string> stops, bool include_stop = false) {
  absl::StatusOr<StopMatcher> matcher = StopMatcher::Make(std::move(stops), include_stop);
  EXPECT_TRUE(matcher.ok()) << matcher.status();
  return *std::move(matcher);
}

// The definition, by trying every end and every stop.
struct Expected {
  size_t end = std::string::npos;  // behind the match
  int32_t stop = -1;
};
Expected BruteForce(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    Expected found;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (!std::string_view(text).substr(0, end).ends_with(stops[i])) continue;
      if (found.stop < 0 || stops[i].size() > stops[found.stop].size())
        found = {end, static_cast<int32_t>(i)};
    }
    if (found.stop >= 0) return found;
  }
  return {};
}

// The longest suffix that is a proper prefix of a stop.
size_t BruteForceHeld(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t length = text.size(); length > 0; --length) {
    for (const std::string& stop : stops) {
      if (length < stop.size() &&
          stop.starts_with(std::string_view(text).substr(text.size() - length)))
        return length;
    }
  }
  return 0;
}

// Feeds text in parts and checks every intermediate state against the definition.
void CheckStream(const std::string& text, const std::vector<std::string>& stops,
                 const std::vector<size_t>& cuts, bool include_stop) {
  StopMatcher matcher = Make(stops, include_stop);
  const Expected expected = BruteForce(text, stops);
  std::string out;
  size_t done = 0;
  for (const size_t cut : cuts) {
    const StopMatcher::Result result = matcher.Add(std::string_view(text).substr(done, cut - done));
    out += result.text;
    done = cut;
    if (expected.end <= done) {
      const size_t end = include_stop ? expected.end : expected.end - stops[expected.stop].size();
      ASSERT_EQ(result.stop, expected.stop) << text;
      ASSERT_EQ(out, text.substr(0, end)) << text;
      ASSERT_EQ(matcher.Add("more").text, "");
      ASSERT_EQ(matcher.Flush(), "");
      return;
    }
    ASSERT_EQ(result.stop, -1) << text;
    const std::string seen = text.substr(0, done);
    ASSERT_EQ(out, seen.substr(0, seen.size() - BruteForceHeld(seen, stops)))
        << text << " at " << done;
  }
  ASSERT_EQ(out + matcher.Flush(), text);
}

TEST(StopMatcher, B015_HoldsBackExactlyThePossibleStopPrefix) {
  StopMatcher matcher = Make({"DEFGHIJ"});
  EXPECT_EQ(matcher.Add("abcDEF").text, "abc");
  EXPECT_EQ(matcher.Add("G").text, "");
  EXPECT_EQ(matcher.Add("HI").text, "");
  const StopMatcher::Result result = matcher.Add("J and more");
  EXPECT_EQ(result.text, "");
  EXPECT_EQ(result.stop, 0);
}

TEST(StopMatcher, B017_AStopInTwoPiecesNeverReachesTheClient) {
  StopMatcher matcher = Make({"<|im_end|>"});
  EXPECT_EQ(matcher.Add("done<|im_").text, "done");
  EXPECT_EQ(matcher.Add("end|>").stop, 0);
}

TEST(StopMatcher, B019_FlushGivesOutTheHeldTail) {
  StopMatcher matcher = Make({"STOP"});
  EXPECT_EQ(matcher.Add("text STO").text, "text ");
  EXPECT_EQ(matcher.Flush(), "STO");
  EXPECT_EQ(matcher.Flush(), "");
  EXPECT_EQ(matcher.Add("P").text, "P");
}

TEST(StopMatcher, B021_SaysWhichStopMatchedAndLeavesItOutUnlessAsked) {
  StopMatcher without = Make({"xx", "END", "."});
  const StopMatcher::Result cut = without.Add("the END.");
  EXPECT_EQ(cut.text, "the ");
  EXPECT_EQ(cut.stop, 1);
  StopMatcher with = Make({"xx", "END", "."}, /*include_stop=*/true);
  EXPECT_EQ(with.Add("the END.").text, "the END");
}

TEST(StopMatcher, TheEarliestEndWinsAndThenTheEarliestBegin) {
  EXPECT_EQ(Make({"abcd", "bc"}).Add("xabcd").stop, 1);
  EXPECT_EQ(Make({"c", "abc", "bc"}).Add("xabc").text, "x");
  EXPECT_EQ(Make({"c", "abc", "bc"}).Add("xabc").stop, 1);
  EXPECT_EQ(Make({"ab", "ab"}).Add("ab").stop, 0);
}

TEST(StopMatcher, EverySplitOfEveryShortTextFollowsTheDefinition) {
  const std::vector<std::vector<std::string>> sets = {
      {"ab"}, {"aab", "ba"}, {"aaa"}, {"abab", "bb", "a b"}, {"b", "ab"}, {}};
  for (const std::vector<std::string>& stops : sets) {
    for (int code = 0; code < 729; ++code) {  // texts of six letters a, b, space
      std::string text;
      for (int i = 0, rest = code; i < 6; ++i, rest /= 3) text += "ab "[rest % 3];
      for (int split = 0; split < 32; ++split) {
        std::vector<size_t> cuts;
        for (int i = 0; i < 5; ++i) {
          if (split >> i & 1) cuts.push_back(i + 1);
        }
        cuts.push_back(6);
        ASSERT_NO_FATAL_FAILURE(CheckStream(text, stops, cuts, split % 2 == 1));
      }
    }
  }
}

TEST(StopMatcher, AStopIsFoundAtEveryOffsetOfALongText) {
  const std::string base = "Grüße aus 北京, the the then; <|im_end|> \n\nUser: 👩‍💻 end";
  const std::vector<std::string> stops = {"\n\nUser:", "北京北", "</s>", "the end"};
  for (size_t at = 0; at <= base.size(); ++at) {
    if (at < base.size() && (static_cast<uint8_t>(base[at]) & 0xC0) == 0x80) continue;
    for (const std::string& stop : stops) {
      const std::string text = base.substr(0, at) + stop + base.substr(at);
      std::vector<size_t> cuts;  // after every character
      for (size_t i = 1; i <= text.size(); ++i) {
        if (i == text.size() || (static_cast<uint8_t>(text[i]) & 0xC0) != 0x80) cuts.push_back(i);
      }
      ASSERT_NO_FATAL_FAILURE(CheckStream(text, stops, cuts, false));
      ASSERT_NO_FATAL_FAILURE(CheckStream(text, stops, {text.size()}, true));
    }
  }
}

TEST(StopMatcher, RandomStopsOverRandomTextsFollowTheDefinition) {
  std::mt19937 random(7);
  const auto pick = [&](int below) { return static_cast<int>(random() % below); };
  const auto word = [&](int length) {
    std::string out;
    for (int i = 0; i < length; ++i) out += std::vector<std::string>{"a", "b", "é", "中"}[pick(4)];
    return out;
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops;
    for (int i = pick(4) + 1; i > 0; --i) stops.push_back(word(pick(6) + 1));
    std::string text;
    std::vector<size_t> cuts;
    for (int i = pick(12) + 1; i > 0; --i) {
      text += word(pick(4));
      cuts.push_back(text.size());
    }
    ASSERT_NO_FATAL_FAILURE(CheckStream(text, stops, cuts, pick(2) == 0));
  }
}

TEST(StopMatcher, WhatIsGivenOutIsWholeCharacters) {
  StopMatcher matcher = Make({"é\xCC\x81x", "中é!"});
  std::string out;
  for (const char* part : {"é", "\xCC\x81", "é", "中", "é", "中"}) {
    const std::string text = matcher.Add(part).text;
    EXPECT_EQ(FindInvalidUtf8(text), -1);
    out += text;
  }
  EXPECT_EQ(out + matcher.Flush(), "é\xCC\x81é中é中");
}

TEST(StopMatcher, StopsOutsideTheLimitsAreRefused) {
  const absl::StatusCode invalid = absl::StatusCode::kInvalidArgument;
  const auto code = [](std::vector<std::string> stops) {
    return StopMatcher::Make(std::move(stops), false).status().code();
  };
  EXPECT_EQ(code({""}), invalid);
  EXPECT_EQ(code({std::string(StopMatcher::kMaxStopBytes + 1, 'a')}), invalid);
  EXPECT_EQ(code({"ok", "\xFF"}), invalid);
  EXPECT_EQ(code({"\xE4\xBD"}), invalid);
  EXPECT_EQ(code(std::vector<std::string>(StopMatcher::kMaxStops + 1, "a")), invalid);
  EXPECT_EQ(code(std::vector<std::string>(StopMatcher::kMaxStops,
                                          std::string(StopMatcher::kMaxStopBytes, 'a'))),
            absl::StatusCode::kOk);
  EXPECT_EQ(code({}), absl::StatusCode::kOk);
}

}  // namespace
}  // namespace tandem
