// Tokens -> expressions, by the grammar of Jinja2. From loosest to tightest binding:
//   a if b else c · or · and · not · comparisons, in · + - · ~ · * / // % · ** · unary + -
//   · .name [item] (call) · |filter, is test
// Operators of one level group to the left, ** too.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/lexer.h"

namespace tandem::jinja {

class ExpressionParser final {
 public:
  // Interns names into out->symbols. `out` outlives the parser.
  ExpressionParser(std::vector<Token> tokens, Template* out);
  ExpressionParser(const ExpressionParser&) = delete;
  ExpressionParser& operator=(const ExpressionParser&) = delete;

  const Token& current() const { return tokens_[position_]; }
  // The token behind the current one; kEnd stays kEnd.
  const Token& following() const;
  void Next();
  bool AtName(std::string_view name) const;
  bool AtOperator(std::string_view op) const;
  // Steps over the token if it is that.
  bool SkipName(std::string_view name);
  bool SkipOperator(std::string_view op);
  absl::Status ExpectOperator(std::string_view op);
  absl::Status ExpectName(std::string_view name);
  absl::StatusOr<std::string> ExpectIdentifier();
  absl::Status Expect(Token::Kind kind, std::string_view what);
  absl::Status Unexpected(std::string_view wanted) const;

  absl::StatusOr<ExprPtr> ParseExpression(bool with_conditional = true);
  // One expression, or a tuple of several separated by commas, without parentheses.
  absl::StatusOr<ExprPtr> ParseTuple(bool with_conditional = true);
  // name, name.attribute, or a tuple of those. Stops before `=`, `in` and the end of the tag.
  absl::StatusOr<Target> ParseTarget(bool with_attributes);
  // `name(args) | name ...`, the filters over the text of a block.
  absl::StatusOr<ExprPtr> ParseBlockFilter();

  Symbol Intern(std::string_view name);

  // Macro bodies learn which special variables they name.
  struct MacroNames {
    bool caller = false;
    bool varargs = false;
    bool kwargs = false;
  };
  void BeginMacro() { macros_.emplace_back(); }
  MacroNames EndMacro();

  // Between these an unknown filter or test is an error only when it is reached: the condition
  // around it may ask for something that this renderer does not have.
  void BeginCondition() { ++conditions_; }
  void EndCondition() { --conditions_; }
  // UNIMPLEMENTED for the first unknown filter or test outside of conditions.
  absl::Status CheckAllKnown() const;

  // One more level of nesting for as long as it lives.
  class Nesting final {
   public:
    explicit Nesting(ExpressionParser& parser) : parser_(parser) { ++parser_.nesting_; }
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    absl::Status Check() const;

   private:
    ExpressionParser& parser_;
  };

 private:
  absl::StatusOr<ExprPtr> ParseConditional();
  absl::StatusOr<ExprPtr> ParseLogic(bool is_and);
  absl::StatusOr<ExprPtr> ParseNot();
  absl::StatusOr<ExprPtr> ParseCompare();
  absl::StatusOr<ExprPtr> ParseSum();
  absl::StatusOr<ExprPtr> ParseConcat();
  absl::StatusOr<ExprPtr> ParseProduct();
  absl::StatusOr<ExprPtr> ParsePower();
  absl::StatusOr<ExprPtr> ParseUnary(bool with_filters);
  absl::StatusOr<ExprPtr> ParsePrimary();
  absl::StatusOr<ExprPtr> ParseName();
  absl::StatusOr<ExprPtr> ParseParenthesized();
  absl::StatusOr<ExprPtr> ParseList();
  absl::StatusOr<ExprPtr> ParseDict();
  absl::StatusOr<ExprPtr> ParsePostfix(ExprPtr expr);
  absl::StatusOr<ExprPtr> ParseSubscript(ExprPtr object);
  absl::StatusOr<ExprPtr> ParseCall(ExprPtr callee);
  absl::StatusOr<ExprPtr> ParseFilters(ExprPtr expr);
  absl::StatusOr<ExprPtr> ParseFilter(ExprPtr input);
  absl::StatusOr<ExprPtr> ParseTest(ExprPtr input);
  absl::StatusOr<Arguments> ParseArguments();
  absl::StatusOr<std::string> ParseDottedName();
  void NoteUnknown(int line, std::string_view kind, const std::string& name);

  const std::vector<Token> tokens_;
  Template* const out_;
  size_t position_ = 0;
  int nesting_ = 0;
  int conditions_ = 0;
  std::vector<absl::Status> unknown_;
  std::vector<MacroNames> macros_;
  std::unordered_map<std::string, Symbol> symbols_;
};

// `node` as an expression above `children` (nulls allowed). INVALID_ARGUMENT for too deep a tree.
template <typename Node>
absl::StatusOr<ExprPtr> MakeExpr(int line, Node node, const std::vector<const Expr*>& children) {
  auto expr = std::make_unique<Expr>();
  expr->line = line;
  for (const Expr* child : children) {
    if (child != nullptr) expr->depth = std::max(expr->depth, child->depth + 1);
  }
  if (expr->depth > kMaxTreeDepth) {
    return SyntaxError(
        line, absl::StrCat("an expression of more than ", kMaxTreeDepth, " nested operations"));
  }
  expr->node = std::move(node);
  return expr;
}

// Names that are not variables: true, false, none and their capitalised forms.
bool IsReserved(std::string_view name);

}  // namespace tandem::jinja
