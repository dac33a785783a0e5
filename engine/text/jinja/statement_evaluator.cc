// The statements of Evaluator, scopes and macros.
#include <algorithm>
#include <utility>
#include <variant>

#include "engine/base/status.h"
#include "engine/text/jinja/evaluator.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/print.h"

namespace tandem::jinja {

const Value* Scope::Find(Symbol symbol) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_) {
    for (const auto& [name, value] : scope->variables_) {
      if (name == symbol) return &value;
    }
  }
  return nullptr;
}

void Scope::Set(Symbol symbol, Value value) {
  for (auto& [name, held] : variables_) {
    if (name == symbol) {
      held = std::move(value);
      return;
    }
  }
  variables_.emplace_back(symbol, std::move(value));
}

void Scope::Capture() {
  for (Scope* scope = this; scope != nullptr && !scope->captured_; scope = scope->parent_) {
    scope->captured_ = true;
  }
}

absl::StatusOr<Text> Evaluator::Run(Scope& scope) {
  Text out;
  out_ = &out;
  RETURN_IF_ERROR(Exec(tree_.body, scope).status());
  return out;
}

absl::Status Evaluator::Emit(const Text& text) {
  RETURN_IF_ERROR(context_.ChargeBytes(text.size()));
  RETURN_IF_ERROR(context_.CountOutput(static_cast<int64_t>(text.size())));
  out_->Append(text);
  return absl::OkStatus();
}

