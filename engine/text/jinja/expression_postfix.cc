// The part of ExpressionParser behind an operand: attributes, subscripts, calls, filters, tests.
#include <utility>

#include "engine/base/status.h"
#include "engine/text/jinja/expression_parser.h"
#include "engine/text/jinja/filters.h"
#include "engine/text/jinja/tests.h"

namespace tandem::jinja {

using Kind = Token::Kind;

namespace {

void AddChildren(const Arguments& args, std::vector<const Expr*>* children) {
  for (const ExprPtr& arg : args.positional) children->push_back(arg.get());
  for (const auto& [name, arg] : args.named) children->push_back(arg.get());
  children->push_back(args.star.get());
  children->push_back(args.double_star.get());
}

}  // namespace

absl::StatusOr<ExprPtr> ExpressionParser::ParsePostfix(ExprPtr expr) {
  while (true) {
    const int line = current().line;
    if (SkipOperator(".")) {
      const Expr* child = expr.get();
      if (current().kind == Kind::kInteger) {  // a.0 is a[0]
        ASSIGN_OR_RETURN(ExprPtr index,
                         MakeExpr(line, ConstantExpr{Value::Integer(current().integer)}, {}));
        Next();
        ASSIGN_OR_RETURN(expr,
                         MakeExpr(line, ItemExpr{std::move(expr), std::move(index)}, {child}));
        continue;
      }
      ASSIGN_OR_RETURN(std::string name, ExpectIdentifier());
      ASSIGN_OR_RETURN(expr,
                       MakeExpr(line, AttributeExpr{std::move(expr), std::move(name)}, {child}));
    } else if (AtOperator("[")) {
      ASSIGN_OR_RETURN(expr, ParseSubscript(std::move(expr)));
    } else if (AtOperator("(")) {
      ASSIGN_OR_RETURN(expr, ParseCall(std::move(expr)));
    } else {
      return expr;
    }
  }
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseCall(ExprPtr callee) {
  const int line = current().line;
  std::vector<const Expr*> children = {callee.get()};
  ASSIGN_OR_RETURN(Arguments args, ParseArguments());
  AddChildren(args, &children);
  return MakeExpr(line, CallExpr{std::move(callee), std::move(args)}, children);
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseSubscript(ExprPtr object) {
  const int line = current().line;
  RETURN_IF_ERROR(ExpectOperator("["));
  ExprPtr parts[3];  // start:stop:step
  int count = 0;     // of colons
  for (; count < 3; ++count) {
    if (!AtOperator(":") && !AtOperator("]") && !AtOperator(",")) {
      ASSIGN_OR_RETURN(parts[count], ParseExpression());
    }
    if (count == 2 || !SkipOperator(":")) break;
  }
  std::vector<const Expr*> children = {object.get()};
  for (const ExprPtr& part : parts) children.push_back(part.get());
  if (count > 0) {
    if (AtOperator(",")) {
      return absl::UnimplementedError(
          absl::StrCat("line ", line, ": a subscript of several slices is not supported"));
    }
    RETURN_IF_ERROR(ExpectOperator("]"));
    return MakeExpr(
        line,
        SliceExpr{std::move(object), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])},
        children);
  }
  if (parts[0] == nullptr) return Unexpected("a subscript");
  ExprPtr index = std::move(parts[0]);
  if (AtOperator(",")) {  // a[1, 2] is a[(1, 2)]
    SequenceExpr tuple{{}, /*is_tuple=*/true};
    std::vector<const Expr*> items = {index.get()};
    tuple.items.push_back(std::move(index));
    while (SkipOperator(",") && !AtOperator("]")) {
      ASSIGN_OR_RETURN(ExprPtr item, ParseExpression());
      items.push_back(item.get());
      tuple.items.push_back(std::move(item));
    }
    ASSIGN_OR_RETURN(index, MakeExpr(line, std::move(tuple), items));
    children.push_back(index.get());
  }
  RETURN_IF_ERROR(ExpectOperator("]"));
  return MakeExpr(line, ItemExpr{std::move(object), std::move(index)}, children);
}

absl::StatusOr<Arguments> ExpressionParser::ParseArguments() {
  RETURN_IF_ERROR(ExpectOperator("("));
  Arguments args;
  while (!AtOperator(")")) {
    const bool is_named = current().kind == Kind::kName && following().kind == Kind::kOperator &&
                          following().value == "=";
    if (args.double_star != nullptr) return Unexpected("')' behind **");
    if (SkipOperator("**")) {
      ASSIGN_OR_RETURN(args.double_star, ParseExpression());
    } else if (AtOperator("*") && args.star == nullptr) {
      Next();
      ASSIGN_OR_RETURN(args.star, ParseExpression());
    } else if (is_named) {
      std::string name = current().value;
      Next();
      Next();
      ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      args.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!args.named.empty() || args.star != nullptr) return Unexpected("a named argument");
      ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      args.positional.push_back(std::move(value));
    }
    if (!SkipOperator(",")) break;
  }
  RETURN_IF_ERROR(ExpectOperator(")"));
  return args;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseFilters(ExprPtr expr) {
  while (true) {
    if (SkipOperator("|")) {
      ASSIGN_OR_RETURN(expr, ParseFilter(std::move(expr)));
    } else if (SkipName("is")) {
      ASSIGN_OR_RETURN(expr, ParseTest(std::move(expr)));
    } else if (AtOperator("(")) {
      ASSIGN_OR_RETURN(expr, ParseCall(std::move(expr)));
    } else {
      return expr;
    }
  }
}

absl::StatusOr<std::string> ExpressionParser::ParseDottedName() {
  ASSIGN_OR_RETURN(std::string name, ExpectIdentifier());
  while (SkipOperator(".")) {
    ASSIGN_OR_RETURN(const std::string part, ExpectIdentifier());
    absl::StrAppend(&name, ".", part);
  }
  return name;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseFilter(ExprPtr input) {
  const int line = current().line;
  std::vector<const Expr*> children = {input.get()};
  FilterExpr node{std::move(input), "", nullptr, {}};
  ASSIGN_OR_RETURN(node.name, ParseDottedName());
  if (AtOperator("(")) {
    ASSIGN_OR_RETURN(node.args, ParseArguments());
  }
  AddChildren(node.args, &children);
  node.filter = FindFilter(node.name);
  if (node.filter == nullptr) NoteUnknown(line, "filter", node.name);
  return MakeExpr(line, std::move(node), children);
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseBlockFilter() {
  const int line = current().line;
  ASSIGN_OR_RETURN(ExprPtr expr, MakeExpr(line, BlockTextExpr{}, {}));
  do {
    ASSIGN_OR_RETURN(expr, ParseFilter(std::move(expr)));
  } while (SkipOperator("|"));
  return expr;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseTest(ExprPtr input) {
  const int line = current().line;
  const bool negated = SkipName("not");
  std::vector<const Expr*> children = {input.get()};
  TestExpr node{std::move(input), "", nullptr, {}};
  ASSIGN_OR_RETURN(node.name, ParseDottedName());
  const bool ends = AtName("else") || AtName("or") || AtName("and");
  const Kind kind = current().kind;
  if (AtOperator("(")) {
    ASSIGN_OR_RETURN(node.args, ParseArguments());
  } else if (!ends && (kind == Kind::kName || kind == Kind::kString || kind == Kind::kInteger ||
                       kind == Kind::kFloat || AtOperator("[") || AtOperator("{"))) {
    if (AtName("is")) return Unexpected("no second test behind the first");
    ASSIGN_OR_RETURN(ExprPtr arg, ParsePrimary());  // x is divisibleby 3
    ASSIGN_OR_RETURN(arg, ParsePostfix(std::move(arg)));
    node.args.positional.push_back(std::move(arg));
  }
  AddChildren(node.args, &children);
  node.test = FindTest(node.name);
  if (node.test == nullptr) NoteUnknown(line, "test", node.name);
  ASSIGN_OR_RETURN(ExprPtr test, MakeExpr(line, std::move(node), children));
  if (!negated) return test;
  const Expr* child = test.get();
  return MakeExpr(line, UnaryExpr{UnaryExpr::Op::kNot, std::move(test)}, {child});
}

void ExpressionParser::NoteUnknown(int line, std::string_view kind, const std::string& name) {
  if (conditions_ > 0) return;
  unknown_.push_back(
      Unimplemented("line ", line, ": the ", std::string(kind), " '", name, "' is not supported"));
}

absl::Status ExpressionParser::CheckAllKnown() const {
  return unknown_.empty() ? absl::OkStatus() : unknown_.front();
}

absl::StatusOr<Target> ExpressionParser::ParseTarget(bool with_attributes) {
  const Nesting nesting(*this);
  RETURN_IF_ERROR(nesting.Check());
  std::vector<Target> targets;
  bool is_tuple = false;
  const bool in_parentheses = SkipOperator("(");
  while (current().kind == Kind::kName || AtOperator("(")) {
    if (AtName("in")) break;
    Target target;
    if (AtOperator("(")) {
      ASSIGN_OR_RETURN(target, ParseTarget(with_attributes));
    } else {
      ASSIGN_OR_RETURN(const std::string name, ExpectIdentifier());
      if (IsReserved(name)) {
        return SyntaxError(current().line, absl::StrCat("cannot assign to '", name, "'"));
      }
      target.symbol = Intern(name);
      if (with_attributes && SkipOperator(".")) {
        ASSIGN_OR_RETURN(target.attribute, ExpectIdentifier());
      }
    }
    targets.push_back(std::move(target));
    if (!SkipOperator(",")) break;
    is_tuple = true;
  }
  if (targets.empty()) return Unexpected("a name to assign to");
  if (in_parentheses) RETURN_IF_ERROR(ExpectOperator(")"));
  if (!is_tuple) return std::move(targets[0]);
  Target tuple;
  tuple.tuple = std::move(targets);
  return tuple;
}

}  // namespace tandem::jinja
