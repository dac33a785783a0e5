// Methods of strings (declared in methods.h). Optional arguments that no chat template was seen to
// use, such as the bounds of startswith, are refused.
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "engine/base/status.h"
#include "engine/text/jinja/format.h"
#include "engine/text/jinja/methods.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/unicode.h"

namespace tandem::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;

absl::StatusOr<const Text*> AsText(const Value& value, std::string_view what) {
  if (value.is_undefined()) return UndefinedError(value);
  if (value.text() == nullptr) {
    return InvalidArgument(std::string(what), " needs a string, not '",
                           std::string(value.TypeName()), "'");
  }
  return value.text();
}

absl::StatusOr<Int> AsCount(const std::optional<Value>& value, Int absent) {
  if (!value.has_value()) return absent;
  const std::optional<Int> count = value->AsInt();
  if (!count.has_value()) return InvalidArgument("a count must be an integer");
  return *count;
}

template <Side side>
absl::StatusOr<Value> StripMethod(Context& context, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"chars"}));
  const Text* characters = nullptr;
  if (bound[0].has_value() && !bound[0]->is_none()) {
    ASSIGN_OR_RETURN(characters, AsText(*bound[0], "strip"));
  }
  Text stripped = Strip(*self.text(), side, characters);
  const size_t searched = characters == nullptr ? 0 : characters->size();
  const size_t stripped_bytes = self.text()->size() - stripped.size();
  RETURN_IF_ERROR(context.ChargeScan(stripped_bytes + 8 * searched));  // the set is sorted
  return context.MakeText(std::move(stripped));
}

// The pieces between white space; from the right when asked for.
std::vector<Text> SplitSpaces(const Text& text, Int limit, bool from_right) {
  const std::string_view bytes = text.bytes();
  std::vector<std::pair<size_t, size_t>> words;
  size_t begin = kNone;
  for (size_t position = 0; position < bytes.size();) {
    const size_t at = position;
    if (IsSpace(NextCodePoint(bytes, &position))) {
      if (begin != kNone) words.emplace_back(begin, at);
      begin = kNone;
    } else if (begin == kNone) {
      begin = at;
    }
  }
  if (begin != kNone) words.emplace_back(begin, bytes.size());
  std::vector<Text> pieces;
  const bool cut = limit >= 0 && static_cast<Int>(words.size()) > limit + 1;
  if (cut && !from_right) {
    words[static_cast<size_t>(limit)].second = bytes.size();
    words.resize(static_cast<size_t>(limit) + 1);
  } else if (cut) {
    const size_t last = words.size() - 1 - static_cast<size_t>(limit);
    words[last].first = 0;
    words.erase(words.begin(), words.begin() + static_cast<ptrdiff_t>(last));
  }
  for (const auto& [from, to] : words) pieces.push_back(text.Slice(from, to));
  return pieces;
}

std::vector<Text> SplitAt(const Text& text, std::string_view separator, Int limit) {
  std::vector<Text> pieces;
  size_t begin = 0;
  while (limit < 0 || static_cast<Int>(pieces.size()) < limit) {
    const size_t found = FindBytes(text.bytes(), separator, begin);
    if (found == kNone) break;
    pieces.push_back(text.Slice(begin, found));
    begin = found + separator.size();
  }
  pieces.push_back(text.Slice(begin, text.size()));
  return pieces;
}

std::vector<Text> SplitAtFromRight(const Text& text, std::string_view separator, Int limit) {
  std::vector<Text> pieces;
  size_t end = text.size();
  for (size_t position = end; position + 1 > separator.size();) {
    if (limit >= 0 && static_cast<Int>(pieces.size()) >= limit) break;
    const size_t begin = position - separator.size();
    if (text.bytes().compare(begin, separator.size(), separator) != 0) {
      --position;
      continue;
    }
    pieces.push_back(text.Slice(position, end));
    end = position = begin;
  }
  pieces.push_back(text.Slice(0, end));
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

absl::StatusOr<Value> ListOfTexts(Context& context, std::vector<Text> texts) {
  std::vector<Value> items;
  items.reserve(texts.size());
  for (Text& text : texts) {
    ASSIGN_OR_RETURN(Value item, context.MakeText(std::move(text)));
    items.push_back(std::move(item));
  }
  return context.MakeList(std::move(items));
}

template <bool from_right>
absl::StatusOr<Value> SplitMethod(Context& context, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"sep", "maxsplit"}));
  ASSIGN_OR_RETURN(const Int limit, AsCount(bound[1], -1));
  const Text& text = *self.text();
  if (!bound[0].has_value() || bound[0]->is_none()) {
    RETURN_IF_ERROR(context.ChargeScan(text.size()));
    return ListOfTexts(context, SplitSpaces(text, limit, from_right));
  }
  ASSIGN_OR_RETURN(const Text* separator, AsText(*bound[0], "split"));
  if (separator->empty()) return InvalidArgument("split needs a separator that is not empty");
  // A comparison at each byte, where the search goes from the right.
  RETURN_IF_ERROR(context.ChargeScan(text.size() * (from_right ? separator->size() : 1)));
  return ListOfTexts(context, from_right ? SplitAtFromRight(text, separator->bytes(), limit)
                                         : SplitAt(text, separator->bytes(), limit));
}

