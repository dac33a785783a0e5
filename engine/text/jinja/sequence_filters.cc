// Filters over lists, dicts and other iterables (declared in filters.h).
#include <algorithm>
#include <functional>
#include <iterator>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/text/jinja/filters.h"
#include "engine/text/jinja/methods.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/print.h"
#include "engine/text/jinja/tests.h"
#include "engine/text/jinja/unicode.h"

namespace tandem::jinja {
namespace {

using Flavor = Sequence::Flavor;

// item.a.b for the attribute "a.b", item[0] for "0" or the integer 0. Parts that are missing
// become `fallback` if there is one.
absl::StatusOr<Value> GetPath(Context& context, const Value& item, const Value& attribute,
                              const std::optional<Value>& fallback = std::nullopt) {
  std::vector<Value> parts;
  if (const Text* path = attribute.text()) {
    for (size_t begin = 0; begin <= path->size();) {
      const size_t end = std::min(path->bytes().find('.', begin), path->size());
      const std::string_view part = path->bytes().substr(begin, end - begin);
      const bool is_number = !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
        return c >= '0' && c <= '9';
      });
      if (const std::optional<Int> index = ParseInt(part); is_number && index.has_value()) {
        parts.push_back(Value::Integer(*index));
      } else {
        ASSIGN_OR_RETURN(Value name, context.MakeText(path->Slice(begin, end)));
        parts.push_back(std::move(name));
      }
      begin = end + 1;
    }
  } else if (attribute.AsInt().has_value()) {
    parts.push_back(attribute);
  } else {
    return InvalidArgument("an attribute must be a string or an integer");
  }
  Value value = item;
  for (const Value& part : parts) {
    ASSIGN_OR_RETURN(value, GetItem(context, value, part));
    if (value.is_undefined() && fallback.has_value()) value = *fallback;
  }
  return value;
}

// What sort, min, max and unique compare: the attribute, in lower case if it is a string.
absl::StatusOr<Value> SortKey(Context& context, const Value& item,
                              const std::optional<Value>& attribute, bool case_sensitive) {
  Value key = item;
  if (attribute.has_value() && !attribute->is_none()) {
    ASSIGN_OR_RETURN(key, GetPath(context, item, *attribute));
  }
  if (case_sensitive || key.text() == nullptr) return key;
  RETURN_IF_ERROR(context.ChargeScan(key.text()->size()));
  return context.MakeText(ToLower(*key.text()));
}

struct Keyed {
  Value key;
  Value value;
};

absl::Status SortKeyed(Context& context, bool reverse, std::vector<Keyed>* items) {
  absl::Status failure;
  std::stable_sort(items->begin(), items->end(), [&](const Keyed& a, const Keyed& b) {
    if (!failure.ok()) return false;
    const Keyed& left = reverse ? b : a;
    const Keyed& right = reverse ? a : b;
    const absl::StatusOr<bool> less = Compare(context, CompareOp::kLess, left.key, right.key);
    if (!less.ok()) failure = less.status();
    return less.value_or(false);
  });
  return failure;
}

bool IsSet(const std::optional<Value>& flag) { return flag.has_value() && Truthy(*flag); }

absl::StatusOr<Value> LengthFilter(Context& context, const Value& input, const CallArgs& args) {
  RETURN_IF_ERROR(BindArguments(args, {}).status());
  ASSIGN_OR_RETURN(const int64_t length, Length(context, input));
  return Value::Integer(length);
}

absl::StatusOr<Value> ListFilter(Context& context, const Value& input, const CallArgs& args) {
  RETURN_IF_ERROR(BindArguments(args, {}).status());
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(context, input));
  return context.MakeList(std::move(items));
}

absl::StatusOr<Value> First(Context& context, const Value& input, const CallArgs& args) {
  RETURN_IF_ERROR(BindArguments(args, {}).status());
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(context, input));
  if (items.empty()) return Value::Missing("there is no first item: the sequence is empty");
  Value first = std::move(items.front());
  if (Sequence* rest = input.sequence(); rest != nullptr && rest->flavor == Flavor::kGenerator) {
    items.erase(items.begin());
    rest->items = std::move(items);
  }
  return first;
}

absl::StatusOr<Value> Last(Context& context, const Value& input, const CallArgs& args) {
  RETURN_IF_ERROR(BindArguments(args, {}).status());
  if (input.sequence() != nullptr && input.sequence()->flavor == Flavor::kGenerator) {
    return InvalidArgument("a generator has no last item");
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(context, input));
  if (items.empty()) return Value::Missing("there is no last item: the sequence is empty");
  return items.back();
}

absl::StatusOr<Value> Reverse(Context& context, const Value& input, const CallArgs& args) {
  RETURN_IF_ERROR(BindArguments(args, {}).status());
  if (input.text() != nullptr) {
    const Value none = Value::NoneValue();
    return GetSlice(context, input, none, none, Value::Integer(-1));
  }
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(context, input));
  std::reverse(items.begin(), items.end());
  return context.MakeSequence(Flavor::kGenerator, std::move(items));
}

