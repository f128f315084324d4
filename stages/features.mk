# lf-features: option table, main, manual page, tests
stages_libopts_a_SOURCES += stages/features_opts.c
pkglibexec_PROGRAMS += stages/lf-features
stages_lf_features_SOURCES = stages/features.c
stages_lf_features_LDADD = $(LF_STAGE_LIBS)
LF_STAGE_MANS += stages/lf-features.1
TESTS += tests/stage/features.sh
EXTRA_DIST += tests/stage/features.sh
