/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations and pairs in the doctor's round.
 */
#include "engine/text/corpus/datadoc_turns.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/chat/chat.h"
#include "engine/text/corpus/datadoc_priv.h"

#define KEEP      5  /* places told of each finding */
#define POSITIONS 9  /* the last one has all later turns */
#define COLUMNS   64 /* names of unknown columns that are kept */

enum {
    PART_PROMPT = LF_ROLE_FUNCTION_CALL + 1,
    PART_COMPLETION,
    PART_CHOSEN,
    PART_REJECTED,
    PARTS
};
static const char *const part_names[PARTS] = {"system",     "user",          "assistant",
                                              "tool",       "function_call", "prompt",
                                              "completion", "chosen",        "rejected"};

enum { FIND_PROMPT, FIND_SAME, FIND_EMPTY, FIND_ORDER, FINDS };
static const char *const find_names[FINDS] = {"repeated_prompts", "same_answers", "empty_turns",
                                              "turn_order"};

struct lf_docturns {
    lf_docturns_opts o;
    struct lf_dups *prompts;
    struct lf_hist parts[PARTS], per_row, positions[POSITIONS];
    uint64_t rows, finds[FINDS];
    json_t *first[FINDS], *columns; /* name: rows */
    lf_buf text;
    lf_ids ids;
};

struct lf_docturns *lf_docturns_create(const lf_docturns_opts *o, lf_err *err)
{
    struct lf_docturns *d = lf_calloc(1, sizeof *d, err);
    if (!d)
        return NULL;
    d->o = *o;
    lf_buf_init(&d->text);
    for (int k = 0; k < FINDS; k++)
        d->first[k] = json_array();
    d->columns = json_object();
    if (!(d->prompts = lf_dups_create(o->max_bytes, err))) {
        lf_docturns_destroy(d);
        return NULL;
    }
    return d;
}

void lf_docturns_destroy(struct lf_docturns *d)
{
    if (!d)
        return;
    lf_dups_destroy(d->prompts);
    for (int k = 0; k < FINDS; k++)
        json_decref(d->first[k]);
    json_decref(d->columns);
    lf_buf_fini(&d->text);
    lf_ids_fini(&d->ids);
    free(d);
}

/* ---- lengths ---- */

static int length_of(struct lf_docturns *d, uint64_t *length, const char *text, size_t n,
                     lf_err *err)
{
    uint64_t replaced = 0;
    *length = 0;
    if (!text)
        return 0;
    *length = lf_datadoc_chars(text, n);
    if (!d->o.tok)
        return 0;
    d->ids.n = 0;
    int rc = lf_tokenizer_encode(d->o.tok, text, n, d->o.flags & ~(unsigned)LF_TOK_STRICT, &d->ids,
                                 &replaced, err);
    *length = d->ids.n;
    return rc;
}

void lf_docturns_say(lf_buf *b, const lf_turn *t)
{
    const json_t *parts = t->text || !t->json ? NULL : json_object_get(t->json, "content");
    json_t *part;
    size_t i;
    lf_buf_add(b, t->text ? t->text : "", t->text ? t->len : 0);
    json_array_foreach(parts, i, part)
    {
        const json_t *text = json_object_get(part, "text");
        if (json_is_string(text)) {
            lf_buf_add(b, json_string_value(text), json_string_length(text));
            lf_buf_addc(b, '\n');
        }
    }
}

/* Adds the piece's turns to their roles, and the sum to the part. *turn counts the turns of the
 * row. */
static int measure(struct lf_docturns *d, const lf_piece *p, int part, uint64_t *turn, lf_err *err)
{
    uint64_t sum = 0, n = 0;
    int rc = length_of(d, &sum, p->text, p->len, err);
    for (size_t i = 0; rc == 0 && i < p->n_turns; i++) {
        const lf_turn *t = &p->turns[i];
        lf_buf_clear(&d->text);
        lf_docturns_say(&d->text, t);
        rc = lf_buf_check(&d->text, err);
        if (rc == 0)
            rc = length_of(d, &n, d->text.data, d->text.len, err);
        lf_hist_add(&d->parts[t->role], n);
        lf_hist_add(&d->positions[*turn < POSITIONS - 1 ? *turn : POSITIONS - 1], n);
        ++*turn;
        sum += n;
    }
    if (rc == 0 && part >= 0 && (p->text || p->turns))
        lf_hist_add(&d->parts[part], sum);
    return rc;
}

