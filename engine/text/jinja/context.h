// One rendering: its limits, what it has used of them, and the arena of its containers.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/text/chat_template.h"
#include "engine/text/jinja/value.h"

namespace tandem::jinja {

// Nested values (lists in lists, JSON in the input) may be this deep.
inline constexpr int kMaxDataDepth = 100;

// Every RESOURCE_EXHAUSTED of a rendering comes from here. Not thread-safe; one per Render call.
class Context final {
 public:
  Context(const TemplateLimits& limits, absl::Time now) : limits_(limits), now_(now) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Counts `steps` against max_steps. One step is about one evaluated node or one element touched.
  absl::Status Charge(int64_t steps = 1);
  // Counts the copying of `bytes` of text: one step and one more for each KiB.
  absl::Status ChargeBytes(size_t bytes) { return Charge(1 + static_cast<int64_t>(bytes >> 10)); }
  // Counts a look at each character of `bytes` of text: one step and one more for each 64 bytes.
  absl::Status ChargeScan(size_t bytes) { return Charge(1 + static_cast<int64_t>(bytes >> 6)); }

  // Counts a copy of `dict`.
  absl::Status ChargeCopy(const Dict& dict);

  // Counts `bytes` as output (negative when a captured block ends): max_output_bytes bounds the
  // rendering together with all blocks that are being captured.
  absl::Status CountOutput(int64_t bytes);

  // For those who build a string piece by piece: RESOURCE_EXHAUSTED when `bytes` is too large for
  // one.
  absl::Status CheckTextSize(size_t bytes) const;

  // A string value. Its size is at most max_output_bytes, and all strings made and still held
  // together at most 16 times that.
  absl::StatusOr<Value> MakeText(Text text);
  absl::StatusOr<Value> MakeText(std::string_view bytes, Origin origin) {
    return MakeText(Text(bytes, origin));
  }
  absl::StatusOr<Value> MakeSequence(Sequence::Flavor flavor, std::vector<Value> items);
  absl::StatusOr<Value> MakeList(std::vector<Value> items) {
    return MakeSequence(Sequence::Flavor::kList, std::move(items));
  }
  absl::StatusOr<Value> MakeTuple(std::vector<Value> items) {
    return MakeSequence(Sequence::Flavor::kTuple, std::move(items));
  }
  // These live until the rendering ends. The caller charges what it puts into them.
  absl::StatusOr<Dict*> MakeDict();
  absl::StatusOr<Namespace*> MakeNamespace();
  absl::StatusOr<Loop*> MakeLoop();
  absl::StatusOr<Value> MakeCallable(Callable callable);
  // Keeps `object` until the rendering ends.
  void Keep(std::shared_ptr<void> object) { kept_.push_back(std::move(object)); }

  absl::Time now() const { return now_; }

  // Where the evaluation is, for messages.
  int line() const { return line_; }
  void set_line(int line) { line_ = line; }

  // Set by raise_exception: its message is passed on as it is, without a line.
  bool raised() const { return raised_; }
  void set_raised() { raised_ = true; }

  // Enters one more nested call or expression for as long as it lives.
  class Depth final {
   public:
    explicit Depth(Context& context) : context_(context) { ++context_.depth_; }
    ~Depth() { --context_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    // RESOURCE_EXHAUSTED beyond max_depth.
    absl::Status Check() const;

   private:
    Context& context_;
  };

 private:
  const TemplateLimits limits_;
  const absl::Time now_;
  int64_t steps_ = 0;
  int64_t output_bytes_ = 0;
  int64_t held_bytes_ = 0;  // of strings that are alive; outlives every value below
  int32_t depth_ = 0;
  int line_ = 0;
  bool raised_ = false;
  std::deque<Sequence> sequences_;
  std::deque<Dict> dicts_;
  std::deque<Namespace> namespaces_;
  std::deque<Loop> loops_;
  std::deque<Callable> callables_;
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace tandem::jinja
