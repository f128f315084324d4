/* SPDX-License-Identifier: Apache-2.0
 *
 * Canonical texts of option values and the text of --help.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/opt_priv.h"

/* The shortest decimal that reads back to the same double. */
static void add_float(lf_buf *out, double v)
{
    char text[40];
    if (v == 0)
        v = 0; /* -0 and 0 are the same setting */
    for (int digits = 1; digits <= 17; digits++) {
        double back = 0;
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (lf_parse_f64(&back, text, NULL) == 0 && back == v)
            break;
    }
    lf_buf_adds(out, text);
}

static int add_value(const lf_opt *o, const char *text, lf_buf *out, lf_err *err)
{
    int64_t i = 0;
    double f = 0;
    bool b = false;
    int rc = 0;
    switch (o->type) {
    case LF_OPT_STR:
    case LF_OPT_PATH:
    case LF_OPT_ENUM:
        lf_buf_adds(out, text);
        return 0;
    case LF_OPT_BOOL:
        rc = lf_parse_bool(&b, text, err);
        lf_buf_adds(out, b ? "yes" : "no");
        return rc;
    case LF_OPT_FLOAT:
        rc = lf_parse_f64(&f, text, err);
        if (rc == 0)
            add_float(out, f);
        return rc;
    case LF_OPT_INT:
        rc = lf_parse_i64(&i, text, err);
        break;
    case LF_OPT_COUNT:
        rc = lf_parse_count(&i, text, err);
        break;
    case LF_OPT_BYTES:
        rc = lf_parse_bytes(&i, text, err);
        break;
    case LF_OPT_DURATION:
        rc = lf_parse_duration(&i, text, err);
        break;
    }
    if (rc == 0)
        lf_buf_addf(out, "%" PRId64, i);
    return rc;
}

int lf_optset_canonical(const lf_optset *s, const char *name, lf_buf *out, lf_err *err)
{
    const struct lf_opt_val *v = lf_optset_val(s, name);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < v->n; i++) {
        if (i)
            lf_buf_addc(out, '\n');
        rc = add_value(&s->t->opts[v - s->vals], v->texts[i], out, err);
    }
    return rc < 0 ? rc : lf_buf_check(out, err);
}

/* Would the reader give this line of a value back as it is? */
static bool survives_ini(const char *p, size_t len, bool continued)
{
    if (len == 0)
        return !continued;
    if (strchr(" \t", p[0]) || strchr(" \t\r", p[len - 1]))
        return false;
    return !continued || (p[0] != '#' && p[0] != ';');
}

int lf_optset_print_ini(const lf_optset *s, lf_buf *out, lf_err *err)
{
    int rc = 0;
    lf_buf text;
    lf_buf_init(&text);
    lf_buf_adds(out, "[stage]\n");
    for (size_t i = 0; rc == 0 && i < s->t->n_opts; i++) {
        const lf_opt *o = &s->t->opts[i];
        if ((o->flags & LF_OPT_CLI_ONLY) || s->vals[i].n == 0)
            continue;
        lf_buf_clear(&text);
        if ((rc = lf_optset_canonical(s, o->name, &text, err)) < 0)
            break;
        lf_buf_addf(out, "%s =", o->name);
        const char *sep = s->vals[i].n > 1 || strchr(text.data, '\n') ? "\n    " : " ";
        for (const char *p = text.data; rc == 0 && p && *p;) {
            const char *nl = strchr(p, '\n');
            size_t len = nl ? (size_t)(nl - p) : strlen(p);
            if (!survives_ini(p, len, sep[0] == '\n'))
                rc = lf_fail(
                    err, LF_EINVAL,
                    "%s: \"%.*s\" cannot be written as an INI value (blanks at an end, an empty "
                    "line, or # or ; at the start of a line)",
                    o->name, (int)(len < 200 ? len : 200), p);
            lf_buf_adds(out, sep);
            lf_buf_add(out, p, len);
            p = nl ? nl + 1 : NULL;
        }
        lf_buf_addc(out, '\n');
    }
    lf_buf_fini(&text);
    return rc < 0 ? rc : lf_buf_check(out, err);
}

