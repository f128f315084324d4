#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make pictures/: tasks with pictures as stages/harness.py exports them, and what hf-multimodal of the harness makes of them.

    make_pictures.py IMAGES MODELS     IMAGES: tests/golden/media/images; MODELS: tests/golden/vlm/run

A development tool (lm_eval 0.4.13, torch, transformers 5.23, torchvision, datasets). chat.jsonl has the requests of a run with the models'
chat template, plain.jsonl those without; NAME-chat.json and NAME-plain.json are the results and samples of model NAME in f32. The harness
refuses log-likelihoods behind pictures ("not yet tested"), so those come from its own encoding of a pair and one pass of the model. Half of
the targets are what a model says, so that scores are neither 0 nor 1.
"""
import io
import json
import os
import sys
import tempfile

import torch
import transformers
from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "stages"))
import harness  # noqa: E402
import lm_eval  # noqa: E402
from lm_eval import evaluator  # noqa: E402
from lm_eval.api.task import ConfigurableTask  # noqa: E402
from lm_eval.models.hf_vlms import HFMultimodalLM  # noqa: E402

if not transformers.__version__.startswith("5.23.") or not lm_eval.__version__.startswith("0.4.13"):
    sys.exit(f"transformers 5.23 and lm_eval 0.4.13 are the reference, not {transformers.__version__} and {lm_eval.__version__}")
IMAGES, MODELS = sys.argv[1:3]
OUT = os.path.join(HERE, "pictures")
NAMES = ["llava", "qwen2.5-vl"]
ONE = [("rgb8.png", "What?"), ("444.jpg", "Which animal?"), ("rgba8.png", "Say."), ("palette-trns.png", "How many dots?"),
       ("grey8.png", "Color?"), ("422.jpg", "Is it red?"), ("la8.png", "A or B?"), ("exif6.jpg", "Up or down?")]
TWO = [("420.jpg", "rgb8.png"), ("rgb8.png", "420.jpg"), ("lossy.webp", "444.jpg"), ("grey8.png", "grey8.png")]


class Seeing(HFMultimodalLM):
    def loglikelihood(self, requests, disable_tqdm=False):
        out = []
        for ctx, cont, more in (r.args for r in requests):
            if not self.chat_applied:
                ctx = ctx.replace("<image>", self.image_token)
            head, tail, _ = self._encode_multimodal_pair(ctx, cont, more["visual"])
            e = self.processor(text=[ctx + cont], images=more["visual"], return_tensors="pt")
            assert e["input_ids"][0].tolist() == head + tail
            with torch.no_grad():
                p = self.model(**e).logits[0].float().log_softmax(-1)[len(head) - 1:-1]
            ids = torch.tensor(tail)
            out.append((float(p.gather(1, ids[:, None]).sum()), bool((p.argmax(-1) == ids).all())))
        return out


def m(name, **kw):
    return {"metric": name, "aggregation": "mean", "higher_is_better": True, **kw}


LETTER = [{"name": "letter", "filter": [{"function": "regex", "regex_pattern": "([A-Za-z])"}, {"function": "take_first"}]},
          {"name": "none", "filter": [{"function": "remove_whitespace"}, {"function": "take_first"}]}]


def tasks(rows, tmp):
    def of(name, **config):
        path = os.path.join(tmp, name + ".jsonl")
        with open(path, "w", encoding="utf-8") as f:
            f.writelines(json.dumps(r) + "\n" for r in rows[name])
        return ConfigurableTask(config={
            "task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": path}}, "test_split": "test",
            "doc_to_image": lambda doc: [Image.open(os.path.join(IMAGES, p)) for p in doc["pictures"]], "metadata": {"version": 1.0},
            **config})

    def gen(n, **kw):
        return dict(output_type="generate_until", doc_to_target="answer", generation_kwargs={"until": ["\n\n", "_"], "max_gen_toks": n}, **kw)

    choice = dict(output_type="multiple_choice", doc_to_target="gold", doc_to_choice="{{choices}}")
    chat = [of("vqa", doc_to_text="<image>{{question}}", metric_list=[m("exact_match")], filter_list=LETTER, **gen(10)),
            of("two_pictures", doc_to_text="First <image> then <image>: {{question}}", metric_list=[m("exact_match", ignore_case=True)],
               filter_list=LETTER, **gen(8)),
            of("shots", doc_to_text="{{question}} <image>", metric_list=[m("exact_match")], num_fewshot=2, **gen(6),
               fewshot_config={"sampler": "first_n", "samples": [{"question": "One?", "answer": "1"}, {"question": "Two?", "answer": "2"}],
                               "doc_to_text": "{{question}}", "doc_to_target": "{{answer}}"}),
            of("letters", doc_to_text="<image>{{question}}", metric_list=[m("acc"), m("acc_norm")], **choice)]
    plain = [of("plain", doc_to_text="Q: <image>{{question}}\nA:", metric_list=[m("exact_match")], **gen(8)),
             of("words", doc_to_text="Q: <image>{{question}}\nA:", metric_list=[m("acc"), m("acc_norm")], **choice)]
    return {"chat": {t.config.task: t for t in chat}, "plain": {t.config.task: t for t in plain}}


def documents():
    def one(a, b):
        return [{"pictures": [p], "question": q, "answer": "?"} for p, q in ONE[a:b]]

    return {"vqa": one(0, 8), "two_pictures": [{"pictures": list(p), "question": "Same?", "answer": "?"} for p in TWO],
            "shots": one(0, 3), "plain": one(2, 6),
            "letters": [{"pictures": [p], "question": "A, B or C?", "choices": ["A", "B", "C"], "gold": i % 3} for i, (p, _) in enumerate(ONE[:5])],
            "words": [{"pictures": [p], "question": q, "choices": ["a cat", "two red dogs", "none"], "gold": i % 3} for i, (p, q) in
                      enumerate(ONE[:4])]}


def evaluate(name, rows, which):
    torch.manual_seed(0)
    lm = Seeing(pretrained=os.path.join(MODELS, name), dtype="float32", device="cpu", batch_size=1, max_length=256)
    with tempfile.TemporaryDirectory() as tmp:
        t = tasks(rows, tmp)[which]
        for x in t.values():
            x.set_fewshot_seed(seed=1234)
        return evaluator.evaluate(lm, {"tasks": t, "groups": {}}, bootstrap_iters=100, log_samples=True, apply_chat_template=which == "chat",
                                  fewshot_as_multiturn=which == "chat")


def answers(rows):
    """Every other document's target is what the first or the second model says."""
    for k, name in enumerate(NAMES):
        for which in ("chat", "plain"):
            for task, samples in evaluate(name, rows, which)["samples"].items():
                for s in samples:
                    if "answer" in rows[task][s["doc_id"]] and s["doc_id"] % 4 == 2 * k:
                        rows[task][s["doc_id"]]["answer"] = s["filtered_resps"][0]


