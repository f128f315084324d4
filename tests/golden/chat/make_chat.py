# SPDX-License-Identifier: Apache-2.0
"""Expected output of chat templates, by jinja2. See README.md."""
import datetime
import json
import os

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = 1753920000


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def raise_exception(text):
    raise jinja2.exceptions.TemplateError(text)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None: json.dumps(x, ensure_ascii=ensure_ascii, indent=indent)
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(f)
    return env


CHATML = """{% for message in messages %}
{{ '<|im_start|>' + message.role + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
QWEN25 = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are a helpful assistant.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}{{- tool_call.arguments | tojson }}{{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- message.content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
QWEN3 = """{%- set ns = namespace(multi_step=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is defined and message.reasoning_content is not none %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}
            {%- set reasoning = message.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or (not loop.last and reasoning)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""
LLAMA3 = """{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""
GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{% endif %}
{% if message['role'] == 'assistant' %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}
{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}
{% endfor %}
{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""
MISTRAL = """{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}{%- set loop_messages = messages[1:] %}
{%- else %}{%- set loop_messages = messages %}{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message.role == 'user' %}
        {%- if loop.last and system_message is defined %}
            {{- '[INST] ' + system_message + '\\n\\n' + message.content + '[/INST]' }}
        {%- else %}
            {{- '[INST] ' ~ message.content ~ '[/INST]' }}
        {%- endif %}
    {%- elif message.role == 'assistant' %}
        {{- ' ' + message.content|trim + eos_token }}
    {%- else %}
        {{- raise_exception('Only user and assistant roles are supported, got ' + message.role) }}
    {%- endif %}
{%- endfor %}"""
PHI3 = """{% for message in messages %}{% if message['role'] in ['system', 'user', 'assistant'] %}{{ '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"""
DEEPSEEK = """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_last_user=false, system_prompt='', is_first_sp=true) %}
{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}{% set ns.is_first_sp = false %}{%- else %}{% set ns.system_prompt = ns.system_prompt + '\\n\\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}
{%- for message in messages %}{%- if message['role'] == 'user' %}{{ '<｜User｜>' + message['content'] }}{%- set ns.is_last_user = true %}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is not none %}{{ '<｜Assistant｜>' + message['content'] + '<｜end▁of▁sentence｜>' }}{%- set ns.is_last_user = false %}{%- endif %}{%- endfor %}
{%- if add_generation_prompt and ns.is_last_user %}{{ '<｜Assistant｜>' }}{% endif %}"""
HARMONY = """{%- macro render_type(spec, depth=0) -%}
    {%- if spec.type == 'array' -%}{{- render_type(spec['items'], depth + 1) + '[]' -}}
    {%- elif spec.enum -%}{{- '"' + spec.enum|join('" | "') + '"' -}}
    {%- elif spec.type == 'object' -%}{
        {%- for name, p in spec.properties.items() -%}{{- name + ('' if name in (spec.required or []) else '?') + ': ' + render_type(p, depth=depth + 1) -}}{%- if not loop.last -%}, {% endif -%}{%- endfor -%}}
    {%- else -%}{{- {'string': 'string', 'integer': 'number', 'number': 'number', 'boolean': 'boolean'}.get(spec.type, 'any') -}}{%- endif -%}
{%- endmacro -%}
<|start|>system<|message|>Current date: {{ strftime_now("%Y-%m-%d") }}
Reasoning: {{ reasoning_effort or 'medium' }}<|end|>
{%- if tools %}<|start|>developer<|message|># Tools
namespace functions {
{% for tool in tools %}// {{ tool.function.description|default('none', true) }}
type {{ tool.function.name }} = (_: {{ render_type(tool.function.parameters) }}) => any;
{% endfor %}}<|end|>{% endif %}
{%- for m in messages if m.role != 'system' %}<|start|>{{ m.role }}{% if m.role == 'assistant' %}<|channel|>{% generation %}final{% endgeneration %}{% endif %}<|message|>{{ m.content }}<|end|>{% endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}"""
ALPACA = """{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}

{% elif m.role == 'user' %}### Instruction:
{{ m.content }}

{% else %}### Response:
{{ m.content }}{{ eos_token }}

{% endif %}{% endfor %}{% if add_generation_prompt %}### Response:
{% endif %}"""

U = {"role": "user", "content": " Hello, wörld! "}
A = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHi \"you\"\n"}
S = {"role": "system", "content": "Be brief."}
U2 = {"role": "user", "content": "日本語?\n"}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1, "y": ["a", None, 1.5, True]}}}]}
TOOL = {"role": "tool", "content": "42"}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}},
                                     "unit": {"type": "string", "enum": ["c", "f"]}}, "required": ["city"]}}}]
