// Metrics as Prometheus reads them. Each server object counts for itself, in structs of its own;
// when it is asked, it puts what it has counted into an Exposition, which writes the text. Nothing
// here is global, and nothing here is called while work is done.
//
// A service has one table with all of its metrics. Rules: base units, which the name ends with
// (`_seconds`, `_bytes`), and `_total` for what only rises; every metric is in every text, with all
// values of labels that can be known before, so that a rate begins at zero.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "services/common/histogram.h"

namespace tandem {

struct MetricSpec {
  enum class Type : uint8_t { kCounter, kGauge, kHistogram };
  std::string_view name;
  Type type;
  std::string_view labels;  // for people: "name: values; name: values"; empty: none
  std::string_view help;
  std::span<const double> bounds = {};  // of a histogram's buckets
};

// The media type of Exposition's text.
inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// One scrape. Not thread-safe.
class Exposition final {
 public:
  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  // The table must outlive this.
  explicit Exposition(std::span<const MetricSpec> table);
  ~Exposition();
  Exposition(const Exposition&) = delete;
  Exposition& operator=(const Exposition&) = delete;

  // A sample of that name. Values of labels may be any text; they are escaped. REQUIRES: the name
  // is in the table, and of a fitting type; each combination of labels comes once.
  void Add(std::string_view name, Labels labels, double value);
  void Add(std::string_view name, Labels labels, const HistogramView& histogram);

  // In the order of the table.
  std::string Text() const;

 private:
  struct Families;
  size_t Find(std::string_view name) const;

  const std::span<const MetricSpec> table_;
  const std::unique_ptr<Families> families_;
};

// The table for people, in Markdown: a row a metric.
std::string MetricsTable(std::span<const MetricSpec> table);

}  // namespace tandem
