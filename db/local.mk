noinst_LIBRARIES += db/libdb.a
db_libdb_a_SOURCES = db/event.c db/event.h db/ledger.h db/ledger_priv.h db/hint.h db/hint.c db/vfs.h db/vfs.c db/publish.c db/sql.c db/open.c db/apply.c db/metric.c \
  db/ingest.c db/query.c db/lineage.c db/maintain.c
nodist_db_libdb_a_SOURCES = db/schema_sql.c
EXTRA_DIST += db/schema.sql db/embed.awk db/README.md
CLEANFILES += db/schema_sql.c

# schema.sql becomes an array of C strings, one per version.
db/schema_sql.c: $(srcdir)/db/schema.sql $(srcdir)/db/embed.awk
	$(AM_V_GEN)$(MKDIR_P) db && $(AWK) -f $(srcdir)/db/embed.awk $(srcdir)/db/schema.sql > $@.tmp && mv $@.tmp $@

tests_unit_db_snapshot_SOURCES = tests/unit/db_snapshot.c
tests_unit_db_snapshot_LDADD = tests/tap/libtap.a db/libdb.a $(SQLITE_LIBS) $(LF_BASE_LIBS)
tests_unit_db_hint_SOURCES = tests/unit/db_hint.c
tests_unit_db_hint_LDADD = tests/tap/libtap.a db/libdb.a $(SQLITE_LIBS) $(LF_BASE_LIBS)
db_tests = tests/unit/db_open tests/unit/db_ledger tests/unit/db_snapshot tests/unit/db_hint
check_PROGRAMS += $(db_tests)
TESTS += $(db_tests)
tests_unit_db_open_SOURCES = tests/unit/db_open.c
tests_unit_db_open_LDADD = tests/tap/libtap.a db/libdb.a $(SQLITE_LIBS) $(LF_BASE_LIBS)
tests_unit_db_ledger_SOURCES = tests/unit/db_ledger.c
tests_unit_db_ledger_LDADD = tests/tap/libtap.a db/libdb.a $(SQLITE_LIBS) $(LF_BASE_LIBS)

EXTRA_DIST += tests/fuzz/corpus/event/submit tests/fuzz/corpus/event/end tests/fuzz/corpus/event/frames \
  tests/fuzz/corpus/event/torn
if FUZZ
noinst_PROGRAMS += tests/fuzz/fuzz_event
else
check_PROGRAMS += tests/fuzz/fuzz_event
TESTS += tests/fuzz/fuzz_event
endif
tests_fuzz_fuzz_event_SOURCES = tests/fuzz/fuzz_event.c $(LF_FUZZ_COMMON)
tests_fuzz_fuzz_event_LDADD = tests/tap/libtap.a db/libdb.a $(SQLITE_LIBS) $(LF_BASE_LIBS)
tests_fuzz_fuzz_event_LDFLAGS = $(LF_FUZZ_LDFLAGS_USED)
