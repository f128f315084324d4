/* SPDX-License-Identifier: Apache-2.0
 *
 * opt.h: sources, types, ranges, repeats, refusals, reads, canonical text, help.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/opt.h"
#include "tests/tap/tap.h"

static const lf_opt opts[] = {
    {.name = "config", .type = LF_OPT_PATH, LF_OPT_COMMAND, .help = "read [stage] from this file"},
    {.name = "help", .type = LF_OPT_BOOL, LF_OPT_COMMAND, .def = "no", .help = "print this text"},
    {.name = "learning_rate",
     .type = LF_OPT_FLOAT,
     .cls = LF_OPT_IDENTITY,
     .def = "3e-4",
     .min = 1e-9,
     .max = 1,
     .help = "peak learning rate"},
    {.name = "steps",
     .type = LF_OPT_INT,
     .cls = LF_OPT_IDENTITY,
     .flags = LF_OPT_REQUIRED,
     .min = 1,
     .max = 1e9,
     .unit = "steps",
     .help = "how long to train"},
    {.name = "tokens",
     .type = LF_OPT_COUNT,
     .cls = LF_OPT_IDENTITY,
     .def = "1M",
     .unit = "tokens",
     .help = "batch"},
    {.name = "memory", .type = LF_OPT_BYTES, .cls = LF_OPT_OPERATIONAL, .help = "cap"},
    {.name = "save_every",
     .was = "save_time",
     .type = LF_OPT_DURATION,
     .cls = LF_OPT_OPERATIONAL,
     .def = "30m",
     .unit = "seconds",
     .help = "interval"},
    {.name = "optimizer",
     .type = LF_OPT_ENUM,
     .cls = LF_OPT_IDENTITY,
     .def = "adamw",
     .choices = "adamw|sgd",
     .help = "rule"},
    {.name = "bias", .type = LF_OPT_BOOL, .cls = LF_OPT_IDENTITY, .def = "yes", .help = "biases"},
    {.name = "data",
     .type = LF_OPT_PATH,
     .cls = LF_OPT_IDENTITY,
     .flags = LF_OPT_REPEAT | LF_OPT_INPUT,
     .help = "shards"},
    {.name = "name", .type = LF_OPT_STR, .cls = LF_OPT_OPERATIONAL, .help = "a text"},
};
static const char *const outputs[] = {"checkpoint", NULL};
static const lf_opt_table table = {"train", 1,     "trains", opts, sizeof opts / sizeof opts[0],
                                   outputs, false, NULL,     false};

static int argv_set(lf_optset *s, lf_err *err, char *a, char *b, char *c)
{
    char *argv[] = {NULL, a, b, c, NULL};
    char prog[] = "prog";
    argv[0] = prog;
    int argc = 1 + (a != NULL) + (b != NULL) + (c != NULL);
    return lf_optset_parse_argv(s, argc, argv, NULL, NULL, err);
}

/* One fresh set per refusal. */
static void refuse_argv(const char *a, const char *b, const char *c, const char *error)
{
    lf_err err = LF_ERR_INIT;
    lf_optset *s = lf_optset_create(&table, &err);
    char x[100], y[100], z[100];
    snprintf(x, sizeof x, "%s", a);
    snprintf(y, sizeof y, "%s", b ? b : "");
    snprintf(z, sizeof z, "%s", c ? c : "");
    tap_rc(argv_set(s, &err, x, b ? y : NULL, c ? z : NULL), LF_EINVAL, &err, error, error);
    lf_optset_destroy(s);
}

static void test_refusals(void)
{
    refuse_argv("--lerning-rate=1", NULL, NULL,
                "unknown option \"--lerning-rate\" for train; did you mean \"--learning-rate\"?");
    refuse_argv("--save-time=3m", NULL, NULL,
                "command line: \"--save-time\" of train is now called \"--save-every\"");
    refuse_argv("--zzzzzzzz", NULL, NULL,
                "unknown option \"--zzzzzzzz\" for train; --help lists them");
    refuse_argv("--learning-rate=2", NULL, NULL,
                "command line: learning_rate: \"2\" is outside 1e-09 to 1");
    refuse_argv("--learning-rate=fast", NULL, NULL, "\"fast\" is not a number");
    refuse_argv("--steps", NULL, NULL, "--steps needs a value");
    refuse_argv("--steps", "--bias", NULL, "--steps needs a value");
    refuse_argv("--steps=5", "--steps=6", NULL, "\"steps\" is given twice (command line)");
    refuse_argv("--optimizer=adam", NULL, NULL, "\"adam\" is none of adamw|sgd");
    refuse_argv("--bias=maybe", NULL, NULL, "\"maybe\" is neither yes nor no");
    refuse_argv("--no-steps", NULL, NULL, "only a yes/no option has a --no- form");
    refuse_argv("--no-bias=yes", NULL, NULL, "unknown option \"--no-bias\"");
    refuse_argv("--memory=17E", NULL, NULL, "memory: \"17E\" does not fit in 64 bits");
    refuse_argv("--tokens=17E", NULL, NULL, "does not fit in 64 bits");
    refuse_argv("--config=", NULL, NULL, "config: empty path");
    refuse_argv("--data=", NULL, NULL, "empty path");
    refuse_argv("word", NULL, NULL, "unexpected word \"word\"");
    refuse_argv("-x", NULL, NULL, "unknown option \"-x\"");
}

