/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor: SLURM. Is the controller reachable, and which of the site's settings change what happens
 * to our jobs? Field names are those of `scontrol show config` and `scontrol show partition -o`
 * (scontrol(1), slurm.conf(5)).
 */
#include "config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/str.h"
#include "flow/cmd/doctor.h"
#include "flow/sched/sched.h"

#define SAID 300

/* What is looked at, and what to do when it fails. */
struct topic {
    const char *check, *advice;
};

/* Run a command of at most four words; on trouble add `fail` and return false. *o must be released
 * when true is returned. */
static bool ask(lf_doctor *d, lf_sched_out *o, struct topic t, const char *const words[4])
{
    const char *w0 = words[0], *w1 = words[1], *w2 = words[2], *w3 = words[3];
    lf_err e = LF_ERR_INIT;
    char said[SAID];
    if (lf_sched_runv(o, d->site, 0, &e, w0, w1, w2, w3, NULL) < 0) {
        lf_doctor_add(d, "fail", t.check, t.advice, "%s", e.text);
        return false;
    }
    if (!o->missing && !o->timed_out && o->exit == 0)
        return true;
    if (o->missing)
        lf_doctor_add(d, "fail", t.check, t.advice, "%s is not on PATH", w0);
    else
        lf_doctor_add(d, "fail", t.check, t.advice, "%s %s: %s", w0, w1,
                      o->timed_out ? "no answer in time" : lf_sched_said(said, sizeof said, o));
    lf_sched_out_fini(o);
    return false;
}

/* Value of "Key   = value" lines, or of "Key=value" words, in buf; NULL when it is not there. */
static const char *field(char *buf, size_t cap, const char *text, const char *key, bool word)
{
    size_t n = strlen(key);
    for (const char *p = text; (p = strstr(p, key)) != NULL; p += n) {
        const char *v = p + n;
        if (p > text && p[-1] != '\n' && !(word && p[-1] == ' '))
            continue;
        while (!word && *v == ' ')
            v++;
        if (*v++ != '=')
            continue;
        while (!word && *v == ' ')
            v++;
        size_t len = strcspn(v, word ? " \n" : "\n");
        snprintf(buf, cap, "%.*s", (int)(len < cap ? len : cap - 1), v);
        return buf;
    }
    return NULL;
}
static long number(const char *text, const char *key, long otherwise)
{
    char b[64];
    const char *v = field(b, sizeof b, text, key, false);
    return v != NULL && isdigit((unsigned char)v[0]) ? strtol(v, NULL, 10) : otherwise;
}

/* Is `code` in a list like "1,20-30"? */
static bool in_codes(const char *list, long code)
{
    for (const char *p = list; p != NULL && isdigit((unsigned char)*p);) {
        char *end;
        long a = strtol(p, &end, 10), b = a;
        if (*end == '-')
            b = strtol(end + 1, &end, 10);
        if (code >= a && code <= b)
            return true;
        p = *end == ',' ? end + 1 : NULL;
    }
    return false;
}

static void judge_config(lf_doctor *d, const char *c)
{
    char v[256];
    static const char *const exits[] = {"RequeueExit", "RequeueExitHold"};
    for (int i = 0; i < 2; i++)
        if (field(v, sizeof v, c, exits[i], false) != NULL && in_codes(v, 75))
            lf_doctor_add(d, "fail", "scheduler",
                          "ask the site to take 75 out, or set `chain = links` in [site]",
                          "%s = %s: SLURM requeues jobs that exit with 75, which here means "
                          "\"stopped at a good checkpoint\"",
                          exits[i], v);
    long wait = number(c, "KillWait", 30);
    lf_doctor_add(
        d, wait >= 20 ? "ok" : "warn", "scheduler",
        wait >= 20 ? NULL
                   : "save more often (save_interval): scancel leaves little time for a checkpoint",
        "KillWait: %ld s between SIGTERM and SIGKILL", wait);
    long age = number(c, "MinJobAge", 300);
    bool acct = field(v, sizeof v, c, "AccountingStorageType", false) != NULL &&
                strstr(v, "slurmdbd") != NULL;
    if (acct)
        lf_doctor_add(d, "ok", "scheduler", NULL, "accounting is on: sacct knows ended jobs");
    else if (age > 0 && age < 120)
        lf_doctor_add(d, "warn", "scheduler",
                      "run `loong-flow tick` from cron, so that ends are seen in time",
                      "no accounting, and ended jobs are forgotten after %ld s (MinJobAge)", age);
    else
        lf_doctor_add(d, "ok", "scheduler", NULL,
                      "no accounting (sacct): ended jobs are known from their own records and for "
                      "%ld s from squeue",
                      age);
    lf_doctor_add(d, "ok", "scheduler", NULL, "limits: MaxArraySize %ld, MaxJobCount %ld",
                  number(c, "MaxArraySize", 1001), number(c, "MaxJobCount", 10000));
    if (number(c, "JobRequeue", 1) == 0)
        lf_doctor_add(d, "ok", "scheduler", NULL,
                      "JobRequeue is off at this site; our jobs ask for it with --requeue");
}

