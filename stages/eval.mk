# lf-eval: option table, main, tests
LF_STAGE_MANS += stages/lf-eval.1
stages_libopts_a_SOURCES += stages/eval_opts.c
pkglibexec_PROGRAMS += stages/lf-eval
stages_lf_eval_SOURCES = stages/eval.c
stages_lf_eval_LDADD = $(LF_STAGE_LIBS)
TESTS += tests/stage/eval.sh tests/stage/eval_pictures.sh
EXTRA_DIST += tests/stage/eval.sh tests/stage/eval_pictures.sh
