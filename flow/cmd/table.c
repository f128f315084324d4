/* SPDX-License-Identifier: Apache-2.0
 *
 * Aligned text tables: which columns, how wide, and text that a terminal may be
 * given.
 */
#include "config.h"

#include "flow/cmd/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"

enum { MAX_COLS = 256, MAX_WIDTH = 1000, MAX_SPEC = 4096 };

/* A chosen column. */
struct use {
    const lf_column *col;
    size_t width; /* on the screen */
    bool fixed;   /* width was given: longer texts are cut */
    bool right;
};

static void print_safe_to(FILE *f, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++) {
        bool c1 = p[0] == 0xC2 && p[1] >= 0x80 && p[1] < 0xA0; /* U+0080..U+009F, controls too */
        putc((*p < 0x20 && *p != '\n' && *p != '\t') || *p == 0x7F || c1 ? '?' : *p, f);
        if (c1)
            p++;
    }
}

void lf_print_safe(const char *text)
{
    print_safe_to(stdout, text);
}

static void say_v(FILE *f, const char *fmt, va_list ap)
{
    char *text = NULL;
    if (vasprintf(&text, fmt, ap) >= 0)
        print_safe_to(f, text);
    free(text);
}

void lf_say(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say_v(stdout, fmt, ap);
    va_end(ap);
}

void lf_say_err(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say_v(stderr, fmt, ap);
    va_end(ap);
}

/* ---- colour ---- */

bool lf_colour(void)
{
    return lf_wants_colour(1);
}

const char *lf_state_colour(const char *state)
{
    static const char *const map[][2] = {{"done", "32"},      {"running", "36"}, {"failed", "31"},
                                         {"cancelled", "35"}, {"unknown", "33"}, {"purged", "33"},
                                         {"pending", "34"}};
    for (size_t i = 0; i < sizeof map / sizeof map[0]; i++)
        if (strcmp(state, map[i][0]) == 0)
            return map[i][1];
    return "2";
}

size_t lf_screen_width(void)
{
    struct winsize w;
    int64_t n = 0;
    if (ioctl(1, TIOCGWINSZ, &w) == 0 && w.ws_col > 20)
        return w.ws_col;
    const char *env = getenv("COLUMNS");
    return env != NULL && lf_parse_i64(&n, env, NULL) == 0 && n > 20 && n < 10000 ? (size_t)n : 80;
}

/* ---- cells ---- */

size_t lf_text_width(const char *s)
{
    size_t w = 0;
    for (; *s != '\0'; s++)
        w += ((unsigned char)*s & 0xC0) != 0x80;
    return w;
}

/* The first `width` characters; the last of them is a '+' when something was left out. */
static void cut(char *s, size_t width)
{
    size_t w = 0;
    char *last = s;
    if (lf_text_width(s) <= width)
        return;
    for (char *p = s; *p != '\0'; p++) {
        if (((unsigned char)*p & 0xC0) != 0x80 && ++w == width)
            last = p;
        if (w > width)
            break;
    }
    last[0] = '+';
    last[1] = '\0';
}

/* ---- choosing columns ---- */

struct choice {
    const lf_table *t;
    struct use *use;
    size_t n;
    int depth; /* of named formats */
};

static int choose(struct choice *c, const char *spec, lf_err *err);

static int add_column(struct choice *c, const lf_column *col)
{
    if (c->n < MAX_COLS)
        c->use[c->n++] = (struct use){.col = col, .right = col->right};
    return 0;
}

static int add_all(struct choice *c, bool hidden_too)
{
    for (size_t i = 0; i < c->t->n_cols; i++)
        if (hidden_too || !c->t->cols[i].hidden)
            add_column(c, &c->t->cols[i]);
    return 0;
}

/* A named format of the table; LF_ENOENT without a message when there is none of that name. */
static int add_named(struct choice *c, const char *word, lf_err *err)
{
    if (strcmp(word, "default") == 0)
        return add_all(c, false);
    if (strcmp(word, "all") == 0)
        return add_all(c, true);
    for (const lf_format *f = c->t->formats; f != NULL && f->name != NULL; f++)
        if (strcmp(f->name, word) == 0 && c->depth < 4) {
            c->depth++;
            int rc = choose(c, f->spec, err);
            c->depth--;
            return rc;
        }
    return LF_ENOENT;
}

static int unknown_column(const struct choice *c, const char *word, lf_err *err)
{
    const char *names[MAX_COLS + 8];
    size_t n = 0;
    for (size_t i = 0; i < c->t->n_cols && n < MAX_COLS; i++)
        names[n++] = c->t->cols[i].key;
    for (const lf_format *f = c->t->formats; f != NULL && f->name != NULL && n < MAX_COLS + 6; f++)
        names[n++] = f->name;
    names[n++] = "default";
    const char *near = lf_nearest(word, names, n);
    return lf_fail(err, LF_EINVAL, "--columns: unknown column \"%s\"%s%s%s", word,
                   near != NULL ? "; did you mean " : "",
                   near != NULL ? near : "; `--columns help` lists them", near != NULL ? "?" : "");
}

/* KEY, KEY%WIDTH (a '-' before the width: to the left, a '+': to the right), or the name of a
 * format. */
