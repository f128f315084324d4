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
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/job/exec.h"
#include "flow/record/record.h"
#include "flow/run/who.h"

#define WHO_MAX_BYTES ((size_t)1 << 16)

void lf_exec_ask_by_file(const char *dir)
{
    char path[PATH_MAX];
    if (lf_path_set(path, NULL, "%s/stop", dir) == 0 && !lf_io_exists(path))
        lf_io_write_file(path, "superseded\n", 11, 0640,
                         NULL); /* the fence says the same to whom this does not reach */
}

static void kill_recorded(const char *path, const char *member)
{
    json_t *o = lf_json_load_file(path, WHO_MAX_BYTES, NULL);
    const json_t *who = member != NULL ? json_object_get(o, member) : o;
    if (who != NULL && lf_who_kill(who, SIGKILL, 0, NULL) == 0)
        lf_log(1, "killed process %lld of a start that was superseded",
               (long long)json_integer_value(json_object_get(who, "pid")));
    json_decref(o);
}

/* Ranks of the start in dir that run on this host: the file's name begins with the host's. */
static void kill_ranks(const char *dir, const char *host)
{
    char path[PATH_MAX];
    DIR *d = lf_path_set(path, NULL, "%s/ranks", dir) == 0 ? opendir(path) : NULL;
    const size_t n = strlen(host);
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        if (strncmp(e->d_name, host, n) == 0 && e->d_name[n] == '.' &&
            lf_str_has_suffix(e->d_name, ".json") &&
            lf_path_set(path, NULL, "%s/ranks/%s", dir, e->d_name) == 0)
            kill_recorded(path, NULL);
    if (d != NULL)
        closedir(d);
}

static void evict(const char *dir, const char *host)
{
    char path[PATH_MAX];
    lf_exec_ask_by_file(dir);
    if (lf_path_set(path, NULL, "%s/stage.json", dir) == 0)
        kill_recorded(path, "process");
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
