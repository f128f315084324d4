/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of encoder-decoders: of documents that are a source and a target, and of corrupted texts. */
#include <string.h>

#include "engine/train/loader_priv.h"

lf_loader_config lf_loader_index_config(const lf_loader_config *c)
{
    lf_loader_config i = *c;
    if (lf_loader_corrupts(c)) {
        i.T = lf_seq2seq_text(c->seq2seq, c->T);
        i.seq2seq = NULL;
    }
    return i;
}

int lf_loader_seq2seq_check(const lf_loader_config *c, lf_err *err)
{
    if (!c->seq2seq)
        return 0;
    if (c->megatron || c->max_patches || c->mlm || c->rows != LF_ROWS_PLAIN)
        return lf_fail(err, LF_EINVAL,
                       "sources and targets are made of plain documents, without %s",
                       c->megatron ? "sample_order = megatron"
                       : c->mlm    ? "objective = mlm"
                                   : "pictures");
    if ((int64_t)c->B * c->seq2seq->source_length > INT32_MAX / 4)
        return lf_fail(err, LF_EINVAL,
                       "a micro-batch of %d sources of source_length = %d is not possible", c->B,
                       c->seq2seq->source_length);
    if (c->decoder_start < 0 || (c->vocab_size && c->decoder_start >= c->vocab_size))
        return lf_fail(err, LF_EINVAL, "decoder_start = %d: the vocabulary has %lld words",
                       c->decoder_start, (long long)c->vocab_size);
    return lf_seq2seq_check(c->seq2seq, c->T, c->vocab_size, err);
}

int lf_loader_seq2seq_source(const lf_loader *l, const struct lf_loader_src *src, lf_err *err)
{
    if (!l->seq2seq)
        return 0;
    if (l->seq2seq->kind == LF_SEQ2SEQ_PAIRS && !src->masked)
        return lf_fail(err, LF_EINVAL,
                       "%s: every token of it is trained, so no document has a source; an "
                       "encoder-decoder is fine-tuned on prompts and answers",
                       src->dir);
    if (l->seq2seq->kind != LF_SEQ2SEQ_PAIRS && src->masked)
        return lf_fail(err, LF_EINVAL,
                       "%s has a loss mask, and of a corrupted text every token is trained",
                       src->dir);
    if (lf_shardset_get_info(src->set)->eos_id < 0)
        return lf_fail(err, LF_EINVAL,
                       "%s: its tokenizer has no token that ends a text, which sources and targets "
                       "end with",
                       src->dir);
    return 0;
}

/* ---- one document of a row ---- */

/* Where it stands: flattened rows of both axes. */
struct place {
    size_t target, source;
};

/* What the decoder reads: the token that it starts with, then what it should have said. */
static void shift_right(int32_t *tokens, const int32_t *said, int32_t n, int32_t start)
{
    for (int32_t i = n - 1; i > 0; i--)
        tokens[i] = said[i - 1];
    if (n > 0)
        tokens[0] = start;
}

static void end_source(lf_loader_batch *b, size_t end)
{
    b->source_cu_seqlens[b->n_segs + 1] = (int32_t)end;
}

/* Closes a document of so many tokens at `at`, which moves behind it. */
static void end_document(lf_loader_batch *b, struct place *at, int32_t n_source, int32_t n_target)
{
    lf_loader_positions(b->positions + at->target, n_target);
    lf_loader_positions(b->source_positions + at->source, n_source);
    at->target += (size_t)n_target;
    at->source += (size_t)n_source;
    end_source(b, at->source);
    lf_loader_end_segment(b, (int32_t)at->target);
}

/* A source without a token of the end gets one: it may be a prompt of a decoder's format. */
static int fill_pair(const lf_loader *l, lf_loader_batch *b, struct place *at,
                     const struct lf_loader_src *src, const lf_pack_seg *seg, lf_err *err)
{
    const int32_t prompt = (int32_t)seg->first, n = (int32_t)seg->len;
    int32_t *source = b->source_tokens + at->source, *targets = b->targets + at->target,
            n_source = prompt;
    int rc = lf_shardset_read(src->set, seg->doc, 0, seg->first, source, err);
    if (rc == 0)
        rc = lf_shardset_read(src->set, seg->doc, seg->first, seg->len, targets, err);
    if (rc != 0)
        return rc;
    if (source[prompt - 1] != l->pad_token)
        source[n_source++] = l->pad_token; /* the token of the end */
    shift_right(b->tokens + at->target, targets, n, l->decoder_start);
    for (int32_t i = 0; i < n; i++)
        if (!lf_shardset_trained(src->set, seg->doc, seg->first + (uint64_t)i))
            targets[i] = -1;
        else
            b->trained++;
    lf_loader_name_segment(b, (int64_t)seg->doc, (size_t)(src - l->src), false);
    end_document(b, at, n_source, n);
    return 0;
}

