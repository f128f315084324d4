# The CUDA backend. Host side: plain C in libkernels.a, always built. Device side: .cu files, compiled by nvcc into fat binaries
# that images.c embeds, and by the C compiler into the emulator that tests run (libcuemu.a).

LF_CU_CODE = kernels/cuda/rope.cu
LF_CU_HEAD = kernels/cuda/driver.h kernels/cuda/tensor_map.h kernels/cuda/queue.h kernels/cuda/fns.h kernels/cuda/dev.h kernels/cuda/table.h kernels/cuda/args.h
kernels_libkernels_a_SOURCES += $(LF_CU_HEAD) kernels/cuda/driver.c kernels/cuda/launch.c kernels/cuda/images.c \
  kernels/cuda/table.c kernels/cuda/rope.c
EXTRA_DIST += $(LF_CU_CODE) kernels/cuda/driver_check.c kernels/cuda/cudnn_check.c
LF_CUDA_LIBS = -ldl
include kernels/cuda_stream.mk
include kernels/cuda_attn.mk
LF_CU_CODE += kernels/cuda/dora.cu
kernels_libkernels_a_SOURCES += kernels/cuda/dora.c
LF_CU_CODE += kernels/cuda/conv.cu kernels/cuda/scan.cu
LF_CU_HEAD += kernels/cuda/scan_args.h
kernels_libkernels_a_SOURCES += kernels/cuda/scan.c
LF_CU_CODE += kernels/cuda/mix.cu
kernels_libkernels_a_SOURCES += kernels/cuda/mix.c
LF_CU_CODE += kernels/cuda/altup.cu
kernels_libkernels_a_SOURCES += kernels/cuda/altup.c
LF_CU_CODE += kernels/cuda/xielu.cu
LF_CU_HEAD += kernels/cuda/xielu.h
kernels_libkernels_a_SOURCES += kernels/cuda/xielu.c
LF_CU_CODE += kernels/cuda/dwconv.cu
LF_CU_HEAD += kernels/cuda/dwconv.h
kernels_libkernels_a_SOURCES += kernels/cuda/dwconv.c
LF_CU_CODE += kernels/cuda/fp8.cu
LF_CU_HEAD += kernels/cuda/fp8.h engine/base/f8.h engine/base/bits.h
kernels_libkernels_a_SOURCES += kernels/cuda/fp8.c
LF_CU_CODE += kernels/cuda/sample.cu
LF_CU_HEAD += kernels/cuda/sample.h kernels/sampling.h
kernels_libkernels_a_SOURCES += kernels/cuda/sample.c

if HAVE_CUDA
LF_CU_FATBINS = $(LF_CU_CODE:.cu=.fatbin)
kernels/libkernels_a-images.$(OBJEXT) kernels/cuda/images.$(OBJEXT): $(LF_CU_FATBINS)
CLEANFILES += $(LF_CU_FATBINS) $(LF_CU_FATBINS:.fatbin=.fatbin.log)
$(LF_CU_FATBINS): kernels/kernels.h kernels/attn_rows.h kernels/experts.h kernels/norm.h kernels/scan.h kernels/xielu.h kernels/dwconv.h kernels/altup.h $(LF_CU_HEAD) engine/base/rng.h
SUFFIXES = .cu .fatbin
# What every bit depends on (dev.h, "Numbers"). Last on the line, where NVCCFLAGS cannot undo it.
LF_NVCC_NUMBERS = -fmad=false -ftz=false -prec-div=true -prec-sqrt=true
# What ptxas says about registers stays beside the fat binary, for tests/gpu/spills.sh, and with which flags it was compiled, for
# numbers.sh; the rest is for whoever builds.
# What has wgmma in its name uses what only sm_90a has; where code for 9.0 is not asked for, it is an empty file.
.cu.fatbin:
	$(AM_V_GEN)$(MKDIR_P) $(@D) && gpus='$(NVCC_GENCODE)' && case "$@ $$gpus" in *_wgmma.fatbin*compute_90*) \
	  gpus='-gencode arch=compute_90a,code=sm_90a';; esac && \
	  { echo 'nvcc flags: $(NVCCFLAGS) $(LF_NVCC_NUMBERS)' >$@.log; $(NVCC) -fatbin $$gpus -O3 \
	  -std=c++17 -Xptxas -v -I$(top_srcdir) $(NVCCFLAGS) $(LF_NVCC_NUMBERS) -o $@ $< >>$@.log 2>&1; rc=$$?; \
	  grep -v -e '^nvcc flags' -e '^ptxas info' -e '^ *[0-9]* bytes stack frame' $@.log >&2; test $$rc -eq 0; }
