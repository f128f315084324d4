/* SPDX-License-Identifier: Apache-2.0
 *
 * Random names and process identities.
 */
#include "engine/base/id.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int lf_random_bytes(void *out, size_t n, lf_err *err)
{
    unsigned char *p = out;
    while (n) {
        ssize_t got = getrandom(p, n, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return lf_fail_errno(err, "no random bytes from the system");
        p += got;
        n -= (size_t)got;
    }
    return 0;
}

static const char crockford[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

int lf_ulid(char out[LF_ULID_SIZE], lf_err *err)
{
    /* The last one made, so that the next of the same millisecond (or of a clock set back) counts
     * on from it. */
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t last_ms;
    static unsigned char last[10];
    unsigned char r[10];
    struct timespec ts;
    int rc = lf_random_bytes(r, sizeof r, err);
    if (rc < 0)
        return rc;
    clock_gettime(CLOCK_REALTIME, &ts);
    uint64_t ms = (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
    pthread_mutex_lock(&mutex);
    if (ms <= last_ms) {
        ms = last_ms;
        int i = 9;
        while (i >= 0 && ++last[i] == 0)
            i--;
        if (i < 0)
            ms++; /* all 80 bits wrapped: the next millisecond, from zero */
    } else {
        memcpy(last, r, sizeof last);
    }
    last_ms = ms;
    memcpy(r, last, sizeof r);
    pthread_mutex_unlock(&mutex);
    for (int i = 9; i >= 0; i--, ms >>= 5)
        out[i] = crockford[ms & 31];
    for (int i = 0; i < 16; i++) { /* 80 bits, five at a time from the top */
        int bit = 5 * i;
        unsigned v = (unsigned)r[bit / 8] << 8 | (bit / 8 + 1 < 10 ? r[bit / 8 + 1] : 0u);
        out[10 + i] = crockford[v >> (11 - bit % 8) & 31];
    }
    out[26] = '\0';
    return 0;
}

double lf_ulid_time(const char *ulid)
{
    double ms = 0;
    for (int i = 0; i < 10 && ulid[i]; i++) {
        const char *at = strchr(crockford, ulid[i]);
        ms = ms * 32 + (at ? (double)(at - crockford) : 0);
    }
    return ms / 1000;
}

bool lf_ulid_valid(const char *s)
{
    return strlen(s) == LF_ULID_SIZE - 1 && strspn(s, crockford) == LF_ULID_SIZE - 1 && s[0] <= '7';
}

int lf_token(char out[LF_TOKEN_SIZE], lf_err *err)
{
    unsigned char r[16];
    int rc = lf_random_bytes(r, sizeof r, err);
    for (size_t i = 0; rc == 0 && i < sizeof r; i++)
        snprintf(out + 2 * i, 3, "%02x", r[i]);
    return rc;
}

static void read_boot_id(char out[40])
{
    out[0] = '\0';
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!f)
        return;
    if (!fgets(out, 40, f))
        out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    fclose(f);
}

/* State letter and start time of a pid; false when it does not exist. */
static bool read_stat(int64_t pid, char *state, uint64_t *start)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    /* The command name may hold blanks and parentheses: fields are counted from the last ')'. */
    char *p = strrchr(text, ')');
    if (!p || p[1] != ' ')
        return false;
    p += 2;
    *state = *p;
    for (int field = 3; field < 22 && p; field++) {
        p = strchr(p, ' ');
        p = p ? p + 1 : NULL;
    }
    if (!p)
        return false;
    *start = strtoull(p, NULL, 10);
    return true;
}

static void read_place(lf_proc_id *out)
{
    struct stat st;
    memset(out, 0, sizeof *out);
    if (gethostname(out->host, sizeof out->host - 1) < 0)
        out->host[0] = '\0';
    read_boot_id(out->boot_id);
    out->pid_ns = stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

int lf_proc_of(lf_proc_id *out, int64_t pid, lf_err *err)
{
    lf_proc_id id;
    char state;
    read_place(&id);
    id.pid = pid;
    if (!read_stat(pid, &state, &id.start))
        return lf_fail(err, LF_ENOENT, "no process %lld on this host", (long long)pid);
    *out = id;
    return 0;
}

int lf_proc_self(lf_proc_id *out, lf_err *err)
{
    return lf_proc_of(out, getpid(), err);
}

enum lf_proc_state lf_proc_look(const lf_proc_id *p)
{
    lf_proc_id here;
    char state;
    uint64_t start;
    read_place(&here);
    if (strcmp(here.host, p->host) != 0 || !here.boot_id[0] || !p->boot_id[0])
        return LF_PROC_ELSEWHERE;
    if (strcmp(here.boot_id, p->boot_id) != 0)
        return LF_PROC_GONE;
    if (here.pid_ns != p->pid_ns || !here.pid_ns)
        return LF_PROC_ELSEWHERE;
    if (!read_stat(p->pid, &state, &start))
        return access("/proc/self/stat", F_OK) == 0 ? LF_PROC_GONE : LF_PROC_ELSEWHERE;
    return start == p->start && state != 'Z' && state != 'X' ? LF_PROC_ALIVE : LF_PROC_GONE;
}
