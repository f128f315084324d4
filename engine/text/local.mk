# sources of engine/text, and their tests
engine_libengine_a_SOURCES += engine/text/pack.h
