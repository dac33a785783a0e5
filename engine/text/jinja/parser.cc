#include "engine/text/jinja/parser.h"

#include <initializer_list>
#include <string>
#include <utility>

#include "engine/base/status.h"
#include "engine/text/jinja/expression_parser.h"
#include "engine/text/jinja/lexer.h"

namespace tandem::jinja {
namespace {

using Kind = Token::Kind;
using EndNames = std::initializer_list<std::string_view>;

class StatementParser final {
 public:
  StatementParser(std::vector<Token> tokens, Template* out) : in_(std::move(tokens), out) {}

  absl::StatusOr<Block> ParseAll() {
    ASSIGN_OR_RETURN(Block block, ParseBlock({}));
    RETURN_IF_ERROR(in_.CheckAllKnown());
    return block;
  }

 private:
  // Statements up to `{% name` with a name of `ends`, which stays current; with no ends, up to the
  // end of the source.
  absl::StatusOr<Block> ParseBlock(EndNames ends);
  // ParseBlock behind the end of a tag, and over the closing `{% end %}`.
  absl::StatusOr<Block> ParseBody(std::string_view end);
  absl::StatusOr<Block> ParseScopedBody(std::string_view end, bool keeps_loop);

  absl::StatusOr<Statement> ParseStatement();
  absl::StatusOr<Statement> ParseIf();
  absl::StatusOr<Statement> ParseFor();
  absl::StatusOr<Statement> ParseSet();
  absl::StatusOr<Statement> ParseMacro();
  absl::StatusOr<Statement> ParseCallBlock();
  absl::StatusOr<Statement> ParseFilterBlock();
  absl::StatusOr<Statement> ParseWith();
  absl::StatusOr<Statement> ParsePrint();
  absl::StatusOr<std::vector<Parameter>> ParseParameters();
  // The body of `macro`, with what it names.
  absl::Status ParseMacroBody(std::string_view end, MacroDef* macro);

  absl::Status EndTag() { return in_.Expect(Kind::kBlockEnd, "the end of the tag"); }

