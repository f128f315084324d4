# lf-score: option table, main, manual page, tests
stages_libopts_a_SOURCES += stages/score_opts.c
pkglibexec_PROGRAMS += stages/lf-score
stages_lf_score_SOURCES = stages/score.c stages/score_classes.c stages/score_classes.h stages/score_vectors.c stages/score_vectors.h stages/tokenize_media.c stages/tokenize_media.h
stages_lf_score_LDADD = $(LF_STAGE_LIBS)
LF_STAGE_MANS += stages/lf-score.1
TESTS += tests/stage/score.sh
EXTRA_DIST += tests/stage/score.sh
