# tests of tests/golden
# Models of the evaluation test.
EXTRA_DIST += tests/golden/README.md tests/golden/model/README.md tests/golden/model/make_golden.py tests/golden/model/gpt2.h5 tests/golden/model/llama.h5 \
  tests/golden/model/mistral.h5 tests/golden/model/qwen3.h5

# Training against PyTorch. train_export is built by hand (make tests/golden/train_export) to make curve.txt again.
check_PROGRAMS += tests/golden/train_test
TESTS += tests/golden/train_test
tests_golden_train_test_SOURCES = tests/golden/train/train_test.c tests/golden/train/case.c tests/golden/train/case.h
tests_golden_train_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_PROGRAMS += tests/golden/train_export
tests_golden_train_export_SOURCES = tests/golden/train/export.c tests/golden/train/case.c tests/golden/train/case.h
tests_golden_train_export_LDADD = $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/train/README.md tests/golden/train/make_train.py tests/golden/train/curve.txt

# What layouts sum over which ranks (tests/unit/graph_layout.c; LF_GOLDEN_WRITE=1 writes them anew).
EXTRA_DIST += tests/golden/layout/README.md tests/golden/layout/biases-t2.txt tests/golden/layout/dora-t2.txt tests/golden/layout/fused-dora-t2.txt \
  tests/golden/layout/gpt2-t2-rows.txt tests/golden/layout/gpt2-t2.txt tests/golden/layout/lora-t2-rows.txt \
  tests/golden/layout/lora-t2.txt tests/golden/layout/lora-t4.txt tests/golden/layout/qk_norm-t2-rows.txt \
  tests/golden/layout/qk_norm-t2.txt tests/golden/layout/shared-expert-t2.txt tests/golden/layout/shared-expert-t2-rows.txt

# Evaluation and generation against transformers.
check_PROGRAMS += tests/golden/eval_test
TESTS += tests/golden/eval_test
tests_golden_eval_test_SOURCES = tests/golden/eval_test.c tests/golden/golden.c tests/golden/golden.h tests/unit/infer_ckpt.c \
  tests/unit/infer_ckpt.h
tests_golden_eval_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/eval/README.md tests/golden/eval/make_eval.py tests/golden/eval/tokenizer.json tests/golden/eval/pages.jsonl \
  tests/golden/eval/choice.jsonl tests/golden/eval/words.jsonl tests/golden/eval/eval.json

# Families: directories as their families publish them, and what the reference computes from them.
# Two programs share them, so that they run side by side.
FAMILY_TEST = tests/golden/families/families_test.c tests/golden/families/family.c tests/golden/families/family.h \
  tests/golden/families/family_rig.c tests/golden/families/family_flips.c
check_PROGRAMS += tests/golden/families/families_1_test tests/golden/families/families_2_test
TESTS += tests/golden/families/families_1_test tests/golden/families/families_2_test
tests_golden_families_families_1_test_SOURCES = $(FAMILY_TEST)
tests_golden_families_families_1_test_CPPFLAGS = $(AM_CPPFLAGS) -DPART=0 -DPARTS=2
tests_golden_families_families_1_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_golden_families_families_2_test_SOURCES = $(FAMILY_TEST)
tests_golden_families_families_2_test_CPPFLAGS = $(AM_CPPFLAGS) -DPART=1 -DPARTS=2
tests_golden_families_families_2_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
# What config.json says beyond these.
check_PROGRAMS += tests/golden/families/configs_test
TESTS += tests/golden/families/configs_test
tests_golden_families_configs_test_SOURCES = tests/golden/families/configs_test.c tests/golden/families/configs_rows.inc
tests_golden_families_configs_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
# Every model_type of transformers is imported, or refused by what it needs.
check_PROGRAMS += tests/golden/families/classes_test
TESTS += tests/golden/families/classes_test
tests_golden_families_classes_test_SOURCES = tests/golden/families/classes_test.c
tests_golden_families_classes_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/families/classes.txt tests/golden/families/make_classes.py
check_PROGRAMS += tests/golden/families/seq2seq_test
TESTS += tests/golden/families/seq2seq_test
tests_golden_families_seq2seq_test_SOURCES = tests/golden/families/seq2seq_test.c tests/golden/families/buckets.inc \
  tests/golden/families/family.c tests/golden/families/family.h tests/golden/families/family_rig.c
