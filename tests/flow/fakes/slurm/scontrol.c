/* SPDX-License-Identifier: Apache-2.0
 *
 * scontrol: show job|node|partition|config|hostnames, update jobid=, requeue, requeuehold, hold,
 * release, ping.
 *
 * As on a real one, requeue takes jobs that run, that are being ended and that have ended: a
 * cancelled job comes back.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "tests/flow/fakes/slurm/fk.h"

static const fk_opt table[] = {{"all", 'a', 'n', 1, NULL, NULL, "SCONTROL_ALL"},
                               {"clusters", 'M', 'r', 0, NULL, NULL, "SLURM_CLUSTERS"},
                               {"details", 'd', 'n', 1, NULL, NULL, NULL},
                               {"federation", 0, 'n', 0, NULL, NULL, "SCONTROL_FEDERATION"},
                               {"future", 'F', 'n', 1, NULL, NULL, "SCONTROL_FUTURE"},
                               {"help", 'h', 'n', 0, NULL, NULL, NULL},
                               {"hide", 0, 'n', 1, NULL, NULL, NULL},
                               {"local", 0, 'n', 1, NULL, NULL, "SCONTROL_LOCAL"},
                               {"oneliner", 'o', 'n', 1, NULL, NULL, NULL},
                               {"quiet", 'Q', 'n', 1, NULL, NULL, NULL},
                               {"sibling", 0, 'n', 0, NULL, NULL, "SCONTROL_SIB"},
                               {"uid", 'u', 'r', 0, NULL, NULL, NULL},
                               {"usage", 0, 'n', 0, NULL, NULL, NULL},
                               {"verbose", 'v', 'n', 1, NULL, NULL, NULL},
                               {"version", 'V', 'n', 1, NULL, NULL, NULL},
                               {0}};

static const char *or_null(const char *s)
{
    return s[0] != '\0' ? s : "(null)";
}

/* ---- show ---- */

static void clock_text(char *buf, size_t cap, double s)
{
    long t = s > 0 ? (long)s : 0;
    if (t >= 86400)
        snprintf(buf, cap, "%ld-%02ld:%02ld:%02ld", t / 86400, t / 3600 % 24, t / 60 % 60, t % 60);
    else
        snprintf(buf, cap, "%02ld:%02ld:%02ld", t / 3600, t / 60 % 60, t % 60);
}

static void show_time(const char *key, double t, const char *none)
{
    char when[64];
    fk_time(when, sizeof when, t);
    printf("%s=%s ", key, t > 0 ? when : none);
}

