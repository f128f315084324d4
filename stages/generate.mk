# lf-generate: option table, main, tests; and what it shares with lf-eval
LF_STAGE_MANS += stages/lf-generate.1
stages_libopts_a_SOURCES += stages/generate_opts.c
stages_libstages_a_SOURCES += stages/infer_common.c stages/infer_common.h stages/infer_ranks.c stages/infer_ranks.h
pkglibexec_PROGRAMS += stages/lf-generate
stages_lf_generate_SOURCES = stages/generate.c stages/generate_settings.c stages/generate_priv.h
stages_lf_generate_LDADD = $(LF_STAGE_LIBS)
# The shell tests of both make models and read results with infer_tool.
check_PROGRAMS += tests/stage/infer_tool
tests_stage_infer_tool_SOURCES = tests/stage/infer_tool.c tests/unit/infer_ckpt.c tests/unit/infer_ckpt.h
tests_stage_infer_tool_LDADD = $(LF_ENGINE_LIBS)
TESTS += tests/stage/generate.sh tests/stage/vlm_generate.sh tests/stage/beams.sh
EXTRA_DIST += tests/stage/generate.sh tests/stage/vlm_generate.sh tests/stage/beams.sh tests/golden/beams/README.md \
  tests/golden/beams/make_beams.py tests/golden/beams/requests.jsonl tests/golden/beams/expected.jsonl
