#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The TRL side of `make bench-post`: SFTTrainer and GRPOTrainer on the CPU, and the model and data that both sides have.

    post_peer.py make DIR
    post_peer.py sft|grpo DIR f32|bf16 eager|compile THREADS [KEY=VALUE ..]

make writes DIR/model (a Llama of ten million parameters in the proportions of Llama 3, random, with a byte-level BPE of 8,192 entries trained on the sources that this
script lies among), DIR/sft.jsonl and DIR/prompts.jsonl. The others train, and take turns: each line N on standard input lets N optimizer
steps pass, answered by a JSON line with their wall and CPU seconds and the tokens they processed (sft: of the packed sequences without
padding; grpo: of the completions). What costs time and is not asked for is off: checkpointing of activations, saving, reports to services.

SETTINGS are those found best here by trying (README.md tells what else was tried); KEY=VALUE changes one. bf16 is what TRL
has by default: autocast over f32 weights.
"""
import glob
import json
import os
import random
import sys
import time

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TRANSFORMERS_VERBOSITY="error")

HERE = os.path.dirname(os.path.abspath(__file__))
PINNED = {"torch": "2.15", "trl": "1.16", "transformers": "5.23"}
VOCAB, END = 8192, "<|end|>"
# What both sides do; post_bench.py has the same for ours.
SEQ, BATCH, LR = 512, 4, 1e-4
PROMPT_WORDS, GROUP = 8, 8
# Prompts of a step, tokens of a completion: TRL's defaults (one group of 8, 256 tokens), and many short ones.
SHAPES = {"small": (1, 256), "large": (8, 64)}
SETTINGS = {"sft": {"packing": "bfd", "micro": 1}, "grpo": {"shape": "small", "micro": 0, "cache": "", "paged": 0, "compile_generation": 0}}


def words():
    text = ""
    for pattern in ("../../*.md", "../../*/*.md", "../../*/*/*.md", "../../engine/*/*.h", "../../engine/*/*.c", "../../stages/*.c"):
        for path in sorted(glob.glob(os.path.join(HERE, pattern))):
            with open(path, encoding="utf-8") as f:
                text += f.read()
    return text


def make(out):
    import torch
    import transformers as tf
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    text = words()
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(text.splitlines(keepends=True), trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=[END], show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    if tok.get_vocab_size() != VOCAB:
        sys.exit("post_peer: the text gave only %d entries" % tok.get_vocab_size())
    fast = tf.PreTrainedTokenizerFast(tokenizer_object=tok, eos_token=END, pad_token=END)
    torch.manual_seed(0)
    model = tf.LlamaForCausalLM(tf.LlamaConfig(
        hidden_size=256, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=2, intermediate_size=688, vocab_size=VOCAB,
        max_position_embeddings=1024, tie_word_embeddings=False, bos_token_id=None, eos_token_id=0, pad_token_id=0))
    model.save_pretrained(out + "/model")
    fast.save_pretrained(out + "/model")
    print("%.1f million parameters" % (sum(p.numel() for p in model.parameters()) / 1e6))
    rng, all_words = random.Random(1), text.split()

    def take(n):
        at = rng.randrange(len(all_words) - n)
        return " ".join(all_words[at:at + n])

    with open(out + "/sft.jsonl", "w", encoding="utf-8") as f:  # lengths as chats have them: most short, a few long
        for _ in range(3000):
            row = {"prompt": take(rng.randint(4, 20)) + "\n", "completion": take(min(120, int(rng.lognormvariate(3, 0.8)) + 2))}
            f.write(json.dumps(row) + "\n")
    with open(out + "/prompts.jsonl", "w", encoding="utf-8") as f:
        for _ in range(512):
            f.write(json.dumps({"prompt": take(PROMPT_WORDS) + "\n"}) + "\n")


class Turns:
    """Blocks the trainer until the driver asks for more steps."""

    def __init__(self):
        self.left, self.tokens, self.begun = 0, 0, None

    def wait(self):
        line = sys.stdin.readline()
        if not line.strip():
            os._exit(0)
        self.asked = self.left = int(line)
        self.tokens, self.begun = 0, (time.perf_counter(), time.process_time())

    def step(self):
        self.left -= 1
        if self.left > 0:
            return
        wall, cpu = time.perf_counter() - self.begun[0], time.process_time() - self.begun[1]
        print(json.dumps({"steps": self.asked, "wall": wall, "cpu": cpu, "tokens": self.tokens}), flush=True)
        self.wait()


def callback(turns):
    import transformers as tf

    class Callback(tf.TrainerCallback):
        def on_train_begin(self, *args, **kwargs):
            turns.wait()

        def on_step_end(self, *args, **kwargs):
            turns.step()
    return Callback()


def common(out, prec, how, steps=1000000):
    return dict(output_dir=out + "/trainer", max_steps=steps, learning_rate=LR, lr_scheduler_type="constant", adam_beta2=0.95, weight_decay=0.1,
                max_grad_norm=1.0, bf16=prec == "bf16", use_cpu=True, torch_compile=how == "compile", gradient_checkpointing=False,
                save_strategy="no", logging_strategy="no", report_to="none", disable_tqdm=True, seed=1)


def load(out):
    import transformers as tf
    model = tf.AutoModelForCausalLM.from_pretrained(out + "/model", dtype="float32", attn_implementation="sdpa")
    return model, tf.AutoTokenizer.from_pretrained(out + "/model")


def sft(out, prec, how, set):
    from datasets import load_dataset
    from trl import SFTConfig, SFTTrainer
    model, tok = load(out)
    micro, turns = int(set["micro"]), Turns()
    args = SFTConfig(**common(out, prec, how), max_length=SEQ, packing=True, packing_strategy=set["packing"],
                     per_device_train_batch_size=micro, gradient_accumulation_steps=BATCH // micro)
    data = load_dataset("json", data_files=out + "/sft.jsonl", split="train", cache_dir=out + "/cache")
    trainer = SFTTrainer(model, args, train_dataset=data, processing_class=tok, callbacks=[callback(turns)])
    collate = trainer.data_collator

    def counted(rows):
        batch = collate(rows)
        turns.tokens += batch["input_ids"].numel()
        return batch
    trainer.data_collator = counted
    trainer.train()


def grpo(out, prec, how, set):
    from datasets import load_dataset
    from trl import GRPOConfig, GRPOTrainer
    model, tok = load(out)
    turns = Turns()

    def reward(completions, completion_ids, **kwargs):
        turns.tokens += sum(len(c) for c in completion_ids)
        return [float(c.startswith(" ")) for c in completions]
    prompts, new = SHAPES[set["shape"]]
    n = prompts * GROUP
    micro = int(set["micro"]) or min(n, 16)
    more = {}
    if set["cache"]:
        more["cache_implementation"] = set["cache"]
    if int(set["compile_generation"]):
        import transformers as tf
        config = tf.CompileConfig(fullgraph=False, mode="default")
        config._compile_all_devices = True
        more["generation_kwargs"] = {"compile_config": config}
    args = GRPOConfig(**common(out, prec, how), per_device_train_batch_size=micro, gradient_accumulation_steps=n // micro, num_generations=GROUP,
                      max_completion_length=new, temperature=1.0, top_p=1.0, top_k=0, beta=0.0, loss_type="grpo",
                      use_transformers_continuous_batching=bool(int(set["paged"])), **more)
    data = load_dataset("json", data_files=out + "/prompts.jsonl", split="train", cache_dir=out + "/cache")
    GRPOTrainer(model, reward, args=args, train_dataset=data, processing_class=tok, callbacks=[callback(turns)]).train()


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "make":
        return make(sys.argv[2])
    if len(sys.argv) < 6 or sys.argv[1] not in SETTINGS:
        sys.exit(__doc__)
    what, out, prec, how, threads = sys.argv[1:6]
    import torch
    import transformers
    import trl
    torch.set_num_threads(int(threads))
    for module in (torch, trl, transformers):
        if not module.__version__.startswith(PINNED[module.__name__] + "."):
            print("post_peer: %s is %s, the script was written for %s" % (module.__name__, module.__version__, PINNED[module.__name__]), file=sys.stderr)
    settings = dict(SETTINGS[what])
    settings.update(kv.split("=", 1) for kv in sys.argv[6:])
    {"sft": sft, "grpo": grpo}[what](out, prec, how, settings)


main()
