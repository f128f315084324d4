#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Change one thing of a golden config.json at a time and ask transformers and lf-convert what the
model is then:

    check_configs.py LF_CONVERT [family ...]

Every field of the family's class gets other values, and so do keys of other families, rotary types,
windows and lists of layers. Where transformers loads the golden weights, lf-convert refuses the
config.json or has the same logits; what it takes for another model is printed, and the exit code is
1. About 130 cases a family, a third of a second each. A development tool like make_families.py.
"""
import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from make_families import FAMILIES, HERE, tf  # noqa: E402

ABSENT = ...
# What shapes tensors, and what has to do with no number.
LEFT_OUT = set("""vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size
    n_embd n_layer n_head ffn_dim bos_token_id eos_token_id pad_token_id architectures dtype id2label
    label2id problem_type return_dict output_hidden_states chunk_size_feed_forward use_cache
    is_encoder_decoder output_attentions initializer_range init_std rope_parameters num_experts
    moe_intermediate_size shared_expert_intermediate_size transformers_version
    classifier_dropout""".split())
ACTIVATIONS = ["silu", "gelu", "relu", "gelu_new", "relu2", "quick_gelu"]
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8)
SCALINGS = [dict(type="linear", factor=2.0), dict(rope_type="linear", factor=0.5), YARN,
            dict(YARN, truncate=False), dict(YARN, mscale=1.0, mscale_all_dim=0.5),
            dict(YARN, mscale=2.0), dict(YARN, factor=None),
            dict(YARN, attention_factor=2.0, beta_fast=4, beta_slow=2), dict(YARN, beta_fast=0),
            dict(YARN, original_max_position_embeddings=16384, beta_fast=2),
            dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0),
            dict(rope_type="dynamic", factor=2.0), dict(rope_type="default", factor=2.0),
            dict(rope_type="proportional", factor=2.0),
            dict(rope_type="linear", factor=2.0, partial_rotary_factor=0.5)]


def other_values(key, value):
    if "act" in key and (value is None or isinstance(value, str)):
        return [a for a in ACTIVATIONS if a != value] + [None]
    if isinstance(value, bool):
        return [not value, None]
    if isinstance(value, (int, float)):
        return [0, None, 2 * value if value else 1, 5]
    return [0, True, 2, 5] if value is None else [None]


def patches(base, cls):
    default = cls()
    for key in getattr(cls, "__dataclass_fields__", {}):
        if key in LEFT_OUT or key.startswith("base_model_"):
            continue
        have = base.get(key, getattr(default, key, None))
        yield from ({key: v} for v in other_values(key, have))
        yield {key: ABSENT}
    for theta in (5.0, 123.0):
        yield from ({k: theta} for k in ("rope_theta", "rotary_emb_base", "rope_local_base_freq"))
    yield from ({"partial_rotary_factor": p} for p in (0.5, 1.0))
    yield {"rotary_pct": 1.0}
    for s in SCALINGS:
        yield {"rope_scaling": s}
        yield {"rope_parameters": dict(s, rope_theta=50.0), "rope_scaling": ABSENT}
        yield {"rope_scaling": s, "original_max_position_embeddings": 12}
    layers = base.get("num_hidden_layers", 2)
    yield {"rope_parameters": {k: dict(rope_type="default", rope_theta=t) for k, t in (
        ("full_attention", 50.0), ("sliding_attention", 9.0))}, "rope_scaling": ABSENT}
    for first, rest in ("ss", "ff", "fs", "sf"):
        names = {"s": "sliding_attention", "f": "full_attention"}
        types = [names[first]] + [names[rest]] * (layers - 1)
        yield {"layer_types": types}
        yield {"layer_types": types, "sliding_window": 6, "use_sliding_window": True}
    for w in (1, 4, 0, None):
        yield {"sliding_window": w}
        for n in (0, 1, 28):
            yield {"sliding_window": w, "use_sliding_window": True, "max_window_layers": n}
    for n in (1, 2, 3):
        yield from ({k: n} for k in ("sliding_window_pattern", "_sliding_window_pattern"))
    yield from ({"mlp_only_layers": x} for x in ([0], [1], [0, 1], [5]))
    yield {"decoder_sparse_step": 2}
    for key in ("attn_logit_softcapping", "final_logit_softcapping", "logit_scale", "clip_qkv",
                "query_pre_attn_scalar", "routed_scaling_factor"):
        yield {key: 1.0}
    for act in ("silu", "gelu"):
        yield {"hidden_act": "silu", "hidden_activation": act}
    for key in ("alibi", "qk_norm", "rope_interleaved", "norm_topk_prob", "rotary"):
        yield {key: True}


def logits(folder, ids):
    """None where transformers does not make a model of it."""
    try:
        with torch.no_grad():
            m, info = tf.AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float32, attn_implementation="eager",
                experts_implementation="eager", output_loading_info=True)
            if any(info.get(k) for k in ("missing_keys", "unexpected_keys", "mismatched_keys")):
                return None
            z = m.eval()(input_ids=ids, use_cache=False).logits.double()
    except Exception:
        return None
    return z if torch.isfinite(z).all() else None


def check(program, name, tmp):
    golden = os.path.join(HERE, name)
    base = json.load(open(os.path.join(golden, "config.json")))
    ids = load_file(os.path.join(golden, "expected.safetensors"))["input_ids"]
    cls, counts = type(tf.AutoConfig.from_pretrained(golden)), collections.Counter()
    model, out = os.path.join(tmp, "model"), os.path.join(tmp, "out")
    expected = os.path.join(tmp, "expected.safetensors")
    os.makedirs(model, exist_ok=True)
    shutil.copy(os.path.join(golden, "model.safetensors"), model)
    for patch in patches(base, cls):
        config = {k: v for k, v in dict(base, **patch).items() if v is not ABSENT}
        with open(os.path.join(model, "config.json"), "w") as f:
            json.dump(config, f)
        z = None if config == base else logits(model, ids)
        if z is None:
            continue
        loss = torch.zeros(1, dtype=torch.float64)
        save_file({"input_ids": ids, "logits": z.contiguous(), "loss": loss}, expected,
                  metadata={"format": "lf-expected-1", "family": name, "source": "check"})
        shutil.rmtree(out, ignore_errors=True)
        p = subprocess.run([program, "--threads", "1", "--from", model, "--out", out, "--verify",
                            expected], capture_output=True, text=True)
        what = "another" if "DIFFERENT" in p.stdout else "refused" if p.returncode else "same"
        counts[what] += 1
        if what == "another":
            shown = {k: "absent" if v is ABSENT else v for k, v in patch.items()}
            print(name, json.dumps(shown), p.stderr.strip().splitlines()[-1], flush=True)
    print("%-16s %s" % (name, dict(counts)), flush=True)
    return counts["another"]


def main():
    torch.set_num_threads(1)
    tf.logging.set_verbosity(tf.logging.CRITICAL)
    tf.utils.logging.disable_progress_bar()
    names = sys.argv[2:] or [n for n, c in FAMILIES.items() if "_oracle" not in c]
    with tempfile.TemporaryDirectory() as tmp:
        return 1 if sum(check(sys.argv[1], n, tmp) for n in names) else 0


if __name__ == "__main__":
    sys.exit(main())
