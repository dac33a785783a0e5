#include "services/common/flag_table.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace tandem {
namespace {

std::string Cell(std::string_view text) {
  return absl::StrReplaceAll(std::string(text), {{"|", "\\|"}, {"\n", " "}});
}

// CLI11 writes "INT:INT in [1 - 64]" and "TEXT:{a,b}"; a switch has nothing.
std::string ValueOf(const CLI::Option& option) {
  std::string value = option.get_type_name();
  if (const size_t range = value.find(" in ["); range != std::string::npos) {
    value = absl::StrReplaceAll(value.substr(range + 5), {{"]", ""}, {" - ", " to "}});
  } else if (const size_t set = value.find(":{"); set != std::string::npos) {
    value = absl::StrReplaceAll(value.substr(set + 2), {{"}", ""}, {",", ", "}});
  } else {
    value = absl::StrReplaceAll(
        value, {{"TEXT", "text"}, {"UINT", "integer"}, {"INT", "integer"}, {"FLOAT", "number"}});
  }
  if (option.get_expected_max() > 1) absl::StrAppend(&value, ", repeatable");
  return value;
}

}  // namespace

std::string FlagTable(const CLI::App& app) {
  std::string table = "| Flag | Value | Default | Meaning |\n|---|---|---|---|\n";
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty() || option->get_positional()) continue;
    const std::string fallback = option->get_required() ? "required" : option->get_default_str();
    absl::StrAppend(&table, "| `", option->get_name(), "` | ", Cell(ValueOf(*option)), " | ",
                    Cell(fallback), " | ", Cell(option->get_description()), " |\n");
  }
  return table;
}

}  // namespace tandem
