# fine-tuning and GRPO beside TRL: make bench-post [BENCH="grpo f32"]
EXTRA_DIST += tests/bench/post_bench.py tests/bench/post_peer.py

bench-post: all
	LF_MODELS_DIR='$(abs_top_srcdir)/models' $${PYTHON:-python3} $(top_srcdir)/tests/bench/post_bench.py '$(abs_top_builddir)' $(BENCH)
.PHONY: bench-post
