#include "engine/text/sentencepiece_model.h"

#include <cstdint>

#include "engine/base/status.h"

namespace tandem {
namespace {

// Field numbers of sentencepiece_model.proto.
constexpr uint64_t kTrainerSpec = 2;
constexpr uint64_t kNormalizerSpec = 3;
constexpr uint64_t kTreatWhitespaceAsSuffix = 24;
constexpr uint64_t kPrecompiledCharsmap = 2;
constexpr uint64_t kAddDummyPrefix = 3;
constexpr uint64_t kRemoveExtraWhitespaces = 4;
constexpr uint64_t kEscapeWhitespaces = 5;

struct Field {
  uint64_t number = 0;
  uint64_t value = 0;      // of a varint field
  std::string_view bytes;  // of a length-delimited field
};

// Takes fields off the front of a message.
class FieldReader final {
 public:
  explicit FieldReader(std::string_view message) : rest_(message) {}

  bool done() const { return rest_.empty(); }
  // False if the message is cut off or has a wire type that protobuf 3 does not write. REQUIRES
  // !done().
  bool Next(Field* field) {
    uint64_t tag = 0;
    if (!Varint(&tag)) return false;
    *field = {.number = tag >> 3};
    uint64_t length = 0;
    switch (tag & 7) {
      case 0:
        return Varint(&field->value);
      case 1:
        return Take(8, &field->bytes);
      case 2:
        return Varint(&length) && Take(length, &field->bytes);
      case 5:
        return Take(4, &field->bytes);
      default:
        return false;
    }
  }

 private:
  bool Varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      *value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool Take(uint64_t length, std::string_view* bytes) {
    if (length > rest_.size()) return false;
    *bytes = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return true;
  }

  std::string_view rest_;
};

// Calls visit for each field; false if the message is broken.
template <typename Visit>
bool ForEachField(std::string_view message, Visit visit) {
  FieldReader reader(message);
  while (!reader.done()) {
    Field field;
    if (!reader.Next(&field) || !visit(field)) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<SentencePieceSettings> ReadSentencePieceSettings(std::string_view model) {
  SentencePieceSettings settings;
  const auto trainer = [&](const Field& field) {
    if (field.number == kTreatWhitespaceAsSuffix) settings.whitespace_as_suffix = field.value != 0;
    return true;
  };
  const auto normalizer = [&](const Field& field) {
    if (field.number == kPrecompiledCharsmap) settings.has_character_map = !field.bytes.empty();
    if (field.number == kAddDummyPrefix) settings.add_dummy_prefix = field.value != 0;
    if (field.number == kRemoveExtraWhitespaces)
      settings.remove_extra_whitespaces = field.value != 0;
    if (field.number == kEscapeWhitespaces) settings.escape_whitespaces = field.value != 0;
    return true;
  };
  const bool whole = ForEachField(model, [&](const Field& field) {
    if (field.number == kTrainerSpec) return ForEachField(field.bytes, trainer);
    if (field.number == kNormalizerSpec) return ForEachField(field.bytes, normalizer);
    return true;
  });
  if (!whole) return InvalidArgument("the sentencepiece model is not a whole protobuf message");
  return settings;
}

}  // namespace tandem
