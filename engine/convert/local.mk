# sources of engine/convert, and their tests
engine_libengine_a_SOURCES += \
  engine/convert/map.h engine/convert/map.c engine/convert/move.h engine/convert/move.c engine/convert/cast.c \
  engine/convert/resume.c \
  engine/convert/hf.h engine/convert/hf_config.c engine/convert/hf_parts.c \
  engine/convert/hf_layers.c engine/convert/hf_priv.h engine/convert/hf_sight.c engine/convert/hf_lone.c \
  engine/convert/families.h engine/convert/families.c engine/convert/later.c engine/convert/families_gpt.c engine/convert/families_gptneo.c engine/convert/families_llama.c engine/convert/families_llama4.c \
  engine/convert/families_neox.c engine/convert/families_opt.c engine/convert/families_falcon.c engine/convert/families_code.c \
  engine/convert/families_phi.c engine/convert/families_gemma.c engine/convert/families_gemma3n.c engine/convert/families_gemma4.c engine/convert/families_kin.h engine/convert/families_kin.c \
  engine/convert/families_qwen.c engine/convert/families_glm.c engine/convert/families_granite.c engine/convert/families_mamba.c engine/convert/families_olmo.c \
  engine/convert/families_hunyuan.c engine/convert/families_unturned.c engine/convert/families_dense.c engine/convert/families_experts.c engine/convert/families_baichuan.c engine/convert/families_moe.c engine/convert/families_oss.c \
  engine/convert/families_deepseek.c engine/convert/families_delta.c engine/convert/families_kimi.c engine/convert/families_lfm.c engine/convert/families_bert.c engine/convert/families_seq2seq.c engine/convert/families_lightning.c \
  engine/convert/families_megatron.c engine/convert/families_vit.c engine/convert/families_swin.c engine/convert/families_conv.c engine/convert/families_dual.c engine/convert/families_vl.h engine/convert/families_vl.c engine/convert/families_vl_qwen.c \
  engine/convert/families_vl_intern.c engine/convert/families_vl_chat.c engine/convert/families_vl_gemma.c engine/convert/families_vl_idefics.c engine/convert/families_vl_pixtral.c \
  engine/convert/convert.h engine/convert/priv.h engine/convert/quant.c engine/convert/companions.h engine/convert/companions.c engine/convert/quantised.h engine/convert/quantised.c engine/convert/requant.h engine/convert/requant.c engine/convert/source.c engine/convert/text_part.c engine/convert/form.c engine/convert/import.c engine/convert/export.c \
  engine/convert/card.h engine/convert/card.c engine/convert/tokconf.c \
  engine/convert/peft.h engine/convert/peft_priv.h engine/convert/peft.c engine/convert/peft_in.c engine/convert/peft_out.c engine/convert/peft_experts.c \
  engine/convert/probe.c \
  engine/convert/verify.h engine/convert/verify.c engine/convert/verify_lone.c engine/convert/verify_dual.c engine/convert/verify_sight.h engine/convert/verify_sight.c engine/convert/inspect.c engine/convert/shards.h engine/convert/shards_in.c engine/convert/shards_out.c
EXTRA_DIST += engine/convert/README.md
check_PROGRAMS += tests/golden/peft_test
TESTS += tests/golden/peft_test tests/stage/peft.sh
tests_golden_peft_test_SOURCES = tests/golden/peft_test.c
tests_golden_peft_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/stage/peft.sh tests/golden/peft/README.md tests/golden/peft/make_peft.py \
  tests/golden/peft/gpt-neox tests/golden/peft/gpt2 tests/golden/peft/gpt2-dora tests/golden/peft/kimi-linear \
  tests/golden/peft/llama tests/golden/peft/llama-dora tests/golden/peft/mamba2 tests/golden/peft/mixtral tests/golden/peft/nemotron-h-latent \
  tests/golden/peft/phi3 tests/golden/peft/qwen3-moe tests/golden/peft/qwen3-next tests/golden/peft/qwen3-next-dora tests/golden/peft/qwen3.5 \
  tests/golden/peft/vlm-gemma3 tests/golden/peft/vlm-llava tests/golden/peft/vlm-qwen2.5-vl \
  tests/golden/peft/vlm-gemma3-eyes tests/golden/peft/vlm-llava-eyes tests/golden/peft/vlm-qwen2.5-vl-eyes \
  tests/golden/peft/vlm-qwen3-vl-eyes

check_PROGRAMS += tests/unit/convert_map
TESTS += tests/unit/convert_map
tests_unit_convert_map_SOURCES = tests/unit/convert_map.c
tests_unit_convert_map_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
# weights of 8-bit floats in blocks
check_PROGRAMS += tests/unit/convert_family_ini
TESTS += tests/unit/convert_family_ini
tests_unit_convert_family_ini_SOURCES = tests/unit/convert_family_ini.c
tests_unit_convert_family_ini_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
check_PROGRAMS += tests/unit/convert_fp8
TESTS += tests/unit/convert_fp8
fp8_release = tests/unit/fp8_release.h tests/unit/fp8_release.c
tests_unit_convert_fp8_SOURCES = tests/unit/convert_fp8.c $(fp8_release)
tests_unit_convert_fp8_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
check_PROGRAMS += tests/unit/convert_fp8_out
TESTS += tests/unit/convert_fp8_out
tests_unit_convert_fp8_out_SOURCES = tests/unit/convert_fp8_out.c $(fp8_release)
tests_unit_convert_fp8_out_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/fp8/make_fp8.py tests/golden/fp8/check_fp8.py tests/golden/fp8/expected.safetensors
check_PROGRAMS += tests/unit/convert_parts
TESTS += tests/unit/convert_parts
tests_unit_convert_parts_SOURCES = tests/unit/convert_parts.c
tests_unit_convert_parts_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/parts/make_parts.py tests/golden/parts/llama4/config.json \
  tests/golden/parts/llama4/model.safetensors tests/golden/parts/llama4/expected.safetensors
check_PROGRAMS += tests/unit/convert_mxfp4
TESTS += tests/unit/convert_mxfp4
tests_unit_convert_mxfp4_SOURCES = tests/unit/convert_mxfp4.c
tests_unit_convert_mxfp4_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/mxfp4/make_mxfp4.py tests/golden/mxfp4/release/config.json \
  tests/golden/mxfp4/release/model.safetensors tests/golden/mxfp4/all/model.safetensors tests/golden/mxfp4/expected.safetensors
