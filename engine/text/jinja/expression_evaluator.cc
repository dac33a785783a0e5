// The expressions of Evaluator.
#include <utility>
#include <variant>

#include "engine/base/status.h"
#include "engine/text/jinja/evaluator.h"
#include "engine/text/jinja/filters.h"
#include "engine/text/jinja/globals.h"
#include "engine/text/jinja/methods.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/print.h"
#include "engine/text/jinja/tests.h"

namespace tandem::jinja {
namespace {

// Says which filter, test or function a refusal comes from.
template <typename T>
absl::StatusOr<T> In(std::string_view name, absl::StatusOr<T> result) {
  if (result.ok() || result.status().code() != absl::StatusCode::kInvalidArgument) return result;
  return InvalidArgument(std::string(name), ": ", std::string(result.status().message()));
}

}  // namespace

absl::StatusOr<Value> Evaluator::Eval(const Expr& expr, Scope& scope) {
  RETURN_IF_ERROR(context_.Charge());
  const Context::Depth depth(context_);
  RETURN_IF_ERROR(depth.Check());
  context_.set_line(expr.line);
  return std::visit([&](const auto& node) { return EvalNode(node, scope); }, expr.node);
}

absl::StatusOr<bool> Evaluator::EvalCondition(const Expr& expr, Scope& scope) {
  ASSIGN_OR_RETURN(const Value value, Eval(expr, scope));
  return Truthy(value);
}

absl::StatusOr<Value> Evaluator::EvalNode(const ConstantExpr& node, Scope&) { return node.value; }

absl::StatusOr<Value> Evaluator::EvalNode(const NameExpr& node, Scope& scope) {
  if (const Value* found = scope.Find(node.symbol)) return *found;
  const std::string& name = tree_.symbols[node.symbol];
  if (const GlobalEntry* global = FindGlobal(name)) {
    return context_.MakeCallable(Callable{
        name, [global](Context& context, CallArgs args) { return global->call(context, args); }});
  }
  return Value::Missing(absl::StrCat("'", name, "' is undefined"));
}

absl::StatusOr<Value> Evaluator::EvalNode(const BlockTextExpr&, Scope&) { return block_text_; }

absl::StatusOr<Value> Evaluator::EvalBlockFilter(const Expr& filter, Value text, Scope& scope) {
  Value outer = std::exchange(block_text_, std::move(text));
  auto result = Eval(filter, scope);
  block_text_ = std::move(outer);
  return result;
}

absl::StatusOr<Value> Evaluator::EvalNode(const SequenceExpr& node, Scope& scope) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const ExprPtr& expr : node.items) {
    ASSIGN_OR_RETURN(Value item, Eval(*expr, scope));
    items.push_back(std::move(item));
  }
  return node.is_tuple ? context_.MakeTuple(std::move(items)) : context_.MakeList(std::move(items));
}

absl::StatusOr<Value> Evaluator::EvalNode(const DictExpr& node, Scope& scope) {
  ASSIGN_OR_RETURN(Dict * dict, context_.MakeDict());
  for (const auto& [key_expr, value_expr] : node.entries) {
    RETURN_IF_ERROR(context_.Charge(4));
    ASSIGN_OR_RETURN(const Value key, Eval(*key_expr, scope));
    ASSIGN_OR_RETURN(Value value, Eval(*value_expr, scope));
    RETURN_IF_ERROR(dict->Set(context_, key, std::move(value)));
  }
  return Value::Of(dict);
}

absl::StatusOr<Value> Evaluator::EvalNode(const UnaryExpr& node, Scope& scope) {
  ASSIGN_OR_RETURN(Value operand, Eval(*node.operand, scope));
  if (node.op == UnaryExpr::Op::kNot) return Value::Bool(!Truthy(operand));
  ASSIGN_OR_RETURN(Value negated, Negate(operand));
  if (node.op == UnaryExpr::Op::kNegate) return negated;
  return operand.is_bool() ? Value::Integer(*operand.AsInt()) : operand;
}

