/* SPDX-License-Identifier: Apache-2.0
 *
 * The schema as a tree of what rows hold. Lists are groups with a repeated child; old writers left
 * the level between out, and which form it is goes by the format's rules for backward
 * compatibility.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "engine/text/parquet/parquet_priv.h"

enum { REQUIRED, OPTIONAL, REPEATED };
enum { CONVERTED_UTF8 = 0, CONVERTED_MAP = 1, CONVERTED_MAP_KV = 2, CONVERTED_LIST = 3 };
enum { LOGICAL_STRING = 1, LOGICAL_MAP = 2, LOGICAL_LIST = 3, LOGICAL_NULL = 11 };

struct build {
    lf_parquet *p;
    size_t next; /* element */
    int depth;
};

static int broken(const lf_parquet *p, const char *name, const char *what, lf_err *err)
{
    return lf_fail(err, LF_EFORMAT, "%s: column %s: %s", p->path, name, what);
}

/* ---- types ---- */

static const char *odd_converted(int c)
{
    static const char *const names[] = {
        [5] = "decimal",   [6] = "date",       [7] = "time",  [8] = "time",
        [9] = "timestamp", [10] = "timestamp", [20] = "BSON", [21] = "interval",
    };
    return c >= 0 && c < (int)(sizeof names / sizeof names[0]) ? names[c] : NULL;
}

static const char *odd_logical(int l)
{
    static const char *const names[] = {
        [5] = "decimal", [6] = "date",  [7] = "time",         [8] = "timestamp",
        [13] = "BSON",   [14] = "UUID", [15] = "16-bit float"};
    bool known = (l >= 1 && l <= 4) || l == 10 || l == LOGICAL_NULL || l == 12;
    if (l == 0 || known)
        return NULL;
    return l < (int)(sizeof names / sizeof names[0]) && names[l] ? names[l]
                                                                 : "of a type that is not known";
}

static bool is_text(const struct lf_pq_elem *e)
{
    return e->logical == LOGICAL_STRING || e->logical == 4 || e->logical == 12 ||
           e->converted == CONVERTED_UTF8 || e->converted == 4 || e->converted == 19;
}

static void set_type(struct lf_pq_node *n, const struct lf_pq_elem *e)
{
    static const char *const physical[] = {[LF_PQ_INT96] = "timestamp of 96 bits",
                                           [LF_PQ_BYTE_ARRAY] = "binary",
                                           [LF_PQ_FIXED] = "binary of fixed length"};
    n->type = (enum lf_pq_type)e->type;
    n->kind = LF_PQ_ODD;
    n->odd = e->logical ? odd_logical(e->logical) : odd_converted(e->converted);
    if (n->odd)
        return;
    bool no_sign = e->logical ? !e->is_signed : e->converted >= 11 && e->converted <= 14;
    switch (n->type) {
    case LF_PQ_BOOLEAN:
        n->kind = LF_PQ_BOOL;
        break;
    case LF_PQ_INT32:
    case LF_PQ_INT64:
        n->kind = no_sign ? LF_PQ_UINT : LF_PQ_INT;
        break;
    case LF_PQ_FLOAT:
    case LF_PQ_DOUBLE:
        n->kind = LF_PQ_REAL;
        break;
    case LF_PQ_BYTE_ARRAY:
        n->kind = is_text(e) || e->logical == LOGICAL_NULL ? LF_PQ_TEXT : LF_PQ_ODD;
        break;
    default:
        break;
    }
    n->odd = n->kind == LF_PQ_ODD ? physical[n->type] : NULL;
    n->plain_binary = n->kind == LF_PQ_ODD && n->type == LF_PQ_BYTE_ARRAY;
}

/* ---- the tree ---- */

static int build(struct build *b, struct lf_pq_node **out, const struct lf_pq_node *above,
                 lf_err *err);

static struct lf_pq_node *new_node(struct build *b, const struct lf_pq_elem *e,
                                   const struct lf_pq_node *above, lf_err *err)
{
    struct lf_pq_node *n = lf_arena_alloc(b->p->arena, 1, sizeof *n, err);
    if (!n)
        return NULL;
    n->name = e->name;
    n->optional = e->repetition == OPTIONAL;
    /* A list's element is there from the level above the list's own on. */
    n->def = above->def + (above->kind == LF_PQ_LIST) + n->optional;
    n->rep = above->rep;
    n->leaf = b->p->n_column;
    n->path = !above->path ? e->name
              : above->kind == LF_PQ_LIST
                  ? above->path
                  : lf_arena_printf(b->p->arena, err, "%.600s.%.200s", above->path, e->name);
    return n->path ? n : NULL;
}

