# SPDX-License-Identifier: Apache-2.0
# What PyYAML reads: python3 make_yaml.py >yaml.json
# Every scalar stays the text that was written, but for null, ~ and nothing; PyYAML would make numbers and truth values of some.
import json
import yaml


class Texts(yaml.SafeLoader):
    pass


Texts.yaml_implicit_resolvers = {
    c: [r for r in v if r[0] == "tag:yaml.org,2002:null"] for c, v in yaml.SafeLoader.yaml_implicit_resolvers.items()
}

split = {"exclude": [], "split_parts": {"train": ["shards/shard_{000..010}.tar", "a b.tar"], "val": ["c.tar"], "test": []}}
data = {
    "sample_type": {"__module__": "megatron.energon", "__class__": "VQASample"},
    "field_map": {"image": "jpg,png", "context": "json[question]", "answers": "json[answers][0]", "x": "'quoted'", "y": "a: b", "z": "# no"},
}
blend = {"splits": {"train": {"blend": [{"weight": 5, "path": "./coco", "subflavors": {"a": "b"}}, {"weight": 0.5, "path": "x y"}]}}}
texts = [yaml.dump(v, sort_keys=False) for v in (split, data, blend, {"e": "é\u2028\u2029\x85\xa0\t\n\x07😀", "l": [[1, [2, 3]], {"a": [4]}], "m": {}})]
texts += [yaml.dump(v, default_flow_style=True, width=1000) for v in (split, data, blend)]
texts += [
    "", "# nothing\n", "---\n", "a", "a: ", "a:\n", "a: b # comment\nc: d#e\n", "a: 'it''s'\n", 'a: "\\x41\\u00e9\\U0001F600\\n\\"\\\\\\/ \\t"\n',
    "a:\n- b\n- c\nd: e\n", "a:\n  - b\n  -\n  - - c\n    - d\n  - e: f\n    g:\n      h\n", "- a\n-  b: c\n   d: e\n-\n  - f\n",
    "---\na: 1\n", "--- # comment\na: 1", "a: ~\nb: null\nc: 'null'\nd: NULL\ne:\nf: nUll\n", "{a: b, 'c': d, \"e\": [f, {g: h}, ], i: }\n",
    "a: [b,\n  c, # comment\n  d\n  ]\ne: f\n", "a: b:c\nd: http://e.f/g\n", "a : b\n'c' : d\n\"e f\": g\n", "a: -b\nc: ?d\ne: :f\n",
    "a:    b   \nc: [ ]\n", "\n\n  a: b\n  c: d\n\n", "a: {}\n", "a: \"# no\"\n", "# c\n\n# d\na:\n  # e\n  b: c\n  # f\n\nd: e", "a:\r\n- b\r\nc: d\r\n",
    "a.b/c: d\n", "x: a]b{c,d\n", "x: [a b]\n", "\ufeffa: b\n", "a:\n- b: c\n  d:\n  - e\n  - f\n- g\n", "q?: r\n",
    "a:\n    b:\n        c:\n            - d\n    e: f\n", "- - - a\n    - b\n  - c\n- d\n",
]
print(json.dumps([{"yaml": t, "value": yaml.load(t, Texts)} for t in texts], indent=0))
