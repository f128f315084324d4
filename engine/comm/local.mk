# sources of engine/comm, and their tests
engine_libengine_a_SOURCES += engine/comm/comm.h engine/comm/comm_priv.h engine/comm/comm.c engine/comm/call.c engine/comm/self.c \
  engine/comm/mesh.h engine/comm/mesh_priv.h engine/comm/mesh.c engine/comm/boot_priv.h engine/comm/boot.c engine/comm/boot_pmix.c \
  engine/comm/msg.h engine/comm/ucx.c engine/comm/coll.c engine/comm/reduce.c engine/comm/nccl.c \
  engine/comm/watch.h engine/comm/watch_priv.h engine/comm/watch_net.h engine/comm/watch.c engine/comm/watch_judge.c \
  engine/comm/watch_net.c
EXTRA_DIST += engine/comm/README.md

comm_unit_tests = tests/unit/comm_boot tests/unit/comm_watch tests/unit/comm_mesh tests/unit/comm_nccl
check_PROGRAMS += $(comm_unit_tests) tests/unit/comm_ranks tests/unit/comm_messages tests/unit/comm_gpus tests/unit/comm_faults
TESTS += $(comm_unit_tests)
tests_unit_comm_watch_SOURCES = tests/unit/comm_watch.c
tests_unit_comm_watch_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_comm_mesh_SOURCES = tests/unit/comm_mesh.c
tests_unit_comm_mesh_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_comm_nccl_SOURCES = tests/unit/comm_nccl.c
tests_unit_comm_nccl_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_comm_ranks_SOURCES = tests/unit/comm_ranks.c tests/unit/comm_value.h
tests_unit_comm_ranks_LDADD = $(LF_ENGINE_LIBS)
tests_unit_comm_messages_SOURCES = tests/unit/comm_messages.c tests/unit/comm_value.h
tests_unit_comm_messages_LDADD = $(LF_ENGINE_LIBS)
tests_unit_comm_gpus_SOURCES = tests/unit/comm_gpus.c
tests_unit_comm_gpus_LDADD = $(LF_ENGINE_LIBS)
tests_unit_comm_faults_SOURCES = tests/unit/comm_faults.c
tests_unit_comm_faults_LDADD = $(LF_ENGINE_LIBS)

# A stand-in for libnccl and libcudart, loaded by comm_nccl.
check_DATA += tests/unit/fake_nccl.so
EXTRA_DIST += tests/unit/fake_nccl.c
CLEANFILES += tests/unit/fake_nccl.so
tests/unit/fake_nccl.so: tests/unit/fake_nccl.c
	$(AM_V_GEN)$(MKDIR_P) tests/unit && $(CC) -shared -fPIC $(CFLAGS) -o $@ $(srcdir)/tests/unit/fake_nccl.c
tests_unit_comm_boot_SOURCES = tests/unit/comm_boot.c
tests_unit_comm_boot_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)

# Ranks under launchers, with the ranks' programs from here and the launcher from flow/.
TESTS += tests/flow/ranks_comm.sh tests/flow/ranks_messages.sh tests/flow/ranks_faults.sh tests/flow/slurm_ranks.sh tests/unit/flow_launch
EXTRA_DIST += tests/flow/ranks_comm.sh tests/flow/ranks_messages.sh tests/flow/ranks_faults.sh tests/flow/slurm_ranks.sh
check_PROGRAMS += tests/unit/flow_launch
tests_unit_flow_launch_SOURCES = tests/unit/flow_launch.c
tests_unit_flow_launch_LDADD = tests/tap/libtap.a flow/launch/liblaunch.a $(LF_BASE_LIBS)
