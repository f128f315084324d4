/* SPDX-License-Identifier: Apache-2.0
 *
 * PBS and Torque in text: flavours, ids, what a refusal means, `qstat -f` of both, ends of jobs,
 * requests, #PBS lines; and how many links a chain has.
 */
#include "config.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "flow/record/parts.h"
#include "flow/sched/chain.h"
#include "flow/sched/pbs.h"
#include "flow/sched/submit.h"
#include "tests/tap/tap.h"

static void test_flavour(void)
{
    tap_i64(lf_pbs_flavour_of("pbs_version = 23.06.06\n", ""), LF_PBS_OPENPBS, "OpenPBS");
    tap_i64(lf_pbs_flavour_of("", "Version: 6.1.2\nCommit: 1234\n"), LF_PBS_TORQUE,
            "Torque, on stderr");
    tap_i64(lf_pbs_flavour_of("", "version: 4.2.10\n"), LF_PBS_TORQUE, "an older Torque");
    tap_i64(lf_pbs_flavour_of("slurm-wlm 22.05.8\n", ""), LF_PBS_NONE,
            "SLURM's wrappers are neither");
    tap_i64(lf_pbs_flavour_of("", ""), LF_PBS_NONE, "no answer is neither");
}

static void test_id(void)
{
    char id[64] = "";
    tap_ok(lf_pbs_parse_id(id, sizeof id, "12.pbs0\n") && strcmp(id, "12.pbs0") == 0, "an id");
    tap_ok(lf_pbs_parse_id(id, sizeof id,
                           "Welcome.\nYour project has 7 hours\n345.pbs-0.site.org\nbye\n") &&
               strcmp(id, "345.pbs-0.site.org") == 0,
           "an id among other lines");
    tap_ok(lf_pbs_parse_id(id, sizeof id, "1.a\n2.b\r\n") && strcmp(id, "2.b") == 0,
           "the last one");
    tap_ok(!lf_pbs_parse_id(id, sizeof id, "12.pbs0;rm\n12.pbs0 x\n.pbs0\npbs0\n12.\n"),
           "what only looks like one");
}

static void test_refusal(void)
{
    tap_i64(lf_pbs_refusal("Connection refused\nqsub: cannot connect to server pbs0 (errno=111)"),
            LF_ECOMM, "away");
    tap_i64(lf_pbs_refusal("qsub: End of File"), LF_ECOMM, "cut off");
    tap_i64(
        lf_pbs_refusal("qsub: would exceed queue generic's per-user limit of jobs in 'Q' state"),
        LF_EBUSY, "a limit");
    tap_i64(lf_pbs_refusal("qsub: Maximum number of jobs already in queue"), LF_EBUSY, "another");
    tap_i64(lf_pbs_refusal("qsub: Unknown queue"), LF_EINVAL, "for good");
    tap_ok(lf_pbs_only_gone("qdel: Unknown Job Id 7.pbs0\nqdel: Job has finished 8.pbs0\n"),
           "gone is an answer");
    tap_ok(!lf_pbs_only_gone("qdel: Unknown Job Id 7.pbs0\nqdel: cannot connect to server pbs0\n"),
           "not reached is none");
    tap_ok(!lf_pbs_only_gone(""), "nor is silence");
}

static const char *member(const json_t *e, const char *name)
{
    static char buf[64];
    const json_t *v = json_object_get(e, name);
    if (json_is_string(v))
        return json_string_value(v);
    if (json_is_true(v))
        return "true";
    if (!json_is_number(v))
        return "-";
    snprintf(buf, sizeof buf, "%.0f", json_number_value(v));
    return buf;
}

/* Jobs as the file of the queue has them; the list is emptied. */
static void show(json_t *out, lf_sched_jobs *list)
{
    for (size_t i = 0; i < list->n; i++)
        json_array_append_new(out, lf_fields_json(&list->v[i], &lf_sched_job_fields, NULL));
    lf_sched_jobs_fini(list);
}

static int parse(json_t *out, const char *text, enum lf_pbs_flavour f)
{
    lf_sched_jobs list = {0};
    int rc = lf_pbs_parse_full(&list, text, f, NULL);
    show(out, &list);
    return rc;
}

static void is_member(const json_t *jobs, size_t i, const char *name, const char *want)
{
    tap_str(member(json_array_get(jobs, i), name), want, name);
}

