# The memory-bound kernels of the CUDA backend and their tests; part of cuda.mk.
LF_CU_CODE += kernels/cuda/elementwise.cu
LF_CU_EMU_CODE += kernels/cuda/emu/cu_elementwise.c
LF_CU_HEAD += kernels/cuda/act.h kernels/cuda/elementwise.h
kernels_libkernels_a_SOURCES += kernels/cuda/elementwise.c
check_PROGRAMS += tests/op/cuda_elementwise_test
TESTS += tests/op/cuda_elementwise_test
tests_op_cuda_elementwise_test_SOURCES = tests/op/elementwise_test.c tests/op/op_cuda.c tests/op/op_test.h
tests_op_cuda_elementwise_test_CPPFLAGS = $(AM_CPPFLAGS) -DOP_CUDA
tests_op_cuda_elementwise_test_LDADD = $(LF_CUDA_TEST_LIBS)
