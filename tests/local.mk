# The TAP library and the tests that belong to no one folder. Tests of a folder are declared in that folder's local.mk.
EXTRA_DIST += tests/README.md tests/tap/README.md tests/tap/cpu.sh tests/tap/covered.sh tests/tap/tap.sh tests/tap/shm.sh
check_LIBRARIES += tests/tap/libtap.a
tests_tap_libtap_a_SOURCES = tests/tap/tap.c tests/tap/tap.h
check_PROGRAMS += tests/tap/planted
tests_tap_planted_SOURCES = tests/tap/planted.c
tests_tap_planted_LDADD = tests/tap/libtap.a $(LF_BASE_LIBS)
TESTS += tests/tap/count.sh
EXTRA_DIST += tests/tap/count.sh
include tests/lint/local.mk
include tests/pack/local.mk
include tests/golden/local.mk
include tests/stage/local.mk
include tests/flow/local.mk
include tests/flow/fakes/slurm/local.mk
include tests/fault/local.mk
include tests/fuzz/local.mk
include tests/layout/local.mk
include tests/bench/local.mk
include tests/bench/model.mk
include tests/bench/ledger.mk
include tests/bench/convert.mk
include tests/gpu/local.mk
include tests/golden-gpu/local.mk
include tests/bench/post.mk
