# lf-rm: option table, main, manual page, tests
stages_libopts_a_SOURCES += stages/rm_opts.c
pkglibexec_PROGRAMS += stages/lf-rm
stages_lf_rm_SOURCES = stages/rm.c stages/rm_labels.c stages/rm.h
stages_lf_rm_LDADD = $(LF_STAGE_LIBS)
LF_STAGE_MANS += stages/lf-rm.1
TESTS += tests/stage/rm.sh tests/stage/labels.sh tests/stage/vectors.sh
EXTRA_DIST += tests/stage/rm.sh tests/stage/labels.sh tests/stage/vectors.sh
