#include "engine/base/hash.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace tandem {
namespace {

std::string HashOfBytes(std::string_view bytes) {
  Fingerprinter hash;
  hash.Add(bytes.data(), bytes.size());
  return hash.Hex();
}

TEST(Fingerprinter, HasTheValuesOfXxh3_128) {
  // Written by `xxhsum -H2` 0.8.1.
  EXPECT_EQ(HashOfBytes(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(HashOfBytes("tandem"), "40f4a999f5b887cdbf9c97ebdc3d178d");
}

TEST(Fingerprinter, DoesNotDependOnHowBytesAreSplit) {
  const std::string text(1000, 'x');
  Fingerprinter hash;
  for (const char c : text) hash.Add(&c, 1);
  EXPECT_EQ(hash.Hex(), HashOfBytes(text));
}

TEST(Fingerprinter, KeepsFieldsApart) {
  Fingerprinter ab_c, a_bc;
  ab_c.Add(std::string_view("ab")).Add(std::string_view("c"));
  a_bc.Add(std::string_view("a")).Add(std::string_view("bc"));
  EXPECT_NE(ab_c.Hex(), a_bc.Hex());
}

TEST(Fingerprinter, WritesNumbersAsEightLittleEndianBytes) {
  Fingerprinter hash;
  hash.Add(int64_t{-2});
  EXPECT_EQ(hash.Hex(), HashOfBytes("\xfe\xff\xff\xff\xff\xff\xff\xff"));
}

TEST(Fingerprinter, CanGoOnAfterHex) {
  Fingerprinter hash;
  hash.Add("ab", 2);
  EXPECT_EQ(hash.Hex(), HashOfBytes("ab"));
  hash.Add("cd", 2);
  EXPECT_EQ(hash.Hex(), HashOfBytes("abcd"));
}

}  // namespace
}  // namespace tandem