/* All segments of a row are one text. */
static int fill_text(const lf_loader *l, lf_loader_batch *b, struct place *at,
                     const struct lf_loader_src *src, const lf_pack_seg *segs, uint32_t n_segs,
                     lf_err *err)
{
    int32_t n = 0;
    int rc = 0;
    for (uint32_t k = 0; k < n_segs && rc == 0; k++) {
        rc = lf_shardset_read(src->set, segs[k].doc, segs[k].first, segs[k].len, l->row + n, err);
        n += (int32_t)segs[k].len;
    }
    if (rc != 0)
        return rc;
    struct lf_seq2seq_row r = {.seed = l->order.seed,
                               .valid = l->order.mode == LF_LOADER_VALID,
                               .sample = b->sample_ids[at->source / (size_t)b->S],
                               .vocab = l->mlm_vocab,
                               .eos = l->pad_token,
                               .text = l->row,
                               .n = n,
                               .work = l->work,
                               .source = b->source_tokens + at->source,
                               .target = b->targets + at->target};
    lf_seq2seq_corrupt(l->seq2seq, &r);
    shift_right(b->tokens + at->target, b->targets + at->target, r.n_target, l->decoder_start);
    b->trained += r.n_target;
    lf_loader_name_segment(b, -1, (size_t)(src - l->src), false);
    end_document(b, at, r.n_source, r.n_target);
    return 0;
}

/* ---- rows ---- */

/* The padding of a row, on whichever axis there is some. */
static void pad(const lf_loader *l, lf_loader_batch *b, struct place *at, struct place end)
{
    if (at->target == end.target && at->source == end.source)
        return;
    for (size_t i = at->target; i < end.target; i++) {
        b->tokens[i] = l->pad_token;
        b->targets[i] = -1;
    }
    for (size_t i = at->source; i < end.source; i++)
        b->source_tokens[i] = l->pad_token;
    lf_loader_name_segment(b, -1, 0, false);
    end_document(b, at, (int32_t)(end.source - at->source), (int32_t)(end.target - at->target));
}

int lf_loader_seq2seq_fill(const lf_loader *l, lf_loader_batch *b, int32_t row,
                           const struct lf_loader_src *src, const lf_pack_seg *segs,
                           uint32_t n_segs, lf_err *err)
{
    const size_t T = (size_t)l->T, S = (size_t)b->S, r = (size_t)row;
    struct place at = {r * T, r * S};
    struct lf_unit_part part[LF_UNIT_PARTS];
    int rc = 0;
    if (l->text && n_segs > 0)
        rc = fill_text(l, b, &at, src, segs, n_segs, err);
    for (uint32_t k = 0; !l->text && k < n_segs && rc == 0; k++) {
        lf_units_parts(&src->units, &segs[k], part);
        rc = fill_pair(l, b, &at, src, &part[0].seg, err);
    }
    if (rc == 0)
        pad(l, b, &at, (struct place){(r + 1) * T, (r + 1) * S});
    return rc;
}

int64_t lf_loader_seq2seq_trained(const lf_loader *l, const struct lf_loader_src *src, uint64_t seq)
{
    struct lf_unit_part part[LF_UNIT_PARTS];
    int64_t trained = 0;
    if (l->text)
        return lf_seq2seq_target(l->seq2seq, (int32_t)lf_pack_tokens(src->pack, seq, NULL));
    const uint32_t n = lf_pack_get(src->pack, seq, l->count_segs);
    for (uint32_t i = 0; i < n; i++) {
        lf_units_parts(&src->units, &l->count_segs[i], part);
        trained += (int64_t)lf_shardset_count_trained(src->set, part[0].seg.doc, part[0].seg.first,
                                                      part[0].seg.len);
    }
    return trained;
}
