// A string that remembers where its bytes came from: the template (scaffold) or the input
// (content).
//
// Whatever a template does to strings (joins, slices, splits, changes of case), each byte keeps its
// origin, so that the rendering can say which parts a user wrote. Example: '<|' + role + '|>' with
// the role "x" from the input is the bytes "<|x|>" with the runs {2, scaffold} {3, content}
// {5, scaffold}.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::jinja {

enum class Origin : uint8_t { kScaffold, kContent };

class Text final {
 public:
  // The bytes from the end of the run before (0 for the first) up to `end`.
  // Invariants: runs are not empty, neighbours differ, the last ends at size().
  struct Run {
    size_t end;
    Origin origin;
  };

  Text() = default;
  Text(std::string_view bytes, Origin origin) { Append(bytes, origin); }

  std::string_view bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  const std::vector<Run>& runs() const { return runs_; }

  // Content if any byte of it is.
  Origin origin() const {
    const bool scaffold =
        runs_.empty() || (runs_.size() == 1 && runs_[0].origin == Origin::kScaffold);
    return scaffold ? Origin::kScaffold : Origin::kContent;
  }

  // Markup is what the filters `safe` and `escape` give: `+` with it escapes the other side for
  // HTML. (A few templates use `safe` believing that it does nothing.)
  bool markup() const { return markup_; }
  void set_markup(bool markup) { markup_ = markup; }

  void Append(std::string_view bytes, Origin origin);
  void Append(const Text& other) { Append(other, 0, other.size()); }
  // Bytes [begin, end) of `other`, with their origins. REQUIRES begin <= end <= other.size().
  void Append(const Text& other, size_t begin, size_t end);
  Text Slice(size_t begin, size_t end) const;

  // Calls visit(std::string_view bytes, Origin origin) for each run.
  template <typename Visit>
  void ForEachRun(Visit visit) const {
    size_t begin = 0;
    for (const Run& run : runs_) {
      visit(bytes().substr(begin, run.end - begin), run.origin);
      begin = run.end;
    }
  }

  // The text with each run's bytes replaced by what change(std::string_view, std::string* out)
  // appends; origins and markup stay.
  template <typename Change>
  Text Transform(Change change) const {
    Text result;
    ForEachRun([&](std::string_view bytes, Origin origin) {
      std::string changed;
      change(bytes, &changed);
      result.Append(changed, origin);
    });
    result.set_markup(markup_);
    return result;
  }

 private:
  std::string bytes_;
  std::vector<Run> runs_;
  bool markup_ = false;
};

// Where `needle` begins in `haystack` at or after `from`; npos when it does not. Linear time.
size_t FindBytes(std::string_view haystack, std::string_view needle, size_t from);

using TextPtr = std::shared_ptr<const Text>;

}  // namespace tandem::jinja
