/* SPDX-License-Identifier: Apache-2.0
 *
 * What SLURM's commands print, job script templates, names of jobs, the resources of a script.
 */
#include "config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "flow/record/parts.h"
#include "flow/sched/slurm_parse.h"
#include "flow/sched/submit.h"
#include "flow/sched/tmpl.h"
#include "tests/tap/tap.h"

static void parse_ids(void)
{
    char id[64], cluster[64];
    tap_ok(lf_slurm_parse_id(id, sizeof id, cluster, sizeof cluster, "123\n") &&
               strcmp(id, "123") == 0 && cluster[0] == '\0',
           "a bare id");
    tap_ok(lf_slurm_parse_id(id, sizeof id, cluster, sizeof cluster, "77;big\n") &&
               strcmp(id, "77") == 0 && strcmp(cluster, "big") == 0,
           "an id with its cluster");
    tap_ok(lf_slurm_parse_id(id, sizeof id, cluster, sizeof cluster,
                             "Welcome!\n42 jobs are running\n5\nyour job:\n124\n") &&
               strcmp(id, "124") == 0,
           "the last line that is an id, behind a site's chatter");
    tap_ok(!lf_slurm_parse_id(id, sizeof id, cluster, sizeof cluster, "Submitted batch job 9\n"),
           "a sentence is no id");
    tap_ok(!lf_slurm_parse_id(id, sizeof id, cluster, sizeof cluster, ""), "nothing is no id");
}

static void refusals(void)
{
    tap_ok(lf_slurm_refusal(
               "Batch job submission failed: Socket timed out on send/recv operation") == LF_ECOMM,
           "a time-out");
    tap_ok(lf_slurm_refusal("Unable to contact slurm controller (connect failure)") == LF_ECOMM,
           "no controller");
    tap_ok(lf_slurm_refusal("error: QOSMaxSubmitJobPerUserLimit") == LF_EBUSY,
           "a limit on jobs is for now");
    tap_ok(lf_slurm_refusal("Slurm temporarily unable to accept job, sleeping and retrying") ==
               LF_EBUSY,
           "temporarily unable");
    tap_ok(lf_slurm_refusal("Batch job submission failed: Invalid partition name specified") ==
               LF_EINVAL,
           "a wrong partition is for good");
}

/* Jobs as the file of the queue has them; the list is emptied. */
static void show(json_t *out, lf_sched_jobs *list)
{
    for (size_t i = 0; i < list->n; i++)
        json_array_append_new(out, lf_fields_json(&list->v[i], &lf_sched_job_fields, NULL));
    lf_sched_jobs_fini(list);
}

static const char *member(const json_t *jobs, size_t i, const char *key)
{
    const char *t = json_string_value(json_object_get(json_array_get(jobs, i), key));
    return t != NULL ? t : "";
}

static void states(void)
{
    static const char text[] =
        "a site's greeting\n"
        "11|PENDING|Dependency|N/A|N/"
        "A|2026-11-22T06:20:05|main||train-0123456789abcdef0123456789abcdef|x\n"
        "12|RUNNING|None|2026-11-22T06:20:05|2026-11-22T07:20:05|2026-11-22T06:20:00|main|n[1-2]|"
        "train-0123456789abcdef0123456789abcdef.2|a|b\n"
        "13_4|PENDING|None|N/A|N/A|N/A|main||array|\n"
        "14|CANCELLED by 1000|DependencyNeverSatisfied|N/A|N/A|N/A|main||other|\n"
        "15|OUT_OF_ME+|None|N/A|N/A|N/A|main||other|loong-flow:0123456789abcdef0123456789abcdef\n"
        "16|FLYING|None|N/A|N/A|N/A|main||other|\n"
        "17|PENDING|JobHeldUser|N/A|N/A|N/A|main||other|\n"
        "18|PENDING|PartitionNodeLimit|N/A|N/A|N/A|main||other|\n";
    json_t *jobs = json_array();
    lf_sched_jobs list = {0};
    lf_err err = LF_ERR_INIT;
    int rc = lf_slurm_parse_squeue(&list, text, &err);
    show(jobs, &list);
    tap_ok(rc == 0 && json_array_size(jobs) == 7, "jobs without arrays and chatter");
    tap_ok(strcmp(member(jobs, 0, "what"), "queued") == 0 &&
               strcmp(member(jobs, 0, "reason"), "Dependency") == 0,
           "pending");
    tap_ok(strcmp(member(jobs, 0, "token"), "0123456789abcdef0123456789abcdef") == 0,
           "the token in the name");
    tap_ok(json_integer_value(json_object_get(json_array_get(jobs, 1), "link")) == 2,
           "and the link");
    tap_ok(strcmp(member(jobs, 1, "nodes"), "n[1-2]") == 0 &&
               json_number_value(json_object_get(json_array_get(jobs, 1), "t_end")) -
                       json_number_value(json_object_get(json_array_get(jobs, 1), "t_start")) ==
                   3600,
           "running: nodes and times");
    tap_ok(strcmp(member(jobs, 2, "what"), "ended") == 0 &&
               strcmp(member(jobs, 2, "cause"), "dependency") == 0,
           "cancelled by somebody, because of a dependency");
    tap_ok(strcmp(member(jobs, 3, "cause"), "oom") == 0, "a state that is cut off");
    tap_ok(strcmp(member(jobs, 3, "token"), "0123456789abcdef0123456789abcdef") == 0,
           "the token in the comment");
    tap_ok(strcmp(member(jobs, 4, "what"), "unknown") == 0, "a state nobody knows is unknown");
    tap_ok(strcmp(member(jobs, 5, "what"), "held") == 0, "held");
    tap_ok(json_is_true(json_object_get(json_array_get(jobs, 6), "never")),
           "a reason that never goes away");
    json_decref(jobs);
    tap_ok(lf_slurm_parse_squeue(&list, "12|RUNNING\n", &err) == LF_ECOMM,
           "a line that is not understood is no answer");
}