absl::StatusOr<Value> Evaluator::EvalNode(const BinaryExpr& node, Scope& scope) {
  ASSIGN_OR_RETURN(const Value left, Eval(*node.left, scope));
  ASSIGN_OR_RETURN(const Value right, Eval(*node.right, scope));
  return Arithmetic(context_, node.op, left, right);
}

absl::StatusOr<Value> Evaluator::EvalNode(const LogicExpr& node, Scope& scope) {
  ASSIGN_OR_RETURN(Value left, Eval(*node.left, scope));
  if (Truthy(left) != node.is_and) return left;
  return Eval(*node.right, scope);
}

absl::StatusOr<Value> Evaluator::EvalNode(const ConcatExpr& node, Scope& scope) {
  Text text;
  for (const ExprPtr& part : node.parts) {
    ASSIGN_OR_RETURN(const Value value, Eval(*part, scope));
    ASSIGN_OR_RETURN(const Text piece, ToText(context_, value));
    text.Append(piece);
    RETURN_IF_ERROR(context_.CheckTextSize(text.size()));
  }
  return context_.MakeText(std::move(text));
}

absl::StatusOr<Value> Evaluator::EvalNode(const CompareExpr& node, Scope& scope) {
  ASSIGN_OR_RETURN(Value left, Eval(*node.first, scope));
  for (const auto& [op, expr] : node.rest) {
    ASSIGN_OR_RETURN(Value right, Eval(*expr, scope));
    ASSIGN_OR_RETURN(const bool holds, Compare(context_, op, left, right));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

absl::StatusOr<Value> Evaluator::EvalNode(const ConditionalExpr& node, Scope& scope) {
  ASSIGN_OR_RETURN(const bool holds, EvalCondition(*node.condition, scope));
  if (holds) return Eval(*node.then, scope);
  if (node.otherwise != nullptr) return Eval(*node.otherwise, scope);
  return Value::Missing("the condition of an if without else was false");
}

absl::StatusOr<Value> Evaluator::EvalNode(const AttributeExpr& node, Scope& scope) {
  ASSIGN_OR_RETURN(const Value object, Eval(*node.object, scope));
  return GetAttribute(context_, object, node.name);
}

absl::StatusOr<Value> Evaluator::EvalNode(const ItemExpr& node, Scope& scope) {
  ASSIGN_OR_RETURN(const Value object, Eval(*node.object, scope));
  ASSIGN_OR_RETURN(const Value index, Eval(*node.index, scope));
  return GetItem(context_, object, index);
}

absl::StatusOr<Value> Evaluator::EvalNode(const SliceExpr& node, Scope& scope) {
  const auto bound = [&](const ExprPtr& expr) -> absl::StatusOr<Value> {
    if (expr == nullptr) return Value::NoneValue();
    return Eval(*expr, scope);
  };
  ASSIGN_OR_RETURN(const Value object, Eval(*node.object, scope));
  ASSIGN_OR_RETURN(const Value start, bound(node.start));
  ASSIGN_OR_RETURN(const Value stop, bound(node.stop));
  ASSIGN_OR_RETURN(const Value step, bound(node.step));
  return GetSlice(context_, object, start, stop, step);
}

absl::StatusOr<Value> Evaluator::EvalNode(const FilterExpr& node, Scope& scope) {
  ASSIGN_OR_RETURN(const Value input, Eval(*node.input, scope));
  ASSIGN_OR_RETURN(const CallArgs args, EvalArguments(node.args, scope));
  if (node.filter == nullptr) {
    return InvalidArgument("the filter '", node.name, "' is not supported");
  }
  return In(node.name, node.filter->call(context_, input, args));
}

absl::StatusOr<Value> Evaluator::EvalNode(const TestExpr& node, Scope& scope) {
  ASSIGN_OR_RETURN(const Value input, Eval(*node.input, scope));
  ASSIGN_OR_RETURN(const CallArgs args, EvalArguments(node.args, scope));
  if (node.test == nullptr) {
    return InvalidArgument("the test '", node.name, "' is not supported");
  }
  ASSIGN_OR_RETURN(const bool holds, In(node.name, node.test->call(context_, input, args)));
  return Value::Bool(holds);
}

absl::StatusOr<Value> Evaluator::EvalNode(const CallExpr& node, Scope& scope) {
  return EvalCall(node, Value(), scope);
}

absl::StatusOr<CallArgs> Evaluator::EvalArguments(const Arguments& args, Scope& scope) {
  CallArgs values;
  values.positional.reserve(args.positional.size());
  for (const ExprPtr& expr : args.positional) {
    ASSIGN_OR_RETURN(Value value, Eval(*expr, scope));
    values.positional.push_back(std::move(value));
  }
  for (const auto& [name, expr] : args.named) {
    ASSIGN_OR_RETURN(Value value, Eval(*expr, scope));
    values.named.emplace_back(name, std::move(value));
  }
  if (args.star != nullptr) {
    ASSIGN_OR_RETURN(const Value star, Eval(*args.star, scope));
    ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(context_, star));
    for (Value& item : items) values.positional.push_back(std::move(item));
  }
  if (args.double_star != nullptr) {
    ASSIGN_OR_RETURN(const Value star, Eval(*args.double_star, scope));
    if (star.dict() == nullptr) return InvalidArgument("** needs a mapping");
    RETURN_IF_ERROR(context_.Charge(static_cast<int64_t>(star.dict()->size())));
    for (const Dict::Entry& entry : star.dict()->entries()) {
      if (entry.key.text() == nullptr) return InvalidArgument("** needs string keys");
      RETURN_IF_ERROR(context_.ChargeScan(entry.key.text()->size()));
      values.named.emplace_back(std::string(entry.key.text()->bytes()), entry.value);
    }
  }
  return values;
}

absl::StatusOr<Value> Evaluator::EvalCall(const CallExpr& node, const Value& caller, Scope& scope) {
  // A method or a global function is called without making an object of it first.
  const MethodEntry* method = nullptr;
  const GlobalEntry* global = nullptr;
  Value callee;
  if (const auto* attribute = std::get_if<AttributeExpr>(&node.callee->node)) {
    ASSIGN_OR_RETURN(callee, Eval(*attribute->object, scope));
    method = FindMethod(callee, attribute->name);
    if (method == nullptr) {
      ASSIGN_OR_RETURN(callee, GetAttribute(context_, callee, attribute->name));
    }
  } else if (const auto* name = std::get_if<NameExpr>(&node.callee->node);
             name != nullptr && scope.Find(name->symbol) == nullptr) {
    global = FindGlobal(tree_.symbols[name->symbol]);
    if (global == nullptr) {
      ASSIGN_OR_RETURN(callee, Eval(*node.callee, scope));
    }
  } else {
    ASSIGN_OR_RETURN(callee, Eval(*node.callee, scope));
  }
  ASSIGN_OR_RETURN(CallArgs args, EvalArguments(node.args, scope));
  if (!caller.is_undefined()) args.named.emplace_back("caller", caller);
  if (method != nullptr) return In(method->name, method->call(context_, callee, args));
  if (global == nullptr) return CallValue(callee, std::move(args));
  auto result = global->call(context_, args);
  return context_.raised() ? std::move(result) : In(global->name, std::move(result));
}

absl::StatusOr<Value> Evaluator::CallValue(const Value& callee, CallArgs args) {
  if (callee.is_undefined()) return UndefinedError(callee);
  if (const Callable* callable = callee.callable())
    return callable->call(context_, std::move(args));
  if (const Loop* loop = callee.loop(); loop != nullptr && loop->recurse != nullptr) {
    ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"iterable"}, 1));
    return loop->recurse(context_, *bound[0]);
  }
  return InvalidArgument("a ", std::string(callee.TypeName()), " cannot be called");
}

}  // namespace tandem::jinja