absl::StatusOr<Evaluator::Flow> Evaluator::Exec(const Block& block, Scope& scope) {
  const Context::Depth depth(context_);
  RETURN_IF_ERROR(depth.Check());
  for (const Statement& statement : block) {
    RETURN_IF_ERROR(context_.Charge());
    context_.set_line(statement.line);
    ASSIGN_OR_RETURN(
        const Flow flow,
        std::visit([&](const auto& node) { return ExecNode(node, scope); }, statement.node));
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

absl::StatusOr<Evaluator::Flow> Evaluator::ExecNode(const TextStatement& node, Scope&) {
  RETURN_IF_ERROR(Emit(*node.text));
  return Flow::kNormal;
}

absl::StatusOr<Evaluator::Flow> Evaluator::ExecNode(const OutputStatement& node, Scope& scope) {
  ASSIGN_OR_RETURN(const Value value, Eval(*node.value, scope));
  if (value.text() != nullptr) {
    RETURN_IF_ERROR(Emit(*value.text()));
  } else {
    ASSIGN_OR_RETURN(const Text text, ToText(context_, value));
    RETURN_IF_ERROR(Emit(text));
  }
  return Flow::kNormal;
}

absl::StatusOr<Evaluator::Flow> Evaluator::ExecNode(const IfStatement& node, Scope& scope) {
  for (const auto& [condition, body] : node.branches) {
    ASSIGN_OR_RETURN(const bool holds, EvalCondition(*condition, scope));
    if (holds) return Exec(body, scope);
  }
  return Exec(node.otherwise, scope);
}

absl::StatusOr<Evaluator::Flow> Evaluator::ExecNode(const ForStatement& node, Scope& scope) {
  ASSIGN_OR_RETURN(const Value iterable, Eval(*node.iterable, scope));
  return ExecLoop(node, iterable, 0, scope);
}

absl::StatusOr<std::vector<Value>> Evaluator::FilterItems(const ForStatement& node,
                                                          std::vector<Value> items, Scope& scope) {
  if (node.filter == nullptr) return items;
  std::vector<Value> kept;
  auto inner = std::make_shared<Scope>(&scope);
  for (Value& item : items) {
    RETURN_IF_ERROR(Assign(node.target, item, *inner));
    ASSIGN_OR_RETURN(const bool holds, EvalCondition(*node.filter, *inner));
    if (holds) kept.push_back(std::move(item));
  }
  Retire(std::move(inner));
  return kept;
}

absl::StatusOr<Evaluator::Flow> Evaluator::ExecLoop(const ForStatement& node, const Value& iterable,
                                                    int64_t depth0, Scope& scope) {
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(context_, iterable));
  ASSIGN_OR_RETURN(items, FilterItems(node, std::move(items), scope));
  ASSIGN_OR_RETURN(Loop * loop, context_.MakeLoop());
  loop->items = std::move(items);
  loop->length = static_cast<int64_t>(loop->items.size());
  loop->depth0 = depth0;
  if (node.recursive) {
    scope.Capture();
    loop->recurse = [this, &node, &scope, depth0](Context&,
                                                  const Value& inner) -> absl::StatusOr<Value> {
      Text captured;
      Text* outer = std::exchange(out_, &captured);
      const auto flow = ExecLoop(node, inner, depth0 + 1, scope);
      out_ = outer;
      RETURN_IF_ERROR(flow.status());
      RETURN_IF_ERROR(context_.CountOutput(-static_cast<int64_t>(captured.size())));
      return context_.MakeText(std::move(captured));
    };
  }
  bool finished = false;  // an iteration; one that ends with break or continue does not count
  auto inner = std::make_shared<Scope>(&scope);
  for (; loop->index0 < loop->length; ++loop->index0) {
    RETURN_IF_ERROR(context_.Charge());
    if (inner->captured()) {
      Retire(std::move(inner));
      inner = std::make_shared<Scope>(&scope);
    }
    inner->Clear();
    inner->Set(kLoopSymbol, Value::Of(loop));
    RETURN_IF_ERROR(Assign(node.target, loop->items[loop->index0], *inner));
    ASSIGN_OR_RETURN(const Flow flow, Exec(node.body, *inner));
    if (flow == Flow::kBreak) break;
    finished |= flow == Flow::kNormal;
  }
  Retire(std::move(inner));
  loop->items.clear();
  if (finished || node.otherwise.empty()) return Flow::kNormal;
  auto other = std::make_shared<Scope>(&scope);
  auto flow = Exec(node.otherwise, *other);
  Retire(std::move(other));
  return flow;
}

absl::StatusOr<Evaluator::Flow> Evaluator::ExecNode(const SetStatement& node, Scope& scope) {
  ASSIGN_OR_RETURN(Value value, Eval(*node.value, scope));
  RETURN_IF_ERROR(Assign(node.target, std::move(value), scope));
  return Flow::kNormal;
}

absl::StatusOr<std::pair<Value, Evaluator::Flow>> Evaluator::CaptureBlock(const Block& block,
                                                                          Scope& scope) {
  auto inner = std::make_shared<Scope>(&scope);
  Text captured;
  Text* outer = std::exchange(out_, &captured);
  const absl::StatusOr<Flow> flow = Exec(block, *inner);
  out_ = outer;
  Retire(std::move(inner));
  RETURN_IF_ERROR(flow.status());
  RETURN_IF_ERROR(context_.CountOutput(-static_cast<int64_t>(captured.size())));
  ASSIGN_OR_RETURN(Value text, context_.MakeText(std::move(captured)));
  return std::make_pair(std::move(text), *flow);
}

absl::StatusOr<Evaluator::Flow> Evaluator::ExecNode(const SetBlockStatement& node, Scope& scope) {
  ASSIGN_OR_RETURN(auto captured, CaptureBlock(node.body, scope));
  auto& [text, flow] = captured;
  if (flow != Flow::kNormal) return flow;
  if (node.filter != nullptr) {
    ASSIGN_OR_RETURN(text, EvalBlockFilter(*node.filter, std::move(text), scope));
  }
  RETURN_IF_ERROR(Assign(node.target, std::move(text), scope));
  return Flow::kNormal;
}

absl::StatusOr<Evaluator::Flow> Evaluator::ExecNode(const FilterStatement& node, Scope& scope) {
  ASSIGN_OR_RETURN(auto captured, CaptureBlock(node.body, scope));
  auto& [text, flow] = captured;
  if (flow != Flow::kNormal) return flow;
  ASSIGN_OR_RETURN(const Value filtered, EvalBlockFilter(*node.filter, std::move(text), scope));
  ASSIGN_OR_RETURN(const Text printed, ToText(context_, filtered));
  RETURN_IF_ERROR(Emit(printed));
  return Flow::kNormal;
}

absl::StatusOr<Evaluator::Flow> Evaluator::ExecNode(const ScopeStatement& node, Scope& scope) {
  auto inner = std::make_shared<Scope>(&scope);
  for (const auto& [target, expr] : node.assignments) {
    ASSIGN_OR_RETURN(Value value, Eval(*expr, scope));
    RETURN_IF_ERROR(Assign(target, std::move(value), *inner));
  }
  auto flow = Exec(node.body, *inner);
  Retire(std::move(inner));
  return flow;
}

absl::StatusOr<Evaluator::Flow> Evaluator::ExecNode(const LoopControlStatement& node, Scope&) {
  return node.is_break ? Flow::kBreak : Flow::kContinue;
}

absl::StatusOr<Evaluator::Flow> Evaluator::ExecNode(const MacroStatement& node, Scope& scope) {
  ASSIGN_OR_RETURN(Value macro, MakeMacro(*node.macro, scope));
  scope.Set(node.symbol, std::move(macro));
  return Flow::kNormal;
}

absl::StatusOr<Evaluator::Flow> Evaluator::ExecNode(const CallStatement& node, Scope& scope) {
  ASSIGN_OR_RETURN(const Value caller, MakeMacro(*node.caller, scope));
  ASSIGN_OR_RETURN(const Value result,
                   EvalCall(std::get<CallExpr>(node.call->node), caller, scope));
  ASSIGN_OR_RETURN(const Text text, ToText(context_, result));
  RETURN_IF_ERROR(Emit(text));
  return Flow::kNormal;
}

absl::StatusOr<Value> Evaluator::MakeMacro(const MacroDef& macro, Scope& scope) {
  scope.Capture();
  return context_.MakeCallable(
      Callable{macro.name, [this, &macro, &scope](Context&, CallArgs args) {
                 return CallMacro(macro, scope, std::move(args));
               }});
}

absl::StatusOr<Value> Evaluator::CallMacro(const MacroDef& macro, Scope& definition,
                                           CallArgs args) {
  const Context::Depth depth(context_);
  RETURN_IF_ERROR(depth.Check());
  const int line = context_.line();
  auto parameters = std::make_shared<Scope>(&definition);
  RETURN_IF_ERROR(BindParameters(macro, std::move(args), *parameters));
  ASSIGN_OR_RETURN(auto captured, CaptureBlock(macro.body, *parameters));
  Retire(std::move(parameters));
  context_.set_line(line);
  return std::move(captured.first);
}

absl::Status Evaluator::BindParameters(const MacroDef& macro, CallArgs args, Scope& scope) {
  const size_t count = macro.parameters.size();
  if (args.positional.size() > count && !macro.uses_varargs) {
    return InvalidArgument("macro '", macro.name, "' takes not more than ", count, " arguments");
  }
  const auto take_named = [&](std::string_view name) -> std::optional<Value> {
    const auto found = std::find_if(args.named.begin(), args.named.end(),
                                    [&](const auto& arg) { return arg.first == name; });
    if (found == args.named.end()) return std::nullopt;
    std::optional<Value> value = std::move(found->second);
    args.named.erase(found);
    return value;
  };
  std::vector<const Parameter*> absent;
  for (size_t i = 0; i < count; ++i) {
    const Parameter& parameter = macro.parameters[i];
    std::optional<Value> value;
    if (i < args.positional.size()) {
      value = std::move(args.positional[i]);
    } else {
      value = take_named(parameter.name);
    }
    if (!value.has_value()) absent.push_back(&parameter);
    scope.Set(parameter.symbol, value.has_value()
                                    ? *std::move(value)
                                    : Value::Missing(absl::StrCat("parameter '", parameter.name,
                                                                  "' was not provided")));
  }
  const bool caller_is_parameter =
      std::any_of(macro.parameters.begin(), macro.parameters.end(),
                  [](const Parameter& parameter) { return parameter.symbol == kCallerSymbol; });
  if (macro.uses_caller && !caller_is_parameter) {
    std::optional<Value> caller = take_named("caller");
    scope.Set(kCallerSymbol,
              caller.has_value() ? *std::move(caller) : Value::Missing("no caller defined"));
  }
  if (macro.uses_varargs) {
    const size_t taken = std::min(count, args.positional.size());
    std::vector<Value> rest(args.positional.begin() + static_cast<ptrdiff_t>(taken),
                            args.positional.end());
    ASSIGN_OR_RETURN(Value varargs, context_.MakeTuple(std::move(rest)));
    scope.Set(kVarargsSymbol, std::move(varargs));
  }
  if (macro.uses_kwargs) {
    ASSIGN_OR_RETURN(Dict * kwargs, context_.MakeDict());
    for (const auto& [name, value] : args.named) {
      kwargs->SetText(std::make_shared<const Text>(name, Origin::kScaffold), value);
    }
    scope.Set(kKwargsSymbol, Value::Of(kwargs));
  } else if (!args.named.empty()) {
    return InvalidArgument("macro '", macro.name, "' takes no keyword argument '",
                           args.named[0].first, "'");
  }
  for (const Parameter* parameter : absent) {
    if (parameter->default_value == nullptr) continue;
    ASSIGN_OR_RETURN(Value value, Eval(*parameter->default_value, scope));
    scope.Set(parameter->symbol, std::move(value));
  }
  return absl::OkStatus();
}

absl::Status Evaluator::Assign(const Target& target, Value value, Scope& scope) {
  if (!target.attribute.empty()) {
    const Value* object = scope.Find(target.symbol);
    Namespace* ns = object == nullptr ? nullptr : object->ns();
    if (ns == nullptr) {
      return InvalidArgument("'", tree_.symbols[target.symbol],
                             "' is not a namespace: its attributes cannot be set");
    }
    RETURN_IF_ERROR(context_.Charge(4));
    ns->attributes[target.attribute] = std::move(value);
    return absl::OkStatus();
  }
  if (target.tuple.empty()) {
    scope.Set(target.symbol, std::move(value));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(context_, value));
  if (items.size() != target.tuple.size()) {
    return InvalidArgument("cannot unpack ", items.size(), " values into ", target.tuple.size(),
                           " names");
  }
  for (size_t i = 0; i < items.size(); ++i) {
    RETURN_IF_ERROR(Assign(target.tuple[i], std::move(items[i]), scope));
  }
  return absl::OkStatus();
}

}  // namespace tandem::jinja
