# Layouts: ranks of one process in lock step.
EXTRA_DIST += tests/layout/README.md
layout_comm = tests/layout/local.h tests/layout/local_priv.h tests/layout/local.c tests/layout/local_move.c tests/layout/local_run.c
layout_rig = $(layout_comm) tests/layout/rig.h tests/layout/rig_priv.h tests/layout/rig.c tests/layout/shown.c tests/layout/compare.c tests/layout/drawn.c
layout_ldflags = $(AM_LDFLAGS) -Wl,--wrap=lf_rng_normal_pair
layout_tests = tests/layout/local_test tests/layout/step_test tests/layout/matrix tests/layout/fault_test \
  tests/layout/reshape_test tests/layout/tensor_fault_test \
  tests/layout/pipe_fault_test tests/layout/context_fault_test tests/layout/tied_test tests/layout/expert_test \
  tests/layout/expert_fault_test tests/layout/between_test tests/layout/routes_test
check_PROGRAMS += $(layout_tests)
TESTS += $(layout_tests)
tests_layout_local_test_SOURCES = tests/layout/local_test.c $(layout_comm)
tests_layout_local_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_layout_tied_test_SOURCES = tests/layout/tied_test.c $(layout_comm)
tests_layout_tied_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_layout_step_test_SOURCES = tests/layout/step_test.c $(layout_rig)
tests_layout_step_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_layout_step_test_LDFLAGS = $(layout_ldflags)
tests_layout_matrix_SOURCES = tests/layout/matrix.c tests/layout/switches.h tests/layout/switches.c tests/layout/cover.h tests/layout/cover.c $(layout_rig)
tests_layout_matrix_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_layout_matrix_LDFLAGS = $(layout_ldflags)
tests_layout_expert_test_SOURCES = tests/layout/expert_test.c $(layout_rig)
tests_layout_expert_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_layout_expert_test_LDFLAGS = $(layout_ldflags) -Wl,--wrap=lf_train_start
tests_layout_routes_test_SOURCES = tests/layout/routes_test.c tests/layout/switches.h tests/layout/switches.c tests/layout/cover.h tests/layout/cover.c $(layout_rig)
tests_layout_routes_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_layout_routes_test_LDFLAGS = $(layout_ldflags) -Wl,--wrap=lf_exec_node
layout_fault = tests/layout/fault.h tests/layout/fault.c $(layout_rig)
tests_layout_fault_test_SOURCES = tests/layout/fault_test.c $(layout_fault)
tests_layout_fault_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_layout_fault_test_LDFLAGS = $(layout_ldflags) -Wl,--wrap=lf_exec_run,--wrap=lf_exec_set_comm,--wrap=lf_loader_open,--wrap=lf_pstore_write_part,--wrap=lf_param_own
tests_layout_tensor_fault_test_SOURCES = tests/layout/tensor_fault_test.c $(layout_fault)
tests_layout_tensor_fault_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_layout_tensor_fault_test_LDFLAGS = $(layout_ldflags) -Wl,--wrap=lf_exec_sum_tensor,--wrap=lf_box_owner,--wrap=lf_autodiff,--wrap=lf_precision,--wrap=lf_exec_set_comm,--wrap=lf_adapter_measure,--wrap=lf_box_rows
tests_layout_pipe_fault_test_SOURCES = tests/layout/pipe_fault_test.c $(layout_fault)
tests_layout_pipe_fault_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_layout_pipe_fault_test_LDFLAGS = $(layout_ldflags) -Wl,--wrap=lf_exec_set_comm,--wrap=lf_box_owner,--wrap=lf_exec_run,--wrap=lf_pipe_add_messages,--wrap=lf_pipe_walk,--wrap=lf_pstore_write_part
tests_layout_context_fault_test_SOURCES = tests/layout/context_fault_test.c $(layout_fault)
tests_layout_context_fault_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_layout_context_fault_test_LDFLAGS = $(layout_ldflags) -Wl,--wrap=lf_exec_write,--wrap=lf_autodiff,--wrap=lf_precision,--wrap=lf_exec_set_comm
tests_layout_expert_fault_test_SOURCES = tests/layout/expert_fault_test.c $(layout_fault)
tests_layout_expert_fault_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_layout_expert_fault_test_LDFLAGS = $(layout_ldflags) -Wl,--wrap=lf_exec_run,--wrap=lf_exec_set_comm,--wrap=lf_experts_call,--wrap=lf_plan_counts,--wrap=lf_exec_idle_experts,--wrap=lf_exec_idle,--wrap=lf_exec_fill_within,--wrap=lf_box_element,--wrap=lf_loader_next,--wrap=lf_loader_begin_step
tests_layout_between_test_SOURCES = tests/layout/between_test.c $(layout_rig)
tests_layout_between_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_layout_between_test_LDFLAGS = $(layout_ldflags) -Wl,--wrap=lf_train_step_now,--wrap=lf_train_model_plan,--wrap=lf_loader_seek,--wrap=lf_train_over,--wrap=lf_run_asked_to_stop,--wrap=lf_comm_waited_s,--wrap=lf_exec_run
tests_layout_reshape_test_SOURCES = tests/layout/reshape_test.c $(layout_rig)
tests_layout_reshape_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_layout_reshape_test_LDFLAGS = $(layout_ldflags)
# The whole of it: make check-layouts.
LAYOUT_TESTS += tests/layout/layouts.sh
LONG_TESTS += tests/layout/layouts.sh
EXTRA_DIST += tests/layout/layouts.sh
