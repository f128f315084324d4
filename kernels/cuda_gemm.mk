# Matrix products and the output layer of the CUDA backend: sources and tests (cuda.mk explains).
LF_CU_CODE += kernels/cuda/gemm.cu kernels/cuda/gemm_wgmma.cu kernels/cuda/colsum.cu kernels/cuda/grouped.cu kernels/cuda/xent.cu
LF_CU_HEAD += kernels/cuda/gemm_args.h kernels/cuda/gemm_form.h kernels/cuda/gemm_blaslt.h kernels/cuda/gemm_end.h \
  kernels/cuda/gemm_mma.h kernels/cuda/gemm_ffma.h kernels/cuda/gemm_wg.h kernels/cuda/dev_hopper.h kernels/cuda/colsum_args.h kernels/cuda/xent_args.h
EXTRA_DIST += kernels/cuda/blaslt_check.c
if HAVE_CUDA
kernels_libcucheck_a_SOURCES += kernels/cuda/blaslt_check.c
endif
kernels_libkernels_a_SOURCES += kernels/cuda/gemm.c kernels/cuda/gemm_wgmma.c kernels/cuda/gemm_blaslt.c kernels/cuda/colsum.c kernels/cuda/grouped.c kernels/cuda/xent.c

check_PROGRAMS += tests/op/cuda_gemm_test
TESTS += tests/op/cuda_gemm_test
tests_op_cuda_gemm_test_SOURCES = tests/op/gemm_test.c $(LF_CUDA_OP)
tests_op_cuda_gemm_test_CPPFLAGS = $(LF_CUDA_CPPFLAGS)
tests_op_cuda_gemm_test_LDADD = $(LF_CUDA_TEST_LIBS)
check_PROGRAMS += tests/op/cuda_grouped_test
TESTS += tests/op/cuda_grouped_test
tests_op_cuda_grouped_test_SOURCES = tests/op/grouped_test.c $(LF_CUDA_OP)
tests_op_cuda_grouped_test_CPPFLAGS = $(LF_CUDA_CPPFLAGS)
tests_op_cuda_grouped_test_LDADD = $(LF_CUDA_TEST_LIBS)
check_PROGRAMS += tests/op/cuda_xent_test
TESTS += tests/op/cuda_xent_test
tests_op_cuda_xent_test_SOURCES = tests/op/xent_test.c $(LF_CUDA_OP)
tests_op_cuda_xent_test_CPPFLAGS = $(LF_CUDA_CPPFLAGS)
tests_op_cuda_xent_test_LDADD = $(LF_CUDA_TEST_LIBS)
