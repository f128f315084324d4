#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the golden directories of heads that predict later tokens, one folder for each form of file beside this script:

    make_mtp.py [deepseek-v3 | ernie4.5-moe | exaone-moe | glm4.5 | glm4.7-flash | mimo | qwen3-next ...]

A development tool (torch, transformers, safetensors, numpy), as ../families/make_families.py is, from which it takes how weights are
made and run in f64. No class of transformers runs such heads, so they are written here from the paper (DeepSeek-AI 2024, DeepSeek-V3,
section 2.2):

    z   = W [norm_e(Emb(x_{t+k})) | norm_h(h_{k-1,t})]         MiMo: [norm_h(h) | norm_e(Emb)]
    h_k = norm(layer(z)),  p(x_{t+1+k}) = softmax(head(h_k))   h_0: what the model's last norm gives; ERNIE: norm is that one
    loss = mean of -log p over B (T - 1) next tokens + WEIGHT / D * sum over the heads of (sum of -log p) / (B (T - 1))

The layer is one of transformers: the reference has L + D layers, of which its own forward pass runs the first L. Those of ERNIE and
K-EXAONE are without experts.

    config.json, model.safetensors   as the form has them, f32
    expected.safetensors             input_ids i64 [B, T]; loss f64 [1], of the next tokens; mtp.loss f64 [D], mean over the targets of a
                                     head; weight f64 [1]; grad.<name> f32, gradients of the whole
