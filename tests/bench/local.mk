# tests of tests/bench

# All-reduce over ranks: make tests/bench/comm_bench loong-flow && tests/bench/comm.sh
check_PROGRAMS += tests/bench/comm_bench
tests_bench_comm_bench_SOURCES = tests/bench/comm_bench.c
tests_bench_comm_bench_LDADD = $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/bench/comm.sh tests/bench/comm_mpi.c