/* ---- findings ---- */

static void tell(struct lf_docturns *d, int k, uint64_t row, const uint64_t *same_as)
{
    if (d->finds[k]++ >= KEEP)
        return;
    json_t *at = d->o.place(d->o.arg, row);
    json_array_append_new(d->first[k], !same_as ? at
                                                : json_pack("{s:o,s:o}", "at", at, "same_as",
                                                            d->o.place(d->o.arg, *same_as)));
}

static bool is_blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r\n\f\v", s[i]) || s[i] == '\0')
            return false;
    return true;
}

static bool has_empty(const lf_piece *p)
{
    if (p->text && is_blank(p->text, p->len))
        return true;
    for (size_t i = 0; i < p->n_turns; i++) {
        const lf_turn *t = &p->turns[i];
        const json_t *calls = t->json ? json_object_get(t->json, "tool_calls") : NULL;
        if (t->text && is_blank(t->text, t->len) && !calls && t->role != LF_ROLE_FUNCTION_CALL)
            return true;
    }
    return false;
}

static bool same_turn(const lf_turn *a, const lf_turn *b)
{
    if (a->role != b->role || (a->text != NULL) != (b->text != NULL))
        return false;
    if (a->text && (a->len != b->len || memcmp(a->text, b->text, a->len) != 0))
        return false;
    return a->text || json_equal(a->json, b->json);
}

/* How many turns both begin with. */
static size_t same_turns(const lf_piece *a, const lf_piece *b)
{
    size_t n = 0;
    while (n < a->n_turns && n < b->n_turns && same_turn(&a->turns[n], &b->turns[n]))
        n++;
    return n;
}

static bool same_piece(const lf_piece *a, const lf_piece *b)
{
    if (a->text && b->text)
        return a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
    return a->turns && b->turns && a->n_turns == b->n_turns && same_turns(a, b) == a->n_turns;
}

static void add_turns(lf_buf *b, const lf_piece *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const lf_turn *t = &p->turns[i];
        lf_buf_addf(b, "%d %zu ", (int)t->role, t->len);
        lf_docturns_say(b, t);
    }
}

/* What the row asks, "" when that cannot be told. */
static void prompt_of(lf_buf *b, const lf_row *row)
{
    const lf_piece *p = &row->prompt;
    lf_buf_clear(b);
    if (row->shape == LF_SHAPE_MESSAGES || row->shape == LF_SHAPE_SHAREGPT ||
        !(p->text || p->turns))
        p = row->prompt.turns ? &row->prompt : &row->completion;
    if (p == &row->completion || row->shape == LF_SHAPE_MESSAGES ||
        row->shape == LF_SHAPE_SHAREGPT) {
        size_t n = 0;
        while (n < p->n_turns && !lf_turn_is_answer(&p->turns[n]))
            n++;
        if (row->shape == LF_SHAPE_PREFERENCE && same_turns(p, &row->rejected) < n)
            n = same_turns(p, &row->rejected);
        add_turns(b, p, n);
    } else if (p->text) {
        lf_buf_add(b, p->text, p->len);
    } else {
        add_turns(b, p, p->n_turns);
    }
}

static int seek_prompt(struct lf_docturns *d, const lf_row *row, uint64_t n, lf_err *err)
{
    uint64_t first = 0;
    prompt_of(&d->text, row);
    if (d->text.len && d->o.reader) /* the same words about another picture are another prompt */
        d->o.reader->text(d->o.reader->arg, &d->text);
    int rc = lf_buf_check(&d->text, err);
    if (rc < 0 || d->text.len == 0)
        return rc;
    rc = lf_dups_add(d->prompts, lf_datadoc_hash(d->text.data, d->text.len, 1), n, &first, err);
    if (rc == 1) {
        tell(d, FIND_PROMPT, n, &first);
        /* each stands for so many that are not in the sample */
        d->finds[FIND_PROMPT] += (1ull << lf_dups_sampled(d->prompts)) - 1;
    }
    return rc < 0 ? rc : 0;
}

