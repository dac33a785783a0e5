"""Small templates, one construct each, with the variables they all see."""

VARIABLES = {
    "s": "Hello, World",
    "u": "Grüße 你好 🙂 ß",
    "pad": " \n\t x y \u3000",
    "empty": "",
    "n": 7,
    "neg": -7,
    "f": 2.5,
    "big": 18446744073709551615,
    "t": True,
    "no": False,
    "nil": None,
    "l": [3, 1, 2],
    "names": ["bob", "Alice", "carol", "Bob"],
    "nested": [[1, [2, "x"]], {"k": "it's", "q": 'say "hi"', "b": "back\\slash\n"}],
    "d": {"b": 1, "a": 2, "C": None, "items": "hidden", "get": 5},
    "people": [
        {"name": "Bob", "age": 30, "pet": {"kind": "cat"}},
        {"name": "alice", "age": 25, "pet": {"kind": "dog"}},
        {"name": "Carol", "age": 35},
    ],
    "html": "<a href='x'>\"&\"</a>",
    "lines": "one\ntwo\r\n\nthree\u2028four",
    "js": "</script> é \u007f \x01 \b\f\t\"\\ 🙂",
    "floats": [0.1, 1e16, 1.5e-7, 123456789.125, 1e22, 5e-324, 100.0, -0.0, 3.14159, 0.0001, 0.00001],
    "tree": [{"v": 1, "c": [{"v": 2, "c": [{"v": 3, "c": []}]}, {"v": 4, "c": []}]}],
}

