# SPDX-License-Identifier: Apache-2.0
"""The configurations of the golden families, in the form in which each family publishes its config.json (old key names included),
with sizes as small as its switches allow. name -> dict; keys that start with "_" are for make_families.py and are not written:

    _oracle   module with the reference (else transformers)         _prefix  prompt lengths [B]
    _published  parts of names: as transformers saves them -> as they are published
    _types    where the second text of each row begins [B]
    _source   lengths of the source texts of an encoder-decoder [B]  _untied  the head is a matrix of its own, which transformers ties when it makes the model
    _saved    config.json is what transformers writes of it
    _T        tokens of a sequence (default 24)                     _seed    else from the name. Families with experts name one with which rounding to bf16 leaves
             every token with its experts: one token elsewhere is a larger error than all rounding; T5
             one with which no gradient is so near 0 that f32 has its sign wrong: Adam then takes all of its first step the other way
"""
V, C, L, H, G, D, F, P = 40, 16, 2, 4, 2, 8, 20, 32

FAMILIES = {}


def family(name, **c):
    c.setdefault("torch_dtype", "float32")
    FAMILIES[name] = c


def llama_like(model_type, architecture, **c):
    base = dict(architectures=[architecture], model_type=model_type, hidden_act="silu", vocab_size=V, hidden_size=C, num_hidden_layers=L,
                num_attention_heads=H, num_key_value_heads=G, intermediate_size=F, max_position_embeddings=P, rms_norm_eps=1e-5,
                rope_theta=10000.0, tie_word_embeddings=False, initializer_range=0.02, use_cache=True, attention_dropout=0.0,
                bos_token_id=1, eos_token_id=2)
    base.update(c)
    return {k: v for k, v in base.items() if v is not ...}


# ---- learned positions ----
family("gpt2", architectures=["GPT2LMHeadModel"], model_type="gpt2", activation_function="gelu_new", attn_pdrop=0.1, embd_pdrop=0.1,
       resid_pdrop=0.1, bos_token_id=39, eos_token_id=39, initializer_range=0.02, layer_norm_epsilon=1e-5, n_ctx=P, n_embd=C, n_head=H,
       n_layer=L, n_positions=P, vocab_size=V)
family("gpt-neo", _seed=2, architectures=["GPTNeoForCausalLM"], model_type="gpt_neo", activation_function="gelu_new", attention_dropout=0,
       attention_layers=["global", "local", "global"], attention_types=[[["global", "local"], 1], [["global"], 1]], bos_token_id=39,
       embed_dropout=0, eos_token_id=39, hidden_size=C, initializer_range=0.02, intermediate_size=None, layer_norm_epsilon=1e-5,
       max_position_embeddings=P, num_heads=4, num_layers=3, resid_dropout=0, vocab_size=V, window_size=7)
OPT = dict(architectures=["OPTForCausalLM"], model_type="opt", _remove_final_layer_norm=False, attention_dropout=0.0, bos_token_id=2,
           do_layer_norm_before=True, dropout=0.1, eos_token_id=2, ffn_dim=2 * C, hidden_size=C, init_std=0.02, layerdrop=0.0,
           max_position_embeddings=P, num_attention_heads=H, num_hidden_layers=L, pad_token_id=1, prefix="</s>", use_cache=True, vocab_size=V,
           word_embed_proj_dim=C)
family("opt", **OPT, activation_function="relu")
family("opt-350m", **dict(OPT, do_layer_norm_before=False, word_embed_proj_dim=10), activation_function="relu")
family("galactica", **OPT, activation_function="gelu", learned_embeddings=True, scale_embeddings=False)
family("biogpt", architectures=["BioGptForCausalLM"], model_type="biogpt", activation_dropout=0.0, attention_probs_dropout_prob=0.1, bos_token_id=0,
       eos_token_id=2, hidden_act="gelu", hidden_dropout_prob=0.1, hidden_size=C, initializer_range=0.02, intermediate_size=2 * C,
       layer_norm_eps=1e-12, layerdrop=0.0, max_position_embeddings=P, num_attention_heads=H, num_hidden_layers=L, pad_token_id=1,
       scale_embedding=True, use_cache=True, vocab_size=V)
family("gpt", afn="gelu", architectures=["OpenAIGPTLMHeadModel"], model_type="openai-gpt", attn_pdrop=0.1, embd_pdrop=0.1, initializer_range=0.02,
       layer_norm_epsilon=1e-5, n_ctx=P, n_embd=C, n_head=H, n_layer=L, n_positions=P, n_special=0, predict_special_tokens=True, resid_pdrop=0.1,
       summary_activation=None, summary_first_dropout=0.1, summary_proj_to_labels=True, summary_type="cls_index", summary_use_proj=True,
       vocab_size=V)
# GPT-2 by the other name that transformers knows it by, as wide as GPT-SW3 makes its MLP
family("gpt-sw3", architectures=["GPT2LMHeadModel"], model_type="gpt-sw3", activation_function="gelu", attn_pdrop=0.1, bos_token_id=2,
       embd_pdrop=0.1, eos_token_id=3, initializer_range=0.01, layer_norm_epsilon=1e-5, n_embd=C, n_head=2, n_inner=4 * C, n_layer=L, n_positions=P,
       pad_token_id=0, reorder_and_upcast_attn=False, resid_pdrop=0.1, scale_attn_by_inverse_layer_idx=False, scale_attn_weights=True,
       use_cache=True, vocab_size=V)
family("starcoder", architectures=["GPTBigCodeForCausalLM"], model_type="gpt_bigcode", activation_function="gelu",
       attention_softmax_in_fp32=True, multi_query=True, attn_pdrop=0.1, bos_token_id=0, embd_pdrop=0.1, eos_token_id=0,
       inference_runner=0, initializer_range=0.02, layer_norm_epsilon=1e-5, max_batch_size=None, max_sequence_length=None, n_embd=C,
       n_head=H, n_inner=36, n_layer=L, n_positions=P, pad_key_length=True, pre_allocate_kv_cache=False, resid_pdrop=0.1,
       scale_attention_softmax_in_fp32=True, scale_attn_weights=True, use_cache=True, validate_runner_input=True, vocab_size=V)

# ---- LayerNorm and rotary positions ----
NEOX = dict(architectures=["GPTNeoXForCausalLM"], model_type="gpt_neox", bos_token_id=0, eos_token_id=0, hidden_act="gelu",
            hidden_size=C, initializer_range=0.02, intermediate_size=36, layer_norm_eps=1e-5, max_position_embeddings=P,
            num_attention_heads=2, num_hidden_layers=L, rotary_emb_base=10000, rotary_pct=0.5, tie_word_embeddings=False, use_cache=True,
            vocab_size=V)
family("pythia", **NEOX, use_parallel_residual=True)
family("gpt-neox", **dict(NEOX, hidden_act="gelu_fast"), use_parallel_residual=False)
family("gpt-j", architectures=["GPTJForCausalLM"], model_type="gptj", activation_function="gelu_new", attn_pdrop=0.0, bos_token_id=39,
       embd_pdrop=0.0, eos_token_id=39, gradient_checkpointing=False, initializer_range=0.02, layer_norm_epsilon=1e-5, n_embd=C, n_head=2,
       n_inner=None, n_layer=L, n_positions=P, resid_pdrop=0.0, rotary=True, rotary_dim=4, scale_attn_weights=True,
       tie_word_embeddings=False, use_cache=True, vocab_size=V)
family("gpt-j-tied", architectures=["GPTJForCausalLM"], model_type="gptj", activation_function="gelu_new", attn_pdrop=0.0,
       bos_token_id=39, embd_pdrop=0.0, eos_token_id=39, initializer_range=0.02, layer_norm_epsilon=1e-5, n_embd=C, n_head=2,
       n_inner=None, n_layer=L, n_positions=P, resid_pdrop=0.0, rotary=True, rotary_dim=4, scale_attn_weights=True,
       tie_word_embeddings=True, use_cache=True, vocab_size=V)
family("codegen", architectures=["CodeGenForCausalLM"], model_type="codegen", activation_function="gelu_new", attn_pdrop=0.0, bos_token_id=1,
       embd_pdrop=0.0, eos_token_id=1, gradient_checkpointing=False, initializer_range=0.02, layer_norm_epsilon=1e-5, n_ctx=P, n_embd=C, n_head=4,
       n_inner=24, n_layer=L, n_positions=P, resid_pdrop=0.0, rotary_dim=4, scale_attn_weights=True, tie_word_embeddings=False, use_cache=True,
       vocab_size=24)
