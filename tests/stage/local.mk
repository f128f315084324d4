# tests of tests/stage
TESTS += tests/stage/lock.sh
EXTRA_DIST += tests/stage/lock.sh
# Training on the emulated GPU.
TESTS += tests/stage/cuda.sh tests/stage/cuda_ahead.sh tests/stage/cuda_ranks.sh
EXTRA_DIST += tests/stage/cuda.sh tests/stage/cuda_ahead.sh tests/stage/cuda_ranks.sh
