#include "engine/text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "engine/text/utf8.h"

namespace tandem {
namespace {

constexpr bool Prints(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

constexpr char32_t kFirstStandIn = 0x100;
constexpr int kNumStandIns = 68;

struct Alphabet {
  std::array<char32_t, 256> code_points = {};
  std::array<uint8_t, kNumStandIns> stand_ins = {};  // bytes by code point - kFirstStandIn
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  int next = 0;
  for (int byte = 0; byte < 256; ++byte) {
    if (Prints(byte)) {
      alphabet.code_points[byte] = static_cast<char32_t>(byte);
    } else {
      alphabet.code_points[byte] = kFirstStandIn + static_cast<char32_t>(next);
      alphabet.stand_ins[next++] = static_cast<uint8_t>(byte);
    }
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

std::optional<std::string> BytesOfSpelling(std::string_view spelling) {
  std::string bytes;
  while (!spelling.empty()) {
    const Utf8Step step = NextUtf8(spelling);
    if (step.state != Utf8State::kComplete) return std::nullopt;
    const char32_t c = step.code_point;
    if (c < 256 && Prints(static_cast<int>(c))) {
      bytes.push_back(static_cast<char>(c));
    } else if (c >= kFirstStandIn && c < kFirstStandIn + kNumStandIns) {
      bytes.push_back(static_cast<char>(kAlphabet.stand_ins[c - kFirstStandIn]));
    } else {
      return std::nullopt;
    }
    spelling.remove_prefix(step.length);
  }
  return bytes;
}

std::string SpellingOfBytes(std::string_view bytes) {
  std::string spelling;
  for (const char byte : bytes) {
    AppendUtf8(kAlphabet.code_points[static_cast<uint8_t>(byte)], &spelling);
  }
  return spelling;
}

int ParseByteToken(std::string_view spelling) {
  if (spelling.size() != 6 || spelling.substr(0, 3) != "<0x" || spelling[5] != '>') return -1;
  const int high = HexDigit(spelling[3]);
  const int low = HexDigit(spelling[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

}  // namespace tandem
