/* SPDX-License-Identifier: Apache-2.0
 *
 * Every stage's options with class and default are those of stage_opts.txt, so that no default
 * changes unseen, and no name without the one before it: a default or a meaning that does change
 * raises the stage's spec_version. `stage_opts --print` writes the list anew; `stage_opts --by-
 * name STAGE` lists the options that fill no member, which the stage must read by their names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/str.h"
#include "stages/opts.h"
#include "tests/tap/tap.h"

/* "STAGE - spec_version N", then "STAGE OPTION CLASS DEFAULT [was NAME]" in the order of the table;
 * no default is "-". */
static void describe(lf_buf *b, const lf_opt_table *t)
{
    static const char *const classes[] = {"identity", "numeric", "operational"};
    lf_buf_addf(b, "%s - spec_version %d\n", t->stage, t->spec_version);
    for (size_t i = 0; i < t->n_opts; i++) {
        const lf_opt *o = &t->opts[i];
        const char *def = !o->def ? "-" : *o->def ? o->def : "\"\"";
        lf_buf_addf(b, "%s %s %s %s", t->stage, o->name, classes[o->cls], def);
        lf_buf_addf(b, o->was ? " was %s\n" : "\n", o->was);
    }
}

/* The next line of *at, as far as its end; *at moves behind it. */
static size_t next_line(const char **at, const char **line)
{
    const size_t n = strcspn(*at, "\n");
    *line = *at;
    *at += n + ((*at)[n] == '\n');
    return n;
}

/* One point for each stage: the first line that differs is shown. */
static void compare(const lf_opt_table *t, const char **want)
{
    lf_buf b;
    lf_buf_init(&b);
    describe(&b, t);
    const char *is = b.data, *a = "", *w = "";
    size_t n = 0, m = 0;
    bool same = true;
    while (same && *is) {
        n = next_line(&is, &a);
        m = next_line(want, &w);
        same = n == m && memcmp(a, w, n) == 0;
    }
    tap_ok(same, "lf-%s: options and defaults are as they were", t->stage);
    if (!same) {
        tap_diag("is  '%.*s'", (int)n, a);
        tap_diag("was '%.*s'", (int)m, w);
    }
    /* On to the next stage's first line. */
    const size_t name = strlen(t->stage);
    while (!same && **want && strncmp(*want, t->stage, name) == 0 && (*want)[name] == ' ')
        next_line(want, &w);
    lf_buf_fini(&b);
}

static int print(void)
{
    lf_buf b;
    lf_buf_init(&b);
    for (const lf_opt_table *const *t = lf_all_opts; *t; t++)
        describe(&b, *t);
    fputs(b.data, stdout);
    lf_buf_fini(&b);
    return 0;
}

static int by_name(const char *stage)
{
    for (const lf_opt_table *const *t = lf_all_opts; *t; t++)
        for (size_t i = 0; strcmp((*t)->stage, stage) == 0 && i < (*t)->n_opts; i++)
            if (!(*t)->opts[i].field.kind)
                puts((*t)->opts[i].name);
    return 0;
}

/* Tables that an optset can be made of: defaults are in range, values fit their members. */
static void loads(const lf_opt_table *t)
{
    lf_err err = LF_ERR_INIT;
    lf_optset *s = lf_optset_create(t, &err);
    tap_rc(s ? 0 : err.rc, 0, &err, NULL, t->stage);
    lf_optset_destroy(s);
}

/* An old name stands for one option, and for none of today's. */
static bool told_apart(const lf_opt_table *t)
{
    bool ok = true;
    for (size_t i = 0; i < t->n_opts; i++) {
        const lf_opt *o = &t->opts[i];
        ok = ok && (!o->was || (!lf_opt_find(t, o->was) && lf_opt_find_old(t, o->was) == o));
    }
    return ok;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--by-name") == 0)
        return by_name(argv[2]);
    if (argc == 2 && strcmp(argv[1], "--print") == 0)
        return print();
    lf_err err = LF_ERR_INIT;
    char path[4096];
    const char *src = getenv("LF_SRCDIR");
    lf_buf text;
    lf_buf_init(&text);
    snprintf(path, sizeof path, "%s/tests/unit/stage_opts.txt", src ? src : ".");
    if (lf_io_read_file(path, (size_t)1 << 20, &text, &err))
        tap_bail("%s", err.text);
    const char *want = text.data;
    for (const lf_opt_table *const *t = lf_all_opts; *t; t++)
        TAP(1, compare(*t, &want));
    for (const lf_opt_table *const *t = lf_all_opts; *t; t++)
        TAP(1, loads(*t));
    for (const lf_opt_table *const *t = lf_all_opts; *t; t++)
        TAP(1, tap_ok(told_apart(*t), "lf-%s: old names are free", (*t)->stage));
    tap_ok(*want == '\0', "and there is no other stage in the list");
    lf_buf_fini(&text);
    return tap_done();
}
