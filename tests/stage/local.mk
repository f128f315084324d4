# tests of tests/stage
TESTS += tests/stage/lock.sh
EXTRA_DIST += tests/stage/lock.sh
