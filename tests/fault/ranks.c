/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank of a training stage that comes to grief at a place of a step: loaded by LD_PRELOAD, and
 * named in NVTX_INJECTION64_PATH, too, by which it hears which pass begins.
 *
 *     LF_HURT_RANK   the rank
 *     LF_HURT_AT     "train forward", "train backward", "optimizer"; "snapshot" of a checkpoint;
 *                    empty: from the start on
 *     LF_HURT_NTH    in which of these, from 1
 *     LF_HURT_SEND   with 0: when it begins; with n: where it sends the n-th message of that kind,
 *                    or copies the n-th tensor of a KiB or more
 *     LF_HURT_KIND   of a collective (engine/comm/coll.c): 1 parts of a sum, 3 parts of a gather, 7
 *                    all-to-all, by which receipts of parts of a checkpoint go to rank 0
 *     LF_HURT_DO     stop, kill, die (killed when the others have come to wait), or how many
 *                    milliseconds this pass and those behind it take longer
 *     LF_HURT_MARK   a file that is made just before
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long passes, sends;
static int armed, copying;
static void *(*real_copy)(void *, const void *, size_t);

static const char *option(const char *name)
{
    const char *text = getenv(name);
    return text ? text : "";
}

static int is_me(void)
{
    return *option("LF_HURT_RANK") && strcmp(option("LF_HURT_RANK"), option("PMIX_RANK")) == 0;
}

static void mark(void)
{
    const int fd = open(option("LF_HURT_MARK"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
}

static void hurt(void)
{
    const char *what = option("LF_HURT_DO");
    if (strcmp(what, "stop") == 0 || strcmp(what, "die") == 0) {
        sleep(2); /* for a heartbeat or two, which say where */
        mark();
        kill(getpid(), *what == 's' ? SIGSTOP : SIGKILL);
    } else if (strcmp(what, "kill") == 0) {
        mark();
        kill(getpid(), SIGKILL);
    } else {
        mark();
        usleep((useconds_t)strtol(what, NULL, 10) * 1000);
    }
}

/* ---- which pass begins ---- */

static int push(const char *name)
{
    if (strcmp(name, option("LF_HURT_AT")) != 0 || !is_me())
        return 0;
    const long nth = strtol(option("LF_HURT_NTH"), NULL, 10);
    armed = ++passes >= nth;
    sends = 0;
    if (armed && strtol(option("LF_HURT_SEND"), NULL, 10) == 0)
        hurt();
    return 0;
}

static int pop(void)
{
    return 0;
}

typedef void (*function)(void);
struct callbacks {
    size_t struct_size;
    int (*table)(int module, function ***out, unsigned *n);
};

int InitializeInjectionNvtx2(const void *(*table)(uint32_t id));
int InitializeInjectionNvtx2(const void *(*table)(uint32_t id))
{
    const struct callbacks *c = table(1);
    function **t = NULL;
    unsigned n = 0;
    if (!c || !c->table(1, &t, &n) || n < 12)
        return 0;
    *t[9] = (function)push;
    *t[11] = (function)pop;
    return 1;
}

/* ---- messages ---- */

void *ucp_tag_send_nbx(void *ep, const void *data, size_t n, uint64_t tag, const void *param);
void *ucp_tag_send_nbx(void *ep, const void *data, size_t n, uint64_t tag, const void *param)
{
    static void *(*next)(void *, const void *, size_t, uint64_t, const void *);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "ucp_tag_send_nbx");
    const long at = strtol(option("LF_HURT_SEND"), NULL, 10);
    if ((armed || !*option("LF_HURT_AT")) && at > 0 && is_me() &&
        (long)(tag >> 44 & 15) == strtol(option("LF_HURT_KIND"), NULL, 10) && ++sends == at)
        hurt();
    return next(ep, data, n, tag, param);
}

/* ---- snapshots: copies behind the look at the directory that a rank saves to ---- */

__attribute__((constructor)) static void begin(void)
{
    *(void **)&real_copy = dlsym(RTLD_NEXT, "memcpy");
}

DIR *opendir(const char *path)
{
    static DIR *(*next)(const char *);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "opendir");
    const size_t n = strlen(path);
    if (strcmp(option("LF_HURT_AT"), "snapshot") == 0 && is_me() &&
        (strstr(path, "/checkpoints/step-") ||
         (n > 11 && strcmp(path + n - 11, "/checkpoint") == 0))) {
        copying = ++passes == strtol(option("LF_HURT_NTH"), NULL, 10);
        sends = 0;
    }
    return next(path);
}

void *memcpy(void *to, const void *from, size_t n)
{
    if (copying && n >= 1024 && ++sends == strtol(option("LF_HURT_SEND"), NULL, 10))
        hurt();
    if (real_copy)
        return real_copy(to, from, n);
    volatile char *d = to;
    const char *s = from;
    while (n--)
        *d++ = *s++;
    return to;
}
