// Chat templates: the part of Jinja2 that real templates use, rendered within limits.
//
// A rendering is a list of pieces: what the template wrote (scaffold, in which special tokens are
// parsed) and what came from the input (content, in which they are not, so that a user who writes
// <|im_end|> has not written a control token).
//
//   ASSIGN_OR_RETURN(auto chat, ChatTemplate::Parse(source));
//   ASSIGN_OR_RETURN(auto pieces, chat->Render({{"messages", ...}, {"add_generation_prompt",
//   true}})); for (const RenderedPiece& piece : pieces) {
//     text_pieces.push_back({.text = piece.text, .parse_special = !piece.from_content});
//   }
//   tokenizer.EncodePieces(text_pieces, options);
//
// Encoding each piece alone would be wrong: words form across the border of two pieces, and the
// template's authors tokenise the whole text at once. EncodePieces (tokenizer.h) does that, and
// looks for special tokens only within neighbouring pieces of one kind.
//
// Rendering follows transformers.apply_chat_template: Jinja2 3.1 with trim_blocks, lstrip_blocks,
// break and continue, its own tojson, raise_exception, strftime_now and generation blocks; values
// print as in Python. Beyond it: the filter from_json and the list methods append and pop, which
// some templates expect of other renderers. Not there (UNIMPLEMENTED): template inheritance,
// includes and imports, translation, and the filters and tests that no chat template was seen to
// use.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tandem {

// Bounds on one rendering, whatever the template does: templates come with models from anywhere.
struct TemplateLimits {
  // Of the rendering; also of any one string on the way. All strings held at a time take at
  // most 16 times that.
  int64_t max_output_bytes = int64_t{4} << 20;
  // About one for each evaluated node, each element touched and each KiB of text touched: bounds
  // loops and recursion in time (about a second at the default) and containers in memory.
  int64_t max_steps = 4'000'000;
  // Nested calls, blocks and expressions: bounds the stack, at under 1 KiB each. Real templates
  // were seen to reach 60.
  int32_t max_depth = 300;
};

struct RenderedPiece {
  std::string text;           // not empty
  bool from_content = false;  // came, whole, from strings of the input
};

class ChatTemplate final {
 public:
  // INVALID_ARGUMENT with the line for a syntax error, or for more than 1 MiB or bytes that are not
  // UTF-8; UNIMPLEMENTED names a construct outside the subset (an unknown filter or test inside of
  // a condition is an error of Render, when reached).
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Parse(std::string_view source);
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // variables: the template's globals, an object: messages (list of {role, content}),
  // add_generation_prompt, bos_token, eos_token, tools, documents, ... A variable that is absent
  // is undefined, which is not the same as null. Take ordered_json for tools, whose keys are
  // printed in the order they have here (nlohmann::json sorts them).
  //
  // Content is every string in the variables, keys of objects too, and whatever the template makes
  // of it, with two exceptions that are scaffold: variables whose name ends with `_token` (so never
  // let a request set those), and a message's role if it is one of the usual words (system, user,
  // assistant, tool, ...), because templates write '<|' + role + '|>' for a control token.
  //
  // now: what strftime_now reads, in UTC.
  //
  // Neighbouring pieces differ in from_content; joined they are the rendered text. Errors:
  // INVALID_ARGUMENT: the message of raise_exception, or an evaluation error with its line, or
  // variables that are not an object, not UTF-8 or nested deeper than 100; RESOURCE_EXHAUSTED: a
  // limit. Thread-safe.
  absl::StatusOr<std::vector<RenderedPiece>> Render(const nlohmann::json& variables,
                                                    const TemplateLimits& limits = {},
                                                    absl::Time now = absl::Now()) const;
  absl::StatusOr<std::vector<RenderedPiece>> Render(const nlohmann::ordered_json& variables,
                                                    const TemplateLimits& limits = {},
                                                    absl::Time now = absl::Now()) const;

 private:
  struct Program;
  explicit ChatTemplate(std::unique_ptr<Program> program);
  std::unique_ptr<Program> program_;
};

}  // namespace tandem
