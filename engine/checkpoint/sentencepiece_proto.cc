#include "engine/checkpoint/sentencepiece_proto.h"

#include <bit>
#include <cstddef>

#include "engine/base/check.h"

namespace tandem {
namespace {

// Protocol buffers' wire format (protobuf.dev/programming-guides/encoding), the three kinds that
// are needed.
class MessageWriter final {
 public:
  void Varint(uint32_t field, int64_t value) {
    Tag(field, 0);
    Raw(static_cast<uint64_t>(value));  // negative int32 fields are sign-extended to 64 bits
  }
  void Float(uint32_t field, float value) {
    Tag(field, 5);
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes_.push_back(static_cast<char>(bits >> shift));
  }
  void Bytes(uint32_t field, std::string_view value) {
    Tag(field, 2);
    Raw(value.size());
    bytes_.append(value);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void Tag(uint32_t field, uint32_t wire_type) { Raw(uint64_t{field} << 3 | wire_type); }
  void Raw(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  std::string bytes_;
};

// ModelProto
constexpr uint32_t kPieces = 1;
constexpr uint32_t kTrainerSpec = 2;
constexpr uint32_t kNormalizerSpec = 3;
// ModelProto.SentencePiece; its Type has the same numbers as TokenType.
constexpr uint32_t kPiece = 1;
constexpr uint32_t kScore = 2;
constexpr uint32_t kType = 3;
// TrainerSpec
constexpr uint32_t kModelType = 3;
constexpr int64_t kModelTypeBpe = 2;
constexpr uint32_t kVocabSize = 4;
constexpr uint32_t kByteFallback = 35;
constexpr uint32_t kUnkId = 40;
constexpr uint32_t kBosId = 41;
constexpr uint32_t kEosId = 42;
constexpr uint32_t kPadId = 43;
constexpr uint32_t kUnkPiece = 45;
constexpr uint32_t kBosPiece = 46;
constexpr uint32_t kEosPiece = 47;
constexpr uint32_t kPadPiece = 48;
// NormalizerSpec
constexpr uint32_t kNormalizerName = 1;
constexpr uint32_t kPrecompiledCharsmap = 2;
constexpr uint32_t kAddDummyPrefix = 3;
constexpr uint32_t kRemoveExtraWhitespaces = 4;
constexpr uint32_t kEscapeWhitespaces = 5;

}  // namespace

std::string SerializeSentencePieceModel(const SentencePieceSpec& spec) {
  TANDEM_CHECK(spec.pieces.size() == spec.scores.size() && spec.pieces.size() == spec.types.size())
      << spec.pieces.size() << " pieces, " << spec.scores.size() << " scores, " << spec.types.size()
      << " types";
  MessageWriter model;
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    MessageWriter piece;
    piece.Bytes(kPiece, spec.pieces[i]);
    piece.Float(kScore, spec.scores[i]);
    piece.Varint(kType, static_cast<int64_t>(spec.types[i]));
    model.Bytes(kPieces, piece.bytes());
  }

  MessageWriter trainer;
  trainer.Varint(kModelType, kModelTypeBpe);
  trainer.Varint(kVocabSize, static_cast<int64_t>(spec.pieces.size()));
  trainer.Varint(kByteFallback, spec.byte_fallback ? 1 : 0);
  const auto special = [&](uint32_t id_field, uint32_t piece_field, int32_t id) {
    trainer.Varint(id_field, id);
    if (id >= 0) trainer.Bytes(piece_field, spec.pieces[static_cast<size_t>(id)]);
  };
  special(kUnkId, kUnkPiece, spec.unknown_id);
  special(kBosId, kBosPiece, spec.bos_id);
  special(kEosId, kEosPiece, spec.eos_id);
  special(kPadId, kPadPiece, spec.padding_id);
  model.Bytes(kTrainerSpec, trainer.bytes());

  MessageWriter normalizer;
  normalizer.Bytes(kNormalizerName,
                   spec.precompiled_charsmap.empty() ? "identity" : "user_defined");
  normalizer.Bytes(kPrecompiledCharsmap, spec.precompiled_charsmap);
  normalizer.Varint(kAddDummyPrefix, spec.add_dummy_prefix ? 1 : 0);
  normalizer.Varint(kRemoveExtraWhitespaces, spec.remove_extra_whitespaces ? 1 : 0);
  normalizer.Varint(kEscapeWhitespaces, 1);
  model.Bytes(kNormalizerSpec, normalizer.bytes());
  return model.bytes();
}

}  // namespace tandem
