/* SPDX-License-Identifier: Apache-2.0
 *
 * Ending what a superseded start left running. Its launcher may be gone, or not reach its ranks any
 * more (slurmd was killed), so the ranks are looked for by the records that they left:
 * ranks/HOST.PID.json, the process with its time of birth.
 */
#include "config.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/job/exec.h"
#include "flow/record/record.h"
#include "flow/run/who.h"

void lf_exec_ask_by_file(const char *dir)
{
    char path[PATH_MAX];
    if (lf_path_set(path, NULL, "%s/stop", dir) == 0 && !lf_io_exists(path))
        lf_io_write_file(path, "superseded\n", 11, 0640,
                         NULL); /* the fence says the same to whom this does not reach */
}

static void kill_recorded(const lf_proc_id *who)
{
    if (lf_who_kill(who, SIGKILL, 0, NULL) == 0)
        lf_log(1, "killed process %lld of a start that was superseded", (long long)who->pid);
}

/* Ranks of the start in dir that run on this host: the file's name begins with the host's. */
static void kill_ranks(const char *dir, const char *host)
{
    char ranks[PATH_MAX];
    DIR *d = lf_path_set(ranks, NULL, "%s/ranks", dir) == 0 ? opendir(ranks) : NULL;
    const size_t n = strlen(host);
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        lf_proc_id *who = NULL;
        if (strncmp(e->d_name, host, n) == 0 && e->d_name[n] == '.' &&
            lf_str_has_suffix(e->d_name, ".json") &&
            lf_proc_load(&who, ranks, e->d_name, NULL) == 0)
            kill_recorded(who);
        free(who);
    }
    if (d != NULL)
        closedir(d);
}

static void evict(const char *dir, const char *host)
{
    struct lf_started *started = NULL;
    lf_exec_ask_by_file(dir);
    if (lf_started_load(&started, dir, NULL) == 0 && started != NULL)
        kill_recorded(&started->process);
    lf_started_free(started);
    kill_ranks(dir, host);
}

void lf_exec_evict_own(const lf_exec *x)
{
    lf_proc_id me;
    if (lf_proc_self(&me, NULL) == 0)
        kill_ranks(x->dir, me.host);
}

void lf_exec_evict(const lf_exec *x)
{
    lf_proc_id me;
    lf_stage_view s;
    if (lf_proc_self(&me, NULL) < 0 || lf_stage_scan(&s, x->run.dir, x->plan, NULL) < 0)
        return;
    for (size_t i = 0; i < s.n_incs; i++)
        if (s.incs[i].epoch < x->epoch && s.incs[i].done == NULL)
            evict(s.incs[i].dir, me.host);
    lf_stage_scan_fini(&s);
}
