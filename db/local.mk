noinst_LIBRARIES += db/libdb.a
db_libdb_a_SOURCES = db/event.c db/event.h db/ledger.h db/ledger_priv.h db/sql.c db/open.c db/apply.c db/metric.c \
  db/ingest.c db/query.c db/series.c db/lineage.c db/maintain.c
nodist_db_libdb_a_SOURCES = db/schema_sql.c
EXTRA_DIST += db/schema.sql db/embed.awk
CLEANFILES += db/schema_sql.c

# schema.sql becomes an array of C strings, one per version.
db/schema_sql.c: $(srcdir)/db/schema.sql $(srcdir)/db/embed.awk
	$(AM_V_GEN)$(MKDIR_P) db && $(AWK) -f $(srcdir)/db/embed.awk $(srcdir)/db/schema.sql > $@.tmp && mv $@.tmp $@
