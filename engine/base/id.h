/* SPDX-License-Identifier: Apache-2.0
 *
 * Names that need no coordination, and the identity of a process.
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
/* ULID: 48 bits of milliseconds, 80 random bits, Crockford base 32, sorts by time. Two made in the
 * same millisecond by one process still sort in the order they were made. Thread-safe. */
int lf_ulid(char out[LF_ULID_SIZE], lf_err *err);
bool lf_ulid_valid(const char *s);
double lf_ulid_time(const char *ulid); /* when a valid one was made, seconds since the epoch */
int lf_token(char out[LF_TOKEN_SIZE], lf_err *err);

/* A process as other nodes can name it. A pid alone is reused; pid with boot id, pid namespace and
 * start time is not. */
typedef struct lf_proc_id {
    int64_t pid;
    uint64_t start;  /* clock ticks since boot, /proc/PID/stat field 22 */
    uint64_t pid_ns; /* inode of the pid namespace */
    char host[65];
    char boot_id[40];
} lf_proc_id;

int lf_proc_self(lf_proc_id *out, lf_err *err);
/* Another process of this host and namespace (a child), while it exists; LF_ENOENT when it does
 * not. */
int lf_proc_of(lf_proc_id *out, int64_t pid, lf_err *err);

enum lf_proc_state {
    LF_PROC_ALIVE,
    LF_PROC_GONE,
    LF_PROC_ELSEWHERE /* another host, boot unknown here, or namespace */
};
/* GONE only when that is certain: the same host was booted again, or in the same boot and namespace
 * the pid is free or belongs to a later process. A zombie counts as gone. */
enum lf_proc_state lf_proc_look(const lf_proc_id *p);

#endif