family("mpt", architectures=["MptForCausalLM"], model_type="mpt", d_model=12, n_heads=3, n_layers=L, expansion_ratio=4, max_seq_len=P, vocab_size=24,
       resid_pdrop=0, emb_pdrop=0, learned_pos_emb=True, init_device="cpu", logit_scale=None, no_bias=True, embedding_fraction=1.0, verbose=0,
       norm_type="low_precision_layernorm", use_cache=False, initializer_range=0.02, layer_norm_epsilon=1e-5,
       attn_config=dict(alibi=True, alibi_bias_max=8, attn_impl="torch", attn_pdrop=0, attn_type="multihead_attention", attn_uses_sequence_id=False,
                        clip_qkv=None, prefix_lm=False, qk_ln=False, softmax_scale=None))
family("starcoder2", architectures=["Starcoder2ForCausalLM"], model_type="starcoder2", activation_function="gelu",
       attention_dropout=0.1, residual_dropout=0.1, embedding_dropout=0.1, attention_softmax_in_fp32=True, bos_token_id=0, eos_token_id=0,
       hidden_act="gelu_pytorch_tanh", hidden_size=C, initializer_range=0.018, intermediate_size=36, layer_norm_epsilon=1e-5,
       max_position_embeddings=P, mlp_type="default", norm_epsilon=1e-5, norm_type="layer_norm", num_attention_heads=H,
       num_hidden_layers=L, num_key_value_heads=G, rope_theta=100000.0, scale_attention_softmax_in_fp32=True, scale_attn_weights=True,
       sliding_window=9, use_bias=True, use_cache=True, vocab_size=V)
family("phi2", architectures=["PhiForCausalLM"], model_type="phi", attention_dropout=0.0, bos_token_id=39, embd_pdrop=0.0,
       eos_token_id=39, hidden_act="gelu_new", hidden_size=C, initializer_range=0.02, intermediate_size=36, layer_norm_eps=1e-5,
       max_position_embeddings=P, num_attention_heads=2, num_hidden_layers=L, num_key_value_heads=None, partial_rotary_factor=0.5,
       qk_layernorm=False, resid_pdrop=0.1, rope_scaling=None, rope_theta=10000.0, tie_word_embeddings=False, use_cache=True, vocab_size=V)
FALCON = dict(architectures=["FalconForCausalLM"], model_type="falcon", alibi=False, apply_residual_connection_post_layernorm=False,
              attention_dropout=0.0, bias=False, bos_token_id=11, eos_token_id=11, hidden_dropout=0.0, hidden_size=C, initializer_range=0.02,
              layer_norm_epsilon=1e-5, num_attention_heads=H, num_hidden_layers=L, parallel_attn=True, use_cache=True, vocab_size=V)
family("falcon-7b", **FALCON, multi_query=True, new_decoder_architecture=False)
family("falcon-40b", **FALCON, multi_query=True, new_decoder_architecture=True, num_kv_heads=G)
family("falcon-11b", **FALCON, multi_query=True, new_decoder_architecture=True, num_kv_heads=G, num_ln_in_parallel_attn=1,
       ffn_hidden_size=36, rope_theta=500042.0, tie_word_embeddings=False, max_position_embeddings=P)

# ---- ALiBi; three heads, so that slopes are not powers of two alone ----
family("bloom", architectures=["BloomForCausalLM"], model_type="bloom", apply_residual_connection_post_layernorm=False,
       attention_dropout=0.0, attention_softmax_in_fp32=True, bias_dropout_fusion=True, bos_token_id=1, eos_token_id=2, hidden_dropout=0.0,
       hidden_size=12, initializer_range=0.02, layer_norm_epsilon=1e-5, masked_softmax_fusion=True, n_head=3, n_inner=None, n_layer=L,
       offset_alibi=100, pad_token_id=3, pretraining_tp=4, seq_length=P, skip_bias_add=True, skip_bias_add_qkv=False,
       slow_but_exact=False, unk_token_id=0, use_cache=True, vocab_size=V)
BAICHUAN = dict(_oracle="oracle_baichuan", architectures=["BaichuanForCausalLM"], model_type="baichuan", bos_token_id=1, eos_token_id=2,
                hidden_act="silu", initializer_range=0.02, intermediate_size=F, num_hidden_layers=L, pad_token_id=0, rms_norm_eps=1e-6,
                tie_word_embeddings=False, use_cache=True, vocab_size=V)
family("baichuan-7b", **dict(BAICHUAN, architectures=["BaiChuanForCausalLM"]), hidden_size=C, num_attention_heads=2, max_position_embeddings=P)
family("baichuan-13b", **BAICHUAN, hidden_size=12, num_attention_heads=3, model_max_length=P)
family("baichuan2-7b", **BAICHUAN, hidden_size=C, num_attention_heads=2, max_position_embeddings=P, model_max_length=P, z_loss_weight=0)
family("baichuan2-13b", **BAICHUAN, hidden_size=12, num_attention_heads=3, model_max_length=P, z_loss_weight=0)

# ---- RMSNorm, rotary positions, gated MLP ----
family("llama", **llama_like("llama", "LlamaForCausalLM", pretraining_tp=1, rope_scaling=None, attention_bias=False, mlp_bias=False))
family("iquestcoder", **llama_like("iquestcoder", "LlamaForCausalLM", head_dim=D, rope_scaling=None, attention_bias=False, mlp_bias=False,
                                   rope_theta=500000.0, clip_qkv=None, use_sliding_window=False, sliding_window=None, max_window_layers=0))
family("cwm", _seed=2, **llama_like("cwm", "CwmForCausalLM", head_dim=D, num_hidden_layers=3, mlp_bias=False, sliding_window=7, rope_theta=100.0,
                          pretraining_tp=1, layer_types=["full_attention", "sliding_attention", "sliding_attention"],
                          rope_scaling=dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                            original_max_position_embeddings=32)))
family("olmo", **llama_like("olmo", "OlmoForCausalLM", rms_norm_eps=..., attention_bias=False, clip_qkv=None, pad_token_id=0, vocab_size=24, intermediate_size=12, num_hidden_layers=3))
family("nanochat", **llama_like("nanochat", "NanoChatForCausalLM", hidden_act="relu2", rms_norm_eps=1e-6, attention_bias=False, pad_token_id=0, vocab_size=24, intermediate_size=12, num_hidden_layers=3,
                                final_logit_softcapping=4.0, rope_theta=..., rope_parameters=dict(rope_type="default", rope_theta=100.0)))
family("llama-linear", **llama_like("llama", "LlamaForCausalLM", num_attention_heads=2, num_key_value_heads=2, rope_theta=100000.0,
                                    rope_scaling=dict(type="linear", factor=4.0)))
family("llama3.1", **llama_like("llama", "LlamaForCausalLM", head_dim=D, rope_theta=100.0, rope_scaling=dict(
    factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32, rope_type="llama3")))
family("llama3.2", **llama_like("llama", "LlamaForCausalLM", head_dim=D, rope_theta=100.0, tie_word_embeddings=True, rope_scaling=dict(
    factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32, rope_type="llama3")))
# The ends of the ramp lie between pairs of channels, so that rounding them shows
family("llama-yarn", **llama_like("llama", "LlamaForCausalLM", head_dim=16, rope_theta=100.0, rope_scaling=dict(
    rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=1.3, beta_slow=0.1, mscale=0.7, mscale_all_dim=1.9,
    truncate=False)))
family("mistral", **llama_like("mistral", "MistralForCausalLM", sliding_window=9))
family("mixtral", **llama_like("mixtral", "MixtralForCausalLM", num_local_experts=4, num_experts_per_tok=2, output_router_logits=False,
                               router_aux_loss_coef=0.02, sliding_window=None, rope_theta=1000000.0, intermediate_size=12), _T=12, _seed=3)
family("qwen1", _oracle="oracle_qwen", architectures=["QWenLMHeadModel"], model_type="qwen", attn_dropout_prob=0.0, bf16=False,
       emb_dropout_prob=0.0, fp16=False, fp32=True, hidden_size=C, initializer_range=0.02, intermediate_size=2 * F, kv_channels=D,
       layer_norm_epsilon=1e-6, max_position_embeddings=P, no_bias=True, num_attention_heads=2, num_hidden_layers=L, onnx_safe=None,
       rotary_emb_base=10000, rotary_pct=1.0, scale_attn_weights=True, seq_length=9, tie_word_embeddings=False,
       tokenizer_class="QWenTokenizer", use_cache=True, use_dynamic_ntk=False, use_flash_attn=False, use_logn_attn=True, vocab_size=V)
family("qwen2", **llama_like("qwen2", "Qwen2ForCausalLM", rms_norm_eps=1e-6, rope_theta=1000000.0, sliding_window=P, max_window_layers=L,
                             use_sliding_window=False))
family("qwen2.5", _seed=4, **llama_like("qwen2", "Qwen2ForCausalLM", num_hidden_layers=3, rms_norm_eps=1e-6, rope_theta=1000.0, sliding_window=7, max_window_layers=1,
                               use_sliding_window=True, tie_word_embeddings=True, num_key_value_heads=1))
