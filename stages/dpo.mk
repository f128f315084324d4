# lf-dpo: option table, main, manual page, tests
stages_libopts_a_SOURCES += stages/dpo_opts.c
pkglibexec_PROGRAMS += stages/lf-dpo
stages_lf_dpo_SOURCES = stages/dpo.c stages/dpo.h
stages_lf_dpo_LDADD = $(LF_STAGE_LIBS)
LF_STAGE_MANS += stages/lf-dpo.1
TESTS += tests/stage/dpo.sh
EXTRA_DIST += tests/stage/dpo.sh
