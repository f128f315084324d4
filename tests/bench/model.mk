# the CPU table: make bench [BENCH="train gpt2 f32"]
check_PROGRAMS += tests/bench/model_bench
CLEANFILES += tests/bench/model_bench
tests_bench_model_bench_SOURCES = tests/bench/model_bench.c
tests_bench_model_bench_LDADD = kernels/bench/libbench.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/bench/README.md tests/bench/run.sh tests/bench/torch_peer.py tests/bench/turns.py tests/bench/latent-60m.ini \
	tests/bench/libai.sh tests/bench/vit-base.ini

bench: tests/bench/model_bench
	LF_BUILDDIR='$(abs_top_builddir)' $(SHELL) $(top_srcdir)/tests/bench/run.sh $(BENCH)
# the same rows, ours and PyTorch's best step by step: make bench-turns [BENCH="train gpt2 f32"]
bench-turns: tests/bench/model_bench
	$${PYTHON:-python3} $(top_srcdir)/tests/bench/turns.py tests/bench/model_bench $(top_srcdir)/models $(BENCH)
.PHONY: bench bench-turns
