/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor: PBS, that is OpenPBS and PBS Pro, or Torque. The flavour is read from `qstat --version`,
 * as qstat -x means history to one and XML to the other. Attribute names are those of `qstat -B -f`
 * and `qstat -Q -f`.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/str.h"
#include "flow/cmd/doctor.h"
#include "flow/sched/sched.h"

#define SAID 300

/* Value of an indented "key = value" line within text[0..n). */
static const char *attr(char *buf, size_t cap, const char *text, size_t n, const char *key)
{
    size_t k = strlen(key);
    for (const char *p = text, *end = text + n; p < end; p += strcspn(p, "\n") + 1) {
        const char *q = p + strspn(p, " \t");
        if (strncmp(q, key, k) != 0 || strncmp(q + k, " = ", 3) != 0)
            continue;
        snprintf(buf, cap, "%.*s", (int)strcspn(q + k + 3, "\n"), q + k + 3);
        return buf;
    }
    return NULL;
}

static bool good(lf_doctor *d, lf_sched_out *o, int rc, const lf_err *e, const char *what,
                 const char *advice)
{
    char said[SAID];
    if (rc < 0) {
        lf_doctor_add(d, "fail", "scheduler", advice, "%s", e->text);
        return false;
    }
    if (!o->missing && !o->timed_out && o->exit == 0)
        return true;
    lf_doctor_add(d, "fail", "scheduler", advice, "%s: %s", what,
                  o->missing     ? "not on PATH"
                  : o->timed_out ? "no answer in time"
                                 : lf_sched_said(said, sizeof said, o));
    lf_sched_out_fini(o);
    return false;
}

static void judge_server(lf_doctor *d, const char *text, bool torque)
{
    char v[128];
    size_t n = strlen(text);
    if (torque) {
        const char *keep = attr(v, sizeof v, text, n, "keep_completed");
        lf_doctor_add(d, keep != NULL ? "ok" : "warn", "scheduler",
                      keep != NULL ? NULL
                                   : "ended jobs are known from their own records alone; run "
                                     "`loong-flow tick` from cron",
                      "ended jobs stay known for %s s (keep_completed)", keep != NULL ? keep : "0");
        return;
    }
    const char *hist = attr(v, sizeof v, text, n, "job_history_enable");
    bool on = hist != NULL && strcmp(hist, "True") == 0;
    lf_doctor_add(d, "ok", "scheduler", NULL,
                  on ? "job history is on: qstat -x knows ended jobs"
                     : "no job history: ended jobs are known from their own records, and jobs are "
                       "submitted in the order of the graph");
}

static void judge_queue(lf_doctor *d, const char *text, size_t n)
{
    char type[64], wall[64], on[16], run[16], name[128];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "\n"), text);
    const char *ty = attr(type, sizeof type, text, n, "queue_type"),
               *w = attr(wall, sizeof wall, text, n, "resources_max.walltime");
    const char *e = attr(on, sizeof on, text, n, "enabled"),
               *s = attr(run, sizeof run, text, n, "started");
    bool yes = e != NULL && s != NULL && strcmp(e, "True") == 0 && strcmp(s, "True") == 0;
    bool mine = d->partition != NULL && strcmp(d->partition, name) == 0;
    lf_doctor_add(d, yes || !mine ? "ok" : "warn", "queue",
                  yes || !mine ? NULL : "choose another with `queue =`",
                  "%s%s: %s, %s, longest job %s", name, mine ? " (yours)" : "",
                  ty ? ty : "type unknown", yes ? "open" : "closed or stopped",
                  w ? w : "without limit");
    int64_t longest = 0;
    if (mine && w != NULL && lf_parse_duration(&longest, w, NULL) == 0 &&
        d->time_limit_s > (double)longest)
        lf_doctor_add(d, "fail", "queue",
                      "ask for less with `time_limit =`: a stage goes on in the next link",
                      "%s: its longest job is %s, shorter than the time_limit of the pipeline",
                      name, w);
}

static void check_queues(lf_doctor *d)
{
    lf_sched_out o;
    lf_err e = LF_ERR_INIT;
    int rc = lf_sched_runv(&o, d->site, 0, &e, "qstat", "-Q", "-f", NULL);
    if (!good(d, &o, rc, &e, "qstat -Q -f", "try it by hand"))
        return;
    bool found = d->partition == NULL;
    for (const char *p = o.out.data; (p = strstr(p, "Queue: ")) != NULL;) {
        p += 7;
        const char *next = strstr(p, "\nQueue: ");
        size_t n = next != NULL ? (size_t)(next - p) : strlen(p);
        found = found || (strcspn(p, "\n") == strlen(d->partition) &&
                          strncmp(p, d->partition, strlen(d->partition)) == 0);
        judge_queue(d, p, n);
    }
    if (!found)
        lf_doctor_add(d, "fail", "queue", "name one of those above with `queue =`",
                      "there is no queue %s", d->partition);
    lf_sched_out_fini(&o);
}

void lf_doctor_pbs(lf_doctor *d)
{
    static const char *const path = "load the site's PBS module, or name the commands in [site]";
    static const char *const site =
        "is this a submit host of the server? is PBS_CONF_FILE or PBS_SERVER right? ask the site";
    lf_sched_out o;
    lf_err e = LF_ERR_INIT;
    char said[SAID];
    int rc = lf_sched_runv(&o, d->site, 10, &e, "qstat", "--version", NULL);
    if (!good(d, &o, rc, &e, "qstat --version", path))
        return;
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s\n%s", o.out.data, o.err.data);
    bool torque = strstr(b.data, "pbs_version") == NULL && strstr(b.data, "ersion") != NULL;
    lf_buf_fini(&b);
    lf_sched_said(said, sizeof said, &o);
    lf_sched_out_fini(&o);
    if (torque != (strcmp(d->scheduler, "torque") == 0))
        lf_doctor_add(d, "warn", "scheduler",
                      torque ? "set `scheduler = torque`" : "set `scheduler = pbs`",
                      "configured is %s, but qstat says: %s", d->scheduler, said);
    rc = lf_sched_runv(&o, d->site, 0, &e, "qstat", "-B", "-f", NULL);
    if (!good(d, &o, rc, &e, "qstat -B -f", site))
        return;
    lf_doctor_add(d, "ok", "scheduler", NULL, "%s, the server answers", said);
    judge_server(d, o.out.data, torque);
    lf_sched_out_fini(&o);
    check_queues(d);
}