static void test_values(void)
{
    lf_err err = LF_ERR_INIT;
    lf_optset *s = lf_optset_create(&table, &err);
    char a[] = "--no-bias", b[] = "--save_every=2h30m", c[] = "--learning-rate";
    char d[] = "-h", e[] = "--steps", f[] = "7", g[] = "--memory=2G", h[] = "--", i[] = "--word",
         j[] = "1e-3";
    char prog[] = "p";
    char *argv[] = {prog, a, b, c, j, d, e, f, g, h, i, NULL}, **rest = NULL;
    int n = 0;
    tap_rc(lf_optset_check(s, &err), LF_EINVAL, &err, "train needs \"steps\": how long",
           "a required option");
    tap_rc(lf_optset_parse_argv(s, 11, argv, &rest, &n, &err), 0, &err, NULL, "a command line");
    tap_ok(n == 1 && rest && strcmp(rest[0], "--word") == 0, "the word behind --");
    free(rest);
    tap_rc(lf_optset_check(s, &err), 0, &err, NULL, "complete");
    tap_ok(!lf_optset_bool(s, "bias") && lf_optset_bool(s, "help"), "booleans");
    tap_i64(lf_optset_int(s, "save_every"), 9000, "duration");
    tap_i64(lf_optset_int(s, "tokens"), 1000000, "default count");
    tap_f64(lf_optset_float(s, "learning_rate"), 1e-3, 0, "float");
    tap_i64(lf_optset_choice(s, "optimizer"), 0, "default choice");
    tap_str(lf_optset_str(s, "optimizer"), "adamw", "choice as text");
    tap_ok(lf_optset_is_set(s, "bias") && !lf_optset_is_set(s, "tokens"), "given or default");
    tap_ok(lf_optset_str(s, "name") == NULL && !lf_optset_has_value(s, "name"), "unset");
    tap_str(lf_optset_unread(s), "steps", "nobody asked for steps");
    lf_optset_int(s, "steps");
    tap_str(lf_optset_unread(s), "memory", "nor for memory");
    tap_i64(lf_optset_int(s, "memory"), (int64_t)2 << 30, "bytes");
    tap_str(lf_optset_unread(s), NULL, "all read");
    lf_optset_destroy(s);
}

