// The playground: one page without a build step, whose files are part of the program.
//
// It talks to the HTTP API that it is served beside, with paths that are relative to its own, so
// that both may lie behind a prefix. It keeps no conversation, needs nothing from other hosts, and
// shows what a model says as text, never as HTML.
#pragma once

#include <span>
#include <string_view>

namespace tandem::text {

// To be sent with every one of the files, as the header Content-Security-Policy.
inline constexpr std::string_view kWebContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

struct WebFile {
  std::string_view path;          // of the URL: "/" or "/playground/NAME"
  std::string_view content_type;  // with its charset
  std::string_view etag;          // a strong one of the content, in its quotes
  std::string_view body;
};

// All of them; they live as long as the program. "/" is the first.
std::span<const WebFile> WebFiles();

}  // namespace tandem::text