/* One line of `scontrol show partition -o`. */
static void judge_partition(lf_doctor *d, const char *line)
{
    char name[128], state[64], max[64], preempt[64], grace[64], dflt[16], nodes[32];
    if (field(name, sizeof name, line, "PartitionName", true) == NULL)
        return;
    const char *st = field(state, sizeof state, line, "State", true),
               *mx = field(max, sizeof max, line, "MaxTime", true);
    const char *pr = field(preempt, sizeof preempt, line, "PreemptMode", true);
    const char *gr = field(grace, sizeof grace, line, "GraceTime", true);
    const char *de = field(dflt, sizeof dflt, line, "Default", true),
               *nn = field(nodes, sizeof nodes, line, "MaxNodes", true);
    bool up = st != NULL && strcmp(st, "UP") == 0,
         mine = d->partition != NULL && strcmp(d->partition, name) == 0;
    bool chosen = mine || (d->partition == NULL && de != NULL && strcmp(de, "YES") == 0);
    lf_doctor_add(d, up || !chosen ? "ok" : "warn", "partition",
                  up || !chosen ? NULL : "choose another with `partition =`",
                  "%s%s: %s, longest job %s, most nodes %s%s%s", name, chosen ? " (yours)" : "",
                  st ? st : "state unknown", mx ? mx : "unknown", nn ? nn : "unknown",
                  pr ? ", preemption " : "", pr ? pr : "");
    int64_t longest = 0;
    if (chosen && mx != NULL && lf_parse_duration(&longest, mx, NULL) == 0 &&
        d->time_limit_s > (double)longest)
        lf_doctor_add(d, "fail", "partition",
                      "ask for less with `time_limit =`: a stage goes on in the next segment",
                      "%s: its longest job is %s, shorter than the time_limit of the pipeline; "
                      "jobs would wait for ever",
                      name, mx);
    if (chosen && pr != NULL && (strstr(pr, "REQUEUE") || strstr(pr, "CANCEL")) && gr != NULL &&
        strtol(gr, NULL, 10) < 20)
        lf_doctor_add(d, "warn", "partition",
                      "save by time (save_interval): a preempted job has no time for a checkpoint",
                      "%s: jobs may be preempted, with GraceTime %s s", name, gr);
}

static void check_partitions(lf_doctor *d)
{
    lf_sched_out o;
    if (!ask(d, &o, (struct topic){"partition", "try `scontrol show partition` by hand"},
             (const char *const[4]){"scontrol", "show", "partition", "-o"}))
        return;
    bool found = d->partition == NULL;
    char want[160];
    snprintf(want, sizeof want, "PartitionName=%s ", d->partition != NULL ? d->partition : "");
    char *rest = o.out.data;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        found = found || strncmp(line, want, strlen(want)) == 0;
        judge_partition(d, line);
    }
    if (!found)
        lf_doctor_add(d, "fail", "partition", "name one of those above with `partition =`",
                      "there is no partition %s", d->partition);
    lf_sched_out_fini(&o);
}

static void check_mpi(lf_doctor *d)
{
    lf_sched_out o;
    lf_err e = LF_ERR_INIT;
    if (lf_sched_runv(&o, d->site, 10, &e, "srun", "--mpi=list", NULL) < 0)
        return;
    lf_buf b; /* 22.05 prints the list to stderr, later ones to stdout */
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s\n%s", o.out.data, o.err.data);
    if (o.missing || o.exit != 0 || strstr(b.data, "pmix") == NULL)
        lf_doctor_add(d, "ok", "launch", NULL,
                      "srun offers no PMIx here: ranks are started by `loong-flow launch`");
    else
        lf_doctor_add(d, "ok", "launch", NULL,
                      "srun lists PMIx; whether it works in a step is seen with --launch");
    lf_buf_fini(&b);
    lf_sched_out_fini(&o);
}

void lf_doctor_slurm(lf_doctor *d)
{
    static const char *const path = "load the site's SLURM module, or name the commands in [site]";
    static const char *const site =
        "is this a login node of the cluster? is SLURM_CONF right? ask the site";
    lf_sched_out o;
    char said[SAID];
    if (!ask(d, &o, (struct topic){"scheduler", path},
             (const char *const[4]){"sbatch", "--version"}))
        return;
    lf_sched_said(said, sizeof said, &o);
    lf_sched_out_fini(&o);
    if (!ask(d, &o, (struct topic){"scheduler", site}, (const char *const[4]){"scontrol", "ping"}))
        return;
    bool up = strstr(o.out.data, " is UP") != NULL;
    lf_sched_out_fini(&o);
    lf_doctor_add(d, up ? "ok" : "fail", "scheduler", up ? NULL : site, "%s, the controller %s",
                  said, up ? "answers" : "is down");
    if (!up)
        return;
    if (ask(d, &o, (struct topic){"scheduler", site},
            (const char *const[4]){"scontrol", "show", "config"})) {
        judge_config(d, o.out.data);
        lf_sched_out_fini(&o);
    }
    check_partitions(d);
    check_mpi(d);
}
