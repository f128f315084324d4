# sources of engine/train, and their tests
engine_libengine_a_SOURCES += engine/train/loader.h
engine_libengine_a_SOURCES += engine/train/schedule.h engine/train/schedule.c
EXTRA_DIST += engine/train/README.md
check_PROGRAMS += tests/unit/train_schedule_test
TESTS += tests/unit/train_schedule_test
tests_unit_train_schedule_test_SOURCES = tests/unit/train_schedule_test.c
tests_unit_train_schedule_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
