#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the requests of lm-evaluation-harness tasks as JSON lines for `lf-eval --requests`, or convert the samples of an old run.

    harness.py export --tasks arc_easy,gsm8k --out requests.jsonl [--include-path DIR] [--limit N] [--num-fewshot N]
                      [--chat [--fewshot-as-multiturn]] [--pictures DIR]
    harness.py convert --results results.json --out requests.jsonl samples_*.jsonl

Runs where the harness and its data sets are (lm_eval 0.4.13); the machine that evaluates needs neither. `export` walks the Instances that
the harness builds with world_size 1 (few-shot examples are drawn by a generator whose state goes through the documents, so they depend on
the number of ranks), without a model. With --chat it writes messages, which lf-eval gives to the chat template of its tokenizer. Pictures of
a task (doc_to_image) become PNG files in --pictures (OUT.pictures), with the pixels that the harness would give to a model; a text has the
mark <image> for each. `convert` takes what --log_samples wrote and the configs of its results
file, without the harness; a task of which these do not tell everything is left out and said. The form of the lines is described in
engine/infer/tasks.h.
"""
import argparse
import ast
import hashlib
import io
import json
import os
import re
import sys

SUPPORTED = {"acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match", "f1", "mcc", "brier_score", "perplexity", "word_perplexity",
             "byte_perplexity", "bits_per_byte"}
MATCH_OPTIONS = {"regexes_to_ignore", "ignore_case", "ignore_punctuation", "ignore_numbers"}
KIND = {"multiple_choice": "loglikelihood", "loglikelihood": "loglikelihood", "loglikelihood_rolling": "loglikelihood_rolling",
        "generate_until": "generate_until"}
DEFAULT_AGGREGATION = {"perplexity": "perplexity", "word_perplexity": "weighted_perplexity", "byte_perplexity": "weighted_perplexity",
                       "bits_per_byte": "bits_per_byte", "f1": "f1", "mcc": "matthews_corrcoef", "brier_score": "brier_score"}


class Unknown(Exception):
    """What a task or the samples of a run do not tell."""


def note(text):
    print("harness.py: " + text, file=sys.stderr)


def metric_list(task, config):
    """The metrics of a config; what lf-eval does not know is left out and said."""
    out = []
    for m in config.get("metric_list") or []:
        name = m["metric"]
        if name not in SUPPORTED:
            note(f"{task}: the metric {name} is left out")
            continue
        agg = m.get("aggregation") or DEFAULT_AGGREGATION.get(name, "mean")
        if not isinstance(agg, str):
            note(f"{task}: the metric {name} has an aggregation of its own and is left out")
            continue
        e = {"metric": name, "aggregation": agg, "higher_is_better": m.get("higher_is_better", "perplexity" not in name)}
        kwargs = {k: v for k, v in m.items() if k in MATCH_OPTIONS}
        if kwargs:
            e["kwargs"] = kwargs
        out.append(e)
    return out


def filter_list(config):
    out = []
    for f in config.get("filter_list") or [{"name": "none", "filter": [{"function": "take_first"}]}]:
        out.append({"name": f["name"], "steps": [dict(s) for s in f["filter"]]})
    return out


def header(task, config, version, n_shot, original, multiple_target):
    return {"task": task, "output_type": config["output_type"], "version": version, "n_shot": n_shot, "original": original,
            "metrics": metric_list(task, config), "filters": filter_list(config), "multiple_target": multiple_target,
            "config": {k: v for k, v in config.items() if isinstance(v, (str, int, float, bool, type(None)))}}


def gold_of(gold, choices):
    def index(g):
        if isinstance(g, str):
            g = choices.index(g) if g in choices else -100
        return g if isinstance(g, int) and g < len(choices) else -100

    return [index(g) for g in gold] if isinstance(gold, list) else index(gold)


def plain(doc):
    """A document as JSON, or nothing where it is none."""
    try:
        return json.loads(json.dumps(doc))
    except (TypeError, ValueError):
        return None


def seen(doc):
    """A document as JSON, without the members that are none, such as pictures."""
    return {k: v for k, v in doc.items() if plain(v) is not None or v is None} if isinstance(doc, dict) else plain(doc)


def document(task, doc, first, chat):
    """What the results of a document need beside the model's answers."""
    out = {"doc": seen(doc)}
    kind = task.OUTPUT_TYPE
    target = task.doc_to_target(doc)
    if kind == "multiple_choice":
        choices = task.doc_to_choice(doc)
        out["gold"] = gold_of(task.doc_to_text(doc) if task.multiple_input else target, choices)
        out["chars"] = [len(c) for c in choices]
        out["bytes"] = [len(c.encode("utf-8")) for c in choices]
    elif kind == "loglikelihood_rolling":
        weights = task.process_results(doc, (0.0,))  # a task may count the words of another text than it scores
        pair = weights.get("word_perplexity") or (0, len(re.split(r"\s+", target)))
        out["words"] = pair[1]
        out["bytes"] = (weights.get("byte_perplexity") or weights.get("bits_per_byte") or (0, len(target.encode("utf-8"))))[1]
    elif kind == "generate_until":
        text = target if task.config.doc_to_choice is None else task.doc_to_choice(doc)[target]
        out["target"] = [str(t) for t in text] if isinstance(text, list) else str(text)
    from lm_eval.utils import handle_non_serializable, hash_string

    if plain(doc) is not None:  # else the harness hashes where its objects lie in memory
        out["doc_hash"] = hash_string(json.dumps(doc, indent=2, default=handle_non_serializable, ensure_ascii=False))
    if not chat:  # lf-eval hashes what its template makes of messages
        out["prompt_hash"] = hash_string(first.arguments[0])
    out["target_hash"] = hash_string(str(target))
    if kind in ("loglikelihood", "multiple_choice"):
        out["target"] = plain(task.doc_to_target(doc))
    return out


