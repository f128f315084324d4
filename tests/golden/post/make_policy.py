#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make policy/ beside this script: a tiny policy and a tiny critic as transformers publishes them, rounds of completions with their
scores, and what 20 updates of each policy-gradient algorithm do to them.

    make_policy.py

A development tool (torch, transformers, trl, accelerate, safetensors, numpy); the build, the program and `make check` never need it.

    config.json, model.safetensors  a Qwen2ForCausalLM, f32;   critic/: a Qwen2ForSequenceClassification of one label
    grad-KIND/, grad-critic/        gradients of the first update, unclipped, under the names of the weights: imported by the same rows
    expected.safetensors            ROUNDS rounds of N sequences, in groups of GROUP:
        tokens i64                      all sequences one after the other (prompt, then completion)
        lengths, prompts, ended i64     [ROUNDS N] tokens of a sequence and of its prompt; is its last token the end token
        score f64                       [ROUNDS N]
        KIND.old f32                    per token of the completions: log-probability of the policy that stands for the generator: the one
                                        that is trained, as it was before the round, plus noise, so that ratios leave their bounds
        KIND.advantage f64              per token of the completions
        KIND.COLUMN f64                 [20] of each update, EPOCHS of a round, all sequences in each: loss (all of it), norm, entropy,
                                        clip (share of tokens that a bound decided, not for ratios of sequences), kl (mean over tokens)
        ppo-ptx.ptx f64                 [20] mean loss of a token of all prompts, which are mixed in as plain text with coefficient PTX
        ppo.value, ppo.value_norm, ppo.value_clip, ppo.approx_kl;  ppo.kl, ppo.beta of each round
        named.*                         what a peer has otherwise, see below

grpo, rloo, dapo, dr-grpo and gspo are trl's own GRPOTrainer and RLOOTrainer: advantages by _generate_and_score_completions, losses by
_compute_loss, on log-probabilities and entropies that transformers' logits give; only generating is replaced by the stored rounds. ppo is
ppo_reference.py. All in f64, with hot weights (see ../families/make_families.py, from where they come).

Where we differ on purpose, the peer's number stands beside ours, and the test shows that they are apart:
    named.bnpo          trl's loss "bnpo" of the first update in two micro-batches: a mean of means of tokens, which depends on how the
                        batch was cut; named.dapo is the same loss over all tokens
    named.whiten        advantages of the first round of ppo, whitened in each half of the batch, as trl's ranks did
    named.approx_kl     approximate KL of the last update of ppo over padding too
