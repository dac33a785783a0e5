#include "tests/support/golden.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "absl/strings/escaping.h"

namespace tandem::test {
namespace {

template <typename T>
std::vector<T> Numbers(const nlohmann::json& text) {
  const auto& base64 = text.get_ref<const std::string&>();
  std::string bytes;
  if (!absl::Base64Unescape(base64, &bytes) || bytes.size() % sizeof(T) != 0) {
    ADD_FAILURE() << "no base64 of whole numbers: " << base64.substr(0, 40);
    return {};
  }
  std::vector<T> numbers(bytes.size() / sizeof(T));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

}  // namespace

nlohmann::json ReadJson(const std::string& path) {
  std::ifstream file(path);
  nlohmann::json data = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (data.is_discarded()) {
    ADD_FAILURE() << path << " cannot be read";
    return nullptr;
  }
  return data;
}

std::vector<float> Floats(const nlohmann::json& text) { return Numbers<float>(text); }
std::vector<int32_t> Ints(const nlohmann::json& text) { return Numbers<int32_t>(text); }

}  // namespace tandem::test
