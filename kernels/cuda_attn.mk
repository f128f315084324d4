# Attention on CUDA and its tests; part of cuda.mk.
LF_CU_ATTN = kernels/cuda/attn_fwd.cu kernels/cuda/attn_f32.cu kernels/cuda/attn_bwd.cu kernels/cuda/attn_bwd_f32.cu \
  kernels/cuda/attn_paged.cu kernels/cuda/attn_ragged.cu kernels/cuda/attn_fwd_wgmma.cu kernels/cuda/attn_bwd_wgmma.cu
LF_CU_ATTN_HEAD = kernels/cuda/attn_dev.h kernels/cuda/attn_mma.h kernels/cuda/attn_f32.h kernels/cuda/attn_bwd.h kernels/cuda/attn_ragged.h \
  kernels/cuda/attn_fwd.h kernels/cuda/attn_bwd_mma.h kernels/cuda/attn_bwd_body.h kernels/cuda/attn_wg.h
LF_CU_CODE += $(LF_CU_ATTN)
kernels_libkernels_a_SOURCES += $(LF_CU_ATTN_HEAD) kernels/cuda/attn_args.h kernels/cuda/attn.c kernels/cuda/attn_paged.c \
  kernels/cuda/attn_source.h kernels/cuda/attn_source.c kernels/cuda/attn_cudnn.h kernels/cuda/attn_cudnn.c kernels/cuda/attn_cudnn_graph.c
if HAVE_CUDA
$(LF_CU_ATTN:.cu=.fatbin): $(LF_CU_ATTN_HEAD)
endif
check_PROGRAMS += tests/op/cuda_attn_test
TESTS += tests/op/cuda_attn_test
tests_op_cuda_attn_test_SOURCES = tests/op/attn_test.c tests/op/attn_ref.h tests/op/attn_rig.h tests/op/op_cuda.c tests/op/op_test.h
tests_op_cuda_attn_test_CPPFLAGS = $(AM_CPPFLAGS) -DOP_CUDA
tests_op_cuda_attn_test_LDADD = $(LF_CUDA_TEST_LIBS)
check_PROGRAMS += tests/op/cuda_attn_paged_test
TESTS += tests/op/cuda_attn_paged_test
tests_op_cuda_attn_paged_test_SOURCES = tests/op/attn_paged_test.c tests/op/attn_ref.h tests/op/op_cuda.c tests/op/op_test.h
tests_op_cuda_attn_paged_test_CPPFLAGS = $(AM_CPPFLAGS) -DOP_CUDA
tests_op_cuda_attn_paged_test_LDADD = $(LF_CUDA_TEST_LIBS)
check_PROGRAMS += tests/op/cuda_attn_cudnn_test
TESTS += tests/op/cuda_attn_cudnn_test
tests_op_cuda_attn_cudnn_test_SOURCES = tests/op/attn_cudnn_test.c tests/op/attn_ref.h tests/op/attn_rig.h tests/op/op_cuda.c tests/op/op_test.h
tests_op_cuda_attn_cudnn_test_CPPFLAGS = $(AM_CPPFLAGS) -DOP_CUDA
tests_op_cuda_attn_cudnn_test_LDADD = $(LF_CUDA_TEST_LIBS)
# The real library's opinion of our graphs, where it is found; no GPU is needed.
check_PROGRAMS += tests/unit/cudnn_plan_test
TESTS += tests/unit/cudnn_plan_test
tests_unit_cudnn_plan_test_SOURCES = tests/unit/cudnn_plan_test.c
tests_unit_cudnn_plan_test_LDADD = $(LF_CUDA_TEST_LIBS)
