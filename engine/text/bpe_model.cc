#include "engine/text/bpe_model.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/text/byte_alphabet.h"

namespace tandem {
namespace {

constexpr int32_t kNone = -1;
constexpr int32_t kMergedAway = -2;

uint64_t PairKey(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

absl::Status TooManyTokens(int64_t max_tokens) {
  return ResourceExhausted("the text has more than ", max_tokens, " tokens");
}

}  // namespace

absl::StatusOr<BpeModel> BpeModel::Make(const std::vector<std::string>& spellings,
                                        const std::vector<std::string>& merges,
                                        const std::vector<bool>& whole_words) {
  BpeModel model;
  std::fill(std::begin(model.byte_ids_), std::end(model.byte_ids_), kNone);
  for (size_t i = 0; i < spellings.size(); ++i) {
    const std::optional<std::string> bytes = BytesOfSpelling(spellings[i]);
    if (!bytes.has_value() || bytes->empty()) continue;
    const int32_t id = static_cast<int32_t>(i);
    const auto [slot, is_new] =
        model.tokens_.try_emplace(*bytes, Token{id, !whole_words.empty() && whole_words[i]});
    if (!is_new)
      return InvalidArgument("tokens ", slot->second.id, " and ", id, " are both \"", spellings[i],
                             "\"");
    if (bytes->size() == 1) model.byte_ids_[static_cast<uint8_t>((*bytes)[0])] = id;
    model.longest_token_ = std::max(model.longest_token_, static_cast<int64_t>(bytes->size()));
  }
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view merge = merges[rank];
    const size_t space = merge.find(' ');
    std::optional<std::string> left, right;
    if (space != std::string_view::npos) {
      left = BytesOfSpelling(merge.substr(0, space));
      right = BytesOfSpelling(merge.substr(space + 1));
    }
    if (!left.has_value() || !right.has_value()) {
      return InvalidArgument("merge ", rank, " \"", merges[rank],
                             "\" is not two tokens with a space between them");
    }
    const int32_t left_id = model.Find(*left);
    const int32_t right_id = model.Find(*right);
    const int32_t result = model.Find(*left + *right);
    if (left_id < 0 || right_id < 0 || result < 0) {
      return InvalidArgument("merge ", rank, " \"", merges[rank],
                             "\": a part or the result is not in the vocabulary");
    }
    model.merges_.insert_or_assign(PairKey(left_id, right_id),
                                   Merge{static_cast<int32_t>(rank), result});
    model.results_.push_back(result);
  }
  if (whole_words.empty()) model.FindWholeWords();
  return model;
}

void BpeModel::FindWholeWords() {
  Scratch scratch;
  for (auto& [bytes, token] : tokens_) {
    if (LoadBytes(bytes, &scratch) != 0) continue;
    RunMerges(&scratch);
    token.whole_word = scratch.symbols[0].next == kNone && scratch.symbols[0].id == token.id;
  }
}

int32_t BpeModel::Find(std::string_view bytes) const {
  const auto found = tokens_.find(View(bytes));
  return found == tokens_.end() ? kNone : found->second.id;
}

int32_t BpeModel::RankAt(const Scratch& scratch, int32_t i) const {
  const Scratch::Symbol& symbol = scratch.symbols[i];
  if (symbol.next < 0) return kNone;
  const auto found = merges_.find(PairKey(symbol.id, scratch.symbols[symbol.next].id));
  return found == merges_.end() ? kNone : found->second.rank;
}

int64_t BpeModel::LoadBytes(std::string_view word, Scratch* scratch) const {
  std::vector<Scratch::Symbol>& symbols = scratch->symbols;
  symbols.clear();
  int64_t missing = 0;
  for (size_t i = 0; i < word.size(); ++i) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(word[i])];
    if (id < 0) {
      ++missing;
      continue;
    }
    const int32_t index = static_cast<int32_t>(symbols.size());
    const int32_t begin = static_cast<int32_t>(i);
    symbols.push_back({id, begin, begin + 1, index - 1, index + 1, kNone});
  }
  if (!symbols.empty()) symbols.back().next = kNone;
  return missing;
}

void BpeModel::RunMerges(Scratch* scratch) const {
  std::vector<Scratch::Symbol>& symbols = scratch->symbols;
  // Entries are rank << 32 | position, so that the smallest is the most important, leftmost merge.
  std::vector<uint64_t>& heap = scratch->heap;
  heap.clear();
  const auto entry = [&](int32_t i) { return PairKey(symbols[i].rank, i); };
  for (int32_t i = 0; i < static_cast<int32_t>(symbols.size()); ++i) {
    symbols[i].rank = RankAt(*scratch, i);
    if (symbols[i].rank >= 0) heap.push_back(entry(i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto update = [&](int32_t i) {
    symbols[i].rank = RankAt(*scratch, i);
    if (symbols[i].rank < 0) return;
    heap.push_back(entry(i));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    const int32_t i = static_cast<int32_t>(top & 0xFFFFFFFF);
    const int32_t rank = static_cast<int32_t>(top >> 32);
    // A symbol whose pair changed since has another rank; one that was merged away has none.
    if (symbols[i].rank != rank) continue;
    Scratch::Symbol& left = symbols[i];
    Scratch::Symbol& right = symbols[left.next];
    left.id = results_[rank];
    left.end = right.end;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = i;
    right.next = kMergedAway;
    right.rank = kNone;
    update(i);
    if (left.previous >= 0) update(left.previous);
  }
}

absl::Status BpeModel::EncodeWord(std::string_view word, int64_t base, int64_t max_tokens,
                                  Scratch* scratch, Encoding* out) const {
  TANDEM_CHECK(word.size() <= INT32_MAX) << word.size();
  const int64_t room = max_tokens - static_cast<int64_t>(out->ids.size());
  const auto append = [&](int32_t id, int64_t begin, int64_t end) {
    out->ids.push_back(id);
    out->offsets.push_back({base + begin, base + end});
  };
  if (static_cast<int64_t>(word.size()) <= longest_token_) {
    const auto found = tokens_.find(View(word));
    if (found != tokens_.end() && found->second.whole_word) {
      if (room < 1) return TooManyTokens(max_tokens);
      append(found->second.id, 0, static_cast<int64_t>(word.size()));
      return absl::OkStatus();
    }
  }
  const int64_t missing = LoadBytes(word, scratch);
  const int64_t bytes = static_cast<int64_t>(scratch->symbols.size());
  if ((bytes + longest_token_ - 1) / longest_token_ > room) return TooManyTokens(max_tokens);
  out->dropped_bytes += missing;
  RunMerges(scratch);
  int64_t left = room;
  for (int32_t i = bytes == 0 ? kNone : 0; i >= 0; i = scratch->symbols[i].next) {
    if (left-- == 0) return TooManyTokens(max_tokens);
    append(scratch->symbols[i].id, scratch->symbols[i].begin, scratch->symbols[i].end);
  }
  return absl::OkStatus();
}

}  // namespace tandem
