// RETURN_IF_ERROR(expr) and ASSIGN_OR_RETURN(declaration, expr) for absl::Status and
// absl::StatusOr, and errors from parts: InvalidArgument("top_k is ", value, ": it must be 0 to ",
// limit).
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#define RETURN_IF_ERROR(expr)                    \
  do {                                           \
    absl::Status status_macro_value = (expr);    \
    if (!status_macro_value.ok()) [[unlikely]] { \
      return status_macro_value;                 \
    }                                            \
  } while (false)

#define TANDEM_CONCAT_INNER(a, b) a##b
#define TANDEM_CONCAT(a, b) TANDEM_CONCAT_INNER(a, b)
#define ASSIGN_OR_RETURN(declaration, expr) \
  ASSIGN_OR_RETURN_IMPL(TANDEM_CONCAT(status_or_, __LINE__), declaration, expr)
#define ASSIGN_OR_RETURN_IMPL(result, declaration, expr) \
  auto result = (expr);                                  \
  if (!result.ok()) [[unlikely]] {                       \
    return std::move(result).status();                   \
  }                                                      \
  declaration = *std::move(result)

namespace tandem {

template <typename... Parts>
absl::Status InvalidArgument(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}
template <typename... Parts>
absl::Status FailedPrecondition(const Parts&... parts) {
  return absl::FailedPreconditionError(absl::StrCat(parts...));
}
template <typename... Parts>
absl::Status ResourceExhausted(const Parts&... parts) {
  return absl::ResourceExhaustedError(absl::StrCat(parts...));
}
template <typename... Parts>
absl::Status Unimplemented(const Parts&... parts) {
  return absl::UnimplementedError(absl::StrCat(parts...));
}
template <typename... Parts>
absl::Status NotFound(const Parts&... parts) {
  return absl::NotFoundError(absl::StrCat(parts...));
}
template <typename... Parts>
absl::Status Internal(const Parts&... parts) {
  return absl::InternalError(absl::StrCat(parts...));
}

}  // namespace tandem
