# sources of engine/train, and their tests
engine_libengine_a_SOURCES += \
  engine/train/schedule.h engine/train/schedule.c engine/train/loop.h engine/train/loop_priv.h engine/train/loop.c engine/train/step.c engine/train/objective.h engine/train/guest.h engine/train/over.c engine/train/packs.c engine/train/own_rows.h engine/train/own_rows.c engine/train/see.c engine/train/seen.h engine/train/seen.c \
  engine/train/setup.c engine/train/declare.c engine/train/data.c engine/train/save.c engine/train/resume.c engine/train/report.c engine/train/measure.h engine/train/measure.c engine/train/diverge.c engine/train/best.c engine/train/neftune.h engine/train/neftune.c engine/train/mae.h engine/train/mae.c engine/train/texts.h engine/train/texts.c engine/train/mlm.h engine/train/mlm.c engine/train/nsp.h engine/train/nsp.c engine/train/electra.h engine/train/electra.c engine/train/loader_pairs.c engine/train/shorten.c engine/train/early.h engine/train/early.c engine/train/origin.h engine/train/origin.c engine/train/encode.h engine/train/encode.c engine/train/best.h engine/train/peak.h engine/train/peak.c \
  engine/train/run.h engine/train/run.c engine/train/copies.h engine/train/copies.c engine/train/run_save.c engine/train/run_start.c engine/train/run_priv.h engine/train/run_parts.c engine/train/ranks.c engine/train/axes.h engine/train/axes.c engine/train/laid.h engine/train/laid.c engine/train/forecast.c engine/train/cut.h engine/train/cut.c engine/train/cost.h engine/train/cost.c engine/train/cost_measure.c engine/train/chosen.c engine/train/pipe.h engine/train/pipe.c engine/train/zero.h engine/train/zero.c engine/train/devcomm.h engine/train/devcomm_priv.h engine/train/devcomm.c engine/train/devcomm_gpus.c engine/train/devcomm_pipe.c engine/train/devcomm_through.c engine/train/devcomm_tied.c engine/train/scaler.h engine/train/scaler.c engine/train/sample_file.h engine/train/sample_file.c
EXTRA_DIST += engine/train/README.md
check_PROGRAMS += tests/unit/train_schedule_test tests/unit/train_early_test
TESTS += tests/unit/train_schedule_test tests/unit/train_early_test
tests_unit_train_early_test_SOURCES = tests/unit/train_early_test.c
tests_unit_train_early_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_train_schedule_test_SOURCES = tests/unit/train_schedule_test.c
tests_unit_train_schedule_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
check_PROGRAMS += tests/unit/train_cost
TESTS += tests/unit/train_cost
tests_unit_train_cost_SOURCES = tests/unit/train_cost.c $(pipe_util)
tests_unit_train_cost_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_train_cost_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=lf_now_s
# the loader (store helper)
engine_libengine_a_SOURCES += engine/train/loader.h engine/train/loader_priv.h engine/train/loader.c engine/train/loader_open.c engine/train/loader_media.c engine/train/loader_seq2seq.c engine/train/seq2seq.h engine/train/seq2seq.c engine/train/order.c engine/train/units.c \
  engine/train/megatron_order.h engine/train/megatron_order.c engine/train/loader_megatron.c
check_PROGRAMS += tests/golden/megatron_test
TESTS += tests/golden/megatron_test
tests_golden_megatron_test_SOURCES = tests/golden/megatron_test.c
tests_golden_megatron_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/megatron/README.md tests/golden/megatron/make_megatron.py tests/golden/megatron/check_megatron.py tests/golden/megatron/expected.json \
  tests/golden/megatron/u16.idx tests/golden/megatron/u16.bin tests/golden/megatron/i32.idx tests/golden/megatron/i32.bin \
  tests/golden/megatron/modes.idx tests/golden/megatron/modes.bin tests/golden/megatron/i64.idx tests/golden/megatron/i64.bin
check_PROGRAMS += tests/unit/train_mlm
TESTS += tests/unit/train_mlm
tests_unit_train_mlm_SOURCES = tests/unit/train_mlm.c
tests_unit_train_mlm_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
check_PROGRAMS += tests/unit/train_nsp
TESTS += tests/unit/train_nsp
tests_unit_train_nsp_SOURCES = tests/unit/train_nsp.c
tests_unit_train_nsp_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
check_PROGRAMS += tests/unit/train_seq2seq
TESTS += tests/unit/train_seq2seq
tests_unit_train_seq2seq_SOURCES = tests/unit/train_seq2seq.c
tests_unit_train_seq2seq_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/seq2seq/README.md tests/golden/seq2seq/make_seq2seq.py tests/golden/seq2seq/expected.json
check_PROGRAMS += tests/unit/train_loader
TESTS += tests/unit/train_loader
tests_unit_train_loader_SOURCES = tests/unit/train_loader.c
tests_unit_train_loader_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
check_PROGRAMS += tests/unit/train_setup_test
TESTS += tests/unit/train_setup_test
tests_unit_train_setup_test_SOURCES = tests/unit/train_setup_test.c
tests_unit_train_setup_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
check_PROGRAMS += tests/unit/train_forecast
TESTS += tests/unit/train_forecast
tests_unit_train_forecast_SOURCES = tests/unit/train_forecast.c
tests_unit_train_forecast_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_train_forecast_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=lf_plan_take_rank,--wrap=lf_train_tensors
check_PROGRAMS += tests/unit/train_ranks
TESTS += tests/unit/train_ranks
tests_unit_train_ranks_SOURCES = tests/unit/train_ranks.c
tests_unit_train_ranks_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
check_PROGRAMS += tests/unit/train_megatron
TESTS += tests/unit/train_megatron
tests_unit_train_megatron_SOURCES = tests/unit/train_megatron.c
tests_unit_train_megatron_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
check_PROGRAMS += tests/unit/train_units
TESTS += tests/unit/train_units
tests_unit_train_units_SOURCES = tests/unit/train_units.c
tests_unit_train_units_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
check_PROGRAMS += tests/unit/train_packed
TESTS += tests/unit/train_packed
tests_unit_train_packed_SOURCES = tests/unit/train_packed.c tests/unit/graph_util.c tests/unit/graph_util.h
tests_unit_train_packed_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
check_PROGRAMS += tests/unit/train_best
TESTS += tests/unit/train_best
tests_unit_train_best_SOURCES = tests/unit/train_best.c
tests_unit_train_best_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
check_PROGRAMS += tests/unit/train_media
TESTS += tests/unit/train_media
tests_unit_train_media_SOURCES = tests/unit/train_media.c $(MEDIA_TEST_UTIL)
tests_unit_train_media_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
