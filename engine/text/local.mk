# sources of engine/text, and their tests
include engine/text/vocab.mk
# packing (store helper)
engine_libengine_a_SOURCES += engine/text/corpus/pack.h engine/text/corpus/pack_priv.h engine/text/corpus/pack.c engine/text/corpus/pack_bfd.c engine/text/corpus/pack_ffd.c
check_PROGRAMS += tests/unit/text_pack
TESTS += tests/unit/text_pack
tests_unit_text_pack_SOURCES = tests/unit/text_pack.c
tests_unit_text_pack_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
include engine/text/text.mk
include engine/text/jinja/local.mk
# parquet files, and their rows as JSON objects
engine_libengine_a_SOURCES += engine/text/parquet/parquet.h engine/text/parquet/parquet_priv.h engine/text/parquet/rowpack.h \
  engine/text/parquet/rowpack.c engine/text/parquet/thrift.h engine/text/parquet/thrift.c engine/text/parquet/footer.c \
  engine/text/parquet/schema.c engine/text/parquet/codec.c engine/text/parquet/page.c engine/text/parquet/levels.c \
  engine/text/parquet/encodings.c engine/text/parquet/column.c engine/text/parquet/rows.c \
  engine/text/corpus/rowjson.h engine/text/corpus/rowjson.c engine/text/corpus/rowfile.h engine/text/corpus/rowfile.c
EXTRA_DIST += engine/text/parquet/README.md
check_PROGRAMS += tests/unit/text_parquet
TESTS += tests/unit/text_parquet
tests_unit_text_parquet_SOURCES = tests/unit/text_parquet.c
tests_unit_text_parquet_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