absl::StatusOr<Value> SplitLinesMethod(Context& context, const Value& self, const CallArgs& args) {
  RETURN_IF_ERROR(BindArguments(args, {}).status());
  RETURN_IF_ERROR(context.ChargeScan(self.text()->size()));
  return ListOfTexts(context, SplitLines(*self.text()));
}

// startswith and endswith: one string or a tuple of them.
template <bool at_end>
absl::StatusOr<Value> AffixMethod(Context& context, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"affix"}, 1));
  std::vector<Value> affixes = {*bound[0]};
  const Sequence* tuple = bound[0]->sequence();
  if (tuple != nullptr && tuple->flavor == Sequence::Flavor::kTuple) affixes = tuple->items;
  const std::string_view bytes = self.text()->bytes();
  for (const Value& candidate : affixes) {
    ASSIGN_OR_RETURN(const Text* affix, AsText(candidate, at_end ? "endswith" : "startswith"));
    RETURN_IF_ERROR(context.ChargeScan(affix->size()));
    const bool found = at_end ? bytes.ends_with(affix->bytes()) : bytes.starts_with(affix->bytes());
    if (found) return Value::Bool(true);
  }
  return Value::Bool(false);
}

template <bool at_end>
absl::StatusOr<Value> RemoveAffixMethod(Context& context, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"affix"}, 1));
  ASSIGN_OR_RETURN(const Text* affix, AsText(*bound[0], at_end ? "removesuffix" : "removeprefix"));
  const Text& text = *self.text();
  const bool found =
      at_end ? text.bytes().ends_with(affix->bytes()) : text.bytes().starts_with(affix->bytes());
  if (!found) return self;
  return context.MakeText(at_end ? text.Slice(0, text.size() - affix->size())
                                 : text.Slice(affix->size(), text.size()));
}

absl::StatusOr<Value> ReplaceMethod(Context& context, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"old", "new", "count"}, 2));
  ASSIGN_OR_RETURN(const Text* from, AsText(*bound[0], "replace"));
  ASSIGN_OR_RETURN(const Text* to, AsText(*bound[1], "replace"));
  ASSIGN_OR_RETURN(const Int limit, AsCount(bound[2], -1));
  return Replace(context, *self.text(), *from, *to, limit);
}

Text ToTitle(const Text& text) {
  bool in_word = false;
  return text.Transform([&](std::string_view bytes, std::string* out) {
    for (size_t position = 0; position < bytes.size();) {
      const char32_t c = NextCodePoint(bytes, &position);
      in_word ? AppendLower(c, out) : AppendTitle(c, out);
      in_word = IsCased(c);
    }
  });
}

template <Text (*change)(const Text&)>
absl::StatusOr<Value> CaseMethod(Context& context, const Value& self, const CallArgs& args) {
  RETURN_IF_ERROR(BindArguments(args, {}).status());
  RETURN_IF_ERROR(context.ChargeScan(self.text()->size()));
  return context.MakeText(change(*self.text()));
}

absl::StatusOr<Value> JoinMethod(Context& context, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"iterable"}, 1));
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(context, *bound[0]));
  Text joined;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) joined.Append(*self.text());
    ASSIGN_OR_RETURN(const Text* item, AsText(items[i], "join"));
    joined.Append(*item);
    RETURN_IF_ERROR(context.CheckTextSize(joined.size()));
  }
  return context.MakeText(std::move(joined));
}