static int build_children(struct build *b, struct lf_pq_node *n, size_t count, lf_err *err)
{
    int rc = 0;
    n->kind = LF_PQ_STRUCT;
    if (!(n->child = lf_arena_alloc(b->p->arena, count, sizeof *n->child, err)))
        return LF_ENOMEM;
    for (size_t i = 0; i < count && rc == 0; i++) {
        rc = build(b, &n->child[n->n_child], n, err);
        n->n_child += rc == 0;
        for (size_t k = 0; k < i && rc == 0; k++)
            if (strcmp(n->child[k]->name, n->child[i]->name) == 0)
                rc = broken(b->p, n->child[i]->path, "there are two of this name", err);
    }
    return rc;
}

/* A leaf or a struct, whatever its repetition. */
static int build_plain(struct build *b, struct lf_pq_node *n, const struct lf_pq_elem *e,
                       lf_err *err)
{
    if (e->type >= 0 && e->children > 0)
        return broken(b->p, n->path, "it is a value and a group", err);
    if (e->type < 0 && e->children == 0)
        return broken(b->p, n->path, "it is a group without members", err);
    if (e->type < 0)
        return build_children(b, n, e->children, err);
    set_type(n, e);
    b->p->n_column++;
    return 0;
}

/* The element that e, which is repeated, stands for itself. */
static int build_element(struct build *b, struct lf_pq_node *list, const struct lf_pq_elem *e,
                         lf_err *err)
{
    struct lf_pq_elem one = *e;
    one.repetition = REQUIRED;
    struct lf_pq_node *n = new_node(b, &one, list, err);
    if (!n)
        return LF_ENOMEM;
    list->child[0] = n;
    int rc = build_plain(b, n, &one, err);
    n->n_leaf = b->p->n_column - n->leaf;
    return rc;
}

static int make_list(struct build *b, struct lf_pq_node *n, lf_err *err)
{
    n->kind = LF_PQ_LIST;
    n->rep++;
    n->n_child = 1;
    n->child = lf_arena_alloc(b->p->arena, 1, sizeof *n->child, err);
    return n->child ? 0 : LF_ENOMEM;
}

static bool is_list(const struct lf_pq_elem *e)
{
    return e->type < 0 && (e->logical == LOGICAL_LIST || e->converted == CONVERTED_LIST);
}

static bool is_map(const struct lf_pq_elem *e)
{
    return e->type < 0 && (e->logical == LOGICAL_MAP || e->converted == CONVERTED_MAP ||
                           e->converted == CONVERTED_MAP_KV);
}

/* Is the repeated group r of list e the element itself, and not a level around it? */
static bool is_element(const struct lf_pq_elem *e, const struct lf_pq_elem *r,
                       const struct lf_pq_elem *inner)
{
    size_t n = strlen(e->name);
    return r->type >= 0 || r->children != 1 || inner->repetition == REPEATED ||
           strcmp(r->name, "array") == 0 ||
           (strncmp(r->name, e->name, n) == 0 && strcmp(r->name + n, "_tuple") == 0);
}

static int build_list(struct build *b, struct lf_pq_node *n, const struct lf_pq_elem *e,
                      lf_err *err)
{
    const lf_parquet *p = b->p;
    const struct lf_pq_elem *r = b->next < p->n_elem ? &p->elem[b->next] : NULL;
    if (e->children != 1 || !r || r->repetition != REPEATED)
        return broken(p, n->path, "it is a list without a repeated member", err);
    int rc = make_list(b, n, err);
    if (rc < 0)
        return rc;
    b->next++;
    bool last = b->next >= p->n_elem && r->type < 0;
    if (last)
        return broken(p, n->path, "its element is missing", err);
    if (is_element(e, r, b->next < p->n_elem ? &p->elem[b->next] : r))
        return build_element(b, n, r, err);
    return build(b, &n->child[0], n, err);
}

static int build(struct build *b, struct lf_pq_node **out, const struct lf_pq_node *above,
                 lf_err *err)
{
    lf_parquet *p = b->p;
    if (b->next >= p->n_elem)
        return lf_fail(err, LF_EFORMAT, "%s: its schema ends too early", p->path);
    const struct lf_pq_elem *e = &p->elem[b->next++];
    if (++b->depth > LF_PQ_DEPTH_MAX)
        return lf_fail(err, LF_ENOTSUP, "%s: column %s is nested deeper than %d levels", p->path,
                       e->name, LF_PQ_DEPTH_MAX);
    struct lf_pq_node *n = new_node(b, e, above, err);
    if (!n)
        return LF_ENOMEM;
    int rc;
    if (e->repetition == REPEATED) {
        rc = make_list(b, n, err);
        if (rc == 0)
            rc = build_element(b, n, e, err);
    } else if (is_list(e)) {
        rc = build_list(b, n, e, err);
    } else {
        rc = build_plain(b, n, e, err);
        if (rc == 0 && is_map(e)) {
            n->kind = LF_PQ_ODD;
            n->odd = "map";
        }
    }
    n->n_leaf = p->n_column - n->leaf;
    b->depth--;
    *out = n;
    return rc;
}

