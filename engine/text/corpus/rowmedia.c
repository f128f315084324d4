/* SPDX-License-Identifier: Apache-2.0
 *
 * The pictures of a row: its column, its marks, its parts.
 */
#include "config.h"

#include "engine/text/corpus/rowmedia.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/base/base64.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"

static int no_memory(lf_err *err)
{
    return lf_fail(err, LF_ENOMEM, "no memory for a row");
}

/* ---- the column ---- */

static json_t *take_column(json_t *root, const char *name)
{
    json_t *v = json_incref(json_object_get(root, name));
    if (v)
        json_object_del(root, name);
    if (!v || json_is_null(v)) {
        json_decref(v);
        return NULL;
    }
    return v;
}

static bool is_picture(const json_t *v)
{
    return json_is_string(v) ||
           (json_is_object(v) && (json_is_string(json_object_get(v, "bytes")) ||
                                  json_is_string(json_object_get(v, "path"))));
}

int lf_rowmedia_take(lf_rowmedia *m, json_t *root, const lf_shape_opts *o, const char *where,
                     lf_err *err)
{
    const char *names[] = {lf_shape_column(o, "image"), lf_shape_column(o, "images")};
    json_t *one = take_column(root, names[0]), *many = take_column(root, names[1]), *v, *e;
    size_t i;
    if (one && many) {
        json_decref(one);
        json_decref(many);
        return lf_fail(err, LF_EFORMAT, "%s: pictures in \"%s\" and in \"%s\"; leave one out",
                       where, names[0], names[1]);
    }
    v = one ? one : many;
    m->ignore = o->ignore_unmapped;
    m->list = json_array();
    if (v && !json_is_array(v))
        v = json_pack("[o]", v);
    m->column = v;
    if (!m->list || ((one || many) && !v))
        return no_memory(err);
    json_array_foreach(v, i, e)
    {
        if (!is_picture(e))
            return lf_fail(
                err, LF_EFORMAT,
                "%s: picture %zu of \"%s\" is no path, no URL and no object of bytes and "
                "path",
                where, i + 1, names[one ? 0 : 1]);
    }
    return 0;
}

void lf_rowmedia_fini(lf_rowmedia *m)
{
    json_decref(m->column);
    json_decref(m->list);
    *m = (lf_rowmedia){0};
}

/* ---- turns ---- */

struct pass {
    lf_rowmedia *m;
    lf_row *row;
    const char *where;
    json_t *list;       /* where pictures go */
    size_t used, marks; /* pictures of the column; marks that asked for one */
    json_t *own;        /* keeps messages that are made here; borrowed from the row */
};

/* The next picture of the column; without one the mark is counted alone. */
static int use_next(struct pass *p, lf_err *err)
{
    json_t *v = json_array_get(p->m->column, p->used);
    p->marks++;
    if (!v)
        return 0;
    p->used++;
    return json_array_append(p->list, v) == 0 ? 0 : no_memory(err);
}

static int add_text(json_t *parts, const char *text, size_t n, bool strip, lf_err *err)
{
    static const char space[] = " \t\r\n";
    while (strip && n > 0 && text[0] && strchr(space, text[0])) {
        text++;
        n--;
    }
    while (strip && n > 0 && text[n - 1] && strchr(space, text[n - 1]))
        n--;
    if (n == 0 && strip)
        return 0;
    json_t *t = json_stringn(text, n);
    json_t *part = t ? json_pack("{s:s, s:o}", "type", "text", "text", t) : NULL;
    return part && json_array_append_new(parts, part) == 0 ? 0 : no_memory(err);
}

/* A text as parts. */
static int cut_text(struct pass *p, json_t *parts, const char *text, size_t n, lf_err *err)
{
    const size_t mark = sizeof LF_ROWMEDIA_MARK - 1;
    const char *end = text + n, *next = memmem(text, n, LF_ROWMEDIA_MARK, mark);
    const bool marked = next != NULL;
    int rc = 0;
    for (; next && rc == 0; next = memmem(text, (size_t)(end - text), LF_ROWMEDIA_MARK, mark)) {
        rc = add_text(parts, text, (size_t)(next - text), true, err);
        if (rc == 0)
            rc = use_next(p, err);
        if (rc == 0 && json_array_append_new(parts, json_pack("{s:s}", "type", "image")) != 0)
            rc = no_memory(err);
        text = next + mark;
    }
    return rc < 0 ? rc : add_text(parts, text, (size_t)(end - text), marked, err);
}