tests_golden_families_seq2seq_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/families/make_buckets.py
check_PROGRAMS += tests/golden/families/latent_test
TESTS += tests/golden/families/latent_test
tests_golden_families_latent_test_SOURCES = tests/golden/families/latent_test.c \
  tests/golden/families/family.c tests/golden/families/family.h
tests_golden_families_latent_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
check_PROGRAMS += tests/golden/families/longrope_test
TESTS += tests/golden/families/longrope_test
tests_golden_families_longrope_test_SOURCES = tests/golden/families/longrope_test.c \
  tests/golden/families/family.c tests/golden/families/family.h tests/golden/families/family_rig.c
tests_golden_families_longrope_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/families/longrope.json tests/golden/families/make_longrope.py
# What is exported after training; check_exports.py holds the same to transformers.
check_PROGRAMS += tests/golden/families/exports_test
TESTS += tests/golden/families/exports_test
tests_golden_families_exports_test_SOURCES = tests/golden/families/exports_test.c tests/golden/families/family.c \
  tests/golden/families/family.h tests/golden/families/family_rig.c tests/golden/families/family_flips.c \
  tests/unit/infer_ckpt.c tests/unit/infer_ckpt.h
tests_golden_families_exports_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/families/exports.json tests/golden/families/check_exports.py
FAMILY_GOLDENS = \
  tests/golden/families/apertus \
  tests/golden/families/arcee \
  tests/golden/families/baichuan-13b \
  tests/golden/families/baichuan-7b \
  tests/golden/families/baichuan2-13b \
  tests/golden/families/baichuan2-7b \
  tests/golden/families/bamba \
  tests/golden/families/bert tests/golden/families/t5 tests/golden/families/t5-v1.1 tests/golden/families/mt5 tests/golden/families/umt5 tests/golden/families/bart \
  tests/golden/families/bloom \
  tests/golden/families/chatglm-6b \
  tests/golden/families/chatglm3 \
  tests/golden/families/cohere \
  tests/golden/families/cohere2 \
  tests/golden/families/deepseek-moe \
  tests/golden/families/deepseek-v2 \
  tests/golden/families/deepseek-v3 \
  tests/golden/families/distilbert \
  tests/golden/families/electra \
  tests/golden/families/dots1 \
  tests/golden/families/ernie4.5 \
  tests/golden/families/ernie4.5-moe \
  tests/golden/families/exaone-moe \
  tests/golden/families/exaone4 \
  tests/golden/families/falcon-11b \
  tests/golden/families/falcon-40b \
  tests/golden/families/falcon-7b \
  tests/golden/families/falcon-h1 \
  tests/golden/families/falcon-h1-norm \
  tests/golden/families/galactica \
  tests/golden/families/gemma \
  tests/golden/families/gemma2 \
  tests/golden/families/gemma3 \
  tests/golden/families/gemma3n \
  tests/golden/families/gemma4 \
  tests/golden/families/gemma4-moe \
  tests/golden/families/gemma4-unified \
  tests/golden/families/glm4-0414 \
  tests/golden/families/glm4-9b \
  tests/golden/families/glm4.5 \
  tests/golden/families/glm4.7-flash \
  tests/golden/families/mistral4 \
  tests/golden/families/granite-moe-shared \
  tests/golden/families/granite-swa \
  tests/golden/families/granite-moe-swa \
  tests/golden/families/trinity \
  tests/golden/families/flint \
  tests/golden/families/minicpm3 \
  tests/golden/families/biogpt \
  tests/golden/families/gpt \
  tests/golden/families/gpt-sw3 \
  tests/golden/families/aria-text \
  tests/golden/families/mellum \
  tests/golden/families/ernie \
  tests/golden/families/data2vec-text \
  tests/golden/families/megatron-bert \
  tests/golden/families/roberta-prelayernorm \
  tests/golden/families/xlm-roberta-xl \
  tests/golden/families/flex-olmo \
  tests/golden/families/gpt-neo \
  tests/golden/families/iquestcoder \
  tests/golden/families/cwm \
  tests/golden/families/vaultgemma \
  tests/golden/families/xlm-roberta \
  tests/golden/families/llama4 \
  tests/golden/families/codegen \
  tests/golden/families/mpt \
  tests/golden/families/gpt-j \
  tests/golden/families/gpt-j-tied \
  tests/golden/families/gpt-neox \
  tests/golden/families/gpt-oss \
  tests/golden/families/gpt2 \
  tests/golden/families/granite \
  tests/golden/families/granite-moe \
  tests/golden/families/granite4 \
  tests/golden/families/granite4-moe \
  tests/golden/families/helium \
  tests/golden/families/hunyuan \
  tests/golden/families/hunyuan-moe \
  tests/golden/families/hy3 \
  tests/golden/families/hyperclovax \
  tests/golden/families/internlm2 \
  tests/golden/families/internlm3 \
  tests/golden/families/jais2 \
  tests/golden/families/olmo \
  tests/golden/families/nanochat \
  tests/golden/families/olmo-hybrid \
  tests/golden/families/kimi-linear \
  tests/golden/families/lfm2 \
  tests/golden/families/lfm2-bias \
  tests/golden/families/lfm2-moe \
  tests/golden/families/minimax-text \
  tests/golden/families/llama \
  tests/golden/families/llama-linear \
  tests/golden/families/llama-yarn \
  tests/golden/families/llama3.1 \
  tests/golden/families/llama3.2 \
  tests/golden/families/mamba2 \
  tests/golden/families/mimo \
  tests/golden/families/minimax-m2 \
  tests/golden/families/ministral \
  tests/golden/families/ministral3 \
  tests/golden/families/mistral \
  tests/golden/families/mixtral \
  tests/golden/families/modernbert \
  tests/golden/families/nemotron \
  tests/golden/families/nemotron-h \
  tests/golden/families/nemotron-h-latent \
  tests/golden/families/nemotron-h-moe \
  tests/golden/families/olmo2 \
  tests/golden/families/olmo3 \
  tests/golden/families/olmoe \
  tests/golden/families/opt \
  tests/golden/families/opt-350m \
  tests/golden/families/phi2 \
  tests/golden/families/phi3 \
  tests/golden/families/phi3-factor \
  tests/golden/families/phi3-long \
  tests/golden/families/phi3-short \
  tests/golden/families/phi4-mini \
  tests/golden/families/pythia \
  tests/golden/families/qwen1 \
  tests/golden/families/qwen2 \
  tests/golden/families/qwen2-moe \
  tests/golden/families/qwen2-moe-lists \
  tests/golden/families/qwen2.5 \
  tests/golden/families/qwen3 \
  tests/golden/families/qwen3-layers \
  tests/golden/families/qwen3-moe \
  tests/golden/families/qwen3-moe-lists \
  tests/golden/families/qwen3-next \
  tests/golden/families/qwen3.5 \
  tests/golden/families/qwen3.5-moe \
  tests/golden/families/roberta \
  tests/golden/families/seed-oss \
  tests/golden/families/smollm3 \
  tests/golden/families/solar-open \
  tests/golden/families/stablelm \
  tests/golden/families/stablelm-parallel \
  tests/golden/families/starcoder \
  tests/golden/families/starcoder2 \
  tests/golden/families/youtu
