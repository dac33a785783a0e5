#include "engine/text/jinja/globals.h"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "engine/base/status.h"
#include "engine/text/jinja/methods.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/print.h"
#include "engine/text/jinja/unicode.h"

namespace tandem::jinja {
namespace {

constexpr Int kMaxRange = 100'000;  // Jinja2's sandbox has the same limit
constexpr size_t kMaxTimeBytes = 4096;

absl::StatusOr<Value> Range(Context& context, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"start", "stop", "step"}, 1));
  Int bounds[3] = {0, 0, 1};
  for (size_t i = 0; i < bound.size(); ++i) {
    if (!bound[i].has_value()) continue;
    const std::optional<Int> integer = bound[i]->AsInt();
    if (bound[i]->is_undefined()) return UndefinedError(*bound[i]);
    if (!integer.has_value()) return InvalidArgument("range needs integers");
    constexpr Int kFar = Int{1} << 100;
    bounds[i] = std::clamp(*integer, -kFar, kFar);
  }
  if (!bound[1].has_value()) std::swap(bounds[0], bounds[1]);
  const auto [start, stop, step] = bounds;
  if (step == 0) return InvalidArgument("the step of a range is 0");
  const Int distance = step > 0 ? stop - start : start - stop;
  const Int count = distance <= 0 ? 0 : (distance - 1) / (step > 0 ? step : -step) + 1;
  if (count > kMaxRange) {
    return ResourceExhausted("a range of more than ", static_cast<int64_t>(kMaxRange), " numbers");
  }
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(count));
  for (Int i = 0; i < count; ++i) items.push_back(Value::Integer(start + i * step));
  return context.MakeSequence(Sequence::Flavor::kRange, std::move(items));
}

// dict(mapping, name=value, ...)
absl::StatusOr<Value> MakeDictGlobal(Context& context, const CallArgs& args) {
  ASSIGN_OR_RETURN(Dict * dict, context.MakeDict());
  if (args.positional.size() > 1) return InvalidArgument("dict takes one mapping");
  if (!args.positional.empty()) {
    const Dict* from = args.positional[0].dict();
    if (from == nullptr) return InvalidArgument("dict needs a mapping");
    RETURN_IF_ERROR(context.ChargeCopy(*from));
    *dict = *from;
  }
  for (const auto& [name, value] : args.named) {
    dict->SetText(std::make_shared<const Text>(name, Origin::kScaffold), value);
  }
  return Value::Of(dict);
}

absl::StatusOr<Value> MakeNamespaceGlobal(Context& context, const CallArgs& args) {
  ASSIGN_OR_RETURN(Namespace * ns, context.MakeNamespace());
  if (args.positional.size() > 1) return InvalidArgument("namespace takes one mapping");
  if (!args.positional.empty()) {
    const Dict* from = args.positional[0].dict();
    if (from == nullptr) return InvalidArgument("namespace needs a mapping");
    RETURN_IF_ERROR(context.Charge(4 * static_cast<int64_t>(from->size())));
    for (const Dict::Entry& entry : from->entries()) {
      if (entry.key.text() == nullptr) return InvalidArgument("namespace needs string keys");
      RETURN_IF_ERROR(context.ChargeScan(entry.key.text()->size()));
      ns->attributes[std::string(entry.key.text()->bytes())] = entry.value;
    }
  }
  for (const auto& [name, value] : args.named) ns->attributes[name] = value;
  return Value::Of(ns);
}

absl::StatusOr<Value> RaiseException(Context& context, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"message"}, 1));
  ASSIGN_OR_RETURN(const Text message, ToText(context, *bound[0]));
  context.set_raised();
  return InvalidArgument(std::string(message.bytes()));
}

absl::StatusOr<Value> StrftimeNow(Context& context, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"format"}, 1));
  if (bound[0]->text() == nullptr) return InvalidArgument("strftime_now needs a string");
  const std::tm time = absl::ToTM(context.now(), absl::UTCTimeZone());
  // The mark in front tells an empty result, which is fine, from one that does not fit.
  const std::string format = absl::StrCat("|", std::string(bound[0]->text()->bytes()));
  if (format.find('\0') != std::string::npos) return InvalidArgument("a time format holds a zero");
  std::string buffer(kMaxTimeBytes, '\0');
  const size_t length = std::strftime(buffer.data(), buffer.size(), format.c_str(), &time);
  if (length == 0) {
    return ResourceExhausted("strftime_now writes more than ", kMaxTimeBytes, " bytes");
  }
  const std::string_view written = std::string_view(buffer).substr(1, length - 1);
  if (!IsValidUtf8(written)) return InvalidArgument("strftime_now cannot use this format");
  return context.MakeText(written, bound[0]->text()->origin());
}

constexpr GlobalEntry kGlobals[] = {{"dict", MakeDictGlobal},
                                    {"namespace", MakeNamespaceGlobal},
                                    {"raise_exception", RaiseException},
                                    {"range", Range},
                                    {"strftime_now", StrftimeNow}};

}  // namespace

const GlobalEntry* FindGlobal(std::string_view name) {
  const auto* found = std::find_if(std::begin(kGlobals), std::end(kGlobals),
                                   [&](const GlobalEntry& entry) { return entry.name == name; });
  return found == std::end(kGlobals) ? nullptr : found;
}

}  // namespace tandem::jinja
