#include "engine/text/jinja/context.h"

#include <utility>

#include "engine/base/status.h"

namespace tandem::jinja {
namespace {

// A container costs more memory than an evaluated node costs time.
constexpr int64_t kContainerSteps = 4;

// All strings held at one time, in units of the largest.
constexpr int64_t kHeldStrings = 16;

// What a string takes beside its bytes, so that many small ones are bounded too.
constexpr size_t kBytesPerString = 128;

}  // namespace

absl::Status Context::Charge(int64_t steps) {
  steps_ += steps;
  if (steps_ > limits_.max_steps) {
    return ResourceExhausted("the chat template takes more than ", limits_.max_steps, " steps");
  }
  return absl::OkStatus();
}

absl::Status Context::ChargeCopy(const Dict& dict) {
  for (const Dict::Entry& entry : dict.entries()) {
    RETURN_IF_ERROR(Charge(kContainerSteps));
    RETURN_IF_ERROR(ChargeScan(entry.key.text() == nullptr ? 0 : entry.key.text()->size()));
  }
  return absl::OkStatus();
}

absl::Status Context::CountOutput(int64_t bytes) {
  output_bytes_ += bytes;
  if (output_bytes_ > limits_.max_output_bytes) {
    return ResourceExhausted("the chat template writes more than ", limits_.max_output_bytes,
                             " bytes");
  }
  return absl::OkStatus();
}

absl::Status Context::CheckTextSize(size_t bytes) const {
  if (bytes > static_cast<size_t>(limits_.max_output_bytes)) {
    return ResourceExhausted("the chat template makes a string of ", bytes, " bytes: the limit is ",
                             limits_.max_output_bytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> Context::MakeText(Text text) {
  RETURN_IF_ERROR(ChargeBytes(text.size()));
  RETURN_IF_ERROR(CheckTextSize(text.size()));
  const auto held =
      static_cast<int64_t>(kBytesPerString + text.size() + text.runs().size() * sizeof(Text::Run));
  if ((held_bytes_ + held) / kHeldStrings > limits_.max_output_bytes) {
    return ResourceExhausted("the chat template holds strings of more than ", kHeldStrings, " x ",
                             limits_.max_output_bytes, " bytes");
  }
  held_bytes_ += held;
  return Value::String(TextPtr(new Text(std::move(text)), [this, held](const Text* dead) {
    held_bytes_ -= held;
    delete dead;
  }));
}

absl::StatusOr<Value> Context::MakeSequence(Sequence::Flavor flavor, std::vector<Value> items) {
  RETURN_IF_ERROR(Charge(kContainerSteps + static_cast<int64_t>(items.size())));
  return Value::Of(&sequences_.emplace_back(Sequence{flavor, std::move(items)}));
}

absl::StatusOr<Dict*> Context::MakeDict() {
  RETURN_IF_ERROR(Charge(kContainerSteps));
  return &dicts_.emplace_back();
}

absl::StatusOr<Namespace*> Context::MakeNamespace() {
  RETURN_IF_ERROR(Charge(kContainerSteps));
  return &namespaces_.emplace_back();
}

absl::StatusOr<Loop*> Context::MakeLoop() {
  RETURN_IF_ERROR(Charge(kContainerSteps));
  return &loops_.emplace_back();
}

absl::StatusOr<Value> Context::MakeCallable(Callable callable) {
  RETURN_IF_ERROR(Charge(kContainerSteps));
  return Value::Of(&callables_.emplace_back(std::move(callable)));
}

absl::Status Context::Depth::Check() const {
  if (context_.depth_ > context_.limits_.max_depth) {
    return ResourceExhausted("the chat template nests calls and expressions deeper than ",
                             context_.limits_.max_depth);
  }
  return absl::OkStatus();
}

}  // namespace tandem::jinja