family("qwen3", **llama_like("qwen3", "Qwen3ForCausalLM", rms_norm_eps=1e-6, rope_theta=1000000.0, head_dim=D, attention_bias=False,
                             sliding_window=None, max_window_layers=L, use_sliding_window=False, rope_scaling=None))
family("qwen3-layers", **llama_like("qwen3", "Qwen3ForCausalLM", rms_norm_eps=1e-6, rope_theta=1000.0, head_dim=D, num_hidden_layers=4,
                                    attention_bias=True, sliding_window=7, use_sliding_window=True, layer_types=[
                                        "sliding_attention", "full_attention", "full_attention", "sliding_attention"]))
MOE = dict(decoder_sparse_step=1, mlp_only_layers=[], num_experts=4, num_experts_per_tok=2, output_router_logits=False,
           router_aux_loss_coef=0.001, max_window_layers=L, use_sliding_window=False, moe_intermediate_size=8, intermediate_size=F,
           rms_norm_eps=1e-6)
family("qwen2-moe", **llama_like("qwen2_moe", "Qwen2MoeForCausalLM", **MOE, norm_topk_prob=False, shared_expert_intermediate_size=12,
                                 sliding_window=P, rope_theta=1000000.0), _T=12, _seed=3)
family("qwen3-moe", **llama_like("qwen3_moe", "Qwen3MoeForCausalLM", **MOE, norm_topk_prob=True, head_dim=D, attention_bias=False,
                                 rope_scaling=None, sliding_window=None, rope_theta=1000000.0), _T=12, _seed=5)
# As transformers 5.23 writes it itself; and layers chosen by lists
family("qwen3-moe-lists", _saved=True, **llama_like("qwen3_moe", "Qwen3MoeForCausalLM", **dict(MOE, mlp_only_layers=[1]), norm_topk_prob=True,
                                                    head_dim=D, attention_bias=False, num_hidden_layers=3, rope_theta=1000.0), _T=12,
       _seed=5)
family("qwen2-moe-lists", **llama_like("qwen2_moe", "Qwen2MoeForCausalLM", **dict(MOE, mlp_only_layers=[1], use_sliding_window=True,
                                                                                  max_window_layers=1), norm_topk_prob=False,
                                       shared_expert_intermediate_size=12, sliding_window=5, num_hidden_layers=3, rope_theta=1000.0),
       _T=12, _seed=2)
family("deepseek-moe", _oracle="oracle_deepseek", _T=12, _seed=3, **llama_like(
    "deepseek", "DeepseekForCausalLM", aux_loss_alpha=0.001, attention_bias=False, first_k_dense_replace=1, moe_intermediate_size=8,
    moe_layer_freq=1, n_routed_experts=4, n_shared_experts=2, norm_topk_prob=False, num_experts_per_tok=2, pretraining_tp=1,
    rms_norm_eps=1e-6, rope_scaling=None, scoring_func="softmax", seq_aux=True, num_hidden_layers=3, num_attention_heads=2,
    num_key_value_heads=2))
# Values are not as wide as keys, and both norms of the latent have another eps than the others
LATENT = dict(hidden_size=12, num_attention_heads=2, num_key_value_heads=2, num_hidden_layers=3, kv_lora_rank=10, qk_nope_head_dim=6,
              qk_rope_head_dim=4, first_k_dense_replace=1, moe_intermediate_size=8, n_routed_experts=6, num_experts_per_tok=2,
              attention_bias=False, rope_theta=100.0, pretraining_tp=1)
family("deepseek-v2", _T=12, _seed=3, **llama_like("deepseek_v2", "DeepseekV2ForCausalLM", **LATENT, q_lora_rank=None, v_head_dim=5,
    n_group=2, topk_group=1, topk_method="group_limited_greedy", n_shared_experts=2, norm_topk_prob=False, routed_scaling_factor=1.5,
    scoring_func="softmax", moe_layer_freq=1, aux_loss_alpha=0.001, seq_aux=True, rope_scaling=dict(
        type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=1.3, beta_slow=0.1, truncate=False, mscale=0.707,
        mscale_all_dim=0.707)))
family("deepseek-v3", _T=12, _seed=6, **llama_like("deepseek_v3", "DeepseekV3ForCausalLM", **LATENT, q_lora_rank=14, v_head_dim=8,
    n_group=2, topk_group=1, topk_method="noaux_tc", n_shared_experts=1, norm_topk_prob=True, routed_scaling_factor=2.5,
    scoring_func="sigmoid", moe_layer_freq=1, num_nextn_predict_layers=0, ep_size=1, rope_scaling=dict(
        type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=1.3, beta_slow=0.1, truncate=False, mscale=1.0,
        mscale_all_dim=0.8)))
family("internlm2", _oracle="oracle_internlm2", **llama_like(
    "internlm2", "InternLM2ForCausalLM", attn_implementation="eager", bias=False, pad_token_id=2, rope_theta=1000000.0, attention_dropout=...,
    pretraining_tp=1, rope_scaling=dict(type="dynamic", factor=2.0)))
family("internlm3", _oracle="oracle_internlm3", **llama_like(
    "internlm3", "InternLM3ForCausalLM", head_dim=D, bias=True, qkv_bias=False, pad_token_id=2, rope_theta=50000.0,
    rope_scaling=dict(rope_type="dynamic", factor=6.0)))
family("seed-oss", **llama_like("seed_oss", "SeedOssForCausalLM", head_dim=D, attention_bias=True, attention_out_bias=False, mlp_bias=False,
                                residual_dropout=0.1, attention_dropout=0.1, rope_theta=1e7, pretraining_tp=1, pad_token_id=3,
                                rope_scaling=dict(rope_type="default")))
family("ernie4.5", **llama_like("ernie4_5", "Ernie4_5ForCausalLM", head_dim=D, use_bias=True, rope_theta=500000.0, rope_scaling=None,
                                tie_word_embeddings=True, attention_dropout=..., pad_token_id=0))
family("mimo", _oracle="oracle_mimo", **llama_like("mimo", "MiMoForCausalLM", head_dim=D, rope_theta=640000.0, max_window_layers=L,
                                                   sliding_window=P, use_sliding_window=False, use_mrope=False, rope_scaling=None,
                                                   num_nextn_predict_layers=0))
family("glm4.5", _T=12, _seed=3, **llama_like(
    "glm4_moe", "Glm4MoeForCausalLM", hidden_size=12, num_attention_heads=2, num_key_value_heads=1, head_dim=D, num_hidden_layers=3, attention_bias=True, use_qk_norm=True, first_k_dense_replace=1,
    moe_intermediate_size=8, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, n_group=1, topk_group=1, norm_topk_prob=True,
    routed_scaling_factor=2.5, partial_rotary_factor=0.5, rope_theta=1000000.0, rope_scaling=None, num_nextn_predict_layers=0,
    pad_token_id=3, eos_token_id=[3, 4, 5], bos_token_id=...))
family("ernie4.5-moe", _T=12, _seed=3, **llama_like(
    "ernie4_5_moe", "Ernie4_5_MoeForCausalLM", hidden_size=12, num_attention_heads=3, num_key_value_heads=1, num_hidden_layers=3, use_bias=False, rope_theta=500000.0, rope_scaling=None,
    attention_dropout=..., moe_capacity=[64, 64, 64], moe_gate="topk", moe_use_aux_free=True, moe_intermediate_size=8, moe_k=2,
    moe_num_experts=4, moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=2, moe_layer_interval=1,
    output_router_logits=False, router_aux_loss_coef=0.001, num_nextn_predict_layers=0, tie_word_embeddings=True, pad_token_id=0))
PHI3 = dict(embd_pdrop=0.0, resid_pdrop=0.0, original_max_position_embeddings=P, pad_token_id=3, attention_bias=False)
family("phi3", **llama_like("phi3", "Phi3ForCausalLM", **PHI3, sliding_window=9, rope_scaling=None))
LONG = dict(head_dim=..., num_attention_heads=2, num_key_value_heads=1, sliding_window=9)
FACTORS = dict(type="longrope", short_factor=[1.0, 1.1, 1.3, 1.7], long_factor=[1.2, 2.0, 3.1, 4.3])
family("phi3-long", _seed=2, **llama_like("phi3", "Phi3ForCausalLM", **dict(PHI3, original_max_position_embeddings=16), **dict(
    LONG, max_position_embeddings=64), rope_scaling=FACTORS))
family("phi3-factor", _seed=2, **llama_like("phi3", "Phi3ForCausalLM", **dict(PHI3, original_max_position_embeddings=16), **dict(
    LONG, max_position_embeddings=64), rope_scaling=dict(FACTORS, factor=9.0)))
family("phi3-short", **llama_like("phi3", "Phi3ForCausalLM", **dict(PHI3, original_max_position_embeddings=16), **dict(
    LONG, max_position_embeddings=64), rope_scaling=FACTORS), _T=16)
