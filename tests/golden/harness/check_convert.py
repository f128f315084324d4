#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hold `harness.py convert` to `harness.py export`. A development tool (lm_eval 0.4.13, datasets; no torch).

The harness runs a model that draws its answers from a hash over the tasks of make_harness.py and others, and writes results and samples as
it does for --log_samples; what convert makes of these files has to be what export makes of the tasks. Prints what differs; exit status 1.
"""
import glob
import hashlib
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import types

import datasets  # noqa: F401  (before the stand-ins below)
from lm_eval import evaluator
from lm_eval.api.model import LM
from lm_eval.api.task import ConfigurableTask
from lm_eval.loggers import EvaluationTracker

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "..", "..", "..", "stages", "harness.py")
sys.path[:0] = [HERE, os.path.dirname(SCRIPT)]
STAND_INS = [m for m in ("torch", "transformers", "tokenizers", "lm_eval.models.huggingface") if m not in sys.modules]
for name in STAND_INS:  # make_harness imports them for its model, which is not made here
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].HFLM = object
import harness  # noqa: E402
import make_harness  # noqa: E402

for name in STAND_INS:
    del sys.modules[name]


class Drawn(LM):
    def draw(self, r):
        return int(hashlib.sha1(repr(r.args).encode()).hexdigest()[:8], 16)

    def loglikelihood(self, requests):
        return [(-(self.draw(r) % 1000) / 100, self.draw(r) % 2 == 0) for r in requests]

    def loglikelihood_rolling(self, requests):
        return [-(self.draw(r) % 1000) / 10 for r in requests]

    def generate_until(self, requests):
        return [f"out {self.draw(r) % 50}" for r in requests]


def more_tasks(t, tmp):
    def of(name, rows, metrics, **config):
        path = os.path.join(tmp, name + ".jsonl")
        make_harness.write(path, rows)
        t[name] = ConfigurableTask(config={
            "task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": path, "train": path}}, "test_split": "test",
            "metadata": {"version": 2.0}, "metric_list": [{"metric": m, "aggregation": "mean", "higher_is_better": True} for m in metrics],
            **config})

    choice = {"output_type": "multiple_choice"}
    text = {"output_type": "generate_until", "doc_to_text": "{{q}}", "generation_kwargs": {"until": ["\n"], "max_gen_toks": 4}}
    of("glued", [{"q": "a b", "c": [" x", " y", " zz"], "g": i % 3} for i in range(5)], ["acc", "acc_norm"], doc_to_text="{{q}}:",
       doc_to_target="{{g}}", doc_to_choice="{{c}}", target_delimiter="", **choice)
    of("label", [{"q": f"a b {i}", "g": "BA"[i % 2]} for i in range(5)], ["acc"], doc_to_text="{{q}}:", doc_to_target="{{g}}",
       doc_to_choice=["A", "B"], **choice)
    of("golds", [{"q": f"a b {i}", "g": [0, 2]} for i in range(5)], ["acc", "exact_match"], doc_to_text="{{q}}:", doc_to_target="g",
       doc_to_choice=["A", "B", "C"], **choice)
    before = {"doc_to_choice": "{{[s.split('_')[0] + o[0], s.split('_')[0] + o[1]]}}", "doc_to_target": "{{s.split('_')[1]}}", **choice}
    blanks = [{"s": "the _ house", "o": ["big", "small one"], "a": i % 2} for i in range(5)]
    of("blanks", blanks, ["acc", "acc_norm"], doc_to_text="{{a}}", **before)
    of("blanks2", blanks, ["acc"], doc_to_text="{{a + 0}}", **before)  # told by the metric
    of("shots", blanks, ["acc_norm"], doc_to_text="{{a}}", num_fewshot=1, fewshot_split="train", **before)  # left out
    of("many", [{"q": f"who {i}", "a": [f"out {i}", "x"]} for i in range(9)], ["exact_match"], doc_to_target="a", **text)
    of("lists", [{"q": f"who {i}", "a": f"[1, {i}]"} for i in range(9)], ["exact_match"], doc_to_target="{{a}}", repeats=3, **text)
    of("raw", [{"q": f"who {i}", "a": f"[1, {i}]"} for i in range(9)], ["exact_match"], doc_to_target="a", **text)
    of("digits", [{"q": f"who {i}", "a": f"0{i}"} for i in range(9)], ["exact_match"], doc_to_target="{{a}}", **text)
    of("picked", [{"q": f"who {i}", "a": i % 2} for i in range(9)], ["exact_match"], doc_to_target="a", doc_to_choice=["no", "out 3"], **text)
    of("vote", [{"q": f"who {i}", "a": f"out {i}"} for i in range(9)], ["exact_match"], doc_to_target="{{a}}", repeats=3, filter_list=[
        {"name": "maj", "filter": [{"function": "majority_vote"}, {"function": "take_first"}]},
        {"name": "first", "filter": [{"function": "take_first"}]}], **text)


def lines(path):
    """{what a line is of: line}."""
    out = {}
    with open(path, encoding="utf-8") as f:
        for line in f:
            o = json.loads(line)
            out[("group", o["group"]) if "group" in o else (o["task"], o.get("doc_id"), o.get("idx"))] = o
    return out


def filters_named(group):
    """Export says None where a group takes every filter that there is, convert names them."""
    return {**group, "metrics": [{**m, "filter_list": m["filter_list"] or ["none"]} for m in group["metrics"]]}


def main():
    with tempfile.TemporaryDirectory() as tmp:
        os.environ["HF_DATASETS_CACHE"] = tmp
        t, groups = make_harness.tasks(random.Random(3), tmp)
        more_tasks(t, tmp)
        for x in t.values():
            x.set_fewshot_seed(seed=1234)
        text = io.StringIO()
        harness.export(t, groups, None, text)
        with open(os.path.join(tmp, "exported"), "w", encoding="utf-8") as f:
            f.write(text.getvalue())
        for x in t.values():
            x.set_fewshot_seed(seed=1234)
        r = evaluator.evaluate(Drawn(), {"tasks": t, "groups": groups}, bootstrap_iters=10, log_samples=True)
        samples = r.pop("samples")
        tracker = EvaluationTracker(output_path=os.path.join(tmp, "out"))
        tracker.general_config_tracker.model_name_sanitized = "drawn"
        tracker.save_results_aggregated(results=r, samples=samples)
        for k in r["configs"]:
            tracker.save_results_samples(k, samples[k])
        out = os.path.join(tmp, "out", "drawn")
        p = subprocess.run([sys.executable, SCRIPT, "convert", "--results", glob.glob(out + "/results_*.json")[0], "--out",
                            os.path.join(tmp, "converted"), *sorted(glob.glob(out + "/samples_*.jsonl"))], check=True, stderr=subprocess.PIPE,
                           text=True)
        want, got = lines(os.path.join(tmp, "exported")), lines(os.path.join(tmp, "converted"))
    bad = [] if "shots is left out" in p.stderr else ["shots is not left out"]
    want = {k: v for k, v in want.items() if k[0] != "shots"}
    for k in sorted(set(want) | set(got), key=str):
        a, b = want.get(k), got.get(k)
        if k[0] == "group" and a and b:
            a, b = filters_named(a), filters_named(b)
        if a != b:
            bad.append(f"{k}:\n  export  {json.dumps(a)}\n  convert {json.dumps(b)}")
    print("\n".join(bad) or f"{len(want)} lines of {len(t) - 1} tasks and {len(groups)} group are equal")
    return len(bad) > 0


if __name__ == "__main__":
    sys.exit(main())
