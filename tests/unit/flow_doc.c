/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan document: what is read is written again to the byte, members of other versions included;
 * stages by name; what makes no difference to a revision; refusals that name file and member.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/str.h"
#include "flow/record/doc.h"
#include "tests/tap/tap.h"

#define MAX_BYTES ((size_t)1 << 20)

#define SPEC(more)                                                                                 \
    "\"spec\":{\"inputs\":{},\"kind\":\"work\",\"options\":{},\"spec_version\":2" more "}"
#define REST "\"identity\":{},\"numeric\":{},\"operational\":{},\"options\":{},\"types\":{},"
#define SMALL(name)                                                                                \
    "{\"name\":\"" name "\",\"kind\":\"work\",\"spec_id\":\"id-" name                              \
    "\",\"deps\":[],\"inputs\":[],\"outputs\":[]," REST SPEC("") "}"
#define DOC(stages) "{\"name\":\"n\",\"data_dir\":\"d\",\"stages\":[" stages "]}"

/* Every member there is, and one that nobody knows in each object. */
static const char everything[] =
    "{\"lf_plan\":1,\"run\":\"r\",\"rev\":3,\"project_id\":\"p\",\"created\":1700000000.25,"
    "\"user\":\"u\",\"host\":\"h\",\"version\":\"v\",\"name\":\"n\",\"description\":\"\\u00fc\","
    "\"data_dir\":\"d\",\"scheduler\":\"slurm\",\"share\":\"none\",\"pipeline\":\"p.ini\","
    "\"jobs\":2,\"isolated\":true,\"later\":[1,{\"a\":null}],"
    "\"loong_flow\":{\"path\":\"loong-flow\",\"sha256\":\"00\",\"later\":1},"
    "\"site\":{\"poll_s\":60,\"timeout_s\":60,\"grace_lost_s\":270,\"settle_s\":3,"
    "\"submit_wait_s\":120,\"commands\":{\"sbatch\":\"/a\",\"squeue\":\"/b\"},\"chain\":\"auto\","
    "\"launcher\":\"srun\",\"templates\":\"/t\",\"exclude\":[\"n1\"],\"trust\":[],\"later\":0.5},"
    "\"stages\":[" SMALL(
        "one") ",{\"name\":\"two\",\"kind\":\"work\",\"spec_version\":2,"
               "\"path\":\"/"
               "p.ini\",\"line\":7,\"column\":1,\"options\":{\"b\":[\"1\",\"2\"],\"a\":[]},"
               "\"types\":{\"b\":\"path\"},\"identity\":{\"b\":\"1\"},\"numeric\":{},"
               "\"operational\":{},"
               "\"inputs\":[{\"option\":\"b\",\"index\":0,\"text\":\"${stage:one}\",\"refs\":[{"
               "\"stage\":"
               "\"one\",\"output\":\"result\",\"later\":1}],\"identity\":true,\"word\":false,"
               "\"later\":1}],"
               "\"after\":[],\"deps\":[\"one\"],\"outputs\":[\"result\"],\"any_output\":true,"
               "\"carry\":[[\"step-*\",false],[\"rows\",true]],\"model\":{\"layers\":\"2\"},"
               "\"time_limit_s\":9223372036854775807,\"memory_bytes\":1,\"grace_s\":0,\"rerun_on\":"
               "\"exe\","
               "\"resources\":{\"nodes\":1,\"ranks\":2,\"cpus\":3,\"gpus\":{\"n\":0,\"type\":\"a\","
               "\"later\":1},\"gpu_memory\":5,\"partition\":\"p\",\"account\":\"a\",\"qos\":\"q\","
               "\"constraint\":\"c\",\"reservation\":\"r\",\"mail\":\"m\",\"launcher\":\"l\","
               "\"chain\":\"links\",\"exclusive\":false,\"mail_type\":[\"end\"],\"modules\":[\"x\","
               "\"y\"],"
               "\"prologue\":[\"\"],\"extra\":[\"--x\"],\"rank_prefix\":[\"nice\"],\"links\":4,"
               "\"max_segments\":1,\"max_walltime\":2,\"stall_segments\":3,\"retries\":0,\"memory_"
               "max\":6,"
               "\"time_max\":7,\"later\":{}}," SPEC(
                   ",\"model\":{},\"later\":1") ",\"spec_id\":\"id-two\","
                                                "\"exe\":{\"path\":\"lf-work\",\"sha256\":\"00\"},"
                                                "\"adopted\":{\"run\":\"r0\",\"stage\":\"s\","
                                                "\"attempt\":1,\"epoch\":2,\"spec_id\":\"id-two\","
                                                "\"later\":1},\"plan\":{\"steps\":10,"
                                                "\"flops\":1e20},\"estimate_s\":5,\"later\":null}]"
                                                "}";

