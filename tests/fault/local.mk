# tests of tests/fault: the tracing library is a plain shared object, so it has a rule of its own
check_DATA += tests/fault/preload.so
CLEANFILES += tests/fault/preload.so
tests/fault/preload.so: tests/fault/preload.c tests/fault/trace.h
	$(AM_V_CC)$(MKDIR_P) tests/fault && $(CC) -std=gnu11 -D_GNU_SOURCE -I$(top_srcdir) -O1 -g -Wall -Wextra -shared -fPIC \
	  -o $@ $(top_srcdir)/tests/fault/preload.c -ldl -lpthread
EXTRA_DIST += tests/fault/preload.c tests/fault/README.md tests/fault/lib.sh

check_PROGRAMS += tests/fault/crash_test
TESTS += tests/fault/crash_test
tests_fault_crash_test_SOURCES = tests/fault/crash_test.c tests/fault/crash_test.h tests/fault/crash_flow.c \
  tests/fault/crash_stages.c tests/fault/crash_fs.c tests/fault/crash_fs.h tests/fault/trace.h
tests_fault_crash_test_CPPFLAGS = $(AM_CPPFLAGS) -DLF_TRACE_LIBRARY='"$(abs_builddir)/tests/fault/preload.so"'
tests_fault_crash_test_LDADD = tests/tap/libtap.a flow/libflow.a flow/launch/liblaunch.a db/libdb.a $(SQLITE_LIBS) $(LF_ENGINE_LIBS)

# Faults: the n-th call fails, or the process is killed there; used by tests/stage/faults.sh and tests/flow/faults.sh.
check_DATA += tests/fault/fail.so
CLEANFILES += tests/fault/fail.so
tests/fault/fail.so: tests/fault/fail.c
	$(AM_V_CC)$(MKDIR_P) tests/fault && $(CC) -std=gnu11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -shared -fPIC \
	  -o $@ $(top_srcdir)/tests/fault/fail.c -ldl -lpthread
# A rank that stops, dies or is slow at a place of a step; used by tests/stage/zero_watch.sh, pipeline_watch.sh.
check_DATA += tests/fault/ranks.so
CLEANFILES += tests/fault/ranks.so
tests/fault/ranks.so: tests/fault/ranks.c
	$(AM_V_CC)$(MKDIR_P) tests/fault && $(CC) -std=gnu11 -O1 -g -fno-builtin -Wall -Wextra -shared -fPIC -o $@ $(top_srcdir)/tests/fault/ranks.c -ldl
EXTRA_DIST += tests/fault/ranks.c
# A PMIx server that hangs; used by tests/flow/launch_end.sh.
check_DATA += tests/fault/pmix.so
CLEANFILES += tests/fault/pmix.so
tests/fault/pmix.so: tests/fault/pmix.c
	$(AM_V_CC)$(MKDIR_P) tests/fault && $(CC) -std=gnu11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -shared -fPIC -o $@ $(top_srcdir)/tests/fault/pmix.c -ldl
EXTRA_DIST += tests/fault/pmix.c
TESTS += tests/flow/launch_end.sh
EXTRA_DIST += tests/flow/launch_end.sh
# What a command does, counted; used by tests/flow/large.sh.
check_DATA += tests/fault/count.so
CLEANFILES += tests/fault/count.so
tests/fault/count.so: tests/fault/count.c
	$(AM_V_CC)$(MKDIR_P) tests/fault && $(CC) -std=gnu11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -fno-builtin -shared -fPIC \
	  -o $@ $(top_srcdir)/tests/fault/count.c -ldl
EXTRA_DIST += tests/fault/count.c
TESTS += tests/flow/faults.sh
EXTRA_DIST += tests/fault/fail.c tests/flow/faults.sh
TESTS += tests/stage/faults.sh
EXTRA_DIST += tests/stage/faults.sh
TESTS += tests/stage/faults_input.sh
EXTRA_DIST += tests/stage/faults_input.sh
