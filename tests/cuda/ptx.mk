# The interpreter of PTX, behind the same emulated driver (LF_EMU_PTX).
LF_PTX_CODE = \
  tests/cuda/ptx/arith.c tests/cuda/ptx/async.c tests/cuda/ptx/cvt.c tests/cuda/ptx/float.c \
  tests/cuda/ptx/launch.c tests/cuda/ptx/matrix.c tests/cuda/ptx/memory.c \
  tests/cuda/ptx/module.c tests/cuda/ptx/parse.c tests/cuda/ptx/run.c tests/cuda/ptx/step.c \
  tests/cuda/ptx/text.c tests/cuda/ptx/tma.c tests/cuda/ptx/warp.c tests/cuda/ptx/wgmma.c
EXTRA_DIST += tests/cuda/ptx/README.md

check_PROGRAMS += tests/unit/cuda_ptx_test
TESTS += tests/unit/cuda_ptx_test
tests_unit_cuda_ptx_test_SOURCES = tests/unit/cuda_ptx_test.c
tests_unit_cuda_ptx_test_LDADD = $(LF_CUDA_TEST_LIBS)

# What nvcc makes of the kernels, run by it: a few programs in make check, all of them in make check-ptx.
# LF_PTX_ARCH=compute_80: for another GPU (remove kernels/cuda/*.ptx first).
LF_PTX_ARCH = compute_90
EXTRA_DIST += tests/gpu/ptx.sh
TESTS += tests/gpu/ptx.sh
CLEANFILES += check-ptx.txt
if HAVE_CUDA
LF_CU_PTX = $(LF_CU_CODE:.cu=.ptx)
CLEANFILES += $(LF_CU_PTX)
$(LF_CU_PTX): kernels/kernels.h kernels/attn_rows.h kernels/experts.h kernels/norm.h kernels/scan.h kernels/xielu.h kernels/dwconv.h kernels/altup.h $(LF_CU_HEAD) engine/base/rng.h
SUFFIXES += .ptx
.cu.ptx:
	$(AM_V_GEN)$(MKDIR_P) $(@D) && arch=$(LF_PTX_ARCH) && case $@ in *_wgmma.ptx) arch=compute_90a ;; esac && \
	  $(NVCC) -ptx -arch=$$arch -O3 -std=c++17 -I$(top_srcdir) $(NVCCFLAGS) $(LF_NVCC_NUMBERS) -o $@.part $< && \
	  mv $@.part $@
LF_PTX_QUICK = elementwise conv embed gemm gemm_wgmma rope rows optim fp8 attn_fwd attn_bwd attn_fwd_wgmma attn_bwd_wgmma attn_f32 attn_bwd_f32
check_DATA += $(LF_PTX_QUICK:%=kernels/cuda/%.ptx)
check-ptx: all $(LF_CU_PTX)
	$(MAKE) $(AM_MAKEFLAGS) `$(LF_GPU_TESTS)`
	LF_EMU_PTX='$(abs_top_builddir)/kernels/cuda' LF_SRCDIR='$(abs_top_srcdir)' LF_BUILDDIR='$(abs_top_builddir)' LF_GPU_LIMIT=3000 \
	  $(SHELL) $(top_srcdir)/tests/gpu/check.sh -e -o check-ptx.txt `for p in $$($(LF_GPU_TESTS)); do echo ./$$p; done`
else
check-ptx:
	@echo 'check-ptx: configure --with-cuda first' >&2; exit 1
endif
.PHONY: check-ptx