GRANITE = dict(embedding_multiplier=6.0, residual_multiplier=0.22, attention_multiplier=0.4, logits_scaling=3.0, rope_scaling=None,
               attention_bias=False, pad_token_id=0, tie_word_embeddings=True)
family("granite", **llama_like("granite", "GraniteForCausalLM", **GRANITE, mlp_bias=False))
family("granite-moe", _T=12, _seed=3, **llama_like("granitemoe", "GraniteMoeForCausalLM", **GRANITE, hidden_size=12, num_attention_heads=2,
                                                   num_key_value_heads=1, intermediate_size=8, num_local_experts=4, num_experts_per_tok=2,
                                                   output_router_logits=False, router_aux_loss_coef=0.001))
family("granite-moe-shared", _T=12, _seed=3, **llama_like(
    "granitemoeshared", "GraniteMoeSharedForCausalLM", **GRANITE, hidden_size=12, num_attention_heads=2, num_key_value_heads=1, intermediate_size=8,
    shared_intermediate_size=10, num_local_experts=4, num_experts_per_tok=2, output_router_logits=False, router_aux_loss_coef=0.001))
# Two bases by layer, one of them in a layer with a window; layers that do not turn
SWA = dict(GRANITE, sliding_window=5, num_hidden_layers=4, layer_rope_theta=[1000.0, 30.0, 0, 1000.0],
           layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"])
family("granite-swa", _seed=3, **llama_like("granite_swa", "GraniteSWAForCausalLM", **SWA, mlp_bias=False, hidden_size=12, num_attention_heads=2,
                                            num_key_value_heads=1, intermediate_size=12, rope_theta=1000.0))
family("granite-moe-swa", _T=12, _seed=3, **llama_like(
    "granitemoe_swa", "GraniteMoeSWAForCausalLM", **dict(SWA, num_hidden_layers=3, layer_rope_theta=[1000.0, 1000.0, 0], layer_types=[
        "full_attention", "sliding_attention", "sliding_attention"]), hidden_size=12, num_attention_heads=2, num_key_value_heads=1,
    intermediate_size=8, shared_intermediate_size=10, num_local_experts=4, num_experts_per_tok=2, output_router_logits=False,
    router_aux_loss_coef=0.001, rope_theta=1000.0))
family("cohere", **llama_like("cohere", "CohereForCausalLM", rms_norm_eps=..., layer_norm_eps=1e-5, logit_scale=0.25, use_qk_norm=False,
                              attention_bias=False, model_max_length=P, tie_word_embeddings=True, pad_token_id=0, rope_theta=8000.0))
# Rounding an end of the ramp changes it, and so does a tenth more of a beta
OLMO = dict(attention_bias=False, pad_token_id=1, bos_token_id=..., rms_norm_eps=1e-6)
family("olmo2", **llama_like("olmo2", "Olmo2ForCausalLM", **OLMO, rope_scaling=None, rope_theta=500000.0))
family("olmo3", **llama_like("olmo3", "Olmo3ForCausalLM", **OLMO, num_hidden_layers=4, sliding_window=7, rope_theta=..., num_attention_heads=2,
                             num_key_value_heads=1, head_dim=16, intermediate_size=12, layer_types=["sliding_attention"] * 3 + ["full_attention"],
                             rope_parameters=dict(
                                 sliding_attention=dict(rope_type="default", rope_theta=100.0),
                                 full_attention=dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=16,
                                                     attention_factor=1.2, beta_fast=1.367, beta_slow=0.1367))))
family("olmoe", _T=12, _seed=3, **llama_like("olmoe", "OlmoeForCausalLM", **OLMO, hidden_size=12, num_attention_heads=2, num_key_value_heads=1,
                                             intermediate_size=8, clip_qkv=None, norm_topk_prob=False, num_experts=4, num_experts_per_tok=2,
                                             output_router_logits=False, router_aux_loss_coef=0.01, rope_scaling=None))
family("flex-olmo", _T=12, _seed=3, **llama_like(
    "flex_olmo", "FlexOlmoForCausalLM", **OLMO, hidden_size=12, num_attention_heads=2, num_key_value_heads=1, intermediate_size=8,
    norm_topk_prob=False, num_experts=4, num_experts_per_tok=2, output_router_logits=False, router_aux_loss_coef=0.01, rope_scaling=None))
ALPHA = dict(alpha=50.0, beta_fast=32, beta_slow=1, factor=1.0, mscale=1.0, mscale_all_dim=1.0, type="dynamic")
HUNYUAN = dict(head_dim=D, attention_bias=False, attention_head_dim=D, use_cla=False, use_qk_norm=True, mlp_bias=False, norm_type="rms",
               pad_token_id=0, eod_token_id=3, rope_scaling=ALPHA, tie_word_embeddings=True)
family("hunyuan", **llama_like("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", **HUNYUAN))
family("hunyuan-moe", _T=12, _seed=3, **llama_like(
    "hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", **HUNYUAN, hidden_size=12, num_attention_heads=2, num_key_value_heads=1, intermediate_size=8,
    num_experts=4, moe_topk=[2, 2], num_shared_expert=[1, 1], moe_intermediate_size=[8, 8], use_mixed_mlp_moe=True, moe_drop_tokens=False,
    moe_layer_num_skipped=0))
family("minimax-m2", _T=12, _seed=3, **llama_like(
    "minimax_m2", "MiniMaxM2ForCausalLM", hidden_size=12, num_attention_heads=2, num_key_value_heads=1, head_dim=D, rotary_dim=D // 2,
    intermediate_size=8, rope_theta=5000000.0, rms_norm_eps=1e-6, num_local_experts=4, num_experts_per_tok=2, router_aux_loss_coef=0.001,
    router_jitter_noise=0.0, scoring_func="sigmoid", use_routing_bias=True, use_qk_norm=True, qk_norm_type="per_layer",
    shared_intermediate_size=0, attn_type_list=[1, 1], output_router_logits=False, use_mtp=True, num_mtp_modules=3,
    mtp_transformer_layers=1))
family("nemotron", **llama_like("nemotron", "NemotronForCausalLM", hidden_act="relu2", rms_norm_eps=..., norm_eps=1e-5, head_dim=D,
                                attention_bias=False, mlp_bias=False, partial_rotary_factor=0.5, initializer_range=0.0134))
family("ministral3", **llama_like("ministral3", "Ministral3ForCausalLM", head_dim=16, num_attention_heads=2, num_key_value_heads=1, sliding_window=None, pad_token_id=11, rope_theta=...,
                                  rope_parameters=dict(rope_type="yarn", rope_theta=100.0, factor=4.0, beta_fast=0.6837, beta_slow=0.06836,
                                                       mscale=1.0, mscale_all_dim=1.0, original_max_position_embeddings=8,
                                                       llama_4_scaling_beta=0.3)))
family("arcee", **llama_like("arcee", "ArceeForCausalLM", hidden_act="relu2", attention_bias=False, mlp_bias=False, head_dim=D,
                             rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=1.3,
                                               beta_slow=0.1, mscale=1.0, truncate=False)))
family("apertus", _seed=13, **llama_like("apertus", "ApertusForCausalLM", num_attention_heads=2, num_key_value_heads=1, pad_token_id=3, hidden_act="xielu", attention_bias=False, mlp_bias=False, qk_norm=True,
                               post_norm=False, rope_theta=100.0, rope_scaling=dict(
                                   rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                   original_max_position_embeddings=32)))
family("jais2", **llama_like("jais2", "Jais2ForCausalLM", hidden_act="relu2", rms_norm_eps=..., layer_norm_eps=1e-5, head_dim=D,
                             attention_bias=True, mlp_bias=True, rope_scaling=None))
family("helium", **llama_like("helium", "HeliumForCausalLM", pad_token_id=3, rms_norm_eps=1e-8, head_dim=C // H, attention_bias=False, mlp_bias=False,
                              rope_theta=1000.0))
family("ministral", **llama_like("ministral", "MinistralForCausalLM", num_hidden_layers=3, head_dim=D, sliding_window=7, rope_theta=1000.0,
                                 layer_types=["full_attention", "sliding_attention", "sliding_attention"]))
family("stablelm", **llama_like("stablelm", "StableLmForCausalLM", rms_norm_eps=..., layer_norm_eps=1e-5, partial_rotary_factor=0.5,
                                num_attention_heads=2, num_key_value_heads=1, use_qkv_bias=True, qk_layernorm=False,
                                use_parallel_residual=False, hidden_dropout=0.0))
family("stablelm-parallel", **llama_like("stablelm", "StableLmForCausalLM", rms_norm_eps=..., layer_norm_eps=1e-5,
                                         partial_rotary_factor=0.5, num_attention_heads=2, num_key_value_heads=2, use_qkv_bias=False,
                                         qk_layernorm=False, use_parallel_residual=True, hidden_dropout=0.0))
