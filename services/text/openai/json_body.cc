#include "services/text/openai/json_body.h"

#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/text/utf8.h"
#include "services/text/openai/field_names.h"

namespace tandem::text {
namespace {

using nlohmann::json;

constexpr size_t kMaxShown = 64;  // bytes

// Builds the value, and keeps to the limits. The path of open containers is what errors name.
class Builder final : public nlohmann::json_sax<json> {
 public:
  bool null() override { return Put(nullptr); }
  bool boolean(bool value) override { return Put(value); }
  bool number_integer(number_integer_t value) override { return Put(value); }
  bool number_unsigned(number_unsigned_t value) override { return Put(value); }
  bool number_float(number_float_t value, const string_t&) override { return Put(value); }
  bool string(string_t& value) override { return Put(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // of other formats than JSON
  bool start_object(size_t) override { return Open(json::object()); }
  bool start_array(size_t) override { return Open(json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    Frame& top = open_.back();
    top.key = std::move(name);
    top.has_key = true;
    if (top.value->contains(top.key)) return Refuse("is given twice");
    return CountNode();
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // Numbers beyond a double: the only error of this kind.
    const std::string path = Path();
    if (error.id == 406 && !path.empty()) return Refuse("is too large for a number");
    // The library's words for it stand between these.
    std::string_view what = error.what();
    const size_t begin = what.find(" - ");
    const size_t end = what.find("; last read");
    what = begin != std::string_view::npos && end != std::string_view::npos && begin + 3 < end
               ? what.substr(begin + 3, end - begin - 3)
               : "it ends or goes on where it must not";
    status_ = InvalidArgument("the body is not JSON: byte ", position,
                              path.empty() ? "" : " (in " + path + ")", ": ", std::string(what));
    return false;
  }

  absl::StatusOr<json> Take() && {
    RETURN_IF_ERROR(status_);
    return std::move(root_);
  }

 private:
  struct Frame {
    json* value = nullptr;
    std::string key;  // of an object: the member that comes
    bool has_key = false;
  };

  std::string Path() const {
    std::string path;
    for (const Frame& frame : open_) {
      if (frame.value->is_array()) {
        // The last is filled: what is wrong comes next. The others have the one that is open.
        const size_t size = frame.value->size();
        const size_t index = &frame == &open_.back() ? size : size - 1;
        path.append("[").append(std::to_string(index)).append("]");
      } else if (frame.has_key) {
        path.append(path.empty() ? "" : ".").append(ShownName(frame.key));
      }
    }
    return path;
  }

  bool Refuse(std::string_view what) {
    status_ = FieldError(Path(), " ", std::string(what));
    return false;
  }

  bool CountNode() {
    if (++nodes_ <= kMaxJsonNodes) return true;
    status_ = InvalidArgument("the body has more than ", kMaxJsonNodes,
                              " arrays, objects and members of objects");
    return false;
  }

  json* Place(json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    Frame& top = open_.back();
    if (top.value->is_object()) return &((*top.value)[top.key] = std::move(value));
    top.value->push_back(std::move(value));
    return &top.value->back();
  }

  bool Put(json value) {
    if (open_.empty()) {
      status_ = InvalidArgument("the body is ", Shown(value), ": it must be an object");
      return false;
    }
    Place(std::move(value));
    return true;
  }

  bool Open(json value) {
    if (open_.empty() && value.is_array()) return Put(std::move(value));
    if (!CountNode()) return false;
    if (open_.size() == kMaxJsonDepth) {
      status_ =
          InvalidArgument("the body is nested deeper than ", kMaxJsonDepth, " arrays and objects");
      return false;
    }
    json* placed = Place(std::move(value));
    open_.push_back({placed, "", false});
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  json root_;
  std::vector<Frame> open_;
  int32_t nodes_ = 0;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<json> ParseJsonObject(std::string_view body) {
  if (body.size() > static_cast<size_t>(kMaxBodyBytes)) {
    return InvalidArgument("the body has ", body.size(), " bytes: at most ", kMaxBodyBytes);
  }
  const int64_t bad = FindInvalidUtf8(body);
  if (bad >= 0) {
    return InvalidArgument("the body is not UTF-8: byte ", bad, " of ", body.size());
  }
  Builder builder;
  json::sax_parse(body.begin(), body.end(), &builder);
  return std::move(builder).Take();
}

std::string ShownName(std::string_view name) {
  if (name.empty()) return "\"\"";
  if (name.size() <= kMaxShown) return std::string(name);
  std::string_view cut = name.substr(0, kMaxShown);
  cut.remove_suffix(IncompleteUtf8Suffix(cut));
  return std::string(cut) + "...";
}

std::string Shown(const json& value) {
  if (value.is_array()) return value.empty() ? "[]" : "an array";
  if (value.is_object()) return value.empty() ? "{}" : "an object";
  if (value.is_string() && value.get_ref<const std::string&>().size() > kMaxShown) {
    return "a string of " + std::to_string(value.get_ref<const std::string&>().size()) + " bytes";
  }
  return value.dump();
}

}  // namespace tandem::text