absl::StatusOr<Value> Items(Context& context, const Value& input, const CallArgs& args) {
  RETURN_IF_ERROR(BindArguments(args, {}).status());
  std::vector<Value> pairs;
  if (!input.is_undefined()) {
    if (input.dict() == nullptr) return InvalidArgument("items needs a mapping");
    for (const Dict::Entry& entry : input.dict()->entries()) {
      ASSIGN_OR_RETURN(Value pair, context.MakeTuple({entry.key, entry.value}));
      pairs.push_back(std::move(pair));
    }
  }
  return context.MakeSequence(Flavor::kGenerator, std::move(pairs));
}

absl::StatusOr<Value> DictSort(Context& context, const Value& input, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"case_sensitive", "by", "reverse"}));
  if (input.is_undefined()) return UndefinedError(input);
  if (input.dict() == nullptr) return InvalidArgument("dictsort needs a mapping");
  std::string_view by = "key";
  if (bound[1].has_value() && bound[1]->text() != nullptr) by = bound[1]->text()->bytes();
  if (by != "key" && by != "value") return InvalidArgument("dictsort sorts by 'key' or 'value'");
  std::vector<Keyed> items;
  for (const Dict::Entry& entry : input.dict()->entries()) {
    ASSIGN_OR_RETURN(Value key, SortKey(context, by == "key" ? entry.key : entry.value,
                                        std::nullopt, IsSet(bound[0])));
    ASSIGN_OR_RETURN(Value pair, context.MakeTuple({entry.key, entry.value}));
    items.push_back({std::move(key), std::move(pair)});
  }
  RETURN_IF_ERROR(SortKeyed(context, IsSet(bound[2]), &items));
  std::vector<Value> sorted;
  for (Keyed& item : items) sorted.push_back(std::move(item.value));
  return context.MakeList(std::move(sorted));
}

// By the item or by attributes, of which a string may name several: 'city,name'.
absl::StatusOr<Value> Sort(Context& context, const Value& input, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound,
                   BindArguments(args, {"reverse", "case_sensitive", "attribute"}));
  std::vector<std::optional<Value>> attributes = {bound[2]};
  if (bound[2].has_value() && bound[2]->text() != nullptr) {
    CallArgs comma;
    comma.positional.push_back(Value::String(std::make_shared<const Text>(",", Origin::kScaffold)));
    ASSIGN_OR_RETURN(const Value names, FindTextMethod("split")->call(context, *bound[2], comma));
    attributes.assign(names.sequence()->items.begin(), names.sequence()->items.end());
  }
  ASSIGN_OR_RETURN(const std::vector<Value> values, Iterate(context, input));
  std::vector<Keyed> items;
  for (const Value& value : values) {
    std::vector<Value> keys;
    for (const std::optional<Value>& attribute : attributes) {
      ASSIGN_OR_RETURN(Value key, SortKey(context, value, attribute, IsSet(bound[1])));
      keys.push_back(std::move(key));
    }
    ASSIGN_OR_RETURN(Value key, context.MakeList(std::move(keys)));
    items.push_back({std::move(key), value});
  }
  RETURN_IF_ERROR(SortKeyed(context, IsSet(bound[0]), &items));
  std::vector<Value> sorted;
  for (Keyed& item : items) sorted.push_back(std::move(item.value));
  return context.MakeList(std::move(sorted));
}

absl::StatusOr<Value> Unique(Context& context, const Value& input, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const std::vector<Value> values, Iterate(context, input));
  std::unordered_set<std::string> seen;
  std::vector<Value> unique;
  for (const Value& value : values) {
    ASSIGN_OR_RETURN(const Value key, SortKey(context, value, bound[1], IsSet(bound[0])));
    ASSIGN_OR_RETURN(std::string hashed, key.HashKey(context));
    if (seen.insert(std::move(hashed)).second) unique.push_back(value);
  }
  return context.MakeSequence(Flavor::kGenerator, std::move(unique));
}

template <CompareOp better>
absl::StatusOr<Value> Extreme(Context& context, const Value& input, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const std::vector<Value> values, Iterate(context, input));
  if (values.empty()) return Value::Missing("there is no item: the sequence is empty");
  size_t best = 0;
  Value best_key;
  for (size_t i = 0; i < values.size(); ++i) {
    ASSIGN_OR_RETURN(Value key, SortKey(context, values[i], bound[1], IsSet(bound[0])));
    bool wins = i == 0;
    if (i > 0) {
      ASSIGN_OR_RETURN(wins, Compare(context, better, key, best_key));
    }
    if (!wins) continue;
    best = i;
    best_key = std::move(key);
  }
  return values[best];
}

