# lf-vocab: option table, main, tests
LF_STAGE_MANS += stages/lf-vocab.1
stages_libopts_a_SOURCES += stages/vocab_opts.c
pkglibexec_PROGRAMS += stages/lf-vocab
stages_lf_vocab_SOURCES = stages/vocab.c stages/vocab_priv.h stages/vocab_text.c stages/vocab_write.c
stages_lf_vocab_LDADD = $(LF_STAGE_LIBS)
TESTS += tests/stage/vocab.sh
EXTRA_DIST += tests/stage/vocab.sh
