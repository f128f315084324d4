/* SPDX-License-Identifier: Apache-2.0
 *
 * What tokenizing would make of the rows: documents, trained tokens, rows that would be left out
 * and why, rows that are kept and odd; and how a row looks with its trained parts marked.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/corpus/datadoc_priv.h"

#define KEEP 5     /* places told of each finding */
#define SHOW 1500  /* bytes of a row that is shown */
enum { MANY = 8 }; /* equal tokens from which on their number is shown */

enum {
    FIND_TRUNCATED,
    FIND_NO_EOS,
    FIND_DOUBLE_BOS,
    FIND_SEAM,
    FIND_ALL_TRAINED,
    FIND_SPECIAL,
    FIND_EMPTY_ANSWER,
    FIND_OTHER_PROMPT,
    N_FINDS
};
static const char *const find_names[N_FINDS] = {
    "truncated",      "without_eos",        "double_bos",    "seams",
    "prompt_trained", "special_in_content", "empty_answers", "different_prompts"};

struct lf_docenc {
    lf_rowdocs docs;
    uint64_t documents, tokens, trained, no_template, fates[LF_ROW_FATES], finds[N_FINDS];
    json_t *fate_first[LF_ROW_FATES], *find_first[N_FINDS];
    lf_ids part;
    unsigned now; /* findings of the last row */
    bool encoded; /* it */
};

struct lf_docenc *lf_docenc_create(lf_err *err)
{
    struct lf_docenc *e = lf_calloc(1, sizeof *e, err);
    if (!e)
        return NULL;
    lf_rowdocs_init(&e->docs);
    for (int k = 0; k < LF_ROW_FATES; k++)
        e->fate_first[k] = json_array();
    for (int k = 0; k < N_FINDS; k++)
        e->find_first[k] = json_array();
    return e;
}

void lf_docenc_destroy(struct lf_docenc *e)
{
    if (!e)
        return;
    lf_rowdocs_fini(&e->docs);
    lf_ids_fini(&e->part);
    for (int k = 0; k < LF_ROW_FATES; k++)
        json_decref(e->fate_first[k]);
    for (int k = 0; k < N_FINDS; k++)
        json_decref(e->find_first[k]);
    free(e);
}

/* Shapes of prompt and answer, of which the prompt should be masked. */
static bool has_prompt(const lf_row *row)
{
    return row->shape != LF_SHAPE_TEXT && row->shape != LF_SHAPE_TOKENS &&
           row->shape != LF_SHAPE_PROMPT;
}

/* A special token written in a turn's content becomes that token: the text of a conversation is
 * read as a whole. */
static int seek_special(struct lf_docenc *e, const lf_tokenizer *tok, lf_tok_state *t,
                        const lf_piece *p, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < p->n_turns && rc == 0; i++) {
        e->part.n = 0;
        if (p->turns[i].text)
            rc = lf_tokenizer_encode(t, p->turns[i].text, p->turns[i].len, 0, &e->part, NULL, err);
        for (size_t k = 0; k < e->part.n; k++)
            if (lf_tokenizer_is_special(tok, e->part.v[k]))
                e->now |= 1u << FIND_SPECIAL;
    }
    return rc;
}

int lf_docenc_row(struct lf_docenc *e, const lf_rowdocs_opts *o, lf_tok_state *t, const lf_row *row,
                  lf_err *err)
{
    lf_rowdocs *d = &e->docs;
    bool turns = row->prompt.turns || row->completion.turns || row->rejected.turns;
    e->now = 0;
    e->encoded = !turns || o->chat;
    if (!e->encoded) {
        e->no_template++;
        return 0;
    }
    int rc = lf_rowdocs_encode(d, o, t, row, err);
    if (rc < 0)
        return rc;
    e->fates[d->fate]++;
    if (d->fate != LF_ROW_KEPT)
        return 0;
    e->documents += d->n_docs;
    e->tokens += d->ids.n;
    e->trained += d->trained;
    e->now =
        (unsigned)d->truncated << FIND_TRUNCATED |
        (unsigned)(d->no_eos && d->kind != LF_ROW_PROMPT) << FIND_NO_EOS |
        (unsigned)d->double_bos << FIND_DOUBLE_BOS | (unsigned)d->seam << FIND_SEAM |
        (unsigned)d->empty_answer << FIND_EMPTY_ANSWER |
        (unsigned)d->other_prompt << FIND_OTHER_PROMPT |
        (unsigned)(has_prompt(row) && d->n_docs == 1 && d->trained + 1 >= d->ids.n && d->ids.n > 1)
            << FIND_ALL_TRAINED;
    rc = seek_special(e, o->tok, t, &row->prompt, err);
    if (rc == 0)
        rc = seek_special(e, o->tok, t, &row->completion, err);
    return rc < 0 ? rc : seek_special(e, o->tok, t, &row->rejected, err);
}

size_t lf_docenc_length(const struct lf_docenc *e)
{
    return e->encoded && e->docs.fate == LF_ROW_KEPT ? e->docs.ids.n : 0;
}