  ExpressionParser in_;
  bool in_loop_ = false;  // break and continue are allowed
};

absl::StatusOr<Block> StatementParser::ParseBlock(EndNames ends) {
  const ExpressionParser::Nesting nesting(in_);
  RETURN_IF_ERROR(nesting.Check());
  Block block;
  while (true) {
    const Token& token = in_.current();
    const int line = token.line;
    if (token.kind == Kind::kData) {
      auto text = std::make_shared<const Text>(token.value, Origin::kScaffold);
      block.push_back({line, TextStatement{std::move(text)}});
      in_.Next();
    } else if (token.kind == Kind::kVariableBegin) {
      in_.Next();
      ASSIGN_OR_RETURN(ExprPtr value, in_.ParseTuple());
      RETURN_IF_ERROR(in_.Expect(Kind::kVariableEnd, "'}}'"));
      block.push_back({line, OutputStatement{std::move(value)}});
    } else if (token.kind == Kind::kBlockBegin) {
      in_.Next();
      for (const std::string_view end : ends) {
        if (in_.AtName(end)) return block;
      }
      ASSIGN_OR_RETURN(Statement statement, ParseStatement());
      statement.line = line;
      block.push_back(std::move(statement));
      RETURN_IF_ERROR(EndTag());
    } else if (ends.size() == 0) {
      return block;
    } else {
      return in_.Unexpected(absl::StrCat("{% ", std::string(*(ends.end() - 1)), " %}"));
    }
  }
}

absl::StatusOr<Block> StatementParser::ParseBody(std::string_view end) {
  RETURN_IF_ERROR(EndTag());
  ASSIGN_OR_RETURN(Block body, ParseBlock({end}));
  RETURN_IF_ERROR(in_.ExpectName(end));
  return body;
}

absl::StatusOr<Block> StatementParser::ParseScopedBody(std::string_view end, bool keeps_loop) {
  const bool outer = std::exchange(in_loop_, in_loop_ && keeps_loop);
  auto body = ParseBody(end);
  in_loop_ = outer;
  return body;
}

absl::StatusOr<Statement> StatementParser::ParseStatement() {
  const int line = in_.current().line;
  ASSIGN_OR_RETURN(const std::string name, in_.ExpectIdentifier());
  if (name == "if") return ParseIf();
  if (name == "for") return ParseFor();
  if (name == "set") return ParseSet();
  if (name == "macro") return ParseMacro();
  if (name == "call") return ParseCallBlock();
  if (name == "filter") return ParseFilterBlock();
  if (name == "with") return ParseWith();
  if (name == "print") return ParsePrint();
  if (name == "generation") {  // marks what the model wrote, for training; renders as its body
    ASSIGN_OR_RETURN(Block body, ParseScopedBody("endgeneration", /*keeps_loop=*/false));
    return Statement{line, ScopeStatement{{}, std::move(body)}};
  }
  if (name == "break" || name == "continue") {
    if (!in_loop_) return SyntaxError(line, absl::StrCat("'", name, "' outside of a loop"));
    return Statement{line, LoopControlStatement{name == "break"}};
  }
  for (const std::string_view known :
       {"extends", "block", "include", "import", "from", "autoescape", "trans", "do", "debug"}) {
    if (name == known) {
      return Unimplemented("line ", line, ": the statement '", name, "' is not supported");
    }
  }
  return SyntaxError(line, absl::StrCat("unknown statement '", name, "'"));
}

absl::StatusOr<Statement> StatementParser::ParseIf() {
  IfStatement node;
  const int line = in_.current().line;
  in_.BeginCondition();
  while (true) {
    ASSIGN_OR_RETURN(ExprPtr condition, in_.ParseTuple(/*with_conditional=*/false));
    RETURN_IF_ERROR(EndTag());
    ASSIGN_OR_RETURN(Block body, ParseBlock({"elif", "else", "endif"}));
    node.branches.emplace_back(std::move(condition), std::move(body));
    if (in_.SkipName("elif")) continue;
    if (in_.SkipName("else")) {
      ASSIGN_OR_RETURN(node.otherwise, ParseBody("endif"));
    } else {
      RETURN_IF_ERROR(in_.ExpectName("endif"));
    }
    in_.EndCondition();
    return Statement{line, std::move(node)};
  }
}

absl::StatusOr<Statement> StatementParser::ParseFor() {
  const int line = in_.current().line;
  ForStatement node;
  ASSIGN_OR_RETURN(node.target, in_.ParseTarget(/*with_attributes=*/false));
  RETURN_IF_ERROR(in_.ExpectName("in"));
  ASSIGN_OR_RETURN(node.iterable, in_.ParseTuple(/*with_conditional=*/false));
  if (in_.SkipName("if")) {
    ASSIGN_OR_RETURN(node.filter, in_.ParseExpression());
  }
  node.recursive = in_.SkipName("recursive");
  RETURN_IF_ERROR(EndTag());
  const bool outer = std::exchange(in_loop_, true);
  auto body = ParseBlock({"else", "endfor"});
  in_loop_ = outer;
  ASSIGN_OR_RETURN(node.body, std::move(body));
  if (in_.SkipName("else")) {
    ASSIGN_OR_RETURN(node.otherwise, ParseBody("endfor"));
  } else {
    RETURN_IF_ERROR(in_.ExpectName("endfor"));
  }
  return Statement{line, std::move(node)};
}

absl::StatusOr<Statement> StatementParser::ParseSet() {
  const int line = in_.current().line;
  ASSIGN_OR_RETURN(Target target, in_.ParseTarget(/*with_attributes=*/true));
  if (in_.SkipOperator("=")) {
    ASSIGN_OR_RETURN(ExprPtr value, in_.ParseTuple());
    return Statement{line, SetStatement{std::move(target), std::move(value)}};
  }
  SetBlockStatement node{std::move(target), nullptr, {}};
  if (in_.SkipOperator("|")) {
    ASSIGN_OR_RETURN(node.filter, in_.ParseBlockFilter());
  }
  ASSIGN_OR_RETURN(node.body, ParseScopedBody("endset", /*keeps_loop=*/true));
  return Statement{line, std::move(node)};
}

absl::StatusOr<std::vector<Parameter>> StatementParser::ParseParameters() {
  RETURN_IF_ERROR(in_.ExpectOperator("("));
  std::vector<Parameter> parameters;
  while (!in_.AtOperator(")")) {
    const int line = in_.current().line;
    Parameter parameter;
    ASSIGN_OR_RETURN(parameter.name, in_.ExpectIdentifier());
    if (IsReserved(parameter.name)) {
      return SyntaxError(line, absl::StrCat("a parameter cannot be named '", parameter.name, "'"));
    }
    parameter.symbol = in_.Intern(parameter.name);
    if (in_.SkipOperator("=")) {
      ASSIGN_OR_RETURN(parameter.default_value, in_.ParseExpression());
    } else if (!parameters.empty() && parameters.back().default_value != nullptr) {
      return SyntaxError(line, "a parameter without a default behind one that has one");
    }
    parameters.push_back(std::move(parameter));
    if (!in_.SkipOperator(",")) break;
  }
  RETURN_IF_ERROR(in_.ExpectOperator(")"));
  return parameters;
}

absl::Status StatementParser::ParseMacroBody(std::string_view end, MacroDef* macro) {
  in_.BeginMacro();
  auto body = ParseScopedBody(end, /*keeps_loop=*/false);
  const ExpressionParser::MacroNames names = in_.EndMacro();
  ASSIGN_OR_RETURN(macro->body, std::move(body));
  macro->uses_caller = names.caller;
  macro->uses_varargs = names.varargs;
  macro->uses_kwargs = names.kwargs;
  return absl::OkStatus();
}

absl::StatusOr<Statement> StatementParser::ParseMacro() {
  const int line = in_.current().line;
  auto macro = std::make_unique<MacroDef>();
  ASSIGN_OR_RETURN(macro->name, in_.ExpectIdentifier());
  if (IsReserved(macro->name)) {
    return SyntaxError(line, absl::StrCat("a macro cannot be named '", macro->name, "'"));
  }
  ASSIGN_OR_RETURN(macro->parameters, ParseParameters());
  RETURN_IF_ERROR(ParseMacroBody("endmacro", macro.get()));
  const Symbol symbol = in_.Intern(macro->name);
  return Statement{line, MacroStatement{symbol, std::move(macro)}};
}

absl::StatusOr<Statement> StatementParser::ParseCallBlock() {
  const int line = in_.current().line;
  CallStatement node{std::make_unique<MacroDef>(), nullptr};
  node.caller->name = "caller";
  if (in_.AtOperator("(")) {
    ASSIGN_OR_RETURN(node.caller->parameters, ParseParameters());
  }
  ASSIGN_OR_RETURN(node.call, in_.ParseExpression());
  if (!std::holds_alternative<CallExpr>(node.call->node)) {
    return SyntaxError(line, "'call' needs a call behind it");
  }
  RETURN_IF_ERROR(ParseMacroBody("endcall", node.caller.get()));
  return Statement{line, std::move(node)};
}

absl::StatusOr<Statement> StatementParser::ParseFilterBlock() {
  const int line = in_.current().line;
  FilterStatement node;
  ASSIGN_OR_RETURN(node.filter, in_.ParseBlockFilter());
  ASSIGN_OR_RETURN(node.body, ParseScopedBody("endfilter", /*keeps_loop=*/true));
  return Statement{line, std::move(node)};
}

absl::StatusOr<Statement> StatementParser::ParseWith() {
  const int line = in_.current().line;
  ScopeStatement node;
  while (in_.current().kind != Kind::kBlockEnd) {
    if (!node.assignments.empty()) RETURN_IF_ERROR(in_.ExpectOperator(","));
    ASSIGN_OR_RETURN(const std::string name, in_.ExpectIdentifier());
    RETURN_IF_ERROR(in_.ExpectOperator("="));
    ASSIGN_OR_RETURN(ExprPtr value, in_.ParseExpression());
    Target target;
    target.symbol = in_.Intern(name);
    node.assignments.emplace_back(std::move(target), std::move(value));
  }
  ASSIGN_OR_RETURN(node.body, ParseScopedBody("endwith", /*keeps_loop=*/true));
  return Statement{line, std::move(node)};
}

// {% print a, b %} is {{ a ~ b }}.
absl::StatusOr<Statement> StatementParser::ParsePrint() {
  const int line = in_.current().line;
  ConcatExpr concat;
  std::vector<const Expr*> children;
  do {
    ASSIGN_OR_RETURN(ExprPtr part, in_.ParseExpression());
    children.push_back(part.get());
    concat.parts.push_back(std::move(part));
  } while (in_.SkipOperator(","));
  ASSIGN_OR_RETURN(ExprPtr value, MakeExpr(line, std::move(concat), children));
  return Statement{line, OutputStatement{std::move(value)}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Template>> ParseTemplate(std::string_view source) {
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  auto result = std::make_unique<Template>();
  StatementParser parser(std::move(tokens), result.get());
  ASSIGN_OR_RETURN(result->body, parser.ParseAll());
  return result;
}

}  // namespace tandem::jinja