static const char *put(const char *text)
{
    static char path[4096];
    lf_err err = LF_ERR_INIT;
    snprintf(path, sizeof path, "%s/given.json", tap_tmpdir());
    if (lf_io_replace(path, text, strlen(text), 0644, &err) < 0)
        tap_bail("%s", err.text);
    return path;
}

static lf_doc *load(const char *text)
{
    lf_doc *d = NULL;
    lf_err err = LF_ERR_INIT;
    if (lf_doc_load(&d, put(text), &err) < 0)
        tap_bail("%s", err.text);
    return d;
}

/* The same text in the form that records have. */
static char *canonical(const char *text)
{
    lf_err err = LF_ERR_INIT;
    json_t *o = lf_json_load_text(text, strlen(text), "text", &err);
    char *out = o != NULL ? lf_json_dump(o, &err) : NULL;
    if (out == NULL)
        tap_bail("%s", err.text);
    json_decref(o);
    return out;
}

static void test_bytes(void)
{
    lf_err err = LF_ERR_INIT;
    lf_buf b;
    lf_buf_init(&b);
    char path[4096], *want = canonical(everything);
    lf_doc *d = load(everything), *copy = lf_doc_copy(d, &err);
    tap_ok(copy != NULL && lf_doc_same(d, copy), "a copy is the same");
    lf_doc_free(d);
    tap_rc(lf_doc_write(copy, tap_tmpdir(), &err), 0, &err, NULL, "written");
    snprintf(path, sizeof path, "%s/plan.json", tap_tmpdir());
    tap_rc(lf_io_read_file(path, MAX_BYTES, &b, &err), 0, &err, NULL, "read");
    tap_str(b.data, want, "a copy of what was read is written as it was, unknown members too");
    tap_rc(lf_doc_write(copy, tap_tmpdir(), &err), LF_EEXIST, &err, NULL, "once");
    lf_doc_free(copy);
    lf_buf_fini(&b);
    free(want);
}

static void test_values(void)
{
    lf_doc *d = load(everything);
    const lf_doc_stage *two = lf_doc_find(d, "two");
    tap_ok(two == &d->stages.v[1] && lf_doc_find(d, "one") == &d->stages.v[0], "stages by name");
    tap_ok(lf_doc_find(d, "three") == NULL && lf_doc_find(d, NULL) == NULL &&
               lf_doc_find(NULL, "one") == NULL,
           "and none that is not there");
    tap_i64(two->time_limit_s.v, INT64_MAX, "a number of 63 bits");
    tap_ok(two->resources.retries.given && two->resources.retries.v == 0, "nought is given");
    tap_ok(!two->resources.memory_bytes.given && two->resources.exclude.n == 0,
           "what is not there is not given");
    tap_ok(two->resources.exclusive.given && !two->resources.exclusive.v, "no is given");
    tap_str(lf_lists_get(&two->options, "b")->v[1], "2", "values of an option");
    tap_str(lf_pairs_get(&d->site.commands, "squeue"), "/b", "a command");
    tap_ok(two->carry.n == 2 && !two->carry.v[0].grows.v && two->carry.v[1].grows.v, "carry");
    tap_f64(two->estimate_s.v, 5, 0, "an integer where numbers are");
    lf_doc *other = lf_doc_hold(d);
    lf_doc_free(d);
    tap_str(other->name, "n", "it lives as long as somebody holds it");
    lf_doc_free(other);
}

