# lf-generate: option table, main, tests; and what it shares with lf-eval
dist_man_MANS += stages/lf-generate.1
stages_libopts_a_SOURCES += stages/generate_opts.c
stages_libstages_a_SOURCES += stages/infer_common.c stages/infer_common.h
pkglibexec_PROGRAMS += stages/lf-generate
stages_lf_generate_SOURCES = stages/generate.c
stages_lf_generate_LDADD = $(LF_STAGE_LIBS)