static void history(void)
{
    json_t *jobs = json_array();
    lf_sched_jobs list = {0};
    lf_wanted_list wanted = {0};
    lf_err err = LF_ERR_INIT;
    lf_wanted_add(&wanted, "20", NULL, 1795328405.0, &err);
    int rc = lf_slurm_parse_sacct(
        &list, "20|COMPLETED|0:0|2019-01-01T00:00:00|Unknown|Unknown|n1\n20.batch|FAILED|1:0||||\n",
        &wanted, &err);
    show(jobs, &list);
    tap_ok(rc == 0 && json_array_size(jobs) == 0, "an earlier job of the same id is another job");
    rc = lf_slurm_parse_sacct(
        &list, "20|TIMEOUT|0:9|2027-01-01T00:00:00|Unknown|Unknown|None assigned\n", &wanted, &err);
    show(jobs, &list);
    tap_ok(rc == 0 && strcmp(member(jobs, 0, "cause"), "timeout") == 0 &&
               json_integer_value(json_object_get(json_array_get(jobs, 0), "signal")) == 9,
           "sacct: state and signal");
    json_array_clear(jobs);
    rc = lf_slurm_parse_sacct(&list, "20|RUNNING|0:0|2027-01-01T00:00:00|Unknown|Unknown|n1\n",
                              &wanted, &err);
    show(jobs, &list);
    tap_ok(rc == 0 && strcmp(member(jobs, 0, "what"), "unknown") == 0,
           "running, says accounting, of a job that left the queue");
    json_array_clear(jobs);
    rc = lf_slurm_parse_scontrol(
        &list,
        "JobId=20 JobName=x UserId=a(1) JobState=FAILED Reason=NonZeroExitCode Dependency=(null) "
        "ExitCode=3:0 SubmitTime=2027-01-01T00:00:00 NodeList=n1\n",
        &wanted, &err);
    show(jobs, &list);
    tap_ok(rc == 0 && strcmp(member(jobs, 0, "cause"), "failed") == 0 &&
               json_integer_value(json_object_get(json_array_get(jobs, 0), "exit")) == 3,
           "scontrol show job -o");
    json_decref(jobs);
    lf_wanted_fini(&wanted);
}

/* ---- templates ---- */

static bool renders(const char *text, const char *want, const lf_tmpl_values *values)
{
    lf_buf b;
    lf_err err = LF_ERR_INIT;
    lf_buf_init(&b);
    int rc = lf_tmpl_render(&b, text, strlen(text), "t.in", values, &err);
    bool same = rc == 0 && strcmp(b.data, want) == 0;
    if (!same)
        printf("# rc %d %s; got: %s\n", rc, err.text, b.data);
    lf_buf_fini(&b);
    return same;
}