/* The picture that a part names itself, or NULL. */
static json_t *own_picture(json_t *part)
{
    static const char *const names[] = {"image", "url", "path", "data", "image_url"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        json_t *v = json_object_get(part, names[i]);
        if (i == 4 && json_is_object(v))
            v = json_object_get(v, "url");
        if (v && !json_is_null(v))
            return v;
    }
    return NULL;
}

/* Whatever else a part says of its picture is said to nobody. */
static int check_image(const struct pass *p, json_t *part, lf_err *err)
{
    static const char *const known[] = {"type", "text", "image",    "url",
                                        "path", "data", "image_url"};
    const char *key;
    json_t *v;
    json_object_foreach(part, key, v)
    {
        bool fine = json_is_null(v) || p->m->ignore;
        for (size_t i = 0; i < sizeof known / sizeof known[0] && !fine; i++)
            fine = strcmp(key, known[i]) == 0;
        if (!fine)
            return lf_fail(err, LF_EFORMAT,
                           "%s: member \"%.100s\" of an image means nothing here: sizes are those "
                           "of the processor; remove it, or set unmapped = ignore",
                           p->where, key);
    }
    return 0;
}

/* The part without members that are null, which templates take for members that are there. */
static int add_part(json_t *parts, json_t *part, lf_err *err)
{
    const char *key;
    json_t *v, *copy = json_object();
    int bad = !copy;
    json_object_foreach(part, key, v)
    {
        bad = bad || (!json_is_null(v) && json_object_set(copy, key, v) != 0);
    }
    if (bad) {
        json_decref(copy);
        return no_memory(err);
    }
    return json_array_append_new(parts, copy) == 0 ? 0 : no_memory(err);
}

static int read_image(struct pass *p, json_t *parts, json_t *part, lf_err *err)
{
    json_t *v = own_picture(part);
    if (v && !is_picture(v))
        return lf_fail(err, LF_EFORMAT, "%s: an image of a turn is no path and no URL", p->where);
    int rc = check_image(p, part, err);
    if (rc == 0 && !v)
        rc = use_next(p, err);
    if (rc == 0 && v && json_array_append(p->list, v) != 0)
        rc = no_memory(err);
    if (rc == 0 && json_array_append_new(parts, json_pack("{s:s}", "type", "image")) != 0)
        rc = no_memory(err);
    return rc;
}

static int read_part(struct pass *p, json_t *parts, json_t *part, lf_err *err)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    if (json_is_string(part))
        return cut_text(p, parts, json_string_value(part), json_string_length(part), err);
    if (type && (strcmp(type, "image") == 0 || strcmp(type, "image_url") == 0))
        return read_image(p, parts, part, err);
    if (type && (strcmp(type, "video") == 0 || strcmp(type, "audio") == 0))
        return lf_fail(err, LF_EFORMAT, "%s: a turn with %s; pictures alone are read", p->where,
                       type);
    if (!json_is_object(part))
        return lf_fail(err, LF_EFORMAT, "%s: a part of a turn is no object and no text", p->where);
    return add_part(parts, part, err);
}

/* The message that the template sees of a turn; a turn of plain columns has none yet. */
static json_t *message_of(struct pass *p, lf_turn *t)
{
    if (t->json)
        return t->json;
    if (!p->own) {
        p->own = json_array();
        if (!p->own || json_object_set_new(p->row->root, LF_ROWMEDIA_OWN, p->own) != 0)
            return NULL;
    }
    json_t *m = json_pack("{s:s}", "role", lf_role_name(t->role));
    if (m && json_array_append_new(p->own, m) != 0)
        m = NULL;
    return t->json = m;
}

static int read_turn(struct pass *p, lf_turn *t, lf_err *err)
{
    json_t *m, *parts, *content = json_object_get(t->json, "content"), *part;
    size_t i;
    int rc = 0;
    if (t->role == LF_ROLE_TOOL || t->role == LF_ROLE_FUNCTION_CALL ||
        (!t->text && !json_is_array(content)))
        return 0;
    if (!(parts = json_array()) || !(m = message_of(p, t)))
        rc = no_memory(err);
    else if (t->text)
        rc = cut_text(p, parts, t->text, t->len, err);
    json_array_foreach(t->text ? NULL : content, i, part)
    {
        rc = rc < 0 ? rc : read_part(p, parts, part, err);
    }
    if (rc == 0) { /* the text is of the content that is replaced */
        t->text = NULL;
        t->len = 0;
        rc = json_object_set(m, "content", parts) == 0 ? 0 : no_memory(err);
    }
    json_decref(parts);
    return rc;
}

