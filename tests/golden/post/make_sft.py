#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make sft/ beside this script: a tiny chat model, conversations, and 20 steps of trl's SFTTrainer on the assistant's turns.

    make_sft.py

A development tool (torch, transformers, trl 1.16, datasets, safetensors, numpy); the build, the program and `make check` never need it.

    config.json, model.safetensors    a hot Qwen2 of two layers, f32, whose vocabulary is that of ../chat/tokenizer.json
    tokenizer_config.json             its chat template: ChatML with the assistant's content and end of turn marked as generated
    rows.jsonl                        conversations of one to three turns
    curves.txt                        step, then loss and gradient norm of: unpacked; packed by best fit into sequences of T tokens; then the
                                      mean entropy of the predictions at trained tokens, unpacked

trl tokenizes, masks (assistant_only_loss), packs and trains by itself, in f64. A step is all rows, so that their order does not count:
one sequence a micro-batch, gradients accumulated over all. Packed and unpacked must agree here to 1e-9, else trl would train across
documents and be no reference.
"""
import json
import os
import sys

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers as tf  # noqa: E402
from datasets import Dataset  # noqa: E402
import trl.kernels.chunked_logprob  # noqa: E402
from trl import SFTConfig, SFTTrainer  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "sft")
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, "..", "families"))
from make_families import Double, heat  # noqa: E402

ROWS, STEPS, T, LR, V = 14, 20, 128, 2e-3, 720
TEMPLATE = """{%- for m in messages %}
{%- if m.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' }}{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}
{%- else %}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}"""
WORDS = "the sea is wide a bird sings where does it go now we see seven ships and one light why not yes no".split()


def rows(rng):
    say = lambda lo, hi: " ".join(rng.choice(WORDS, rng.integers(lo, hi)))  # noqa: E731
    out = []
    for i in range(ROWS):
        m = [{"role": "system", "content": say(2, 5)}] if i % 3 == 0 else []
        for _ in range(1 + i % 3):
            m += [{"role": "user", "content": say(1, 7)}, {"role": "assistant", "content": say(1, 8)}]
        out.append({"messages": m})
    return out


class Trainer(SFTTrainer):
    """Keeps the losses: the log rounds them."""
    losses, norms, sum = None, None, 0.0
    entropies, bits, tokens = None, 0.0, 0

    def training_step(self, model, inputs, *args, **kwargs):
        with torch.no_grad():
            at = inputs["labels"][:, 1:] != -100
            logp = model(**{k: v for k, v in inputs.items() if k != "labels"}).logits[:, :-1].log_softmax(-1)[at]
            self.bits -= (logp.exp() * logp).sum().item()
            self.tokens += at.sum().item()
        loss = super().training_step(model, inputs, *args, **kwargs)
        self.sum += loss.item()
        return loss

    def log(self, logs, *args, **kwargs):
        if "grad_norm" in logs:
            self.losses.append(self.sum)
            self.norms.append(float(logs["grad_norm"]))
            self.entropies.append(self.bits / self.tokens)
            self.sum, self.bits, self.tokens = 0.0, 0.0, 0
        super().log(logs, *args, **kwargs)


def train(data, tok, packing):
    model = tf.AutoModelForCausalLM.from_pretrained(OUT, dtype=torch.float64, attn_implementation="eager")
    bins = 1
    for _ in range(2):  # the first time to count the sequences
        args = SFTConfig(output_dir="/tmp/sft", max_steps=STEPS, per_device_train_batch_size=1, gradient_accumulation_steps=bins, learning_rate=LR,
                         lr_scheduler_type="constant", adam_beta1=0.9, adam_beta2=0.95, adam_epsilon=1e-8, weight_decay=0.1, max_grad_norm=1.0,
                         bf16=False, use_cpu=True, gradient_checkpointing=False, assistant_only_loss=True, max_length=T, packing=packing,
                         logging_steps=1, save_strategy="no", report_to="none", disable_tqdm=True, optim="adamw_torch")
        t = Trainer(model, args, train_dataset=data, processing_class=tok)
        bins = len(t.train_dataset)
    t.losses, t.norms, t.entropies = [], [], []
    double = Double(type(model))
    double.modules.append(sys.modules["trl.kernels.chunked_logprob"])
    with double:
        t.train()
    return t.losses, t.norms, bins, t.entropies


def main():
    os.makedirs(OUT, exist_ok=True)
    tok = tf.PreTrainedTokenizerFast(tokenizer_file=os.path.join(HERE, "..", "chat", "tokenizer.json"), eos_token="<|im_end|>", pad_token="<pad>",
                                     chat_template=TEMPLATE)
    with open(OUT + "/tokenizer_config.json", "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<pad>", "chat_template": TEMPLATE}, f, indent=1)
        f.write("\n")
    c = tf.Qwen2Config(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48, vocab_size=V,
                       max_position_embeddings=128, tie_word_embeddings=True, bos_token_id=None, eos_token_id=tok.eos_token_id)
    model = tf.Qwen2ForCausalLM(c)
    heat(model, 3)
    model.save_pretrained(OUT)
    for name in ("generation_config.json",):
        os.remove(os.path.join(OUT, name))
    data = rows(np.random.default_rng(1))
    with open(OUT + "/rows.jsonl", "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in data)
    got = [train(Dataset.from_list(data), tok, packing) for packing in (False, True)]
    apart = max(abs(a - b) / abs(b) for a, b in zip(got[0][0] + got[0][1], got[1][0] + got[1][1]))
    print("%d rows, %d sequences packed; loss %.4f -> %.4f; packed and unpacked differ by %.2g" % (
        got[0][2], got[1][2], got[0][0][0], got[0][0][-1], apart))
    if apart > 1e-9 or len(got[0][0]) != STEPS:
        sys.exit("no reference")
    with open(OUT + "/curves.txt", "w") as f:
        f.write("# trl %s, transformers %s, torch %s; %d sequences of %d tokens when packed\n" % (
            trl.__version__, tf.__version__, torch.__version__, got[1][2], T))
        for i in range(STEPS):
            f.write("%d %.12g %.12g %.12g %.12g %.12g\n" % (i + 1, got[0][0][i], got[0][1][i], got[1][0][i], got[1][1][i], got[0][3][i]))


main()
