// B069: whatever a template does, a rendering ends soon and stays small.
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/text/jinja/context.h"
#include "tests/engine/text/template_files.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

absl::StatusCode CodeOf(const std::string& source, const TemplateLimits& limits = {}) {
  return RenderText(source, {{"l", {1, 2, 3}}}, limits).status().code();
}

std::string Repeat(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

#define EXPECT_EXHAUSTED(source) \
  EXPECT_EQ(CodeOf(source), absl::StatusCode::kResourceExhausted) << (source)

TEST(TemplateLimits, B069_StopLoopsThatWouldRunForHours) {
  EXPECT_EXHAUSTED(
      "{% for a in range(99999) %}{% for b in range(99999) %}{% set x = 1 %}{% endfor %}{% endfor "
      "%}");
  EXPECT_EXHAUSTED(
      "{% for a in range(9999) %}{% for b in range(9999) if b < 0 %}{% endfor %}{% endfor %}");
  EXPECT_EXHAUSTED("{% for a in range(1000000000) %}{% endfor %}");
  EXPECT_EXHAUSTED("{{ range(-5, 1000000000000000000) }}");
}

TEST(TemplateLimits, B069_StopRecursion) {
  EXPECT_EXHAUSTED("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}");
  EXPECT_EXHAUSTED("{% macro f(x=f()) %}{% endmacro %}{{ f() }}");
  EXPECT_EXHAUSTED("{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}");
  EXPECT_EXHAUSTED("{% for x in l recursive %}{{ loop(l) }}{% endfor %}");
  EXPECT_EXHAUSTED("{% macro f() %}{{ caller }}{% call f() %}{% endcall %}{% endmacro %}{{ f() }}");
}

TEST(TemplateLimits, B069_BoundStringsThatGrow) {
  EXPECT_EXHAUSTED("{{ 'a' * 1000000000 }}");
  EXPECT_EXHAUSTED("{{ 'a' * 170141183460469231731687303715884105727 }}");
  EXPECT_EXHAUSTED(
      "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% "
      "endfor %}");
  EXPECT_EXHAUSTED(
      "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% "
      "endfor %}");
  EXPECT_EXHAUSTED("{{ ('a' * 100000).replace('a', 'b' * 100000) }}");
  EXPECT_EXHAUSTED("{{ ('a' * 100000).replace('', 'b' * 100000) }}");
  EXPECT_EXHAUSTED("{{ (['a' * 100000] * 1000) | join('b') }}");
  EXPECT_EXHAUSTED("{{ ('b' * 100000).join(['a'] * 1000) }}");
  EXPECT_EXHAUSTED("{{ ('a\\n' * 100000) | indent('b' * 100000) }}");
  EXPECT_EXHAUSTED("{{ ('%s' * 1000) % ((('a' * 100000),) * 1000) }}");
  EXPECT_EXHAUSTED("{{ ('{0}' * 1000).format('a' * 100000) }}");
  EXPECT_EXHAUSTED("{{ l | tojson(separators=('a' * 4000000, ':')) }}");
}

TEST(TemplateLimits, B069_BoundWhatIsWritten) {
  EXPECT_EXHAUSTED("{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}");
  EXPECT_EXHAUSTED(
      "{% set x %}{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}{% endset %}");
  // Each level captures 3 MB: together they are too much.
  EXPECT_EXHAUSTED(
      "{% set a %}{{ 'a' * 3000000 }}{% set b %}{{ 'a' * 3000000 }}{% endset %}{% endset %}");
  EXPECT_EQ(
      CodeOf(
          "{% set a %}{{ 'a' * 3000000 }}{% endset %}{% set a %}{{ 'b' * 3000000 }}{% endset %}"),
      absl::StatusCode::kOk);
}

TEST(TemplateLimits, B069_BoundWhatIsHeld) {
  EXPECT_EXHAUSTED(
      "{% set k = [] %}{% for i in range(99999) %}{% set _ = k.append('a' * 1000000 ~ i) %}{% "
      "endfor %}");
  EXPECT_EXHAUSTED("{{ ([0] * 100000) * 100000 }}");
  EXPECT_EXHAUSTED(
      "{% set ns = namespace(l=[0]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% "
      "endfor %}");
  EXPECT_EXHAUSTED("{{ ('a' * 4000000) | list }}");
  EXPECT_EXHAUSTED(
      "{{ ('a,' * 2000000).split(',') | length }}{{ ('a,' * 2000000).split(',') | length }}");
}

TEST(TemplateLimits, B069_StopSearchesThatAreQuadratic) {
  // Each would compare 10^12 bytes.
  const std::string setup = "{% set a = 'a' * 2000000 %}{% set b = 'a' * 1000000 + 'b' %}";
  EXPECT_EXHAUSTED(setup + "{{ a.rsplit(b) }}");
  EXPECT_EXHAUSTED(setup + "{{ a.rfind(b) }}");
  EXPECT_EXHAUSTED(setup + "{% for i in range(99999) %}{{ a[999999] }}{% endfor %}");
  // The searches that are linear, or sort first, simply work.
  EXPECT_EQ(Rendered(setup + "{{ a.strip('b' * 1000000 + 'a') }}"), "");
  EXPECT_EQ(Rendered(setup + "{{ b in a }}{{ a.find(b) }}{{ a.count(b) }}"), "False-10");
}

TEST(TemplateLimits, B069_PrintSharedValuesOnlyUpToTheLimit) {
  const std::string bomb =
      "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% "
      "endfor %}";
  EXPECT_EXHAUSTED(bomb + "{{ ns.l }}");
  EXPECT_EXHAUSTED(bomb + "{{ ns.l | tojson }}");
  EXPECT_EXHAUSTED(bomb + "{% set a = ns.l %}" + bomb + "{{ a == ns.l }}");
  EXPECT_EXHAUSTED(bomb + "{% set a = ns.l %}" + bomb + "{{ a < ns.l }}");
}

TEST(TemplateLimits, B069_SurviveValuesThatHoldThemselves) {
  const std::string cycle = "{% set a = [] %}{% set _ = a.append(a) %}";
  EXPECT_EQ(Rendered(cycle + "{{ a | length }}{{ a == a }}"), "1True");
  EXPECT_EXHAUSTED(cycle + "{{ a }}");
  EXPECT_EXHAUSTED(cycle + "{{ a | tojson }}");
  EXPECT_EXHAUSTED(cycle + "{% set b = [] %}{% set _ = b.append(b) %}{{ a == b }}");
  EXPECT_EXHAUSTED(cycle + "{% set b = [] %}{% set _ = b.append(b) %}{{ a < b }}");
  EXPECT_EQ(Rendered("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns.me.me is defined }}"),
            "True");
  EXPECT_EQ(
      Rendered("{% set ns = namespace(l=0) %}{% for i in [1] %}{% set ns.l = loop %}{% endfor %}"
               "{{ ns.l.length }}{{ ns.l.nextitem is defined }}"),
      "1False");
}

TEST(TemplateLimits, B069_DestroyValuesThatNestAMillionDeep) {
  EXPECT_EQ(
      Rendered("{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}"
               "{% endfor %}{{ ns.l | length }}"),
      "1");
  EXPECT_EQ(Rendered("{% set ns = namespace(l=1) %}{% for i in range(50000) %}{% for j in [ns.l] %}"
                     "{% set ns.l = loop %}{% endfor %}{% endfor %}{{ ns.l.length }}"),
            "1");
}

TEST(TemplateLimits, B069_KeepMacrosAliveThatLeaveTheirBlock) {
  EXPECT_EQ(
      Rendered(
          "{% set ns = namespace() %}{% for i in [7] %}{% set y = 8 %}{% macro m() %}{{ i }}{{ y }}"
          "{% endmacro %}{% set ns.m = m %}{% endfor %}{% for i in [1, 2] %}{{ ns.m() }}{% endfor "
          "%}"),
      "7878");
  EXPECT_EQ(
      Rendered("{% set ns = namespace() %}{% macro keep() %}{% set ns.c = caller %}{% endmacro %}"
               "{% for i in [5] %}{% call keep() %}{{ i }}{% endcall %}{% endfor %}{{ ns.c() }}"),
      "5");
  EXPECT_EQ(Rendered("{% set ns = namespace() %}{% for i in [[1]] recursive %}{% set ns.r = loop "
                     "%}{% endfor %}"
                     "{{ ns.r([]) }}."),
            ".");
}

TEST(TemplateLimits, B069_BoundWidthsInFormats) {
  for (const char* source :
       {"{{ '%999999999d' % 1 }}", "{{ '%.999999999f' % 1 }}", "{{ '{:999999999}'.format(1) }}",
        "{{ '{:.999999999f}'.format(1) }}", "{{ l | tojson(indent=999999999) }}",
        "{{ 'a\\nb' | indent(999999999) }}", "{{ 1.5 | round(999999999) }}"}) {
    EXPECT_EQ(CodeOf(source), absl::StatusCode::kInvalidArgument) << source;
  }
  EXPECT_EXHAUSTED("{{ strftime_now('%99999999d') }}");
}

TEST(TemplateLimits, B069_RefuseSourceThatNestsTooDeep) {
  for (const std::string& source :
       {"{{ " + Repeat("(", 100000) + "1" + Repeat(")", 100000) + " }}",
        "{{ " + Repeat("[", 100000) + Repeat("]", 100000) + " }}",
        "{{ " + Repeat("{1:", 100000) + "1" + Repeat("}", 100000) + " }}",
        "{{ " + Repeat("not ", 100000) + "1 }}", "{{ " + Repeat("-", 100000) + "1 }}",
        "{{ 1" + Repeat(" if 1 else 1", 100000) + " }}", "{{ 1" + Repeat(" + 1", 100000) + " }}",
        "{{ 1" + Repeat(" and 1", 100000) + " }}", "{{ a" + Repeat(".a", 100000) + " }}",
        "{{ a" + Repeat("[0]", 100000) + " }}", "{{ a" + Repeat("()", 100000) + " }}",
        "{{ a" + Repeat("|trim", 100000) + " }}", "{{ a" + Repeat(" is true", 100000) + " }}",
        Repeat("{% if 1 %}", 100000) + Repeat("{% endif %}", 100000),
        Repeat("{% for a in b %}", 100000) + Repeat("{% endfor %}", 100000),
        "{% for " + Repeat("(", 100000) + "a" + Repeat(")", 100000) + " in b %}{% endfor %}"}) {
    EXPECT_EQ(ChatTemplate::Parse(source).status().code(), absl::StatusCode::kInvalidArgument)
        << source.substr(0, 30);
  }
}

TEST(TemplateLimits, LeaveRoomForLongChainsThatDoNotNest) {
  EXPECT_EQ(Rendered("{{ 'a'" + Repeat(" ~ 'a'", 5000) + " }}"), Repeat("a", 5001));
  EXPECT_EQ(
      Rendered("{% if 0 %}{% elif 0 %}" + Repeat("{% elif 0 %}", 5000) + "{% else %}x{% endif %}"),
      "x");
  EXPECT_EQ(Rendered("{{ 1" + Repeat(" + 1", 150) + " }}"), "151");
}

TEST(TemplateLimits, AreThoseHandedIn) {
  EXPECT_EQ(CodeOf("{{ 'a' * 1000 }}", {.max_output_bytes = 1000}), absl::StatusCode::kOk);
  EXPECT_EQ(CodeOf("{{ 'a' * 1001 }}", {.max_output_bytes = 1000}),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(CodeOf("aaaaa{{ 'a' * 996 }}", {.max_output_bytes = 1000}),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(CodeOf("{% for x in range(50) %}{% endfor %}", {.max_steps = 1000}),
            absl::StatusCode::kOk);
  EXPECT_EQ(CodeOf("{% for x in range(500) %}{% endfor %}", {.max_steps = 1000}),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(CodeOf("{{ ((((1)))) + 1 }}", {.max_depth = 3}), absl::StatusCode::kOk);
  EXPECT_EQ(CodeOf("{{ 1 + (1 + (1 + 1)) }}", {.max_depth = 3}),
            absl::StatusCode::kResourceExhausted);
}

TEST(TemplateLimits, NameTheLimitAndTheLine) {
  const auto text =
      RenderText("\n{{ 'a' * 1001 }}", ordered_json::object(), {.max_output_bytes = 1000});
  EXPECT_EQ(text.status().message(),
            "line 2: the chat template makes a string of 1001 bytes: the limit is 1000");
}

}  // namespace
}  // namespace tandem