EXTRA_DIST += $(FAMILY_GOLDENS) tests/golden/families/README.md tests/golden/families/make_families.py \
  tests/golden/families/make_table.py tests/golden/families/check_oracles.py tests/golden/families/check_configs.py \
  tests/golden/families/configs.py \
  tests/golden/families/oracle_baichuan.py tests/golden/families/oracle_chatglm.py tests/golden/families/oracle_chatglm6b.py \
  tests/golden/families/oracle_common.py tests/golden/families/oracle_deepseek.py tests/golden/families/oracle_internlm2.py \
  tests/golden/families/oracle_internlm3.py tests/golden/families/oracle_mimo.py \
  tests/golden/families/oracle_qwen.py

# Reward models against transformers and the maths of trl.
check_PROGRAMS += tests/golden/post_rm_test
TESTS += tests/golden/post_rm_test
tests_golden_post_rm_test_SOURCES = tests/golden/post_rm_test.c
tests_golden_post_rm_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/post/make_rm.py tests/golden/post/check_rm.py tests/golden/post/rm-qwen2 tests/golden/post/rm-qwen2-grad \
  tests/golden/post/rm-gpt2 tests/golden/post/make_rm_adapter.py tests/golden/post/rm-lora tests/golden/post/rm-dora
# Labels of texts and tokens against transformers.
check_PROGRAMS += tests/golden/heads_test
TESTS += tests/golden/heads_test
tests_golden_heads_test_SOURCES = tests/golden/heads_test.c
tests_golden_heads_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/heads tests/golden/labels
# Preference losses against trl.
check_PROGRAMS += tests/golden/post_pairs_test
TESTS += tests/golden/post_pairs_test
tests_golden_post_pairs_test_SOURCES = tests/golden/post_pairs_test.c
tests_golden_post_pairs_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
check_PROGRAMS += tests/golden/post_policy_test
TESTS += tests/golden/post_policy_test
tests_golden_post_policy_test_SOURCES = tests/golden/post_policy_test.c
tests_golden_post_policy_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/post/make_policy.py tests/golden/post/ppo_reference.py tests/golden/post/policy