EXPRESSIONS = r"""
s
n + 1, neg, f
[1, 2.0, 'a', none, true, undefined_name]
(1,)
()
{'a': 1, 2: 'b', none: true, 1.5: [], (1, 2): 3}
1_000 + 0
1e3
1.5e-3
'a' 'b' "c"
'tab\tnew\nquote\'uni\u00e9hex\x41oct\101bad\d'
1 + 2 * 3 - 4 / 2
7 // 2, -7 // 2, 7 // -2, 7.5 // 2, -7.5 // 2
7 % 3, -7 % 3, 7 % -3, -7.5 % 2
2 ** 10, 2 ** -1, 2 ** 3 ** 2, -2 ** 2, 2.0 ** 0.5
1 / 3
10 / 5
big + 1
true + true
'ab' * 3, 3 * 'ab', [1] * 2, (1,) * 2, 'x' * -1
'a' + 1
1 + 'a'
[1] + [2]
[1] + (2,)
(1,) + (2,)
nil + 1
1 / 0
1 // 0
1 % 0
1.0 / 0
-nil
-t
+t
-f
'a' ~ 1 ~ none ~ 2.0 ~ true ~ [1, 'x'] ~ undefined_name
1 ~ 2 + 3
'a' < 'b', 'a' < 'B', 'Z' < 'a', 'a' < 'ä'
1 < 2 < 3, 1 < 3 < 2, 1 == 1.0 == true
1 < 'a'
[1, 2] < [1, 3], [1] < [1, 0], (1, 2) >= (1, 2)
[1] < (1,)
nil < 1
nil == none, nil != 1
undefined_name == none, undefined_name == undefined_name, undefined_name == ''
'1' == 1
[1, 2] == [1, 2], [1, 2] == (1, 2), {'a': 1, 'b': 2} == {'b': 2, 'a': 1.0}
big == 18446744073709551615.0, big > 1e19, big < 1e20
9007199254740993 == 9007199254740992.0
'ell' in s, 'x' in s, '' in s
1 in l, 9 in l, 1.0 in l, 9 not in l
'a' in d, 'z' in d, 'z' not in d, [1] in d
1 in s
1 in 5
1 in undefined_name
undefined_name in l
undefined_name in s
1 in nil
not t, not empty, not l, not undefined_name, not 0.0
t and 'x', no and 'x', no or 'y', empty or nil or 'z', 1 and 0 or 2
not 1 == 2
'yes' if t else 'no'
'yes' if no
('yes' if no) is defined
'a' if no else 'b' if no else 'c'
s[0], s[-1], s[0:5], s[7:], s[:-1], s[::-1], s[::2], s[10:2:-3], s[100:], s[-3:-1]
u[6], u[0:7], u[::-1], u[-1], u[9]
s[100]
s['upper']() , s['zz'] is defined
l[0], l[-1], l[1:], l[::-1], l[5] is defined
l[nil]
l['0']
l[t]
nil[0]
nil[0:1]
undefined_name[0]
undefined_name.x
undefined_name[0:1]
n[0:1]
d.a, d['a'], d.zzz, d.C
d['zzz'].x
d['items'], d['get'], d.get('items'), d.get('zzz'), d.get('zzz', 9), d.get('C', 9)
d.items() | list, d.keys() | list, d.values() | list
d.items()
d.keys(), d.values()
d.keys()[0]
d.pop('a')
d.update
d.update(x=1)
d.update is defined
l.sort()
l.reverse is defined
l.count(1), l.index(2)
l.index(9)
(1, 2, 1).count(1)
nil.x
nil.x.y
s.nothing
s.nothing()
undefined_function()
n()
s.upper(), u.upper(), u.lower(), s.title(), "they're here-now".title(), 'hELLO wORLD'.capitalize()
pad.strip() ~ '|' ~ pad.lstrip() ~ '|' ~ pad.rstrip() ~ '|'
'xxhixx'.strip('x'), 'abcba'.lstrip('ab'), 'abcba'.rstrip('ab'), 'x'.strip(none)
'a,b,,c'.split(','), 'a,b,,c'.split(',', 1), 'a,b,c'.rsplit(',', 1), ' a  b c '.split(), ' a  b c '.split(none, 1), ' a  b c '.rsplit(none, 1)
'a--b--c'.split('--')[-1], ''.split(','), ''.split(), 'abc'.split('')
'aaa'.rsplit('aa'), 'aXbXc'.split('X', maxsplit=1), 'a'.split(sep='a')
s.startswith('Hell'), s.endswith('World'), s.startswith(('x', 'H')), s.endswith(('x', 'y')), s.startswith('')
s.startswith(1)
s.replace('l', 'L'), s.replace('l', 'L', 1), 'abc'.replace('', '-'), 'abc'.replace('', '-', 2), ''.replace('', 'x'), 'aaa'.replace('aa', 'b')
s.replace('o')
','.join(['a', 'b']), ''.join('abc'), ', '.join(('x',))
','.join([1])
s.find('o'), s.find('o', 5), s.find('zz'), s.rfind('o'), u.find('好'), s.index('W')
s.index('zz')
s.count('l'), 'aaaa'.count('aa'), 'abc'.count('')
'a=b=c'.partition('='), 'a=b=c'.rpartition('='), 'abc'.partition('='), 'abc'.rpartition('=')
'prefix-x'.removeprefix('prefix-'), 'x.txt'.removesuffix('.txt'), 'x'.removeprefix('y')
lines.splitlines(), ''.splitlines(), 'a\n'.splitlines()
'  '.isspace(), ''.isspace(), ' x'.isspace()
'{} and {}'.format(1, 'x'), '{0}{1}{0}'.format('a', 'b'), '{x}'.format(x=3), '{{}}'.format()
'{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:x}|{:*^7}'.format('a', 'b', 'c', 42, 3.14159, 255, 'mid')
'{0[0]} {1[k]} {!r}'.format(l, {'k': 'v'}, 'q')
'{d[k]} {l[0]}'.format(d={'k': 'v'}, l=[5])
'{}'.format()
'{'.format(1)
'{:d}'.format('x')
'{:+d} {: d} {:#x}'.format(5, 5, 255)
'%s is %d' % ('x', 5)
'%s' % 'x', '%r' % 'x', '%5s|%-5s|%05d|%.2f|%x|%X|%o|%%' % ('a', 'b', 42, 3.14159, 255, 255, 8)
'%(a)s %(b)d' % {'a': 'x', 'b': 2}
'%s %s' % ('a',)
'%s' % ('a', 'b')
'%d' % 'x'
'%d' % 3.7
'%x' % 3.7
'%s' % [1, 2]
'%e %g' % (12345.678, 0.0001)
'%c' % 'x'
'plain' % ()
'plain' % {'a': 1}
'%q' % 1
s | upper, s | lower, s | title, 'foo-bar (baz) <q'|title, s | capitalize, u | upper
pad | trim ~ '|', 'xxhixx' | trim('x'), 5 | trim, nil | trim, undefined_name | trim
s | length, u | length, l | length, d | length, empty | length, undefined_name | length, (1, 2) | count
n | length
nil | length
undefined_name | default('x'), nil | default('x'), nil | default('x', true), empty | default('x', boolean=true), undefined_name | default, undefined_name | d(5), 0 | d(1, true)
d.zzz | default('none')
undefined_name.x | default('none')
l | join, l | join(', '), l | join(d='-'), people | join(', ', attribute='name'), 'abc' | join('.'), undefined_name | join('x')
people | map(attribute='name') | list, people | map(attribute='pet.kind', default='?') | list, people | map(attribute='zzz') | list
names | map('upper') | list, names | map('replace', 'b', 'p') | join(' '), l | map('string') | list, names | map('default', 1) | list
names | map('nosuchfilter') | list
people | selectattr('name', 'equalto', 'Bob') | list | length, people | selectattr('pet') | map(attribute='name') | list, people | rejectattr('pet') | map(attribute='name') | list
people | selectattr('age', '>', 26) | map(attribute='name') | list, people | selectattr('pet', 'defined') | list | length, people | rejectattr('age', 'in', [30, 25]) | list | length
l | select('odd') | list, l | reject('odd') | list, [0, 1, '', none, 'x'] | select | list, [0, 1] | reject | list
l | select('nosuchtest') | list
nil | select | list, nil | map('upper') | list, nil | selectattr('x') | list
nil | list
n | list
(l | select('odd') | first), (l | reject('odd') | first)
l | first, l | last, [] | first, [] | last, s | first, s | last, d | first
([] | first) is defined
[] | first | upper
l | sort, l | sort(reverse=true), names | sort, names | sort(case_sensitive=true), people | sort(attribute='age') | map(attribute='name') | list
people | sort(attribute='name,age') | map(attribute='age') | list, [{}, {}] | sort(attribute='x') | length
people | sort(attribute='name', reverse=true) | map(attribute='name') | join
[1, 'a'] | sort
[3, 1.5, true] | sort
l | min, l | max, names | min, names | max(case_sensitive=true), [] | min, people | max(attribute='age')
l | sum, [1.5, 2] | sum, people | sum(attribute='age'), [] | sum, l | sum(start=10)
['a'] | sum
names | unique | list, names | unique(case_sensitive=true) | list, [1, 1.0, true, 2] | unique | list
l | reverse | list, s | reverse, d | dictsort, d | dictsort(reverse=true), d | dictsort(case_sensitive=true), {'x': 2, 'y': 1} | dictsort(by='value')
d | items | list, undefined_name | items | list
n | items | list
l | list, s | list, d | list, u | list, (1, 2) | list, undefined_name | list
5 | string + 'x', nil | string, l | string, f | string
'5' | int, '5.7' | int, 'x' | int, 'x' | int(9), 3.9 | int, nil | int, ' 12 ' | int, '-3' | int, '' | int(1), t | int
'5' | float, '1e3' | float, 'x' | float, 'x' | float(1.5), 3 | float, nil | float
undefined_name | int
neg | abs, -2.5 | abs, 0 | abs
2.5 | round, 3.5 | round, 2.567 | round(2), 2.1 | round(0, 'ceil'), 2.9 | round(method='floor'), 5 | round, 1234.5 | round(1), 0.125 | round(2)
html | escape, html | e, 5 | e
html | safe
'<b>' | safe + html
html + ('<b>' | safe)
('<b>' | safe) ~ html
('<' | safe)[0] + '<'
('<b>' | escape) + '<i>'
('a' | safe | upper) + '<'
('<' | safe) * 2 + '>'
lines | indent, lines | indent(2), lines | indent(2, true), lines | indent('> ', first=true), lines | indent(2, blank=true), '' | indent, 'a\n' | indent
5 | indent
s | replace('o', '0'), s | replace('o', '0', 1), 121 | replace(1, 'x'), s | replace('l', 'L', count=2)
'%s-%s' | format('a', 1), '%(x)s' | format(x=2)
s | nosuchfilter
s | upper | lower | title
-1 | abs, (-1) | abs, 2 * 3 | string
d | tojson, l | tojson, s | tojson, u | tojson, js | tojson, nil | tojson, t | tojson, f | tojson, big | tojson, (1, 'x') | tojson
js | tojson(ensure_ascii=true)
nested | tojson(indent=2)
nested | tojson(indent=0)
nested | tojson(indent='--')
d | tojson(sort_keys=true)
{'b': [1, {'c': {}}], 'a': []} | tojson(indent=4, sort_keys=true)
d | tojson(separators=(',', ':'))
d | tojson(indent=1, separators=(' ,', '= '))
{1: 2, none: 3, true: 4, 1.5: 5} | tojson
{(1, 2): 3} | tojson
undefined_name | tojson
d.items | tojson
d.items() | tojson
floats | tojson
floats
floats | join(' ')
nested
[nested, js, u, lines]
'a\u200d\u0301\u202e\xa0\x7f\ue000\U0001F600\U000e0001' | list
["it's", 'say "hi"', 'both \' and "']
n is defined, undefined_name is defined, undefined_name is not defined, undefined_name is undefined
n is number, f is number, t is number, s is number, n is integer, t is integer, f is float, t is boolean, n is boolean
s is string, n is string, undefined_name is string, s | safe is string
d is mapping, l is mapping, undefined_name is mapping
l is iterable, s is iterable, d is iterable, n is iterable, nil is iterable, undefined_name is iterable, d.items() is iterable
l is sequence, s is sequence, d is sequence, n is sequence, nil is sequence, undefined_name is sequence, d.items() is sequence, (l | select) is sequence
nil is none, n is none, undefined_name is none, nil is not none
t is true, t is false, 1 is true, no is false, t is sameas true, n is sameas n, l is sameas l
n is odd, n is even, 9 is divisibleby 3, 9 is divisibleby(2), neg is odd, 0 is even
n is eq 7, n is equalto(7), n is ne 7, n is gt 3, n is ge 7, n is lt 3, n is le 7, 1 is in [1, 2], n is greaterthan 3, n is lessthan 3
n is == 7
'abc' is lower, 'ABC' is upper, 'aB' is lower, '1' is lower, 'É' is upper
range is callable, s is callable, s.upper is callable
s is nosuchtest
n is not none and n is not string
n is defined and undefined_name is not defined or false
not n is none
range(3) | list, range(1, 4) | list, range(10, 0, -3) | list, range(0) | list, range(3)
range(5)[1:3] | list, range(5)[-1], range(3) | length, 2 in range(3)
range(1000000)
range(0, 5, 0)
range('x')
dict(a=1, b=2), dict({'x': 1}, y=2), dict()
namespace(a=1).a, namespace({'b': 2}).b, namespace().zzz
namespace(a=1)['a']
strftime_now('%Y-%m-%d %H:%M:%S %d %b %B %A %j %%')
strftime_now('')
strftime_now('é %Y')
raise_exception('stop ' ~ s)
people[0].name, people[0]['pet'].kind, people[-1].pet is defined
people.0.name
nested[0][1][1], nested[1].k
l | length > 2 and l[0] == 3
(l | length) - 1
l|length-1
1.0in l
s.split(', ')[0].upper()[1:3] | lower
(s.split)('o')
s.upper | string | length > 5
[1, 2,], (1, 2,), {'a': 1,}
{'a': {'b': [1]}}.a.b[0]
'}}' ~ "%}"
{}['a'] is defined, {} | length
[[1, 2], [3]] | map('length') | list, [[1, 2], [3]] | map('first') | list
s is string and 'x' or 'y'
s if s is string else l
'a' is in 'abc'
n in [7] and n not in (8,)
l[:2] + l[2:]
l[1:][0], l[-2:], l[:-5], l[3:1], l[::-2]
[1, 2][true], {1: 'one'}[true], {'1': 'x'}[1] is defined
names[0] | upper ~ names[1] | lower
*l
""".strip().split("\n")

