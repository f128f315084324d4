# A real GPU: make check-gpu, make bench-gpu; both also from a bundle. And what ptxas said about registers.
EXTRA_DIST += tests/gpu/README.md tests/gpu/check.sh tests/gpu/bench.sh tests/gpu/library.sh tests/gpu/check-gpu tests/gpu/bench-gpu tests/gpu/spills.sh \
  tests/gpu/spills.txt tests/gpu/numbers.sh tests/gpu/check_test.sh tests/gpu/gpu_peer.py
TESTS += tests/gpu/spills.sh tests/gpu/numbers.sh tests/gpu/check_test.sh tests/gpu/kernels_test.sh
EXTRA_DIST += tests/gpu/kernels_test.sh
CLEANFILES += check-gpu.txt bench-gpu.md

check_PROGRAMS += tests/gpu/gpu_model tests/gpu/gpu_kernels
CLEANFILES += tests/gpu/gpu_model tests/gpu/gpu_kernels
tests_gpu_gpu_kernels_SOURCES = tests/gpu/gpu_kernels.c
tests_gpu_gpu_kernels_LDADD = kernels/bench/libbench.a tests/cuda/libcuemu.a $(LF_ENGINE_LIBS)
tests_gpu_gpu_model_SOURCES = tests/gpu/gpu_model.c
tests_gpu_gpu_model_LDADD = kernels/bench/libbench.a tests/cuda/libcuemu.a $(LF_ENGINE_LIBS)

# Programs that run on a GPU with LF_REQUIRE_GPU=1.
LF_GPU_TESTS = for p in $(check_PROGRAMS); do case $$p in tests/op/cuda_* | tests/golden-gpu/*) echo $$p ;; esac; done
LF_GPU_BENCHES = for p in $(check_PROGRAMS); do case $$p in kernels/bench/cuda_* | tests/gpu/*) echo $$p ;; esac; done

check-gpu: all
	$(MAKE) $(AM_MAKEFLAGS) `$(LF_GPU_TESTS)`
	LF_SRCDIR='$(abs_top_srcdir)' LF_BUILDDIR='$(abs_top_builddir)' $(SHELL) $(top_srcdir)/tests/gpu/spills.sh
	LF_SRCDIR='$(abs_top_srcdir)' LF_BUILDDIR='$(abs_top_builddir)' $(SHELL) $(top_srcdir)/tests/gpu/check.sh -o check-gpu.txt \
	  `for p in $$($(LF_GPU_TESTS)); do echo ./$$p; done`
bench-gpu: all
	$(MAKE) $(AM_MAKEFLAGS) `$(LF_GPU_BENCHES)`
	$(SHELL) $(top_srcdir)/tests/gpu/bench.sh -o bench-gpu.md -m $(top_srcdir)/models -p $(top_srcdir)/tests/gpu/gpu_peer.py \
	  `for p in $$($(LF_GPU_BENCHES)); do echo ./$$p; done`
.PHONY: check-gpu bench-gpu