static bool refuses(const char *text, const char *message, const lf_tmpl_values *values)
{
    lf_buf b;
    lf_err err = LF_ERR_INIT;
    lf_buf_init(&b);
    int rc = lf_tmpl_render(&b, text, strlen(text), "t.in", values, &err);
    bool right = rc == LF_EINVAL && strstr(err.text, message) != NULL;
    if (!right)
        printf("# rc %d %s\n", rc, err.text);
    lf_buf_fini(&b);
    return right;
}

static void templates(void)
{
    static char x[] = "x", yz[] = "y z", home[] = "echo $HOME", cond[] = "if [ a ]; then";
    char *words[] = {x, yz}, *lines[] = {home, cond};
    const lf_texts list = {.v = words, .n = 2, .given = true}, raw = {lines, 2, 2, true},
                   empty = {.given = true};
    lf_tmpl_values v = {.n = 0};
    lf_tmpl_text(&v, "NAME", "plain", NULL);
    lf_tmpl_text(&v, "EVIL", "a b'$(id);#", NULL);
    lf_tmpl_int(&v, "N", lf_int_of(7), NULL);
    lf_tmpl_text(&v, "ABSENT", NULL, NULL);
    lf_tmpl_flag(&v, "YES", true, NULL);
    lf_tmpl_list(&v, "LIST", &list, NULL);
    lf_tmpl_raw(&v, "RAW", &raw, NULL);
    lf_tmpl_text(&v, "LINES", "a\nb", NULL);
    lf_tmpl_list(&v, "EMPTY", &empty, NULL);
    tap_ok(renders("a=@NAME@ n=@N@\n", "a=plain n=7\n", &v), "values");
    tap_ok(renders("x @EVIL@\n", "x 'a b'\\''$(id);#'\n", &v), "quoted for the shell");
    tap_ok(renders("one\n#X --y=@ABSENT@\ntwo @NAME@\n", "one\ntwo plain\n", &v),
           "a line whose value is absent disappears");
    tap_ok(renders("m @LIST@\n", "m x\nm 'y z'\n", &v), "a list repeats its line");
    tap_ok(renders("a @EMPTY@\n", "", &v), "an empty list is absent");
    tap_ok(renders("@RAW@\n", "echo $HOME\nif [ a ]; then\n", &v), "raw lines");
    tap_ok(renders("--exclusive@YES@\n", "--exclusive\n", &v),
           "true puts nothing in and keeps the line");
    tap_ok(renders("B:USR2@@@N@ a@b.c @ @x@ mail@@\n", "B:USR2@7 a@b.c @ @x@ mail@\n", &v),
           "'@' that is no placeholder");
    tap_ok(renders("no newline @N@", "no newline 7\n", &v), "a last line without an end");
    tap_ok(
        refuses("a\nb @NAMES@\n", "t.in:2: unknown placeholder @NAMES@; did you mean @NAME@?", &v),
        "unknown: file, line, nearest name");
    tap_ok(refuses("# @MEMROY@\n", "t.in:1: unknown placeholder @MEMROY@", &v),
           "also in a comment");
    tap_ok(refuses("@LINES@\n", "control character", &v), "a newline in a value");
    tap_ok(refuses("@LIST@ @RAW@\n", "two lists", &v), "two lists in a line");
    tap_ok(refuses("a\r\n", "carriage return", &v), "a carriage return");
    lf_tmpl_values_fini(&v);
}

static void names(void)
{
    char token[LF_TOKEN_SIZE], name[256];
    int link = 0;
    char stage_name[] = "pre-train";
    const lf_doc_stage stage = {.name = stage_name};
    lf_submit_req req = {.stage = &stage, .token = "0123456789abcdef0123456789abcdef", .link = 3};
    lf_submit_job_name(name, sizeof name, &req);
    tap_ok(lf_submit_parse_name(name, token, &link) && strcmp(token, req.token) == 0 && link == 3,
           "a name and back");
    tap_ok(!lf_submit_parse_name("train-0123", token, &link) &&
               !lf_submit_parse_name("0123456789abcdef0123456789abcdef", token, &link) &&
               !lf_submit_parse_name("a-0123456789abcdef0123456789abcdef.1", token, &link) &&
               !lf_submit_parse_name("a-0123456789abcdef0123456789abcdefx", token, &link),
           "names that are not ours");
}

int main(void)
{
    TAP(5, parse_ids());
    TAP(5, refusals());
    states();
    TAP(4, history());
    TAP(14, templates());
    TAP(2, names());
    return tap_done();
}
