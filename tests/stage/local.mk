# tests of tests/stage
EXTRA_DIST += tests/stage/lib.sh tests/stage/README.md
TESTS += tests/stage/lock.sh
EXTRA_DIST += tests/stage/lock.sh
# Training, generating and scoring on the emulated GPU.
TESTS += tests/stage/cuda.sh tests/stage/cudnn.sh tests/stage/wgmma.sh tests/stage/cuda_ahead.sh tests/stage/cuda_ranks.sh tests/stage/cuda_zero.sh tests/stage/cuda_pipeline.sh tests/stage/cuda_tensor.sh tests/stage/cuda_infer.sh
EXTRA_DIST += tests/stage/cuda.sh tests/stage/cudnn.sh tests/stage/wgmma.sh tests/stage/cuda_ahead.sh tests/stage/cuda_ranks.sh tests/stage/cuda_zero.sh tests/stage/cuda_pipeline.sh tests/stage/cuda_tensor.sh tests/stage/cuda_infer.sh
# Sharded state there with more of everything (make check-long).
LONG_TESTS += tests/stage/cuda_zero_long.sh
EXTRA_DIST += tests/stage/cuda_zero_long.sh
# Post-training there: every stage, loss and algorithm.
TESTS += tests/stage/cuda_post.sh tests/stage/cuda_ppo_ranks.sh tests/stage/cuda_post_ranks.sh
EXTRA_DIST += tests/stage/cuda_post.sh tests/stage/cuda_ppo_ranks.sh tests/stage/cuda_post_ranks.sh
# 8-bit products.
TESTS += tests/stage/fp8.sh
EXTRA_DIST += tests/stage/fp8.sh
