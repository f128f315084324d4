noinst_LIBRARIES += db/libdb.a
db_libdb_a_SOURCES = db/event.h db/ledger.h
