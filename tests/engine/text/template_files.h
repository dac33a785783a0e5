// The golden chat templates and what tests of the renderer share.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/text/chat_template.h"

namespace tandem {

inline constexpr char kTemplateFolder[] = "tests/golden/templates/";
// The time that tests/golden/templates/jinja_environment.py renders at.
inline const absl::Time kGoldenNow = absl::FromUnixSeconds(1'753'900'000);

inline std::string ReadFile(const std::string& path) {
  const std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

inline nlohmann::ordered_json ReadJson(const std::string& path) {
  return nlohmann::ordered_json::parse(ReadFile(path));
}

// The names of the templates, without .jinja.
inline std::vector<std::string> TemplateNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kTemplateFolder)) {
    if (entry.path().extension() == ".jinja") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline std::string Join(const std::vector<RenderedPiece>& pieces) {
  std::string text;
  for (const RenderedPiece& piece : pieces) text += piece.text;
  return text;
}

// Parses and renders at kGoldenNow.
inline absl::StatusOr<std::vector<RenderedPiece>> RenderPieces(
    const std::string& source, const nlohmann::ordered_json& variables,
    const TemplateLimits& limits = {}) {
  const auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return parsed.status();
  return (*parsed)->Render(variables, limits, kGoldenNow);
}

inline absl::StatusOr<std::string> RenderText(
    const std::string& source,
    const nlohmann::ordered_json& variables = nlohmann::ordered_json::object(),
    const TemplateLimits& limits = {}) {
  const auto pieces = RenderPieces(source, variables, limits);
  if (!pieces.ok()) return pieces.status();
  return Join(*pieces);
}

// The text, or "CODE: message".
inline std::string Rendered(const std::string& source, const nlohmann::ordered_json& variables =
                                                           nlohmann::ordered_json::object()) {
  const auto text = RenderText(source, variables);
  return text.ok() ? *text : text.status().ToString();
}

}  // namespace tandem
