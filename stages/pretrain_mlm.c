/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-pretrain with objective = mlm and electra: hidden tokens are said, and draws of
 * what is said are told from what was there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/model/electra.h"
#include "stages/pretrain.h"
#include "stages/stage.h"

static int refuse_others(const struct pretrain *p, const lf_optset *o, lf_err *err)
{
    const bool mlm = p->objective == PRETRAIN_MLM, hides = mlm || p->objective == PRETRAIN_ELECTRA,
               denoise = p->objective == PRETRAIN_DENOISE;
    const struct {
        const void *member;
        const char *of;
        bool here;
    } rows[] = {{&p->mlm.share, "mlm, electra, span and denoise",
                 hides || denoise || p->objective == PRETRAIN_SPAN},
                {&p->mask_token, "mlm, electra and denoise", hides || denoise},
                {&p->mlm.random, "mlm, electra and denoise", hides || denoise},
                {&p->mlm.kept, "mlm and electra", hides},
                {&p->spared, "mlm and electra", hides},
                {&p->mlm.whole_words, "mlm, electra and denoise", hides || denoise},
                {&p->paired, "mlm", mlm},
                {&p->separator, "mlm", mlm},
                {&p->discriminator_weight, "electra", hides && !mlm},
                {&p->c.generator_from, "electra", hides && !mlm}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!rows[i].here && lf_optset_given(o, rows[i].member))
            return lf_fail(err, LF_EINVAL, "%s belongs to objective = %s",
                           lf_optset_given(o, rows[i].member), rows[i].of);
    return 0;
}

/* What has no meaning for hidden tokens. */
static int refuse_next(const struct pretrain *p, const lf_optset *o, lf_err *err)
{
    const char *objective = p->objective == PRETRAIN_MLM ? "mlm" : "electra";
    const struct lf_train_config *c = &p->c;
    const void *const members[] = {&c->megatron_order, &c->mtp_weight, &c->max_patches,
                                   &p->samples.interval};
    const char *given = lf_train_samples_given(&p->samples, o, !p->mlm.whole_words);
    for (size_t i = 0; i < sizeof members / sizeof *members && !given; i++)
        given = lf_optset_given(o, members[i]);
    return given ? lf_fail(err, LF_EINVAL,
                           "%s has no meaning with objective = %s, which hides tokens of texts "
                           "and predicts none that follow%s; leave it out",
                           given, objective,
                           lf_optset_given(o, &p->samples.tokenizer) == given
                               ? " (mask_whole_words reads one)"
                               : "")
                 : 0;
}

/* "7" or "0-4". */
static int parse_ids(int64_t range[2], const char *option, const char *text, lf_err *err)
{
    const char *dash = strchr(text, '-');
    char first[32];
    snprintf(first, sizeof first, "%.*s", dash ? (int)(dash - text) : (int)sizeof first - 1, text);
    int rc = lf_parse_count(&range[0], first, err);
    rc = rc != 0 ? rc : lf_parse_count(&range[1], dash ? dash + 1 : first, err);
    if (rc == 0 && (range[1] < range[0] || range[1] > INT32_MAX || range[1] - range[0] > 65535))
        rc = lf_fail(err, LF_EINVAL, "it is the number of a token, or FIRST-LAST of them");
    return rc != 0 ? lf_err_prefix(err, "%s = %s", option, text) : 0;
}

