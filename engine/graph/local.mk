# sources of engine/graph, and their tests
engine_libengine_a_SOURCES += engine/graph/pstore.h engine/graph/graph.h engine/graph/plan.h engine/graph/exec.h \
  engine/graph/priv.h engine/graph/ops.h engine/graph/exec_priv.h engine/graph/layout.h engine/graph/layout.c engine/graph/layout_rules.c engine/graph/layout_check.c engine/graph/layout_context.c engine/graph/kern_context.c engine/graph/kern_gather.c engine/graph/deal.c engine/graph/box.c engine/graph/exec_tensor.c engine/graph/pstore.c engine/graph/graph.c engine/graph/build.c engine/graph/cut.c \
  engine/graph/adapter.h engine/graph/adapter.c \
  engine/graph/ops.c engine/graph/ops_shape.c engine/graph/ops_vjp.c engine/graph/ops_emit.c engine/graph/ops_emit_bwd.c engine/graph/ops_emit.h engine/graph/ops_rule.h engine/graph/ops_vjp.h engine/graph/ops_elem.c engine/graph/ops_heads.c engine/graph/ops_moe.c engine/graph/ops_experts.c engine/graph/ops_dora.c engine/graph/ops_mix.c engine/graph/ops_dwconv.c engine/graph/ops_altup.c engine/graph/ops_scan.c engine/graph/ops_fp8.c engine/graph/ops_cost.c \
  engine/graph/kern_table.c engine/graph/kern_experts.c engine/graph/plan_experts.c engine/graph/exec_experts.c engine/graph/experts.h engine/graph/autodiff.c engine/graph/precision.c engine/graph/fp8.c engine/graph/fuse.c engine/graph/recompute.c engine/graph/split.c engine/graph/late.c \
  engine/graph/alias.c engine/graph/place.c engine/graph/target.c engine/graph/plan.c engine/graph/plan_data.c engine/graph/plan_shard.c engine/graph/plan_window.c engine/graph/plan_whole.c engine/graph/plan_tensor.c \
  engine/graph/plan_place.c engine/graph/plan_chunk.c \
  engine/graph/plan_text.c engine/graph/exec.c engine/graph/exec_bind.c engine/graph/exec_debug.c engine/graph/exec_capture.c engine/graph/exec_pieces.c engine/graph/exec_rows.c engine/graph/exec_sum.c engine/graph/exec_window.c engine/graph/exec_whole.c \
  engine/graph/profile.h engine/graph/profile_priv.h engine/graph/profile.c engine/graph/profile_write.c \
  engine/graph/nvtx.h engine/graph/nvtx.c
EXTRA_DIST += engine/graph/README.md

check_DATA += tests/unit/fake_nvtx.so
EXTRA_DIST += tests/unit/fake_nvtx.c
CLEANFILES += tests/unit/fake_nvtx.so
tests/unit/fake_nvtx.so: tests/unit/fake_nvtx.c
	$(AM_V_GEN)$(MKDIR_P) tests/unit && $(CC) -shared -fPIC $(CFLAGS) -o $@ $(srcdir)/tests/unit/fake_nvtx.c

# The tests with a whole decoder share graph_util.
graph_tests = tests/unit/graph_place tests/unit/graph_random tests/unit/graph_scan tests/unit/graph_build tests/unit/graph_train \
  tests/unit/graph_memory tests/unit/graph_state tests/unit/graph_paged tests/unit/graph_data tests/unit/graph_profile tests/unit/graph_nvtx \
  tests/unit/graph_fp8 tests/unit/graph_rows tests/unit/graph_border tests/unit/graph_window tests/unit/graph_layout tests/unit/graph_context \
  tests/unit/graph_shares tests/unit/graph_mesh tests/unit/graph_pieces tests/unit/graph_experts
graph_util = tests/unit/graph_util.c tests/unit/graph_util.h
check_PROGRAMS += $(graph_tests)
TESTS += $(graph_tests)
tests_unit_graph_place_SOURCES = tests/unit/graph_place.c $(graph_util)
tests_unit_graph_place_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_graph_fp8_SOURCES = tests/unit/graph_fp8.c $(graph_util)
tests_unit_graph_fp8_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_graph_border_SOURCES = tests/unit/graph_border.c $(graph_util)
tests_unit_graph_border_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_graph_window_SOURCES = tests/unit/graph_window.c $(graph_util)
tests_unit_graph_window_LDADD = tests/tap/libtap.a tests/cuda/libcuemu.a $(LF_ENGINE_LIBS)
tests_unit_graph_pieces_LDADD = tests/tap/libtap.a tests/cuda/libcuemu.a $(LF_ENGINE_LIBS)
tests_unit_graph_layout_SOURCES = tests/unit/graph_layout.c tests/unit/graph_layout_rows.h
tests_unit_graph_layout_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_graph_context_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_graph_experts_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_graph_mesh_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_graph_shares_SOURCES = tests/unit/graph_shares.c $(graph_util)
tests_unit_graph_shares_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_graph_rows_SOURCES = tests/unit/graph_rows.c $(graph_util)
tests_unit_graph_rows_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_graph_scan_SOURCES = tests/unit/graph_scan.c
tests_unit_graph_scan_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_graph_random_SOURCES = tests/unit/graph_random.c
tests_unit_graph_random_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_graph_build_SOURCES = tests/unit/graph_build.c
tests_unit_graph_build_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_graph_train_SOURCES = tests/unit/graph_train.c $(graph_util)
tests_unit_graph_train_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
check_PROGRAMS += tests/unit/graph_cuda_test
TESTS += tests/unit/graph_cuda_test
tests_unit_graph_cuda_test_SOURCES = tests/unit/graph_cuda_test.c $(graph_util)
tests_unit_graph_cuda_test_LDADD = tests/tap/libtap.a tests/cuda/libcuemu.a $(LF_ENGINE_LIBS)
tests_unit_graph_data_SOURCES = tests/unit/graph_data.c $(graph_util)
tests_unit_graph_data_LDADD = tests/tap/libtap.a tests/cuda/libcuemu.a $(LF_ENGINE_LIBS)
tests_unit_graph_profile_SOURCES = tests/unit/graph_profile.c $(graph_util)
tests_unit_graph_profile_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_graph_nvtx_SOURCES = tests/unit/graph_nvtx.c $(graph_util)
tests_unit_graph_nvtx_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_graph_memory_SOURCES = tests/unit/graph_memory.c $(graph_util)
tests_unit_graph_memory_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_graph_state_SOURCES = tests/unit/graph_state.c $(graph_util)
tests_unit_graph_state_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_graph_paged_SOURCES = tests/unit/graph_paged.c
tests_unit_graph_paged_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