"""
import json
import os
import sys

import torch
import transformers as tf
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "families"))
from configs import FAMILIES  # noqa: E402
from make_families import B, Double, Reference, heat, router_biases  # noqa: E402

WEIGHT = 0.7
HEADS = {"deepseek-v3": 2, "ernie4.5-moe": 1, "exaone-moe": 1, "glm4.5": 1, "glm4.7-flash": 1, "mimo": 2, "qwen3-next": 1}
OFFSET = ("qwen3_next",)  # norms multiply by their weight + 1
CLASS = {"mimo": (tf.Qwen2Config, tf.Qwen2ForCausalLM)}
OWN = {"mimo": "model.mtp_layers.%d.%s", "qwen3-next": "mtp.layers.%d.%s", "exaone-moe": "mtp.layers.%d.%s",
       "ernie4.5-moe": "model.mtp_block.%d.%s"}  # what the layers of heads are called
SEEDS = {"ernie4.5-moe": 5}  # one whose smallest gradients are no differences of large ones
FINAL = ("ernie4.5-moe",)  # the norm of a head is the last one of the model
JOINS = {  # what the other parts of a head are called
    "mimo": ("model.mtp_layers.%d.%s.weight", dict(embed_norm="token_layernorm", hidden_norm="hidden_layernorm", norm="final_layernorm",
                                                  join="input_proj")),
    "ernie4.5-moe": ("model.mtp_%s.%d.weight", dict(embed_norm="emb_norm", hidden_norm="hidden_norm", join="linear_proj")),
    "qwen3-next": ("mtp.%s.weight", dict(embed_norm="pre_fc_norm_embedding", hidden_norm="pre_fc_norm_hidden", norm="norm", join="fc")),
    None: ("model.layers.%d.%s.weight", dict(embed_norm="enorm", hidden_norm="hnorm", norm="shared_head.norm", join="eh_proj"))}
JOINS["exaone-moe"] = JOINS["qwen3-next"]


class RMSNorm(nn.Module):
    def __init__(self, dim, eps, offset):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps, self.offset = eps, offset

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * (self.weight + self.offset)


class Head(nn.Module):
    def __init__(self, c, norm):
        super().__init__()
        C, of = c["hidden_size"], (c["rms_norm_eps"], 1 if c["model_type"] in OFFSET else 0)
        self.embed_norm, self.hidden_norm = RMSNorm(C, *of), RMSNorm(C, *of)
        if norm:
            self.norm = RMSNorm(C, *of)
        self.join = nn.Linear(2 * C, C, bias=False)


class Model(nn.Module):
    def __init__(self, name, c, heads):
        super().__init__()
        all_layers = dict(c, num_hidden_layers=c["num_hidden_layers"] + heads)
        all_layers = {k: v for k, v in all_layers.items() if k not in ("architectures", "torch_dtype", "num_nextn_predict_layers")}
        for key, kind in (("layer_types", "full_attention"), ("mlp_layer_types", "dense")):
            if key in c:
                all_layers[key] = c[key] + [kind] * heads
        if name in CLASS:
            all_layers.pop("model_type")
            config, cls = CLASS[name][0](**all_layers), CLASS[name][1]
        else:
            config, cls = tf.AutoConfig.for_model(**all_layers), getattr(tf, c["architectures"][0])
        config._attn_implementation, config._experts_implementation = "eager", "eager"
        self.main, self.c, self.name = cls(config), c, name
        self.heads = nn.ModuleList(Head(c, name not in FINAL) for _ in range(heads))

    def trunk(self, layers, norm, x):
        """Layers and norm of this choice over embedded tokens, in place of those of the model."""
        m = self.main.model
        kept, types = (m.layers, m.norm, m.config.num_hidden_layers), getattr(m.config, "layer_types", None)
        m.layers, m.norm, m.config.num_hidden_layers = nn.ModuleList(layers), norm, len(layers)
        if types:  # of the first layer here; a mask goes by it
            first = list(kept[0]).index(layers[0])
            m.config.layer_types = types[first:first + len(layers)]
        try:
            return m(inputs_embeds=x, use_cache=False).last_hidden_state
        finally:
            m.layers, m.norm, m.config.num_hidden_layers = kept
            if types:
                m.config.layer_types = types

    def forward(self, ids):
        L, m = self.c["num_hidden_layers"], self.main.model
        all_layers, x = list(m.layers), m.embed_tokens(ids)
        h = self.trunk(all_layers[:L], m.norm, x)
        out = [self.main.lm_head(h)]
        for k, head in enumerate(self.heads, 1):
            n = ids.shape[1] - k
            e, h = head.embed_norm(x[:, k:]), head.hidden_norm(h[:, :n])
            z = head.join(torch.cat((h, e) if self.name == "mimo" else (e, h), -1))
            h = self.trunk([all_layers[L + k - 1]], m.norm if self.name in FINAL else head.norm, z)
            out.append(self.main.lm_head(h))
        return out

    def losses(self, ids):
        out = self.forward(ids)
        return [F.cross_entropy(y[:, :-1].flatten(0, 1), ids[:, k + 1:].flatten(), reduction="sum") for k, y in enumerate(out)]

    def names(self, state):
        """Under the names of the form, from those of this module; files copy embedding and head to each head."""
        tensors, L = {}, self.c["num_hidden_layers"]
        copies = {}
        for name, t in self.published(state).items():
            if self.name in OWN and name.startswith("model.layers.") and int(name.split(".")[2]) >= L:
                part = name.split(".", 3)
                name = OWN[self.name] % (int(part[2]) - L, part[3])
            tensors[name] = t
        form, parts = JOINS.get(self.name, JOINS[None])
        for name, t in state.items():
            if name.startswith("heads."):
                _, k, part, _ = name.split(".")
                at = {"model.mtp_%s.%d.weight": (parts[part], int(k)), "mtp.%s.weight": (parts[part],),
                      "model.layers.%d.%s.weight": (L + int(k), parts[part])}
                copies[form % at.get(form, (int(k), parts[part]))] = t
        for k in range(len(self.heads) if self.name not in OWN else 0):
            copies["model.layers.%d.embed_tokens.weight" % (L + k)] = tensors["model.embed_tokens.weight"].clone()
            copies["model.layers.%d.shared_head.head.weight" % (L + k)] = tensors["lm_head.weight"].clone()
        return {**tensors, **copies}

    def published(self, state):
        main = {n[len("main."):]: t for n, t in state.items() if n.startswith("main.")}
        return Reference.tensors(Plain(), self.main, main)


class Plain:
    oracle, published = None, {}


def one(name):
    c, heads = {k: v for k, v in FAMILIES[name].items() if not k.startswith("_")}, HEADS[name]
    if name != "qwen3-next":  # its files have a head of which config.json says nothing
        c["num_nextn_predict_layers"] = heads
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(c, f, indent=2, sort_keys=True)
        f.write("\n")
    cls = CLASS[name][1] if name in CLASS else getattr(tf, c["architectures"][0])
    with Double(cls):
        model = Model(name, c, heads).eval().double()
        heat(model, SEEDS.get(name, 17 + len(name)))
        g = torch.Generator().manual_seed(3)
        ids = torch.randint(4, c["vocab_size"], (B, FAMILIES[name].get("_T", 12)), generator=g)
        sums = model.losses(ids)
        trained = B * (ids.shape[1] - 1)
        (sums[0] / trained + WEIGHT / heads * sum(sums[1:]) / trained).backward()
    params = dict(model.named_parameters())
    biases = router_biases(model)
    weights = {n: p.detach().float().contiguous() for n, p in model.state_dict().items() if n in params or n in biases}
    grads = {n: (torch.zeros_like(p) if p.grad is None else p.grad).float().contiguous() for n, p in params.items()}
    grads.update({n: torch.zeros_like(weights[n]) for n in biases})
    save_file(model.names(weights), os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    out = {"input_ids": ids, "loss": (sums[0].detach() / trained).reshape(1), "weight": torch.tensor([WEIGHT], dtype=torch.float64),
           "mtp.loss": torch.stack([s.detach() / (B * (ids.shape[1] - 1 - k)) for k, s in enumerate(sums)][1:])}
    out.update({"grad." + n: t for n, t in model.names(grads).items()})
    save_file(out, os.path.join(folder, "expected.safetensors"), metadata={
        "format": "lf-expected-1", "family": name, "source": "make_mtp.py, transformers %s, torch %s" % (tf.__version__, torch.__version__)})
    print("%-12s loss %.6f, of heads %s" % (name, float(out["loss"]), ["%.6f" % x for x in out["mtp.loss"].tolist()]))


if __name__ == "__main__":
    torch.set_num_threads(1)
    tf.logging.set_verbosity_error()
    tf.utils.logging.disable_progress_bar()
    for family in sys.argv[1:] or sorted(HEADS):
        one(family)