static const char pbs_text[] =
    "Job Id: 1.pbs0\n"
    "    Job_Name = first-0123ab\n"
    "    job_state = R\n"
    "    queue = workq\n"
    "    exec_host = n0/0*4+n0/1+n1/0*4\n"
    "    Resource_List.walltime = 01:00:00\n"
    "    ctime = Fri Nov 11 17:57:05 2016\n"
    "    stime = Fri Nov 11 18:00:00 2016\n"
    "    substate = 42\n"
    "    run_count = 2\n"
    "    Variable_List = PBS_O_HOME=/home/u,PBS_O_PATH=/a\\,LF_TOKEN=ffff,\n"
    "\tLOONG_TOKEN=0123abcd0123abcd0123abcd0123abcd,\n"
    "\tLOONG_LINK=3,PBS_O_WORKDIR=/x\n"
    "    comment = Job run at Fri Nov 11 on (n0:ncpus=4)\n"
    "\n"
    "Job Id: 2.pbs0\n"
    "    job_state = H\n"
    "    Hold_Types = s\n"
    "    substate = 22\n"
    "\n"
    "Job Id: 3.pbs0\n"
    "    job_state = Q\n"
    "    comment = Can Never Run: Insufficient amount of resource: ncpus\n"
    "    estimated.start_time = Fri Nov 11 18:00:00 2016\n"
    "\n"
    "Job Id: 4.pbs0\n    job_state = F\n    substate = 92\n\n"
    "Job Id: 5.pbs0\n    job_state = F\n    substate = 91\n\n"
    "Job Id: 6.pbs0\n    job_state = M\n\n"
    "Job Id: 7.pbs0\n    job_state = Z\n\n"
    "Job Id: 8.pbs0\n    job_state = H\n    Hold_Types = us\n    Variable_List = "
    "PBS_O_HOME=/home/u,LF_LINK=1\n\n";

static void test_full(void)
{
    json_t *jobs = json_array();
    tap_i64(parse(jobs, pbs_text, LF_PBS_OPENPBS), 0, "parsed");
    tap_i64((int64_t)json_array_size(jobs), 8, "eight jobs");
    is_member(jobs, 0, "id", "1.pbs0");
    is_member(jobs, 0, "what", "running");
    is_member(jobs, 0, "token", "0123abcd0123abcd0123abcd0123abcd");
    is_member(jobs, 0, "link", "3");
    is_member(jobs, 0, "nodes", "n0,n1");
    is_member(jobs, 0, "restarts", "1");
    is_member(jobs, 0, "partition", "workq");
    const json_t *one = json_array_get(jobs, 0);
    tap_i64((int64_t)(json_number_value(json_object_get(one, "t_end")) -
                      json_number_value(json_object_get(one, "t_start"))),
            3600, "its end follows from its walltime");
    tap_i64((int64_t)(json_number_value(json_object_get(one, "t_start")) -
                      json_number_value(json_object_get(one, "t_submit"))),
            175, "times are read");
    is_member(jobs, 0, "foreign", "-");
    is_member(jobs, 1, "foreign", "-");
    is_member(jobs, 7, "foreign", "true");
    is_member(jobs, 1, "what", "held");
    is_member(jobs, 1, "hold", "depend");
    is_member(jobs, 2, "never", "true");
    tap_ok(json_number_value(json_object_get(json_array_get(jobs, 2), "t_start")) > 0,
           "an estimated start");
    is_member(jobs, 3, "cause", "dependency");
    is_member(jobs, 4, "cause", "cancelled");
    is_member(jobs, 5, "what", "queued");
    is_member(jobs, 5, "moved", "true");
    is_member(jobs, 6, "what", "unknown");
    is_member(jobs, 7, "hold", "user");
    json_decref(jobs);
}

