# Everything that is not a matrix product: sources (LF_CPU_ISA_SOURCES += ...) and tests.
LF_CPU_ISA_SOURCES += kernels/cpu/ops.h kernels/cpu/philox.h kernels/cpu/elementwise.c kernels/cpu/embed.c kernels/cpu/norm.c kernels/cpu/unit_rows.c kernels/cpu/dora.c kernels/cpu/mix.c kernels/cpu/xielu.c kernels/cpu/dwconv.c kernels/cpu/altup.c \
  kernels/cpu/optim.c \
  kernels/cpu/attn.h kernels/cpu/attn_mm.c kernels/cpu/attn_block.c kernels/cpu/attn_fwd.c kernels/cpu/attn_bwd.c \
  kernels/cpu/attn_paged.c kernels/cpu/scan.h kernels/cpu/scan_chunk.c kernels/cpu/scan_fwd.c kernels/cpu/scan_bwd.c \
  kernels/cpu/conv.c kernels/cpu/scan_gate.c kernels/cpu/moe_route.c kernels/cpu/moe_rows.c

check_PROGRAMS += tests/op/attn_test
TESTS += tests/op/attn_test
tests_op_attn_test_SOURCES = tests/op/attn_test.c tests/op/attn_ref.h tests/op/attn_rig.h tests/op/op_test.h
tests_op_attn_test_LDADD = $(LF_KERNEL_TEST_LIBS)
check_PROGRAMS += tests/op/attn_cross_test
TESTS += tests/op/attn_cross_test
tests_op_attn_cross_test_SOURCES = tests/op/attn_cross_test.c tests/op/op_test.h
tests_op_attn_cross_test_LDADD = $(LF_KERNEL_TEST_LIBS)
check_PROGRAMS += tests/op/attn_paged_test
TESTS += tests/op/attn_paged_test
tests_op_attn_paged_test_SOURCES = tests/op/attn_paged_test.c tests/op/attn_ref.h tests/op/op_test.h
tests_op_attn_paged_test_LDADD = $(LF_KERNEL_TEST_LIBS)
check_PROGRAMS += tests/op/elementwise_test tests/op/norm_test
TESTS += tests/op/elementwise_test tests/op/norm_test
tests_op_elementwise_test_SOURCES = tests/op/elementwise_test.c tests/op/op_test.h
tests_op_elementwise_test_LDADD = $(LF_KERNEL_TEST_LIBS)
tests_op_norm_test_SOURCES = tests/op/norm_test.c tests/op/op_test.h
tests_op_norm_test_LDADD = $(LF_KERNEL_TEST_LIBS)
check_PROGRAMS += tests/op/unit_rows_test
TESTS += tests/op/unit_rows_test
tests_op_unit_rows_test_SOURCES = tests/op/unit_rows_test.c tests/op/op_test.h
tests_op_unit_rows_test_LDADD = $(LF_KERNEL_TEST_LIBS)
check_PROGRAMS += tests/op/dora_test
TESTS += tests/op/dora_test
tests_op_dora_test_SOURCES = tests/op/dora_test.c tests/op/op_test.h
tests_op_dora_test_LDADD = $(LF_KERNEL_TEST_LIBS)
check_PROGRAMS += tests/op/mix_test
TESTS += tests/op/mix_test
tests_op_mix_test_SOURCES = tests/op/mix_test.c tests/op/op_test.h
tests_op_mix_test_LDADD = $(LF_KERNEL_TEST_LIBS)
check_PROGRAMS += tests/op/xielu_test
TESTS += tests/op/xielu_test
tests_op_xielu_test_SOURCES = tests/op/xielu_test.c tests/op/op_test.h
tests_op_xielu_test_LDADD = $(LF_KERNEL_TEST_LIBS)
check_PROGRAMS += tests/op/dwconv_test
TESTS += tests/op/dwconv_test
tests_op_dwconv_test_SOURCES = tests/op/dwconv_test.c tests/op/op_test.h
tests_op_dwconv_test_LDADD = $(LF_KERNEL_TEST_LIBS)
check_PROGRAMS += tests/op/altup_test
TESTS += tests/op/altup_test
tests_op_altup_test_SOURCES = tests/op/altup_test.c tests/op/op_test.h
tests_op_altup_test_LDADD = $(LF_KERNEL_TEST_LIBS)
check_PROGRAMS += tests/op/bits_test
TESTS += tests/op/bits_test
tests_op_bits_test_SOURCES = tests/op/bits_test.c tests/op/op_test.h
tests_op_bits_test_LDADD = $(LF_KERNEL_TEST_LIBS)
check_PROGRAMS += tests/op/conv_test tests/op/scan_test
TESTS += tests/op/conv_test tests/op/scan_test
tests_op_conv_test_SOURCES = tests/op/conv_test.c tests/op/op_test.h
tests_op_conv_test_LDADD = $(LF_KERNEL_TEST_LIBS)
tests_op_scan_test_SOURCES = tests/op/scan_test.c tests/op/op_test.h
tests_op_scan_test_LDADD = $(LF_KERNEL_TEST_LIBS)
check_PROGRAMS += tests/op/embed_test tests/op/optim_test
TESTS += tests/op/embed_test tests/op/optim_test
tests_op_embed_test_SOURCES = tests/op/embed_test.c tests/op/op_test.h
tests_op_embed_test_LDADD = $(LF_KERNEL_TEST_LIBS)
tests_op_optim_test_SOURCES = tests/op/optim_test.c tests/op/op_test.h
tests_op_optim_test_LDADD = $(LF_KERNEL_TEST_LIBS)
check_PROGRAMS += tests/op/rope_test
TESTS += tests/op/rope_test
tests_op_rope_test_SOURCES = tests/op/rope_test.c tests/op/op_test.h
tests_op_rope_test_LDADD = $(LF_KERNEL_TEST_LIBS)
check_PROGRAMS += tests/op/team_test
TESTS += tests/op/team_test
tests_op_team_test_SOURCES = tests/op/team_test.c
tests_op_team_test_LDADD = $(LF_KERNEL_TEST_LIBS)
if TSAN
check_PROGRAMS += tests/op/team_race
TESTS += tests/op/team_race
tests_op_team_race_SOURCES = tests/op/team_test.c kernels/cpu/team.h kernels/cpu/team.c kernels/cpu/queue.c
tests_op_team_race_CPPFLAGS = $(AM_CPPFLAGS) -DLF_TEAM_RACE
tests_op_team_race_CFLAGS = $(AM_CFLAGS) -fsanitize=thread
tests_op_team_race_LDFLAGS = -fsanitize=thread
tests_op_team_race_LDADD = tests/tap/libtap.a engine/libbase.a
endif
check_PROGRAMS += tests/op/border_test
TESTS += tests/op/border_test
tests_op_border_test_SOURCES = tests/op/border_test.c tests/op/op_test.h
tests_op_border_test_LDADD = $(LF_KERNEL_TEST_LIBS)
check_PROGRAMS += tests/op/moe_test
TESTS += tests/op/moe_test
tests_op_moe_test_SOURCES = tests/op/moe_test.c tests/op/op_test.h
tests_op_moe_test_LDADD = $(LF_KERNEL_TEST_LIBS)

check_PROGRAMS += kernels/bench/attn_bench
CLEANFILES += kernels/bench/attn_bench
kernels_bench_attn_bench_SOURCES = kernels/bench/attn_bench.c
kernels_bench_attn_bench_LDADD = kernels/bench/libbench.a $(LF_KERNEL_LIBS)
check_PROGRAMS += kernels/bench/scan_bench
CLEANFILES += kernels/bench/scan_bench
kernels_bench_scan_bench_SOURCES = kernels/bench/scan_bench.c
kernels_bench_scan_bench_LDADD = kernels/bench/libbench.a $(LF_KERNEL_LIBS)
check_PROGRAMS += kernels/bench/stream_bench
CLEANFILES += kernels/bench/stream_bench
kernels_bench_stream_bench_SOURCES = kernels/bench/stream_bench.c
kernels_bench_stream_bench_LDADD = kernels/bench/libbench.a $(LF_KERNEL_LIBS)