absl::StatusOr<Value> FormatMethod(Context& context, const Value& self, const CallArgs& args) {
  return FormatBraces(context, *self.text(), args);
}

// find, rfind and index: code points, -1 (index: an error) when there is none.
template <bool from_right, bool must_exist>
absl::StatusOr<Value> FindMethodOfText(Context& context, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"sub", "start"}, 1));
  ASSIGN_OR_RETURN(const Text* wanted, AsText(*bound[0], "find"));
  ASSIGN_OR_RETURN(const Int start, AsCount(bound[1], 0));
  const std::string_view bytes = self.text()->bytes();
  RETURN_IF_ERROR(context.ChargeScan(bytes.size() * (from_right ? wanted->size() + 1 : 1)));
  const int64_t length = CountCodePoints(bytes);
  const Int from = std::clamp(start < 0 ? start + length : start, Int{0}, Int{length} + 1);
  if (from > length) return Value::Integer(-1);
  const size_t offset = OffsetOfCodePoint(bytes, static_cast<int64_t>(from));
  size_t found =
      from_right ? bytes.rfind(wanted->bytes()) : FindBytes(bytes, wanted->bytes(), offset);
  if (found != kNone && found < offset) found = kNone;
  if (found == kNone && must_exist) return InvalidArgument("index: the substring was not found");
  if (found == kNone) return Value::Integer(-1);
  return Value::Integer(CountCodePoints(bytes.substr(0, found)));
}

absl::StatusOr<Value> CountMethod(Context& context, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"sub"}, 1));
  ASSIGN_OR_RETURN(const Text* wanted, AsText(*bound[0], "count"));
  const std::string_view bytes = self.text()->bytes();
  RETURN_IF_ERROR(context.ChargeScan(bytes.size()));
  if (wanted->empty()) return Value::Integer(CountCodePoints(bytes) + 1);
  Int count = 0;
  for (size_t at = FindBytes(bytes, wanted->bytes(), 0); at != kNone;
       at = FindBytes(bytes, wanted->bytes(), at + wanted->size())) {
    ++count;
  }
  return Value::Integer(count);
}

template <bool from_right>
absl::StatusOr<Value> PartitionMethod(Context& context, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"sep"}, 1));
  ASSIGN_OR_RETURN(const Text* separator, AsText(*bound[0], "partition"));
  if (separator->empty()) return InvalidArgument("partition needs a separator that is not empty");
  const Text& text = *self.text();
  RETURN_IF_ERROR(context.ChargeScan(text.size() * (from_right ? separator->size() : 1)));
  const size_t at = from_right ? text.bytes().rfind(separator->bytes())
                               : FindBytes(text.bytes(), separator->bytes(), 0);
  Text parts[3];
  if (at == kNone) {
    parts[from_right ? 2 : 0] = text;
  } else {
    parts[0] = text.Slice(0, at);
    parts[1] = text.Slice(at, at + separator->size());
    parts[2] = text.Slice(at + separator->size(), text.size());
  }
  std::vector<Value> items;
  for (Text& part : parts) {
    ASSIGN_OR_RETURN(Value item, context.MakeText(std::move(part)));
    items.push_back(std::move(item));
  }
  return context.MakeTuple(std::move(items));
}

absl::StatusOr<Value> IsSpaceMethod(Context& context, const Value& self, const CallArgs& args) {
  RETURN_IF_ERROR(BindArguments(args, {}).status());
  RETURN_IF_ERROR(context.ChargeScan(self.text()->size()));
  return Value::Bool(!self.text()->empty() &&
                     Strip(*self.text(), Side::kLeft, /*characters=*/nullptr).empty());
}

constexpr MethodEntry kTextMethods[] = {
    {"capitalize", CaseMethod<Capitalize>},
    {"count", CountMethod},
    {"endswith", AffixMethod<true>},
    {"find", FindMethodOfText<false, false>},
    {"format", FormatMethod},
    {"index", FindMethodOfText<false, true>},
    {"isspace", IsSpaceMethod},
    {"join", JoinMethod},
    {"lower", CaseMethod<ToLower>},
    {"lstrip", StripMethod<Side::kLeft>},
    {"partition", PartitionMethod<false>},
    {"removeprefix", RemoveAffixMethod<false>},
    {"removesuffix", RemoveAffixMethod<true>},
    {"replace", ReplaceMethod},
    {"rfind", FindMethodOfText<true, false>},
    {"rpartition", PartitionMethod<true>},
    {"rsplit", SplitMethod<true>},
    {"rstrip", StripMethod<Side::kRight>},
    {"split", SplitMethod<false>},
    {"splitlines", SplitLinesMethod},
    {"startswith", AffixMethod<false>},
    {"strip", StripMethod<Side::kBoth>},
    {"title", CaseMethod<ToTitle>},
    {"upper", CaseMethod<ToUpper>},
};

}  // namespace