static void test_ini(void)
{
    lf_err err = LF_ERR_INIT;
    char path[1024], arg[1100];
    static const char text[] =
        "[stage]\nsteps = 10\ndata =\n  a\n  b c\nlearning_rate = 0.01\n[model]\nx = y\n";
    snprintf(path, sizeof path, "%s/c.ini", tap_tmpdir());
    snprintf(arg, sizeof arg, "--config=%s", path);
    lf_io_replace(path, text, strlen(text), 0644, &err);
    lf_optset *s = lf_optset_create(&table, &err);
    char a[] = "--steps=20", b[] = "--data=z";
    tap_rc(argv_set(s, &err, a, arg, b), 0, &err, NULL, "file and command line");
    tap_i64(lf_optset_int(s, "steps"), 20, "the command line wins");
    tap_f64(lf_optset_float(s, "learning_rate"), 0.01, 0, "the file's value");
    tap_i64((int64_t)lf_optset_count(s, "data"), 1, "a list is replaced as a whole");
    tap_str(lf_optset_str_at(s, "data", 0), "z", "by the command line's");
    tap_rc(lf_optset_set(s, "data", "y", "command line", &err), 0, &err, NULL, "repeat");
    tap_str(lf_optset_str_at(s, "data", 1), "y", "appended");
    tap_rc(lf_optset_set(s, "steps", "5", "x.ini:1:1", &err), 0, &err, NULL,
           "a lower source is dropped");
    tap_i64(lf_optset_int(s, "steps"), 20, "20 stays");
    tap_rc(lf_optset_set(s, "steps", "zero", "x.ini:1:1", &err), LF_EINVAL, &err,
           "x.ini:1:1: steps", "but checked");
    tap_rc(lf_optset_set(s, "help", "yes", "x.ini:2:1", &err), LF_EINVAL, &err,
           "option of the command line", "CLI only");
    tap_rc(lf_optset_set(s, "stepz", "1", "x.ini:3:1", &err), LF_EINVAL, &err,
           "x.ini:3:1: unknown key \"stepz\" for train; did you mean \"steps\"?", "nearest key");
    lf_optset_destroy(s);
    s = lf_optset_create(&table, &err);
    tap_rc(lf_optset_load_ini(s, path, "stage", &err), 0, &err, NULL, "the file alone");
    tap_i64((int64_t)lf_optset_count(s, "data"), 2, "one value per line");
    tap_str(lf_optset_str_at(s, "data", 1), "b c", "with its blank");
    tap_rc(lf_optset_load_ini(s, path, "stage", &err), LF_EINVAL, &err, "\"steps\" is given twice",
           "twice");
    tap_rc(lf_optset_load_ini(s, path, "Stage", &err), LF_EINVAL, &err, "no section [Stage]",
           "no section");
    lf_buf out;
    lf_buf_init(&out);
    tap_rc(lf_optset_print_ini(s, &out, &err), 0, &err, NULL, "print");
    tap_str(out.data,
            "[stage]\nlearning_rate = 0.01\nsteps = 10\ntokens = 1000000\nsave_every = "
            "1800\noptimizer = adamw\n"
            "bias = yes\ndata =\n    a\n    b c\n",
            "printed");
    lf_optset_set(s, "name", " x", "command line", &err);
    tap_rc(lf_optset_print_ini(s, &out, &err), LF_EINVAL, &err, "cannot be written as an INI value",
           "not representable");
    lf_buf_fini(&out);
    lf_optset_destroy(s);
}

static void canonical(const char *name, const char *value, const char *want)
{
    lf_err err = LF_ERR_INIT;
    lf_optset *s = lf_optset_create(&table, &err);
    lf_buf out;
    lf_buf_init(&out);
    lf_optset_set(s, name, value, "command line", &err);
    tap_rc(lf_optset_canonical(s, name, &out, &err), 0, &err, NULL, value);
    tap_str(out.data, want, "canonical");
    lf_buf_fini(&out);
    lf_optset_destroy(s);
}

static void test_canonical(void)
{
    canonical("learning_rate", "3e-4", "0.0003");
    canonical("learning_rate", "0.00030", "0.0003");
    canonical("learning_rate", "0.1", "0.1");
    canonical("learning_rate", "1.0", "1");
    canonical("learning_rate", "0.30000000000000004", "0.30000000000000004");
    canonical("tokens", "1.5k", "1500");
    canonical("tokens", "4ki", "4096");
    canonical("memory", "1k", "1024");
    canonical("save_every", "01:00:00", "3600");
    canonical("bias", "off", "no");
    canonical("steps", "007", "7");
    canonical("optimizer", "sgd", "sgd");
}

static void test_table(void)
{
    static const lf_opt bad[] = {
        {.name = "x", .type = LF_OPT_INT, .cls = LF_OPT_IDENTITY, .def = "many", .help = "x"}};
    static const lf_opt_table bad_table = {"bad", 1, "bad", bad, 1, outputs, false, NULL, false};
    lf_err err = LF_ERR_INIT;
    lf_buf out;
    tap_ok(!lf_optset_create(&bad_table, &err), "a table with a wrong default");
    tap_rc(err.rc, LF_EINVAL, &err, "table of bad: default of x: \"many\"", "says where");
    lf_buf_init(&out);
    lf_opt_help(&table, "lf-train", &out);
    tap_ok(strstr(out.data, "--learning-rate=X") && strstr(out.data, "default 3e-4"),
           "help has the default");
    tap_ok(strstr(out.data, "--[no-]bias") && strstr(out.data, "--optimizer=adamw|sgd"),
           "help has the forms");
    tap_ok(strstr(out.data, "(required; steps; 1 to 1000000000)") != NULL, "help has the range");
    lf_buf_fini(&out);
}

struct filled {
    int64_t steps;
    double rate, every; /* every: of a duration */
    uint32_t rule;
    bool bias, second;
    const char *name;
    lf_opt_list data;
    float small;
    int32_t keep;
};
#define FILLS(member) .field = LF_OPT_FIELD(struct filled, member)

