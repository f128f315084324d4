# sources of engine/text, and their tests
include engine/text/vocab.mk
# packing (store helper)
engine_libengine_a_SOURCES += engine/text/corpus/pack.h engine/text/corpus/pack_priv.h engine/text/corpus/pack.c engine/text/corpus/pack_bfd.c
check_PROGRAMS += tests/unit/text_pack
TESTS += tests/unit/text_pack
tests_unit_text_pack_SOURCES = tests/unit/text_pack.c
tests_unit_text_pack_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
include engine/text/text.mk
include engine/text/jinja/local.mk
