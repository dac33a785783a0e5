#include "engine/text/jinja/text.h"

#include <string>

#include <gtest/gtest.h>

namespace tandem::jinja {
namespace {

// Content in [ ], scaffold bare.
std::string Marked(const Text& text) {
  std::string out;
  text.ForEachRun([&](std::string_view bytes, Origin origin) {
    const bool content = origin == Origin::kContent;
    if (content) out.push_back('[');
    out.append(bytes);
    if (content) out.push_back(']');
  });
  return out;
}

Text Sample() {
  Text text("ab", Origin::kScaffold);
  text.Append("cde", Origin::kContent);
  text.Append("f", Origin::kScaffold);
  return text;
}

TEST(Text, JoinsNeighboursOfOneOriginIntoARun) {
  Text text("a", Origin::kContent);
  text.Append("", Origin::kScaffold);
  text.Append("b", Origin::kContent);
  EXPECT_EQ(text.runs().size(), 1);
  EXPECT_EQ(Marked(text), "[ab]");
}

TEST(Text, SlicesKeepTheOriginOfEveryByte) {
  EXPECT_EQ(Marked(Sample()), "ab[cde]f");
  EXPECT_EQ(Marked(Sample().Slice(1, 4)), "b[cd]");
  EXPECT_EQ(Marked(Sample().Slice(2, 5)), "[cde]");
  EXPECT_EQ(Marked(Sample().Slice(5, 6)), "f");
  EXPECT_EQ(Marked(Sample().Slice(3, 3)), "");
  EXPECT_EQ(Marked(Sample().Slice(0, 6)), "ab[cde]f");
}

TEST(Text, AppendsPartsOfOthers) {
  Text text("x", Origin::kContent);
  text.Append(Sample(), 2, 6);
  EXPECT_EQ(Marked(text), "[xcde]f");
  EXPECT_EQ(text.bytes(), "xcdef");
}

TEST(Text, TransformChangesBytesRunByRun) {
  const Text doubled = Sample().Transform([](std::string_view bytes, std::string* out) {
    out->append(bytes);
    out->append(bytes);
  });
  EXPECT_EQ(Marked(doubled), "abab[cdecde]ff");
}

TEST(Text, IsContentAsSoonAsOneByteIs) {
  EXPECT_EQ(Text().origin(), Origin::kScaffold);
  EXPECT_EQ(Text("a", Origin::kScaffold).origin(), Origin::kScaffold);
  EXPECT_EQ(Sample().origin(), Origin::kContent);
}

TEST(FindBytes, FindsAtOrBehindTheStart) {
  EXPECT_EQ(FindBytes("abcabc", "bc", 0), 1);
  EXPECT_EQ(FindBytes("abcabc", "bc", 2), 4);
  EXPECT_EQ(FindBytes("abcabc", "bc", 5), std::string_view::npos);
  EXPECT_EQ(FindBytes("abc", "", 3), 3);
  EXPECT_EQ(FindBytes("abc", "", 4), std::string_view::npos);
}

}  // namespace
}  // namespace tandem::jinja
