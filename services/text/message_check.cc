#include "services/text/message_check.h"

#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/unknown_field_set.h>

#include "engine/base/status.h"
#include "engine/text/utf8.h"

namespace tandem::text {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

absl::Status CheckString(const std::string& path, const std::string& value) {
  const int64_t bad = FindInvalidUtf8(value);
  if (bad < 0) return absl::OkStatus();
  return InvalidArgument(path, " is not UTF-8: byte ", bad, " of ", value.size());
}

absl::Status CheckAt(const std::string& prefix, const Message& message) {
  const Reflection& reflection = *message.GetReflection();
  const auto& unknown = reflection.GetUnknownFields(message);
  if (!unknown.empty()) {
    return InvalidArgument(prefix.empty() ? "" : prefix + ": ", message.GetDescriptor()->name(),
                           " has no field number ", unknown.field(0).number());
  }
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->is_map()) continue;  // of numbers: nothing to check
    const std::string path = (prefix.empty() ? "" : prefix + ".") + field->name();
    const auto element = [&](int i) { return path + "[" + std::to_string(i) + "]"; };
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (!field->is_repeated()) {
        RETURN_IF_ERROR(CheckAt(path, reflection.GetMessage(message, field)));
        continue;
      }
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        RETURN_IF_ERROR(CheckAt(element(i), reflection.GetRepeatedMessage(message, field, i)));
      }
    } else if (field->type() == FieldDescriptor::TYPE_STRING) {
      if (!field->is_repeated()) {
        RETURN_IF_ERROR(CheckString(path, reflection.GetString(message, field)));
        continue;
      }
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        RETURN_IF_ERROR(CheckString(element(i), reflection.GetRepeatedString(message, field, i)));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckMessage(const Message& message) { return CheckAt("", message); }

absl::Status ParseMessage(const std::string& bytes, Message* message) {
  const bool parsed = message->ParseFromString(bytes);
  RETURN_IF_ERROR(CheckMessage(*message));
  if (!parsed) {
    return InvalidArgument("the request is not a valid ", message->GetDescriptor()->full_name());
  }
  return absl::OkStatus();
}

}  // namespace tandem::text