static const char *type_word(enum lf_opt_type t)
{
    switch (t) {
    case LF_OPT_STR:
        return "TEXT";
    case LF_OPT_PATH:
        return "PATH";
    case LF_OPT_INT:
        return "N";
    case LF_OPT_COUNT:
        return "COUNT";
    case LF_OPT_BYTES:
        return "BYTES";
    case LF_OPT_DURATION:
        return "TIME";
    case LF_OPT_FLOAT:
        return "X";
    default:
        return "";
    }
}

enum { HELP_COLUMN = 30 };

void lf_opt_help_line(const lf_opt *o, lf_buf *out)
{
    size_t start = out->len;
    lf_buf_adds(out,
                o->type == LF_OPT_BOOL && !(o->flags & LF_OPT_CLI_ONLY) ? "  --[no-]" : "  --");
    for (const char *p = o->name; *p; p++)
        lf_buf_addc(out, *p == '_' ? '-' : *p);
    if (o->type == LF_OPT_ENUM)
        lf_buf_addf(out, "=%s", o->choices);
    else if (o->type != LF_OPT_BOOL)
        lf_buf_addf(out, "=%s", type_word(o->type));
    if (out->len - start + 2 > HELP_COLUMN)
        lf_buf_addf(out, "\n%*s", HELP_COLUMN, "");
    else
        lf_buf_addf(out, "%*s", (int)(HELP_COLUMN - (out->len - start)), "");
    lf_buf_adds(out, o->help);
    const char *sep = " (";
    if (o->flags & LF_OPT_REQUIRED) {
        lf_buf_addf(out, "%srequired", sep);
        sep = "; ";
    }
    if (o->flags & LF_OPT_REPEAT) {
        lf_buf_addf(out, "%smay repeat", sep);
        sep = "; ";
    }
    if (o->unit) {
        lf_buf_addf(out, "%s%s", sep, o->unit);
        sep = "; ";
    }
    if (o->min != 0 || o->max != 0) {
        lf_buf_addf(out, "%s%.15g to %.15g", sep, o->min, o->max);
        sep = "; ";
    }
    if (o->def && !(o->type == LF_OPT_BOOL && (o->flags & LF_OPT_CLI_ONLY))) {
        lf_buf_addf(out, "%sdefault %s", sep, o->def[0] ? o->def : "empty");
        sep = "; ";
    }
    lf_buf_adds(out, sep[0] == ';' ? ")\n" : "\n");
}

/* Every table has the row in common with which this group begins; it is of least interest. */
static const char running[] = "running";

const char *lf_opt_group(const lf_opt_table *t, size_t i)
{
    if (t->opts[i].flags & LF_OPT_CLI_ONLY)
        return "command line";
    for (size_t k = i + 1; k-- > 0;)
        if (t->opts[k].group)
            return t->opts[k].group;
    return running;
}

bool lf_opt_group_begins(const lf_opt_table *t, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(lf_opt_group(t, k), lf_opt_group(t, i)) == 0)
            return false;
    return true;
}

static void help_group(const lf_opt_table *t, const char *group, lf_buf *out)
{
    lf_buf_addf(out, "\n%c%s:\n", toupper((unsigned char)group[0]), group + 1);
    for (size_t i = 0; i < t->n_opts; i++)
        if (strcmp(lf_opt_group(t, i), group) == 0)
            lf_opt_help_line(&t->opts[i], out);
}

void lf_opt_help(const lf_opt_table *t, const char *program, lf_buf *out)
{
    lf_buf_addf(out,
                "Usage: %s [options]\n%s\n\nOptions, but those of the command line, are also keys "
                "of [stage] (with _ for -).\n",
                program, t->summary);
    for (size_t i = 0; i < t->n_opts; i++)
        if (!(t->opts[i].flags & LF_OPT_CLI_ONLY) && lf_opt_group_begins(t, i) &&
            strcmp(lf_opt_group(t, i), running) != 0)
            help_group(t, lf_opt_group(t, i), out);
    help_group(t, running, out);
    help_group(t, "command line", out);
    lf_buf_adds(out, "\nExample: a file with [stage] and the options, and\n    ");
    lf_buf_addf(out, "%s --config FILE --out DIR\n", program);
    lf_buf_adds(out,
                "\nExit status: 0 done, 1 failed, 2 usage, 75 stopped at a good checkpoint.\n");
}
