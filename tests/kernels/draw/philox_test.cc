#include "kernels/draw/philox.h"

#include <gtest/gtest.h>

#include <array>

namespace tandem::kernels {
namespace {

using Words = std::array<uint32_t, 4>;

Words Block(Words counter, std::array<uint32_t, 2> key) {
  const PhiloxBlock block =
      Philox4x32(counter[0], counter[1], counter[2], counter[3], key[0], key[1]);
  return {block.word[0], block.word[1], block.word[2], block.word[3]};
}

// Known answers for philox4x32 with 10 rounds, as published with Random123.
TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(Block({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Block({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Block({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, DrawWordsPutSeedIntoTheKeyAndTheRestIntoTheCounter) {
  const PhiloxBlock block = DrawWords(0x1122334455667788, 9, 70000, 5);
  EXPECT_EQ(Block({5, 70000, 9, 0}, {0x55667788, 0x11223344}),
            (Words{block.word[0], block.word[1], block.word[2], block.word[3]}));
}

}  // namespace
}  // namespace tandem::kernels
