# The memory-bound kernels of the CUDA backend and their tests; part of cuda.mk.
LF_CU_CODE += kernels/cuda/elementwise.cu kernels/cuda/rows.cu kernels/cuda/sort.cu kernels/cuda/embed.cu kernels/cuda/optim.cu \
  kernels/cuda/moe.cu
LF_CU_HEAD += kernels/cuda/act.h kernels/cuda/each.h kernels/cuda/elementwise.h kernels/cuda/rows.h \
  kernels/cuda/sort.h kernels/cuda/sort_key.h kernels/cuda/embed.h kernels/cuda/optim.h kernels/cuda/moe.h
kernels_libkernels_a_SOURCES += kernels/cuda/elementwise.c kernels/cuda/rows.c kernels/cuda/sort.c \
  kernels/cuda/embed.c kernels/cuda/optim.c kernels/cuda/moe.c
check_PROGRAMS += tests/op/cuda_elementwise_test
TESTS += tests/op/cuda_elementwise_test
tests_op_cuda_elementwise_test_SOURCES = tests/op/elementwise_test.c tests/op/op_cuda.c tests/op/op_test.h
tests_op_cuda_elementwise_test_CPPFLAGS = $(AM_CPPFLAGS) -DOP_CUDA
tests_op_cuda_elementwise_test_LDADD = $(LF_CUDA_TEST_LIBS)
check_PROGRAMS += tests/op/cuda_norm_test
TESTS += tests/op/cuda_norm_test
tests_op_cuda_norm_test_SOURCES = tests/op/norm_test.c tests/op/op_cuda.c tests/op/op_test.h
tests_op_cuda_norm_test_CPPFLAGS = $(AM_CPPFLAGS) -DOP_CUDA
tests_op_cuda_norm_test_LDADD = $(LF_CUDA_TEST_LIBS)
check_PROGRAMS += tests/op/cuda_unit_rows_test
TESTS += tests/op/cuda_unit_rows_test
tests_op_cuda_unit_rows_test_SOURCES = tests/op/unit_rows_test.c tests/op/op_cuda.c tests/op/op_test.h
tests_op_cuda_unit_rows_test_CPPFLAGS = $(AM_CPPFLAGS) -DOP_CUDA
tests_op_cuda_unit_rows_test_LDADD = $(LF_CUDA_TEST_LIBS)
check_PROGRAMS += tests/op/cuda_embed_test
TESTS += tests/op/cuda_embed_test
tests_op_cuda_embed_test_SOURCES = tests/op/embed_test.c tests/op/op_cuda.c tests/op/op_test.h
tests_op_cuda_embed_test_CPPFLAGS = $(AM_CPPFLAGS) -DOP_CUDA
tests_op_cuda_embed_test_LDADD = $(LF_CUDA_TEST_LIBS)
check_PROGRAMS += tests/op/cuda_optim_test
TESTS += tests/op/cuda_optim_test
tests_op_cuda_optim_test_SOURCES = tests/op/optim_test.c tests/op/op_cuda.c tests/op/op_test.h
tests_op_cuda_optim_test_CPPFLAGS = $(AM_CPPFLAGS) -DOP_CUDA
tests_op_cuda_optim_test_LDADD = $(LF_CUDA_TEST_LIBS)
check_PROGRAMS += tests/op/cuda_moe_test
TESTS += tests/op/cuda_moe_test
tests_op_cuda_moe_test_SOURCES = tests/op/moe_test.c tests/op/op_cuda.c tests/op/op_test.h
tests_op_cuda_moe_test_CPPFLAGS = $(AM_CPPFLAGS) -DOP_CUDA
tests_op_cuda_moe_test_LDADD = $(LF_CUDA_TEST_LIBS)