static int by_number(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

int lf_pretrain_read_ids(struct pretrain *p, const char *option, const lf_opt_list *rows,
                         const int32_t **ids, size_t *n, lf_err *err)
{
    int64_t all = 0, range[2];
    for (size_t i = 0; i < rows->n; i++) {
        int rc = parse_ids(range, option, rows->v[i], err);
        if (rc != 0)
            return rc;
        all += range[1] - range[0] + 1;
    }
    int32_t *out = lf_arena_alloc(p->arena, (size_t)all, sizeof *out, err);
    if (!out)
        return LF_ENOMEM;
    *n = 0;
    for (size_t i = 0; i < rows->n; i++) {
        (void)parse_ids(range, option, rows->v[i], NULL);
        for (int64_t id = range[0]; id <= range[1]; id++)
            out[(*n)++] = (int32_t)id;
    }
    qsort(out, *n, sizeof *out, by_number);
    *ids = out;
    return 0;
}

/* The pairs of texts of next sentence prediction. */
static int read_nsp(struct pretrain *p, const lf_optset *o, lf_err *err)
{
    lf_nsp *n = &p->nsp;
    const void *const needed[] = {&p->c.seq2seq.begin, &p->separator};
    static const char *const words[] = {
        "begin_token, the number of the token that begins a pair of texts, such as [CLS]",
        "separator, the number of the token behind each text of a pair, such as [SEP]"};
    for (int i = 0; i < 2; i++)
        if (p->paired && !lf_optset_given(o, needed[i]))
            return lf_fail(err, LF_EINVAL, "nsp needs %s", words[i]);
    if (!p->paired)
        return lf_optset_given(o, &p->separator)
                   ? lf_fail(err, LF_EINVAL, "separator belongs to nsp = yes")
                   : 0;
    n->begin = p->c.seq2seq.begin;
    n->separator = (int32_t)p->separator;
    int rc = lf_pretrain_read_ids(p, "sentence_ends", &p->ends, &n->ends, &n->n_ends, err);
    rc = rc != 0 ? rc : lf_nsp_check(n, 0, err);
    p->c.nsp = n;
    return rc;
}

/* What the generator does not go with. */
static int check_electra(const struct pretrain *p, const lf_optset *o, lf_err *err)
{
    const struct lf_train_config *c = &p->c;
    const void *const layout[] = {&c->axes.tensor,       &c->axes.sequence, &c->axes.across_nodes,
                                  &c->axes.pipeline,     &c->axes.chunks,   &c->axes.schedule,
                                  &c->axes.stages,       &c->axes.measured, &c->axes.context,
                                  &c->axes.context_kind, &c->axes.expert,   &c->axes.expert_room,
                                  &c->axes.expert_tensor};
    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++)
        if (lf_optset_given(o, layout[i]))
            return lf_fail(err, LF_ENOTSUP,
                           "%s: with objective = electra ranks share the batch alone; leave it "
                           "out, or take zero = 1 to divide the optimizer's state",
                           lf_optset_given(o, layout[i]));
    if (c->zero.stage > 1)
        return lf_fail(err, LF_ENOTSUP,
                       "zero = %d: with objective = electra the generator runs once more before "
                       "each pass, where ranks do not meet; take zero = 1",
                       c->zero.stage);
    if (c->layer_decay > 0)
        return lf_fail(err, LF_ENOTSUP,
                       "layer_decay: with objective = electra there are two stacks of layers; take "
                       "lr_scale");
    if (lf_device_choose(c->device) != LF_DEVICE_CPU)
        return lf_fail(err, LF_ENOTSUP,
                       "device: with objective = electra words are drawn by the host, which would "
                       "hold a GPU up; take device = cpu");
    return c->compute == LF_F16
               ? lf_fail(err, LF_ENOTSUP,
                         "precision = fp16 is not for objective = electra; take bf16")
               : 0;
}

static int read_electra(struct pretrain *p, const lf_optset *o, lf_err *err)
{
    const struct lf_electra_train_opts of = {.weight = p->discriminator_weight,
                                             .seed = p->c.seed,
                                             .seq_length = p->c.seq_length,
                                             .threads = lf_stage_threads(o)};
    const int rc = check_electra(p, o, err);
    if (rc != 0)
        return rc;
    if (!(p->replacing = lf_electra_train_create(&of, err)))
        return LF_ENOMEM;
    p->c.objective = lf_electra_train_objective(p->replacing);
    return 0;
}

int lf_pretrain_read_mlm(struct pretrain *p, const lf_optset *o, lf_err *err)
{
    const bool electra = p->objective == PRETRAIN_ELECTRA;
    int rc = refuse_others(p, o, err);
    if (rc != 0 || (p->objective != PRETRAIN_MLM && !electra))
        return rc;
    rc = refuse_next(p, o, err);
    if (rc != 0)
        return rc;
    if (!lf_optset_given(o, &p->mask_token))
        return lf_fail(err, LF_EINVAL,
                       "objective = %s needs mask_token, the number of the token that stands for "
                       "a hidden one",
                       electra ? "electra" : "mlm");
    p->mlm.mask_token = (int32_t)p->mask_token;
    rc = lf_pretrain_read_ids(p, "mask_spared", &p->spared, &p->mlm.spared, &p->mlm.n_spared, err);
    rc = rc != 0 ? rc : lf_mlm_check(&p->mlm, 0, err);
    p->c.mlm = &p->mlm;
    if (rc == 0 && electra)
        return read_electra(p, o, err);
    return rc != 0 ? rc : read_nsp(p, o, err);
}

int lf_pretrain_settle_electra(struct pretrain *p, lf_err *err)
{
    lf_model_config *c = &p->c.model;
    if (!p->c.model_given)
        return 0;
    if (p->objective == PRETRAIN_ELECTRA)
        lf_model_give_discriminator(c);
    else if (c->generator_layers)
        return lf_fail(err, LF_EINVAL,
                       "[model] generator_layers: a generator and the model that tells its draws "
                       "are trained with objective = electra");
    return 0;
}

int lf_pretrain_open_words(struct pretrain *p, lf_err *err)
{
    struct lf_train_samples *q = &p->samples;
    if (!p->mlm.whole_words)
        return 0;
    int rc = lf_train_samples_find_tokenizer(q, &p->c, err);
    if (rc == 0 && !q->tok)
        rc = lf_fail(err, LF_EINVAL,
                     "mask_whole_words reads the marks of words in a tokenizer, and beside %s lies "
                     "none that made it: give tokenizer",
                     p->c.sources[0].dir);
    if (rc != 0)
        return rc;
    const size_t n = lf_tokenizer_vocab_size(q->tok);
    uint8_t *marks = lf_arena_alloc(p->arena, n, sizeof *marks, err);
    rc = marks ? lf_tokenizer_word_marks(q->tok, marks, n, err) : LF_ENOMEM;
    p->mlm.marks = marks;
    p->mlm.n_marks = n;
    return rc != 0 ? lf_err_prefix(err, "mask_whole_words") : 0;
}
