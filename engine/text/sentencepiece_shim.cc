#include "engine/text/sentencepiece_shim.h"

#include <sentencepiece_processor.h>

#include <utility>

namespace tandem {

struct SentencePieceShim::Library {
  sentencepiece::SentencePieceProcessor processor;
};

SentencePieceShim::SentencePieceShim(std::unique_ptr<Library> library)
    : library_(std::move(library)) {}
SentencePieceShim::~SentencePieceShim() = default;

std::unique_ptr<SentencePieceShim> SentencePieceShim::Load(std::string_view model,
                                                           std::string* error) {
  auto library = std::make_unique<Library>();
  const sentencepiece::util::Status status = library->processor.LoadFromSerializedProto(model);
  if (!status.ok()) {
    *error = status.message();
    return nullptr;
  }
  return std::unique_ptr<SentencePieceShim>(new SentencePieceShim(std::move(library)));
}

int32_t SentencePieceShim::size() const { return library_->processor.GetPieceSize(); }

std::string SentencePieceShim::Spelling(int32_t id) const {
  return library_->processor.IdToPiece(id);
}

SentencePieceShim::Kind SentencePieceShim::KindOf(int32_t id) const {
  if (library_->processor.IsUnknown(id)) return Kind::kUnknown;
  if (library_->processor.IsControl(id)) return Kind::kControl;
  if (library_->processor.IsUnused(id)) return Kind::kUnused;
  if (library_->processor.IsByte(id)) return Kind::kByte;
  return Kind::kNormal;
}

bool SentencePieceShim::Encode(std::string_view text, std::vector<Piece>* pieces,
                               std::string* error) const {
  sentencepiece::ImmutableSentencePieceText encoded;
  const sentencepiece::util::Status status =
      library_->processor.Encode(text, encoded.mutable_proto());
  if (!status.ok()) {
    *error = status.message();
    return false;
  }
  const int count = static_cast<int>(encoded.pieces_size());
  for (int i = 0; i < count; ++i) {
    const auto piece = encoded.pieces(i);
    pieces->push_back({static_cast<int32_t>(piece.id()), piece.begin(), piece.end()});
  }
  return true;
}

}  // namespace tandem
