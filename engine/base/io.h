/* SPDX-License-Identifier: Apache-2.0
 *
 * Files: whole reads with a cap, full writes, durable publication. Every function names the path in
 * its error. Publication never renames over an existing name. A temporary file is written, fsynced
 * and link(2)ed to its final name; then the directory is fsynced. LF_EEXIST: the final name exists,
 * and that file is left alone.
 */
#ifndef LF_BASE_IO_H
#define LF_BASE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "engine/base/err.h"
#include "engine/base/str.h"

/* Reads a whole regular file of at most max_bytes and appends it to out. */
int lf_io_read_file(const char *path, size_t max_bytes, lf_buf *out, lf_err *err);
/* The next three functions transfer all n bytes or fail. They handle EINTR and short counts. path
 * is for messages. */
int lf_io_write_all(int fd, const void *data, size_t n, const char *path, lf_err *err);
int lf_io_pwrite_all(int fd, const void *data, size_t n, off_t offset, const char *path,
                     lf_err *err);
/* LF_EFORMAT: the file ends too early */
int lf_io_pread_all(int fd, void *data, size_t n, off_t offset, const char *path, lf_err *err);
int lf_io_fsync(int fd, const char *path, lf_err *err);
int lf_io_fsync_path(const char *path, lf_err *err);   /* a file by name */
int lf_io_fsync_parent(const char *path, lf_err *err); /* the directory holding path */
/* like mkdir -p; the parent of each new directory is fsynced */
int lf_io_mkdirs(const char *path, mode_t mode, lf_err *err);
bool lf_io_exists(const char *path);
int64_t lf_io_size(const char *path, lf_err *err); /* bytes, or negative */

/* Writes data to path as a new file. An old file of that name is unlinked, never written over. The
 * file is not durable: this is for files of an artifact, whose publication syncs them. */
int lf_io_write_file(const char *path, const void *data, size_t n, mode_t mode, lf_err *err);
/* Writes data to path durably as a new file: a temporary file in the same directory, fsync,
 * link(2), unlink of the temporary name, fsync of the directory. LF_EEXIST: path exists. */
int lf_io_publish(const char *path, const void *data, size_t n, mode_t mode, lf_err *err);
/* Removes the temporary names that killed publications of path left behind. Only the one process
 * that writes there may call this. A missing directory is no error. */
int lf_io_tidy(const char *path, lf_err *err);
/* Does the second half of lf_io_publish for a file that is written already: fsyncs tmp_path,
 * link(2)s it to path, fsyncs the directory and unlinks tmp_path. */
int lf_io_publish_tmp(const char *tmp_path, const char *path, lf_err *err);
/* Replaces a file that one owner rewrites, such as a cache or a view for readers: a temporary file,
 * fsync, rename(2), fsync of the directory. Never use it for records of success. */
int lf_io_replace(const char *path, const void *data, size_t n, mode_t mode, lf_err *err);
/* Removes a tree below an existing directory. It follows no symbolic link. A missing path is no
 * error. */
int lf_io_remove_tree(const char *path, lf_err *err);
/* Copies `from` in blocks to the new file `to` and makes it durable. LF_EEXIST: `to` exists and
 * stays as it is. */
int lf_io_copy(const char *from, const char *to, mode_t mode, lf_err *err);
/* Makes `to` another name of the file `from`, which must not change any more. `to` becomes a copy
 * where hard links are refused (another file system, another owner's file, too many links).
 * LF_EEXIST: `to` exists and stays as it is. */
int lf_io_link_or_copy(const char *from, const char *to, mode_t mode, lf_err *err);

/* Returns "dir/name"; the caller frees it. */
char *lf_path_join(const char *dir, const char *name, lf_err *err);

#endif
