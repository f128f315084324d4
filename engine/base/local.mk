# sources of engine/base, and their tests
engine_libbase_a_SOURCES += \
  engine/base/err.c engine/base/err.h engine/base/mem.c engine/base/mem.h engine/base/str.c engine/base/str.h \
  engine/base/num.c engine/base/utf8.h engine/base/io.c engine/base/io.h
engine_libbase_a_SOURCES += engine/base/artifact.h
