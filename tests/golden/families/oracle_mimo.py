# SPDX-License-Identifier: Apache-2.0
"""MiMo-7B (Xiaomi LLM-Core Team 2025): the model that predicts the next token is Qwen2's under a name of its own. The heads of
multi-token prediction are beside it and change no logit.
"""
from transformers import Qwen2Config, Qwen2ForCausalLM


class Model(Qwen2ForCausalLM):
    def __init__(self, c):
        config = Qwen2Config(**{k: v for k, v in c.items() if k not in ("model_type", "architectures", "torch_dtype")})
        config._attn_implementation = "eager"
        super().__init__(config)

    def forward(self, input_ids, prefix=None):
        return super().forward(input_ids=input_ids, use_cache=False).logits