/* The whole conversation: a prompt of turns and one answer are one. */
static bool out_of_order(const lf_piece *prompt, const lf_piece *answer, lf_err *err)
{
    if (!prompt->turns && !answer->turns)
        return false;
    size_t n = prompt->n_turns + answer->n_turns;
    lf_turn *all = lf_calloc(n + 1, sizeof *all, err);
    if (!all)
        return false;
    if (prompt->n_turns)
        memcpy(all, prompt->turns, prompt->n_turns * sizeof *all);
    if (answer->n_turns)
        memcpy(all + prompt->n_turns, answer->turns, answer->n_turns * sizeof *all);
    bool odd = n > 0 && lf_chat_check_order(all, n, NULL) < 0;
    free(all);
    return odd;
}

void lf_docturns_passed(struct lf_docturns *d, const char *column, int64_t rows)
{
    json_t *seen = json_object_get(d->columns, column);
    if (seen || json_object_size(d->columns) < COLUMNS)
        json_object_set_new(d->columns, column,
                            json_integer(json_integer_value(seen) + (json_int_t)rows));
}

static void seek_columns(struct lf_docturns *d, const lf_row *row)
{
    const char *key;
    json_t *v;
    size_t n;
    const char *const *known = lf_shape_known(&n);
    json_object_foreach(row->root, key, v)
    {
        bool mine = row->shape == LF_SHAPE_PROMPT; /* which keeps the others for its reward */
        for (size_t i = 0; i < n && !mine; i++)
            mine = strcmp(key, lf_shape_column(d->o.shape, known[i])) == 0;
        if (!mine)
            lf_docturns_passed(d, key, 1);
    }
}

int lf_docturns_row(struct lf_docturns *d, const lf_row *row, uint64_t n, lf_err *err)
{
    const bool pair = row->shape == LF_SHAPE_PREFERENCE;
    uint64_t turns = 0;
    seek_columns(d, row);
    if (row->shape == LF_SHAPE_TEXT || row->shape == LF_SHAPE_TOKENS)
        return 0;
    d->rows++;
    bool split = row->completion.text || row->completion.turns;
    int rc = measure(d, &row->prompt, split ? PART_PROMPT : -1, &turns, err);
    if (rc == 0)
        rc = measure(d, &row->completion, pair ? PART_CHOSEN : PART_COMPLETION, &turns, err);
    if (turns)
        lf_hist_add(&d->per_row, turns);
    turns = row->prompt.n_turns;
    if (rc == 0 && pair)
        rc = measure(d, &row->rejected, PART_REJECTED, &turns, err);
    if (rc == 0)
        rc = seek_prompt(d, row, n, err);
    if (rc < 0)
        return rc;
    if (pair && same_piece(&row->completion, &row->rejected))
        tell(d, FIND_SAME, n, NULL);
    if (has_empty(&row->prompt) || has_empty(&row->completion) || has_empty(&row->rejected))
        tell(d, FIND_EMPTY, n, NULL);
    lf_err e = LF_ERR_INIT;
    if (out_of_order(&row->prompt, &row->completion, &e) ||
        (pair && out_of_order(&row->prompt, &row->rejected, &e)))
        tell(d, FIND_ORDER, n, NULL);
    return e.rc != 0 ? lf_fail(err, e.rc, "%s", e.text) : 0;
}

/* ---- the report ---- */

static json_t *positions_json(const struct lf_docturns *d)
{
    json_t *list = json_array();
    for (int k = 0; k < POSITIONS; k++) {
        const struct lf_hist *h = &d->positions[k];
        if (h->n)
            json_array_append_new(
                list, json_pack("{s:i,s:I,s:f,s:I}", "turn", k + 1, "rows", (json_int_t)h->n,
                                "mean", (double)h->sum / (double)h->n, "max", (json_int_t)h->max));
    }
    return list;
}

