// A table of text for people.
#pragma once

#include <string>
#include <vector>

namespace tandem::cli {

class Table final {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string name;
    Align align = Align::kRight;
  };

  explicit Table(std::vector<Column> columns);

  // REQUIRES as many cells as columns. Control characters become U+FFFD.
  void AddRow(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }

  // Lines, each with its end, columns two spaces apart, no spaces at the end of a line. Columns
  // that do not fit into `width` characters come in further tables below, behind a blank line and
  // the first column again. 0: all fit. A code point counts as one character.
  std::string Text(int width) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// 1234567 as "1,234,567".
std::string WithCommas(int64_t number);
// Seconds as "850 us", "12.3 ms" or "4.56 s".
std::string ShortTime(double seconds);

}  // namespace tandem::cli
