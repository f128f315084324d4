# sources of engine/comm, and their tests
engine_libengine_a_SOURCES += engine/comm/comm.h engine/comm/comm_priv.h engine/comm/comm.c engine/comm/self.c \
  engine/comm/mesh.h engine/comm/mesh.c engine/comm/boot_priv.h engine/comm/boot.c engine/comm/boot_pmix.c \
  engine/comm/msg.h engine/comm/ucx.c engine/comm/coll.c engine/comm/reduce.c engine/comm/nccl.c \
  engine/comm/watch.h engine/comm/watch_priv.h engine/comm/watch_net.h engine/comm/watch.c engine/comm/watch_judge.c \
  engine/comm/watch_net.c
EXTRA_DIST += engine/comm/README.md

comm_unit_tests = tests/unit/comm_boot
check_PROGRAMS += $(comm_unit_tests)
TESTS += $(comm_unit_tests)
tests_unit_comm_boot_SOURCES = tests/unit/comm_boot.c
tests_unit_comm_boot_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