static void show_job(const json_t *j, bool oneline)
{
    const char *nl = oneline ? "" : "\n   ";
    char run[32], limit[32], nodes[512] = "", *dep = fk_dep_text(j);
    size_t i, n = 0;
    json_t *v;
    int st = (int)fk_i(j, "status");
    double start = fk_f(j, "start_t"), now = fk_now();
    json_array_foreach(json_object_get(j, "node_list"), i, v) n += (size_t)snprintf(
        nodes + n, sizeof nodes - n, "%s%s", i > 0 ? "," : "", json_string_value(v));
    clock_text(run, sizeof run,
               fk_is_pending(j) ? 0 : (fk_is_final(j) ? fk_f(j, "end_t") : now) - start);
    clock_text(limit, sizeof limit, 60 * (double)fk_i(j, "limit_min"));
    printf("JobId=%lld JobName=%s %s", fk_i(j, "id"), fk_s(j, "name"), nl);
    printf("UserId=%s(%u) GroupId=%s(%u) MCS_label=N/A %s", fk_s(j, "user"), (unsigned)getuid(),
           "users", (unsigned)getgid(), nl);
    printf("Priority=4294901000 Nice=0 Account=%s QOS=%s %s", or_null(fk_s(j, "account")),
           or_null(fk_s(j, "qos")), nl);
    printf("JobState=%s Reason=%s Dependency=%s %s", fk_state_word(j), fk_s(j, "reason"), dep, nl);
    printf("Requeue=%d Restarts=%lld BatchFlag=1 Reboot=0 ExitCode=%d:%d %s", fk_b(j, "requeue"),
           fk_i(j, "restarts"), st >> 8 & 255, st & 127, nl);
    printf("RunTime=%s TimeLimit=%s TimeMin=N/A %s", run,
           fk_i(j, "limit_min") < 0 ? "UNLIMITED" : limit, nl);
    show_time("SubmitTime", fk_f(j, "submit_t"), "Unknown");
    show_time("EligibleTime", fk_f(j, "begin_t") > 0 ? fk_f(j, "begin_t") : fk_f(j, "submit_t"),
              "Unknown");
    printf("%s", nl);
    show_time("AccrueTime", fk_f(j, "submit_t"), "Unknown");
    printf("%s", nl);
    show_time("StartTime", start, "Unknown");
    show_time("EndTime", fk_end_time(j), "Unknown");
    printf("Deadline=N/A %s", nl);
    printf("SuspendTime=None SecsPreSuspend=0 Scheduler=Main %s", nl);
    printf("Partition=%s AllocNode:Sid=login:1 %s", fk_s(j, "partition"), nl);
    printf("ReqNodeList=(null) ExcNodeList=%s %s", or_null(fk_s(j, "exclude")), nl);
    printf("NodeList=%s %s", nodes[0] != '\0' ? nodes : fk_is_pending(j) ? "" : "(null)", nl);
    if (nodes[0] != '\0')
        printf("BatchHost=%s %s",
               json_string_value(json_array_get(json_object_get(j, "node_list"), 0)), nl);
    printf("NumNodes=%lld NumCPUs=%lld NumTasks=%lld CPUs/Task=%lld ReqB:S:C:T=0:0:*:* %s",
           fk_i(j, "nodes"), fk_i(j, "cpus"), fk_i(j, "ntasks") > 0 ? fk_i(j, "ntasks") : 1,
           fk_i(j, "cpt") > 0 ? fk_i(j, "cpt") : 1, nl);
    printf("MinCPUsNode=1 MinMemoryNode=%lldM MinTmpDiskNode=0 %s", fk_i(j, "mem_mb"), nl);
    printf("Features=%s DelayBoot=00:00:00 %s", or_null(fk_s(j, "constraint")), nl);
    printf("OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null) %s", nl);
    printf("Command=%s %sWorkDir=%s %s", fk_s(j, "command"), nl, fk_s(j, "cwd"), nl);
    if (fk_s(j, "comment")[0] != '\0')
        printf("Comment=%s %s", fk_s(j, "comment"), nl);
    char *out = fk_expand(fk_s(j, "out"), j);
    printf("StdErr=%s %sStdIn=/dev/null %sStdOut=%s %sPower=\n%s", out, nl, nl, out, nl,
           oneline ? "" : "\n");
    free(out);
    free(dep);
}

static int show_jobs(const json_t *o, const char *id_text)
{
    bool oneline = fk_get(o, "oneliner") != NULL;
    size_t i;
    json_t *j;
    long long id;
    if (id_text != NULL && !fk_int_in(&id, id_text, 1, 2147483647)) {
        fprintf(stderr, "Invalid job id: %s\n", id_text);
        return 1;
    }
    j = id_text != NULL ? fk_job(id) : NULL;
    if (id_text != NULL && j == NULL) {
        fprintf(stderr, "slurm_load_jobs error: Invalid job id specified\n");
        return 1;
    }
    if (j != NULL)
        show_job(j, oneline);
    else if (json_array_size(fk_jobs()) == 0)
        puts("No jobs in the system");
    else
        json_array_foreach(fk_jobs(), i, j) show_job(j, oneline);
    return 0;
}

static int show_nodes(void)
{
    char *down = fk_knob("nodes_down"), name[32];
    for (long long i = 0; i < (long long)fk_knob_num("nodes", 8); i++) {
        snprintf(name, sizeof name, "n%lld", i);
        printf("NodeName=%s Arch=x86_64 CoresPerSocket=1 CPUAlloc=0 CPUTot=%lld RealMemory=%lld "
               "State=%s Partitions=main,long\n",
               name, (long long)fk_knob_num("cpus", 1024),
               (long long)fk_knob_num("node_memory_mb", 1e7),
               down != NULL && strstr(down, name) != NULL ? "DOWN" : "IDLE");
    }
    free(down);
    return 0;
}

static int show_partitions(void)
{
    char *list = fk_knob("partitions"), *copy = list != NULL ? list : strdup("main,long"),
         *save = NULL;
    for (char *p = strtok_r(copy, ",", &save); p != NULL; p = strtok_r(NULL, ",", &save))
        printf("PartitionName=%s AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=%s "
               "MaxNodes=UNLIMITED MaxTime=UNLIMITED "
               "State=UP TotalNodes=%lld\n",
               p, p == copy ? "YES" : "NO", (long long)fk_knob_num("nodes", 8));
    free(copy);
    return 0;
}

