// Typed access to the values of a GGUF file.
#include <cmath>
#include <cstring>
#include <string>

#include "absl/strings/escaping.h"
#include "engine/base/status.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_cursor.h"

namespace tandem {
namespace {

constexpr size_t kQuotedBytes = 64;

template <typename T>
T Element(const GgufValue& value, int64_t index) {
  T element;
  std::memcpy(&element, value.bytes.data() + static_cast<size_t>(index) * sizeof(T), sizeof(T));
  return element;
}

std::string TypeText(const GgufValue& value) {
  return absl::StrCat(value.is_array ? "an array of " : "", Name(value.type));
}

absl::Status WrongType(std::string_view key, const GgufValue& value, const char* wanted) {
  return InvalidArgument("key ", Quoted(key), " is ", TypeText(value), ", not ", wanted);
}

// The integer as sign and 64 bits; false: not an integer type.
bool IntegerElement(const GgufValue& value, int64_t* out, bool* too_large) {
  *too_large = false;
  switch (value.type) {
    case GgufType::kUint8:
      *out = Element<uint8_t>(value, 0);
      return true;
    case GgufType::kInt8:
      *out = Element<int8_t>(value, 0);
      return true;
    case GgufType::kUint16:
      *out = Element<uint16_t>(value, 0);
      return true;
    case GgufType::kInt16:
      *out = Element<int16_t>(value, 0);
      return true;
    case GgufType::kUint32:
      *out = Element<uint32_t>(value, 0);
      return true;
    case GgufType::kInt32:
      *out = Element<int32_t>(value, 0);
      return true;
    case GgufType::kInt64:
      *out = Element<int64_t>(value, 0);
      return true;
    case GgufType::kUint64: {
      const auto number = Element<uint64_t>(value, 0);
      *too_large = number > uint64_t{INT64_MAX};
      *out = *too_large ? INT64_MAX : static_cast<int64_t>(number);
      return true;
    }
    default:
      return false;
  }
}

// Well-formed as the Unicode standard defines it: shortest form, no surrogates, at most U+10FFFF.
bool IsUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i]);
    const size_t length = lead < 0x80   ? 1
                          : lead < 0xC0 ? 0
                          : lead < 0xE0 ? 2
                          : lead < 0xF0 ? 3
                          : lead < 0xF8 ? 4
                                        : 0;
    if (length == 0 || length > text.size() - i) return false;
    uint32_t code_point = length == 1 ? lead : lead & (0x7Fu >> length);
    for (size_t k = 1; k < length; ++k) {
      const auto byte = static_cast<uint8_t>(text[i + k]);
      if ((byte & 0xC0) != 0x80) return false;
      code_point = code_point << 6 | (byte & 0x3Fu);
    }
    constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code_point < kSmallest[length] || code_point > 0x10FFFF) return false;
    if (code_point >= 0xD800 && code_point <= 0xDFFF) return false;
    i += length;
  }
  return true;
}

absl::Status CheckUtf8(std::string_view key, std::string_view text) {
  if (IsUtf8(text)) return absl::OkStatus();
  return InvalidArgument("key ", Quoted(key), " has a string that is not UTF-8: ", Quoted(text));
}

}  // namespace

const char* Name(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
      return "UINT8";
    case GgufType::kInt8:
      return "INT8";
    case GgufType::kUint16:
      return "UINT16";
    case GgufType::kInt16:
      return "INT16";
    case GgufType::kUint32:
      return "UINT32";
    case GgufType::kInt32:
      return "INT32";
    case GgufType::kFloat32:
      return "FLOAT32";
    case GgufType::kBool:
      return "BOOL";
    case GgufType::kString:
      return "STRING";
    case GgufType::kArray:
      return "ARRAY";
    case GgufType::kUint64:
      return "UINT64";
    case GgufType::kInt64:
      return "INT64";
    case GgufType::kFloat64:
      return "FLOAT64";
  }
  return "?";
}

int64_t ElementBytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

std::string Quoted(std::string_view text) {
  const bool shorten = text.size() > kQuotedBytes;
  if (shorten) text = text.substr(0, kQuotedBytes);
  return absl::StrCat("\"", absl::CHexEscape(absl::string_view(text.data(), text.size())),
                      shorten ? "...\"" : "\"");
}