family("hyperclovax", **llama_like("hyperclovax", "HyperCLOVAXForCausalLM", embedding_multiplier=6.0, residual_multiplier=0.22,
                                   attention_multiplier=0.4, logits_scaling=0.3, use_post_norm=True, head_dim=D, attention_bias=False,
                                   mlp_bias=False, rope_scaling=None, pad_token_id=0))
# Latent attention with other widths than DeepSeek's
LATENT2 = {k: v for k, v in LATENT.items() if k not in ("first_k_dense_replace", "pretraining_tp")}
family("glm4.7-flash", _T=12, _seed=3, **llama_like(
    "glm4_moe_lite", "Glm4MoeLiteForCausalLM", **LATENT2, q_lora_rank=14, v_head_dim=10, n_group=1, topk_group=1, topk_method="noaux_tc",
    n_shared_experts=1, norm_topk_prob=True, routed_scaling_factor=1.8, first_k_dense_replace=1, num_nextn_predict_layers=0,
    partial_rotary_factor=1.0, rope_scaling=None, pad_token_id=3, eos_token_id=[3, 4, 5], bos_token_id=...))
# Rows behind one and two lengths of the first training
family("mistral4", _T=20, _seed=5, **llama_like(
    "mistral4", "Mistral4ForCausalLM", **dict(LATENT2, rope_theta=...), q_lora_rank=14, v_head_dim=5, n_group=1, topk_group=1, n_shared_experts=1,
    norm_topk_prob=True, routed_scaling_factor=1.3, first_k_dense_replace=1, rope_interleave=True, pad_token_id=11, rope_parameters=dict(
        type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=8, max_position_embeddings=P, beta_fast=0.9,
        beta_slow=0.1, truncate=False, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3, partial_rotary_factor=0.4)))
family("youtu", **llama_like(
    "youtu", "YoutuForCausalLM", hidden_size=12, num_attention_heads=2, num_key_value_heads=2, kv_lora_rank=10, q_lora_rank=14,
    qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=8, attention_bias=False, mlp_bias=False, rope_interleave=True, rope_theta=100.0,
    rms_norm_eps=1e-6, tie_word_embeddings=True, rope_scaling=None, initializer_range=0.05, embedding_initializer_range=0.1))
family("minicpm3", **llama_like(
    "minicpm3", "MiniCPM3ForCausalLM", hidden_size=12, num_attention_heads=2, num_key_value_heads=2, num_hidden_layers=3, kv_lora_rank=10,
    q_lora_rank=14, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=8, attention_bias=False, mlp_bias=False, rope_theta=100.0,
    tie_word_embeddings=True, rope_scaling=None, initializer_range=0.05, scale_emb=3.5, scale_depth=1.4, dim_model_base=5))
EXPERTS = dict(hidden_size=12, num_attention_heads=2, num_key_value_heads=1, head_dim=D, num_hidden_layers=3, moe_intermediate_size=8,
               num_experts_per_tok=2, rope_scaling=None)
family("dots1", _T=12, _seed=8, **llama_like(
    "dots1", "Dots1ForCausalLM", **EXPERTS, n_routed_experts=4, n_shared_experts=2, n_group=1, topk_group=1, topk_method="noaux_tc",
    scoring_func="noaux_tc", norm_topk_prob=True, routed_scaling_factor=2.5, first_k_dense_replace=1, moe_layer_freq=1, ep_size=1,
    sliding_window=5, max_window_layers=2, attention_bias=False, pretraining_tp=1))
family("solar-open", _T=12, _seed=5, **llama_like(
    "solar_open", "SolarOpenForCausalLM", **dict(EXPERTS, num_hidden_layers=2), intermediate_size=..., n_routed_experts=4,
    n_shared_experts=1, n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.5, attention_bias=True,
    partial_rotary_factor=1.0, rope_theta=1000.0))
family("hy3", _T=12, _seed=3, **llama_like(
    "hy_v3", "HYV3ForCausalLM", **EXPERTS, num_experts=4, num_shared_experts=1, router_scaling_factor=2.826, attention_bias=False,
    mlp_bias=False, enable_moe_fp32_combine=True, mlp_layer_types=["dense", "sparse", "sparse"], rope_theta=1000.0))
family("exaone-moe", _T=12, _seed=3, **llama_like(
    "exaone_moe", "ExaoneMoeForCausalLM", **dict(EXPERTS, num_hidden_layers=4), num_experts=4, num_shared_experts=1, n_group=1,
    topk_group=1, topk_method="noaux_tc", scoring_func="sigmoid", norm_topk_prob=True, routed_scaling_factor=2.5, first_k_dense_replace=1,
    sliding_window=5, sliding_window_pattern="LLLG", rope_theta=1000.0, num_nextn_predict_layers=0,
    layer_types=["sliding_attention"] * 3 + ["full_attention"], mlp_layer_types=["dense"] + ["sparse"] * 3,
    is_moe_layer=[False] + [True] * 3, sliding_windows=[5] * 3 + [0], mtp_layer_types=["full_attention"], mtp_sliding_windows=[0]))
family("trinity", _T=12, _seed=4, **llama_like(
    "afmoe", "AfmoeForCausalLM", **dict(EXPERTS, num_hidden_layers=4), num_experts=4, num_shared_experts=1, num_dense_layers=1, route_scale=2.826,
    global_attn_every_n_layers=4, sliding_window=5, mup_enabled=True, rope_theta=1000.0, score_func="sigmoid", route_norm=True, n_group=1,
    topk_group=1, num_expert_groups=1, num_limited_groups=1, load_balance_coeff=0.001, use_grouped_mm=True,
    layer_types=["sliding_attention"] * 3 + ["full_attention"]))
