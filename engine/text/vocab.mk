# SentencePiece-style training and growing vocabularies (engine/text), and their tests
engine_libengine_a_SOURCES += \
  engine/text/vocab/train_sp.h engine/text/vocab/train_sp_priv.h engine/text/vocab/train_sp.c engine/text/vocab/train_seed.c \
  engine/text/vocab/train_unigram.c engine/text/vocab/sp_write.c \
  engine/text/vocab/grow.h engine/text/vocab/grow_priv.h engine/text/vocab/grow.c engine/text/vocab/grow_file.c engine/text/vocab/grow_special.c
text_vocab_tests = tests/unit/text_grow tests/unit/text_train_sp
check_PROGRAMS += $(text_vocab_tests)
TESTS += $(text_vocab_tests)
tests_unit_text_grow_SOURCES = tests/unit/text_grow.c
tests_unit_text_grow_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_text_train_sp_SOURCES = tests/unit/text_train_sp.c
tests_unit_text_train_sp_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/tokenizer/make_grow.py tests/golden/tokenizer/grow.json tests/golden/tokenizer/make_special.py tests/golden/tokenizer/special.json \
  tests/golden/tokenizer/make_train_sp.py tests/golden/tokenizer/train_sp.json
