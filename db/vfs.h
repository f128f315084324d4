/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside libdb only: two thin layers between SQLite and the system's files.
 *
 * The writer's layer notes which blocks of the ledger were written since it was opened. So
 * publishing a change of a large ledger copies the change and not the ledger. The reader's layer
 * puts a small file of changed blocks over an older whole copy. It takes no locks at all. A block
 * is LF_BLOCK bytes, whatever the page size.
 */
#ifndef LF_DB_VFS_H
#define LF_DB_VFS_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

enum { LF_BLOCK = 4096 };

struct lf_written {
    unsigned char *bits; /* one per block */
    size_t cap;          /* bytes of bits */
    bool lost;           /* there was no memory for a note, so everything counts as written */
    sqlite3_file *file;  /* the file below the layer; NULL when closed */
};

/* sqlite3_open_v2 of a ledger for writing. w must outlive the connection. Returns an SQLite result
 * code. */
int lf_vfs_open_tracked(sqlite3 **db, const char *path, int flags, bool nolock,
                        struct lf_written *w);
bool lf_written_any(const struct lf_written *w);
bool lf_written_has(const struct lf_written *w, uint32_t block);
void lf_written_clear(struct lf_written *w); /* from now on nothing counts as written */
void lf_written_fini(struct lf_written *w);
/* Read the ledger through SQLite's own descriptor, since closing another one would drop SQLite's
 * locks. Bytes beyond the end read as zeros. */
int lf_written_read(struct lf_written *w, void *buf, int n, int64_t offset, lf_err *err);
int lf_written_size(struct lf_written *w, int64_t *size, lf_err *err);

/* A published snapshot: changed blocks over a base file. Once opened, the connection's file owns
 * it. */
struct lf_overlay {
    int base_fd;
    int64_t size; /* of the ledger as published */
    uint32_t n;   /* changed blocks, ascending */
    const uint32_t *blocks;
    const unsigned char *data; /* n * LF_BLOCK */
    void *memory;              /* the memory that blocks and data lie in */
};
/* Open a read-only connection to a snapshot. Takes o, also on failure. */
int lf_vfs_open_overlay(sqlite3 **db, const char *name, struct lf_overlay *o);
void lf_overlay_free(struct lf_overlay *o);

#endif
