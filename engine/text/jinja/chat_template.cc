#include "engine/text/chat_template.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <nlohmann/json.hpp>

#include "engine/base/status.h"
#include "engine/text/jinja/context.h"
#include "engine/text/jinja/evaluator.h"
#include "engine/text/jinja/json.h"
#include "engine/text/jinja/parser.h"

namespace tandem {

struct ChatTemplate::Program {
  std::unique_ptr<jinja::Template> tree;
};

namespace {

using jinja::Context;
using jinja::Origin;
using jinja::Text;
using jinja::Value;

// Roles that a request may name without naming a control token by it.
constexpr std::string_view kUsualRoles[] = {"assistant", "developer", "function", "ipython",
                                            "model",     "system",    "tool",     "user"};

// Makes the usual roles of messages scaffold.
void TrustUsualRoles(const Value& messages) {
  if (messages.list() == nullptr) return;
  for (const Value& message : messages.list()->items) {
    if (message.dict() == nullptr) continue;
    const Value* role = message.dict()->FindText("role");
    if (role == nullptr || role->text() == nullptr) continue;
    const std::string_view name = role->text()->bytes();
    if (std::find(std::begin(kUsualRoles), std::end(kUsualRoles), name) == std::end(kUsualRoles)) {
      continue;
    }
    const auto key = std::make_shared<const Text>("role", Origin::kScaffold);
    auto trusted = std::make_shared<const Text>(name, Origin::kScaffold);
    message.dict()->SetText(key, Value::String(std::move(trusted)));
  }
}

// Defines the variables that the template names.
template <typename Json>
absl::Status DefineVariables(const jinja::Template& tree, const Json& variables, Context& context,
                             jinja::Scope& scope) {
  if (!variables.is_object()) {
    return InvalidArgument("the variables of a chat template must be a JSON object");
  }
  for (size_t symbol = 0; symbol < tree.symbols.size(); ++symbol) {
    const std::string& name = tree.symbols[symbol];
    const auto found = variables.find(name);
    if (found == variables.end()) continue;
    const Origin origin = name.ends_with("_token") ? Origin::kScaffold : Origin::kContent;
    ASSIGN_OR_RETURN(Value value, jinja::FromJson(context, *found, origin));
    if (name == "messages") TrustUsualRoles(value);
    scope.Set(static_cast<jinja::Symbol>(symbol), std::move(value));
  }
  return absl::OkStatus();
}

template <typename Json>
absl::StatusOr<std::vector<RenderedPiece>> RenderTree(const jinja::Template& tree,
                                                      const Json& variables,
                                                      const TemplateLimits& limits,
                                                      absl::Time now) {
  Context context(limits, now);
  jinja::Scope scope(/*parent=*/nullptr);
  RETURN_IF_ERROR(DefineVariables(tree, variables, context, scope));
  const absl::StatusOr<Text> text = jinja::Evaluator(tree, context).Run(scope);
  if (!text.ok()) {
    if (context.raised()) return text.status();
    return absl::Status(text.status().code(),
                        absl::StrCat("line ", context.line(), ": ", text.status().message()));
  }
  std::vector<RenderedPiece> pieces;
  pieces.reserve(text->runs().size());
  text->ForEachRun([&](std::string_view bytes, Origin origin) {
    pieces.push_back({std::string(bytes), origin == Origin::kContent});
  });
  return pieces;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Parse(std::string_view source) {
  auto program = std::make_unique<Program>();
  ASSIGN_OR_RETURN(program->tree, jinja::ParseTemplate(source));
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(program)));
}

ChatTemplate::ChatTemplate(std::unique_ptr<Program> program) : program_(std::move(program)) {}
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::vector<RenderedPiece>> ChatTemplate::Render(const nlohmann::json& variables,
                                                                const TemplateLimits& limits,
                                                                absl::Time now) const {
  return RenderTree(*program_->tree, variables, limits, now);
}

absl::StatusOr<std::vector<RenderedPiece>> ChatTemplate::Render(
    const nlohmann::ordered_json& variables, const TemplateLimits& limits, absl::Time now) const {
  return RenderTree(*program_->tree, variables, limits, now);
}

}  // namespace tandem
