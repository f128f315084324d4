# SPDX-License-Identifier: Apache-2.0
"""ChatGLM-6B (GLM: General Language Model Pretraining, 2022; GLM-130B, 2022; published weights and their configuration).

    query_key_value is interleaved by head: [head][q, k, v][D], weight and bias
    two-dimensional rotary positions: the first half of a head turns by position, the second by block position; pairs (i, i + D/4)
    within a half, theta 10000, frequencies of a head of D/2 channels
    prefix n (the prompt up to and with [gMASK]): tokens 0 .. n - 1 see one another; position i for i < n, then n - 1 (that of
    [gMASK]) for every later token; block position 0 for i < n, then 1, 2, ...
    residual: h = norm(x); x = alpha h + f(h), alpha = sqrt(2 layers): the norm's output, not its input, is carried on
    GELU in its tanh form; LayerNorm and all linears but the head have a bias
"""
import math

import torch
from torch import nn
from torch.nn import functional as F

import oracle_common as o


def two_positions(input_ids, prefix):
    """(position, block position), each [B, T]."""
    i = o.positions(input_ids)
    n = prefix[:, None]
    return torch.minimum(i, n - 1), (i - n + 1).clamp(min=0)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, self.heads = c["hidden_size"], c["num_attention_heads"]
        self.query_key_value = o.linear(C, 3 * C, bias=True)
        self.dense = o.linear(C, C, bias=True)

    def forward(self, x, two, prefix):
        B, T, C = x.shape
        qkv = self.query_key_value(x).view(B, T, self.heads, -1).transpose(1, 2)
        q, k, v = qkv.chunk(3, dim=-1)
        D = q.shape[-1]
        inv = o.frequencies(D // 2, 10000.0, x)

        def turn(t):
            a, b = t.chunk(2, dim=-1)
            return torch.cat((o.turn_halves(a, two[0], inv), o.turn_halves(b, two[1], inv)), dim=-1)

        return self.dense(o.attend(turn(q), turn(k), v, 1 / math.sqrt(D), prefix=prefix))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, n = c["hidden_size"], c["inner_hidden_size"]
        self.dense_h_to_4h, self.dense_4h_to_h = o.linear(C, n, bias=True), o.linear(n, C, bias=True)

    def forward(self, x):
        return self.dense_4h_to_h(F.gelu(self.dense_h_to_4h(x), approximate="tanh"))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, eps = c["hidden_size"], c["layernorm_epsilon"]
        self.alpha = math.sqrt(2 * c["num_layers"])
        self.input_layernorm, self.attention = nn.LayerNorm(C, eps), Attention(c)
        self.post_attention_layernorm, self.mlp = nn.LayerNorm(C, eps), MLP(c)

    def forward(self, x, two, prefix):
        h = self.input_layernorm(x)
        x = self.alpha * h + self.attention(h, two, prefix)
        h = self.post_attention_layernorm(x)
        return self.alpha * h + self.mlp(h)


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, V = c["hidden_size"], c["vocab_size"]
        self.transformer = t = nn.Module()
        t.word_embeddings = nn.Embedding(V, C)
        t.layers = nn.ModuleList(Layer(c) for _ in range(c["num_layers"]))
        t.final_layernorm = nn.LayerNorm(C, c["layernorm_epsilon"])
        self.lm_head = o.linear(C, V)

    def forward(self, input_ids, prefix=None):
        t, two = self.transformer, two_positions(input_ids, prefix)
        x = t.word_embeddings(input_ids)
        for layer in t.layers:
            x = layer(x, two, prefix)
        return self.lm_head(t.final_layernorm(x))