EXTRA_DIST += tests/golden/post/make_pairs.py tests/golden/post/pairs/config.json tests/golden/post/pairs/model.safetensors \
  tests/golden/post/pairs/expected.safetensors
# Conversations, masks, packing and fine-tuning against trl's trainer.
TESTS += tests/golden/sft.sh
EXTRA_DIST += tests/golden/sft.sh tests/golden/post/make_sft.py tests/golden/post/sft/config.json tests/golden/post/sft/model.safetensors \
  tests/golden/post/sft/tokenizer_config.json tests/golden/post/sft/rows.jsonl tests/golden/post/sft/curves.txt
# Requests exported from lm-evaluation-harness, through lf-convert and lf-eval.
check_PROGRAMS += tests/golden/harness_near
tests_golden_harness_near_SOURCES = tests/golden/harness_near.c
tests_golden_harness_near_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
TESTS += tests/golden/harness.sh
EXTRA_DIST += tests/golden/harness.sh tests/golden/harness/README.md tests/golden/harness/make_harness.py \
  tests/golden/harness/check_convert.py \
  tests/golden/harness/make_pictures.py tests/golden/harness/pictures \
  tests/golden/harness/requests.jsonl tests/golden/harness/golden.json tests/golden/harness/model/config.json \
  tests/golden/harness/model/generation_config.json tests/golden/harness/model/model.safetensors \
  tests/golden/harness/model/tokenizer.json tests/golden/harness/model/tokenizer_config.json

# Parquet files against pyarrow.
EXTRA_DIST += tests/golden/energon/make_energon.py tests/golden/energon/folders.tar.xz tests/golden/energon/rows
check_PROGRAMS += tests/golden/parquet_test
TESTS += tests/golden/parquet_test
tests_golden_parquet_test_SOURCES = tests/golden/parquet_test.c
tests_golden_parquet_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/parquet/README.md tests/golden/parquet/make_parquet.py tests/golden/parquet/files.tar.xz \
  tests/golden/parquet/rows

