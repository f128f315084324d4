/* SPDX-License-Identifier: Apache-2.0
 *
 * Process records: to JSON, back, and signals to them.
 */
#include "config.h"

#include "flow/run/who.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

json_t *lf_who_make(pid_t pid, lf_err *err)
{
    lf_proc_id p;
    memset(&p, 0, sizeof p);
    int rc = pid == 0 ? lf_proc_self(&p, err) : lf_proc_of(&p, pid, err);
    if (rc < 0)
        return NULL;
    json_t *o =
        json_pack("{s:s, s:s, s:I, s:I, s:I}", "host", p.host, "boot", p.boot_id, "pidns",
                  (json_int_t)p.pid_ns, "pid", (json_int_t)p.pid, "start", (json_int_t)p.start);
    if (o == NULL)
        lf_fail(err, LF_ENOMEM, "out of memory");
    return o;
}

static int from_json(lf_proc_id *p, const json_t *who)
{
    const char *host = json_string_value(json_object_get(who, "host"));
    const char *boot = json_string_value(json_object_get(who, "boot"));
    memset(p, 0, sizeof *p);
    p->pid = json_integer_value(json_object_get(who, "pid"));
    p->start = (uint64_t)json_integer_value(json_object_get(who, "start"));
    p->pid_ns = (uint64_t)json_integer_value(json_object_get(who, "pidns"));
    if (host == NULL || boot == NULL || p->pid <= 1 || p->start == 0)
        return -1;
    snprintf(p->host, sizeof p->host, "%s", host);
    snprintf(p->boot_id, sizeof p->boot_id, "%s", boot);
    return 0;
}

enum lf_proc_state lf_who_look(const json_t *who)
{
    lf_proc_id p;
    return from_json(&p, who) < 0 ? LF_PROC_ELSEWHERE : lf_proc_look(&p);
}

int lf_who_kill(const json_t *who, int sig, int group, lf_err *err)
{
    lf_proc_id p;
    if (from_json(&p, who) < 0)
        return lf_fail(err, LF_EFORMAT, "not a process record");
    switch (lf_proc_look(&p)) {
    case LF_PROC_GONE:
        return lf_fail(err, LF_ENOENT, "process %lld is gone", (long long)p.pid);
    case LF_PROC_ELSEWHERE:
        return lf_fail(err, LF_ENOTSUP, "process %lld runs on %s and cannot be reached from here",
                       (long long)p.pid, p.host);
    case LF_PROC_ALIVE:
        break;
    }
    if (kill((pid_t)(group != 0 ? -p.pid : p.pid), sig) < 0 && errno != ESRCH)
        return lf_fail_errno(err, "cannot signal process %lld", (long long)p.pid);
    return 0;
}
