#include "tests/support/exposition.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "tests/support/process.h"

namespace tandem::test {

Samples ParseExposition(const std::string& text) {
  Samples out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    double value = 0.0;
    const bool is_sample =
        space != std::string::npos && absl::SimpleAtod(line.substr(space + 1), &value);
    EXPECT_TRUE(is_sample) << line;
    if (is_sample) {
      EXPECT_TRUE(out.emplace(line.substr(0, space), value).second) << "twice: " << line;
    }
  }
  return out;
}

std::string MetricOf(const std::string& text, const std::string& series) {
  const std::string name = series.substr(0, series.find('{'));
  for (const std::string ending : {"_bucket", "_count", "_sum"}) {
    if (name.size() <= ending.size() || !name.ends_with(ending)) continue;
    const std::string metric = name.substr(0, name.size() - ending.size());
    if (text.find("# TYPE " + metric + " histogram\n") != std::string::npos) return metric;
  }
  return name;
}

std::set<std::string> Moved(const std::string& before, const std::string& after) {
  std::set<std::string> out;
  const Samples was = ParseExposition(before);
  for (const auto& [series, value] : ParseExposition(after)) {
    const auto old = was.find(series);
    if (old == was.end() || old->second != value) out.insert(MetricOf(after, series));
  }
  return out;
}

std::string CheckWithPromtool(const std::string& text) {
  if (RunProgram({"/bin/sh", "-c", "command -v promtool"}).status != 0) return "skip";
  const TemporaryFolder folder;
  const std::string path = folder.File("metrics");
  std::ofstream(path) << text;
  const RunResult result = RunProgram({"/bin/sh", "-c", "promtool check metrics < '" + path + "'"});
  if (result.status == 0 && result.output.empty()) return "";
  return "exit status " + std::to_string(result.status) + ": " + result.output;
}

}  // namespace tandem::test
