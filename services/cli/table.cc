#include "services/cli/table.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/check.h"
#include "services/cli/terminal.h"

namespace tandem::cli {
namespace {

constexpr int kGap = 2;

int Width(const std::string& text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // not the rest of a code point
  }));
}

// Of the columns of these numbers.
std::string Line(const std::vector<std::string>& cells, const std::vector<Table::Column>& columns,
                 const std::vector<int>& widths, const std::vector<size_t>& shown) {
  std::string line;
  for (const size_t i : shown) {
    const std::string padding(static_cast<size_t>(widths[i] - Width(cells[i])), ' ');
    if (i != shown[0]) line += std::string(kGap, ' ');
    line += columns[i].align == Table::Align::kRight ? padding + cells[i] : cells[i] + padding;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::AddRow(std::vector<std::string> cells) {
  TANDEM_CHECK(cells.size() == columns_.size()) << cells.size() << " of " << columns_.size();
  for (std::string& cell : cells) {
    cell = ForTerminal(cell);
    std::replace(cell.begin(), cell.end(), '\n', ' ');
    std::replace(cell.begin(), cell.end(), '\t', ' ');
  }
  rows_.push_back(std::move(cells));
}

std::string Table::Text(int width) const {
  std::vector<std::string> head;
  std::vector<int> widths;
  for (const Column& column : columns_) {
    head.push_back(column.name);
    widths.push_back(Width(column.name));
  }
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string text;
  size_t next = 1;
  do {
    std::vector<size_t> shown = {0};
    int used = widths[0];
    for (; next < widths.size(); ++next) {
      used += kGap + widths[next];
      if (width > 0 && used > width && shown.size() > 1) break;
      shown.push_back(next);
    }
    if (!text.empty()) text += "\n";
    text += Line(head, columns_, widths, shown);
    for (const auto& row : rows_) text += Line(row, columns_, widths, shown);
  } while (next < widths.size());
  return text;
}

std::string WithCommas(int64_t number) {
  std::string digits = std::to_string(number);
  const int first = number < 0 ? 1 : 0;
  for (int at = static_cast<int>(digits.size()) - 3; at > first; at -= 3) {
    digits.insert(static_cast<size_t>(at), 1, ',');
  }
  return digits;
}

std::string ShortTime(double seconds) {
  if (seconds < 0.9995e-3) return absl::StrFormat("%.0f us", seconds * 1e6);
  if (seconds < 0.9995) return absl::StrFormat("%.*f ms", seconds < 0.09995 ? 1 : 0, seconds * 1e3);
  return absl::StrFormat("%.*f s", seconds < 99.95 ? 2 : 0, seconds);
}

}  // namespace tandem::cli
