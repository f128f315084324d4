# SPDX-License-Identifier: Apache-2.0
"""Baichuan 1 and 2, 7B and 13B (Baichuan 2: Open Large-scale Language Models, 2023; published weights and their configuration).

    7B:  rotary positions, pairs (i, i + D/2), theta 10000          13B: ALiBi instead (its configuration has no max_position_embeddings)
    W_pack holds q, k and v one below the other: [3C, C]
    Baichuan 2: NormHead, logits = x . w_v / |w_v| (its configuration has z_loss_weight; 125696 tokens)
"""
import math

import torch
from torch import nn
from torch.nn import functional as F

import oracle_common as o


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, self.heads = c["hidden_size"], c["num_attention_heads"]
        self.W_pack = o.linear(C, 3 * C)
        self.o_proj = o.linear(C, C)
        self.alibi = "max_position_embeddings" not in c

    def forward(self, x, pos):
        q, k, v = (o.split_heads(t, self.heads) for t in self.W_pack(x).chunk(3, dim=-1))
        bias, D = None, q.shape[-1]
        if self.alibi:  # slope * (j - i), the same as the published slope * j: a row's shift does not change a softmax
            j = torch.arange(x.shape[1], dtype=torch.float64)
            bias = (o.alibi_slopes(self.heads)[:, None, None] * (j[None, :] - j[:, None]))[None]
        else:
            inv = o.frequencies(D, 10000.0, x)
            q, k = o.turn_halves(q, pos, inv), o.turn_halves(k, pos, inv)
        return self.o_proj(o.attend(q, k, v, 1 / math.sqrt(D), bias))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, n = c["hidden_size"], c["intermediate_size"]
        self.gate_proj, self.down_proj, self.up_proj = o.linear(C, n), o.linear(n, C), o.linear(C, n)

    def forward(self, x):
        return self.down_proj(o.silu_glu(self.gate_proj(x), self.up_proj(x)))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self_attn, self.mlp = Attention(c), MLP(c)
        self.input_layernorm = o.RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.post_attention_layernorm = o.RMSNorm(c["hidden_size"], c["rms_norm_eps"])

    def forward(self, x, pos):
        x = x + self.self_attn(self.input_layernorm(x), pos)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, V = c["hidden_size"], c["vocab_size"]
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(V, C)
        self.model.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.model.norm = o.RMSNorm(C, c["rms_norm_eps"])
        self.lm_head = o.linear(C, V)
        self.norm_head = "z_loss_weight" in c

    def forward(self, input_ids, prefix=None):
        x, pos = self.model.embed_tokens(input_ids), o.positions(input_ids)
        for layer in self.model.layers:
            x = layer(x, pos)
        x = self.model.norm(x)
        w = self.lm_head.weight
        return F.linear(x, F.normalize(w) if self.norm_head else w)
