# SPDX-License-Identifier: Apache-2.0
"""DeepSeek v1 with experts (DeepSeekMoE, 2024; published weights and their configuration). The dense DeepSeek v1 is a Llama.

    the first first_k_dense_replace layers have a dense MLP of intermediate_size
    the others: y = sum over the num_experts_per_tok best of n_routed_experts of p_e expert_e(x), p = softmax(router x) over all
    experts, not divided by the sum of the chosen (norm_topk_prob false), plus n_shared_experts shared ones, which are one MLP of
    n_shared_experts * moe_intermediate_size, ungated
    attention as in Llama
"""
import math

import torch
from torch import nn
from torch.nn import functional as F

import oracle_common as o
from oracle_baichuan import MLP


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, self.H, self.G = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
        self.D, self.theta = C // self.H, float(c["rope_theta"])
        self.q_proj, self.o_proj = o.linear(C, self.H * self.D), o.linear(self.H * self.D, C)
        self.k_proj, self.v_proj = o.linear(C, self.G * self.D), o.linear(C, self.G * self.D)

    def forward(self, x, pos):
        q, k, v = o.split_heads(self.q_proj(x), self.H), o.split_heads(self.k_proj(x), self.G), o.split_heads(self.v_proj(x), self.G)
        inv = o.frequencies(self.D, self.theta, x)
        return self.o_proj(o.attend(o.turn_halves(q, pos, inv), o.turn_halves(k, pos, inv), v, 1 / math.sqrt(self.D)))


class Router(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(c["n_routed_experts"], c["hidden_size"]))

    def forward(self, x):
        return F.linear(o.wide(x), o.wide(self.weight)).softmax(-1)


class Experts(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        one = dict(c, intermediate_size=c["moe_intermediate_size"])
        self.experts = nn.ModuleList(MLP(one) for _ in range(c["n_routed_experts"]))
        self.gate = Router(c)
        self.shared_experts = MLP(dict(c, intermediate_size=c["n_shared_experts"] * c["moe_intermediate_size"]))

    def forward(self, x):
        p, chosen = self.gate(x).topk(self.c["num_experts_per_tok"], dim=-1)
        if self.c["norm_topk_prob"]:
            p = p / p.sum(-1, keepdim=True)
        y = self.shared_experts(x)
        for e, expert in enumerate(self.experts):
            y = y + expert(x) * (p * (chosen == e)).sum(-1, keepdim=True).to(x.dtype)
        return y


class Layer(nn.Module):
    def __init__(self, c, index):
        super().__init__()
        C, eps = c["hidden_size"], c["rms_norm_eps"]
        sparse = index >= c["first_k_dense_replace"] and index % c["moe_layer_freq"] == 0
        self.self_attn, self.mlp = Attention(c), Experts(c) if sparse else MLP(c)
        self.input_layernorm, self.post_attention_layernorm = o.RMSNorm(C, eps), o.RMSNorm(C, eps)

    def forward(self, x, pos):
        x = x + self.self_attn(self.input_layernorm(x), pos)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, V = c["hidden_size"], c["vocab_size"]
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(V, C)
        self.model.layers = nn.ModuleList(Layer(c, i) for i in range(c["num_hidden_layers"]))
        self.model.norm = o.RMSNorm(C, c["rms_norm_eps"])
        self.lm_head = o.linear(C, V)

    def forward(self, input_ids, prefix=None):
        x, pos = self.model.embed_tokens(input_ids), o.positions(input_ids)
        for layer in self.model.layers:
            x = layer(x, pos)
        return self.lm_head(self.model.norm(x))