def custom(task):
    """Does the task score answers by code of its own, in a way that cannot be written down?"""
    return callable(task.config.process_results) and task.OUTPUT_TYPE != "loglikelihood_rolling"


MARK = "<image>"  # of the harness, in the texts of a task
PNG_MODES = {"1", "L", "LA", "P", "RGB", "RGBA"}


class Pictures:
    """The files of pictures, which are named by their content, and their paths from where the requests lie."""

    def __init__(self, folder, out):
        self.folder, self.base = folder, os.path.dirname(os.path.abspath(out))

    def path(self, p):
        """A picture as the harness has it: an object of Pillow's. Pillow's objects have no orientation left, and neither has the file."""
        if isinstance(p, str):
            return p
        if not hasattr(p, "save"):
            raise Unknown(f"its pictures are of type {type(p).__name__}, not of Pillow's")
        data = io.BytesIO()
        (p if p.mode in PNG_MODES else p.convert("RGB")).save(data, "png", exif=b"", icc_profile=None)
        os.makedirs(self.folder, exist_ok=True)
        path = os.path.join(self.folder, hashlib.sha256(data.getvalue()).hexdigest()[:16] + ".png")
        with open(path, "wb") as f:
            f.write(data.getvalue())
        return os.path.relpath(path, self.base)


def messages_as_text(history, add_generation_prompt=True):
    """Stands for a chat template: lf-eval's tokenizer has the real one."""
    if not add_generation_prompt:
        raise Unknown("its answers have a beginning (gen_prefix), which messages do not take")
    return json.dumps(history, ensure_ascii=False)


def turns(text, pictures):
    """Messages; where a task has pictures their marks become parts, as hf-multimodal does it."""
    history = json.loads(text)
    for m in history if pictures else []:
        pieces, parts = m["content"].split(MARK), []
        for i, piece in enumerate(pieces):
            parts += [{"type": "image"}] if i else []
            parts += [{"type": "text", "text": piece}] if piece else []
        m["content"] = parts
    return history


