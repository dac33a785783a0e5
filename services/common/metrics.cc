#include "services/common/metrics.h"

#include <limits>
#include <sstream>

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"

namespace tandem {
namespace {

prometheus::MetricType ToPrometheus(MetricSpec::Type type) {
  switch (type) {
    case MetricSpec::Type::kCounter:
      return prometheus::MetricType::Counter;
    case MetricSpec::Type::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricSpec::Type::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

std::string_view TypeName(MetricSpec::Type type) {
  switch (type) {
    case MetricSpec::Type::kCounter:
      return "counter";
    case MetricSpec::Type::kGauge:
      return "gauge";
    case MetricSpec::Type::kHistogram:
      return "histogram";
  }
  return "";
}

void SetLabels(Exposition::Labels labels, prometheus::ClientMetric* metric) {
  for (const auto& [name, value] : labels) {
    metric->label.push_back({std::string(name), std::string(value)});
  }
}

// For absl, whose string_view is its own.
absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

double Quantile(const HistogramView& histogram, double q) {
  const double wanted = q * static_cast<double>(histogram.total());
  double below = 0.0;
  for (size_t i = 0; i < histogram.bounds.size(); ++i) {
    const double here = static_cast<double>(histogram.counts[i]);
    if (here > 0.0 && below + here >= wanted) {
      const double low = i == 0 ? 0.0 : histogram.bounds[i - 1];
      return low + (histogram.bounds[i] - low) * (wanted - below) / here;
    }
    below += here;
  }
  return histogram.total() == 0 || histogram.bounds.empty() ? 0.0 : histogram.bounds.back();
}

struct Exposition::Families {
  std::vector<prometheus::MetricFamily> all;  // as the table has them
};

Exposition::Exposition(std::span<const MetricSpec> table)
    : table_(table), families_(std::make_unique<Families>()) {
  for (const MetricSpec& spec : table_) {
    families_->all.push_back(
        {std::string(spec.name), std::string(spec.help), ToPrometheus(spec.type), {}});
  }
}

Exposition::~Exposition() = default;

size_t Exposition::Find(std::string_view name) const {
  size_t at = 0;
  while (at < table_.size() && table_[at].name != name) ++at;
  TANDEM_CHECK(at < table_.size()) << name << " is not in the table of metrics";
  return at;
}

void Exposition::Add(std::string_view name, Labels labels, double value) {
  const size_t at = Find(name);
  TANDEM_CHECK(table_[at].type != MetricSpec::Type::kHistogram) << name << " is a histogram";
  prometheus::ClientMetric& metric = families_->all[at].metric.emplace_back();
  SetLabels(labels, &metric);
  // The family's type says which of the two it is.
  metric.counter.value = metric.gauge.value = value;
}

void Exposition::Add(std::string_view name, Labels labels, const HistogramView& histogram) {
  const size_t at = Find(name);
  TANDEM_CHECK(table_[at].bounds.data() == histogram.bounds.data())
      << name << " has other buckets in the table";
  prometheus::ClientMetric& metric = families_->all[at].metric.emplace_back();
  SetLabels(labels, &metric);
  uint64_t so_far = 0;
  for (size_t i = 0; i < histogram.counts.size(); ++i) {
    so_far += static_cast<uint64_t>(histogram.counts[i]);
    const bool last = i == histogram.bounds.size();
    metric.histogram.bucket.push_back(
        {so_far, last ? std::numeric_limits<double>::infinity() : histogram.bounds[i]});
  }
  metric.histogram.sample_count = so_far;
  metric.histogram.sample_sum = histogram.sum;
}

std::string Exposition::Text() const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families_->all);
  return out.str();
}

std::string MetricsTable(std::span<const MetricSpec> table) {
  std::string out = "| Metric | Type | Labels | What it is |\n|---|---|---|---|\n";
  for (const MetricSpec& spec : table) {
    absl::StrAppend(&out, "| `", View(spec.name), "` | ", View(TypeName(spec.type)), " | ",
                    View(spec.labels), " | ", View(spec.help), " |\n");
  }
  return out;
}

}  // namespace tandem
