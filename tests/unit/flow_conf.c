/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers, references and ownership of configuration; the plan document of a pipeline and its spec
 * ids.
 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "flow/plan/conf.h"
#include "flow/plan/pipeline.h"
#include "flow/plan/spec.h"
#include "tests/flow/fake.h"
#include "tests/tap/tap.h"

static char path[PATH_MAX];

static const char *put(const char *name, const char *text)
{
    snprintf(path, sizeof path, "%s/%s", tap_tmpdir(), name);
    tap_rc(lf_io_replace(path, text, strlen(text), 0644, NULL), 0, NULL, NULL, name);
    return path;
}

static void test_owner(void)
{
    const uid_t trusted[] = {2000, 2001};
    static const struct {
        uid_t owner;
        mode_t mode;
        bool want;
        const char *name;
    } rows[] = {
        {1000, 0644, true, "mine"},
        {0, 0644, true, "root's"},
        {2001, 0644, true, "a trusted user's"},
        {3000, 0644, false, "a stranger's"},
        {1000, 0646, false, "mine, open to all"},
        {0, 0666, false, "root's, open to all"},
        {1000, 0664, true, "mine, open to my group"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *why = NULL;
        tap_ok(lf_owner_allowed(rows[i].owner, rows[i].mode, 1000, trusted, 2, &why) ==
                   rows[i].want,
               "owner: %s", rows[i].name);
        tap_ok((why != NULL) == !rows[i].want, "a refusal has a reason");
    }
}

static void test_secrets(void)
{
    static const char *const secret[] = {"HF_TOKEN", "hf_token",         "AWS_SECRET_ACCESS_KEY",
                                         "api_key",  "DB_PASSWORD_FILE", "TOKEN"};
    static const char *const plain[] = {"HOME", "tokens", "keyboard", "PATH", "max_tokens"};
    for (size_t i = 0; i < sizeof secret / sizeof secret[0]; i++)
        tap_ok(lf_name_is_secret(secret[i]), "%s is a secret", secret[i]);
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        tap_ok(!lf_name_is_secret(plain[i]), "%s is none", plain[i]);
}

static void test_references(void)
{
    lf_err err = LF_ERR_INIT;
    lf_conf c;
    setenv("LF_TEST_DIR", "/data", 1);
    const char *p = put(
        "refs.ini",
        "[vars]\na = 1${vars.b}3\nb = 2\nlit = $${vars.b} $5 ${env.LF_TEST_DIR}/x\n"
        "[model qwen2.5]\nhidden = 64\n[stage s]\nx = ${model qwen2.5.hidden} ${stage:t.out}\n");
    lf_conf_args args = {.pipeline_path = p};
    tap_rc(lf_conf_load(&c, &args, &err), 0, &err, NULL, "load");
    tap_rc(lf_conf_resolve(&c, &err), 0, &err, NULL, "resolve");
    tap_str(lf_conf_get(&c, "vars", "a", ""), "123", "a reference inside a value");
    tap_str(lf_conf_get(&c, "vars", "lit", ""), "${vars.b} $5 /data/x",
            "escape, lone dollar, environment");
    tap_str(lf_conf_get(&c, "stage s", "x", ""), "64 ${stage:t.out}",
            "a section with blank and dot; stages stay");
    lf_conf_item *it = lf_conf_find(&c, "vars", "b");
    tap_i64(it->line, 3, "line of a value");
    tap_i64(it->column, 5, "column of a value");
    lf_conf_fini(&c);

    p = put("deep.ini", "[vars]\na = ${vars.nothing\n");
    tap_rc(lf_conf_load(&c, &args, &err), 0, &err, NULL, "load");
    tap_rc(lf_conf_resolve(&c, &err), LF_EINVAL, &err, "no closing brace", "an open reference");
    lf_conf_fini(&c);
    p = put("self.ini", "[vars]\na = ${vars.a}\n");
    tap_rc(lf_conf_load(&c, &args, &err), 0, &err, NULL, "load");
    tap_rc(lf_conf_resolve(&c, &err), LF_EINVAL, &err, "vars.a -> vars.a", "a reference to itself");
    lf_conf_fini(&c);
    (void)p;
}

static void test_sets(void)
{
    lf_err err = LF_ERR_INIT;
    lf_conf c;
    const char *p = put("sets.ini", "[stage train]\nkind = work\nsteps = 5\n");
    const char *good[] = {"train.steps=7", "vars.x=a=b"};
    lf_conf_args args = {.pipeline_path = p, .sets = good, .n_sets = 2};
    tap_rc(lf_conf_load(&c, &args, &err), 0, &err, NULL, "--set");
    tap_str(lf_conf_get(&c, "stage train", "steps", ""), "7", "a stage by its name");
    tap_str(lf_conf_get(&c, "vars", "x", ""), "a=b", "a value with an equals sign");
    tap_str(lf_conf_find(&c, "stage train", "steps")->layer, "--set", "its layer");
    lf_conf_fini(&c);
    static const char *const bad[] = {"steps", "steps=5", ".x=1", "train.=1", "=", ""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        args.sets = &bad[i];
        args.n_sets = 1;
        tap_rc(lf_conf_load(&c, &args, &err), LF_EINVAL, &err, "section.key=value", bad[i]);
    }
}

/* The spec id of the first stage of a pipeline text. */
static void spec_of(char out[65], const char *text)
{
    lf_err err = LF_ERR_INIT;
    lf_pipeline p;
    lf_pipeline_args a = {.path = put("spec.ini", text), .tables = lf_fake_tables};
    out[0] = '\0';
    tap_rc(lf_pipeline_load(&p, &a, &err), 0, &err, NULL, "pipeline");
    if (p.plan == NULL)
        return;
    tap_rc(lf_spec_assign(p.plan, p.project, NULL, &err), 0, &err, NULL, "spec ids");
    snprintf(out, 65, "%s", p.plan->stages.v[0].spec_id);
    lf_pipeline_fini(&p);
}

static void test_specs(void)
{
    char ref[65], other[65];
    put("data.txt", "some text");
    put("same.txt", "some text");
    put("other.txt", "other text");
#define BASE "[stage a]\nkind = work\ninput = data.txt\nsteps = 100\nfactor = 1.25\n"
    spec_of(ref, BASE);
    tap_i64((int64_t)strlen(ref), 64, "a spec id is a SHA-256");
    static const struct {
        const char *text, *name;
        bool same;
    } rows[] = {
        {"[stage renamed]\nkind = work\ninput = data.txt\nsteps = 100\nfactor = 1.25\n",
         "another stage name", true},
        {"[stage a]\nkind = work\nfactor = 125e-2\nsteps = 0.1k\ninput = data.txt\n",
         "other order and notation", true},
        {"[stage a]\nkind = work\ninput = same.txt\nsteps = 100\nfactor = 1.25\n",
         "another file of the same contents", true},
        {BASE "step_time = 99\n", "an operational option", true},
        {BASE "mode = invariant\n", "a numeric option", true},
        {BASE "time_limit = 1h\n", "a limit", true},
        {"[stage a]\nkind = work\ninput = other.txt\nsteps = 100\nfactor = 1.25\n",
         "other contents", false},
        {"[stage a]\nkind = work\ninput = data.txt\nsteps = 101\nfactor = 1.25\n",
         "another identity option", false},
        {BASE "[model]\nlayers = 2\n", "a model", false},
        {"[stage a]\nkind = work\ninput = data.txt\n    same.txt\nsteps = 100\nfactor = 1.25\n",
         "one input more", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        spec_of(other, rows[i].text);
        tap_ok((strcmp(ref, other) == 0) == rows[i].same, "%s %s the spec id", rows[i].name,
               rows[i].same ? "keeps" : "changes");
    }
    spec_of(ref, "[stage a]\nkind = work\n");
    spec_of(other, "[stage a]\nkind = work\nsteps = 5\n");
    tap_str(other, ref, "a default that is written out is the default");
}

/* More names than a table begins with, and pairs that read alike. */
static void test_names(void)
{
    lf_names t = {NULL, 0, 0};
    static char text[1000][8];
    int wrong = 0;
    tap_ok(lf_names_find(&t, "a", "") == LF_NAMES_NONE, "an empty table has no names");
    for (size_t i = 0; i < 1000; i++) {
        snprintf(text[i], sizeof text[i], "s%zu", i);
        wrong += lf_names_put(&t, text[i], i % 2 == 0 ? "" : "key", i, NULL) < 0;
    }
    for (size_t i = 0; i < 1000; i++)
        wrong += lf_names_find(&t, text[i], i % 2 == 0 ? "" : "key") != i ||
                 lf_names_find(&t, text[i], i % 2 == 0 ? "key" : "") != LF_NAMES_NONE;
    tap_ok(wrong == 0, "a thousand names are found, and only they");
    lf_names_put(&t, "ab", "c", 1, NULL);
    tap_ok(lf_names_find(&t, "a", "bc") == LF_NAMES_NONE, "the border of a pair counts");
    lf_names_put(&t, "ab", "c", 2, NULL);
    tap_ok(lf_names_find(&t, "ab", "c") == 1, "a name keeps its first place");
    lf_names_fini(&t);
}

int main(void)
{
    setenv("LF_SITE_CONFIG", "", 1);
    setenv("LF_USER_CONFIG", "", 1);
    TAP(14, test_owner());
    TAP(11, test_secrets());
    TAP(14, test_references());
    TAP(11, test_sets());
    TAP(54, test_specs());
    TAP(4, test_names());
    return tap_done();
}
