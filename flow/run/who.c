/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking at recorded processes, and signalling them.
 */
#include "config.h"

#include "flow/run/who.h"

#include <errno.h>
#include <signal.h>

static bool complete(const lf_proc_id *who)
{
    return who != NULL && who->host[0] != '\0' && who->pid > 1 && who->start != 0;
}

enum lf_proc_state lf_who_look(const lf_proc_id *who)
{
    return complete(who) ? lf_proc_look(who) : LF_PROC_ELSEWHERE;
}

int lf_who_kill(const lf_proc_id *who, int sig, int group, lf_err *err)
{
    if (!complete(who))
        return lf_fail(err, LF_EFORMAT, "not a process record");
    switch (lf_proc_look(who)) {
    case LF_PROC_GONE:
        return lf_fail(err, LF_ENOENT, "process %lld is gone", (long long)who->pid);
    case LF_PROC_ELSEWHERE:
        return lf_fail(err, LF_ENOTSUP, "process %lld runs on %s and cannot be reached from here",
                       (long long)who->pid, who->host);
    case LF_PROC_ALIVE:
        break;
    }
    if (kill((pid_t)(group != 0 ? -who->pid : who->pid), sig) < 0 && errno != ESRCH)
        return lf_fail_errno(err, "cannot signal process %lld", (long long)who->pid);
    return 0;
}
