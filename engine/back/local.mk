# sources of engine/back, and their tests
engine_libengine_a_SOURCES += engine/back/back.h engine/back/cpu.c engine/back/cuda.c engine/back/cuda_comm.c engine/back/cuda_copy.c engine/back/cuda_time.c engine/back/cuda_priv.h \
  engine/back/device.c engine/back/capture.c engine/back/nvml.h engine/back/nvml.c
EXTRA_DIST += engine/back/README.md

check_PROGRAMS += tests/unit/back_cuda_test
TESTS += tests/unit/back_cuda_test
tests_unit_back_cuda_test_SOURCES = tests/unit/back_cuda_test.c
tests_unit_back_cuda_test_LDADD = tests/tap/libtap.a tests/cuda/libcuemu.a $(LF_ENGINE_LIBS)

# A library in the place of NVML, found through LD_LIBRARY_PATH.
check_DATA += tests/unit/nvml/libnvidia-ml.so.1
EXTRA_DIST += tests/unit/fake_nvml.c tests/stage/cuda_nvml.sh
CLEANFILES += tests/unit/nvml/libnvidia-ml.so.1
tests/unit/nvml/libnvidia-ml.so.1: tests/unit/fake_nvml.c
	$(AM_V_GEN)$(MKDIR_P) tests/unit/nvml && $(CC) -shared -fPIC $(CFLAGS) -o $@ $(srcdir)/tests/unit/fake_nvml.c
TESTS += tests/stage/cuda_nvml.sh
