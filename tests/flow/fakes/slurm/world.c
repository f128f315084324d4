/* SPDX-License-Identifier: Apache-2.0
 *
 * fakeslurm: what happens to a cluster and its jobs, for tests.
 *
 *   fakeslurm nodefail ID      the job's node is lost; its processes live on, the job is requeued
 *                              (or NODE_FAIL)
 *   fakeslurm noderestore      lost nodes come back: the processes left there are killed at once
 *   fakeslurm preempt ID [S [CANCEL]]   its steps get TERM and its end becomes now + S seconds;
 *                                       then the kill, and it is
 *                              requeued if it allows that. The batch script hears nothing until the
 *                              grace is over.
 *   fakeslurm kill ID          everything that runs in it gets KILL: it ends without a word
 *   fakeslurm oom ID           the kernel kills the job
 *   fakeslurm forget ID        the controller knows the job no more (purged, or state lost)
 *   fakeslurm clear            end and forget all jobs; accounting too
 *   fakeslurm nextid N         the id of the next job, as after the counter went round
 *   fakeslurm state ID         its state word, "" when unknown
 *   fakeslurm jobs             id, state, restarts, name, comment of every job known
 *   fakeslurm wait SECONDS     until no job is left that may still run; exit 1 when there is one
 *   fakeslurm stop             kill everything
 */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/flow/fakes/slurm/fk.h"

static void kill_lost(void)
{
    size_t i;
    json_t *v, *lost = json_object_get(fk_root(), "lost");
    json_array_foreach(lost, i, v)
    {
        pid_t stepd = (pid_t)json_integer_value(v);
        fk_tree_signal(stepd, SIGKILL, 'a');
    }
    json_object_del(fk_root(), "lost");
}

static void lose(json_t *j)
{
    if (json_object_get(fk_root(), "lost") == NULL)
        json_object_set_new(fk_root(), "lost", json_array());
    json_array_append_new(json_object_get(fk_root(), "lost"), json_integer(fk_i(j, "stepd")));
}

static int stop_all(void)
{
    size_t i;
    json_t *j;
    pid_t ctld = (pid_t)fk_i(fk_root(), "ctld");
    json_array_foreach(fk_jobs(), i, j) if (!fk_is_final(j))
    {
        fk_tree_signal((pid_t)fk_i(j, "stepd"), SIGKILL, 'a');
        fk_set_s(j, "state", "CANCELLED");
    }
    kill_lost();
    json_object_del(fk_root(), "ctld");
    if (ctld > 1)
        kill(ctld, SIGKILL);
    return 0;
}

static int clear_all(void)
{
    size_t i;
    json_t *j;
    json_array_foreach(fk_jobs(), i, j) if (!fk_is_final(j))
        fk_tree_signal((pid_t)fk_i(j, "stepd"), SIGKILL, 'a');
    json_array_clear(fk_jobs());
    json_array_clear(fk_acct());
    kill_lost();
    return 0;
}

/* seconds: on a quiet machine; a busy one gets minutes, which only a test that fails takes. */
static int wait_idle(double seconds)
{
    for (double end = fk_now() + 120 + 10 * seconds;;) {
        size_t i;
        json_t *j;
        bool busy = false;
        fk_enter();
        json_array_foreach(fk_jobs(), i, j) busy = busy || !fk_is_final(j);
        fk_leave();
        if (!busy || fk_now() >= end)
            return busy;
        usleep(50000);
    }
}

static int list_jobs(void)
{
    size_t i;
    json_t *j;
    json_array_foreach(fk_jobs(), i, j)
        printf("%lld %s %lld %s %s\n", fk_i(j, "id"), fk_state_word(j), fk_i(j, "restarts"),
               fk_s(j, "name"), fk_s(j, "comment"));
    return 0;
}

static int on_job(const char *what, json_t *j, const char *arg, const char *mode)
{
    bool running = strcmp(fk_s(j, "state"), "RUNNING") == 0 && fk_s(j, "ending")[0] == '\0';
    if (strcmp(what, "forget") == 0) {
        for (size_t i = json_array_size(fk_jobs()); i-- > 0;)
            if (json_array_get(fk_jobs(), i) == j)
                json_array_remove(fk_jobs(), i);
        return 0;
    }
    if (!running)
        fk_die(1, "the job does not run");
    if (strcmp(what, "nodefail") == 0) {
        lose(j);
        if (fk_b(j, "requeue"))
            fk_requeue(j, "NODE_FAIL");
        else
            fk_finish(j, "NODE_FAIL", "NodeDown", 0);
    } else if (strcmp(what, "preempt") == 0) {
        fk_tree_signal((pid_t)fk_i(j, "stepd"), SIGCONT, 's');
        fk_tree_signal((pid_t)fk_i(j, "stepd"), SIGTERM, 's');
        fk_set_f(j, "preempt_t", fk_now() + (arg != NULL ? strtod(arg, NULL) : 0));
        fk_set_s(j, "preempt_mode", mode);
    } else if (strcmp(what, "kill") == 0) {
        fk_tree_signal((pid_t)fk_i(j, "stepd"), SIGKILL, 'a');
    } else if (strcmp(what, "oom") == 0) {
        fk_set_s(j, "ending", "OUT_OF_MEMORY");
        fk_append("slurmd.log", "oom %lld\n", fk_i(j, "id"));
        fk_tree_signal((pid_t)fk_i(j, "stepd"), SIGKILL, 'a');
    } else
        fk_die(98, "unknown: %s", what);
    return 0;
}

int fk_world(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "", *arg = argc > 2 ? argv[2] : NULL;
    long long id = 0;
    int code = 0;
    if (strcmp(what, "wait") == 0 && arg != NULL)
        return wait_idle(strtod(arg, NULL));
    fk_enter();
    if (strcmp(what, "stop") == 0)
        code = stop_all();
    else if (strcmp(what, "clear") == 0)
        code = clear_all();
    else if (strcmp(what, "noderestore") == 0)
        kill_lost();
    else if (strcmp(what, "jobs") == 0)
        code = list_jobs();
    else if (arg == NULL || !fk_int_in(&id, arg, 1, 2147483647))
        fk_die(98, "usage: fakeslurm nodefail|preempt|kill|oom|forget|nextid|state|jobs|wait|stop");
    else if (strcmp(what, "nextid") == 0)
        fk_set_i(fk_root(), "next_id", id);
    else if (strcmp(what, "state") == 0)
        puts(fk_job(id) != NULL ? fk_state_word(fk_job(id)) : "");
    else if (fk_job(id) == NULL)
        fk_die(1, "no such job");
    else
        code = on_job(what, fk_job(id), argc > 3 ? argv[3] : NULL, argc > 4 ? argv[4] : "REQUEUE");
    fk_leave();
    return code;
}