def request(name, task, inst, chat, pictures):
    """A request without what stands in the first one alone."""
    q = {"task": name, "doc_id": inst.doc_id, "idx": inst.idx, "kind": KIND[task.OUTPUT_TYPE]}
    more = inst.args[-1] if len(inst.args) > 1 + (task.OUTPUT_TYPE != "loglikelihood_rolling") else {}
    if "audio" in more:
        raise Unknown("it has sounds")
    if chat and inst.args[0] and task.OUTPUT_TYPE != "loglikelihood_rolling":
        q["messages"] = turns(inst.args[0], bool(more))
    else:
        q["ctx"] = inst.args[0]
    if more:
        q["images"] = [pictures.path(p) for p in more["visual"]]
    return q


def export_task(name, task, limit, out, how):
    config = task.dump_config()
    if task.OUTPUT_TYPE not in KIND or custom(task):
        note(f"{name} is left out: {'it scores by code of its own' if task.OUTPUT_TYPE in KIND else task.OUTPUT_TYPE}")
        return False
    head = header(name, {**config, "output_type": task.OUTPUT_TYPE}, task.VERSION, config.get("num_fewshot") or 0, len(task.eval_docs),
                  bool(getattr(task, "multiple_target", 0)))
    head["alias"] = config.get("task_alias") or name
    if not head["metrics"]:
        note(f"{name} is left out: it has no metric that lf-eval knows")
        return False
    chat = how["chat"]
    lines = [head]
    try:
        task.build_all_requests(limit=limit, rank=0, world_size=1, apply_chat_template=chat, fewshot_as_multiturn=how["multiturn"],
                                chat_template=messages_as_text if chat else None)
        for inst in sorted(task.instances, key=lambda i: (i.doc_id, i.idx)):
            q = request(name, task, inst, chat, how["pictures"])
            if task.OUTPUT_TYPE == "generate_until":
                q["gen"] = inst.args[1]
                q["repeats"] = inst.repeats
            elif task.OUTPUT_TYPE != "loglikelihood_rolling":
                q["cont"] = inst.args[1]
            if inst.idx == 0:
                q["doc"] = document(task, inst.doc, inst, chat)
            lines.append(q)
    except Unknown as e:
        note(f"{name} is left out: {e}")
        return False
    for line in lines:
        print(json.dumps(line, ensure_ascii=False), file=out)
    return True


def leaves(group):
    return [t.task_name for t in group.get_all_tasks()]


PLAIN = {"chat": False, "multiturn": False, "pictures": None}


def export(tasks, groups, limit, out, how=PLAIN):
    """tasks: {name: task}; groups: {name: lm_eval.api.group.Group}; how: chat, multiturn, pictures (a Pictures)."""
    done = {n for n, t in tasks.items() if export_task(n, t, limit, out, how)}
    for name, g in groups.items():
        metrics = [{"metric": m.metric, "weight_by_size": m.weight_by_size, "filter_list": m.filter_list}
                   for m in g.aggregate_metric_list or []]
        print(json.dumps({"group": name, "alias": g.alias or name, "tasks": [t for t in leaves(g) if t in done], "metrics": metrics,
                          "version": g.version}), file=out)


def main_export(a):
    from lm_eval.tasks import TaskManager

    loaded = TaskManager(include_path=a.include_path).load(a.tasks.split(","))
    for t in loaded["tasks"].values():
        if a.num_fewshot is not None:
            t.set_config(key="num_fewshot", value=a.num_fewshot)
        t.set_fewshot_seed(seed=1234)
    with open(a.out, "w", encoding="utf-8") as out:
        how = {"chat": a.chat, "multiturn": a.fewshot_as_multiturn, "pictures": Pictures(a.pictures or a.out + ".pictures", a.out)}
        export(loaded["tasks"], loaded["groups"], a.limit, out, how)


def field(template, doc):
    """What doc_to_text or doc_to_target of a config say without the harness: an index, or a field of the document. Else nothing."""
    if isinstance(template, int):
        return template
    m = re.fullmatch(r"(\w+)|\{\{\s*(\w+)\s*\}\}", template) if isinstance(template, str) and isinstance(doc, dict) else None
    if not m or m[m.lastindex] not in doc:
        return None
    v = doc[m[m.lastindex]]
    return v if m[1] else typed(str(v))