/* ---- what is read ---- */

/* Names of the columns at the top, for messages. */
static void list_columns(const struct lf_pq_node *root, char *buf, size_t cap)
{
    size_t at = 0;
    buf[0] = 0;
    for (size_t i = 0; i < root->n_child && at + 80 < cap; i++)
        at += (size_t)snprintf(buf + at, cap - at, "%s%.60s", i ? ", " : "", root->child[i]->name);
    if (at + 80 >= cap)
        snprintf(buf + at, cap - at, ", ..");
}

static const struct lf_pq_node *find_odd(const struct lf_pq_node *n)
{
    if (n->kind == LF_PQ_ODD)
        return n;
    for (size_t i = 0; i < n->n_child; i++) {
        const struct lf_pq_node *odd = find_odd(n->child[i]);
        if (odd)
            return odd;
    }
    return NULL;
}

/* In a column that is named for it, plain binary is bytes. */
static void allow_binary(const lf_parquet *p, struct lf_pq_node *n, const char *column)
{
    bool named = false;
    for (size_t i = 0; i < p->o.n_binary; i++)
        named = named || strcmp(p->o.binary[i], column) == 0;
    if (!named)
        return;
    if (n->n_child == 0 && n->kind == LF_PQ_ODD && n->type == LF_PQ_BYTE_ARRAY && n->plain_binary)
        n->kind = LF_PQ_BYTES;
    for (size_t i = 0; i < n->n_child; i++)
        allow_binary(p, n->child[i], column);
}

static bool wanted(const lf_parquet *p, const char *name)
{
    for (size_t i = 0; i < p->o.n_columns; i++)
        if (strcmp(p->o.columns[i], name) == 0)
            return true;
    return !p->o.columns;
}

/* Columns below n get numbers among those read. */
static void take_leaves(lf_parquet *p, struct lf_pq_node *n)
{
    size_t first = p->n_leaf;
    if (n->n_child == 0)
        p->leaf[p->n_leaf++] = (struct lf_pq_leaf){
            .file = p, .node = n, .column = n->leaf, .max_def = n->def, .max_rep = n->rep};
    for (size_t i = 0; i < n->n_child; i++)
        take_leaves(p, n->child[i]);
    n->leaf = first;
    n->n_leaf = p->n_leaf - first;
}

/* Leaves only what is read below the root. */
static int choose(lf_parquet *p, lf_err *err)
{
    struct lf_pq_node *root = p->root;
    size_t kept = 0;
    char list[500];
    list_columns(root, list, sizeof list);
    if (!(p->passed = lf_calloc(root->n_child + 1, sizeof *p->passed, err)))
        return LF_ENOMEM;
    for (size_t i = 0; i < root->n_child; i++) {
        const struct lf_pq_node *odd = NULL;
        if (!wanted(p, root->child[i]->name)) {
            p->passed[p->n_passed++] = root->child[i]->name;
            continue;
        }
        allow_binary(p, root->child[i], root->child[i]->name);
        if ((odd = find_odd(root->child[i])))
            return lf_fail(err, LF_ENOTSUP,
                           "%s: column %.200s is %s, which a row of text has no place for; leave "
                           "it out or cast it; the columns are %s",
                           p->path, odd->path, odd->odd, list);
        root->child[kept++] = root->child[i];
    }
    root->n_child = kept;
    if (kept == 0)
        return lf_fail(err, LF_ENOENT, "%s: it has no column %.100s%s; its columns are %s", p->path,
                       p->o.n_columns ? p->o.columns[0] : "", p->o.n_columns > 1 ? " .." : "",
                       list);
    if (!(p->leaf = lf_calloc(p->n_column, sizeof *p->leaf, err)))
        return LF_ENOMEM;
    for (size_t i = 0; i < kept; i++)
        take_leaves(p, root->child[i]);
    root->n_leaf = p->n_leaf;
    for (size_t i = 0; i < p->n_leaf; i++)
        lf_buf_init(&p->leaf[i].text);
    return 0;
}

int lf_pq_schema_build(lf_parquet *p, lf_err *err)
{
    struct build b = {.p = p, .next = 1};
    struct lf_pq_node *root = lf_arena_alloc(p->arena, 1, sizeof *root, err);
    if (!root)
        return LF_ENOMEM;
    p->root = root;
    if (p->elem[0].type >= 0 || p->elem[0].children == 0)
        return lf_fail(err, LF_EFORMAT, "%s: its schema has no columns", p->path);
    int rc = build_children(&b, root, p->elem[0].children, err);
    if (rc == 0 && b.next != p->n_elem)
        rc = lf_fail(err, LF_EFORMAT, "%s: its schema has elements that belong to no column",
                     p->path);
    return rc < 0 ? rc : choose(p, err);
}