const MethodEntry* FindTextMethod(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTextMethods), std::end(kTextMethods),
                                   [&](const MethodEntry& entry) { return entry.name == name; });
  return found == std::end(kTextMethods) ? nullptr : found;
}

Text Strip(const Text& text, Side side, const Text* characters) {
  std::u32string wanted;  // sorted
  for (size_t position = 0; characters != nullptr && position < characters->size();) {
    wanted.push_back(NextCodePoint(characters->bytes(), &position));
  }
  std::sort(wanted.begin(), wanted.end());
  const auto strips = [&](char32_t code_point) {
    if (characters == nullptr) return IsSpace(code_point);
    return std::binary_search(wanted.begin(), wanted.end(), code_point);
  };
  const std::string_view bytes = text.bytes();
  size_t begin = 0;
  size_t end = bytes.size();
  while (side != Side::kRight && begin < end) {
    size_t next = begin;
    if (!strips(NextCodePoint(bytes, &next))) break;
    begin = next;
  }
  while (side != Side::kLeft && end > begin) {
    const size_t last = PreviousCodePoint(bytes, end);
    size_t position = last;
    if (!strips(NextCodePoint(bytes, &position))) break;
    end = last;
  }
  return text.Slice(begin, end);
}

Text ToUpper(const Text& text) {
  return text.Transform([](std::string_view bytes, std::string* out) {
    for (size_t position = 0; position < bytes.size();) {
      AppendUpper(NextCodePoint(bytes, &position), out);
    }
  });
}

Text ToLower(const Text& text) {
  return text.Transform([](std::string_view bytes, std::string* out) {
    for (size_t position = 0; position < bytes.size();) {
      AppendLower(NextCodePoint(bytes, &position), out);
    }
  });
}

Text Capitalize(const Text& text) {
  bool first = true;
  return text.Transform([&](std::string_view bytes, std::string* out) {
    for (size_t position = 0; position < bytes.size();) {
      const char32_t c = NextCodePoint(bytes, &position);
      std::exchange(first, false) ? AppendTitle(c, out) : AppendLower(c, out);
    }
  });
}

absl::StatusOr<Value> Replace(Context& context, const Text& text, const Text& from, const Text& to,
                              Int limit) {
  RETURN_IF_ERROR(context.ChargeScan(text.size()));
  const std::string_view bytes = text.bytes();
  Text out;
  size_t copied = 0;
  size_t search = 0;
  for (Int count = 0; limit < 0 || count < limit; ++count) {
    const size_t found = FindBytes(bytes, from.bytes(), search);
    if (found == kNone) break;
    out.Append(text, copied, found);
    out.Append(to);
    RETURN_IF_ERROR(context.CheckTextSize(out.size()));
    copied = found + from.size();
    search = copied;
    if (from.empty()) {  // between all code points and at both ends
      if (found == bytes.size()) break;
      NextCodePoint(bytes, &search);
    }
  }
  out.Append(text, copied, text.size());
  out.set_markup(text.markup());
  return context.MakeText(std::move(out));
}

std::vector<Text> SplitLines(const Text& text) {
  const std::string_view bytes = text.bytes();
  std::vector<Text> lines;
  size_t begin = 0;
  for (size_t position = 0; position < bytes.size();) {
    const size_t at = position;
    const char32_t c = NextCodePoint(bytes, &position);
    if (!IsLineBreak(c)) continue;
    lines.push_back(text.Slice(begin, at));
    if (c == '\r' && position < bytes.size() && bytes[position] == '\n') ++position;
    begin = position;
  }
  if (begin < bytes.size()) lines.push_back(text.Slice(begin, bytes.size()));
  return lines;
}

}  // namespace tandem::jinja
