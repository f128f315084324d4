/* SPDX-License-Identifier: Apache-2.0
 *
 * Aligned text tables from JSON rows.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/cmd.h"

#define MAX_COLS 48

void lf_print_safe(const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++) {
        bool c1 = p[0] == 0xC2 && p[1] >= 0x80 && p[1] < 0xA0; /* U+0080..U+009F, controls too */
        putchar((*p < 0x20 && *p != '\n' && *p != '\t') || *p == 0x7F || c1 ? '?' : *p);
        if (c1)
            p++;
    }
}

/* Characters on the screen, near enough: bytes that do not continue a UTF-8 sequence. */
static size_t width_of(const char *s)
{
    size_t w = 0;
    for (; *s != '\0'; s++)
        w += ((unsigned char)*s & 0xC0) != 0x80;
    return w;
}

static char *cell_text(const json_t *v, lf_err *err)
{
    char buf[64];
    if (json_is_string(v)) {
        char *s = lf_strdup(json_string_value(v), err);
        for (char *p = s; p != NULL && *p != '\0'; p++)
            if (*p == '\n' || *p == '\t')
                *p = ' ';
        return s;
    }
    if (json_is_integer(v))
        snprintf(buf, sizeof buf, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        snprintf(buf, sizeof buf, "%.6g", json_real_value(v));
    else if (json_is_boolean(v))
        snprintf(buf, sizeof buf, "%s", json_is_true(v) ? "yes" : "no");
    else
        snprintf(buf, sizeof buf, "-");
    return lf_strdup(buf, err);
}

static int choose(const lf_column **out, size_t *n_out, const lf_column *cols, size_t n, const char *spec, lf_err *err)
{
    *n_out = 0;
    if (spec == NULL) {
        for (size_t i = 0; i < n && *n_out < MAX_COLS; i++)
            if (!cols[i].hidden)
                out[(*n_out)++] = &cols[i];
        return 0;
    }
    char *copy = lf_strdup(spec, err), *save = NULL;
    const char *names[MAX_COLS];
    int rc = copy == NULL ? LF_ENOMEM : 0;
    for (size_t i = 0; i < n && i < MAX_COLS; i++)
        names[i] = cols[i].key;
    for (char *k = rc == 0 ? strtok_r(copy, ", ", &save) : NULL; k != NULL && rc == 0; k = strtok_r(NULL, ", ", &save)) {
        size_t i = 0;
        while (i < n && strcmp(cols[i].key, k) != 0)
            i++;
        const char *near = i == n ? lf_nearest(k, names, n) : NULL;
        if (i == n)
            rc = lf_fail(err, LF_EINVAL, "--columns: unknown column \"%s\"%s%s%s", k, near != NULL ? "; did you mean " : "",
                         near != NULL ? near : "; `--columns help` lists them", near != NULL ? "?" : "");
        else if (*n_out < MAX_COLS)
            out[(*n_out)++] = &cols[i];
    }
    free(copy);
    return rc;
}

static void print_cell(const char *text, size_t width, bool right, bool last)
{
    size_t w = width_of(text), pad = width > w ? width - w : 0;
    for (size_t i = 0; right && i < pad; i++)
        putchar(' ');
    lf_print_safe(text);
    for (size_t i = 0; !right && !last && i < pad; i++)
        putchar(' ');
    fputs(last ? "\n" : "  ", stdout);
}

int lf_table_print(const json_t *rows, const lf_column *cols, size_t n_cols, const char *spec, lf_err *err)
{
    if (spec != NULL && strcmp(spec, "help") == 0) {
        for (size_t i = 0; i < n_cols; i++)
            printf("%-14s %s\n", cols[i].key, cols[i].title);
        return 0;
    }
    const lf_column *use[MAX_COLS];
    size_t n = 0, width[MAX_COLS], n_rows = json_array_size(rows);
    int rc = choose(use, &n, cols, n_cols, spec, err);
    char **cells = rc == 0 ? lf_calloc(n_rows * n + 1, sizeof *cells, err) : NULL;
    if (cells == NULL)
        return rc < 0 ? rc : LF_ENOMEM;
    for (size_t k = 0; k < n; k++)
        width[k] = width_of(use[k]->title);
    for (size_t i = 0; i < n_rows && rc == 0; i++)
        for (size_t k = 0; k < n && rc == 0; k++) {
            char *s = cell_text(json_object_get(json_array_get(rows, i), use[k]->key), err);
            cells[i * n + k] = s;
            if (s == NULL)
                rc = LF_ENOMEM;
            else if (width_of(s) > width[k])
                width[k] = width_of(s);
        }
    for (size_t k = 0; k < n && rc == 0; k++)
        print_cell(use[k]->title, width[k], use[k]->right, k + 1 == n);
    for (size_t i = 0; i < n_rows && rc == 0; i++)
        for (size_t k = 0; k < n; k++)
            print_cell(cells[i * n + k], width[k], use[k]->right, k + 1 == n);
    for (size_t i = 0; i < n_rows * n; i++)
        free(cells[i]);
    free(cells);
    return rc;
}
