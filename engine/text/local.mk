# sources of engine/text, and their tests
engine_libengine_a_SOURCES += engine/text/pack.h
engine_libengine_a_SOURCES += engine/text/tokenizer.h engine/text/uniclass_data.h
EXTRA_DIST += tests/golden/tokenizer/make_unicode.py
