// The syntax tree of a template. Parsed once, then read by any number of renderings at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/text/jinja/value.h"

namespace tandem::jinja {

// Trees are at most this deep, so that walking and destroying them needs a bounded stack.
inline constexpr int32_t kMaxTreeDepth = 200;

// An index into Template::symbols.
using Symbol = int32_t;
inline constexpr Symbol kLoopSymbol = 0;
inline constexpr Symbol kCallerSymbol = 1;
inline constexpr Symbol kVarargsSymbol = 2;
inline constexpr Symbol kKwargsSymbol = 3;

struct FilterEntry;
struct TestEntry;
struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;         // f(*list), may be null
  ExprPtr double_star;  // f(**dict), may be null
};

struct ConstantExpr {
  Value value;
};
struct NameExpr {
  Symbol symbol;
};
// The text of the block that a filter is applied to: {% filter f %} and {% set x | f %}.
struct BlockTextExpr {};
struct SequenceExpr {
  std::vector<ExprPtr> items;
  bool is_tuple;
};
struct DictExpr {
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};
struct UnaryExpr {
  enum class Op { kNot, kNegate, kPlus };
  Op op;
  ExprPtr operand;
};
enum class BinaryOp { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
struct BinaryExpr {
  BinaryOp op;
  ExprPtr left;
  ExprPtr right;
};
struct LogicExpr {
  bool is_and;  // else or
  ExprPtr left;
  ExprPtr right;
};
struct ConcatExpr {  // a ~ b ~ c
  std::vector<ExprPtr> parts;
};
enum class CompareOp { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
struct CompareExpr {  // a < b <= c: each operand is evaluated once
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
};
struct ConditionalExpr {
  ExprPtr condition;
  ExprPtr then;
  ExprPtr otherwise;  // null: undefined
};
struct AttributeExpr {
  ExprPtr object;
  std::string name;
};
struct ItemExpr {
  ExprPtr object;
  ExprPtr index;
};
struct SliceExpr {
  ExprPtr object;
  ExprPtr start;  // each may be null
  ExprPtr stop;
  ExprPtr step;
};
struct FilterExpr {
  ExprPtr input;
  std::string name;
  const FilterEntry* filter;  // null for an unknown one inside a condition: an error when reached
  Arguments args;
};
struct TestExpr {
  ExprPtr input;
  std::string name;
  const TestEntry* test;  // null as above
  Arguments args;
};
struct CallExpr {
  ExprPtr callee;
  Arguments args;
};

struct Expr {
  int line = 0;
  int32_t depth = 1;  // of the tree from here down
  std::variant<ConstantExpr, NameExpr, BlockTextExpr, SequenceExpr, DictExpr, UnaryExpr, BinaryExpr,
               LogicExpr, ConcatExpr, CompareExpr, ConditionalExpr, AttributeExpr, ItemExpr,
               SliceExpr, FilterExpr, TestExpr, CallExpr>
      node;
};

struct Statement;
using Block = std::vector<Statement>;

// What `set` and `for` assign to: a name, a namespace's attribute, or a tuple of such.
struct Target {
  Symbol symbol = 0;
  std::string attribute;      // not empty: the attribute of the namespace `symbol`
  std::vector<Target> tuple;  // not empty: the rest is unused
};

struct Parameter {
  Symbol symbol;
  std::string name;
  ExprPtr default_value;  // may be null
};
struct MacroDef {
  std::string name;
  std::vector<Parameter> parameters;
  Block body;
  // Whether the body names the special variables of macros.
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

struct TextStatement {
  TextPtr text;
};
struct OutputStatement {
  ExprPtr value;
};
struct IfStatement {
  std::vector<std::pair<ExprPtr, Block>> branches;
  Block otherwise;
};
struct ForStatement {
  Target target;
  ExprPtr iterable;
  ExprPtr filter;  // may be null
  Block body;
  Block otherwise;  // when no iteration got to the end of the body
  bool recursive = false;
};
struct SetStatement {
  Target target;
  ExprPtr value;
};
struct SetBlockStatement {
  Target target;
  ExprPtr filter;  // over BlockTextExpr; may be null
  Block body;
};
struct MacroStatement {
  Symbol symbol;
  std::unique_ptr<MacroDef> macro;
};
struct CallStatement {  // {% call(args) f(x) %} body {% endcall %}
  std::unique_ptr<MacroDef> caller;
  ExprPtr call;
};
struct FilterStatement {
  ExprPtr filter;
  Block body;
};
// A block with a scope of its own: with, generation.
struct ScopeStatement {
  std::vector<std::pair<Target, ExprPtr>> assignments;
  Block body;
};
struct LoopControlStatement {
  bool is_break;  // else continue
};

struct Statement {
  int line = 0;
  std::variant<TextStatement, OutputStatement, IfStatement, ForStatement, SetStatement,
               SetBlockStatement, MacroStatement, CallStatement, FilterStatement, ScopeStatement,
               LoopControlStatement>
      node;
};

struct Template {
  std::vector<std::string> symbols;  // starts with loop, caller, varargs, kwargs
  Block body;
};

}  // namespace tandem::jinja
