/* SPDX-License-Identifier: Apache-2.0
 *
 * What a disk may hold after a crash at any point of a trace. POSIX, taken strictly: data of a file
 * is safe after fsync of that file, a name after fsync of its directory; everything else may be
 * there or not. Six states are built for each point: unsynced data kept or dropped, times unsynced
 * names all kept, all dropped, or dropped but for the last.
 */
#ifndef LF_TESTS_CRASH_FS_H
#define LF_TESTS_CRASH_FS_H

#include <stddef.h>
#include <stdint.h>

typedef struct crash_fs crash_fs;

crash_fs *crash_fs_load(const char *trace_path); /* bails out on failure */
void crash_fs_free(crash_fs *fs);
size_t crash_fs_ops(const crash_fs *fs);
size_t crash_fs_fsyncs(const crash_fs *fs);
/* The line of the code that made fsync number n; equal numbers for equal lines. */
uint64_t crash_fs_site(const crash_fs *fs, size_t n);

/* Leaves fsync number n out, as if its line were deleted from the code, which hears of no other end
 * of an fsync than that it is done. Before the first step. */
void crash_fs_drop(crash_fs *fs, size_t n);

/* Apply op number i (all before must have been applied). Returns the text of a mark, or NULL. */
const char *crash_fs_step(crash_fs *fs, size_t i);

enum { CRASH_KEEP_DATA = 1, CRASH_KEEP_NAMES = 2, CRASH_KEEP_LAST_NAME = 4, CRASH_STATES = 6 };
/* What was made of `other` counts as made before. */
void crash_fs_know(crash_fs *fs, const crash_fs *other);
/* Make the tree that `state` (bits above) leaves now, in the new directory dir. 0 when an equal
 * tree was made before (dir is then not made), 1 otherwise. */
int crash_fs_build(crash_fs *fs, int state, const char *dir);

#endif
