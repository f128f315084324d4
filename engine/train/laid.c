/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout of a run, told: see laid.h.
 */
#include "engine/train/laid.h"

static bool is_cut(const struct lf_train_cut *k)
{
    return k && lf_train_is_cut(k);
}

static void add_layers(lf_buf *out, const struct lf_train_cut *k)
{
    for (int s = 0; s < k->spec.ranks * k->spec.chunks; s++)
        lf_buf_addf(out, "%s%d", s ? "," : "", k->layers[s]);
}

void lf_laid_line(lf_buf *out, const struct lf_axes *a, const struct lf_train_who *w,
                  const struct lf_train_cut *k)
{
    const char *sep = ": ";
    if (lf_axes_ranks(w) <= 1)
        return;
    lf_buf_addf(out, "%d ranks", lf_axes_ranks(w));
    if (is_cut(k)) {
        lf_buf_addf(out, ": pipeline %d (%s; layers ", w->pipeline_ranks,
                    lf_pipe_kind_name(k->spec.kind));
        add_layers(out, k);
        lf_buf_addf(out, ")");
        sep = " x ";
    }
    if (w->data_ranks > 1) {
        lf_buf_addf(out, "%sdata %d", sep, w->data_ranks);
        sep = " x ";
    }
    if (w->context_ranks > 1) {
        lf_buf_addf(out, "%scontext %d", sep, w->context_ranks);
        if (a->context_kind != LF_CONTEXT_ULYSSES)
            lf_buf_addf(out, " (%s)", lf_context_kind_name(a->context_kind));
        sep = " x ";
    }
    if (w->expert_ranks > 1 && !w->folded)
        lf_buf_addf(out, " (expert %d)", w->expert_ranks);
    if (w->tensor_ranks > 1)
        lf_buf_addf(out, "%stensor %d%s", sep, w->tensor_ranks,
                    a->sequence ? ", rows divided" : "");
    if (w->folded)
        lf_buf_addf(out, " (expert %d)", w->expert_ranks);
}

json_t *lf_laid_axes(const struct lf_axes *a, const struct lf_train_who *w)
{
    json_t *axes = json_pack("{s:i,s:i,s:i,s:b}", "pipeline", w->pipeline_ranks, "data",
                             w->data_ranks, "tensor", w->tensor_ranks, "sequence", a->sequence);
    const bool kind = w->context_ranks > 1 && a->context_kind != LF_CONTEXT_ULYSSES;
    if (axes &&
        ((w->context_ranks > 1 &&
          json_object_set_new(axes, "context", json_integer(w->context_ranks)) != 0) ||
         (kind && json_object_set_new(axes, "context_kind",
                                      json_string(lf_context_kind_name(a->context_kind))) != 0) ||
         (w->expert_ranks > 1 &&
          json_object_set_new(axes, "expert", json_integer(w->expert_ranks)) != 0) ||
         (w->folded && json_object_set_new(axes, "expert_tensor", json_integer(1)) != 0))) {
        json_decref(axes);
        axes = NULL;
    }
    return axes;
}

int lf_laid_sizeless(json_t *plan, const struct lf_axes *a, const struct lf_train_who *w,
                     lf_err *err)
{
    json_t *notes =
        json_pack("[s]", "sizes follow from the checkpoint init_from, which does not exist yet");
    const struct lf_json_member m[] = {{"axes", lf_laid_axes(a, w)}, {"notes", notes}};
    return lf_json_set(plan, m, sizeof m / sizeof m[0], "plan", err);
}

int lf_laid_sign(json_t *fingerprint, const struct lf_axes *a, const struct lf_train_who *w,
                 const struct lf_train_cut *k, lf_err *err)
{
    lf_buf layers;
    bool failed = false;
    if (w->tensor_ranks > 1)
        failed = json_object_set_new(fingerprint, "tensor", json_integer(w->tensor_ranks)) != 0 ||
                 json_object_set_new(fingerprint, "sequence", json_boolean(a->sequence)) != 0;
    if (!failed && w->context_ranks > 1)
        failed = json_object_set_new(fingerprint, "context", json_integer(w->context_ranks)) != 0;
    if (!failed && w->context_ranks > 1 && a->context_kind != LF_CONTEXT_ULYSSES)
        failed = json_object_set_new(fingerprint, "context_kind",
                                     json_string(lf_context_kind_name(a->context_kind))) != 0;
    if (!failed && w->expert_ranks > 1)
        failed = json_object_set_new(fingerprint, "expert", json_integer(w->expert_ranks)) != 0;
    if (!failed && is_cut(k) && lf_pipe_in_v(&k->spec))
        failed = json_object_set_new(fingerprint, "placement", json_string("v")) != 0;
    if (!failed && w->folded)
        failed = json_object_set_new(fingerprint, "expert_tensor", json_integer(1)) != 0;
    if (!failed && is_cut(k)) {
        lf_buf_init(&layers);
        add_layers(&layers, k);
        failed =
            lf_buf_check(&layers, NULL) != 0 ||
            json_object_set_new(fingerprint, "pipeline", json_integer(w->pipeline_ranks)) != 0 ||
            json_object_set_new(fingerprint, "layers", json_string(layers.data)) != 0;
        lf_buf_fini(&layers);
    }
    return failed ? lf_fail(err, LF_ENOMEM, "fingerprint: out of memory") : 0;
}

json_t *lf_laid_whole(const json_t *fingerprint)
{
    json_t *whole =
        json_is_object(fingerprint) ? json_copy((json_t *)(uintptr_t)fingerprint) : NULL;
    json_t *none = json_pack("{s:i,s:b,s:i,s:s,s:i,s:s,s:s,s:i,s:i}", "tensor", 1, "sequence", 0,
                             "context", 1, "context_kind", "ulysses", "pipeline", 1, "layers",
                             "all", "placement", "in turns", "expert", 1, "expert_tensor", 0);
    if (whole && (!none || json_object_update_missing(whole, none) != 0)) {
        json_decref(whole);
        whole = NULL;
    }
    json_decref(none);
    return whole;
}

static int64_t sends(const struct lf_pipe_list *list)
{
    int64_t n = 0;
    for (int i = 0; i < list->n; i++)
        n += list->item[i].op == LF_PIPE_SEND;
    return n;
}

int64_t lf_laid_messages(const struct lf_train_cut *k, int micro_batches)
{
    const struct lf_pipe *p = is_cut(k) ? lf_train_list(k, micro_batches) : NULL;
    int64_t most = 0;
    for (int r = 0; p && r < p->spec.ranks; r++) {
        const int64_t n = sends(&p->list[r]);
        most = n > most ? n : most;
    }
    return most;
}