family("flint", _T=12, _seed=8, **llama_like(
    "flint", "FlintForCausalLM", **dict(EXPERTS, num_hidden_layers=4), num_experts=4, shared_expert_intermediate_size=10, sliding_window=5,
    norm_topk_prob=True, router_aux_loss_coef=0.0005, mlp_only_layers=[0], decoder_sparse_step=1, attention_bias=False, rope_theta=1000.0,
    layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"]))
family("aria-text", _T=12, _seed=5, **llama_like(
    "aria_text", "AriaTextForCausalLM", hidden_size=12, num_attention_heads=2, num_key_value_heads=1, head_dim=D, intermediate_size=8,
    moe_num_experts=4, moe_topk=2, moe_num_shared_experts=2, pad_token_id=0, rope_scaling=None, attention_bias=False, mlp_bias=False))
family("mellum", _T=12, _seed=5, **llama_like(
    "mellum", "MellumForCausalLM", **dict(EXPERTS, head_dim=16, num_hidden_layers=4, rope_scaling=...), num_experts=4, norm_topk_prob=True,
    sliding_window=5, router_aux_loss_coef=0.001, attention_bias=False, rope_theta=..., layer_types=["sliding_attention"] * 3 + ["full_attention"],
    mlp_layer_types=["dense"] + ["sparse"] * 3, rope_parameters=dict(
        full_attention=dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=16, beta_fast=1.367,
                            beta_slow=0.1367, attention_factor=1.2),
        sliding_attention=dict(rope_type="default", rope_theta=30.0))))
# Chunks and lengths of growth that end at different tokens
family("llama4", _T=14, _seed=3, **llama_like(
    "llama4_text", "Llama4ForCausalLM", **dict(EXPERTS, num_hidden_layers=4, moe_intermediate_size=..., num_experts_per_tok=1, rope_scaling=dict(
        rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)), intermediate_size=8,
    intermediate_size_mlp=10, num_local_experts=4, moe_layers=[1, 3], interleave_moe_layer_step=2, no_rope_layers=[1, 1, 1, 0],
    attention_chunk_size=5, use_qk_norm=True, attn_temperature_tuning=True, floor_scale=4, attn_scale=0.3, attention_bias=False,
    output_router_logits=False, router_aux_loss_coef=0.001, router_jitter_noise=0.0, rope_theta=100.0, pad_token_id=39))
family("smollm3", **llama_like("smollm3", "SmolLM3ForCausalLM", num_hidden_layers=3, no_rope_layers=[1, 0, 1], no_rope_layer_interval=2,
                               use_sliding_window=False, sliding_window=None, max_window_layers=3, attention_bias=False, mlp_bias=False,
                               layer_types=["full_attention"] * 3, rope_theta=5000.0, rope_scaling=None, pad_token_id=4,
                               tie_word_embeddings=True))
family("cohere2", **llama_like("cohere2", "Cohere2ForCausalLM", num_hidden_layers=3, rms_norm_eps=..., layer_norm_eps=1e-5, logit_scale=0.25,
                               sliding_window=7, sliding_window_pattern=3, attention_bias=False, tie_word_embeddings=True, pad_token_id=0,
                               rope_theta=5000.0, position_embedding_type="rope_gptj", rotary_pct=1.0, use_qk_norm=False,
                               order_of_interleaved_layers="local_attn_first", cache_implementation="hybrid"))
family("exaone4", **llama_like("exaone4", "Exaone4ForCausalLM", num_hidden_layers=3, head_dim=D, sliding_window=7,
                               sliding_window_pattern="LLG", layer_types=["sliding_attention"] * 2 + ["full_attention"],
                               rope_theta=10000.0, rope_scaling=None, pad_token_id=3))
# Phi-4-mini: three quarters of a head turn
family("phi4-mini", _seed=2, **llama_like("phi3", "Phi3ForCausalLM", **dict(PHI3, original_max_position_embeddings=16), **dict(
    LONG, max_position_embeddings=64), partial_rotary_factor=0.75, lm_head_bias=False, full_attn_mod=1,
    interpolate_factor=1, mlp_bias=False, tie_word_embeddings=True,
    rope_scaling=dict(FACTORS, short_factor=[1.0, 1.1, 1.3], long_factor=[1.2, 2.0, 3.1])))
GEMMA = dict(bos_token_id=2, eos_token_id=1, pad_token_id=0, head_dim=D, attention_bias=False, rms_norm_eps=1e-6,
             hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=...)
family("gemma", **llama_like("gemma", "GemmaForCausalLM", **dict(GEMMA, hidden_act="gelu", num_key_value_heads=1)))
family("gemma2", **llama_like("gemma2", "Gemma2ForCausalLM", **GEMMA, hidden_act="gelu_pytorch_tanh", attn_logit_softcapping=3.0,
                              final_logit_softcapping=5.0, query_pre_attn_scalar=5, sliding_window=9, cache_implementation="hybrid"))
family("vaultgemma", **llama_like("vaultgemma", "VaultGemmaForCausalLM", **GEMMA, hidden_act=..., attn_logit_softcapping=3.0,
                                  final_logit_softcapping=5.0, query_pre_attn_scalar=5, sliding_window=9,
                                  layer_types=["sliding_attention", "full_attention"]))
family("gemma3", **llama_like("gemma3_text", "Gemma3ForCausalLM", **GEMMA, hidden_act=..., attn_logit_softcapping=None,
                              final_logit_softcapping=None, query_pre_attn_scalar=11, sliding_window=9, sliding_window_pattern=3, num_hidden_layers=3,
                              rope_theta=1000000.0, rope_local_base_freq=10000.0, rope_scaling=dict(factor=8.0, rope_type="linear"),
                              cache_implementation="hybrid"))
# A table of channels for layers that is shorter than the vocabulary, and a first layer whose gate is cut. Tokens behind the table's end read
# its first row, to which a padding token there would let no gradient
family("gemma3n", _T=12, _seed=9, **llama_like(
    "gemma3n_text", "Gemma3nForCausalLM", **dict(GEMMA, tie_word_embeddings=True, pad_token_id=5), hidden_act=..., rope_theta=50.0,
    rope_local_base_freq=10.0, final_logit_softcapping=5.0, sliding_window=5, num_hidden_layers=5, num_attention_heads=2, num_key_value_heads=1, intermediate_size=[10] * 5,
    layer_types=["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"], num_kv_shared_layers=2,
    laurel_rank=3, altup_num_inputs=3, altup_active_idx=0, altup_correct_scale=True, altup_coef_clip=120.0,
    altup_lr_multiplier=1.0, query_pre_attn_scalar=256, activation_sparsity_pattern=[0.8, 0.0, 0.0, 0.0, 0.0],
    vocab_size_per_layer_input=V - 4, hidden_size_per_layer_input=5))
# Rows of a gated unit of twice the width in layers that share keys, and a window that is shorter than the text; with experts keys are values
GEMMA4 = dict(dict(GEMMA, tie_word_embeddings=True), hidden_act=..., rope_theta=..., global_head_dim=12, sliding_window=5, final_logit_softcapping=5.0,
              rope_parameters=dict(full_attention=dict(rope_type="proportional", rope_theta=50.0, partial_rotary_factor=0.34),
                                   sliding_attention=dict(rope_type="default", rope_theta=10.0)))
family("gemma4", _T=16, _seed=13, **llama_like(
    "gemma4_text", "Gemma4ForCausalLM", **GEMMA4, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1, intermediate_size=10,
    layer_types=["sliding_attention", "full_attention"] * 2, num_kv_shared_layers=2, use_double_wide_mlp=True,
    vocab_size_per_layer_input=V, hidden_size_per_layer_input=6))
family("gemma4-unified", _T=12, _seed=5, **llama_like(
    "gemma4_unified_text", "Gemma4UnifiedForCausalLM", **GEMMA4, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=2,
    intermediate_size=10, layer_types=["sliding_attention", "full_attention"] * 2, num_kv_shared_layers=1, attention_k_eq_v=True,
    num_global_key_value_heads=1, use_bidirectional_attention="vision", enable_moe_block=False, num_experts=None,
    hidden_size_per_layer_input=0, vocab_size_per_layer_input=V, use_double_wide_mlp=False))
family("gemma4-moe", _T=12, _seed=1, _saved=True, **llama_like(
    "gemma4_text", "Gemma4ForCausalLM", **GEMMA4, num_hidden_layers=3, intermediate_size=8, moe_intermediate_size=6, enable_moe_block=True,
    num_experts=4, top_k_experts=2, attention_k_eq_v=True, num_global_key_value_heads=1, hidden_size_per_layer_input=0,
    vocab_size_per_layer_input=V, layer_types=["sliding_attention"] * 2 + ["full_attention"]))
family("glm4-9b", **llama_like("glm", "GlmForCausalLM", attention_bias=True, head_dim=D, partial_rotary_factor=0.5, pad_token_id=3,
                               rms_norm_eps=1.5625e-07, eos_token_id=[3, 4, 5], bos_token_id=...))
family("glm4-0414", **llama_like("glm4", "Glm4ForCausalLM", attention_bias=False, head_dim=D, partial_rotary_factor=0.5, pad_token_id=3,
                                 eos_token_id=[3, 4, 5], bos_token_id=...))
family("chatglm3", _oracle="oracle_chatglm", architectures=["ChatGLMModel"], model_type="chatglm", add_bias_linear=False, add_qkv_bias=True,
       apply_query_key_layer_scaling=True, apply_residual_connection_post_layernorm=False, attention_dropout=0.0,
       attention_softmax_in_fp32=True, bias_dropout_fusion=True, ffn_hidden_size=F, fp32_residual_connection=False, hidden_dropout=0.0,
       hidden_size=C, kv_channels=D, layernorm_epsilon=1e-5, multi_query_attention=True, multi_query_group_num=G, num_attention_heads=H,
       num_layers=L, original_rope=True, padded_vocab_size=V, post_layer_norm=True, rmsnorm=True, rope_ratio=2, seq_length=P, use_cache=True,
       tie_word_embeddings=False, eos_token_id=2, pad_token_id=0)
family("chatglm-6b", _oracle="oracle_chatglm6b", _prefix=[9, 14], architectures=["ChatGLMModel"], model_type="chatglm", bos_token_id=36,
       eos_token_id=37, gmask_token_id=35, mask_token_id=34, pad_token_id=3, hidden_size=C, inner_hidden_size=36, layernorm_epsilon=1e-5,
       max_sequence_length=P, num_attention_heads=2, num_layers=L, position_encoding_2d=True, use_cache=True, vocab_size=V)
# Numbers that the cuts of the gated unit bite at, and ends of the ramp between pairs of channels
family("gpt-oss", _T=16, _seed=3, **llama_like(
    "gpt_oss", "GptOssForCausalLM", hidden_size=24, head_dim=D, intermediate_size=12, num_local_experts=6, num_experts_per_tok=2,
    experts_per_token=2, initial_context_length=16, attention_bias=True, sliding_window=5, layer_types=["sliding_attention", "full_attention"],
    swiglu_limit=0.7, router_aux_loss_coef=0.9, output_router_logits=False, rope_theta=100.0, rope_scaling=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=1.3, beta_slow=0.1, truncate=False)))

# ---- attention among scans: sequences that end within the second chunk of 64 ----
# rms_norm_eps keeps what a scan gives of next to nothing, as at a first token, from making gradients that f32 has no digits for.
DELTA = dict(_T=70, head_dim=D, partial_rotary_factor=0.5, rms_norm_eps=3e-5, num_hidden_layers=2,
             layer_types=["linear_attention", "full_attention"], linear_conv_kernel_dim=4,
             linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6, linear_value_head_dim=5, num_attention_heads=2,
             num_key_value_heads=1, max_position_embeddings=96, attention_bias=False, rope_scaling=None)
family("qwen3-next", _seed=8, **llama_like(
    "qwen3_next", "Qwen3NextForCausalLM", **DELTA, hidden_size=12, intermediate_size=8, moe_intermediate_size=8,
    shared_expert_intermediate_size=10, num_experts=4, num_experts_per_tok=2, norm_topk_prob=True, decoder_sparse_step=1,
    mlp_only_layers=[], output_router_logits=False, router_aux_loss_coef=0.001, full_attention_interval=4))
