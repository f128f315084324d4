# SPDX-License-Identifier: Apache-2.0
"""InternLM3 (published weights and their configuration, 2025).

    q, k, v have a bias where qkv_bias says so, all other linear layers where bias does; heads are head_dim wide
    mlp: down(silu(gate x) * up x)
    rotary positions, pairs (i, i + D/2), theta rope_theta; dynamic scaling raises theta only for sequences longer than
    max_position_embeddings, which are refused here
"""
import math

from torch import nn

import oracle_common as o


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, self.H, self.G, self.D = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        self.theta = float(c["rope_theta"])
        self.q_proj = o.linear(C, self.H * self.D, bias=c["qkv_bias"])
        self.k_proj = o.linear(C, self.G * self.D, bias=c["qkv_bias"])
        self.v_proj = o.linear(C, self.G * self.D, bias=c["qkv_bias"])
        self.o_proj = o.linear(self.H * self.D, C, bias=c["bias"])

    def forward(self, x, pos):
        inv = o.frequencies(self.D, self.theta, x)
        q = o.turn_halves(o.split_heads(self.q_proj(x), self.H), pos, inv)
        k = o.turn_halves(o.split_heads(self.k_proj(x), self.G), pos, inv)
        return self.o_proj(o.attend(q, k, o.split_heads(self.v_proj(x), self.G), 1 / math.sqrt(self.D)))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, n = c["hidden_size"], c["intermediate_size"]
        self.gate_proj, self.up_proj = o.linear(C, n, bias=c["bias"]), o.linear(C, n, bias=c["bias"])
        self.down_proj = o.linear(n, C, bias=c["bias"])

    def forward(self, x):
        return self.down_proj(o.silu_glu(self.gate_proj(x), self.up_proj(x)))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, eps = c["hidden_size"], c["rms_norm_eps"]
        self.self_attn, self.mlp = Attention(c), MLP(c)
        self.input_layernorm, self.post_attention_layernorm = o.RMSNorm(C, eps), o.RMSNorm(C, eps)

    def forward(self, x, pos):
        x = x + self.self_attn(self.input_layernorm(x), pos)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, V = c["hidden_size"], c["vocab_size"]
        self.limit = c["max_position_embeddings"]
        self.model = m = nn.Module()
        m.embed_tokens = nn.Embedding(V, C)
        m.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        m.norm = o.RMSNorm(C, c["rms_norm_eps"])
        self.lm_head = o.linear(C, V)

    def forward(self, input_ids, prefix=None):
        assert input_ids.shape[1] <= self.limit
        x, pos = self.model.embed_tokens(input_ids), o.positions(input_ids)
        for layer in self.model.layers:
            x = layer(x, pos)
        return self.lm_head(self.model.norm(x))
