# SPDX-License-Identifier: Apache-2.0
"""Qwen 1 (Qwen Technical Report, 2023; published weights and their configuration).

    c_attn holds q, k and v one below the other, with a bias; the other linears have none (no_bias)
    mlp: c_proj(w1(x) * silu(w2(x))): w2 is the gate; intermediate_size counts both, so each is half as wide
    rotary positions, pairs (i, i + D/2), base rotary_emb_base
    use_logn_attn: the query of position i (from 0) is multiplied by log(i + 1)/log(seq_length) once i + 1 > seq_length
    use_dynamic_ntk changes the base for sequences longer than seq_length only; not modelled here, refused if it would matter
"""
import math

import torch
from torch import nn

import oracle_common as o


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        C, D = c["hidden_size"], c["kv_channels"] * c["num_attention_heads"]
        self.c_attn, self.c_proj = o.linear(C, 3 * D, bias=True), o.linear(D, C)

    def forward(self, x, pos):
        c = self.c
        q, k, v = (o.split_heads(t, c["num_attention_heads"]) for t in self.c_attn(x).chunk(3, dim=-1))
        D, n = q.shape[-1], c["seq_length"]
        inv = o.frequencies(D, float(c["rotary_emb_base"]), x)
        q, k = o.turn_halves(q, pos, inv), o.turn_halves(k, pos, inv)
        if c["use_logn_attn"]:
            i = (pos + 1).to(o.wide(x).dtype)
            q = q * torch.where(i > n, i.log() / math.log(n), torch.ones_like(i))[:, None, :, None].to(q.dtype)
        assert not c["use_dynamic_ntk"] or x.shape[1] <= n
        return self.c_proj(o.attend(q, k, v, 1 / math.sqrt(D)))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, n = c["hidden_size"], c["intermediate_size"] // 2
        self.w1, self.w2, self.c_proj = o.linear(C, n), o.linear(C, n), o.linear(n, C)

    def forward(self, x):
        return self.c_proj(o.silu_glu(self.w2(x), self.w1(x)))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, eps = c["hidden_size"], c["layer_norm_epsilon"]
        self.ln_1, self.attn, self.ln_2, self.mlp = o.RMSNorm(C, eps), Attention(c), o.RMSNorm(C, eps), MLP(c)

    def forward(self, x, pos):
        x = x + self.attn(self.ln_1(x), pos)
        return x + self.mlp(self.ln_2(x))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, V = c["hidden_size"], c["vocab_size"]
        self.transformer = nn.Module()
        self.transformer.wte = nn.Embedding(V, C)
        self.transformer.h = nn.ModuleList(Block(c) for _ in range(c["num_hidden_layers"]))
        self.transformer.ln_f = o.RMSNorm(C, c["layer_norm_epsilon"])
        self.lm_head = o.linear(C, V)

    def forward(self, input_ids, prefix=None):
        x, pos = self.transformer.wte(input_ids), o.positions(input_ids)
        for block in self.transformer.h:
            x = block(x, pos)
        return self.lm_head(self.transformer.ln_f(x))
