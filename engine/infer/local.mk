# sources of engine/infer, and their tests
EXTRA_DIST += engine/infer/README.md
engine_libengine_a_SOURCES += \
  engine/infer/filter.c engine/infer/filter.h \
  engine/infer/beam.h engine/infer/beam.c engine/infer/gen.c engine/infer/gen.h engine/infer/gen_priv.h engine/infer/gen_seq.c \
  engine/infer/genconfig.c engine/infer/genconfig.h engine/infer/group.c engine/infer/group.h \
  engine/infer/lines.c engine/infer/lines.h \
  engine/infer/metric.c engine/infer/metric.h engine/infer/pyre.c engine/infer/pyre.h \
  engine/infer/request.c engine/infer/request.h engine/infer/request_members.c engine/infer/request_priv.h \
  engine/infer/result.c engine/infer/result.h \
  engine/infer/loaded.c engine/infer/loaded.h engine/infer/paged.c engine/infer/look.h engine/infer/look.c engine/infer/eyes.h engine/infer/eyes.c engine/infer/paged.h \
  engine/infer/paged_draw.c engine/infer/paged_draw.h engine/infer/runner.c engine/infer/runner.h \
  engine/infer/sample.c engine/infer/sample.h \
  engine/infer/score.c engine/infer/score.h \
  engine/infer/tasks.c engine/infer/tasks.h engine/infer/tasks_priv.h engine/infer/tasks_harness.c engine/infer/tasks_items.c \
  engine/infer/tasks_metrics.c engine/infer/tasks_metrics.h engine/infer/tasks_requests.c engine/infer/tasks_results.c \
  engine/infer/tasks_run.c engine/infer/tasks_sights.c

LF_INFER_TESTS = tests/unit/infer_filter tests/unit/infer_metric tests/unit/infer_pyre tests/unit/infer_sample tests/unit/infer_score tests/unit/infer_gen tests/unit/infer_model
check_PROGRAMS += $(LF_INFER_TESTS)
TESTS += $(LF_INFER_TESTS)
tests_unit_infer_filter_SOURCES = tests/unit/infer_filter.c
tests_unit_infer_filter_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_infer_metric_SOURCES = tests/unit/infer_metric.c
tests_unit_infer_metric_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_infer_pyre_SOURCES = tests/unit/infer_pyre.c
tests_unit_infer_pyre_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_infer_sample_SOURCES = tests/unit/infer_sample.c
tests_unit_infer_sample_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_infer_score_SOURCES = tests/unit/infer_score.c
tests_unit_infer_score_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_infer_gen_SOURCES = tests/unit/infer_gen.c
tests_unit_infer_gen_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_infer_model_SOURCES = tests/unit/infer_model.c tests/unit/infer_ckpt.c tests/unit/infer_ckpt.h
tests_unit_infer_model_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