def typed(text):
    """The index or list that a rendered template is to the harness."""
    if text.isdigit():
        return int(text)
    if text.startswith("[") and text.endswith("]"):
        try:
            return ast.literal_eval(text)
        except (SyntaxError, ValueError):
            pass
    return text


def target_of(config, s):
    """The target of a document, whose text alone the samples hold."""
    v = config.get("doc_to_target")
    raw = s["doc"].get(v) if isinstance(s["doc"], dict) and isinstance(v, str) else None
    if isinstance(raw, str):  # taken as it is
        return raw
    t = typed(s["target"])
    return s["target"] if isinstance(t, int) and config.get("doc_to_choice") is None else t


def gold_of_input(config, s, n):
    """Where choices differ in what stands before them, the text of a document is the number of the right one."""
    gold = field(config.get("doc_to_text"), s["doc"])
    if isinstance(gold, int):
        return gold
    if "acc" in s and s["filter"] == "none":
        scores = [float(r[0]) for r in s["filtered_resps"][:n]]
        best = scores.index(max(scores))
        if s["acc"] == 1 or n == 2:
            return best if s["acc"] == 1 else 1 - best
    raise Unknown("which choice is right cannot be told")


def converted_choices(config, s, out):
    args = [s["arguments"][f"gen_args_{i}"] for i in range(len(s["arguments"]))]
    n = len(args) // (2 if "acc_mutual_info" in s["metrics"] else 1)
    delimiter, ctx, cont = config.get("target_delimiter", " "), [a["arg_0"] for a in args[:n]], [a["arg_1"] for a in args[:n]]
    if len(set(cont)) == 1 and len(set(ctx)) > 1:
        if config.get("num_fewshot") and {"acc_norm", "acc_bytes"} & set(s["metrics"]):
            raise Unknown("where examples end and a choice begins cannot be told")
        choices = ctx
        out["gold"] = gold_of_input(config, s, n)
        out["target"] = s["target"]
    else:
        if not all(c.startswith(delimiter) for c in cont):
            delimiter = ""  # of a run with a chat template
        choices = [c[len(delimiter):] for c in cont]
        out["gold"] = gold_of(out["target"], choices)
    out["chars"] = [len(c) for c in choices]
    out["bytes"] = [len(c.encode("utf-8")) for c in choices]


def converted_document(config, s):
    kind = config["output_type"]
    out = {"doc": s.get("doc"), "target": target_of(config, s)}
    for k in ("doc_hash", "prompt_hash", "target_hash"):
        if k in s:
            out[k] = s[k]
    if kind == "multiple_choice":
        converted_choices(config, s, out)
    elif kind == "loglikelihood_rolling":
        del out["target"]
        text = s["arguments"]["gen_args_0"]["arg_0"]
        out["words"] = (s.get("word_perplexity") or (0, len(re.split(r"\s+", text))))[1]
        out["bytes"] = (s.get("byte_perplexity") or s.get("bits_per_byte") or (0, len(text.encode("utf-8"))))[1]
    elif kind == "generate_until":
        t = out["target"]
        if config.get("doc_to_choice") is not None:
            choices = field(config["doc_to_choice"], s["doc"]) if isinstance(config["doc_to_choice"], str) else config["doc_to_choice"]
            if not isinstance(choices, list) or not isinstance(t, int):
                raise Unknown("the text of the right choice cannot be told")
            t = choices[t]
        out["target"] = [str(x) for x in t] if isinstance(t, list) else str(t)
    return out


def converted_requests(task, config, samples):
    kind = config["output_type"]
    seen = set()
    for s in sorted(samples, key=lambda s: s["doc_id"]):
        if s["doc_id"] in seen:  # one line for each filter
            continue
        seen.add(s["doc_id"])
        for i in range(len(s["arguments"])):
            args = s["arguments"][f"gen_args_{i}"]
            if "arg_2" in args:
                raise Unknown("its pictures or sounds cannot be told")
            q = {"task": task, "doc_id": s["doc_id"], "idx": i, "kind": KIND[kind], "ctx": args["arg_0"]}
            if kind == "generate_until":
                q["gen"] = args["arg_1"]
                q["repeats"] = config.get("repeats") or 1
            elif kind != "loglikelihood_rolling":
                q["cont"] = args["arg_1"]
            if i == 0:
                q["doc"] = converted_document(config, s)
            yield q


