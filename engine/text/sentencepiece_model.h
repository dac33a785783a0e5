// The few settings of a serialised sentencepiece ModelProto that the library's public header does
// not give.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"

namespace tandem {

// Fields of NormalizerSpec and TrainerSpec in sentencepiece_model.proto, with its defaults.
struct SentencePieceSettings {
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  bool has_character_map =
      false;  // precompiled_charsmap is not empty: text is changed before it is split
  bool whitespace_as_suffix = false;
};

// Reads them from the protobuf wire format (protobuf.dev, "Encoding"). INVALID_ARGUMENT: the bytes
// are not a message.
absl::StatusOr<SentencePieceSettings> ReadSentencePieceSettings(std::string_view model);

}  // namespace tandem
