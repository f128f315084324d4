# SPDX-License-Identifier: Apache-2.0
"""InternLM2 and 2.5 (InternLM2 Technical Report, 2024; published weights and their configuration).

    wqkv is interleaved by group: [group][q_0 .. q_{r-1}, k, v][D], r = heads/groups
    feed_forward: w2(silu(w1 x) * w3 x)
    rotary positions, pairs (i, i + D/2), theta rope_theta; dynamic scaling raises theta only for sequences longer than
    max_position_embeddings, which are refused here
"""
import math

import torch
from torch import nn

import oracle_common as o


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, self.H, self.G = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
        self.D, self.theta = C // self.H, float(c["rope_theta"])
        self.wqkv = o.linear(C, (self.H + 2 * self.G) * self.D, bias=c["bias"])
        self.wo = o.linear(self.H * self.D, C, bias=c["bias"])

    def forward(self, x, pos):
        B, T, _ = x.shape
        r = self.H // self.G
        qkv = self.wqkv(x).view(B, T, self.G, r + 2, self.D)
        q = qkv[..., :r, :].reshape(B, T, self.H, self.D).transpose(1, 2)
        k, v = qkv[..., r, :].transpose(1, 2), qkv[..., r + 1, :].transpose(1, 2)
        inv = o.frequencies(self.D, self.theta, x)
        return self.wo(o.attend(o.turn_halves(q, pos, inv), o.turn_halves(k, pos, inv), v, 1 / math.sqrt(self.D)))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, n = c["hidden_size"], c["intermediate_size"]
        self.w1, self.w3, self.w2 = o.linear(C, n), o.linear(C, n), o.linear(n, C)

    def forward(self, x):
        return self.w2(o.silu_glu(self.w1(x), self.w3(x)))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, eps = c["hidden_size"], c["rms_norm_eps"]
        self.attention, self.feed_forward = Attention(c), MLP(c)
        self.attention_norm, self.ffn_norm = o.RMSNorm(C, eps), o.RMSNorm(C, eps)

    def forward(self, x, pos):
        x = x + self.attention(self.attention_norm(x), pos)
        return x + self.feed_forward(self.ffn_norm(x))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, V = c["hidden_size"], c["vocab_size"]
        self.limit = c["max_position_embeddings"]
        self.model = m = nn.Module()
        m.tok_embeddings = nn.Embedding(V, C)
        m.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        m.norm = o.RMSNorm(C, c["rms_norm_eps"])
        self.output = o.linear(C, V)

    def forward(self, input_ids, prefix=None):
        assert input_ids.shape[1] <= self.limit
        x, pos = self.model.tok_embeddings(input_ids), o.positions(input_ids)
        for layer in self.model.layers:
            x = layer(x, pos)
        return self.output(self.model.norm(x))