uint64_t lf_docenc_behind(const struct lf_docenc *e, uint64_t room)
{
    uint64_t n = 0;
    for (size_t k = 0; k < e->docs.n_docs; k++)
        n += e->docs.len[k] > room ? e->docs.len[k] - room : 0;
    return n;
}

bool lf_docenc_notable(const struct lf_docenc *e)
{
    return e->encoded && (e->now || e->docs.fate != LF_ROW_KEPT);
}

void lf_docenc_tell(struct lf_docenc *e, json_t *at)
{
    enum lf_row_fate f = e->docs.fate;
    if (f != LF_ROW_KEPT && json_array_size(e->fate_first[f]) < KEEP)
        json_array_append_new(e->fate_first[f],
                              json_pack("{s:O,s:s}", "at", at, "why", e->docs.why.text));
    for (int k = 0; k < N_FINDS; k++)
        if (e->now >> k & 1 && e->finds[k]++ < KEEP)
            json_array_append(e->find_first[k], at);
    json_decref(at);
}

/* ---- a row as it is trained ---- */

/* How often a token stands from i on, up to `most`. */
static size_t run_of(const lf_rowdocs *d, size_t i, size_t end, size_t most)
{
    size_t n = 1;
    while (n < most && i + n < end && d->ids.v[i + n] == d->ids.v[i])
        n++;
    return n;
}

/* Placeholders of a picture are one token, hundreds of times: it is shown once, with its number.
 * Returns how many tokens were shown, 0: no such run begins here. */
static size_t show_run(const lf_rowdocs *d, size_t i, size_t end, const lf_tokenizer *tok,
                       lf_buf *out, lf_err *err)
{
    if (d->mask.data[i] != 0 || run_of(d, i, end, MANY) < MANY)
        return 0;
    const size_t n = run_of(d, i, end, end);
    if (lf_tokenizer_decode(tok, d->ids.v + i, 1, false, out, err) == 0)
        lf_buf_addf(out, " x %zu ", n);
    return n;
}

int lf_docenc_show(const struct lf_docenc *e, const lf_tokenizer *tok, lf_buf *out, json_t *trained,
                   lf_err *err)
{
    const lf_rowdocs *d = &e->docs;
    int rc = 0;
    for (size_t k = 0, at = 0; k < d->n_docs && rc == 0; at += d->len[k++]) {
        lf_buf_adds(out, k ? "\n--- against\n" : "");
        size_t end = at + d->len[k];
        for (size_t i = at; i < end && rc == 0 && out->len < SHOW * (k + 1);) {
            size_t n = show_run(d, i, end, tok, out, err);
            if (n > 0) {
                i += n;
                continue;
            }
            const bool is_trained = d->mask.data[i] != 0;
            for (n = 1; i + n < end && (d->mask.data[i + n] != 0) == is_trained && n < SHOW; n++)
                if (!is_trained && run_of(d, i + n, end, MANY) == MANY)
                    break;
            lf_buf_adds(out, is_trained ? "{+" : "");
            const size_t begin = out->len;
            rc = lf_tokenizer_decode(tok, d->ids.v + i, n, false, out, err);
            if (is_trained)
                json_array_append_new(trained,
                                      json_pack("[I,I]", (json_int_t)begin, (json_int_t)out->len));
            lf_buf_adds(out, is_trained ? "+}" : "");
            i += n;
        }
        if (out->len >= SHOW * (k + 1))
            lf_buf_adds(out, " ...");
    }
    return rc < 0 ? rc : lf_buf_check(out, err);
}

/* ---- the report ---- */

json_t *lf_docenc_json(const struct lf_docenc *e, bool *odd)
{
    json_t *left = json_object(), *found = json_object();
    for (int k = 0; k < LF_ROW_FATES; k++)
        if (k != LF_ROW_KEPT && e->fates[k]) {
            json_object_set_new(
                left, lf_row_fate_name((enum lf_row_fate)k),
                json_pack("{s:I,s:O}", "rows", (json_int_t)e->fates[k], "first", e->fate_first[k]));
            *odd = *odd || k != LF_ROW_EMPTY;
        }
    for (int k = 0; k < N_FINDS; k++)
        if (e->finds[k]) {
            json_object_set_new(
                found, find_names[k],
                json_pack("{s:I,s:O}", "rows", (json_int_t)e->finds[k], "first", e->find_first[k]));
            *odd = *odd || k != FIND_TRUNCATED;
        }
    return json_pack("{s:I,s:I,s:I,s:I,s:f,s:I,s:o,s:o}", "rows", (json_int_t)e->fates[LF_ROW_KEPT],
                     "documents", (json_int_t)e->documents, "tokens", (json_int_t)e->tokens,
                     "trained", (json_int_t)e->trained, "trained_share",
                     e->tokens ? (double)e->trained / (double)e->tokens : 0.0, "no_template",
                     (json_int_t)e->no_template, "left_out", left, "found", found);
}
