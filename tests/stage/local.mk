# tests of tests/stage
TESTS += tests/stage/lock.sh
EXTRA_DIST += tests/stage/lock.sh
# Training on the emulated GPU.
TESTS += tests/stage/cuda.sh
EXTRA_DIST += tests/stage/cuda.sh