def convert_task(task, results, samples, out):
    config = results["configs"][task]
    kind = config["output_type"]
    if kind not in KIND or (config.get("process_results") and kind != "loglikelihood_rolling"):
        note(f"{task} is left out: {'it scores by code of its own' if kind in KIND else kind}")
        return False
    count = results.get("n-samples", {}).get(task, {}).get("original", len({s["doc_id"] for s in samples}))
    head = header(task, config, results["versions"].get(task), config.get("num_fewshot") or 0, count, False)
    head["alias"] = config.get("task_alias") or task
    if not head["metrics"]:
        note(f"{task} is left out: it has no metric that lf-eval knows")
        return False
    try:
        requests = list(converted_requests(task, config, samples))
    except Unknown as e:
        note(f"{task} is left out: {e} from samples alone; export it")
        return False
    head["multiple_target"] = bool(requests) and isinstance(requests[0]["doc"].get("target"), list)
    for line in [head] + requests:
        print(json.dumps(line, ensure_ascii=False), file=out)
    return True


def members(results, name):
    """The tasks of a group and of the groups in it."""
    below = results["group_subtasks"].get(name)
    return [name] if below is None else [t for n in below for t in members(results, n)]


def by_size(results, group, metric):
    """Was a group's mean weighted by documents? A results file does not say it: the mean that it has does."""
    tasks = [t for t in members(results, group) if metric in results["results"].get(t, {})]
    values = [results["results"][t][metric] for t in tasks]
    sizes = [results["n-samples"][t]["effective"] for t in tasks]
    mean = results["groups"][group][metric]
    return abs(mean - sum(v * n for v, n in zip(values, sizes)) / sum(sizes)) <= abs(mean - sum(values) / len(values))


def convert_groups(results, done, out):
    for name, values in results.get("groups", {}).items():
        metrics = {}
        for key in values:
            metric, _, filt = key.partition(",")
            if filt and "_stderr" not in metric:
                metrics.setdefault((metric, by_size(results, name, key)), []).append(filt)
        kept = [t for t in members(results, name) if t in done]
        if kept and metrics:
            rows = [{"metric": m, "weight_by_size": w, "filter_list": f} for (m, w), f in metrics.items()]
            print(json.dumps({"group": name, "alias": values.get("alias") or name, "tasks": kept, "metrics": rows,
                              "version": results["versions"].get(name)}), file=out)


def main_convert(a):
    with open(a.results, encoding="utf-8") as f:
        results = json.load(f)
    done = set()
    with open(a.out, "w", encoding="utf-8") as out:
        for path in a.samples:
            name = re.sub(r".*samples_|(_\d{4}-\d\d-\d\dT.*)?\.jsonl$", "", path)
            if name not in results["configs"]:
                sys.exit(f"harness.py: {path}: {a.results} has no task '{name}'")
            with open(path, encoding="utf-8") as f:
                samples = [json.loads(line) for line in f]
            if convert_task(name, results, samples, out):
                done.add(name)
        convert_groups(results, done, out)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = p.add_subparsers(dest="what", required=True)
    e = sub.add_parser("export")
    e.add_argument("--tasks", required=True)
    e.add_argument("--out", required=True)
    e.add_argument("--include-path")
    e.add_argument("--limit", type=int)
    e.add_argument("--num-fewshot", type=int)
    e.add_argument("--chat", action="store_true")
    e.add_argument("--fewshot-as-multiturn", action="store_true")
    e.add_argument("--pictures", metavar="DIR")
    c = sub.add_parser("convert")
    c.add_argument("--results", required=True)
    c.add_argument("--out", required=True)
    c.add_argument("samples", nargs="+")
    a = p.parse_args()
    main_export(a) if a.what == "export" else main_convert(a)


if __name__ == "__main__":
    main()
