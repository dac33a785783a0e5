#include "engine/text/jinja/methods.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/base/status.h"
#include "engine/text/jinja/operators.h"

namespace tandem::jinja {
namespace {

using Flavor = Sequence::Flavor;

absl::StatusOr<Value> Append(Context& context, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"object"}, 1));
  RETURN_IF_ERROR(context.Charge());
  self.sequence()->items.push_back(*bound[0]);
  return Value::NoneValue();
}

absl::StatusOr<Value> Pop(Context& context, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"index"}));
  std::vector<Value>& items = self.sequence()->items;
  const auto size = static_cast<Int>(items.size());
  std::optional<Int> index = -1;
  if (bound[0].has_value()) index = bound[0]->AsInt();
  if (!index.has_value()) return InvalidArgument("pop needs an integer");
  if (*index < 0) *index += size;
  if (*index < 0 || *index >= size) return InvalidArgument("pop: the index is out of range");
  const auto place = items.begin() + static_cast<ptrdiff_t>(*index);
  RETURN_IF_ERROR(context.Charge(1 + (items.end() - place)));
  Value popped = std::move(*place);
  items.erase(place);
  return popped;
}

absl::StatusOr<Value> Count(Context& context, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"value"}, 1));
  Int count = 0;
  for (const Value& item : self.sequence()->items) {
    ASSIGN_OR_RETURN(const bool equal, Equal(context, item, *bound[0]));
    count += equal ? 1 : 0;
  }
  return Value::Integer(count);
}

absl::StatusOr<Value> Index(Context& context, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"value"}, 1));
  const std::vector<Value>& items = self.sequence()->items;
  for (size_t i = 0; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(const bool equal, Equal(context, items[i], *bound[0]));
    if (equal) return Value::Integer(static_cast<Int>(i));
  }
  return InvalidArgument("index: the value is not in the list");
}

absl::StatusOr<Value> Get(Context& context, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"key", "default"}, 1));
  ASSIGN_OR_RETURN(const Value* found, self.dict()->Find(context, *bound[0]));
  if (found != nullptr) return *found;
  return bound[1].value_or(Value::NoneValue());
}

template <Flavor flavor>
absl::StatusOr<Value> View(Context& context, const Value& self, const CallArgs& args) {
  RETURN_IF_ERROR(BindArguments(args, {}).status());
  std::vector<Value> items;
  items.reserve(self.dict()->size());
  for (const Dict::Entry& entry : self.dict()->entries()) {
    if (flavor == Flavor::kItems) {
      ASSIGN_OR_RETURN(Value pair, context.MakeTuple({entry.key, entry.value}));
      items.push_back(std::move(pair));
    } else {
      items.push_back(flavor == Flavor::kKeys ? entry.key : entry.value);
    }
  }
  return context.MakeSequence(flavor, std::move(items));
}

absl::StatusOr<Value> Copy(Context& context, const Value& self, const CallArgs& args) {
  RETURN_IF_ERROR(BindArguments(args, {}).status());
  if (self.dict() == nullptr) return context.MakeList(self.sequence()->items);
  RETURN_IF_ERROR(context.ChargeCopy(*self.dict()));
  ASSIGN_OR_RETURN(Dict * copy, context.MakeDict());
  *copy = *self.dict();
  return Value::Of(copy);
}

absl::StatusOr<Value> Cycle(Context&, const Value& self, const CallArgs& args) {
  if (args.positional.empty()) return InvalidArgument("loop.cycle needs values");
  return args.positional[static_cast<size_t>(self.loop()->index0) % args.positional.size()];
}

constexpr MethodEntry kListMethods[] = {
    {"append", Append}, {"copy", Copy}, {"count", Count}, {"index", Index}, {"pop", Pop}};
constexpr MethodEntry kTupleMethods[] = {{"count", Count}, {"index", Index}};
constexpr MethodEntry kDictMethods[] = {{"copy", Copy},
                                        {"get", Get},
                                        {"items", View<Flavor::kItems>},
                                        {"keys", View<Flavor::kKeys>},
                                        {"values", View<Flavor::kValues>}};
constexpr MethodEntry kLoopMethods[] = {{"cycle", Cycle}};

template <size_t size>
const MethodEntry* FindIn(const MethodEntry (&table)[size], std::string_view name) {
  const auto* found = std::find_if(std::begin(table), std::end(table),
                                   [&](const MethodEntry& entry) { return entry.name == name; });
  return found == std::end(table) ? nullptr : found;
}

}  // namespace

const MethodEntry* FindMethod(const Value& value, std::string_view name) {
  if (value.text() != nullptr) return FindTextMethod(name);
  if (value.dict() != nullptr) return FindIn(kDictMethods, name);
  if (value.loop() != nullptr) return FindIn(kLoopMethods, name);
  if (value.list() != nullptr) return FindIn(kListMethods, name);
  const Sequence* sequence = value.sequence();
  const bool is_tuple = sequence != nullptr &&
                        (sequence->flavor == Flavor::kTuple || sequence->flavor == Flavor::kRange);
  return is_tuple ? FindIn(kTupleMethods, name) : nullptr;
}

absl::StatusOr<std::vector<std::optional<Value>>> BindArguments(
    const CallArgs& args, std::initializer_list<std::string_view> parameters, size_t required) {
  std::vector<std::optional<Value>> bound(parameters.size());
  if (args.positional.size() > parameters.size()) {
    return InvalidArgument("takes at most ", parameters.size(), " arguments, not ",
                           args.positional.size());
  }
  std::copy(args.positional.begin(), args.positional.end(), bound.begin());
  for (const auto& [name, value] : args.named) {
    const auto* place = std::find(parameters.begin(), parameters.end(), name);
    if (place == parameters.end()) return InvalidArgument("takes no argument '", name, "'");
    std::optional<Value>& slot = bound[static_cast<size_t>(place - parameters.begin())];
    if (slot.has_value()) return InvalidArgument("the argument '", name, "' is given twice");
    slot = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!bound[i].has_value()) {
      return InvalidArgument("needs the argument '", std::string(parameters.begin()[i]), "'");
    }
  }
  return bound;
}

}  // namespace tandem::jinja
