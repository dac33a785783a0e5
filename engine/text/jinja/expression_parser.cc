#include "engine/text/jinja/expression_parser.h"

#include <algorithm>

#include "engine/base/status.h"

namespace tandem::jinja {
namespace {

using Kind = Token::Kind;

std::string Describe(const Token& token) {
  switch (token.kind) {
    case Kind::kEnd:
      return "the end of the template";
    case Kind::kData:
      return "text";
    case Kind::kVariableBegin:
      return "'{{'";
    case Kind::kVariableEnd:
    case Kind::kBlockEnd:
      return "the end of the tag";
    case Kind::kBlockBegin:
      return "'{%'";
    case Kind::kString:
      return "a string";
    default:
      return absl::StrCat("'", token.value, "'");
  }
}

}  // namespace

ExpressionParser::ExpressionParser(std::vector<Token> tokens, Template* out)
    : tokens_(std::move(tokens)), out_(out) {
  for (const char* name : {"loop", "caller", "varargs", "kwargs"}) Intern(name);
}

const Token& ExpressionParser::following() const {
  return tokens_[std::min(position_ + 1, tokens_.size() - 1)];
}
void ExpressionParser::Next() { position_ = std::min(position_ + 1, tokens_.size() - 1); }

bool ExpressionParser::AtName(std::string_view name) const {
  return current().kind == Kind::kName && current().value == name;
}
bool ExpressionParser::AtOperator(std::string_view op) const {
  return current().kind == Kind::kOperator && current().value == op;
}
bool ExpressionParser::SkipName(std::string_view name) {
  if (!AtName(name)) return false;
  Next();
  return true;
}
bool ExpressionParser::SkipOperator(std::string_view op) {
  if (!AtOperator(op)) return false;
  Next();
  return true;
}
absl::Status ExpressionParser::ExpectOperator(std::string_view op) {
  return SkipOperator(op) ? absl::OkStatus() : Unexpected(absl::StrCat("'", std::string(op), "'"));
}
absl::Status ExpressionParser::ExpectName(std::string_view name) {
  return SkipName(name) ? absl::OkStatus() : Unexpected(absl::StrCat("'", std::string(name), "'"));
}
absl::StatusOr<std::string> ExpressionParser::ExpectIdentifier() {
  if (current().kind != Kind::kName) return Unexpected("a name");
  std::string name = current().value;
  Next();
  return name;
}
absl::Status ExpressionParser::Expect(Kind kind, std::string_view what) {
  if (current().kind != kind) return Unexpected(what);
  Next();
  return absl::OkStatus();
}
absl::Status ExpressionParser::Unexpected(std::string_view wanted) const {
  return SyntaxError(current().line, absl::StrCat("expected ", std::string(wanted), ", found ",
                                                  Describe(current())));
}

absl::Status ExpressionParser::Nesting::Check() const {
  if (parser_.nesting_ <= kMaxTreeDepth) return absl::OkStatus();
  return SyntaxError(parser_.current().line,
                     absl::StrCat("nested deeper than ", kMaxTreeDepth, " levels"));
}

Symbol ExpressionParser::Intern(std::string_view name) {
  const auto [place, inserted] =
      symbols_.emplace(std::string(name), static_cast<Symbol>(out_->symbols.size()));
  if (inserted) out_->symbols.emplace_back(name);
  return place->second;
}

ExpressionParser::MacroNames ExpressionParser::EndMacro() {
  const MacroNames names = macros_.back();
  macros_.pop_back();
  return names;
}

bool IsReserved(std::string_view name) {
  return name == "true" || name == "True" || name == "false" || name == "False" || name == "none" ||
         name == "None";
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseExpression(bool with_conditional) {
  const Nesting nesting(*this);
  RETURN_IF_ERROR(nesting.Check());
  return with_conditional ? ParseConditional() : ParseLogic(/*is_and=*/false);
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseTuple(bool with_conditional) {
  const int line = current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    const bool ends = current().kind == Kind::kVariableEnd || current().kind == Kind::kBlockEnd ||
                      AtOperator(")") || AtName("recursive");
    if (ends) break;
    ASSIGN_OR_RETURN(ExprPtr item, ParseExpression(with_conditional));
    items.push_back(std::move(item));
    if (!SkipOperator(",")) break;
    is_tuple = true;
  }
  if (items.empty()) return Unexpected("an expression");
  if (!is_tuple) return std::move(items[0]);
  std::vector<const Expr*> children;
  for (const ExprPtr& item : items) children.push_back(item.get());
  return MakeExpr(line, SequenceExpr{std::move(items), /*is_tuple=*/true}, children);
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseConditional() {
  const int line = current().line;
  const size_t known_before = unknown_.size();
  ASSIGN_OR_RETURN(ExprPtr expr, ParseLogic(/*is_and=*/false));
  if (AtName("if")) unknown_.resize(known_before);  // so it was inside of a condition
  while (SkipName("if")) {
    BeginCondition();
    auto condition_or = ParseLogic(/*is_and=*/false);
    EndCondition();
    ASSIGN_OR_RETURN(ExprPtr condition, std::move(condition_or));
    ExprPtr otherwise;
    if (SkipName("else")) {
      const Nesting nesting(*this);
      RETURN_IF_ERROR(nesting.Check());
      ASSIGN_OR_RETURN(otherwise, ParseConditional());
    }
    const std::vector<const Expr*> children = {expr.get(), condition.get(), otherwise.get()};
    ASSIGN_OR_RETURN(
        expr,
        MakeExpr(line, ConditionalExpr{std::move(condition), std::move(expr), std::move(otherwise)},
                 children));
  }
  return expr;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseLogic(bool is_and) {
  const int line = current().line;
  ASSIGN_OR_RETURN(ExprPtr left, is_and ? ParseNot() : ParseLogic(/*is_and=*/true));
  while (SkipName(is_and ? "and" : "or")) {
    ASSIGN_OR_RETURN(ExprPtr right, is_and ? ParseNot() : ParseLogic(/*is_and=*/true));
    const std::vector<const Expr*> children = {left.get(), right.get()};
    ASSIGN_OR_RETURN(
        left, MakeExpr(line, LogicExpr{is_and, std::move(left), std::move(right)}, children));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseNot() {
  if (!AtName("not")) return ParseCompare();
  const int line = current().line;
  Next();
  const Nesting nesting(*this);
  RETURN_IF_ERROR(nesting.Check());
  ASSIGN_OR_RETURN(ExprPtr operand, ParseNot());
  const Expr* child = operand.get();
  return MakeExpr(line, UnaryExpr{UnaryExpr::Op::kNot, std::move(operand)}, {child});
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseCompare() {
  static constexpr std::pair<std::string_view, CompareOp> kOps[] = {
      {"==", CompareOp::kEqual},     {"!=", CompareOp::kNotEqual}, {"<", CompareOp::kLess},
      {"<=", CompareOp::kLessEqual}, {">", CompareOp::kGreater},   {">=", CompareOp::kGreaterEqual},
  };
  const int line = current().line;
  ASSIGN_OR_RETURN(ExprPtr first, ParseSum());
  CompareExpr compare;
  std::vector<const Expr*> children = {first.get()};
  while (true) {
    std::optional<CompareOp> op;
    for (const auto& [symbol, meaning] : kOps) {
      if (AtOperator(symbol)) op = meaning;
    }
    if (AtName("in")) op = CompareOp::kIn;
    if (AtName("not") && following().kind == Kind::kName && following().value == "in") {
      op = CompareOp::kNotIn;
      Next();
    }
    if (!op.has_value()) break;
    Next();
    ASSIGN_OR_RETURN(ExprPtr operand, ParseSum());
    children.push_back(operand.get());
    compare.rest.emplace_back(*op, std::move(operand));
  }
  if (compare.rest.empty()) return first;
  compare.first = std::move(first);
  return MakeExpr(line, std::move(compare), children);
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseSum() {
  const int line = current().line;
  ASSIGN_OR_RETURN(ExprPtr left, ParseConcat());
  while (AtOperator("+") || AtOperator("-")) {
    const BinaryOp op = AtOperator("+") ? BinaryOp::kAdd : BinaryOp::kSubtract;
    Next();
    ASSIGN_OR_RETURN(ExprPtr right, ParseConcat());
    const std::vector<const Expr*> children = {left.get(), right.get()};
    ASSIGN_OR_RETURN(left,
                     MakeExpr(line, BinaryExpr{op, std::move(left), std::move(right)}, children));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseConcat() {
  const int line = current().line;
  ASSIGN_OR_RETURN(ExprPtr first, ParseProduct());
  if (!AtOperator("~")) return first;
  std::vector<const Expr*> children = {first.get()};
  ConcatExpr concat;
  concat.parts.push_back(std::move(first));
  while (SkipOperator("~")) {
    ASSIGN_OR_RETURN(ExprPtr part, ParseProduct());
    children.push_back(part.get());
    concat.parts.push_back(std::move(part));
  }
  return MakeExpr(line, std::move(concat), children);
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseProduct() {
  static constexpr std::pair<std::string_view, BinaryOp> kOps[] = {
      {"*", BinaryOp::kMultiply},
      {"/", BinaryOp::kDivide},
      {"//", BinaryOp::kFloorDivide},
      {"%", BinaryOp::kModulo},
  };
  const int line = current().line;
  ASSIGN_OR_RETURN(ExprPtr left, ParsePower());
  while (true) {
    std::optional<BinaryOp> op;
    for (const auto& [symbol, meaning] : kOps) {
      if (AtOperator(symbol)) op = meaning;
    }
    if (!op.has_value()) return left;
    Next();
    ASSIGN_OR_RETURN(ExprPtr right, ParsePower());
    const std::vector<const Expr*> children = {left.get(), right.get()};
    ASSIGN_OR_RETURN(left,
                     MakeExpr(line, BinaryExpr{*op, std::move(left), std::move(right)}, children));
  }
}

absl::StatusOr<ExprPtr> ExpressionParser::ParsePower() {
  const int line = current().line;
  ASSIGN_OR_RETURN(ExprPtr left, ParseUnary(/*with_filters=*/true));
  while (SkipOperator("**")) {
    ASSIGN_OR_RETURN(ExprPtr right, ParseUnary(/*with_filters=*/true));
    const std::vector<const Expr*> children = {left.get(), right.get()};
    ASSIGN_OR_RETURN(
        left,
        MakeExpr(line, BinaryExpr{BinaryOp::kPower, std::move(left), std::move(right)}, children));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseUnary(bool with_filters) {
  const Nesting nesting(*this);
  RETURN_IF_ERROR(nesting.Check());
  const int line = current().line;
  ExprPtr expr;
  if (AtOperator("-") || AtOperator("+")) {
    const auto op = AtOperator("-") ? UnaryExpr::Op::kNegate : UnaryExpr::Op::kPlus;
    Next();
    ASSIGN_OR_RETURN(ExprPtr operand, ParseUnary(/*with_filters=*/false));
    const Expr* child = operand.get();
    ASSIGN_OR_RETURN(expr, MakeExpr(line, UnaryExpr{op, std::move(operand)}, {child}));
  } else {
    ASSIGN_OR_RETURN(expr, ParsePrimary());
  }
  ASSIGN_OR_RETURN(expr, ParsePostfix(std::move(expr)));
  return with_filters ? ParseFilters(std::move(expr)) : std::move(expr);
}

absl::StatusOr<ExprPtr> ExpressionParser::ParsePrimary() {
  const Token& token = current();
  const int line = token.line;
  switch (token.kind) {
    case Kind::kName:
      return ParseName();
    case Kind::kString: {
      std::string text;
      for (; current().kind == Kind::kString; Next()) text += current().value;
      auto constant = std::make_shared<const Text>(text, Origin::kScaffold);
      return MakeExpr(line, ConstantExpr{Value::String(std::move(constant))}, {});
    }
    case Kind::kInteger:
      Next();
      return MakeExpr(line, ConstantExpr{Value::Integer(token.integer)}, {});
    case Kind::kFloat:
      Next();
      return MakeExpr(line, ConstantExpr{Value::Float(token.number)}, {});
    default:
      break;
  }
  if (AtOperator("(")) return ParseParenthesized();
  if (AtOperator("[")) return ParseList();
  if (AtOperator("{")) return ParseDict();
  return Unexpected("an expression");
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseName() {
  const int line = current().line;
  const std::string& name = current().value;
  Next();
  if (IsReserved(name)) {
    const bool is_none = name == "none" || name == "None";
    const bool is_true = name == "true" || name == "True";
    Value value = is_none ? Value::NoneValue() : Value::Bool(is_true);
    return MakeExpr(line, ConstantExpr{std::move(value)}, {});
  }
  for (MacroNames& macro : macros_) {
    macro.caller |= name == "caller";
    macro.varargs |= name == "varargs";
    macro.kwargs |= name == "kwargs";
  }
  return MakeExpr(line, NameExpr{Intern(name)}, {});
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseParenthesized() {
  const int line = current().line;
  Next();
  if (SkipOperator(")")) return MakeExpr(line, SequenceExpr{{}, /*is_tuple=*/true}, {});
  ASSIGN_OR_RETURN(ExprPtr inner, ParseTuple());
  RETURN_IF_ERROR(ExpectOperator(")"));
  return inner;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseList() {
  const int line = current().line;
  Next();
  std::vector<ExprPtr> items;
  std::vector<const Expr*> children;
  while (!AtOperator("]")) {
    ASSIGN_OR_RETURN(ExprPtr item, ParseExpression());
    children.push_back(item.get());
    items.push_back(std::move(item));
    if (!SkipOperator(",")) break;
  }
  RETURN_IF_ERROR(ExpectOperator("]"));
  return MakeExpr(line, SequenceExpr{std::move(items), /*is_tuple=*/false}, children);
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseDict() {
  const int line = current().line;
  Next();
  DictExpr dict;
  std::vector<const Expr*> children;
  while (!AtOperator("}")) {
    ASSIGN_OR_RETURN(ExprPtr key, ParseExpression());
    RETURN_IF_ERROR(ExpectOperator(":"));
    ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
    children.push_back(key.get());
    children.push_back(value.get());
    dict.entries.emplace_back(std::move(key), std::move(value));
    if (!SkipOperator(",")) break;
  }
  RETURN_IF_ERROR(ExpectOperator("}"));
  return MakeExpr(line, std::move(dict), children);
}

}  // namespace tandem::jinja
