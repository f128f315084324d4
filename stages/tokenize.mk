# lf-tokenize: option table, main, tests
stages_libopts_a_SOURCES += stages/opts.h stages/all_opts.c stages/tokenize_opts.c
stages_libstages_a_SOURCES += stages/stage.h stages/stage.c
