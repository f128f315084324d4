# lf-eval: option table, main, tests
stages_libopts_a_SOURCES += stages/eval_opts.c