static int show_config(void)
{
    printf("Configuration data as of now\nClusterName             = fake\nMinJobAge               "
           "= %.0f sec\n"
           "KillWait                = %.0f sec\nMaxArraySize            = 1001\nMaxJobCount        "
           "     = 10000\n"
           "JobRequeue              = %.0f\nMpiDefault              = none\nSLURM_VERSION          "
           " = 22.05.8\n"
           "SlurmctldHost[0]        = login\nPreemptMode             = OFF\nkill_invalid_depend    "
           " = No\n",
           fk_knob_num("min_job_age", 300), fk_knob_num("kill_wait", 3),
           fk_knob_num("job_requeue", 1));
    return 0;
}

static int show(const json_t *o, int argc, char **argv)
{
    const char *what = argc > 0 ? argv[0] : "", *arg = argc > 1 ? argv[1] : NULL;
    size_t n = strcspn(what, "=");
    if (what[n] == '=')
        arg = what + n + 1;
    if (strncasecmp(what, "jobs", n) == 0 && n >= 3)
        return show_jobs(o, arg);
    if (strncasecmp(what, "nodes", n) == 0 && n >= 4)
        return show_nodes();
    if (strncasecmp(what, "partitions", n) == 0 && n >= 4)
        return show_partitions();
    if (strncasecmp(what, "config", n) == 0 && n >= 4)
        return show_config();
    if (strncasecmp(what, "hostnames", n) == 0 && n >= 5) {
        char *copy = strdup(arg != NULL                    ? arg
                            : getenv("SLURM_JOB_NODELIST") ? getenv("SLURM_JOB_NODELIST")
                                                           : ""),
             *save = NULL;
        for (char *p = strtok_r(copy, ",", &save); p != NULL; p = strtok_r(NULL, ",", &save))
            puts(p);
        free(copy);
        return 0;
    }
    fprintf(stderr, "invalid entity:%s for keyword:show \n", what);
    return 1;
}

/* ---- changes ---- */

static int job_error(const char *id, const char *why)
{
    fprintf(stderr, "%s for job %s\n", why, id);
    return 1;
}

static int requeue(const char *word, bool hold)
{
    long long id;
    json_t *j = fk_int_in(&id, word, 1, 2147483647) ? fk_job(id) : NULL;
    if (j == NULL)
        return job_error(word, "Invalid job id specified");
    if (fk_knob_take("requeue_refused", NULL) || !fk_b(j, "requeue"))
        return job_error(word, "Requested operation is presently disabled");
    if (fk_is_pending(j) || fk_is_put_back(j))
        return job_error(word, "Job is pending execution");
    fk_append("history", "%.3f requeued %lld %s%s %s\n", fk_now(), id, fk_s(j, "state"),
              fk_s(j, "ending")[0] != '\0' ? "+ending" : "", fk_s(j, "name"));
    fk_set_b(j, "hold_after", hold);
    if (!hold)
        json_object_del(j, "hold_after");
    if (fk_is_final(j)) {
        fk_requeue(j, "requeue");
        fk_ctld_ensure();
    } else if (fk_s(j, "ending")[0] != '\0')
        fk_set_s(j, "ending", "REQUEUE");
    else
        fk_kill_begin(j, "REQUEUE");
    return 0;
}

static int hold(const char *word, bool on)
{
    long long id;
    json_t *j = fk_int_in(&id, word, 1, 2147483647) ? fk_job(id) : NULL;
    if (j == NULL)
        return job_error(word, "Invalid job id specified");
    if (!fk_is_pending(j))
        return job_error(word, fk_is_final(j) ? "Job/step already completing or completed"
                                              : "Job is no longer pending execution");
    fk_set_b(j, "held", on);
    fk_ctld_ensure();
    return 0;
}

/* One NAME=VALUE of update. NULL or why not. */
static const char *change(json_t *j, const char *key, const char *value)
{
    long long v;
    bool pending = fk_is_pending(j) || fk_is_put_back(j);
    if (fk_is_final(j))
        return "Job/step already completing or completed";
    if (strcasecmp(key, "Dependency") == 0)
        return pending ? fk_dep_set(j, value) : "Job is no longer pending execution";
    if (strcasecmp(key, "TimeLimit") == 0) {
        v = fk_minutes(value);
        if (!pending && v > fk_i(j, "limit_min"))
            return "Access/permission denied";
        fk_set_i(j, "limit_min", v);
        fk_set_f(j, "limit_s", (double)v * fk_knob_num("minute", 60));
    } else if (strcasecmp(key, "MinMemoryNode") == 0) {
        if (!pending)
            return "Job is no longer pending execution";
        if (!fk_mem_mb(&v, value))
            return "Invalid memory specification";
        fk_set_i(j, "mem_mb", v);
    } else if (strcasecmp(key, "ExcNodeList") == 0) {
        if (!pending)
            return "Job is no longer pending execution";
        fk_set_s(j, "exclude", value);
    } else if (strcasecmp(key, "Comment") == 0)
        fk_set_s(j, "comment", value);
    else if (strcasecmp(key, "Name") == 0 || strcasecmp(key, "JobName") == 0)
        fk_set_s(j, "name", value);
    else if (strcasecmp(key, "Requeue") == 0) {
        if (!fk_int_in(&v, value, 0, 1))
            return "Invalid value";
        fk_set_b(j, "requeue", v == 1);
    } else if (strcasecmp(key, "StartTime") == 0) {
        double t = fk_time_parse(value);
        if (t < 0 || !pending)
            return "Invalid time";
        fk_set_f(j, "begin_t", t);
    } else
        fk_die(99, "update %s is not imitated (or no such parameter)", key);
    return NULL;
}

