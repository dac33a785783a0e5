// The sentencepiece library behind standard types. Its header defines names inside namespace absl
// and cannot share a translation unit with Abseil's headers: only sentencepiece_shim.cc includes
// it, and neither file here may include Abseil.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// Thread-safe.
class SentencePieceShim final {
 public:
  enum class Kind : uint8_t { kNormal, kUnknown, kControl, kUnused, kByte };

  // A piece and the bytes of the text that it covers.
  struct Piece {
    int32_t id = 0;
    int64_t begin = 0;
    int64_t end = 0;
  };

  // Null, with the reason in *error, if the library refuses the serialised ModelProto.
  static std::unique_ptr<SentencePieceShim> Load(std::string_view model, std::string* error);
  ~SentencePieceShim();
  SentencePieceShim(const SentencePieceShim&) = delete;
  SentencePieceShim& operator=(const SentencePieceShim&) = delete;

  int32_t size() const;
  // REQUIRES 0 <= id < size().
  std::string Spelling(int32_t id) const;
  // User-defined pieces are kNormal. REQUIRES 0 <= id < size().
  Kind KindOf(int32_t id) const;

  // Appends the pieces of text. False, with the reason in *error, if the library fails. REQUIRES
  // text is UTF-8 of fewer than 2^31 bytes.
  bool Encode(std::string_view text, std::vector<Piece>* pieces, std::string* error) const;

 private:
  struct Library;
  explicit SentencePieceShim(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
};

}  // namespace tandem
