// Python's two ways to format strings: '%s of %d' % (a, b) and '{} of {name}'.format(a, name=b).
#pragma once

#include "absl/status/statusor.h"
#include "engine/text/jinja/context.h"
#include "engine/text/jinja/value.h"

namespace tandem::jinja {

// Conversions: s r d i u f F e E g G x X o c %, with flags, width and precision. `args` is a tuple
// of the values, one value, or a dict for %(name)s.
absl::StatusOr<Value> FormatPercent(Context& context, const Text& format, const Value& args);

// Fields: {} {0} {name} {name.attribute} {name[item]}, !s and !r, and the specification
// [[fill]align][0][width][.precision][type] with the types s d x X f e g.
absl::StatusOr<Value> FormatBraces(Context& context, const Text& format, const CallArgs& args);

}  // namespace tandem::jinja