static void test_ends(void)
{
    static const struct {
        enum lf_pbs_flavour f;
        int code, substate;
        const char *cause, *exit, *signal;
    } cases[] = {
        {LF_PBS_OPENPBS, 0, 92, "done", "0", "-"},
        {LF_PBS_OPENPBS, 7, 93, "failed", "7", "-"},
        {LF_PBS_OPENPBS, 139, 93, "failed", "139", "-"},
        {LF_PBS_OPENPBS, 271, 91, "cancelled", "-", "15"},
        {LF_PBS_OPENPBS, 0, 91, "cancelled", "0", "-"},
        {LF_PBS_OPENPBS, 265, 93, "failed", "-", "9"},
        {LF_PBS_OPENPBS, -29, 93, "timeout", "-", "-"},
        {LF_PBS_OPENPBS, -27, 93, "oom", "-", "-"},
        {LF_PBS_OPENPBS, -14, 93, "node", "-", "-"},
        {LF_PBS_OPENPBS, -11, 93, "failed", "-", "-"},
        {LF_PBS_TORQUE, -11, 59, "timeout", "-", "-"},
        {LF_PBS_TORQUE, -10, 59, "oom", "-", "-"},
        {LF_PBS_TORQUE, 271, 59, "cancelled", "-", "15"},
        {LF_PBS_TORQUE, 0, 59, "done", "0", "-"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        bool torque = cases[i].f == LF_PBS_TORQUE;
        snprintf(
            text, sizeof text,
            "Job Id: 1.s\n    job_state = %s\n    substate = %d\n    run_count = 1\n    %s = %d\n",
            torque ? "C" : "F", cases[i].substate, torque ? "exit_status" : "Exit_status",
            cases[i].code);
        json_t *jobs = json_array();
        parse(jobs, text, cases[i].f);
        is_member(jobs, 0, "what", "ended");
        is_member(jobs, 0, "cause", cases[i].cause);
        is_member(jobs, 0, "exit", cases[i].exit);
        is_member(jobs, 0, "signal", cases[i].signal);
        json_decref(jobs);
    }
}

static void test_clock(void)
{
    char buf[32];
    tap_i64(lf_pbs_seconds("90"), 90, "seconds");
    tap_i64(lf_pbs_seconds("1:30"), 90, "minutes");
    tap_i64(lf_pbs_seconds("100:00:01"), 360001, "hours");
    tap_i64(lf_pbs_seconds(""), -1, "nothing");
    tap_i64(lf_pbs_seconds("1:-2"), -1, "a sign");
    tap_i64(lf_pbs_seconds("1:2:3:4"), -1, "too many parts");
    tap_str(lf_pbs_clock(buf, 360001), "100:00:01", "and back");
}

static lf_resources resources_of(const char *text)
{
    lf_resources r = {.given = false};
    json_t *o = json_loads(text, 0, NULL);
    if (lf_fields_read(&r, &lf_resources_fields, o, text, NULL) < 0)
        tap_bail("%s", text);
    json_decref(o);
    return r;
}

static void value_is(const char *res_text, enum lf_pbs_flavour f, const char *name,
                     const char *want)
{
    lf_resources res = resources_of(res_text);
    lf_tmpl_values v = {.n = 0};
    tap_i64(lf_pbs_values(&v, &res, f, NULL), 0, res_text);
    const lf_tmpl_value *e = lf_tmpl_find(&v, name);
    tap_str(e != NULL && e->texts.given ? e->texts.v[0] : "-", want, name);
    lf_resources_fini(&res);
    lf_tmpl_values_fini(&v);
}

static void refused(const char *res_text, enum lf_pbs_flavour f, const char *word)
{
    lf_resources res = resources_of(res_text);
    lf_tmpl_values v = {.n = 0};
    lf_err err = LF_ERR_INIT;
    tap_i64(lf_pbs_values(&v, &res, f, &err), LF_EINVAL, res_text);
    tap_ok(strstr(err.text, word) != NULL, "and says why");
    lf_resources_fini(&res);
    lf_tmpl_values_fini(&v);
}

static void test_values(void)
{
    value_is("{}", LF_PBS_OPENPBS, "SELECT", "1:ncpus=1:mpiprocs=1:ompthreads=1");
    value_is("{\"nodes\":4,\"ranks\":2,\"cpus\":8,\"memory_bytes\":1073741825,\"gpus\":{\"n\":2},"
             "\"constraint\":\"model=x&net=y\"}",
             LF_PBS_OPENPBS, "SELECT",
             "4:ncpus=16:mpiprocs=2:ompthreads=8:mem=1025mb:ngpus=2:model=x:net=y");
    value_is("{\"nodes\":4}", LF_PBS_OPENPBS, "PLACE", "scatter");
    value_is("{\"exclusive\":true}", LF_PBS_OPENPBS, "PLACE", "scatter:excl");
    value_is("{}", LF_PBS_OPENPBS, "PLACE", "-");
    value_is("{\"time_limit_s\":3661}", LF_PBS_OPENPBS, "WALLTIME", "1:01:01");
    value_is("{\"reservation\":\"R7\"}", LF_PBS_OPENPBS, "QUEUE", "R7");
    value_is("{\"mail_type\":[\"end\",\"fail\"]}", LF_PBS_OPENPBS, "MAIL_POINTS", "ae");
    value_is("{\"mail_type\":[\"none\"]}", LF_PBS_OPENPBS, "MAIL_POINTS", "n");
    value_is("{\"nodes\":2,\"ranks\":2,\"cpus\":3,\"gpus\":{\"n\":1},\"constraint\":\"fat\"}",
             LF_PBS_TORQUE, "TORQUE_NODES", "2:ppn=6:gpus=1:fat");
    value_is("{\"nodes\":2,\"memory_bytes\":1048576}", LF_PBS_TORQUE, "JOB_MEMORY_MIB", "2");
    refused("{\"gpus\":{\"n\":1,\"type\":\"a100\"}}", LF_PBS_OPENPBS, "a100");
    refused("{\"qos\":\"high\"}", LF_PBS_OPENPBS, "qos");
    refused("{\"chain\":\"requeue\"}", LF_PBS_OPENPBS, "requeue");
    refused("{\"reservation\":\"R7\"}", LF_PBS_TORQUE, "extra");
    refused("{\"mail_type\":[\"time_limit\"]}", LF_PBS_TORQUE, "time_limit");
}

static void directives_are(const char *script, const char *want)
{
    lf_texts a = {.n = 0};
    lf_err err = LF_ERR_INIT;
    char got[1024] = "";
    int rc = lf_pbs_directives(&a, script, &err);
    for (size_t i = 0; i < a.n; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "<%s>", a.v[i]);
    tap_str(rc == 0 ? got : "refused", want, script);
    lf_texts_fini(&a);
}

static void test_directives(void)
{
    directives_are(
        "#!/bin/sh\n#PBS -l select=1 -q 'a b'\n\n# text\n#PBS -A \"x'y\"\\ z\nexec x\n#PBS -q no\n",
        "<-l><select=1><-q><a b><-A><x'y z>");
    directives_are("#PBS\n#PBSX -q no\n", "");
    directives_are("#PBS -q 'open\n", "refused");
    directives_are("#PBS select=1\n", "refused");
    directives_are("#PBS -N mine\n", "refused");
    directives_are("#PBS -V\n", "refused");
    directives_are("#PBS -W depend=afterok:1\n", "refused");
    directives_are("#PBS -Wgroup_list=g\n", "<-Wgroup_list=g>");
    directives_are("#PBS -J 1-10\n", "refused");
}

static int links(const char *res_text, unsigned can, double estimate_s)
{
    const lf_site site = {.given = true};
    const lf_doc_stage stage = {.estimate_s = lf_real_of(estimate_s)};
    lf_resources res = resources_of(res_text);
    int n = lf_chain_count(&stage, &res, &site, can);
    lf_resources_fini(&res);
    return n;
}

static void test_links(void)
{
    const unsigned pbs = LF_CAN_BATCH | LF_CAN_DEPEND, slurm = pbs | LF_CAN_REQUEUE;
    tap_i64(links("{}", pbs, 0), 1, "no limit, one job");
    tap_i64(links("{\"time_limit_s\":3600}", pbs, 0), 2, "an unknown time: a second one");
    tap_i64(links("{\"time_limit_s\":3600,\"grace_s\":600}", pbs, 1000), 1, "one limit is enough");
    tap_i64(links("{\"time_limit_s\":3600,\"grace_s\":600}", pbs, 10000), 6,
            "5 are needed, and a spare one");
    tap_i64(links("{\"time_limit_s\":3600,\"grace_s\":600}", pbs, 1e9), LF_CHAIN_MOST,
            "never too many");
    tap_i64(links("{\"time_limit_s\":3600,\"links\":7}", pbs, 1e9), 7, "links = 7");
    tap_i64(links("{\"time_limit_s\":3600,\"links\":7,\"max_segments\":3}", pbs, 0), 3,
            "max_segments");
    tap_i64(links("{\"time_limit_s\":3600,\"max_walltime\":7201}", pbs, 1e9), 3, "max_walltime");
    tap_i64(links("{\"time_limit_s\":3600}", slurm, 1e9), 1, "SLURM requeues");
    tap_i64(links("{\"time_limit_s\":3600,\"chain\":\"links\",\"links\":4}", slurm, 0), 4,
            "unless links are wanted");
    tap_i64(links("{\"time_limit_s\":3600,\"links\":4}", 0, 0), 1, "nothing of this here");
    const lf_cost cost = {.flops_per_step = lf_real_of(1e9), .steps = lf_real_of(100)};
    tap_i64((int64_t)lf_chain_estimate_s(&cost, 1e8), 1000, "the time of a plan");
    tap_i64((int64_t)lf_chain_estimate_s(&cost, 0), 0, "no rate, no time");
}

int main(void)
{
    TAP(5, test_flavour());
    TAP(4, test_id());
    TAP(8, test_refusal());
    TAP(24, test_full());
    TAP(56, test_ends());
    TAP(7, test_clock());
    TAP(32, test_values());
    TAP(9, test_directives());
    TAP(13, test_links());
    return tap_done();
}