"""
import collections
import os
import shutil
import sys
import types

import numpy as np
import torch
import transformers as tf
import trl
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, "..", "families"))
import ppo_reference as ppo  # noqa: E402
from make_families import ADAM, Double, heat  # noqa: E402

OUT = os.path.join(HERE, "policy")
ROUNDS, GROUP, PROMPTS, EPOCHS, LR, PAD, EOS, V, LONGEST = 5, 4, 4, 4, 1e-3, 1, 2, 48, 10
N = GROUP * PROMPTS
SHAPE = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, intermediate_size=24, vocab_size=V,
             max_position_embeddings=64, tie_word_embeddings=False, pad_token_id=PAD, bos_token_id=None, eos_token_id=EOS)
# Settings of trl; `noise`: deviation of the generator's log-probabilities.
KINDS = {
    "grpo": dict(loss_type="grpo", beta=0.05, low=0.2, high=0.2, noise=0.15),
    "dapo": dict(loss_type="dapo", beta=0.0, low=0.2, high=0.28, noise=0.15, delta=1.4, entropy=0.02),
    "dr-grpo": dict(loss_type="dr_grpo", beta=0.0, low=0.2, high=0.2, noise=0.15, scale="none"),
    "gspo": dict(loss_type="grpo", beta=0.0, low=3e-2, high=4e-2, noise=0.05, level="sequence"),
    "rloo": dict(beta=0.05, low=0.2, high=0.2, noise=0.05),
}
PPO = dict(temperature=0.8, gamma=0.98, lam=0.95, low=0.2, high=0.25, dual=1.3, value_clip=0.2, penalty=0.4, clip=1.1, beta=0.1, target=1.0,
           horizon=100.0, critic_lr=2e-3, noise=0.15)
PTX = 0.7


class Rounds:
    def __init__(self):
        rng = np.random.default_rng(7)
        self.prompt, self.answer, self.ended, self.score = [], [], [], []
        for _ in range(ROUNDS * PROMPTS):
            prompt = rng.integers(3, V, rng.integers(2, 7))
            for _ in range(GROUP):
                n = int(rng.integers(1, LONGEST + 1))
                answer = rng.integers(3, V, n)
                ended = n < LONGEST or rng.random() < 0.5
                if ended:
                    answer[-1] = EOS
                self.prompt.append(prompt)
                self.answer.append(answer)
                self.ended.append(int(ended))
        self.score = rng.normal(0, 1, ROUNDS * N)
        self.score[GROUP:2 * GROUP] = 0.25  # a group that teaches nothing
        self.noise = [rng.normal(0, 1, len(a)) for a in self.answer]

    def of(self, r):
        return range(r * N, (r + 1) * N)


def batch_of(data, seqs):
    """Ids of prompts padded on the left and of answers padded on the right, as trl has them."""
    p, a = max(len(data.prompt[i]) for i in seqs), max(len(data.answer[i]) for i in seqs)
    ids, seen = torch.full((len(seqs), p + a), PAD), torch.zeros(len(seqs), p + a, dtype=torch.long)
    for k, i in enumerate(seqs):
        n, m = len(data.prompt[i]), len(data.answer[i])
        ids[k, p - n:p], ids[k, p:p + m] = torch.from_numpy(data.prompt[i]), torch.from_numpy(data.answer[i])
        seen[k, p - n:p + m] = 1
    return ids, seen, a


def positions(seen):
    return (seen.cumsum(1) - 1).clamp(min=0)


def of_tokens(model, ids, seen, keep, temperature=1.0):
    """Log-probabilities and entropies of the last `keep` tokens."""
    logits = model(input_ids=ids, attention_mask=seen, position_ids=positions(seen), use_cache=False).logits[:, :-1] / temperature
    logp = logits.log_softmax(-1)
    return logp.gather(2, ids[:, 1:, None])[:, -keep:, 0], -(logp.exp() * logp).sum(-1)[:, -keep:]


def flat(padded, data, seqs):
    return [padded[k, :len(data.answer[i])] for k, i in enumerate(seqs)]


def optimizer(model, lr):
    params = list(model.parameters())
    groups = [dict(params=[p for p in params if p.dim() >= 2], weight_decay=ADAM["weight_decay"]),
              dict(params=[p for p in params if p.dim() < 2], weight_decay=0.0)]
    return torch.optim.AdamW(groups, lr=lr, betas=(ADAM["beta1"], ADAM["beta2"]), eps=ADAM["eps"])


def gradients(model, name):
    """Those of the first update, as files of a model."""
    d = os.path.join(OUT, "grad-" + name)
    if os.path.exists(d):
        return
    os.makedirs(d)
    save_file({n: p.grad.detach().to(torch.float32).clone() for n, p in model.named_parameters()}, os.path.join(d, "model.safetensors"),
              metadata={"format": "pt"})


def finish(model, opt, loss, name):
    opt.zero_grad()
    loss.backward()
    gradients(model, name)
    norm = float(torch.nn.utils.clip_grad_norm_(list(model.parameters()), ADAM["clip"]))
    opt.step()
    return norm


# ---- trl ----

def replay_of(cls):
    """A trainer of trl that takes completions from here and runs no loop of its own."""
    class Replay(cls):
        def __init__(self, model, ref, o, data):
            one = types.SimpleNamespace(device=torch.device("cpu"), num_processes=1, process_index=0, sync_gradients=True,
                                        gather=lambda x: x, gather_for_metrics=lambda x: x, reduce=lambda x, reduction: x)
            metrics = collections.defaultdict(lambda: collections.defaultdict(list))
            logs = {k: [] for k in ("prompt", "completion", "advantages")}
            logs.update(rewards=collections.defaultdict(list), extra=collections.defaultdict(list))
            self.__dict__.update(
                accelerator=one, model=model, ref_model=ref, data=data, beta=o["beta"], epsilon_low=o["low"], epsilon_high=o["high"],
                loss_type=o.get("loss_type"), importance_sampling_level=o.get("level", "token"), scale_rewards=o.get("scale", "group"),
                multi_objective_aggregation="sum_then_normalize", num_generations=GROUP, num_iterations=EPOCHS, reward_weights=torch.ones(1),
                reward_funcs=[None], reward_func_names=["score"], reward_clip_range=None, normalize_advantages=False,
                max_completion_length=LONGEST, entropy_coef=o.get("entropy", 0.0), _entropy_bonus_enabled=o.get("entropy", 0) > 0,
                use_adaptive_entropy=False, aux_loss_enabled=False, top_entropy_quantile=1.0, off_policy_mask_threshold=None, use_vllm=False,
                vllm_importance_sampling_correction=False, mask_truncated_completions=False, current_gradient_accumulation_steps=1,
                environment_factories=None, environments=None, tools=None, _is_vlm=False, log_multimodal=False, pad_to_multiple_of=None,
                _tokenizer=types.SimpleNamespace(pad_token_id=PAD), _metrics=metrics, _logs=logs, _pending_extra_logs={}, _pending_metrics={},
                args=types.SimpleNamespace(per_device_train_batch_size=N, steps_per_generation=1, gradient_accumulation_steps=1,
                                           gradient_checkpointing_kwargs=None, use_bias_correction_kl=False, delta=o.get("delta")))

        def _generate(self, prompts):
            p, a = [self.data.prompt[i].tolist() for i in prompts], [self.data.answer[i].tolist() for i in prompts]
            return (p, a, a) if cls is trl.RLOOTrainer else (p, a, None, a, None, {}, None, None)

        def _calculate_rewards(self, inputs, prompts, completions, ids):
            return torch.from_numpy(self.data.score[list(prompts)])[:, None]

        def _get_per_token_logps_and_entropies(self, model, ids, seen, keep, *_, **__):
            """Outside of a gradient the policy is the generator: its stored log-probabilities."""
            if model is self.model and not torch.is_grad_enabled():
                return self.old, None, None
            return (*of_tokens(model, ids, seen, keep), None)

        @property
        def num_items(self):
            return sum(len(self.data.answer[i]) for i in self.seqs)

        def round(self, r):
            self.seqs = list(self.data.of(r))
            ids, seen, keep = batch_of(self.data, self.seqs)
            with torch.no_grad():
                self.old = of_tokens(self.model, ids, seen, keep)[0]
            for k, i in enumerate(self.seqs):  # as a file of rollouts holds them
                x = self.old[k, :len(self.data.answer[i])]
                self.old[k, :len(x)] = (x + self.sigma * torch.from_numpy(self.data.noise[i])).to(torch.float32).double()
            self.batch = self._generate_and_score_completions([{"prompt": i} for i in self.seqs])
            self.batch["num_items_in_batch"] = torch.tensor(self.num_items)
            if cls is trl.GRPOTrainer:
                self.batch["old_per_token_logps"] = self.old

    return Replay


def train_trl(model, ref, kind, data, out):
    o = KINDS[kind]
    t = replay_of(trl.RLOOTrainer if kind == "rloo" else trl.GRPOTrainer)(model, ref, o, data)
    t.sigma = o["noise"]
    opt, old, adv, rows = optimizer(model, LR), [], [], collections.defaultdict(list)
    for r in range(ROUNDS):
        t.round(r)
        old += flat(t.old, data, t.seqs)
        adv += [t.batch["advantages"][k].expand(len(data.answer[i])) for k, i in enumerate(t.seqs)]
        for _ in range(EPOCHS):
            if kind == "dapo" and not rows:
                named_bnpo(t, out)
            loss = t._compute_loss(model, t.batch)
            rows["norm"].append(finish(model, opt, loss, kind))
            rows["loss"].append(loss.item())
            m = t._metrics["train"]
            rows["entropy"].append(m["entropy"][-1])
            if kind not in ("gspo", "rloo"):
                rows["clip"].append(m["clip_ratio/region_mean"][-1])
            if kind == "grpo":
                rows["kl"].append(m["kl"][-1])
    out[kind + ".old"], out[kind + ".advantage"] = torch.cat(old).to(torch.float32), torch.cat(adv).double()
    out.update({"%s.%s" % (kind, c): torch.tensor(x, dtype=torch.float64) for c, x in rows.items()})


def named_bnpo(t, out):
    """The same tokens in two micro-batches, the shorter answers and the longer ones."""
    order = sorted(range(N), key=lambda k: len(t.data.answer[t.seqs[k]]))
    whole, entropy = dict(t.batch), t._entropy_bonus_enabled
    t._entropy_bonus_enabled = False
    out["named.dapo"] = t._compute_loss(t.model, whole).detach().reshape(1)
    t.loss_type, t.current_gradient_accumulation_steps, total = "bnpo", 2, 0
    for half in (order[:N // 2], order[N // 2:]):
        total = total + t._compute_loss(t.model, {k: v[half] if v.dim() else v for k, v in whole.items()}).detach()
    out["named.bnpo"] = total.reshape(1)
    t.loss_type, t.current_gradient_accumulation_steps, t._entropy_bonus_enabled = "dapo", 1, entropy


# ---- ppo ----

def critic_values(critic, ids, seen, keep):
    """About each answer token: the score at the token before it."""
    h = critic.model(input_ids=ids, attention_mask=seen, position_ids=positions(seen), use_cache=False).last_hidden_state
    return critic.score(h)[:, -keep - 1:-1, 0]


def ppo_round(model, ref, critic, data, seqs, beta):
    """Advantages and returns of a round, from the models as they are."""
    o = PPO
    ids, seen, keep = batch_of(data, seqs)
    with torch.no_grad():
        lp = flat(of_tokens(model, ids, seen, keep, o["temperature"])[0], data, seqs)
        rlp = flat(of_tokens(ref, ids, seen, keep, o["temperature"])[0], data, seqs)
        values = flat(critic_values(critic, ids, seen, keep), data, seqs)
    old = [(x + o["noise"] * torch.from_numpy(data.noise[i])).to(torch.float32).double() for x, i in zip(lp, seqs)]
    adv, ret = [], []
    for k, i in enumerate(seqs):
        reward = ppo.shaped(data.score[i], data.ended[i], o["penalty"], o["clip"])
        a, q = ppo.gae(ppo.token_rewards(reward, old[k], rlp[k], beta), values[k], o["gamma"], o["lam"])
        adv.append(a)
        ret.append(q)
    kl = sum((x - y).sum().item() for x, y in zip(old, rlp)) / len(seqs)
    return ids, seen, keep, old, values, adv, ret, kl


def plain_text(model, data):
    """Mean loss of a token of the documents of the prompts, at temperature 1."""
    docs = data.prompt[::GROUP]
    total = sum(torch.nn.functional.cross_entropy(model(input_ids=torch.from_numpy(d)[None], use_cache=False).logits[0, :-1],
                                                  torch.from_numpy(d)[1:], reduction="sum") for d in docs)
    return total / sum(len(d) - 1 for d in docs)


def train_ppo(model, ref, critic, data, out, kind):
    o, rows, beta, all_old, all_adv = PPO, collections.defaultdict(list), PPO["beta"], [], []
    opt, copt = optimizer(model, LR), optimizer(critic, o["critic_lr"])
    for r in range(ROUNDS):
        seqs = list(data.of(r))
        ids, seen, keep, old, values, raw, ret, kl = ppo_round(model, ref, critic, data, seqs, beta)
        adv = ppo.whiten(raw)
        if r == 0 and kind == "ppo":
            out["named.whiten"] = torch.cat(ppo.whiten(raw[:N // 2]) + ppo.whiten(raw[N // 2:]))
        all_old += old
        all_adv += adv
        n = sum(len(x) for x in old)
        rows["kl"].append(kl)
        rows["beta"].append(beta)
        for _ in range(EPOCHS):
            lp, h = (flat(x, data, seqs) for x in of_tokens(model, ids, seen, keep, o["temperature"]))
            parts = [ppo.policy_loss(x, y, a, o["low"], o["high"], o["dual"]) for x, y, a in zip(lp, old, adv)]
            loss = sum(x for x, _ in parts) / n
            rows["loss"].append(loss.item())
            if kind == "ppo-ptx":
                text = plain_text(model, data)
                rows["ptx"].append(text.item())
                loss = loss + PTX * text
            rows["clip"].append(sum(int(c) for _, c in parts) / n)
            rows["entropy"].append(sum(x.sum().item() for x in h) / n)
            squares = sum(((x - y) ** 2).sum().item() for x, y in zip(lp, old)) / 2
            rows["approx_kl"].append(squares / n)
            if kind == "ppo":
                out["named.approx_kl"] = torch.tensor([squares / (len(seqs) * keep)], dtype=torch.float64)
            rows["norm"].append(finish(model, opt, loss, kind))
            v = flat(critic_values(critic, ids, seen, keep), data, seqs)
            parts = [ppo.value_loss(x, y, q, o["value_clip"]) for x, y, q in zip(v, values, ret)]
            loss = sum(x for x, _ in parts) / n
            rows["value"].append(loss.item())
            rows["value_clip"].append(sum(int(c) for _, c in parts) / n)
            rows["value_norm"].append(finish(critic, copt, loss, "critic"))
        beta = ppo.adapt(beta, kl, o["target"], o["horizon"], N)
    if kind == "ppo-ptx":
        rows = {c: rows[c] for c in ("loss", "norm", "ptx")}
    out[kind + ".old"], out[kind + ".advantage"] = torch.cat(all_old).to(torch.float32), torch.cat(all_adv)
    out.update({kind + "." + c: torch.tensor(x, dtype=torch.float64) for c, x in rows.items()})


def publish(model, d):
    model.float().save_pretrained(d)
    for extra in set(os.listdir(d)) - {"config.json", "model.safetensors"}:
        if os.path.isfile(os.path.join(d, extra)):
            os.remove(os.path.join(d, extra))


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    os.makedirs(OUT)
    config = tf.Qwen2Config(**SHAPE)
    cconfig = tf.Qwen2Config(num_labels=1, **SHAPE)
    config._attn_implementation = cconfig._attn_implementation = "eager"
    data, out = Rounds(), {}
    out["tokens"] = torch.from_numpy(np.concatenate([x for p, a in zip(data.prompt, data.answer) for x in (p, a)]))
    out["lengths"] = torch.tensor([len(p) + len(a) for p, a in zip(data.prompt, data.answer)])
    out["prompts"], out["ended"] = torch.tensor([len(p) for p in data.prompt]), torch.tensor(data.ended)
    out["score"] = torch.from_numpy(data.score)
    with Double(tf.Qwen2ForCausalLM):
        model, ref = (tf.Qwen2ForCausalLM(config).double().train() for _ in range(2))
        critic = tf.Qwen2ForSequenceClassification(cconfig).double().train()
        heat(model, 3)
        heat(critic, 4)
        first, cfirst = ({k: v.clone() for k, v in m.state_dict().items()} for m in (model, critic))
        ref.load_state_dict(first)
        for kind in [*KINDS, "ppo", "ppo-ptx"]:
            model.load_state_dict(first)
            critic.load_state_dict(cfirst)
            if kind.startswith("ppo"):
                train_ppo(model, ref, critic, data, out, kind)
            else:
                train_trl(model, ref, kind, data, out)
            g = lambda c: "-" if kind + "." + c not in out else "%.4f..%.4f" % (out[kind + "." + c][0], out[kind + "." + c][-1])  # noqa: E731
            print("%-8s" % kind, *(c + " " + g(c) for c in ("loss", "norm", "entropy", "clip", "kl", "value", "value_norm", "value_clip", "beta")))
        model.load_state_dict(first)
        critic.load_state_dict(cfirst)
    publish(model, OUT)
    publish(critic, os.path.join(OUT, "critic"))
    for kind in [*KINDS, "ppo", "ppo-ptx", "critic"]:
        shutil.copy(os.path.join(OUT, "critic" if kind == "critic" else "", "config.json"), os.path.join(OUT, "grad-" + kind))
    for k in ("named.dapo", "named.bnpo", "named.approx_kl"):
        print(k, out[k].item())
    save_file(out, os.path.join(OUT, "expected.safetensors"), metadata={
        "source": "trl %s, transformers %s, torch %s" % (trl.__version__, tf.__version__, torch.__version__)})


if __name__ == "__main__":
    torch.set_num_threads(1)
    tf.utils.logging.disable_progress_bar()
    main()
