/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-pretrain with objective = span and denoise: an encoder-decoder restores texts. */
#include "stages/pretrain.h"

#define SHARE_DENOISE 0.3 /* of Lewis et al. 2020; that of span is the option's default */

static int refuse_others(const struct pretrain *p, const lf_optset *o, lf_err *err)
{
    const lf_seq2seq *s = &p->c.seq2seq;
    const bool span = p->objective == PRETRAIN_SPAN, denoise = p->objective == PRETRAIN_DENOISE;
    const struct {
        const void *member;
        const char *of;
        bool here;
    } rows[] = {{&s->mean, "span and denoise", span || denoise},
                {&s->sentinel, "span", span},
                {&s->n_sentinels, "span", span},
                {&s->begin, "denoise and nsp", denoise || p->paired},
                {&p->ends, "denoise and nsp", denoise || p->paired}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!rows[i].here && lf_optset_given(o, rows[i].member))
            return lf_fail(err, LF_EINVAL, "%s belongs to objective = %s",
                           lf_optset_given(o, rows[i].member), rows[i].of);
    return 0;
}

/* What has no meaning for texts that are corrupted. */
static int refuse_next(const struct pretrain *p, const lf_optset *o, lf_err *err)
{
    const struct lf_train_config *c = &p->c;
    const void *const members[] = {&c->megatron_order, &c->mtp_weight, &c->max_patches, &c->packing,
                                   &p->samples.interval};
    const char *given = lf_train_samples_given(&p->samples, o, !p->mlm.whole_words);
    for (size_t i = 0; i < sizeof members / sizeof *members && !given; i++)
        given = lf_optset_given(o, members[i]);
    return given ? lf_fail(err, LF_EINVAL,
                           "%s has no meaning with objective = %s, which takes spans out of texts "
                           "that lie one behind the other; leave it out",
                           given, p->objective == PRETRAIN_SPAN ? "span" : "denoise")
                 : 0;
}

int lf_pretrain_read_seq2seq(struct pretrain *p, const lf_optset *o, lf_err *err)
{
    lf_seq2seq *s = &p->c.seq2seq;
    const bool span = p->objective == PRETRAIN_SPAN;
    int rc = refuse_others(p, o, err);
    if (rc != 0 || (!span && p->objective != PRETRAIN_DENOISE))
        return rc;
    rc = refuse_next(p, o, err);
    if (rc != 0)
        return rc;
    if (!lf_optset_given(o, &s->source_length))
        return lf_fail(err, LF_EINVAL,
                       "objective = %s needs source_length, the tokens that the encoder reads",
                       span ? "span" : "denoise");
    if (span && !lf_optset_given(o, &s->sentinel))
        return lf_fail(err, LF_EINVAL,
                       "objective = span needs sentinel_token, the number of the token that stands "
                       "for the first span");
    if (!span && !lf_optset_given(o, &p->mask_token))
        return lf_fail(err, LF_EINVAL,
                       "objective = denoise needs mask_token, the number of the token that stands "
                       "for a span");
    s->kind = span ? LF_SEQ2SEQ_SPAN : LF_SEQ2SEQ_DENOISE;
    s->share = span || lf_optset_given(o, &p->mlm.share) ? p->mlm.share : SHARE_DENOISE;
    s->mask_token = (int32_t)p->mask_token;
    s->random = !span && lf_optset_given(o, &p->mlm.random) ? p->mlm.random : 0;
    s->words = p->mlm.whole_words ? &p->mlm : NULL;
    rc = lf_pretrain_read_ids(p, "sentence_ends", &p->ends, &s->ends, &s->n_ends, err);
    return rc != 0 ? rc : lf_seq2seq_check(s, p->c.seq_length, 0, err);
}
