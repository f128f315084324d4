# lf-convert: option table, main, tests
dist_man_MANS += stages/lf-convert.1
stages_libopts_a_SOURCES += stages/convert_opts.c
pkglibexec_PROGRAMS += stages/lf-convert
stages_lf_convert_SOURCES = stages/convert.c
stages_lf_convert_LDADD = $(LF_STAGE_LIBS)