# Vision encoders.
check_PROGRAMS += tests/golden/vision_test
TESTS += tests/golden/vision_test
tests_golden_vision_test_SOURCES = tests/golden/vision/vision_test.c
tests_golden_vision_test_CPPFLAGS = $(AM_CPPFLAGS) $(HDF5_CPPFLAGS)
tests_golden_vision_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/vision/README.md tests/golden/vision/make_vision.py tests/golden/vision/clip.h5 \
  tests/golden/vision/siglip.h5 tests/golden/vision/siglip2.h5 tests/golden/vision/dinov2.h5 tests/golden/vision/dinov2-swiglu.h5 \
  tests/golden/vision/internvit.h5 tests/golden/vision/internvit-rms.h5 tests/golden/vision/qwen2-vl.h5 \
  tests/golden/vision/qwen2.5-vl.h5 tests/golden/vision/qwen3-vl.h5 \
  tests/golden/vision/eva-clip.h5 tests/golden/vision/eva02.h5
check_PROGRAMS += tests/golden/lone_test
TESTS += tests/golden/lone_test
tests_golden_lone_test_SOURCES = tests/golden/vision/lone_test.c
tests_golden_lone_test_CPPFLAGS = $(AM_CPPFLAGS) $(HDF5_CPPFLAGS)
tests_golden_lone_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/vision/lone tests/golden/vision/expected

# A masked autoencoder.
check_PROGRAMS += tests/golden/mae_test
TESTS += tests/golden/mae_test
tests_golden_mae_test_SOURCES = tests/golden/mae/mae_test.c
tests_golden_mae_test_CPPFLAGS = $(AM_CPPFLAGS) $(HDF5_CPPFLAGS)
tests_golden_mae_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/mae/README.md tests/golden/mae/make_mae.py tests/golden/mae/mae.h5 tests/golden/mae/lone

# Models that tell classes of pictures.
check_PROGRAMS += tests/golden/vit_test
TESTS += tests/golden/vit_test
tests_golden_vit_test_SOURCES = tests/golden/classes/vit_test.c
tests_golden_vit_test_CPPFLAGS = $(AM_CPPFLAGS) $(HDF5_CPPFLAGS)
tests_golden_vit_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/classes/README.md tests/golden/classes/make_classes.py tests/golden/classes/vit.h5 \
  tests/golden/classes/deit.h5 tests/golden/classes/deit-taught.h5 tests/golden/classes/swin.h5 tests/golden/classes/swinv2.h5 \
  tests/golden/classes/convnext.h5 tests/golden/classes/resmlp.h5

# Towers of pictures and texts.
check_PROGRAMS += tests/golden/dual_test
TESTS += tests/golden/dual_test
tests_golden_dual_test_SOURCES = tests/golden/dual/dual_test.c
tests_golden_dual_test_CPPFLAGS = $(AM_CPPFLAGS) $(HDF5_CPPFLAGS)
tests_golden_dual_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/dual/README.md tests/golden/dual/make_dual.py tests/golden/dual/clip.h5 tests/golden/dual/siglip.h5 \
  tests/golden/dual/clip tests/golden/dual/siglip tests/golden/dual/expected
# Views of pictures that are compared.
check_PROGRAMS += tests/golden/moco_test
TESTS += tests/golden/moco_test
tests_golden_moco_test_SOURCES = tests/golden/moco/moco_test.c
tests_golden_moco_test_CPPFLAGS = $(AM_CPPFLAGS) $(HDF5_CPPFLAGS)
tests_golden_moco_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/moco/README.md tests/golden/moco/make_moco.py tests/golden/moco/moco.h5

# Models that see: directories as their classes are published, and what transformers computes from them.
check_PROGRAMS += tests/golden/vlm_test
TESTS += tests/golden/vlm_test
tests_golden_vlm_test_SOURCES = tests/golden/vlm/vlm_test.c tests/golden/vlm/vlm_notice.c tests/golden/vlm/vlm_verify.c \
  tests/golden/vlm/vlm.c tests/golden/vlm/vlm.h \
  tests/golden/families/family.c tests/golden/families/family.h tests/golden/families/family_rig.c \
  tests/golden/families/family_flips.c
