# sources of engine/comm, and their tests
engine_libengine_a_SOURCES += engine/comm/comm.h engine/comm/boot_priv.h engine/comm/boot.c engine/comm/boot_pmix.c \
  engine/comm/self.c
EXTRA_DIST += engine/comm/README.md

check_PROGRAMS += tests/unit/comm_boot
TESTS += tests/unit/comm_boot
tests_unit_comm_boot_SOURCES = tests/unit/comm_boot.c
tests_unit_comm_boot_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