absl::StatusOr<Value> Sum(Context& context, const Value& input, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"attribute", "start"}));
  ASSIGN_OR_RETURN(const std::vector<Value> values, Iterate(context, input));
  Value sum = bound[1].value_or(Value::Integer(0));
  if (sum.text() != nullptr) return InvalidArgument("sum does not add strings");
  for (const Value& value : values) {
    Value term = value;
    if (bound[0].has_value() && !bound[0]->is_none()) {
      ASSIGN_OR_RETURN(term, GetPath(context, value, *bound[0]));
    }
    ASSIGN_OR_RETURN(sum, Arithmetic(context, BinaryOp::kAdd, sum, term));
  }
  return sum;
}

absl::StatusOr<Value> Join(Context& context, const Value& input, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"d", "attribute"}));
  ASSIGN_OR_RETURN(const std::vector<Value> values, Iterate(context, input));
  Text separator;
  if (bound[0].has_value()) {
    ASSIGN_OR_RETURN(separator, ToText(context, *bound[0]));
  }
  Text joined;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) joined.Append(separator);
    Value value = values[i];
    if (bound[1].has_value() && !bound[1]->is_none()) {
      ASSIGN_OR_RETURN(value, GetPath(context, value, *bound[1]));
    }
    ASSIGN_OR_RETURN(const Text text, ToText(context, value));
    joined.Append(text);
    RETURN_IF_ERROR(context.CheckTextSize(joined.size()));
  }
  return context.MakeText(std::move(joined));
}

// map('filter', arguments...) or map(attribute='name', default=value). As in Jinja2, nothing comes
// of none and other false values, here and in Select.
absl::StatusOr<Value> Map(Context& context, const Value& input, const CallArgs& args) {
  if (!Truthy(input)) return context.MakeSequence(Flavor::kGenerator, {});
  std::function<absl::StatusOr<Value>(const Value&)> change;
  if (args.positional.empty()) {
    ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"attribute", "default"}, 1));
    change = [&context, bound](const Value& item) {
      return GetPath(context, item, *bound[0], bound[1]);
    };
  } else {
    const Text* name = args.positional[0].text();
    if (name == nullptr) return InvalidArgument("map needs the name of a filter");
    const FilterEntry* filter = FindFilter(name->bytes());
    if (filter == nullptr) {
      return InvalidArgument("map: the filter '", std::string(name->bytes()), "' is not supported");
    }
    CallArgs rest = args;
    rest.positional.erase(rest.positional.begin());
    change = [&context, filter, rest](const Value& item) {
      return filter->call(context, item, rest);
    };
  }
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(context, input));
  for (Value& item : items) {
    ASSIGN_OR_RETURN(item, change(item));
  }
  return context.MakeSequence(Flavor::kGenerator, std::move(items));
}

// select, reject, selectattr, rejectattr: the items for which a test (truth, when none is named)
// says `keeps`; of the item itself or of its attribute.
template <bool keeps, bool by_attribute>
absl::StatusOr<Value> Select(Context& context, const Value& input, const CallArgs& args) {
  if (!Truthy(input)) return context.MakeSequence(Flavor::kGenerator, {});
  CallArgs rest = args;
  Value attribute;
  if (by_attribute) {
    if (rest.positional.empty()) return InvalidArgument("needs the name of an attribute");
    attribute = rest.positional[0];
    rest.positional.erase(rest.positional.begin());
  }
  const TestEntry* test = nullptr;
  if (!rest.positional.empty()) {
    const Text* name = rest.positional[0].text();
    if (name != nullptr) test = FindTest(name->bytes());
    if (test == nullptr) return InvalidArgument("needs the name of a test that is supported");
    rest.positional.erase(rest.positional.begin());
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(context, input));
  std::vector<Value> selected;
  for (const Value& item : items) {
    RETURN_IF_ERROR(context.Charge());
    Value subject = item;
    if (by_attribute) {
      ASSIGN_OR_RETURN(subject, GetPath(context, item, attribute));
    }
    bool holds = Truthy(subject);
    if (test != nullptr) {
      ASSIGN_OR_RETURN(holds, test->call(context, subject, rest));
    }
    if (holds == keeps) selected.push_back(item);
  }
  return context.MakeSequence(Flavor::kGenerator, std::move(selected));
}

constexpr FilterEntry kFilters[] = {
    {"count", LengthFilter},
    {"dictsort", DictSort},
    {"first", First},
    {"items", Items},
    {"join", Join},
    {"last", Last},
    {"length", LengthFilter},
    {"list", ListFilter},
    {"map", Map},
    {"max", Extreme<CompareOp::kGreater>},
    {"min", Extreme<CompareOp::kLess>},
    {"reject", Select<false, false>},
    {"rejectattr", Select<false, true>},
    {"reverse", Reverse},
    {"select", Select<true, false>},
    {"selectattr", Select<true, true>},
    {"sort", Sort},
    {"sum", Sum},
    {"unique", Unique},
};

}  // namespace

const FilterEntry* FindSequenceFilter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                   [&](const FilterEntry& entry) { return entry.name == name; });
  return found == std::end(kFilters) ? nullptr : found;
}

const FilterEntry* FindFilter(std::string_view name) {
  const FilterEntry* found = FindTextFilter(name);
  return found != nullptr ? found : FindSequenceFilter(name);
}

}  // namespace tandem::jinja
