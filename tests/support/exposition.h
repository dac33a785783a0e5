// Metrics as a test reads them.
#pragma once

#include <map>
#include <set>
#include <string>

namespace tandem::test {

// The samples of a text in Prometheus' format, by series: `name{label="value"}`. A line that is
// neither a sample nor a comment fails the test.
using Samples = std::map<std::string, double>;
Samples ParseExposition(const std::string& text);

// "a_seconds" of `a_seconds_bucket{le="1"}`, where the text says that it is a histogram; else what
// stands before the labels.
std::string MetricOf(const std::string& text, const std::string& series);

// The metrics that have a sample which is not as it was, or was not there.
std::set<std::string> Moved(const std::string& before, const std::string& after);

// What `promtool check metrics` says; empty: nothing to say. "skip": it is not installed.
std::string CheckWithPromtool(const std::string& text);

}  // namespace tandem::test
