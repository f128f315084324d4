# a large project's ledger and queries: make bench-ledger
check_PROGRAMS += tests/bench/ledger_bench
CLEANFILES += tests/bench/ledger_bench
tests_bench_ledger_bench_SOURCES = tests/bench/ledger_bench.c
tests_bench_ledger_bench_LDADD = db/libdb.a $(SQLITE_LIBS) $(LF_BASE_LIBS)
EXTRA_DIST += tests/bench/ledger.sh tests/bench/submit.sh

bench-ledger: tests/bench/ledger_bench loong-flow tests/flow/bin/loong-flow tests/flow/bin/lf-work
	LF_BUILDDIR='$(abs_top_builddir)' $(SHELL) $(top_srcdir)/tests/bench/ledger.sh $(BENCH)
	for n in 50 1000 10000; do \
	  LF_SRCDIR='$(abs_top_srcdir)' LF_BUILDDIR='$(abs_top_builddir)' $(SHELL) $(top_srcdir)/tests/bench/submit.sh $$n || exit 1; \
	done
.PHONY: bench-ledger