def main():
    rows = documents()
    answers(rows)
    os.makedirs(OUT, exist_ok=True)
    with tempfile.TemporaryDirectory() as tmp:
        for which, t in tasks(rows, tmp).items():
            for x in t.values():
                x.set_fewshot_seed(seed=1234)
            path, text = os.path.join(OUT, which + ".jsonl"), io.StringIO()
            harness.export(t, {}, None, text, {"chat": which == "chat", "multiturn": True,
                                               "pictures": harness.Pictures(os.path.join(OUT, "png"), path)})
            with open(path, "w", encoding="utf-8") as f:
                f.write(text.getvalue())
    for name in NAMES:
        for which in ("chat", "plain"):
            r = evaluate(name, rows, which)
            out = {"results": r["results"], "samples": {}}
            for task, samples in r["samples"].items():
                out["samples"][task] = [{k: s[k] for k in ("doc_id", "filter", "resps", "filtered_resps", "doc_hash", "prompt_hash")}
                                        for s in samples]
            with open(os.path.join(OUT, f"{name}-{which}.json"), "w", encoding="utf-8") as f:
                json.dump(out, f, ensure_ascii=False, sort_keys=True, default=float)
                f.write("\n")
            print(name, which, json.dumps(r["results"], indent=1, default=float))


if __name__ == "__main__":
    main()
