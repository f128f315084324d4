/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON lines of other shapes than text to ids and loss mask.
 */
#include "config.h"

#include <string.h>

#include "stages/tokenize_priv.h"

static int add_mask(tok_batch *b, size_t n, char value, lf_err *err)
{
    for (size_t i = 0; i < n; i++)
        lf_buf_addc(&b->mask, value);
    return lf_buf_check(&b->mask, err);
}

static int add_eos(int64_t eos_id, tok_batch *b, lf_err *err)
{
    return eos_id < 0 ? 0 : lf_ids_add(&b->ids, (uint32_t)eos_id, err);
}

/* The pair is encoded in one piece, as the model will see it. Trained is what the encoded prompt does not begin with,
 * so a token that reaches over the border is trained. */
static int encode_pair(const tokenize *s, lf_tok_state *t, int64_t eos_id, tok_batch *b, const lf_row *row,
                       lf_buf *text, lf_err *err)
{
    size_t at = b->ids.n, same = 0, prompt = 0;
    uint64_t again = 0;
    lf_ids p = {0};
    lf_buf_add(text, row->prompt.text, row->prompt.len);
    lf_buf_add(text, row->completion.text, row->completion.len);
    int rc = lf_buf_check(text, err);
    if (rc == 0)
        rc = lf_tokenizer_encode(t, text->data, text->len, s->flags, &b->ids, &b->replaced, err);
    if (rc == 0)
        rc = lf_tokenizer_encode(t, row->prompt.text, row->prompt.len, s->flags, &p, &again, err);
    if (rc == 0)
        rc = add_eos(eos_id, b, err);
    prompt = p.n;
    while (rc == 0 && same < prompt && at + same < b->ids.n && p.v[same] == b->ids.v[at + same])
        same++;
    lf_ids_fini(&p);
    if (rc == 0)
        rc = add_mask(b, same, 0, err);
    return rc ? rc : add_mask(b, b->ids.n - at - same, 1, err);
}

static int encode_text(const tokenize *s, lf_tok_state *t, int64_t eos_id, tok_batch *b, const lf_row *row,
                       lf_buf *text, lf_err *err)
{
    size_t at = b->ids.n;
    lf_buf_add(text, row->prompt.text, row->prompt.len);
    if (row->prompt.len == 0)
        return 0;
    int rc = lf_tokenizer_encode(t, row->prompt.text, row->prompt.len, s->flags, &b->ids, &b->replaced, err);
    if (rc == 0)
        rc = add_eos(eos_id, b, err);
    return rc ? rc : add_mask(b, b->ids.n - at, 1, err);
}

static int take_tokens(const lf_tokenizer *tok, tok_batch *b, const lf_row *row, lf_buf *text, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < row->n_ids && rc == 0; i++) {
        if (row->ids[i] >= lf_tokenizer_vocab_size(tok))
            return lf_fail(err, LF_EFORMAT, "input_ids[%zu] = %u, the tokenizer's ids end at %u", i, row->ids[i],
                           lf_tokenizer_vocab_size(tok) - 1);
        rc = lf_ids_add(&b->ids, row->ids[i], err);
        lf_buf_addc(&b->mask, row->mask ? (char)row->mask[i] : 1);
    }
    lf_buf_add(text, row->ids, row->n_ids * sizeof(*row->ids));
    return rc ? rc : lf_buf_check(&b->mask, err);
}

int lf_tokenize_row(const tokenize *s, lf_tok_state *t, const lf_tokenizer *tok, int64_t eos_id, tok_batch *b, size_t i,
                    const char *where, lf_buf *text, lf_err *err)
{
    const tok_record *r = &b->recs[i];
    lf_row row = {0};
    lf_buf_clear(text);
    int rc = lf_shape_row(&row, &s->shape, b->raw.data + r->at, r->len, where, &b->replaced, err);
    if (rc != 0)
        return rc;
    bool texts = !row.prompt.turns && !row.completion.turns;
    if (row.shape == LF_SHAPE_TEXT)
        rc = encode_text(s, t, eos_id, b, &row, text, err);
    else if (row.shape == LF_SHAPE_PROMPT_COMPLETION && texts)
        rc = encode_pair(s, t, eos_id, b, &row, text, err);
    else if (row.shape == LF_SHAPE_TOKENS)
        rc = take_tokens(tok, b, &row, text, err);
    else
        rc =
            lf_fail(err, LF_ENOTSUP,
                    "a row of shape %s%s needs a chat template, and this version applies none; text, prompt_completion "
                    "of texts, and tokens can be tokenized",
                    lf_shape_name(row.shape), texts ? "" : " with turns");
    if (rc == 0)
        rc = lf_buf_check(text, err);
    lf_row_fini(&row);
    return rc == 0 ? 0 : lf_err_prefix(err, "%s", where);
}
