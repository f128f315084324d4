#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the golden files of this folder: model/ (a tiny hot Llama and its tokenizer), requests.jsonl, golden.json.

A development tool (lm_eval 0.4.13, torch, transformers, tokenizers, datasets). The harness itself runs its HFLM over the model in f32 on
tasks of the shape of arc_easy, hellaswag, lambada, wikitext and gsm8k over texts made here, with a group; golden.json has its results, the
log-likelihood and flag of every request, and every generated and filtered text. requests.jsonl is what stages/harness.py exports of the
same tasks.
"""
import io
import json
import os
import random
import sys
import tempfile

import tokenizers
import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "stages"))
import harness  # noqa: E402
from lm_eval import evaluator  # noqa: E402
from lm_eval.api.group import Group  # noqa: E402
from lm_eval.api.task import ConfigurableTask  # noqa: E402
from lm_eval.config.group import AggMetricConfig  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402

CONTEXT, V = 96, 384
WORDS = "the a small house river light of under stone moves slowly bright water and to in old tree green bird sings café naïve".split()


def sentence(rng, n):
    return " ".join(rng.choice(WORDS) for _ in range(n))


def make_tokenizer(rng, out):
    t = tokenizers.Tokenizer(tokenizers.models.BPE())
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = tokenizers.decoders.ByteLevel()
    text = [sentence(rng, 200) + ". Question: How many? Answer: #### 12 34 $5.00, 1,234" for _ in range(20)]
    t.train_from_iterator(text, tokenizers.trainers.BpeTrainer(
        vocab_size=V, special_tokens=["<|end|>", "<|begin|>"], initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    t.post_processor = tokenizers.processors.TemplateProcessing(single="<|begin|> $A", pair="<|begin|> $A $B",
                                                                special_tokens=[("<|begin|>", 1)])
    f = transformers.PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<|begin|>", eos_token="<|end|>",
                                             model_max_length=CONTEXT)
    f.save_pretrained(out)
    return f


def make_model(out):
    torch.manual_seed(7)
    c = transformers.LlamaConfig(vocab_size=V, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                                 num_key_value_heads=2, max_position_embeddings=CONTEXT, bos_token_id=1, eos_token_id=0,
                                 tie_word_embeddings=False)
    m = transformers.LlamaForCausalLM(c).eval()
    with torch.no_grad():
        for n, p in m.named_parameters():
            if p.dim() == 2:
                p.normal_(0, 1.0 if "embed" in n else 1.6 / p.shape[1] ** 0.5)
            p.copy_(p.bfloat16().float())  # stored in two bytes, computed in four
    m.bfloat16().save_pretrained(out)
    return transformers.LlamaForCausalLM.from_pretrained(out, dtype=torch.float32).eval()  # its rotary table is not rounded


def write(path, rows):
    with open(path, "w", encoding="utf-8") as f:
        for r in rows:
            f.write(json.dumps(r, ensure_ascii=False) + "\n")


def tasks(rng, tmp):
    def of(name, rows, **config):
        path = os.path.join(tmp, name + ".jsonl")
        write(path, rows)
        return ConfigurableTask(config={"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": path, "train": path}},
                                        "test_split": "test", "metadata": {"version": 1.0}, **config})

    def m(name, agg="mean", up=True, **kw):
        return {"metric": name, "aggregation": agg, "higher_is_better": up, **kw}

    arc = [{"question": sentence(rng, rng.randint(3, 30)), "choices": {"text": [sentence(rng, rng.randint(1, 6)) for _ in range(4)]},
            "answerKey": rng.randrange(4)} for _ in range(14)]
    one = [{"question": sentence(rng, rng.randint(20, 50)), "answerKey": rng.randrange(4)} for _ in range(10)]  # choices of one token
    two = [{"question": sentence(rng, 5), "answerKey": rng.randrange(2)} for _ in range(15)]
    swag = [{"query": sentence(rng, rng.randint(5, 40)) + rng.choice(["", " ", "  "]), "endings": [sentence(rng, rng.randint(2, 12))
             for _ in range(4)], "label": rng.randrange(4)} for _ in range(12)]
    lam = [{"text": sentence(rng, rng.randint(4, 90))} for _ in range(20)]
    wiki = [{"page": " = Title = \n\n " + sentence(rng, rng.randint(20, 260)) + " @-@ end . \n"} for _ in range(6)]
    gsm = [{"question": sentence(rng, rng.randint(3, 14)) + "?", "answer": f"{sentence(rng, 3)}\n#### {rng.choice(['1,234', '7', '$5.00'])}"}
           for _ in range(9)]
    t = [
        of("arc_easy", arc, output_type="multiple_choice", doc_to_text="Question: {{question}}\nAnswer:", doc_to_target="{{answerKey}}",
           doc_to_choice="{{choices.text}}", metric_list=[m("acc"), m("acc_norm"), m("acc_bytes"), m("brier_score", "brier_score", False)]),
        of("letters", one, output_type="multiple_choice", doc_to_text="{{question}}\nAnswer:", doc_to_target="{{answerKey}}",
           doc_to_choice=["A", "B", "C", "D"], metric_list=[m("acc"), m("mcc", "matthews_corrcoef"), m("exact_match"), m("acc_mutual_info")]),
        of("pairs", two, output_type="multiple_choice", doc_to_text="{{question}}", doc_to_target="{{answerKey}}", doc_to_choice=["no", "yes"],
           num_fewshot=2, fewshot_split="train", metric_list=[m("acc"), m("f1", "f1")]),
        of("hellaswag", swag, output_type="multiple_choice", doc_to_text="{{query}}", doc_to_target="{{label}}", doc_to_choice="{{endings}}",
           metric_list=[m("acc"), m("acc_norm")]),
        of("lambada", lam, output_type="loglikelihood", doc_to_text="{{text.split(' ')[:-1]|join(' ')}}",
           doc_to_target="{{' '+text.split(' ')[-1]}}", metric_list=[m("perplexity", "perplexity", False), m("acc")]),
        of("wikitext", wiki, output_type="loglikelihood_rolling", doc_to_text="", doc_to_target="{{page}}",
           metric_list=[m("word_perplexity", "weighted_perplexity", False), m("byte_perplexity", "weighted_perplexity", False),
                        m("bits_per_byte", "bits_per_byte", False)]),
        of("gsm8k", gsm, output_type="generate_until", doc_to_text="Question: {{question}}\nAnswer:", doc_to_target="{{answer}}",
           num_fewshot=2, fewshot_split="train", generation_kwargs={"until": ["Question:", "bird", "\n\n"], "do_sample": False,
                                                                    "temperature": 0.0, "max_gen_toks": 24},
           metric_list=[m("exact_match", ignore_case=True, ignore_punctuation=False, regexes_to_ignore=[",", "\\$", "(?s).*#### ", "\\.$"])],
           filter_list=[{"name": "strict-match", "filter": [{"function": "regex", "regex_pattern": "#### (\\-?[0-9\\.\\,]+)"},
                                                            {"function": "take_first"}]},
                        {"name": "flexible-extract", "filter": [{"function": "regex", "group_select": -1,
                                                                 "regex_pattern": "(-?[$0-9.,]{2,})|(-?[0-9]+)"}, {"function": "take_first"}]},
                        {"name": "words", "filter": [{"function": "regex", "group_select": 0, "regex_pattern": "([a-z]+) ?([a-z]*)"},
                                                     {"function": "lowercase"}, {"function": "take_first"}]}]),
    ]
    group = Group("choices", alias="multiple choice", aggregate_metric_list=[AggMetricConfig(metric="acc", weight_by_size=True),
                                                                            AggMetricConfig(metric="acc_norm", weight_by_size=False)],
                  metadata={"version": 2})
    for k in (0, 1, 3):
        group.add(t[k])
    return {x.config.task: x for x in t}, {"choices": group}


def main():
    rng = random.Random(3)
    model_dir = os.path.join(HERE, "model")
    tok, model = make_tokenizer(rng, model_dir), make_model(model_dir)
    with tempfile.TemporaryDirectory() as tmp:
        os.environ["HF_DATASETS_CACHE"] = tmp
        t, groups = tasks(rng, tmp)
        for x in t.values():
            x.set_fewshot_seed(seed=1234)
        text = io.StringIO()
        harness.export(t, groups, None, text)
        with open(os.path.join(HERE, "requests.jsonl"), "w", encoding="utf-8") as f:
            f.write(text.getvalue())
        for x in t.values():
            x.set_fewshot_seed(seed=1234)
        lm = HFLM(pretrained=model, tokenizer=tok, backend="causal", max_length=CONTEXT, batch_size=1, device="cpu")
        os.environ["DISABLE_MULTIPROC"] = "1"
        r = evaluator.evaluate(lm, {"tasks": t, "groups": groups}, bootstrap_iters=2000, log_samples=True)
    out = {"results": r["results"], "groups": r.get("groups"), "samples": {}}
    for name, samples in r["samples"].items():
        out["samples"][name] = [{"doc_id": s["doc_id"], "filter": s["filter"], "resps": s["resps"], "filtered_resps": s["filtered_resps"],
                                 "doc_hash": s["doc_hash"], "prompt_hash": s["prompt_hash"]} for s in samples]
    with open(os.path.join(HERE, "golden.json"), "w", encoding="utf-8") as f:
        json.dump(out, f, ensure_ascii=False, sort_keys=True, default=float)
        f.write("\n")
    print(json.dumps(r["results"], indent=1, default=float))


if __name__ == "__main__":
    main()