int lf_docturns_report(const struct lf_docturns *d, json_t *report, bool *odd, lf_err *err)
{
    const char *unit = d->o.tok ? "tokens" : "characters";
    if (d->rows == 0 && json_object_size(d->columns) == 0)
        return 0;
    json_t *parts = json_object(), *found = json_object();
    for (int k = 0; k < PARTS; k++)
        if (d->parts[k].n) {
            json_t *h = lf_hist_json(&d->parts[k], unit);
            json_object_set_new(h, "number", json_integer((json_int_t)d->parts[k].n));
            json_object_set_new(parts, part_names[k], h);
        }
    for (int k = 0; k < FINDS; k++)
        if (d->finds[k]) {
            json_object_set_new(found, find_names[k],
                                json_pack("{s:I,s:b,s:O}", "rows", (json_int_t)d->finds[k],
                                          "estimated",
                                          k == FIND_PROMPT && lf_dups_sampled(d->prompts) > 0,
                                          "first", d->first[k]));
            *odd = *odd || k != FIND_PROMPT;
        }
    json_t *o =
        json_pack("{s:I,s:s,s:o,s:o,s:o,s:o,s:O}", "rows", (json_int_t)d->rows, "unit", unit,
                  "turns", lf_hist_json(&d->per_row, "turns"), "parts", parts, "positions",
                  positions_json(d), "found", found, "unknown_columns", d->columns);
    return json_object_set_new(report, "conversations", o) == 0
               ? 0
               : lf_fail(err, LF_ENOMEM, "no memory for the report");
}

/* ---- for people ---- */

static long long num(const json_t *o, const char *key)
{
    return (long long)json_integer_value(json_object_get(o, key));
}

static void columns_text(const json_t *columns, lf_buf *out)
{
    const char *name;
    json_t *v;
    size_t n = 0;
    if (json_object_size(columns) == 0)
        return;
    lf_buf_adds(out, "\ncolumns that mean nothing to a shape, and are refused unless unmapped = "
                     "ignore:\n ");
    json_object_foreach((json_t *)(uintptr_t)columns, name, v)
    {
        lf_buf_adds(out, n++ ? ", " : " ");
        lf_buf_add_visible(out, name, strlen(name));
        lf_buf_addf(out, " (%lld rows)", (long long)json_integer_value(v));
    }
    lf_buf_adds(out, "\n");
}

void lf_docturns_text(const json_t *c, lf_buf *out)
{
    const json_t *turns = json_object_get(c, "turns"), *positions = json_object_get(c, "positions");
    const char *name, *unit = json_string_value(json_object_get(c, "unit"));
    json_t *v;
    size_t i;
    if (num(c, "rows")) {
        lf_buf_addf(out, "\nconversations, pairs and prompts: %lld rows, lengths in %s\n",
                    num(c, "rows"), unit);
        json_object_foreach(json_object_get(c, "parts"), name, v) lf_buf_addf(
            out, "  %-13s %9lld  mean %.1f, least %lld, p50 %lld, p95 %lld, most %lld\n", name,
            num(v, "number"), json_real_value(json_object_get(v, "mean")), num(v, "min"),
            num(v, "p50"), num(v, "p95"), num(v, "max"));
    }
    if (num(turns, "max"))
        lf_buf_addf(out, "  turns of a row: mean %.1f, least %lld, most %lld\n",
                    json_real_value(json_object_get(turns, "mean")), num(turns, "min"),
                    num(turns, "max"));
    json_array_foreach(positions, i, v)
        lf_buf_addf(out, "  turn %lld%s %9lld  mean %.1f, most %lld\n", num(v, "turn"),
                    num(v, "turn") == POSITIONS ? " and later" : "", num(v, "rows"),
                    json_real_value(json_object_get(v, "mean")), num(v, "max"));
    columns_text(json_object_get(c, "unknown_columns"), out);
}