static void test_same(void)
{
    static const struct {
        const char *text, *name;
        bool same;
    } rows[] = {
        {DOC(SMALL("a")), "the same", true},
        {"{\"user\":\"x\",\"created\":5,\"name\":\"n\",\"data_dir\":\"d\",\"stages\":[" SMALL(
             "a") "]}",
         "who made it, and when", true},
        {"{\"jobs\":2,\"name\":\"n\",\"data_dir\":\"d\",\"stages\":[" SMALL("a") "]}",
         "another setting", false},
        {"{\"later\":2,\"name\":\"n\",\"data_dir\":\"d\",\"stages\":[" SMALL("a") "]}",
         "an unknown member", false},
        {DOC(SMALL("a") "," SMALL("b")), "one stage more", false},
    };
    lf_doc *d = load(DOC(SMALL("a")));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lf_doc *e = load(rows[i].text);
        tap_i64(lf_doc_same(d, e), rows[i].same, rows[i].name);
        lf_doc_free(e);
    }
    lf_doc_free(d);
}

static void test_refusals(void)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"[]", "given.json: must be an object"},
        {"{\"data_dir\":\"d\",\"stages\":[]}", "given.json: name: is missing"},
        {"{\"name\":null,\"data_dir\":\"d\",\"stages\":[]}", "given.json: name: is missing"},
        {"{\"name\":\"n\",\"data_dir\":\"d\",\"stages\":{}}", "stages: must be a list"},
        {"{\"name\":\"n\",\"data_dir\":\"d\",\"jobs\":\"2\",\"stages\":[]}",
         "given.json: jobs: must be an integer"},
        {"{\"name\":\"n\",\"data_dir\":\"d\",\"isolated\":1,\"stages\":[]}",
         "isolated: must be true or false"},
        {"{\"name\":\"n\",\"data_dir\":\"d\",\"site\":{\"commands\":{\"a\":1}},\"stages\":[]}",
         "site.commands: must be an object of texts"},
        {DOC(SMALL("a") ",{\"name\":\"b\"}"), "given.json: stages[1].kind: is missing"},
        {DOC("{\"name\":\"b\",\"kind\":\"k\"," REST SPEC(
             "") ",\"spec_id\":\"i\",\"deps\":[1],\"inputs\":[],\"outputs\":[]}"),
         "stages[0].deps: must be a list of texts"},
        {DOC("{\"name\":\"b\",\"kind\":\"k\"," REST SPEC(
             "") ",\"spec_id\":\"i\",\"deps\":[],\"inputs\":[{\"option\":\"o\",\"text\":\"t\"}],"
                 "\"outputs\":[]}"),
         "stages[0].inputs[0].refs: is missing"},
        {DOC("{\"name\":\"b\",\"kind\":\"k\"," REST SPEC(
             "") ",\"spec_id\":\"i\",\"deps\":[],\"inputs\":[],\"outputs\":[],\"carry\":[[\"x\"]]"
                 "}"),
         "stages[0].carry[0]: must be a list of its fields"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lf_doc *d = NULL;
        lf_err err = LF_ERR_INIT;
        tap_rc(lf_doc_load(&d, put(rows[i].text), &err), LF_EFORMAT, &err, rows[i].message,
               rows[i].message);
        tap_ok(d == NULL, "and nothing is left");
    }
}

int main(void)
{
    test_bytes();
    test_values();
    test_same();
    test_refusals();
    return tap_done();
}
