# sources of engine/base, and their tests
engine_libbase_a_SOURCES += \
  engine/base/err.c engine/base/err.h engine/base/mem.c engine/base/mem.h engine/base/str.c engine/base/str.h \
  engine/base/num.c engine/base/le.h engine/base/bits.h engine/base/bf16.h engine/base/f16.h engine/base/f8.h engine/base/utf8.h engine/base/io.c engine/base/io.h engine/base/ini.c engine/base/ini.h engine/base/yaml.c engine/base/yaml.h \
  engine/base/synonym.c engine/base/synonym.h engine/base/opt.c engine/base/opt.h engine/base/opt_fill.c engine/base/opt_priv.h engine/base/opt_print.c \
  engine/base/hash.c engine/base/hash.h engine/base/rng.c engine/base/rng.h engine/base/mt19937.c engine/base/mt19937.h \
  engine/base/env.c engine/base/env.h engine/base/sys.c engine/base/sys.h engine/base/fence.c engine/base/fence.h engine/base/ending.c engine/base/ending.h \
  engine/base/crc32.c engine/base/crc32.h engine/base/base64.c engine/base/base64.h engine/base/html.c engine/base/html.h engine/base/json.c engine/base/json.h \
  engine/base/named_templates.c engine/base/named_templates.h engine/base/id.c engine/base/id.h \
  engine/base/cause.c engine/base/cause.h engine/base/machine.c engine/base/machine.h engine/base/warned.c engine/base/warned.h engine/base/lock.c engine/base/net.h engine/base/net.c engine/base/lock.h engine/base/frame.c engine/base/frame.h engine/base/busy.c engine/base/busy.h engine/base/quota.c engine/base/quota.h \
  engine/base/tfevents.c engine/base/tfevents.h engine/base/vocab.h
# the store helper's
engine_libbase_a_SOURCES += engine/base/artifact.h engine/base/artifact.c engine/base/artifact_hash.c engine/base/artifact_take.c \
  engine/base/sha_lanes.h engine/base/sha_lanes_body.inc engine/base/sha_lanes.c

# What --version says of the build. Its own archive: a new commit links the programs that say it
# anew, and nothing else; commit.h is looked at in each make and written when it changes.
noinst_LIBRARIES += engine/libbuilt.a
engine_libbuilt_a_SOURCES = engine/base/built.h engine/base/built.c
engine/base/commit.h: LF_ALWAYS
	@$(MKDIR_P) engine/base && $(SHELL) $(top_srcdir)/packaging/record.sh $(top_srcdir) $@
LF_ALWAYS:
.PHONY: LF_ALWAYS
engine/base/built.$(OBJEXT): engine/base/commit.h
CLEANFILES += engine/base/commit.h

base_tests = tests/unit/base_str tests/unit/base_io tests/unit/base_ini tests/unit/base_yaml tests/unit/base_opt tests/unit/base_rng \
  tests/unit/base_busy tests/unit/base_f8 tests/unit/base_frame tests/unit/base_lock tests/unit/base_sys tests/unit/base_hash tests/unit/base_cause tests/unit/base_env tests/unit/base_warned tests/unit/base_tfevents
check_PROGRAMS += $(base_tests)
TESTS += $(base_tests)
tests_unit_base_env_SOURCES = tests/unit/base_env.c
tests_unit_base_env_LDADD = tests/tap/libtap.a $(LF_BASE_LIBS)
tests_unit_base_str_SOURCES = tests/unit/base_str.c
tests_unit_base_str_LDADD = tests/tap/libtap.a $(LF_BASE_LIBS)
tests_unit_base_io_SOURCES = tests/unit/base_io.c
tests_unit_base_io_LDADD = tests/tap/libtap.a $(LF_BASE_LIBS)
# The calls whose order is a promise are recorded.
tests_unit_base_io_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=fsync,--wrap=write,--wrap=link,--wrap=unlink,--wrap=rename
tests_unit_base_ini_SOURCES = tests/unit/base_ini.c
tests_unit_base_ini_LDADD = tests/tap/libtap.a $(LF_BASE_LIBS)
tests_unit_base_yaml_SOURCES = tests/unit/base_yaml.c
tests_unit_base_yaml_LDADD = tests/tap/libtap.a $(LF_BASE_LIBS)
EXTRA_DIST += tests/golden/yaml/make_yaml.py tests/golden/yaml/yaml.json
tests_unit_base_opt_SOURCES = tests/unit/base_opt.c
tests_unit_base_opt_LDADD = tests/tap/libtap.a $(LF_BASE_LIBS)
tests_unit_base_f8_SOURCES = tests/unit/base_f8.c
tests_unit_base_f8_LDADD = tests/tap/libtap.a $(LF_BASE_LIBS)
EXTRA_DIST += tests/golden/f8/make_f8.py tests/golden/f8/f8.txt
EXTRA_DIST += tests/golden/tfevents/README.md tests/golden/tfevents/make_tfevents.py tests/golden/tfevents/check_tfevents.py
tests_unit_base_rng_SOURCES = tests/unit/base_rng.c
tests_unit_base_rng_LDADD = tests/tap/libtap.a $(LF_BASE_LIBS)
tests_unit_base_frame_SOURCES = tests/unit/base_frame.c
tests_unit_base_frame_LDADD = tests/tap/libtap.a $(LF_BASE_LIBS)
tests_unit_base_tfevents_SOURCES = tests/unit/base_tfevents.c
tests_unit_base_tfevents_LDADD = tests/tap/libtap.a $(LF_BASE_LIBS)
tests_unit_base_lock_SOURCES = tests/unit/base_lock.c
tests_unit_base_lock_LDADD = tests/tap/libtap.a $(LF_BASE_LIBS)
tests_unit_base_lock_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=link
tests_unit_base_busy_SOURCES = tests/unit/base_busy.c
tests_unit_base_busy_LDADD = tests/tap/libtap.a $(LF_BASE_LIBS)
tests_unit_base_sys_SOURCES = tests/unit/base_sys.c
tests_unit_base_sys_LDADD = tests/tap/libtap.a $(LF_BASE_LIBS)
tests_unit_base_warned_SOURCES = tests/unit/base_warned.c
tests_unit_base_warned_LDADD = tests/tap/libtap.a $(LF_BASE_LIBS)
tests_unit_base_cause_SOURCES = tests/unit/base_cause.c
tests_unit_base_cause_LDADD = tests/tap/libtap.a $(LF_BASE_LIBS)
tests_unit_base_hash_SOURCES = tests/unit/base_hash.c
tests_unit_base_hash_LDADD = tests/tap/libtap.a $(LF_BASE_LIBS)
EXTRA_DIST += engine/base/README.md tests/tap/README.md

if FUZZ
noinst_PROGRAMS += tests/fuzz/fuzz_number
else
check_PROGRAMS += tests/fuzz/fuzz_number
TESTS += tests/fuzz/fuzz_number
endif
tests_fuzz_fuzz_number_SOURCES = tests/fuzz/fuzz_number.c $(LF_FUZZ_COMMON)
tests_fuzz_fuzz_number_LDADD = tests/tap/libtap.a $(LF_BASE_LIBS)
tests_fuzz_fuzz_number_LDFLAGS = $(LF_FUZZ_LDFLAGS_USED)