TALKS = [[U], [U, A], [S, U, A, U2], [U, A, U2, A], [S, U], [U, CALL, TOOL, TOOL, A]]

# Expressions and statements one by one. {{...}} is made of what does not begin with a bracket.
SMALL = """1 + 2 * 3 - 4 // 3|7 % 3|-7 // 2|-7 % 3|7 / 2|2 ** 10|1.5 + 1|10 / 2|1e0 is defined|'a' ~ 1 ~ none ~ true|'a' 'b'|"it's"|'a\\tb\\\\'|[1, 'a', none, true, 1.0]|
{'a': 1, 'b': [1, 2]}|(1, 2)|(1,)|()|1 < 2 < 3|1 < 2 > 5|1 == 1.0|'a' == 'a'|'a' < 'b'|1 in [1, 2]|'b' in 'abc'|'x' not in 'abc'|'a' in d|not true|true and 'x'|'' or 'y'|
1 if true else 2|1 if false|'x' if s else 'y'|s[0]|s[-1]|s[1:3]|s[::-1]|s[:-1]|l[1:]|l[::-1]|l[::2]|l[5:]|l[-2:]|l[9] is defined|s[99]|d.a|d['b']|d.zzz is undefined|d.get('zzz')|d.get('zzz', 3)|
d.items() | list|d.keys() | list|d.values() | list|d | items | list|d | dictsort|s | length|l | length|d | length|u | length|s | upper|s | lower|s | capitalize|s | title|'  x y '|trim|'xxaxx'|trim('x')|
s.split('l')|'a b  c'.split()|'a,b,c'.split(',', 1)|s.startswith('he')|s.endswith(('x', 'lo'))|'--a-'.strip('-')|'--a-'.lstrip('-')|'--a-'.rstrip('-')|s.replace('l', 'L')|s | replace('l', '')|s.find('l')|s.find('q')|
'hello world'.title()|l | join(', ')|l | join|[{'n': 1}, {'n': 2}] | join('-', attribute='n')|l | first|l | last|l | reverse | list|s | reverse|[3, 1, 2] | sort|[3, 1, 2] | sort(reverse=true)|['b', 'A', 'c'] | sort|
[1, 2, 1] | unique | list|[1, 2, 3] | sum|[1, 2, 3] | max|[] | min|l | map('upper') | list|[{'n': 1}, {'n': 2}] | map(attribute='n') | list|[1, 2, 3] | select('odd') | list|[1, 2, 3] | reject('odd') | list|[0, 1] | select | list|
[{'n': 1}, {'n': 2}] | selectattr('n', 'equalto', 2) | list|[{'n': 1}, {}] | selectattr('n') | list|[{'n': 1}, {}] | rejectattr('n', 'defined') | list|u | default('z')|none | default('z')|none | default('z', true)|'' | d('z', boolean=true)|
'12' | int|'x' | int|'3.7' | int|3.9 | int|'x' | int(7)|'2.5' | float|-3 | abs|2.567 | round(2)|d | tojson|[1, 'ü"', none, true, {'a': {}}] | tojson|d | tojson(indent=2)|[] | tojson(indent=4)|1 | string|l | string|
x is defined|u is defined|u is undefined|none is none|1 is number|'a' is string|d is mapping|l is sequence|s is iterable|1 is iterable|true is boolean|1 is boolean|1 is integer|1.0 is float|true is true|1 is true|4 is even|4 is odd|6 is divisibleby 3|
1 is not none|2 is gt 1|2 is eq 2|2 is in [2]|s is lower|range(3) | list|range(1, 7, 2) | list|range(3, 0, -1) | list|1.0|0.1|1e0|100000000000000000000.0|0.00001|1.5e0|3.14159|namespace(a=1).a|dict(a=1)|
u|[u is defined]|none|true|-1|- 1 + 2|+3|s * 2|[1] + [2]|'a' + 'b' * 2|not s|(1 if u else 2) + 1|s|length + 1|'%s'|'a' if 'a' is string and 1 is number else 'b'|l|length > 1 and l[0] == 'a'|strftime_now('%d %b %Y')|"\\n"|'é'|length|'日本語'[1]|'日本語'[::-1]|
{'a': 'it\\'s "x"'}|["it's"]|['a\\n\\\\']|d == {'b': [1, 2], 'a': 1}|[1, [2, 3]] == [1, [2, 3]]|1 is defined and (2 is defined)|true | string|[true, none] | string|x.y.z|x['y']['z']"""
STATEMENTS = [
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ i }};{% endfor %}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}",
    "{% for i in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}",
    "{% for i in [] %}x{% else %}none{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}", "{% for c in s %}{{ c }}.{% endfor %}", "{% for i in u %}x{% endfor %}!",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}.",
    "{% for i in range(6) if i is even %}{{ loop.index }}:{{ i }} {% endfor %}",
    "{% for i in range(3) %}{% for j in range(3) %}{% if j == 1 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}",
    "{% set a = 1 %}{% for i in [1] %}{% set a = 2 %}{{ a }}{% endfor %}{{ a }}",
    "{% set a = 1 %}{% if true %}{% set a = 2 %}{% endif %}{{ a }}", "{% set n = namespace(a=1) %}{% for i in l %}{% set n.a = n.a + 1 %}{% endfor %}{{ n.a }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set t = 1, 2 %}{{ t }}", "{% set x2 %}a{{ 1 }}b{% endset %}[{{ x2 }}]",
    "{% macro m(a, b=2) %}{{ a }}-{{ b }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=4) }}", "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% set g = 7 %}{% macro m() %}{{ g }}{% endmacro %}{{ m() }}", "{# comment #}a{#- b -#} c", "a {%- if true -%} b {%- endif -%} c",
    "  {% if true %}\n  x\n  {% endif %}\ny\n", "a\n  {%+ if true %}b{% endif %}\n", "{{ 1 }}\n\n{{ 2 }}\n\n", "{% if false %}\na\n{% elif true %}\nb\n{% else %}\nc\n{% endif %}\nd",
    "x{{- ' y ' -}} z", "{{ '{{' }}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{{ {'a': 1}}}", "a\r\n{% if true %}\r\nb{% endif %}", "{% generation %}x{% endgeneration %}", "line\n{# c #}\nnext",
    "{%- for m in [1,2] -%}\n  {{ m }}\n{%- endfor %}", "{{ raise_exception('no ' ~ 1) }}", "{{ u.x }}", "{{ u() }}", "{{ 1 + 'a' }}", "{{ 1 / 0 }}", "{{ l.append(1) }}", "{{ 'a' < 1 }}", "{{ none.x }}", "{{ d.a.b.c }}",
    "{% if %}x{% endif %}", "{% for i l %}{% endfor %}", "{{ 1 +", "{% if true %}", "{{ s | nofilter }}", "{{ s is notest }}", "{% break %}", "{% unknown %}", "{{ 'a }}", "{{ (1 }}", "{{ [1, }}", "{% endif %}", "{{ }}", "{{ a b }}", "{# x",
]


