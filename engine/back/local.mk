# sources of engine/back, and their tests
engine_libengine_a_SOURCES += engine/back/back.h engine/back/cpu.c engine/back/cuda.c engine/back/cuda_copy.c engine/back/cuda_time.c engine/back/cuda_priv.h \
  engine/back/device.c engine/back/capture.c
EXTRA_DIST += engine/back/README.md

check_PROGRAMS += tests/unit/back_cuda_test
TESTS += tests/unit/back_cuda_test
tests_unit_back_cuda_test_SOURCES = tests/unit/back_cuda_test.c
tests_unit_back_cuda_test_LDADD = tests/tap/libtap.a tests/cuda/libcuemu.a $(LF_ENGINE_LIBS)
