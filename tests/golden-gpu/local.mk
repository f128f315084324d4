# Whole models on CUDA: on the emulator in make check, on GPU 0 in make check-gpu.
GOLDEN_GPU = tests/golden-gpu/device.c tests/golden-gpu/device.h
GOLDEN_GPU_LIBS = tests/tap/libtap.a tests/cuda/libcuemu.a $(LF_ENGINE_LIBS)
golden_gpu_tests = tests/golden-gpu/fp8_test tests/golden-gpu/loss_test tests/golden-gpu/cuda_families_test
check_PROGRAMS += $(golden_gpu_tests)
TESTS += $(golden_gpu_tests)
tests_golden_gpu_loss_test_SOURCES = tests/golden-gpu/loss_test.c tests/golden-gpu/curve.c tests/golden-gpu/curve.h $(GOLDEN_GPU)
tests_golden_gpu_fp8_test_SOURCES = tests/golden-gpu/fp8_test.c tests/golden-gpu/curve.c tests/golden-gpu/curve.h $(GOLDEN_GPU)
tests_golden_gpu_fp8_test_LDADD = $(GOLDEN_GPU_LIBS)
tests_golden_gpu_loss_test_LDADD = $(GOLDEN_GPU_LIBS)
tests_golden_gpu_cuda_families_test_SOURCES = tests/golden/families/families_test.c tests/golden/families/family.c \
  tests/golden/families/family.h tests/golden/families/family_rig.c $(GOLDEN_GPU)
tests_golden_gpu_cuda_families_test_CPPFLAGS = $(AM_CPPFLAGS) -DFAMILY_CUDA
tests_golden_gpu_cuda_families_test_LDADD = $(GOLDEN_GPU_LIBS)
EXTRA_DIST += tests/golden-gpu/README.md tests/golden-gpu/micro-llama.ini tests/golden-gpu/micro-gpt2.ini \
  tests/golden-gpu/fp8-llama.ini tests/golden-gpu/small-llama.ini tests/golden-gpu/small-gpt2.ini
check_PROGRAMS += tests/golden-gpu/generate_test
TESTS += tests/golden-gpu/generate_test
tests_golden_gpu_generate_test_SOURCES = tests/golden-gpu/generate_test.c tests/golden/families/family.c tests/golden/families/family.h \
  tests/golden/families/family_rig.c $(GOLDEN_GPU)
tests_golden_gpu_generate_test_CPPFLAGS = $(AM_CPPFLAGS) -DFAMILY_CUDA
tests_golden_gpu_generate_test_LDADD = $(GOLDEN_GPU_LIBS)
