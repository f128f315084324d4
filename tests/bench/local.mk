# tests of tests/bench

# All-reduce over ranks: make tests/bench/comm_bench loong-flow && tests/bench/comm.sh
check_PROGRAMS += tests/bench/comm_bench
tests_bench_comm_bench_SOURCES = tests/bench/comm_bench.c
tests_bench_comm_bench_LDADD = $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/bench/comm.sh tests/bench/comm_mpi.c
# Messages beside computation: make tests/bench/comm_move loong-flow && tests/bench/comm_move.sh
check_PROGRAMS += tests/bench/comm_move
tests_bench_comm_move_SOURCES = tests/bench/comm_move.c
tests_bench_comm_move_LDADD = $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/bench/comm_move.sh
# What it costs when ranks divide their state: make all tests/stage/train_tool && tests/bench/zero.sh
EXTRA_DIST += tests/bench/layouts.sh tests/bench/experts.sh tests/bench/layouts_full.sh tests/bench/layouts_peer.py tests/bench/zero.sh tests/bench/fsdp_peer.py tests/bench/save.sh tests/bench/ranks.sh
# pictures beside transformers
EXTRA_PROGRAMS += tests/bench/pictures_bench
tests_bench_pictures_bench_SOURCES = tests/bench/pictures_bench.c
tests_bench_pictures_bench_LDADD = $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/bench/pictures.sh tests/bench/pictures_peer.py
# mixers, and whole models of them, beside transformers: make bench-hybrids
EXTRA_PROGRAMS += tests/bench/mixer_bench
tests_bench_mixer_bench_SOURCES = tests/bench/mixer_bench.c
tests_bench_mixer_bench_LDADD = kernels/bench/libbench.a $(LF_KERNEL_LIBS)
EXTRA_DIST += tests/bench/mixer_peer.py tests/bench/hybrids_peer.py tests/bench/hybrids/next-60m.ini tests/bench/hybrids/deepseek-60m.ini \
	tests/bench/hybrids/mamba2-60m.ini

bench-hybrids: tests/bench/mixer_bench tests/bench/model_bench
	PYTHON=$${PYTHON:-python3}; "$$PYTHON" $(srcdir)/tests/bench/mixer_peer.py tests/bench/mixer_bench && \
	"$$PYTHON" $(srcdir)/tests/bench/hybrids_peer.py tests/bench/model_bench $(srcdir)/tests/bench/hybrids
.PHONY: bench-hybrids
