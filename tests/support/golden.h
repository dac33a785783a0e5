// Golden files: JSON whose arrays of numbers are base64 of little-endian values
// (tests/golden/model/make_goldens.py).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tandem::test {

// A path from the root of the repository, the working directory of tests. Fails the test and gives
// null if it cannot be read.
nlohmann::json ReadJson(const std::string& path);

// Fail the test and give nothing if the text is no base64 or no whole numbers.
std::vector<float> Floats(const nlohmann::json& text);
std::vector<int32_t> Ints(const nlohmann::json& text);

}  // namespace tandem::test
