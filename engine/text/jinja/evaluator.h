// Runs a syntax tree.
//
// Scopes are Jinja2's: a for body (each iteration anew), a macro, a call, filter, set or with block
// has its own; an if does not. `set` assigns in the innermost scope and so does not leak out of a
// loop; namespaces are for that. A macro sees the variables around its definition as they are when
// it is called.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/context.h"
#include "engine/text/jinja/value.h"

namespace tandem::jinja {

class Scope final {
 public:
  // `parent` (null for the outermost) must outlive the scope, or be kept with it: see Capture.
  explicit Scope(Scope* parent) : parent_(parent) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  // Here or in a scope around; null when it is nowhere.
  const Value* Find(Symbol symbol) const;
  void Set(Symbol symbol, Value value);
  void Clear() { variables_.clear(); }

  // A closure refers to this scope, so it and those around it must live until the rendering ends.
  void Capture();
  bool captured() const { return captured_; }

 private:
  Scope* const parent_;
  bool captured_ = false;
  std::vector<std::pair<Symbol, Value>> variables_;
};

class Evaluator final {
 public:
  // Both outlive the evaluator.
  Evaluator(const Template& tree, Context& context) : tree_(tree), context_(context) {}
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  // Renders the whole template. `scope` holds the variables.
  absl::StatusOr<Text> Run(Scope& scope);

 private:
  enum class Flow { kNormal, kBreak, kContinue };

  // Expressions (expression_evaluator.cc).
  absl::StatusOr<Value> Eval(const Expr& expr, Scope& scope);
  absl::StatusOr<Value> EvalNode(const ConstantExpr& node, Scope& scope);
  absl::StatusOr<Value> EvalNode(const NameExpr& node, Scope& scope);
  absl::StatusOr<Value> EvalNode(const BlockTextExpr& node, Scope& scope);
  absl::StatusOr<Value> EvalNode(const SequenceExpr& node, Scope& scope);
  absl::StatusOr<Value> EvalNode(const DictExpr& node, Scope& scope);
  absl::StatusOr<Value> EvalNode(const UnaryExpr& node, Scope& scope);
  absl::StatusOr<Value> EvalNode(const BinaryExpr& node, Scope& scope);
  absl::StatusOr<Value> EvalNode(const LogicExpr& node, Scope& scope);
  absl::StatusOr<Value> EvalNode(const ConcatExpr& node, Scope& scope);
  absl::StatusOr<Value> EvalNode(const CompareExpr& node, Scope& scope);
  absl::StatusOr<Value> EvalNode(const ConditionalExpr& node, Scope& scope);
  absl::StatusOr<Value> EvalNode(const AttributeExpr& node, Scope& scope);
  absl::StatusOr<Value> EvalNode(const ItemExpr& node, Scope& scope);
  absl::StatusOr<Value> EvalNode(const SliceExpr& node, Scope& scope);
  absl::StatusOr<Value> EvalNode(const FilterExpr& node, Scope& scope);
  absl::StatusOr<Value> EvalNode(const TestExpr& node, Scope& scope);
  absl::StatusOr<Value> EvalNode(const CallExpr& node, Scope& scope);
  absl::StatusOr<bool> EvalCondition(const Expr& expr, Scope& scope);
  absl::StatusOr<CallArgs> EvalArguments(const Arguments& args, Scope& scope);
  // `caller` is what a call block passes along; may be undefined.
  absl::StatusOr<Value> EvalCall(const CallExpr& node, const Value& caller, Scope& scope);
  absl::StatusOr<Value> CallValue(const Value& callee, CallArgs args);
  absl::StatusOr<Value> EvalBlockFilter(const Expr& filter, Value text, Scope& scope);

  // Statements (statement_evaluator.cc).
  absl::StatusOr<Flow> Exec(const Block& block, Scope& scope);
  absl::StatusOr<Flow> ExecNode(const TextStatement& node, Scope& scope);
  absl::StatusOr<Flow> ExecNode(const OutputStatement& node, Scope& scope);
  absl::StatusOr<Flow> ExecNode(const IfStatement& node, Scope& scope);
  absl::StatusOr<Flow> ExecNode(const ForStatement& node, Scope& scope);
  absl::StatusOr<Flow> ExecNode(const SetStatement& node, Scope& scope);
  absl::StatusOr<Flow> ExecNode(const SetBlockStatement& node, Scope& scope);
  absl::StatusOr<Flow> ExecNode(const MacroStatement& node, Scope& scope);
  absl::StatusOr<Flow> ExecNode(const CallStatement& node, Scope& scope);
  absl::StatusOr<Flow> ExecNode(const FilterStatement& node, Scope& scope);
  absl::StatusOr<Flow> ExecNode(const ScopeStatement& node, Scope& scope);
  absl::StatusOr<Flow> ExecNode(const LoopControlStatement& node, Scope& scope);
  absl::StatusOr<Flow> ExecLoop(const ForStatement& node, const Value& iterable, int64_t depth0,
                                Scope& scope);
  absl::StatusOr<std::vector<Value>> FilterItems(const ForStatement& node, std::vector<Value> items,
                                                 Scope& scope);
  absl::StatusOr<Value> MakeMacro(const MacroDef& macro, Scope& scope);
  absl::StatusOr<Value> CallMacro(const MacroDef& macro, Scope& definition, CallArgs args);
  absl::Status BindParameters(const MacroDef& macro, CallArgs args, Scope& scope);
  absl::Status Assign(const Target& target, Value value, Scope& scope);
  absl::Status Emit(const Text& text);
  // What `block` writes in a scope of its own, and how it ended.
  absl::StatusOr<std::pair<Value, Flow>> CaptureBlock(const Block& block, Scope& scope);
  // Keeps a scope that a closure refers to beyond the block that made it.
  void Retire(std::shared_ptr<Scope> scope) {
    if (scope->captured()) context_.Keep(std::move(scope));
  }

  const Template& tree_;
  Context& context_;
  Text* out_ = nullptr;  // where statements write
  Value block_text_;     // what BlockTextExpr stands for
};

}  // namespace tandem::jinja