tests_golden_vlm_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
VLM_GOLDENS = tests/golden/vlm/gemma3 tests/golden/vlm/internvl tests/golden/vlm/internvl-rms tests/golden/vlm/internvl-chat \
  tests/golden/vlm/internvl-chat-internlm2 tests/golden/vlm/llava tests/golden/vlm/llava-full tests/golden/vlm/llava-layers tests/golden/vlm/llava-next \
  tests/golden/vlm/llava-onevision tests/golden/vlm/llava-siglip tests/golden/vlm/paligemma \
  tests/golden/vlm/paligemma2 tests/golden/vlm/qwen2-vl \
  tests/golden/vlm/qwen2.5-vl tests/golden/vlm/qwen3-vl tests/golden/vlm/qwen3-vl-moe tests/golden/vlm/qwen3.5-vl \
  tests/golden/vlm/qwen3.5-vl-moe tests/golden/vlm/idefics3 \
  tests/golden/vlm/pixtral tests/golden/vlm/mistral3 tests/golden/vlm/vipllava
EXTRA_DIST += $(VLM_GOLDENS) tests/golden/vlm/README.md tests/golden/vlm/make_vlm.py tests/golden/vlm/run tests/golden/vlm/make_run.py tests/golden/vlm/make_judged.py \
  tests/golden/vlm/make_scores.py
check_PROGRAMS += tests/golden/vlm_configs_test
TESTS += tests/golden/vlm_configs_test
tests_golden_vlm_configs_test_SOURCES = tests/golden/vlm/vlm_configs_test.c
tests_golden_vlm_configs_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/vlm/saved.json
# Heads that predict later tokens.
check_PROGRAMS += tests/golden/mtp/mtp_test
TESTS += tests/golden/mtp/mtp_test
tests_golden_mtp_mtp_test_SOURCES = tests/golden/mtp/mtp_test.c tests/golden/families/family.c tests/golden/families/family.h
tests_golden_mtp_mtp_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/mtp/make_mtp.py \
  tests/golden/mtp/deepseek-v3/config.json tests/golden/mtp/deepseek-v3/model.safetensors tests/golden/mtp/deepseek-v3/expected.safetensors \
  tests/golden/mtp/ernie4.5-moe/config.json tests/golden/mtp/ernie4.5-moe/model.safetensors tests/golden/mtp/ernie4.5-moe/expected.safetensors \
  tests/golden/mtp/exaone-moe/config.json tests/golden/mtp/exaone-moe/model.safetensors tests/golden/mtp/exaone-moe/expected.safetensors \
  tests/golden/mtp/glm4.5/config.json tests/golden/mtp/glm4.5/model.safetensors tests/golden/mtp/glm4.5/expected.safetensors \
  tests/golden/mtp/glm4.7-flash/config.json tests/golden/mtp/glm4.7-flash/model.safetensors tests/golden/mtp/glm4.7-flash/expected.safetensors \
  tests/golden/mtp/qwen3-next/config.json tests/golden/mtp/qwen3-next/model.safetensors tests/golden/mtp/qwen3-next/expected.safetensors \
  tests/golden/mtp/mimo/config.json tests/golden/mtp/mimo/model.safetensors tests/golden/mtp/mimo/expected.safetensors
# Pairs of texts.
check_PROGRAMS += tests/golden/electra/electra_test
TESTS += tests/golden/electra/electra_test
tests_golden_electra_electra_test_SOURCES = tests/golden/electra/electra_test.c tests/golden/families/family.c tests/golden/families/family.h
tests_golden_electra_electra_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/electra/make_electra.py \
  tests/golden/electra/generator/config.json tests/golden/electra/generator/model.safetensors tests/golden/electra/generator/expected.safetensors \
  tests/golden/electra/discriminator/config.json tests/golden/electra/discriminator/model.safetensors tests/golden/electra/discriminator/expected.safetensors
check_PROGRAMS += tests/golden/nsp/nsp_test
TESTS += tests/golden/nsp/nsp_test
tests_golden_nsp_nsp_test_SOURCES = tests/golden/nsp/nsp_test.c tests/golden/families/family.c tests/golden/families/family.h
tests_golden_nsp_nsp_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/nsp/make_nsp.py \
  tests/golden/nsp/bert/config.json tests/golden/nsp/bert/model.safetensors tests/golden/nsp/bert/expected.safetensors