noinst_LIBRARIES += kernels/libcucheck.a
kernels_libcucheck_a_SOURCES = kernels/cuda/driver_check.c kernels/cuda/cudnn_check.c
kernels_libcucheck_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CFLAGS)
endif

include tests/cuda/local.mk
# A test of tests/op compiled a second time with OP_CUDA runs on the emulator, or with LF_REQUIRE_GPU=1 on a real GPU.
LF_CUDA_TEST_LIBS = tests/cuda/libcuemu.a $(LF_KERNEL_TEST_LIBS) $(LF_CUDA_LIBS)
noinst_HEADERS += tests/op/op_cuda.h
LF_CUDA_OP = tests/op/op_cuda.c tests/op/op_test.h
LF_CUDA_CPPFLAGS = $(AM_CPPFLAGS) -DOP_CUDA
check_PROGRAMS += tests/unit/cuda_emu_test
TESTS += tests/unit/cuda_emu_test
tests_unit_cuda_emu_test_SOURCES = tests/unit/cuda_emu_test.c $(LF_CUDA_OP)
tests_unit_cuda_emu_test_CPPFLAGS = $(LF_CUDA_CPPFLAGS)
tests_unit_cuda_emu_test_LDADD = $(LF_CUDA_TEST_LIBS)

check_PROGRAMS += tests/unit/cuda_hopper_test
TESTS += tests/unit/cuda_hopper_test
tests_unit_cuda_hopper_test_SOURCES = tests/unit/cuda_hopper_test.c $(LF_CUDA_OP)
tests_unit_cuda_hopper_test_CPPFLAGS = $(LF_CUDA_CPPFLAGS)
tests_unit_cuda_hopper_test_LDADD = $(LF_CUDA_TEST_LIBS)

check_PROGRAMS += tests/unit/cuda_driver_test
TESTS += tests/unit/cuda_driver_test
tests_unit_cuda_driver_test_SOURCES = tests/unit/cuda_driver_test.c
tests_unit_cuda_driver_test_LDADD = $(LF_CUDA_TEST_LIBS)

# How device code rounds.
check_PROGRAMS += tests/op/cuda_round_test
TESTS += tests/op/cuda_round_test
tests_op_cuda_round_test_SOURCES = tests/op/round_test.c $(LF_CUDA_OP)
tests_op_cuda_round_test_CPPFLAGS = $(LF_CUDA_CPPFLAGS)
tests_op_cuda_round_test_LDADD = $(LF_CUDA_TEST_LIBS)

# Attention and positions.
check_PROGRAMS += tests/op/cuda_rope_test
TESTS += tests/op/cuda_rope_test
tests_op_cuda_rope_test_SOURCES = tests/op/rope_test.c $(LF_CUDA_OP)
tests_op_cuda_rope_test_CPPFLAGS = $(LF_CUDA_CPPFLAGS)
tests_op_cuda_rope_test_LDADD = $(LF_CUDA_TEST_LIBS)

# Adapters.
check_PROGRAMS += tests/op/cuda_dora_test
TESTS += tests/op/cuda_dora_test
tests_op_cuda_dora_test_SOURCES = tests/op/dora_test.c $(LF_CUDA_OP)
tests_op_cuda_dora_test_CPPFLAGS = $(LF_CUDA_CPPFLAGS)
tests_op_cuda_dora_test_LDADD = $(LF_CUDA_TEST_LIBS)