static int read_piece(struct pass *p, lf_piece *piece, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < piece->n_turns && rc == 0; i++)
        rc = read_turn(p, &piece->turns[i], err);
    return rc;
}

static int check_numbers(const struct pass *p, lf_err *err)
{
    const size_t n = json_array_size(p->m->column);
    if (p->marks == n)
        return 0;
    return lf_fail(err, LF_EFORMAT,
                   "%s: the turns have %zu mark%s of pictures (%s, or parts of the type image "
                   "without one), the row has %zu picture%s for them",
                   p->where, p->marks, p->marks == 1 ? "" : "s", LF_ROWMEDIA_MARK, n,
                   n == 1 ? "" : "s");
}

/* The worse answer goes on where the prompt ended, as the better one does, and is to the same
 * pictures: both answers of a pair are judged beside each other. */
static int read_rejected(struct pass *p, size_t used, size_t marks, size_t n_prompt, lf_err *err)
{
    struct pass r = *p;
    r.used = used;
    r.marks = marks;
    r.list = json_array();
    int rc = r.list ? 0 : no_memory(err);
    for (size_t i = 0; i < n_prompt && rc == 0; i++)
        if (json_array_append(r.list, json_array_get(p->list, i)) != 0)
            rc = no_memory(err);
    if (rc == 0)
        rc = read_piece(&r, &p->row->rejected, err);
    if (rc == 0)
        rc = check_numbers(&r, err);
    if (rc == 0 && !json_equal(r.list, p->list))
        rc = lf_fail(err, LF_EFORMAT,
                     "%s: the worse answer is to other pictures than the better one; the two "
                     "answers of a pair are to the same pictures, in the same order",
                     p->where);
    json_decref(r.list);
    return rc;
}

int lf_rowmedia_turns(lf_rowmedia *m, lf_row *row, const char *where, lf_err *err)
{
    struct pass p = {.m = m, .row = row, .where = where, .list = m->list};
    const bool turns = row->completion.turns || row->rejected.turns;
    if (!row->prompt.turns && !turns)
        return !m->column || json_array_extend(m->list, m->column) == 0 ? 0 : no_memory(err);
    if (row->prompt.text && turns && m->column)
        return lf_fail(err, LF_EFORMAT,
                       "%s: a prompt that is a text, with answers that are turns, has no place for "
                       "pictures; make the prompt a list of turns",
                       where);
    int rc = read_piece(&p, &row->prompt, err);
    const size_t used = p.used, marks = p.marks, n_prompt = json_array_size(p.list);
    if (rc == 0)
        rc = read_piece(&p, &row->completion, err);
    if (rc == 0)
        rc = check_numbers(&p, err);
    return rc < 0 || !row->rejected.turns ? rc : read_rejected(&p, used, marks, n_prompt, err);
}

/* ---- bytes ---- */

static int read_path(const char *path, const char *dir, size_t max, lf_buf *out, lf_err *err)
{
    char *full = path[0] == '/' || !dir ? lf_strdup(path, err) : lf_path_join(dir, path, err);
    int rc = full ? lf_io_read_file(full, max, out, err) : LF_ENOMEM;
    free(full);
    return rc;
}

/* A text without NULs. */
static int read_text(const char *text, size_t n, const char *dir, size_t max, lf_buf *out,
                     lf_err *err)
{
    if (n == 0 || strlen(text) != n)
        return lf_fail(err, LF_EFORMAT, "its path is empty or has a NUL");
    if (strncasecmp(text, "http://", 7) == 0 || strncasecmp(text, "https://", 8) == 0)
        return lf_fail(err, LF_EFORMAT,
                       "%.200s: pictures are not fetched; save them first and name the files",
                       text);
    if (strncmp(text, "data:", 5) == 0)
        return lf_base64_url(out, text, n, err);
    return read_path(strncmp(text, "file://", 7) == 0 ? text + 7 : text, dir, max, out, err);
}

int lf_rowmedia_read(const lf_rowmedia *m, size_t i, const char *dir, size_t max, lf_buf *out,
                     lf_err *err)
{
    const json_t *v = json_array_get(m->list, i), *bytes = json_object_get(v, "bytes");
    if (json_is_string(bytes)) {
        if (json_string_length(bytes) > max)
            return lf_fail(err, LF_EFORMAT, "it has more than %zu bytes", max);
        lf_buf_add(out, json_string_value(bytes), json_string_length(bytes));
        return lf_buf_check(out, err);
    }
    if (json_is_object(v))
        v = json_object_get(v, "path");
    return read_text(json_string_value(v), json_string_length(v), dir, max, out, err);
}
