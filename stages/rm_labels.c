/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-rm with objective = labels: a model of init_from that classifies, measures or finds
 * answers; and of vectors, objective = contrast. */
#include <string.h>

#include "stages/rm.h"

static int refuse_given(const lf_optset *o, const void *const *members, size_t n,
                        const char *objective, lf_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (lf_optset_given(o, members[i]))
            return lf_fail(err, LF_EINVAL, "%s belongs to objective = %s",
                           lf_optset_given(o, members[i]), objective);
    return 0;
}

static int refuse_others(const struct rm *r, const lf_optset *o, lf_err *err)
{
    const void *const of_labels[] = {&r->label_kind, &r->l.form.labels, &r->l.form.column};
    const void *const of_vectors[] = {&r->v.temperature, &r->v.both, &r->pooling};
    const void *const separator[] = {&r->l.separator};
    int rc = 0;
    if (r->objective_kind != RM_LABELS)
        rc = refuse_given(o, of_labels, 3, "labels", err);
    if (rc == 0 && r->objective_kind != RM_CONTRAST)
        rc = refuse_given(o, of_vectors, 3, "contrast", err);
    if (rc == 0 && r->objective_kind == RM_PAIRS)
        rc = refuse_given(o, separator, 1, "labels or contrast", err);
    return rc;
}

static int refuse_pairs(const struct rm *r, const lf_optset *o, lf_err *err)
{
    const void *const members[] = {&r->t.centre,    &r->t.margins,  &r->t.require_eos,
                                   &r->t.normalize, &r->score_init, &r->samples.interval};
    return refuse_given(o, members, sizeof members / sizeof *members, "pairs", err);
}

static int read_contrast(struct rm *r, lf_err *err)
{
    if (r->l.separator < 0)
        return lf_fail(
            err, LF_EINVAL,
            "objective = contrast needs separator, the number of the token that ends a "
            "text: a prompt is a question and its answer, each with that token behind it");
    r->v.separator = r->l.separator;
    r->v.pool = (enum lf_rm_pool)r->pooling;
    r->v.dropout = r->g.dropout;
    r->v.threads = r->c.threads;
    if (!(r->contrast = lf_contrast_train_create(&r->v, err)))
        return LF_ENOMEM;
    r->c.objective = lf_contrast_train_objective(r->contrast);
    return 0;
}

int lf_rm_read_labels(struct rm *r, const lf_optset *o, lf_err *err)
{
    static const int64_t usual[] = {
        [LF_LABEL_ONE] = 2, [LF_LABEL_NUMBERS] = 1, [LF_LABEL_SPAN] = 2};
    struct lf_label_form *f = &r->l.form;
    const int rc = refuse_others(r, o, err);
    if (rc != 0 || r->objective_kind == RM_PAIRS)
        return rc;
    if (r->objective_kind == RM_CONTRAST)
        return read_contrast(r, err);
    f->kind = (enum lf_label_kind)r->label_kind;
    if (!f->labels && f->kind < sizeof usual / sizeof *usual)
        f->labels = usual[f->kind];
    if (!f->labels)
        return lf_fail(err, LF_EINVAL, "label_kind = %s needs labels, how many there are",
                       f->kind == LF_LABEL_ANY ? "any" : "tokens");
    if ((f->kind == LF_LABEL_ONE || f->kind == LF_LABEL_TOKENS) && f->labels < 2)
        return lf_fail(err, LF_EINVAL, "labels = %lld: of one class there is nothing to learn",
                       (long long)f->labels);
    if (f->kind == LF_LABEL_SPAN && f->labels != 2)
        return lf_fail(err, LF_EINVAL, "labels = %lld: a span has two, its begin and its end",
                       (long long)f->labels);
    r->l.dropout = r->g.dropout;
    r->labels = lf_label_train_create(&r->l, err);
    if (!r->labels)
        return LF_ENOMEM;
    r->c.objective = lf_label_train_objective(r->labels);
    return 0;
}

int lf_rm_check_labels(const struct rm *r, const lf_optset *o, lf_err *err)
{
    return r->objective_kind != RM_PAIRS ? refuse_pairs(r, o, err) : 0;
}

int lf_rm_describe_labels(struct rm *r, lf_err *err)
{
    lf_model_config *m = &r->c.model;
    const struct lf_label_form *f = &r->l.form;
    const int of = lf_label_of(f->kind);
    int rc = lf_model_need_text(m, err);
    if (rc == 0 && r->objective_kind == RM_LABELS)
        rc = lf_model_want_labels(m, f->labels, of, err);
    if (rc == 0 && r->objective_kind == RM_CONTRAST && r->c.axes.pipeline > 1 &&
        m->output == LF_OUTPUT_TOKENS && m->tied_head) /* the last rank has no gradient of it */
        return lf_fail(err, LF_ENOTSUP,
                       "pipeline = %d: the embedding is the head too (tied_head), which vectors do "
                       "not read; take pipeline = 1",
                       (int)r->c.axes.pipeline);
    return rc == 0 && r->l.separator >= m->vocab
               ? lf_fail(err, LF_EINVAL, "separator = %lld: the vocabulary has %lld words",
                         (long long)r->l.separator, (long long)m->vocab)
               : rc;
}