MROPE = dict(rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5, mrope_section=[1, 1, 0], mrope_interleaved=True),
             rope_scaling=..., rope_theta=..., partial_rotary_factor=..., attn_output_gate=True, full_attention_interval=4, mlp_only_layers=[],
             mtp_num_hidden_layers=1, mtp_use_dedicated_embeddings=False, mamba_ssm_dtype="float32")
family("qwen3.5", _seed=4, **llama_like("qwen3_5_text", "Qwen3_5ForCausalLM", **dict(DELTA, **MROPE), hidden_size=12, intermediate_size=16,
                               tie_word_embeddings=True))
family("qwen3.5-moe", _seed=3, **llama_like(
    "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", **dict(DELTA, **MROPE), hidden_size=12, intermediate_size=..., moe_intermediate_size=8,
    shared_expert_intermediate_size=10, num_experts=4, num_experts_per_tok=2, output_router_logits=False, router_aux_loss_coef=0.001))
# transformers writes the filters of queries, keys and values as three tensors of one size, whatever theirs are: here they have one.
OLMO_HYBRID = {k: v for k, v in DELTA.items() if k not in ("head_dim", "partial_rotary_factor", "rope_scaling", "linear_value_head_dim")}
family("olmo-hybrid", _published={"layers.1.feedforward_layer_norm": "layers.1.post_attention_layernorm"}, _seed=11, **llama_like(
    "olmo_hybrid", "OlmoHybridForCausalLM", **OLMO_HYBRID, hidden_size=12, linear_value_head_dim=3, intermediate_size=10, vocab_size=24, rope_theta=...,
    rope_parameters=dict(rope_type="default", rope_theta=None), linear_allow_neg_eigval=True, linear_a_log_min=0.0, linear_a_log_max=16.0,
    linear_dt_min=0.001, linear_dt_max=0.1, linear_dt_init_floor=1e-4, pad_token_id=0))
LFM2 = dict(_T=70, hidden_size=12, num_attention_heads=2, num_key_value_heads=1, num_hidden_layers=3, hidden_act=..., rms_norm_eps=..., norm_eps=1e-5,
            tie_word_embeddings=..., attention_dropout=..., max_position_embeddings=96, conv_L_cache=3, conv_bias=False, pad_token_id=0,
            rope_theta=10000.0)
family("lfm2", **llama_like(
    "lfm2", "Lfm2ForCausalLM", **LFM2, intermediate_size=..., block_ff_dim=24, block_multiple_of=10, block_ffn_dim_multiplier=1.0, block_dim=12,
    block_auto_adjust_ff_dim=True, block_mlp_init_scale=1.0, block_norm_eps=1e-5, block_out_init_scale=1.0, block_use_swiglu=True,
    block_use_xavier_init=True, conv_dim=12, conv_dim_out=12, conv_use_xavier_init=True, full_attn_idxs=[1], num_heads=2, tie_embedding=True,
    use_pos_enc=True))
family("lfm2-bias", **llama_like(
    "lfm2", "Lfm2ForCausalLM", **dict(LFM2, conv_bias=True, conv_L_cache=2), intermediate_size=18, block_auto_adjust_ff_dim=False,
    tie_embedding=False, layer_types=["conv", "conv", "full_attention"]))
family("lfm2-moe", _seed=3, **llama_like(
    "lfm2_moe", "Lfm2MoeForCausalLM", **dict(LFM2, _T=24), layer_types=["conv", "full_attention", "conv"], intermediate_size=10, moe_intermediate_size=8,
    num_dense_layers=1, num_experts=4, num_experts_per_tok=2, norm_topk_prob=True, use_expert_bias=True, routed_scaling_factor=1.5,
    tie_embedding=True))
KIMI = dict(_T=70, _published={".block_sparse_moe.%s_proj" % p: ".mlp.%s_proj" % p for p in ("gate", "up", "down")}, hidden_size=12, num_attention_heads=2, num_key_value_heads=2, num_hidden_layers=2, max_position_embeddings=..., model_max_length=96,
            kv_lora_rank=10, q_lora_rank=None, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, intermediate_size=10, moe_intermediate_size=8,
            num_experts=4, num_experts_per_token=2, num_expert_group=1, topk_group=1, moe_renormalize=True, num_shared_experts=1,
            routed_scaling_factor=1.5, first_k_dense_replace=1, moe_layer_freq=1, moe_router_activation_func="sigmoid", mla_use_nope=True,
            num_nextn_predict_layers=0, use_grouped_topk=True, rms_norm_eps=3e-5, pad_token_id=0, rope_scaling=None)
family("kimi-linear", _seed=4, **llama_like(
    "kimi_linear", "KimiLinearForCausalLM", **KIMI,
    linear_attn_config=dict(full_attn_layers=[2], kda_layers=[1], head_dim=6, num_heads=3, short_conv_kernel_size=4)))

family("minimax-text", _T=70, _seed=2, **llama_like(
    "minimax", "MiniMaxForCausalLM", hidden_size=12, num_attention_heads=2, num_key_value_heads=1, head_dim=D, num_hidden_layers=2,
    max_position_embeddings=96, layer_types=["linear_attention", "full_attention"], intermediate_size=8, rope_theta=1000000.0, rms_norm_eps=1e-5,
    num_local_experts=4, num_experts_per_tok=2, router_aux_loss_coef=0.02, router_jitter_noise=0.0, output_router_logits=False, sliding_window=None,
    block_size=16, full_attn_alpha_factor=1.4, full_attn_beta_factor=0.8, linear_attn_alpha_factor=1.7, linear_attn_beta_factor=0.9,
    mlp_alpha_factor=1.2, mlp_beta_factor=1.1))

# ---- Mamba-2: sequences that end within the second chunk of 64 ----
INF = float("inf")
MAMBA = dict(_T=70, vocab_size=24, hidden_size=12, num_attention_heads=2, num_key_value_heads=1, intermediate_size=10, max_position_embeddings=96,
             num_logits_to_keep=1, mamba_chunk_size=64, mamba_conv_bias=True, mamba_d_conv=4, mamba_d_head=4, mamba_d_state=5, mamba_expand=2,
             mamba_n_groups=2, mamba_n_heads=6, mamba_proj_bias=False, pad_token_id=0)
family("mamba2", _T=70, _seed=3, architectures=["Mamba2ForCausalLM"], model_type="mamba2", bos_token_id=0, chunk_size=64, conv_kernel=4, eos_token_id=0, expand=2,
       head_dim=4, hidden_act="silu", hidden_size=12, initializer_range=0.1, intermediate_size=24, layer_norm_epsilon=1e-5, n_groups=2,
       norm_before_gate=True, num_heads=6, num_hidden_layers=2, pad_token_id=0, rescale_prenorm_residual=False, residual_in_fp32=True,
       rms_norm=True, state_size=5, tie_word_embeddings=False, time_step_floor=1e-4, time_step_init_scheme="random", time_step_limit=[0.0, INF],
       time_step_max=0.1, time_step_min=0.001, time_step_rank=1, time_step_scale=1.0, use_bias=False, use_cache=True, use_conv_bias=True,
       vocab_size=24)
family("bamba", _seed=5, **llama_like("bamba", "BambaForCausalLM", **MAMBA, head_dim=8, num_hidden_layers=3, attn_layer_indices=[1], attn_rotary_emb=3, attention_bias=False,
                             mlp_bias=False, time_step_limit=[0.2, 1.5]))
GRANITE4 = dict(GRANITE, **MAMBA, layer_types=["mamba", "attention", "mamba"], num_hidden_layers=3, shared_intermediate_size=8,
                position_embedding_type="nope", init_method="mup", normalization_function="rmsnorm", output_router_logits=False,
                num_experts_per_tok=2, router_aux_loss_coef=0.01)
family("granite4", _seed=1, **llama_like("granitemoehybrid", "GraniteMoeHybridForCausalLM", **dict(GRANITE4, position_embedding_type="rope"), num_local_experts=0))
family("granite4-moe", _seed=5, **llama_like("granitemoehybrid", "GraniteMoeHybridForCausalLM", **GRANITE4, num_local_experts=4))
NEMOTRON_H = dict(_T=70, architectures=["NemotronHForCausalLM"], model_type="nemotron_h", attention_bias=False, attention_dropout=0.0, bos_token_id=1,
                  chunk_size=64, conv_kernel=4, eos_token_id=2, expand=2, head_dim=6, hidden_dropout=0.0, hidden_size=12, initializer_range=0.02,
                  intermediate_size=10, layer_norm_epsilon=1e-5, mamba_head_dim=4, mamba_hidden_act="silu", mamba_num_heads=6,
                  mamba_proj_bias=False, max_position_embeddings=96, mlp_bias=False, mlp_hidden_act="relu2", n_groups=2,
                  num_attention_heads=2, num_key_value_heads=1, num_logits_to_keep=1, pad_token_id=0, rescale_prenorm_residual=True,
                  residual_in_fp32=False, ssm_state_size=5, tie_word_embeddings=False, time_step_floor=1e-4, time_step_limit=[0.0, INF],
                  time_step_max=0.1, time_step_min=0.3, use_bias=False, use_cache=True, use_conv_bias=True, use_mamba_kernels=True, vocab_size=24)