static int choose_one(struct choice *c, char *word, lf_err *err)
{
    char *at = strpbrk(word, "%:");
    char side = '\0';
    int64_t width = 0;
    if (at != NULL) {
        *at++ = '\0';
        if (*at == '-' || *at == '+')
            side = *at++;
        if (lf_parse_i64(&width, at, NULL) < 0 || width < 1 || width > MAX_WIDTH)
            return lf_fail(err, LF_EINVAL,
                           "--columns: %s%%%s: a width is 1 to %d, as in name%%20 or name%%-20",
                           word, at, MAX_WIDTH);
    }
    size_t i = 0;
    while (i < c->t->n_cols && strcmp(c->t->cols[i].key, word) != 0)
        i++;
    if (i == c->t->n_cols) {
        int rc = at == NULL ? add_named(c, word, err) : LF_ENOENT;
        return rc == LF_ENOENT ? unknown_column(c, word, err) : rc;
    }
    add_column(c, &c->t->cols[i]);
    struct use *u = &c->use[c->n - 1];
    u->width = (size_t)width;
    u->fixed = width > 0;
    u->right = side == '\0' ? u->right : side == '+';
    return 0;
}

static int choose(struct choice *c, const char *spec, lf_err *err)
{
    char copy[MAX_SPEC], *save = NULL;
    int rc = 0;
    if (spec[0] == '+') { /* "+dir": the default and this */
        add_all(c, false);
        spec++;
    }
    if (snprintf(copy, sizeof copy, "%s", spec) >= (int)sizeof copy)
        return lf_fail(err, LF_EINVAL, "--columns: the list is too long");
    for (char *w = strtok_r(copy, ", ", &save); w != NULL && rc == 0;
         w = strtok_r(NULL, ", ", &save))
        rc = choose_one(c, w, err);
    return rc;
}

static void print_help(const lf_table *t)
{
    puts("columns:");
    for (size_t i = 0; i < t->n_cols; i++)
        printf("  %-14s %s%s\n", t->cols[i].key, t->cols[i].title, t->cols[i].hidden ? "" : "  *");
    puts("formats:\n  default        the columns marked *\n  all            every column");
    for (const lf_format *f = t->formats; f != NULL && f->name != NULL; f++)
        printf("  %-14s %s\n", f->name, f->spec);
    puts("a list may name both; KEY%WIDTH cuts or fills to a width (%-WIDTH to the left, %+WIDTH "
         "to the right);\n"
         "a list that begins with + adds to the default");
}

/* ---- printing ---- */

static void pad(size_t n)
{
    while (n-- > 0)
        putchar(' ');
}

static void print_cell(const char *text, const struct use *u, bool last, const char *colour)
{
    size_t w = lf_text_width(text), room = u->width > w ? u->width - w : 0;
    if (u->right)
        pad(room);
    if (colour != NULL)
        printf("\033[%sm", colour);
    lf_print_safe(text);
    if (colour != NULL)
        fputs("\033[0m", stdout);
    if (!u->right && !last)
        pad(room);
    fputs(last ? "\n" : "  ", stdout);
}

static int fill(char **cells, const lf_cells *of, struct use *use, size_t n, lf_err *err)
{
    for (size_t k = 0; k < n; k++)
        if (!use[k].fixed)
            use[k].width = lf_text_width(use[k].col->title);
    for (size_t i = 0; i < of->n; i++)
        for (size_t k = 0; k < n; k++) {
            char *s = of->cell(of->rows, i, use[k].col->key, err);
            cells[i * n + k] = s;
            if (s == NULL)
                return LF_ENOMEM;
            if (use[k].fixed)
                cut(s, use[k].width);
            else if (lf_text_width(s) > use[k].width)
                use[k].width = lf_text_width(s);
        }
    return 0;
}

static void print_rows(char *const *cells, size_t n_rows, const struct use *use, size_t n)
{
    bool colour = lf_colour();
    for (size_t k = 0; k < n; k++) {
        char title[MAX_WIDTH + 4];
        snprintf(title, sizeof title, "%s", use[k].col->title);
        if (use[k].fixed)
            cut(title, use[k].width);
        print_cell(title, &use[k], k + 1 == n, colour ? "1" : NULL);
    }
    for (size_t i = 0; i < n_rows; i++)
        for (size_t k = 0; k < n; k++) {
            const char *s = cells[i * n + k];
            bool state = colour && strcmp(use[k].col->key, "state") == 0;
            print_cell(s, &use[k], k + 1 == n, state ? lf_state_colour(s) : NULL);
        }
}

int lf_table_cells(const lf_table *t, const lf_cells *of, const char *spec, lf_err *err)
{
    struct use use[MAX_COLS];
    struct choice c = {.t = t, .use = use};
    if (spec != NULL && strcmp(spec, "help") == 0) {
        print_help(t);
        return 0;
    }
    int rc = choose(&c, spec != NULL ? spec : "default", err);
    if (rc < 0)
        return rc;
    size_t n_rows = of->n;
    char **cells = lf_calloc(n_rows * c.n + 1, sizeof *cells, err);
    if (cells == NULL)
        return LF_ENOMEM;
    rc = fill(cells, of, use, c.n, err);
    if (rc == 0 && c.n > 0)
        print_rows(cells, n_rows, use, c.n);
    for (size_t i = 0; i < n_rows * c.n; i++)
        free(cells[i]);
    free(cells);
    return rc;
}

/* Rows with what describes them. */
struct described {
    const char *rows;
    const struct lf_fields *fields;
};

static char *member(const void *of, size_t row, const char *key, lf_err *err)
{
    const struct described *d = of;
    return lf_fields_cell(d->rows + row * d->fields->size, d->fields, key, err);
}

int lf_table_show(const lf_table *t, const void *rows, const struct lf_fields *fields,
                  const char *spec, lf_err *err)
{
    lf_texts any; /* each LF_ROWS has this layout */
    memcpy(&any, rows, sizeof any);
    const struct described d = {.rows = (const char *)any.v, .fields = fields};
    return lf_table_cells(t, &(lf_cells){.n = any.n, .cell = member, .rows = &d}, spec, err);
}