absl::StatusOr<const GgufValue*> GgufFile::Find(std::string_view key, bool is_array) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return InvalidArgument("key ", Quoted(key), " is missing");
  if (found->second.is_array != is_array) {
    return WrongType(key, found->second, is_array ? "an array" : "a single value");
  }
  return &found->second;
}

absl::StatusOr<int64_t> GgufFile::Int(std::string_view key, int64_t low, int64_t high) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Find(key, /*is_array=*/false));
  int64_t number = 0;
  bool too_large = false;
  if (!IntegerElement(*value, &number, &too_large)) return WrongType(key, *value, "an integer");
  if (too_large || number < low || number > high) {
    return InvalidArgument("key ", Quoted(key), " is ",
                           too_large ? "above 2^63" : absl::StrCat(number), ": it must be ", low,
                           " to ", high);
  }
  return number;
}

absl::StatusOr<double> GgufFile::Real(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Find(key, /*is_array=*/false));
  double number = 0.0;
  if (value->type == GgufType::kFloat32) {
    number = Element<float>(*value, 0);
  } else if (value->type == GgufType::kFloat64) {
    number = Element<double>(*value, 0);
  } else {
    return WrongType(key, *value, "FLOAT32 or FLOAT64");
  }
  if (!std::isfinite(number)) {
    return InvalidArgument("key ", Quoted(key), " is ", number, ": it must be finite");
  }
  return number;
}

absl::StatusOr<bool> GgufFile::Bool(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Find(key, /*is_array=*/false));
  if (value->type != GgufType::kBool) return WrongType(key, *value, "BOOL");
  return Element<uint8_t>(*value, 0) != 0;
}

absl::StatusOr<std::string> GgufFile::Text(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Find(key, /*is_array=*/false));
  if (value->type != GgufType::kString) return WrongType(key, *value, "STRING");
  GgufCursor cursor(value->bytes);
  ASSIGN_OR_RETURN(const std::string_view text, cursor.ReadString("string", kMaxGgufStringBytes));
  RETURN_IF_ERROR(CheckUtf8(key, text));
  return std::string(text);
}

absl::StatusOr<std::vector<std::string_view>> GgufFile::TextArray(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Find(key, /*is_array=*/true));
  if (value->type != GgufType::kString) return WrongType(key, *value, "an array of STRING");
  std::vector<std::string_view> texts;
  texts.reserve(static_cast<size_t>(value->count));
  GgufCursor cursor(value->bytes);
  for (int64_t i = 0; i < value->count; ++i) {
    ASSIGN_OR_RETURN(const std::string_view text, cursor.ReadString("string", kMaxGgufStringBytes));
    RETURN_IF_ERROR(CheckUtf8(key, text));
    texts.push_back(text);
  }
  return texts;
}

absl::StatusOr<std::vector<int32_t>> GgufFile::Int32Array(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Find(key, /*is_array=*/true));
  if (value->type != GgufType::kInt32 && value->type != GgufType::kUint32) {
    return WrongType(key, *value, "an array of INT32");
  }
  std::vector<int32_t> numbers(static_cast<size_t>(value->count));
  for (int64_t i = 0; i < value->count; ++i) {
    numbers[static_cast<size_t>(i)] = Element<int32_t>(*value, i);
    if (value->type == GgufType::kUint32 && numbers[static_cast<size_t>(i)] < 0) {
      return InvalidArgument("key ", Quoted(key), " has ", Element<uint32_t>(*value, i),
                             " at index ", i, ": at most ", INT32_MAX, " is read");
    }
  }
  return numbers;
}

absl::StatusOr<std::vector<float>> GgufFile::FloatArray(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Find(key, /*is_array=*/true));
  if (value->type != GgufType::kFloat32) return WrongType(key, *value, "an array of FLOAT32");
  std::vector<float> numbers(static_cast<size_t>(value->count));
  for (int64_t i = 0; i < value->count; ++i) {
    numbers[static_cast<size_t>(i)] = Element<float>(*value, i);
  }
  return numbers;
}

absl::StatusOr<std::string_view> GgufFile::ByteArray(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Find(key, /*is_array=*/true));
  if (value->type != GgufType::kUint8 && value->type != GgufType::kInt8) {
    return WrongType(key, *value, "an array of UINT8 or INT8");
  }
  return std::string_view(reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size());
}

}  // namespace tandem