family("nemotron-h", _seed=1, **NEMOTRON_H, hybrid_override_pattern="M-M*-", num_hidden_layers=5)
NEMOTRON_MOE = dict(NEMOTRON_H, moe_intermediate_size=6, moe_shared_expert_intermediate_size=8, n_group=1, n_routed_experts=4, n_shared_experts=1,
                    norm_topk_prob=True, num_experts_per_tok=2, routed_scaling_factor=2.5, topk_group=1, norm_eps=1e-5,
                    hybrid_override_pattern="ME*E", num_hidden_layers=4)
family("nemotron-h-moe", _seed=5, **NEMOTRON_MOE)
family("nemotron-h-latent", _seed=5, **NEMOTRON_MOE, moe_latent_size=8)
FALCON_H1 = dict(MAMBA, num_hidden_layers=2, attn_layer_indices=None, attention_bias=False, mlp_bias=False, head_dim=8, projectors_bias=False,
                 attention_in_multiplier=0.9, attention_out_multiplier=0.8, embedding_multiplier=3.0, key_multiplier=0.7,
                 lm_head_multiplier=0.6, mamba_d_ssm=24, mamba_norm_before_gate=False, mamba_rms_norm=False, mamba_use_mlp=True,
                 mlp_expansion_factor=8, mlp_multipliers=[1.3, 0.8], ssm_in_multiplier=1.25, ssm_multipliers=[0.9, 1.1, 1.2, 0.8, 1.4],
                 ssm_out_multiplier=0.7, rope_theta=1000.0, rope_scaling=None)
family("falcon-h1", _seed=1, **llama_like("falcon_h1", "FalconH1ForCausalLM", **FALCON_H1))
family("falcon-h1-norm", _seed=1, **llama_like("falcon_h1", "FalconH1ForCausalLM", **dict(FALCON_H1, mamba_rms_norm=True)))

# ---- encoders of texts ----
BERT = dict(attention_probs_dropout_prob=0.1, hidden_act="gelu", hidden_dropout_prob=0.1, hidden_size=12, initializer_range=0.02,
            intermediate_size=F, max_position_embeddings=P, num_attention_heads=2, num_hidden_layers=L, type_vocab_size=2, vocab_size=V)
family("bert", _types=[9, 15], **dict(BERT, architectures=["BertForMaskedLM"], model_type="bert", gradient_checkpointing=False,
                                      layer_norm_eps=1e-6, pad_token_id=0, position_embedding_type="absolute", use_cache=True))
family("electra", _types=[9, 15], **dict(BERT, architectures=["ElectraForMaskedLM"], model_type="electra", embedding_size=8, layer_norm_eps=1e-6,
                                         pad_token_id=0, position_embedding_type="absolute", summary_activation="gelu", summary_last_dropout=0.1,
                                         summary_type="first", summary_use_proj=True))
ROBERTA = dict(BERT, bos_token_id=0, eos_token_id=2, layer_norm_eps=1e-5, max_position_embeddings=P + 2, pad_token_id=1, type_vocab_size=1)
family("roberta", **dict(ROBERTA, architectures=["RobertaForMaskedLM"], model_type="roberta"))
# transformers 5.23 keeps the other name of the tied table
family("xlm-roberta", _types=[5, 20], _published={"lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight"}, **dict(ROBERTA, architectures=["XLMRobertaForMaskedLM"], model_type="xlm-roberta", output_past=True,
                                             max_position_embeddings=P + 4, pad_token_id=3, position_embedding_type="absolute",
                                             type_vocab_size=2, use_cache=True))
family("ernie", _types=[9, 15], **dict(BERT, architectures=["ErnieForMaskedLM"], model_type="ernie", layer_norm_eps=1e-6, pad_token_id=0,
                                       task_type_vocab_size=3, use_task_id=False, use_cache=True))
family("data2vec-text", **dict(ROBERTA, architectures=["Data2VecTextForMaskedLM"], model_type="data2vec-text"))
family("megatron-bert", _types=[9, 15], **dict(BERT, architectures=["MegatronBertForMaskedLM"], model_type="megatron-bert", layer_norm_eps=1e-6,
                                               pad_token_id=0))
family("roberta-prelayernorm", **dict(ROBERTA, architectures=["RobertaPreLayerNormForMaskedLM"], model_type="roberta-prelayernorm"))
family("xlm-roberta-xl", **dict(ROBERTA, architectures=["XLMRobertaXLForMaskedLM"], model_type="xlm-roberta-xl"))
family("distilbert", activation="gelu", architectures=["DistilBertForMaskedLM"], attention_dropout=0.1, dim=12, dropout=0.1, hidden_dim=F,
       initializer_range=0.02, max_position_embeddings=P, model_type="distilbert", n_heads=2, n_layers=L, pad_token_id=0, qa_dropout=0.1,
       seq_classif_dropout=0.2, sinusoidal_pos_embds=False, tie_weights_=True, vocab_size=V)
family("modernbert", architectures=["ModernBertForMaskedLM"], attention_bias=False, attention_dropout=0.0, bos_token_id=2,
       classifier_activation="gelu", classifier_bias=False, classifier_dropout=0.0, classifier_pooling="mean", cls_token_id=2, decoder_bias=True,
       deterministic_flash_attn=False, embedding_dropout=0.0, eos_token_id=3, global_attn_every_n_layers=3, global_rope_theta=160.0,
       gradient_checkpointing=False, hidden_activation="gelu", hidden_size=12, initializer_cutoff_factor=2.0, initializer_range=0.02,
       intermediate_size=10, layer_norm_eps=1e-5, local_attention=6, local_rope_theta=10.0, max_position_embeddings=P, mlp_bias=False,
       mlp_dropout=0.0, model_type="modernbert", norm_bias=False, norm_eps=1e-5, num_attention_heads=2, num_hidden_layers=4, pad_token_id=1,
       position_embedding_type="absolute", reference_compile=True, sep_token_id=3, sparse_pred_ignore_index=-100, sparse_prediction=False,
       vocab_size=V)

# ---- encoder-decoders ----
T5 = dict(d_ff=F, d_kv=4, d_model=12, decoder_start_token_id=0, dropout_rate=0.1, eos_token_id=1, initializer_factor=1.0, is_encoder_decoder=True,
          layer_norm_epsilon=1e-6, n_positions=P, num_decoder_layers=3, num_heads=4, num_layers=2, pad_token_id=0,
          relative_attention_max_distance=12, relative_attention_num_buckets=8, use_cache=True, vocab_size=V)
family("t5", _seed=1, _source=[17, 30], **dict(T5, architectures=["T5ForConditionalGeneration"], model_type="t5", feed_forward_proj="relu"))
family("t5-v1.1", _seed=1, _source=[17, 30], _untied=True, **dict(T5, architectures=["T5ForConditionalGeneration"], model_type="t5", num_layers=1, num_decoder_layers=2,
                                                         feed_forward_proj="gated-gelu", tie_word_embeddings=False))
family("mt5", _source=[30, 9], _untied=True, **dict(T5, architectures=["MT5ForConditionalGeneration"], model_type="mt5", num_decoder_layers=1,
                                                    feed_forward_proj="gated-silu", tie_word_embeddings=True, tokenizer_class="T5Tokenizer"))
family("umt5", _source=[30, 9], _untied=True, **dict(T5, architectures=["UMT5ForConditionalGeneration"], model_type="umt5",
                                                     feed_forward_proj="gated-gelu", num_layers=1, num_decoder_layers=2, d_ff=12, tie_word_embeddings=False))
family("bart", _source=[17, 30], architectures=["BartForConditionalGeneration"], model_type="bart", activation_dropout=0.1, activation_function="gelu",
       add_bias_logits=False, add_final_layer_norm=False, attention_dropout=0.1, bos_token_id=0, classif_dropout=0.1, d_model=12,
       decoder_attention_heads=2, decoder_ffn_dim=F, decoder_layerdrop=0.0, decoder_layers=2, decoder_start_token_id=2, dropout=0.1,
       encoder_attention_heads=3, encoder_ffn_dim=16, encoder_layerdrop=0.0, encoder_layers=1, eos_token_id=2, forced_eos_token_id=2, init_std=0.02,
       is_encoder_decoder=True, max_position_embeddings=P, normalize_before=False, normalize_embedding=True, num_hidden_layers=1, pad_token_id=1,
       scale_embedding=True, use_cache=True, vocab_size=V)
