/* SPDX-License-Identifier: Apache-2.0
 *
 * Files: whole reads with a cap, full writes, durable publication. Every function names the path in
 * its error. Publication never renames over a name: a temporary file is written, fsynced and
 * link(2)ed to its final name, then the directory is fsynced; an existing final name is LF_EEXIST
 * and is left alone.
 */
#ifndef LF_BASE_IO_H
#define LF_BASE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "engine/base/err.h"
#include "engine/base/str.h"

/* Read a whole regular file of at most max_bytes into out (appended). */
int lf_io_read_file(const char *path, size_t max_bytes, lf_buf *out, lf_err *err);
/* All n bytes or an error; EINTR and short counts are handled. path is for messages. */
int lf_io_write_all(int fd, const void *data, size_t n, const char *path, lf_err *err);
int lf_io_pwrite_all(int fd, const void *data, size_t n, off_t offset, const char *path,
                     lf_err *err);
/* short = LF_EFORMAT */
int lf_io_pread_all(int fd, void *data, size_t n, off_t offset, const char *path, lf_err *err);
int lf_io_fsync(int fd, const char *path, lf_err *err);
int lf_io_fsync_path(const char *path, lf_err *err);   /* a file by name */
int lf_io_fsync_parent(const char *path, lf_err *err); /* the directory holding path */
/* like mkdir -p; each new directory's parent is fsynced */
int lf_io_mkdirs(const char *path, mode_t mode, lf_err *err);
bool lf_io_exists(const char *path);
int64_t lf_io_size(const char *path, lf_err *err); /* bytes, or negative */

/* Write data to path as a new file that takes the place of an old one (which is unlinked, never
 * written over). Not durable: for files of an artifact, whose publication syncs them. */
int lf_io_write_file(const char *path, const void *data, size_t n, mode_t mode, lf_err *err);
/* Write data to path durably as a new file: temporary in the same directory, fsync, link(2), unlink
 * the temporary, fsync the directory. LF_EEXIST when path exists. */
int lf_io_publish(const char *path, const void *data, size_t n, mode_t mode, lf_err *err);
/* Remove the temporary names that publications of path left behind when they were killed. For
 * whoever alone writes there. A missing directory is fine. */
int lf_io_tidy(const char *path, lf_err *err);
/* The last half of the same for a file already written: fsync tmp_path, link(2) it to path, fsync
 * the directory, unlink tmp_path. */
int lf_io_publish_tmp(const char *tmp_path, const char *path, lf_err *err);
/* For files that are rewritten in place by one owner (caches, views for readers), never for commit
 * markers: temporary, fsync, rename(2), fsync the directory. */
int lf_io_replace(const char *path, const void *data, size_t n, mode_t mode, lf_err *err);
/* Remove a tree below an existing directory; follows no symbolic link; a missing path is fine. */
int lf_io_remove_tree(const char *path, lf_err *err);
/* `to` becomes a copy of `from` in a new file, in blocks, durable. LF_EEXIST: `to` is there and
 * stays as it is. */
int lf_io_copy(const char *from, const char *to, mode_t mode, lf_err *err);
/* `to` becomes another name of the file `from`, which must not change any more; a copy where hard
 * links are refused (another file system, another owner's file, too many links). LF_EEXIST as
 * above. */
int lf_io_link_or_copy(const char *from, const char *to, mode_t mode, lf_err *err);

/* "dir/name" as an owned string. */
char *lf_path_join(const char *dir, const char *name, lf_err *err);

#endif