static int update(int argc, char **argv)
{
    json_t *j = NULL;
    const char *id = "";
    if (argc > 0 &&
        (strncasecmp(argv[0], "jobid=", 6) == 0 || strncasecmp(argv[0], "job=", 4) == 0)) {
        long long v;
        id = strchr(argv[0], '=') + 1;
        j = fk_int_in(&v, id, 1, 2147483647) ? fk_job(v) : NULL;
    } else
        fk_die(1, "error: No valid entity in update command");
    if (j == NULL)
        return job_error(id, "Invalid job id specified");
    if (fk_knob_take("update_refused", NULL))
        return job_error(id, "Access/permission denied");
    for (int i = 1; i < argc; i++) {
        char *eq = strchr(argv[i], '=');
        if (eq == NULL)
            fk_die(1, "error: Invalid input: %s", argv[i]);
        *eq = '\0';
        char *value = eq + 1;
        const char *bad = change(j, argv[i], value);
        if (bad != NULL) {
            fprintf(stderr, "%s\n", bad);
            return 1;
        }
        fk_append("history", "%.3f update %s %s=%s %s\n", fk_now(), id, argv[i], value,
                  fk_s(j, "name"));
    }
    fk_ctld_ensure();
    return 0;
}

static int each(int argc, char **argv, int (*f)(const char *, bool), bool arg)
{
    int code = argc > 0 ? 0 : 1;
    for (int i = 0; i < argc; i++) {
        char *save = NULL;
        for (char *p = strtok_r(argv[i], ",", &save); p != NULL; p = strtok_r(NULL, ",", &save))
            code |= f(p, arg);
    }
    if (argc == 0)
        fprintf(stderr, "too few arguments for keyword\n");
    return code;
}

static int run(const json_t *o, int argc, char **argv)
{
    const char *verb = argv[0];
    if (strcasecmp(verb, "show") == 0)
        return show(o, argc - 1, argv + 1);
    if (strcasecmp(verb, "update") == 0)
        return update(argc - 1, argv + 1);
    if (strcasecmp(verb, "requeue") == 0)
        return each(argc - 1, argv + 1, requeue, false);
    if (strcasecmp(verb, "requeuehold") == 0)
        return each(argc - 1, argv + 1, requeue, true);
    if (strcasecmp(verb, "hold") == 0 || strcasecmp(verb, "uhold") == 0)
        return each(argc - 1, argv + 1, hold, true);
    if (strcasecmp(verb, "release") == 0)
        return each(argc - 1, argv + 1, hold, false);
    if (strcasecmp(verb, "ping") == 0) {
        puts("Slurmctld(primary) at login is UP");
        return 0;
    }
    fprintf(stderr, "invalid keyword: %s\n", verb);
    return 1;
}

int fk_scontrol(int argc, char **argv)
{
    json_t *o = json_object();
    fk_parse_env(o, table);
    int at = fk_parse(o, table, argc, argv);
    if (fk_get(o, "version") != NULL) {
        puts(FK_VERSION);
        return 0;
    }
    if (at == argc)
        fk_die(99, "the interactive mode is not imitated");
    bool host = argc - at >= 2 && strcasecmp(argv[at], "show") == 0 &&
                strncasecmp(argv[at + 1], "hostn", 5) == 0;
    if (!host && (fk_down() || fk_knob_take("scontrol_down", NULL))) {
        if (strcasecmp(argv[at], "ping") == 0) {
            puts("Slurmctld(primary) at login is DOWN");
            return 1;
        }
        fprintf(stderr, "slurm_load_jobs error: " FK_DOWN "\n");
        return 1;
    }
    fk_enter();
    int code = run(o, argc - at, argv + at);
    fk_leave();
    return code;
}
