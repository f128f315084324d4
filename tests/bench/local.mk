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
# Scans beside transformers: kernels/bench/scan_bench and tests/bench/scan_peer.py
EXTRA_DIST += tests/bench/scan_peer.py
EXTRA_DIST += tests/bench/layouts.sh tests/bench/layouts_full.sh tests/bench/layouts_peer.py tests/bench/zero.sh tests/bench/fsdp_peer.py tests/bench/save.sh tests/bench/ranks.sh
# pictures beside transformers
EXTRA_PROGRAMS += tests/bench/pictures_bench
tests_bench_pictures_bench_SOURCES = tests/bench/pictures_bench.c
tests_bench_pictures_bench_LDADD = $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/bench/pictures.sh tests/bench/pictures_peer.py
