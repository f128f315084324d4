/* SPDX-License-Identifier: Apache-2.0
 *
 * LD_PRELOAD library: a libpmix whose server hangs.
 *
 *   LF_PMIX_HANGS   end    PMIx_server_finalize never returns
 *                   stop   it stops the whole process, other threads too
 *                   start  PMIx_server_register_client never returns
 *   LF_PMIX_LOG     a file that gets a line with the process's number when it hangs
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int hangs(const char *how)
{
    const char *want = getenv("LF_PMIX_HANGS");
    return want != NULL && strcmp(want, how) == 0;
}

static void hang(void)
{
    const char *path = getenv("LF_PMIX_LOG");
    const int fd = path != NULL ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) {
        dprintf(fd, "%lld\n", (long long)getpid());
        close(fd);
    }
    if (hangs("stop"))
        raise(SIGSTOP);
    for (;;)
        pause();
}

int PMIx_server_finalize(void);
int PMIx_server_finalize(void)
{
    if (hangs("end") || hangs("stop"))
        hang();
    int (*real)(void) = NULL;
    *(void **)&real = dlsym(RTLD_NEXT, "PMIx_server_finalize");
    return real();
}

int PMIx_server_register_client(const void *proc, uid_t uid, gid_t gid, void *object, void *done,
                                void *arg);
int PMIx_server_register_client(const void *proc, uid_t uid, gid_t gid, void *object, void *done,
                                void *arg)
{
    if (hangs("start"))
        hang();
    int (*real)(const void *, uid_t, gid_t, void *, void *, void *) = NULL;
    *(void **)&real = dlsym(RTLD_NEXT, "PMIx_server_register_client");
    return real(proc, uid, gid, object, done, arg);
}
