# sources of engine/base, and their tests
engine_libbase_a_SOURCES += \
  engine/base/err.c engine/base/err.h engine/base/mem.c engine/base/mem.h engine/base/str.c engine/base/str.h \
  engine/base/num.c engine/base/utf8.h engine/base/io.c engine/base/io.h engine/base/ini.c engine/base/ini.h \
  engine/base/opt.c engine/base/opt.h engine/base/opt_priv.h engine/base/opt_print.c \
  engine/base/hash.c engine/base/hash.h engine/base/rng.c engine/base/rng.h \
  engine/base/sys.c engine/base/sys.h engine/base/json.c engine/base/json.h engine/base/id.c engine/base/id.h \
  engine/base/lock.c engine/base/lock.h engine/base/frame.c engine/base/frame.h
# the store helper's
engine_libbase_a_SOURCES += engine/base/artifact.h engine/base/artifact.c engine/base/artifact_hash.c
