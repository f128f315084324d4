/* SPDX-License-Identifier: Apache-2.0
 *
 * Unique names that need no coordination, and the identity of a process.
 */
#ifndef LF_BASE_ID_H
#define LF_BASE_ID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "engine/base/err.h"

#define LF_ULID_SIZE  27 /* 26 characters and NUL */
#define LF_TOKEN_SIZE 33 /* 128 random bits in hex and NUL */

/* Random bytes from the system. */
int lf_random_bytes(void *out, size_t n, lf_err *err);
/* Makes a ULID: 48 bits of milliseconds and 80 random bits in Crockford base 32. ULIDs sort by
 * time. Two that one process makes in the same millisecond sort in the order in which they were
 * made. Thread-safe. */
int lf_ulid(char out[LF_ULID_SIZE], lf_err *err);
bool lf_ulid_valid(const char *s);
double lf_ulid_time(const char *ulid); /* when a valid one was made, seconds since the epoch */
int lf_token(char out[LF_TOKEN_SIZE], lf_err *err);

/* Identifies a process to other nodes. A pid alone is reused; the pid together with boot id, pid
 * namespace and start time is not. */
typedef struct lf_proc_id {
    int64_t pid;
    uint64_t start;  /* clock ticks since boot, /proc/PID/stat field 22 */
    uint64_t pid_ns; /* inode of the pid namespace */
    char host[65];
    char boot_id[40];
} lf_proc_id;

int lf_proc_self(lf_proc_id *out, lf_err *err);
/* Identifies another process of this host and namespace, such as a child. LF_ENOENT: it does not
 * exist. */
int lf_proc_of(lf_proc_id *out, int64_t pid, lf_err *err);

enum lf_proc_state {
    LF_PROC_ALIVE,
    LF_PROC_GONE,
    /* on another host, in a boot that this host does not know, or in another namespace */
    LF_PROC_ELSEWHERE
};
/* Returns GONE only when that is certain: the same host was booted again, or, in the same boot and
 * namespace, the pid is free or belongs to a later process. A zombie counts as gone. */
enum lf_proc_state lf_proc_look(const lf_proc_id *p);

#endif
