# lf-ppo: option table, main, manual page, tests
stages_libopts_a_SOURCES += stages/ppo_opts.c
pkglibexec_PROGRAMS += stages/lf-ppo
stages_lf_ppo_SOURCES = stages/ppo.c stages/ppo.h
stages_lf_ppo_LDADD = $(LF_STAGE_LIBS)
LF_STAGE_MANS += stages/lf-ppo.1
TESTS += tests/stage/ppo.sh
EXTRA_DIST += tests/stage/ppo.sh
TESTS += tests/stage/ppo_ranks.sh tests/stage/ppo_zero.sh tests/stage/ppo_tensor.sh tests/stage/ppo_layout.sh
EXTRA_DIST += tests/stage/ppo_lib.sh tests/stage/ppo_ranks.sh tests/stage/ppo_zero.sh tests/stage/ppo_tensor.sh tests/stage/ppo_layout.sh