# Convolutions and scans.
check_PROGRAMS += tests/op/cuda_conv_test tests/op/cuda_scan_test
TESTS += tests/op/cuda_conv_test tests/op/cuda_scan_test
tests_op_cuda_conv_test_SOURCES = tests/op/conv_test.c $(LF_CUDA_OP)
tests_op_cuda_conv_test_CPPFLAGS = $(LF_CUDA_CPPFLAGS)
tests_op_cuda_conv_test_LDADD = $(LF_CUDA_TEST_LIBS)
tests_op_cuda_scan_test_SOURCES = tests/op/scan_test.c $(LF_CUDA_OP)
tests_op_cuda_scan_test_CPPFLAGS = $(LF_CUDA_CPPFLAGS)
tests_op_cuda_scan_test_LDADD = $(LF_CUDA_TEST_LIBS)

# Rows mixed, columns weighed.
check_PROGRAMS += tests/op/cuda_mix_test
TESTS += tests/op/cuda_mix_test
tests_op_cuda_mix_test_SOURCES = tests/op/mix_test.c $(LF_CUDA_OP)
tests_op_cuda_mix_test_CPPFLAGS = $(LF_CUDA_CPPFLAGS)
tests_op_cuda_mix_test_LDADD = $(LF_CUDA_TEST_LIBS)

# Streams of a row.
check_PROGRAMS += tests/op/cuda_altup_test
TESTS += tests/op/cuda_altup_test
tests_op_cuda_altup_test_SOURCES = tests/op/altup_test.c $(LF_CUDA_OP)
tests_op_cuda_altup_test_CPPFLAGS = $(LF_CUDA_CPPFLAGS)
tests_op_cuda_altup_test_LDADD = $(LF_CUDA_TEST_LIBS)

# An activation that is trained.
check_PROGRAMS += tests/op/cuda_xielu_test
TESTS += tests/op/cuda_xielu_test
tests_op_cuda_xielu_test_SOURCES = tests/op/xielu_test.c $(LF_CUDA_OP)
tests_op_cuda_xielu_test_CPPFLAGS = $(LF_CUDA_CPPFLAGS)
tests_op_cuda_xielu_test_LDADD = $(LF_CUDA_TEST_LIBS)

# Convolutions over pictures.
check_PROGRAMS += tests/op/cuda_dwconv_test
TESTS += tests/op/cuda_dwconv_test
tests_op_cuda_dwconv_test_SOURCES = tests/op/dwconv_test.c $(LF_CUDA_OP)
tests_op_cuda_dwconv_test_CPPFLAGS = $(LF_CUDA_CPPFLAGS)
tests_op_cuda_dwconv_test_LDADD = $(LF_CUDA_TEST_LIBS)

# 8-bit floats.
check_PROGRAMS += tests/op/cuda_fp8_test
TESTS += tests/op/cuda_fp8_test
tests_op_cuda_fp8_test_SOURCES = tests/op/fp8_test.c $(LF_CUDA_OP)
tests_op_cuda_fp8_test_CPPFLAGS = $(LF_CUDA_CPPFLAGS)
tests_op_cuda_fp8_test_LDADD = $(LF_CUDA_TEST_LIBS)

# Drawing tokens: the kernel against the host's sampler.
check_PROGRAMS += tests/op/cuda_sample_test
TESTS += tests/op/cuda_sample_test
tests_op_cuda_sample_test_SOURCES = tests/op/sample_test.c $(LF_CUDA_OP)
tests_op_cuda_sample_test_CPPFLAGS = $(LF_CUDA_CPPFLAGS)
tests_op_cuda_sample_test_LDADD = tests/tap/libtap.a tests/cuda/libcuemu.a $(LF_ENGINE_LIBS)
