# sources of engine/train, and their tests
engine_libengine_a_SOURCES += \
  engine/train/schedule.h engine/train/schedule.c engine/train/loop.h engine/train/loop_priv.h engine/train/loop.c \
  engine/train/setup.c engine/train/data.c engine/train/save.c engine/train/resume.c engine/train/report.c engine/train/diverge.c \
  engine/train/ranks.c
EXTRA_DIST += engine/train/README.md
check_PROGRAMS += tests/unit/train_schedule_test
TESTS += tests/unit/train_schedule_test
tests_unit_train_schedule_test_SOURCES = tests/unit/train_schedule_test.c
tests_unit_train_schedule_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
# the loader (store helper)
engine_libengine_a_SOURCES += engine/train/loader.h engine/train/loader_priv.h engine/train/loader.c engine/train/order.c
check_PROGRAMS += tests/unit/train_loader
TESTS += tests/unit/train_loader
tests_unit_train_loader_SOURCES = tests/unit/train_loader.c
tests_unit_train_loader_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
check_PROGRAMS += tests/unit/train_setup_test
TESTS += tests/unit/train_setup_test
tests_unit_train_setup_test_SOURCES = tests/unit/train_setup_test.c
tests_unit_train_setup_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
