# lf-sft: option table, main, manual page, tests
stages_libopts_a_SOURCES += stages/sft_opts.c
pkglibexec_PROGRAMS += stages/lf-sft
stages_lf_sft_SOURCES = stages/sft.c stages/sft.h
stages_lf_sft_LDADD = $(LF_STAGE_LIBS)
LF_STAGE_MANS += stages/lf-sft.1
TESTS += tests/stage/sft.sh tests/stage/frozen.sh
EXTRA_DIST += tests/stage/sft.sh tests/stage/frozen.sh
TESTS += tests/stage/vlm.sh
TESTS += tests/stage/vlm_post.sh tests/stage/vlm_adapter.sh
EXTRA_DIST += tests/stage/vlm.sh
# Published models that see of which these have none.
LONG_TESTS += tests/stage/vlm_long.sh
EXTRA_DIST += tests/stage/vlm_post.sh tests/stage/vlm_adapter.sh tests/stage/vlm_long.sh
