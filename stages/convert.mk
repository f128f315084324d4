# lf-convert: option table, main, tests
LF_STAGE_MANS += stages/lf-convert.1
stages_libopts_a_SOURCES += stages/convert_opts.c
pkglibexec_PROGRAMS += stages/lf-convert
stages_lf_convert_SOURCES = stages/convert.c stages/convert_data.h stages/convert_adapter.c stages/convert_adapter.h stages/convert_data.c \
  stages/convert_tokens.h stages/convert_tokens.c
TESTS += tests/stage/megatron.sh
EXTRA_DIST += tests/stage/megatron.sh
stages_lf_convert_LDADD = $(LF_STAGE_LIBS)
check_PROGRAMS += tests/stage/convert_tool
tests_stage_convert_tool_SOURCES = tests/stage/convert_tool.c
tests_stage_convert_tool_LDADD = $(LF_ENGINE_LIBS)
TESTS += tests/stage/export.sh tests/stage/convert.sh tests/stage/convert_flow.sh tests/stage/convert_faults.sh
EXTRA_DIST += tests/golden/convert/make_megatron.py tests/golden/convert/torch-gpt-neox/pytorch_model.bin \
  tests/golden/convert/megatron-llama/latest_checkpointed_iteration.txt \
  tests/golden/convert/megatron-llama/release/mp_rank_00/model_optim_rng.pt \
  tests/golden/convert/megatron-gpt/latest_checkpointed_iteration.txt \
  tests/golden/convert/megatron-gpt/iter_0000007/mp_rank_00/model_optim_rng.pt \
  tests/golden/convert/megatron-gpt/iter_0000007/mp_rank_01/model_optim_rng.pt
EXTRA_DIST += tests/stage/export.sh tests/stage/convert.sh tests/stage/convert_flow.sh tests/stage/convert_faults.sh
# What users write expected logits with, on a machine that has transformers.
toolsdir = $(pkgdatadir)/tools
dist_tools_SCRIPTS = stages/expected.py stages/harness.py