def main():
    env = environment()
    base = {"s": "hello", "l": ["a", "b", "c"], "d": {"a": 1, "b": [1, 2]}, "x": {"y": {"z": 1}}}
    templates = {"chatml": CHATML, "qwen2.5": QWEN25, "qwen3": QWEN3, "llama3": LLAMA3, "gemma": GEMMA, "mistral": MISTRAL, "phi3": PHI3,
                 "deepseek": DEEPSEEK, "harmony": HARMONY, "alpaca": ALPACA}
    cases = []
    for i, talk in enumerate(TALKS):
        for prompt in (True, False):
            v = {"messages": talk, "add_generation_prompt": prompt, "bos_token": "<s>", "eos_token": "</s>"}
            if i in (2, 5):
                v["tools"] = TOOLS
            if i == 4:
                v["enable_thinking"] = False
            cases += [(name, None, v) for name in templates]
    for e in split_small():
        cases.append(("{{ " + e + " }}", "{{ " + e + " }}", base))
    cases += [(t, t, base) for t in STATEMENTS]
    out = []
    for name, text, v in cases:
        row = {"name": name, "vars": v}
        if text is not None:
            row["template"] = text
        try:
            row["text"] = env.from_string(templates[name] if text is None else text).render(**v)
        except Exception as e:  # whatever jinja2 does not render, we must not either
            row["error"] = type(e).__name__
        out.append(row)
    with open(os.path.join(HERE, "expected.json"), "w") as f:
        json.dump({"now": NOW, "templates": templates, "cases": out}, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
    print(len(out), "cases,", sum("error" in r for r in out), "of them errors")


def split_small():
    """Cut at | that has no blank before it: filters are written with one (or without any after: 'x'|trim)."""
    text = SMALL.replace("\n", "")
    parts, at = [], 0
    while at < len(text):
        end = at
        while end < len(text) and not (text[end] == "|" and text[end - 1] != " " and not text[end + 1:].startswith(("trim", "length"))):
            end += 1
        parts.append(text[at:end])
        at = end + 1
    return [p for p in parts if p]


main()
