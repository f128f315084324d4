/* SPDX-License-Identifier: Apache-2.0
 *
 * The trace of everything a process did to the files below a root, made by preload.c, read by
 * replay.c.
 *
 * Records in order: struct trace_rec, then path_len + path2_len + data_len bytes. Paths are
 * relative to the root. Environment of a traced process: LF_TRACE (file to write), LF_TRACE_ROOT
 * (directory). An fsync is written down and not done.
 */
#ifndef LF_TESTS_FAULT_TRACE_H
#define LF_TESTS_FAULT_TRACE_H

#include <stdint.h>

enum trace_op {
    TRACE_CREATE = 1, /* path names a new file, inode ino */
    TRACE_WRITE,      /* data at offset of inode ino */
    TRACE_TRUNCATE,   /* length of inode ino becomes offset */
    /* inode ino; path when it is a directory; offset: which line of the code (equal for equal
     * lines) */
    TRACE_FSYNC,
    TRACE_LINK,   /* path2 names inode ino too */
    TRACE_UNLINK, /* path is gone */
    TRACE_RENAME, /* path2 names inode ino, path is gone */
    TRACE_MKDIR,  /* path is a directory */
    TRACE_RMDIR,
    TRACE_MARK /* path is a remark of the traced program: what it promised by now */
};

struct trace_rec {
    uint32_t op, path_len, path2_len, data_len;
    uint64_t ino;
    int64_t offset;
};

#endif
