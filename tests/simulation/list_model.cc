#include "tests/simulation/list_model.h"

#include "engine/base/check.h"
#include "tests/simulation/fake_arithmetic.h"

namespace tandem::test {

void ListModel::Push(int32_t token) {
  const int32_t position = size();
  tokens_.push_back(token);
  Place place{};
  uint64_t residual = EmbedHash(token, position);
  for (int32_t layer = 0; layer < kFakeLayers; ++layer) {
    const uint64_t before = position > 0 ? places_[position - 1].sum[layer] : 0;
    place.sum[layer] = before + EntryHash(layer, residual, position);
    // Layer 1 sees positions (position - window, position].
    const bool is_cut = layer == 1 && position >= kFakeWindow;
    const uint64_t below = is_cut ? places_[position - kFakeWindow].sum[layer] : 0;
    residual = ProjectHash(residual, AttentionHash(place.sum[layer] - below, residual));
    residual = ProjectHash(residual, GateHash(residual));
  }
  place.row = residual;
  place.tokens_hash = TokensHashStep(TokensHash(position), token);
  places_.push_back(place);
}

void ListModel::Truncate(int32_t length) {
  TANDEM_CHECK(length >= 0 && length <= size()) << length << " of " << size();
  tokens_.resize(length);
  places_.resize(length);
}

uint64_t ListModel::Weight(int32_t position) const {
  return WeightHash(Row(position), TokensHash(position), edits_);
}

int32_t ListModel::Draw(int32_t position) const {
  return FakeDraw(Row(position), tokens_[position - 1], seed_, choice_, position);
}

uint64_t ListModel::TokensHash(int32_t length) const {
  return length > 0 ? places_[length - 1].tokens_hash : kTokensHashBegin;
}

}  // namespace tandem::test
