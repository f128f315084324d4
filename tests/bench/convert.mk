# a large model through lf-convert and back: make bench-convert
check_PROGRAMS += tests/bench/convert_bench
CLEANFILES += tests/bench/convert_bench
tests_bench_convert_bench_SOURCES = tests/bench/convert_bench.c
tests_bench_convert_bench_LDADD = $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/bench/convert.sh tests/bench/quantised.sh

bench-convert: tests/bench/convert_bench stages/lf-convert
	LF_BUILDDIR='$(abs_top_builddir)' $(SHELL) $(top_srcdir)/tests/bench/convert.sh
bench-quantised: tests/bench/convert_bench stages/lf-convert
	LF_BUILDDIR='$(abs_top_builddir)' $(SHELL) $(top_srcdir)/tests/bench/quantised.sh
.PHONY: bench-convert bench-quantised
