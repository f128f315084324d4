#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make jinja.json: templates, variables and what Jinja2 renders, set up as chat templates are run.

A development tool (needs jinja2); nothing at build, run or `make check` time needs it.

    make_jinja.py            the committed file
    make_jinja.py random N SEED FILE    N random expressions, for tests/unit/text_jinja FILE

A case is {"name", "template", "vars", "out"} or {"name", "template", "vars", "error": true}; "spans" holds the texts of its
generation blocks. Templates of whole families are in templates/, written from the families' published descriptions; each is
rendered over the conversations below.
"""
import copy
import datetime
import json
import os
import random
import sys
import warnings

import jinja2
from jinja2.ext import Extension
from jinja2.nodes import CallBlock
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = 1700000000


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return CallBlock(self.call_method("_note"), [], [], body).set_lineno(line)

    def _note(self, caller):
        text = caller()
        self.environment.lf_spans.append(text)
        return text


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, "jinja2.ext.loopcontrols"])
    env.lf_spans = []

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(fmt):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(fmt)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


ENV = environment()


def run(name, template, variables):
    case = {"name": name, "template": template, "vars": variables}
    ENV.lf_spans.clear()
    try:
        text = ENV.from_string(template).render(**copy.deepcopy(variables))  # Python's indent changes a list
        text.encode("utf-8")  # half a pair is no text
        case["out"] = text
        if ENV.lf_spans:
            case["spans"] = list(ENV.lf_spans)
    except Exception:  # whatever Python says, it is an error
        case["error"] = True
    return case


VARS = {
    "i": 7, "n": -3, "z": 0, "f": 2.5, "big": 1e20, "small": 1.5e-7, "t": True, "no": False, "nul": None, "e": "",
    "s": "Hello, World", "u": "Grüße, 世界 🌍!", "sp": "  \t padded \n", "q": "it's \"quoted\"", "lines": "a\nb\r\nc\n\nd",
    "xs": [3, 1, 2], "ws": ["pear", "Apple", "fig", "apple"], "mix": [1, "a", None, 2.0, True, [1], {"k": 1}],
    "d": {"b": 1, "a": {"x": [1, 2, {"y": "z"}]}, "C": None, "items": "mine"}, "em": {}, "el": [],
    "rows": [{"k": "x", "v": 3, "ok": True}, {"k": "y", "v": 1, "ok": False}, {"k": "z", "v": 2, "ok": True}],
    "html": "<a href=\"x\">&'</a>",
}

EXPRESSIONS = """
i + 1|i - n|i * f|i / 2|i // 2|n // 2|n % 2|i % n|f // 1|2 ** 10|2 ** -1|-i ** 2|2 ** 3 ** 2|10 - 3 - 2|i / z|big|small|1e16|1e15|0.1 + 0.2|1.0|100.0|-0.0
1_000|1.5e3|0.00001|123456789012345678|i ~ s|1 ~ 2 ~ none|"a" + "b"|"a" * 3|[1] * 2|[1] + [2, 3]|(1,) + (2,)|"a" "b"|s + 1|none + 1|true + 1|+true|-true
1 < 2 < 3|1 < 3 < 2|1 == 1.0|"a" < "b"|[1, 2] < [1, 3]|1 < "a"|"ell" in s|"x" in s|1 in xs|"b" in d|none in mix|not 1 in xs|1 not in xs|2 in "abc"|missing in xs
t and s|no or s|e or "default"|not e|not not s|t and not no|1 if t else 2|1 if no|(1 if no) is defined|"x" if no else "y" if t else "z"
s[0]|s[-1]|s[100]|s[1:4]|s[::-1]|s[::2]|s[-5:]|s[:-5]|s[10:2]|u[7]|u[::-1]|u[7:9]|xs[0]|xs[-1]|xs[9]|xs[1:]|xs[::-1]|xs[::-2]|xs[5:]|xs[::0]|xs["a"]|d["b"]|d.b|d.a.x[2].y|d["nope"]|d.nope|d.nope.more
d.items|d["items"]|missing|missing.x|missing["x"]|missing()|missing|default("dd")|missing is defined|d.C is none|s.nope|i.nope|none.x|mix[6].k|xs.0|rows.1.k
s.upper()|s.lower()|"hello world-wide it's".title()|u.upper()|"straße".upper()|"ÀÉ".lower()|s.startswith("He")|s.endswith("x")|s.startswith(("x", "H"))|sp.strip() ~ "|"|sp.lstrip() ~ "|"|sp.rstrip() ~ "|"|"xxaxx".strip("x")|"abcabc".lstrip("ab")
s.split()|s.split(", ")|"a,b,,c".split(",")|"a b  c ".split()|"a b c".split(None, 1)|"a,b,c".split(",", 1)|"a,b,c".rsplit(",", 1)|" a b c ".rsplit(None, 1)|lines.splitlines()|lines.splitlines(true)|"".split()|"".split(",")|"".splitlines()|"a".split("")|", ".join(ws)|"-".join(xs)|"-".join("abc")
s.replace("l", "L")|s.replace("l", "L", 1)|s.replace("", "-")|"".replace("", "-")|s.replace("zz", "")|s.find("o")|s.rfind("o")|s.find("zz")|u.find("界")|s.index("zz")|s.count("l")|"aaa".count("aa")|s.count("")|"12".isdigit()|"1a".isdigit()|"".isdigit()|"ab".isalpha()|"a1".isalnum()|" ".isspace()|"AB".isupper()|"aB".islower()|"prefix-x".removeprefix("prefix-")|"x.txt".removesuffix(".txt")|"x".removesuffix("")|"7".zfill(3)|"-7".zfill(4)|"hELLO wORLD".capitalize()
d.keys() | list|d.values() | list|d.a.items() | list|em.items() | list|d.get("b")|d.get("zz")|d.get("zz", 5)|d.pop("b")|xs.append(4)|d.update({})|xs.index(1)|xs.index(99)|xs.count(1)|s.__class__|d.__class__
s | upper|s | lower|s | title|"foo-bar (baz) it's" | title|s | capitalize|sp | trim|"xxaxx" | trim("x")|s | replace("o", "0")|s | replace("l", "1", 1)|s | length|xs | length|d | length|u | length|i | length|none | length|missing | length
xs | first|xs | last|el | first|s | first|u | last|el | last is defined|xs | sort|xs | sort(reverse=true)|ws | sort|ws | sort(case_sensitive=true)|rows | sort(attribute="v") | map(attribute="k") | join|mix | sort|xs | reverse | list|s | reverse|ws | unique | list|ws | unique(case_sensitive=true) | list|[1, 1.0, true, 2] | unique | list
xs | sum|[0.5, 1] | sum|rows | sum(attribute="v")|xs | sum(start=10)|xs | min|xs | max|el | min is defined|ws | min|rows | max(attribute="v")|d | dictsort|{"b": 1, "A": 2, "c": 0} | dictsort|{"b": 1, "A": 2} | dictsort(true)|{"b": 1, "a": 2} | dictsort(by="value")|{"b": 1, "a": 2} | dictsort(reverse=true)
xs | join|xs | join(", ")|mix | join("|")|rows | join("-", attribute="k")|none | join|missing | join(",") ~ "."|ws | map("upper") | list|ws | map("length") | list|rows | map(attribute="v") | list|rows | map(attribute="nope", default=0) | list|[d] | map(attribute="a.x.2.y") | list|ws | map("replace", "p", "P") | list|ws | map("nofilter") | list
rows | selectattr("ok") | map(attribute="k") | list|rows | rejectattr("ok") | map(attribute="k") | list|rows | selectattr("v", ">", 1) | map(attribute="k") | list|rows | selectattr("k", "in", ["x", "z"]) | list | length|rows | selectattr("k", "equalto", "y") | list|mix | select | list | length|mix | select("string") | list|xs | select("odd") | list|xs | reject("even") | list|xs | select("divisibleby", 3) | list|rows | selectattr("zz", "defined") | list|rows | selectattr("zz", "undefined") | list | length
"5" | int|"5.9" | int|"x" | int|"x" | int(9)|f | int|none | int|" 12 " | int|"1_000" | int|"2.5" | float|"x" | float|i | float|2.5 | round|3.5 | round|2.675 | round(2)|2.1 | round(method="ceil")|2.9 | round(method="floor")|-2.5 | round|1234.5 | round(-2)|i | round|n | abs|f | abs|"a" | abs|3 | string ~ 4|none | string|xs | string
missing | default("x")|none | default("x")|e | default("x")|e | default("x", true)|none | d("x", true)|missing | default|s | wordcount|lines | indent|lines | indent(2, true)|lines | indent(2, blank=true)|lines | indent("> ")|"" | indent ~ "|"|html | escape|html | e | length|html | safe|(html | safe) + "x"|("x" | escape) + "y"
s | list|d | list|xs | list|(1, 2) | list|missing | list|i | list|d | items | list|missing | items | list|i | items
xs | tojson|d | tojson|d | tojson(indent=2)|el | tojson(indent=2)|em | tojson|u | tojson|q | tojson|lines | tojson|f | tojson|big | tojson|none | tojson|mix | tojson|d | tojson(sort_keys=true)|{"b": 1, "a": [1, {"z": 0, "y": 1}]} | tojson(indent=4, sort_keys=true)|xs | tojson(separators=(",", ":"))|d.a | tojson(separators=(",", ":"))|missing | tojson|html | tojson|{1: 2} | tojson|{true: 1, none: 2} | tojson|"\\u0001\\x7f" | tojson
xs|d|mix|(1,)|()|(1, 2)|{}|[]|[[]]|q|[q]|["it's"]|['say "hi"']|[u]|["a\\nb\\t\\\\"]|["\\u200b"]|{"a": (1, 2)}|true|none|[none, true]|[1.0, 2.50]|{1: "a", "b": 2}
i is odd|i is even|i is divisibleby 7|i is divisibleby(2)|i is number|f is number|t is number|t is integer|i is integer|f is float|i is float|t is boolean|t is true|1 is true|no is false|none is none|missing is none|s is string|i is string|xs is iterable|i is iterable|s is iterable|missing is iterable|d is mapping|xs is mapping|xs is sequence|d is sequence|missing is sequence|s is sequence|i is sequence|range is callable|s is callable|s is lower|"abc" is lower|"ABC" is upper|"123" is upper|"a1" is lower|1 is sameas 1|none is sameas none|i is not none|i is not odd|i is eq 7|i is gt 3|i is lt(3)|i is in [1, 7]|"upper" is filter|"zz" is filter|"odd" is test|not i is odd|missing is not defined|s is defined and s is string|i is odd and f is float
range(5) | list|range(2, 5) | list|range(5, 0, -2) | list|range(0) | list|range(1000001) | length|range(5) | last|dict(a=1, b=2)|dict(d, z=1) | length|dict([("a", 1)])|namespace(a=1).a|namespace(a=1).b is defined|raise_exception("no")|strftime_now("%Y-%m-%d %H:%M")|strftime_now("%d %b %Y")|nofunc()
"\\n"|"\\t"|'a\\'b'|"a\\"b"|"\\u00e9\\u4e16"|"\\x41"|"a\\\\b"|"a\\qb"|"{{"|'%}'|{"a": {"b": {}}}|{"a": {"b": 1}}["a"]["b"]|[1, 2,]|{"a": 1,}|(1)|((1, 2), 3)|1, 2
s | upper | lower | title|-f | abs|-(f | abs)|s.upper() | lower|(i + 1) | string + "x"|i + 1 | string|"a" if s | length > 3 else "b"|xs | length - 1|xs | length == 3 and ws | length == 4|d.a.x | length|not d.nope|d.nope | default("x") | upper|(s, i)[0]|[s, i][1]|{"k": s}["k"]|"abc"[1:][0]|"a.b".split(".")[-1]|s.split(",")[0].strip()|(d | tojson) | length|(xs | map("string") | list)[0]
1 +|(|[1|{"a"}|{"a": }|a b|s |s | nofilter|i is notest|s.|s[|x if|"unclosed|1 2|not|in|xs | map()|s.upper(|f(a=1, 2)|$|`|{{ 1 }}|s | replace("a")|s | upper(1)|i is odd 1 2|1 === 2|a = 1
"ａ" | upper|"ǆ" | title|"ß" | capitalize|"İ" | lower | length|"\\u00a0 x \\u3000" | trim|"\\u2003x".strip()|"a\\u2028b".splitlines()|"x\\x1cy".splitlines()|"é" == "é"|"é" | length|"👩‍👩‍👧" | length|"👍🏽"[0]|"²³" | int|"٣".isdigit()|"Ⅷ".isalpha()|"１２" | int
""".strip("\n")


def expression_cases():
    for line in EXPRESSIONS.split("\n"):
        depth, quote, start, parts = 0, "", 0, []
        k = 0
        while k < len(line):  # cut at '|' without blanks around it, outside of strings
            c = line[k]
            if quote:
                if c == "\\":
                    k += 1
                elif c == quote:
                    quote = ""
            elif c in "\"'":
                quote = c
            elif c == "|" and not (line[k - 1:k] == " " and line[k + 1:k + 2] == " "):
                parts.append(line[start:k])
                start = k + 1
            k += 1
        parts.append(line[start:])
        for text in parts:
            yield "expr " + text, "{{ " + text + " }}", VARS


STATEMENTS = [
    # white space
    "a\n{% if t %}\nb\n{% endif %}\nc\n", "  {% if t %}  \n  b\n  {% endif %}  \nc", "a {%- if t -%} b {%- endif -%} c",
    "a\n  {%- if t %}\n  b\n  {%- endif %}\nc", "a {% if t %}b{% endif %}\n\nc", "{{ i }}\n{{ i }}\n", "{{ i -}}   \n x", "x \n {{- i }}",
    "a {# note #} b", "a\n  {# note #}\nb", "a {#- note -#} b", "{# a\nb #}\nc", "x{# c #}\n\ny", "  {%+ if t %}x{% endif %}", "{% if t +%}\nx{% endif %}",
    "x\n\n", "x\n\n\n", "\n", "", "\r\nx\r\ny\rz\r\n", "{% raw %}{{ i }}{% if %}{% endraw %}", "a{% raw -%}  \n {{ x }} {%- endraw %}b", "  {% raw %}\n x {% endraw %}\n y",
    "{{ '{{' }}{{ '}}' }}", "{{ {'a': {'b': 1}} }}", "{ {", "{", "}}", "%}", "{%if t%}x{%endif%}", "{%-if t-%} x {%-endif-%}", "a\n\t {% set x = 1 %}\n\tb", "{{i}}{{f}}", " \n {% set a = 1 %} \n {{ a }}",
    "{% for x in xs %}\n{{ x }}\n{% endfor %}\n", "{% for x in xs -%}\n  {{ x }},\n{%- endfor %}", "{%- for x in xs %}{{ x }}{% endfor -%}   end",
    "line\n{%- if t %} x{% endif %}\nnext", "   {{ i }}   ", "a\n   {% if t %}b{% endif %}   {% if t %}c{% endif %}\nd", "{% if t %}\n\n\nx{% endif %}",
    # if
    "{% if no %}a{% elif t %}b{% else %}c{% endif %}", "{% if no %}a{% elif no %}b{% else %}c{% endif %}", "{% if no %}a{% endif %}|", "{% if t %}{% if no %}x{% else %}y{% endif %}{% endif %}",
    "{% if missing %}a{% else %}b{% endif %}", "{% if missing.x %}a{% endif %}", "{% if xs %}a{% endif %}{% if el %}b{% endif %}", "{% if t %}{% set v = 1 %}{% endif %}{{ v }}", "{% if no %}{% set v = 1 %}{% endif %}{{ v is defined }}",
    # for
    "{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for x in el %}x{% else %}none{% endfor %}", "{% for x in xs %}x{% else %}none{% endfor %}", "{% for k, v in d.a.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }} {% endfor %}", "{% for c in u %}[{{ c }}]{% endfor %}",
    "{% for x in xs if x > 1 %}{{ x }}:{{ loop.index }}/{{ loop.length }} {% endfor %}", "{% for x in xs if x > 9 %}x{% else %}none{% endfor %}", "{% for x in xs %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for a in xs %}{% for b in xs %}{% if b == 1 %}{% break %}{% endif %}{{ a }}{{ b }} {% endfor %}{% endfor %}",
    "{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}", "{% for x in xs %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %}", "{% for x in xs %}{% for y in xs %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}{% endfor %}",
    "{% for a, (b, c) in [[1, [2, 3]], [4, [5, 6]]] %}{{ a }}{{ b }}{{ c }} {% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% for x in missing %}x{% endfor %}.", "{% for x in none %}x{% endfor %}", "{% for x in i %}x{% endfor %}", "{% for x in missing.y %}x{% endfor %}",
    "{% set v = 0 %}{% for x in xs %}{{ v }}{% set v = x %}{{ v }} {% endfor %}{{ v }}", "{% for x in xs %}{% set y = x %}{% endfor %}{{ y is defined }}", "{% set x = 9 %}{% for x in xs %}{{ x }}{% endfor %}{{ x }}", "{% for x in xs %}{{ x }}{% endfor %}{{ x is defined }}",
    "{% for x in xs | sort | reverse %}{{ x }}{% endfor %}", "{% for x in (1, 2) %}{{ x }}{% endfor %}", "{% for x in 1, 2 %}{{ x }}{% endfor %}", "{% for x in range(3) %}{{ x }}{% endfor %}", "{% for x in xs[::-1] %}{{ x }}{% endfor %}", "{% for x in d.a.x[2] %}{{ x }}{% endfor %}", "{% for x in xs %}{{ loop }}{% endfor %}",
    "{% for k, v in d | dictsort %}{{ k }}{% endfor %}", "{% for x in xs %}{{ loop.last and 'L' or '-' }}{% endfor %}", "{{ loop is defined }}{% for x in xs %}{{ loop is defined }}{% endfor %}", "{% for x in xs %}{{ loop.nope is defined }}{% endfor %}",
    # set, namespace, with
    "{% set x = 5 %}{{ x }}", "{% set a, b = 1, 2 %}{{ b }}{{ a }}", "{% set (a, b) = [1, 2] %}{{ b }}", "{% set a, b = [1] %}", "{% set ns = namespace(n=0) %}{% for x in xs %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}", "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b }}",
    "{% set d.b = 2 %}", "{% set x %}a{{ i }}b{% endset %}[{{ x }}]", "{% set x | upper %}a{{ s }}b{% endset %}[{{ x }}]", "{% set x %}{% set y = 1 %}{% endset %}{{ y is defined }}", "{% set x = x | default(3) %}{{ x }}", "{% set s = s ~ '!' %}{{ s }}", "{% set x = [] %}{% set x = x + [1] %}{{ x }}", "{% set x = {'a': 1} %}{{ x.a }}", "{% set ns = namespace(d, q=1) %}{{ ns.b }}{{ ns.q }}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "{% set a = 5 %}{% with a = 1, b = a %}{{ b }}{% endwith %}", "{% with %}{% set zz = 1 %}{% endwith %}{{ zz is defined }}", "{% set x = 1, 2 %}{{ x }}", "{% set none = 1 %}", "{% set 1 = 2 %}",
    # macro, call, filter
    "{% macro m(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(b=5, a=4) }} {{ m() }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(z=2) }}", "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(1) }}",
    "{% macro m() %}{{ g }}{% endmacro %}{% set g = 1 %}{{ m() }}", "{% macro m() %}{% set inner = 1 %}{{ inner }}{% endmacro %}{{ m() }}{{ inner is defined }}", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m('x') | upper }}{{ m('y') ~ '!' }}",
    "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}body {{ i }}{% endcall %}", "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}+{{ b }}{% endcall %}", "{% filter upper %}abc {{ s }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}aaa{% endfilter %}", "{% filter upper %}{% set w = 1 %}{% endfilter %}{{ w is defined }}",
    "{% macro m(x) -%}\n  {{ x }}\n{%- endmacro %}\n{{ m(1) }}", "{% macro m(xs) %}{% for x in xs %}{{ loop.index }}{% if not loop.last %},{% endif %}{% endfor %}{% endmacro %}{{ m(xs) }}", "{% macro m(a=[]) %}{{ a }}{% endmacro %}{{ m() }}{{ m([1]) }}", "{{ m }}", "{% macro m() %}{{ loop is defined }}{% endmacro %}{% for x in [1] %}{{ m() }}{% endfor %}",
    "{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{% macro m(a, b) %}{{ b is defined }}{% endmacro %}{{ m(1) }}", "{% macro m(x) %}{% if x %}{{ x }}{% endif %}{% endmacro %}{{ m(none) }}|{{ m('') }}|{{ m(2) }}",
    # generation
    "{% for x in xs %}<{% generation %}{{ x }}{% endgeneration %}>{% endfor %}", "{% generation %}{% set g = 1 %}é{{ s }}{% endgeneration %}{{ g is defined }}", "{%- generation -%}  x  {%- endgeneration -%}  y",
    # errors
    "{% if %}{% endif %}", "{% if t %}", "{% endif %}", "{% for x xs %}{% endfor %}", "{% for x in xs %}", "{% nope %}", "{% %}", "{{ }}", "{{ i", "{% if t", "{# open", "{% raw %}", "{% break %}", "{% for x in xs %}{% endif %}", "{% macro %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% else %}", "{% set x %}", "{% set = 1 %}", "{{ raise_exception('stop') }}", "{% include 'x' %}", "{% if t %}{% else %}{% else %}{% endif %}", "{{ i }", "{% if t }}x{% endif %}", "{{ i %}",
    "{% macro m() %}{% break %}{% endmacro %}", "{{ '\\ud800' }}", "{% for loop in xs %}{% endfor %}x",
]

CONVERSATIONS = {
    "one": {"messages": [{"role": "user", "content": "Hi"}]},
    "system": {"messages": [{"role": "system", "content": " Be terse. "}, {"role": "user", "content": "2+2?\n"}, {"role": "assistant", "content": "4"},
                            {"role": "user", "content": "世界 <b>&</b> 🙂"}]},
    "done": {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": " b "}, {"role": "user", "content": "c"},
                          {"role": "assistant", "content": "<think>\nhm\n</think>\n\nd"}], "add_generation_prompt": False},
    "order": {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]},
    "tools": {"messages": [{"role": "user", "content": "Weather in Köln?"},
                           {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "id": "c1", "function": {"name": "weather", "arguments": {"city": "Köln", "days": 2, "f": 1.50}}}]},
                           {"role": "tool", "content": "{\"t\": 12}", "tool_call_id": "c1", "name": "weather"}, {"role": "assistant", "content": "12 °C"}, {"role": "user", "content": "Thanks"}],
              "tools": [{"type": "function", "function": {"name": "weather", "description": "The \"weather\" <now>", "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}}, "required": ["city"]}}}]},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "look "}, {"type": "image"}, {"type": "text", "text": "here"}]}]},
    "thinking": {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "<think>old</think>a1"}, {"role": "user", "content": "q2"}, {"role": "assistant", "reasoning_content": "new", "content": "a2"}], "enable_thinking": False},
    "odd": {"messages": [{"role": "user", "content": None}, {"role": "narrator", "content": "x"}]},
    "empty": {"messages": []},
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def cases():
    for name, template, variables in expression_cases():
        yield run(name, template, variables)
    for k, template in enumerate(STATEMENTS):
        yield run("statement %d" % k, template, VARS)
    for file in sorted(os.listdir(os.path.join(HERE, "templates"))):
        with open(os.path.join(HERE, "templates", file), encoding="utf-8", newline="") as f:
            template = f.read()
        for name, conversation in CONVERSATIONS.items():
            variables = {"add_generation_prompt": True, **TOKENS, **conversation}
            yield run("%s %s" % (file, name), template, variables)


# ---- random expressions ----

def random_expression(rng, depth=0):
    leaf = ["i", "n", "z", "f", "s", "u", "xs", "ws", "d", "e", "nul", "t", "no", "rows", "missing", "1", "2", "'a'", "'lo'", "''", "none", "[]", "{}", "0.5", "q", "lines", "-1"]
    if depth > 3 or rng.random() < 0.2:
        return rng.choice(leaf)

    def sub():
        return random_expression(rng, depth + 1)
    kind = rng.randrange(12)
    if kind == 0:
        return "(%s %s %s)" % (sub(), rng.choice(["+", "-", "*", "/", "//", "%", "~"]), sub())
    if kind == 1:
        return "(%s %s %s)" % (sub(), rng.choice(["==", "!=", "<", ">", "<=", ">=", "in", "not in"]), sub())
    if kind == 2:
        return "(%s %s %s)" % (sub(), rng.choice(["and", "or"]), sub())
    if kind == 3:
        return "(%s if %s else %s)" % (sub(), sub(), sub())
    if kind == 4:
        return "%s[%s]" % (rng.choice(leaf[:15]), sub())
    if kind == 5:
        parts = [rng.choice(["", "1", "-1", "2", "-2", "0", "5"]) for _ in range(rng.choice([2, 3]))]
        return "%s[%s]" % (rng.choice(leaf[:15]), ":".join(parts))  # constants are folded by other rules
    if kind in (6, 7):
        return "(%s) | %s" % (sub(), rng.choice(["upper", "lower", "title", "trim", "length", "first", "last", "list", "string", "int", "float", "join(',')", "tojson", "sort", "reverse | list", "default('D')", "capitalize",
                                                 "unique | list", "sum", "min", "max", "abs", "round(1)", "replace('l', 'L')", "map('string') | list", "select | list", "items | list", "wordcount", "tojson(indent=1)", "dictsort"]))
    if kind == 8:
        return "(%s is %s%s)" % (sub(), rng.choice(["", "not "]), rng.choice(["defined", "none", "string", "number", "mapping", "iterable", "sequence", "odd", "even", "true", "false", "lower", "upper", "integer", "float", "boolean", "sameas(1)", "in([1])"]))
    if kind == 9:
        return "(%s).%s" % (sub(), rng.choice(["upper()", "strip()", "split()", "split('l')", "splitlines()", "title()", "items()", "keys() | list", "get('a')", "startswith('H')", "find('l')", "replace('l', '_')", "count('l')", "b", "x", "isdigit()", "capitalize()", "rsplit(None, 1)"]))
    if kind == 10:
        return "[%s]" % ", ".join(sub() for _ in range(rng.randrange(3)))
    return "{'k': %s, 2: %s}" % (sub(), sub())


def main():
    warnings.simplefilter("ignore")
    if len(sys.argv) > 1:
        rng = random.Random(int(sys.argv[3]))
        made = [run("random %d" % k, "{{ " + random_expression(rng) + " }}", VARS) for k in range(int(sys.argv[2]))]
        target = sys.argv[4]
    else:
        made, target = list(cases()), os.path.join(HERE, "jinja.json")
    # functions, loops and generators print an address or a name of Python's own: nothing to compare with
    made = [c for c in made if " object at 0x" not in c.get("out", "") and "dict_" not in c.get("out", "") and "<Macro" not in c.get("out", "")
            and "<LoopContext" not in c.get("out", "") and "<built-in" not in c.get("out", "") and "<class" not in c.get("out", "")
            and "<generator" not in c.get("out", "") and "<bound" not in c.get("out", "") and "<function" not in c.get("out", "")]
    shared = {}
    for c in made:
        if c["vars"] is VARS:
            c["vars"] = "common"
            shared["common"] = VARS
    with open(target, "w", encoding="utf-8") as f:
        json.dump({"jinja2": jinja2.__version__, "now": NOW, "shared": shared, "cases": made}, f, ensure_ascii=True, separators=(",", ":"))
        f.write("\n")
    print("%d cases, %d of them errors" % (len(made), sum("error" in c for c in made)))


main()
