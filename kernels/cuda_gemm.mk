# Matrix products and the output layer of the CUDA backend: sources and tests (cuda.mk explains).
LF_CU_CODE += kernels/cuda/gemm.cu
LF_CU_EMU_CODE += kernels/cuda/emu/cu_gemm.c
LF_CU_HEAD += kernels/cuda/gemm_args.h kernels/cuda/gemm_form.h kernels/cuda/gemm_end.h \
  kernels/cuda/gemm_mma.h kernels/cuda/gemm_ffma.h
kernels_libkernels_a_SOURCES += kernels/cuda/gemm.c

check_PROGRAMS += tests/op/cuda_gemm_test
TESTS += tests/op/cuda_gemm_test
tests_op_cuda_gemm_test_SOURCES = tests/op/gemm_test.c $(LF_CUDA_OP)
tests_op_cuda_gemm_test_CPPFLAGS = $(LF_CUDA_CPPFLAGS)
tests_op_cuda_gemm_test_LDADD = $(LF_CUDA_TEST_LIBS)
