# The emulated GPU (emu/) and the interpreter of PTX (ptx/): what stands in for the driver, cuBLASLt,
# cuDNN and NCCL in tests. Nothing here is linked into a product.
EXTRA_DIST += tests/cuda/README.md
LF_CU_EMU_CODE = \
  tests/cuda/emu/cu_attn_bwd.c tests/cuda/emu/cu_attn_bwd_f32.c tests/cuda/emu/cu_attn_f32.c \
  tests/cuda/emu/cu_attn_bwd_wgmma.c tests/cuda/emu/cu_attn_fwd_wgmma.c \
  tests/cuda/emu/cu_attn_fwd.c tests/cuda/emu/cu_attn_paged.c tests/cuda/emu/cu_attn_ragged.c \
  tests/cuda/emu/cu_colsum.c tests/cuda/emu/cu_conv.c tests/cuda/emu/cu_dora.c tests/cuda/emu/cu_elementwise.c \
  tests/cuda/emu/cu_embed.c tests/cuda/emu/cu_fp8.c tests/cuda/emu/cu_gemm.c \
  tests/cuda/emu/cu_gemm_wgmma.c tests/cuda/emu/cu_grouped.c tests/cuda/emu/cu_mix.c tests/cuda/emu/cu_altup.c tests/cuda/emu/cu_xielu.c tests/cuda/emu/cu_dwconv.c tests/cuda/emu/cu_moe.c \
  tests/cuda/emu/cu_optim.c tests/cuda/emu/cu_rope.c tests/cuda/emu/cu_rows.c \
  tests/cuda/emu/cu_sample.c tests/cuda/emu/cu_scan.c tests/cuda/emu/cu_sort.c tests/cuda/emu/cu_xent.c
include tests/cuda/ptx.mk
check_LIBRARIES += tests/cuda/libcuemu.a
tests_cuda_libcuemu_a_CFLAGS = $(AM_CFLAGS) $(LF_EMU_CFLAGS) -fPIC
tests_cuda_libcuemu_a_SOURCES = \
  tests/cuda/emu/emu.h tests/cuda/emu/device.h tests/cuda/emu/twin.h tests/cuda/emu/run.h \
  tests/cuda/emu/state.h tests/cuda/emu/hopper.h tests/cuda/emu/fiber.c tests/cuda/emu/mma.c \
  tests/cuda/emu/tma.c tests/cuda/emu/wgmma.c tests/cuda/emu/driver.c tests/cuda/emu/stream.c \
  tests/cuda/emu/graph.c tests/cuda/emu/blaslt.h tests/cuda/emu/blaslt.c tests/cuda/emu/cudnn.h \
  tests/cuda/emu/cudnn.c tests/cuda/emu/cudnn_eval.c \
  $(LF_CU_EMU_CODE) $(LF_PTX_CODE) \
  tests/cuda/ptx/ins.h tests/cuda/ptx/parse.h tests/cuda/ptx/ptx.h

# The same as a library in place of the driver, for tests that run stages:
# LF_CUDA_DRIVER=tests/libcuemu.so
LF_CU_EMU_SO = \
  tests/cuda/emu/fiber.c tests/cuda/emu/mma.c tests/cuda/emu/tma.c tests/cuda/emu/wgmma.c \
  tests/cuda/emu/driver.c tests/cuda/emu/stream.c tests/cuda/emu/graph.c \
  tests/cuda/emu/blaslt.c tests/cuda/emu/cudnn.c tests/cuda/emu/cudnn_eval.c \
  $(LF_CU_EMU_CODE) $(LF_PTX_CODE)
LF_CU_EMU_HEAD = \
  tests/cuda/emu/emu.h tests/cuda/emu/device.h tests/cuda/emu/twin.h tests/cuda/emu/run.h \
  tests/cuda/emu/state.h tests/cuda/emu/hopper.h tests/cuda/emu/blaslt.h tests/cuda/emu/cudnn.h
check_DATA += tests/libcuemu.so
CLEANFILES += tests/libcuemu.so
# Of the archive's objects, which are compiled for both; but never with sanitizers or for a fuzzer.
if INSTRUMENTED
tests/libcuemu.so: $(LF_CU_EMU_SO) $(LF_CU_CODE) $(LF_CU_HEAD) kernels/cuda/attn_cudnn.h \
  $(LF_CU_EMU_HEAD) kernels/kernels.h kernels/attn_rows.h kernels/experts.h kernels/norm.h kernels/scan.h kernels/xielu.h kernels/dwconv.h
	$(AM_V_CCLD)$(MKDIR_P) tests && list=; for f in $(LF_CU_EMU_SO); do list="$$list $(top_srcdir)/$$f"; done; \
	$(CC) $(DEFAULT_INCLUDES) $(AM_CPPFLAGS) $(CPPFLAGS) -std=gnu11 -ffp-contract=off -fno-math-errno $(LF_EMU_CFLAGS) -O2 -g -fPIC -shared -o $@ $$list -lm
else
tests/libcuemu.so: tests/cuda/libcuemu.a
	$(AM_V_CCLD)$(CC) -shared -o $@ -Wl,--whole-archive tests/cuda/libcuemu.a -Wl,--no-whole-archive -lm
endif

# NCCL between processes with emulated GPUs.
check_DATA += tests/libncclemu.so
CLEANFILES += tests/libncclemu.so
EXTRA_DIST += tests/cuda/emu/nccl.c
tests/libncclemu.so: tests/cuda/emu/nccl.c
	$(AM_V_CCLD)$(MKDIR_P) tests && $(CC) $(CPPFLAGS) -std=gnu11 -O2 -g -fPIC -shared -Wl,-z,nodelete -o $@ $(top_srcdir)/tests/cuda/emu/nccl.c -ldl -lrt

