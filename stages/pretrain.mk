# lf-pretrain: option table, main, tests
stages_libopts_a_SOURCES += stages/pretrain_opts.c
