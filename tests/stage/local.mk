# tests of tests/stage
EXTRA_DIST += tests/stage/lib.sh tests/stage/README.md
# Libraries that light_lib.sh puts before the real ones; not for sanitizers, which look at what is loaded.
EXTRA_DIST += tests/stage/light.sh tests/stage/light_later.c tests/stage/light_lib.sh
if !INSTRUMENTED
check_DATA += tests/light/made
CLEANFILES += tests/light/made tests/light/lib* tests/light/later.so
CLEANFILES += tests/light/bin/loong-flow tests/light/bin/lf-*
tests/light/made: tests/stage/train_tool$(EXEEXT) loong-flow$(EXEEXT) $(pkglibexec_PROGRAMS) tests/stage/light.sh tests/stage/light_later.c
	$(AM_V_GEN)CC="$(CC)" $(SHELL) $(top_srcdir)/tests/stage/light.sh tests/light tests/stage/train_tool loong-flow$(EXEEXT) $(pkglibexec_PROGRAMS) && touch $@
endif
TESTS += tests/stage/lock.sh
EXTRA_DIST += tests/stage/lock.sh
# Plans of large models on many ranks.
TESTS += tests/stage/plan_large.sh
EXTRA_DIST += tests/stage/plan_large.sh
TESTS += tests/stage/plan_libai.sh
EXTRA_DIST += tests/stage/plan_libai.sh
# Training, generating and scoring on the emulated GPU.
TESTS += tests/stage/cuda.sh tests/stage/cudnn.sh tests/stage/wgmma.sh tests/stage/cuda_ahead.sh tests/stage/cuda_ranks.sh tests/stage/cuda_zero.sh tests/stage/cuda_pipeline.sh tests/stage/cuda_tensor.sh tests/stage/cuda_expert.sh tests/stage/cuda_infer.sh
EXTRA_DIST += tests/stage/cuda.sh tests/stage/cudnn.sh tests/stage/wgmma.sh tests/stage/cuda_ahead.sh tests/stage/cuda_ranks.sh tests/stage/cuda_zero.sh tests/stage/cuda_pipeline.sh tests/stage/cuda_tensor.sh tests/stage/cuda_expert.sh tests/stage/cuda_infer.sh
# Sharded state there with more of everything (make check-long).
LONG_TESTS += tests/stage/cuda_zero_long.sh
EXTRA_DIST += tests/stage/cuda_zero_long.sh
# A disk that fills up at each change of a stage.
LONG_TESTS += tests/stage/faults_long.sh
EXTRA_DIST += tests/stage/faults_long.sh
# Post-training there: every stage, loss and algorithm.
TESTS += tests/stage/cuda_post.sh tests/stage/cuda_ppo_ranks.sh tests/stage/cuda_post_ranks.sh
EXTRA_DIST += tests/stage/cuda_post.sh tests/stage/cuda_ppo_ranks.sh tests/stage/cuda_post_ranks.sh
# 8-bit products.
TESTS += tests/stage/fp8.sh
EXTRA_DIST += tests/stage/fp8.sh
# Weights that are 8-bit floats in their files.
TESTS += tests/stage/quantised.sh
EXTRA_DIST += tests/stage/quantised.sh
# What an example draws; with three seeds, whether its model sees.
TESTS += tests/stage/scenes.sh
LONG_TESTS += tests/stage/scenes_long.sh
EXTRA_DIST += tests/stage/scenes.sh tests/stage/scenes_long.sh
