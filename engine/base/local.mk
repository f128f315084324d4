# sources of engine/base, and their tests
engine_libbase_a_SOURCES += engine/base/err.c engine/base/err.h engine/base/mem.c engine/base/mem.h
