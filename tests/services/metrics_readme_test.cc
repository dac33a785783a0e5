// The README's tables of metrics are those of the programs.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "services/common/metrics.h"
#include "services/text/text_metrics.h"
#include "services/worker/worker_metrics.h"

namespace tandem {
namespace {

// What stands between the comments "NAME" and "end of NAME".
std::string Section(const std::string& name) {
  std::ifstream file("README.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string open = "[//]: # (" + name + ")\n\n";
  const size_t begin = text.find(open);
  const size_t end = text.find("\n[//]: # (end of " + name + ")");
  if (begin == std::string::npos || end == std::string::npos) return "";
  return text.substr(begin + open.size(), end - begin - open.size());
}

TEST(MetricsReadme, HasTheTextTiersTable) {
  const std::string table = MetricsTable(text::TextMetricTable());
  EXPECT_TRUE(Section("metrics of tandem-text") == table) << "README.md should have:\n" << table;
}

TEST(MetricsReadme, HasTheWorkersTable) {
  const std::string table = MetricsTable(WorkerMetricTable());
  EXPECT_TRUE(Section("metrics of tandem-worker") == table) << "README.md should have:\n" << table;
}

}  // namespace
}  // namespace tandem
