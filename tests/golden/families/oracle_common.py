# SPDX-License-Identifier: Apache-2.0
"""What the reference models share that transformers does not have: plain PyTorch, written from the papers and from the published
descriptions of the weights, never from our C. A model's parameters carry the names and shapes of the family's state dict.

Every model: Model(config: dict); forward(input_ids i64 [B, T], prefix i64 [B] or None) -> logits [B, T, V].
Sums of squares, softmax and rotary angles are computed in at least f32, in f64 when the parameters are f64.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F


def wide(x):
    """x in the precision of statistics: f32, or f64 when the model is f64."""
    return x if x.dtype == torch.float64 else x.float()


def linear(n_in, n_out, bias=False):
    return nn.Linear(n_in, n_out, bias=bias)


class RMSNorm(nn.Module):
    """y = x / sqrt(mean(x^2) + eps) * w        (Zhang, Sennrich 2019)"""

    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        h = wide(x)
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return h.to(x.dtype) * self.weight


def frequencies(dim, theta, like):
    """theta^(-2i/dim), i = 0 .. dim/2 - 1        (Su et al. 2021)"""
    return theta ** (-torch.arange(0, dim, 2, dtype=wide(like).dtype) / dim)


def turn_halves(x, position, inv_freq):
    """Pairs (i, i + n/2) of the last axis turned by position * inv_freq. x [B, H, T, n], position [B, T]."""
    a = position[:, None, :, None].to(inv_freq.dtype) * inv_freq
    cos, sin = a.cos().to(x.dtype), a.sin().to(x.dtype)
    u, v = x.chunk(2, dim=-1)
    return torch.cat((u * cos - v * sin, v * cos + u * sin), dim=-1)


def turn_neighbours(x, position, inv_freq):
    """Pairs (2i, 2i + 1) of the last axis turned by position * inv_freq."""
    a = position[:, None, :, None].to(inv_freq.dtype) * inv_freq
    cos, sin = a.cos().to(x.dtype), a.sin().to(x.dtype)
    u, v = x[..., 0::2], x[..., 1::2]
    return torch.stack((u * cos - v * sin, v * cos + u * sin), dim=-1).flatten(-2)


def alibi_slopes(heads):
    """2^(-8k/n), k = 1..n, for n = power of two; else those of the largest power below, then every other one of twice it.
    (Press, Smith, Lewis 2022)"""
    n = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * k / n) for k in range(1, n + 1)]
    slopes += [2 ** (-8 * k / (2 * n)) for k in range(1, 2 * (heads - n) + 1, 2)]
    return torch.tensor(slopes, dtype=torch.float64)


def split_heads(x, heads):
    B, T, _ = x.shape
    return x.view(B, T, heads, -1).transpose(1, 2)


def attend(q, k, v, scale, bias=None, prefix=None):
    """softmax(scale q k^T + bias + mask) v: q [B, H, T, D], k, v [B, G, T, D], H a multiple of G. Causal; with prefix [B] the
    first prefix[b] tokens also see one another."""
    B, H, T, D = q.shape
    k, v = (t.repeat_interleave(H // t.shape[1], dim=1) for t in (k, v))
    s = wide(q @ k.transpose(-1, -2) * scale)
    if bias is not None:
        s = s + bias.to(s.dtype)
    seen = torch.ones(T, T, dtype=torch.bool).tril()[None, None].repeat(B, 1, 1, 1)
    if prefix is not None:
        for b, n in enumerate(prefix.tolist()):
            seen[b, :, :, :n] = True
    p = s.masked_fill(~seen, -math.inf).softmax(-1).to(q.dtype)
    return (p @ v).transpose(1, 2).reshape(B, T, H * D)


def positions(input_ids):
    return torch.arange(input_ids.shape[1])[None].repeat(input_ids.shape[0], 1)


def silu_glu(gate, up):
    return F.silu(gate) * up
