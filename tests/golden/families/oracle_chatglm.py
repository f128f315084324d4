# SPDX-License-Identifier: Apache-2.0
"""ChatGLM 2 and 3, and GLM-4-9B in its first published form (GLM: General Language Model Pretraining, 2022; ChatGLM: A Family of
Large Language Models, 2024; published weights and their configuration). ChatGLM-6B is oracle_chatglm6b.py.

    query_key_value holds all queries, then multi_query_group_num keys, then as many values, with a bias
    dense_h_to_4h holds gate, then up: dense_4h_to_h(silu(gate x) * up x)
    rotary positions on the first half of each head, pairs (2i, 2i + 1), theta 10000 * rope_ratio
    causal; pre-norm RMSNorm
"""
import math

import torch
from torch import nn

import oracle_common as o


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.H, self.G, self.D = c["num_attention_heads"], c["multi_query_group_num"], c["kv_channels"]
        self.theta = 10000.0 * c.get("rope_ratio", 1)
        C, out = c["hidden_size"], self.H * self.D
        self.query_key_value = o.linear(C, out + 2 * self.G * self.D, bias=c["add_qkv_bias"] or c["add_bias_linear"])
        self.dense = o.linear(out, C, bias=c["add_bias_linear"])

    def turn(self, x, pos):
        half = self.D // 2
        inv = o.frequencies(half, self.theta, x)
        return torch.cat((o.turn_neighbours(x[..., :half], pos, inv), x[..., half:]), dim=-1)

    def forward(self, x, pos):
        H, G, D = self.H, self.G, self.D
        q, k, v = self.query_key_value(x).split([H * D, G * D, G * D], dim=-1)
        q, k, v = o.split_heads(q, H), o.split_heads(k, G), o.split_heads(v, G)
        return self.dense(o.attend(self.turn(q, pos), self.turn(k, pos), v, 1 / math.sqrt(D)))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, n, bias = c["hidden_size"], c["ffn_hidden_size"], c["add_bias_linear"]
        self.dense_h_to_4h, self.dense_4h_to_h = o.linear(C, 2 * n, bias=bias), o.linear(n, C, bias=bias)

    def forward(self, x):
        return self.dense_4h_to_h(o.silu_glu(*self.dense_h_to_4h(x).chunk(2, dim=-1)))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, eps = c["hidden_size"], c["layernorm_epsilon"]
        self.input_layernorm, self.self_attention = o.RMSNorm(C, eps), Attention(c)
        self.post_attention_layernorm, self.mlp = o.RMSNorm(C, eps), MLP(c)

    def forward(self, x, pos):
        x = x + self.self_attention(self.input_layernorm(x), pos)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, V = c["hidden_size"], c["padded_vocab_size"]
        self.transformer = t = nn.Module()
        t.embedding = nn.Module()
        t.embedding.word_embeddings = nn.Embedding(V, C)
        t.encoder = nn.Module()
        t.encoder.layers = nn.ModuleList(Layer(c) for _ in range(c["num_layers"]))
        t.encoder.final_layernorm = o.RMSNorm(C, c["layernorm_epsilon"])
        t.output_layer = o.linear(C, V)

    def forward(self, input_ids, prefix=None):
        t = self.transformer
        x, pos = t.embedding.word_embeddings(input_ids), o.positions(input_ids)
        for layer in t.encoder.layers:
            x = layer(x, pos)
        return t.output_layer(t.encoder.final_layernorm(x))