TEMPLATES = [
    # White space.
    "a\n{% if t %}\nb\n{% endif %}\nc\n",
    "a\n  {% if t %}  \n  b\n  {% endif %}\nc",
    "  {%- if t %} b {%- endif %} c",
    "a  {{- s -}}  b",
    "a\n  {{ s }}\n  b",
    "a \n {%+ if t %}\n b {%+ endif +%}\n c",
    "x {# note #}\n y\n  {# note #}\nz {#- note -#}  w",
    "{#- a -#}  b  {#+ c +#}\nd",
    "{# multi\nline {{ s }} {% if %} #}x",
    "{#-#}x{#--#} y",
    "a\r\nb\rc\n\n",
    "\n\n{{ s }}\n\n",
    "{% raw %} {{ s }} {% if %} {% endraw %} x",
    "a\n  {%- raw -%}\n {{ x }} \n{%- endraw -%} \n b",
    "{% raw %}\nx\n  {% endraw %}\ny",
    "{%if t%}x{%endif%}{{s}}{{'{{'}}",
    "{{ '{%' }}{{ {'a': {'b': 1}}['a'] }}",
    "{ { % # } }} %} #}",
    "\u3000{%- if t %}\u2003x\u2003{%- endif %}",
    "a\n\u3000{% if t %}x{% endif %}",
    "",
    "{{ s }}{",
    "x{{",
    "\t{% set x = 1 %}\n\t{{ x }}\n",
    "{{\n  s\n  |\n  upper\n}}",
    # Statements.
    "{% if no %}a{% elif nil %}b{% elif t %}c{% else %}d{% endif %}",
    "{% if no %}a{% else %}b{% endif %}",
    "{% for x in l %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/"
    "{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.depth }};{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}<{{ loop.nextitem }} {% endfor %}",
    "{% for x in l %}{{ loop.previtem is defined }}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for x in [] %}x{% else %}none{% endfor %}",
    "{% for x in l if x > 1 %}{{ x }}{{ loop.index }}{% else %}none{% endfor %}",
    "{% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}{% for c in u %}[{{ c }}]{% endfor %}",
    "{% for k, v in d | dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}",
    "{% for x in nil %}{% endfor %}",
    "{% for x in undefined_name %}x{% else %}empty{% endfor %}",
    "{% for x in n %}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}!",
    "{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}",
    "{% for x in l %}{% break %}{% else %}no iteration ended{% endfor %}",
    "{% for x in l %}{% continue %}{% else %}no iteration ended{% endfor %}",
    "{% for x in l %}{% if loop.last %}{% break %}{% endif %}{% else %}none{% endfor %}!",
    "{% break %}",
    "{% for x in tree recursive %}{{ x.v }}@{{ loop.depth }}({{ loop(x.c) }}){% endfor %}",
    "{% for x in l %}{{ loop(l) }}{% endfor %}",
    "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}",
    "{% for x in l %}{% set y = x %}{% endfor %}{{ y is defined }}",
    "{% set y = 0 %}{% for x in l %}{{ y }}{% set y = x %}{{ y }} {% endfor %}{{ y }}",
    "{% set ns = namespace(y=0, z='a') %}{% for x in l %}{% set ns.y = ns.y + x %}{% endfor %}{{ ns.y }}{{ ns.z }}",
    "{% set d.a = 1 %}",
    "{% set undefined_name.a = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (a, b) = (b, a) %}{{ a }}{{ b }}",
    "{% set a = 1, 2 %}{{ a }}",
    "{% set a %}x{{ s }}y{% endset %}{{ a }}{{ a is string }}",
    "{% set a | upper | replace('X', 'z') %}x{{ s }}y{% endset %}{{ a }}",
    "{% set ns = namespace() %}{% set ns.x %}block{% endset %}{{ ns.x }}",
    "{% if t %}{% set x = 1 %}{% endif %}{{ x }}",
    "{% set s = s ~ '!' %}{{ s }}",
    "{% set x %}{% set y = 2 %}{{ y }}{% endset %}{{ x }}{{ y is defined }}",
    "{% filter upper %}a{{ s }}{% set q = 1 %}{% endfilter %}{{ q is defined }}",
    "{% filter trim | replace('a', 'b') %} aXa {% endfilter %}|",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% set c = 2 %}{{ c }}{% endwith %}{{ a is defined }}{{ c is defined }}",
    "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}",
    "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}",
    "{% generation %}a{{ s }}{% set q = 1 %}{% endgeneration %}{{ q is defined }}",
    "{% for x in l %}{% generation %}{{ x }}{{ loop.last }}{% endgeneration %}\n{% endfor %}",
    "{% print s, n %}",
    # Macros.
    "{% macro m(a, b=2, c='x' ~ b) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c=4) }}{{ m(b=1, a=2) }}{{ m() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}",
    "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}",
    "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(none) }}",
    "{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{% set x = 2 %}{{ m() }}",
    "{% macro m() %}{% set x = 5 %}{{ x }}{% endmacro %}{{ m() }}{{ x is defined }}",
    "{% macro f(n) %}{% if n > 1 %}{{ n }}*{{ f(n - 1) }}{% else %}1{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
    "{% macro m(x) %}[{{ x }}|{{ caller() }}]{% endmacro %}{% call m(1) %}body {{ s }}{% endcall %}",
    "{% macro m(items) %}{% for i in items %}{{ caller(i, loop.index) }}{% endfor %}{% endmacro %}{% call(x, y=0) m(l) %}({{ x }},{{ y }}){% endcall %}",
    "{% macro m() %}{{ caller is defined }}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*[1]) }}{{ m(**{'a': 2}) }}",
    "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(1, *[2]) }}{{ m(1, **{'b': 3}) }}",
    "{% for x in l %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro m() %}  x  {% endmacro %}{{ m() | trim }}{{ m().strip() }}{{ m() == '  x  ' }}",
    "{% macro m(a=[]) %}{{ a }}{% endmacro %}{{ m() }}{{ m([1]) }}",
    "{% macro m(s) %}{{ s }}{% endmacro %}{{ m('inner') }}{{ s }}",
    "{% macro m(x) %}{% for i in x %}{% if i is iterable %}{{ m(i) }}{% else %}{{ i }}{% endif %}{% endfor %}{% endmacro %}{{ m([1, [2, [3]]]) }}",
    "{{ m() }}{% macro m() %}{% endmacro %}",
    "{% set g = l | map('string') %}{{ g | list }}{{ g | list }}",
    "{% set g = l | select('odd') %}{% if g %}yes{% endif %}{% for x in g %}{{ x }}{% endfor %}{% for x in g %}{{ x }}{% endfor %}",
    "{% set g = [] | select %}{{ 'true' if g else 'false' }}",
    "{{ (l | select) | length }}",
    "{% for x in l %}{{ x }}{{ ', ' if not loop.last }}{% endfor %}",
    "{% if undefined_name is defined and undefined_name | nosuchfilter %}x{% endif %}ok",
    "{% if s is nosuchtest %}x{% endif %}",
    "{{ s | nosuchfilter if no else 'ok' }}",
    "{% if no %}{{ s | nosuchfilter }}{% endif %}ok",
    "{% if t %}{{ s | nosuchfilter }}{% endif %}",
    # Errors of syntax.
    "{% if t %}",
    "{% endif %}",
    "{% for x l %}{% endfor %}",
    "{% for x in l %}",
    "{% set x %}",
    "{% set 5 = 1 %}",
    "{% set none = 1 %}",
    "{% nosuch %}",
    "{{ }}",
    "{{ 1 + }}",
    "{{ (1 }}",
    "{{ 1) }}",
    "{{ [1, 2 }}",
    "{{ {'a' 1} }}",
    "{{ 'abc }}",
    "{{ a b }}",
    "{{ a.  }}",
    "{{ a[] }}",
    "{{ a[1 }}",
    "{{ f(a=1, 2) }}",
    "{{ f(**d, 1) }}",
    "{{ s | }}",
    "{{ s is }}",
    "{{ 5x }}",
    "{{ $ }}",
    "{{ 01 }}",
    "{% macro %}{% endmacro %}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{% macro m(1) %}{% endmacro %}",
    "{% call s %}{% endcall %}",
    "{# open",
    "{% raw %} open",
    "{% if t %}{% endfor %}",
    "{% for x in l %}{% endif %}",
    "{{ x is defined is none }}",
    "{{ not }}",
    "{{ a if }}",
    "{{ s \u00e9 }}",
    "{% else %}",
    "{% elif t %}",
    "{% set x = %}",
    "{{ '\\x4' }}",
]


def snippets():
    return ["{{ " + expression + " }}" for expression in EXPRESSIONS] + TEMPLATES