static const lf_opt fields[] = {
    {.name = "steps", .type = LF_OPT_COUNT, FILLS(steps)},
    {.name = "rate", .type = LF_OPT_FLOAT, .def = "0.5", FILLS(rate)},
    {.name = "every", .type = LF_OPT_DURATION, .def = "2m", FILLS(every)},
    {.name = "rule", .type = LF_OPT_ENUM, .def = "c", .choices = "a|b|c", FILLS(rule)},
    {.name = "bias", .type = LF_OPT_BOOL, .def = "yes", FILLS(bias)},
    {.name = "order", .type = LF_OPT_ENUM, .def = "one", .choices = "one|two", FILLS(second)},
    {.name = "name", .type = LF_OPT_STR, FILLS(name)},
    {.name = "data", .type = LF_OPT_PATH, .flags = LF_OPT_REPEAT, FILLS(data)},
    {.name = "small", .type = LF_OPT_FLOAT, .def = "0.1", FILLS(small)},
    {.name = "keep", .type = LF_OPT_INT, .def = "2", .min = 1, .max = 9, FILLS(keep)},
    {.name = "other", .type = LF_OPT_INT},
};

static void test_fill(void)
{
    static const lf_opt_table t = {
        .stage = "fill", .opts = fields, .n_opts = sizeof fields / sizeof fields[0]};
    lf_err err = LF_ERR_INIT;
    struct filled f = {.steps = 77, .name = "before"};
    lf_optset *s = lf_optset_create(&t, &err);
    lf_optset_fill(s, &f);
    tap_ok(f.steps == 77 && strcmp(f.name, "before") == 0 && f.data.n == 0,
           "what has no value stays as it was, a list is empty");
    tap_ok(f.rate == 0.5 && f.every == 120 && f.rule == 2 && f.bias && !f.second &&
               f.small == 0.1f && f.keep == 2,
           "defaults are filled in");
    tap_str(lf_optset_given(s, &f.rate), NULL, "a default is not given");
    tap_rc(lf_optset_set(s, "data", "x", "command line", &err), 0, &err, NULL, "a value");
    tap_rc(lf_optset_set(s, "data", "y", "command line", &err), 0, &err, NULL, "two values");
    tap_rc(lf_optset_set(s, "order", "two", "command line", &err), 0, &err, NULL, "a choice");
    tap_rc(lf_optset_set(s, "name", "z", "command line", &err), 0, &err, NULL, "a text");
    lf_optset_fill(s, &f);
    tap_ok(f.data.n == 2 && strcmp(f.data.v[1], "y") == 0 && f.second, "filled in again");
    tap_ok(f.name == lf_optset_str(s, "name"), "a text is borrowed");
    tap_str(lf_optset_given(s, &f.second), "order", "the option that fills a member, when given");
    tap_str(lf_optset_unread(s), NULL, "all of them are read");
    lf_optset_unused(s, &f.second);
    tap_str(lf_optset_unread(s), "order", "but for one without effect");
    lf_optset_destroy(s);
}

/* Rows whose values their members do not take. */
static void test_misfits(void)
{
    static const lf_opt bad[] = {
        {.name = "range", .type = LF_OPT_INT, .max = 1e10, FILLS(keep)},
        {.name = "no range", .type = LF_OPT_COUNT, FILLS(keep)},
        {.name = "type", .type = LF_OPT_FLOAT, FILLS(steps)},
        {.name = "text", .type = LF_OPT_INT, .max = 5, FILLS(name)},
        {.name = "three choices", .type = LF_OPT_ENUM, .choices = "a|b|c", FILLS(bias)},
        {.name = "no list", .type = LF_OPT_STR, .flags = LF_OPT_REPEAT, FILLS(name)},
        {.name = "a list", .type = LF_OPT_STR, FILLS(data)},
        {.name = "negative", .type = LF_OPT_INT, .min = -1, .max = 5, FILLS(rule)},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const lf_opt_table t = {.stage = "bad", .opts = &bad[i], .n_opts = 1};
        lf_err err = LF_ERR_INIT;
        lf_optset *s = lf_optset_create(&t, &err);
        tap_ok(!s && err.rc == LF_EINVAL && strstr(err.text, "does not fit its member"),
               "a table is refused: %s", bad[i].name);
        lf_optset_destroy(s);
    }
}

int main(void)
{
    TAP(18, test_refusals());
    TAP(16, test_values());
    TAP(20, test_ini());
    TAP(24, test_canonical());
    TAP(5, test_table());
    TAP(12, test_fill());
    TAP(8, test_misfits());
    return tap_done();
}
