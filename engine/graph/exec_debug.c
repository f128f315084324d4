/* SPDX-License-Identifier: Apache-2.0
 *
 * For people and tests: the poisoning executor, the fingerprint.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/graph/exec_priv.h"
#include "engine/graph/experts.h"

enum { POISON = 0xFF }; /* NaN in every float type, an absurd index in i32 */

int lf_exec_poison(lf_exec *ex, char *at, size_t bytes, lf_err *err)
{
    return ex->b->ops->fill(ex->b, at, POISON, bytes, err);
}

/* Everything of the chain that no other slot keeps: transients, and before a forward pass what the
 * slot saved. */
int lf_exec_poison_start(lf_exec *ex, const struct lf_chain *c, int slot, bool forward, lf_err *err)
{
    char *base = ex->arena + c->arena_off;
    int rc = 0;
    if (forward && c->saved_bytes)
        rc = lf_exec_poison(ex, base + (size_t)slot * c->saved_bytes, c->saved_bytes, err);
    return rc != 0 || !(forward || lf_chain_apart(c))
               ? rc
               : lf_exec_poison(ex, base + c->rest_off, c->rest_bytes, err);
}

static int poison_dead(lf_exec *ex, const struct lf_chain *c, size_t node, int slot, lf_err *err)
{
    int rc = 0;
    for (size_t t = 1; t < c->g->n_t && rc == 0; t++) {
        const struct lf_tensor *x = &c->g->t[t];
        if (x->root == (int32_t)t && x->role == LF_ROLE_ACT && x->last == (int32_t)node &&
            !x->is_output)
            rc = lf_exec_poison(ex, lf_exec_addr(ex, c, slot, (int32_t)t), lf_tensor_bytes(x), err);
    }
    for (size_t i = 0; i < c->n_windows && rc == 0; i++) {
        const struct lf_window *w = &c->window[i];
        if (w->kind != LF_P_GRAD && w->last == (int32_t)node)
            rc = lf_exec_poison(ex, ex->arena + c->arena_off + w->off,
                                ex->p->unit[w->unit].bytes[w->kind], err);
    }
    if (rc == 0 && c->work_bytes[node] && lf_late_until(c, (int32_t)node) == (int32_t)node)
        rc = lf_exec_poison(ex, ex->arena + c->arena_off + c->work_off[node], c->work_bytes[node],
                            err);
    return rc;
}

int lf_exec_run_poisoned(lf_exec *ex, int chain, size_t from, size_t to, int slot, int variant,
                         lf_err *err)
{
    const struct lf_chain *c = &ex->p->c[chain];
    const struct lf_call *calls = lf_exec_calls(ex, chain, slot, variant);
    int rc = 0;
    for (size_t i = from; i < to && rc == 0; i++) {
        int krc = lf_exec_node(ex, c, calls, i);
        rc = krc ? lf_exec_call_failed(ex, c, i, krc, err) : poison_dead(ex, c, i, slot, err);
    }
    return rc;
}

/* How the optimizer keeps its state: "f32", or "bf16 moments, bf16 masters, stochastic". */
static void state_text(char *out, size_t cap, const struct lf_adamw_opts *o)
{
    const bool m = o->moments == LF_BF16, p = o->masters == LF_BF16;
    snprintf(out, cap, "%s%s%s%s", m ? "bf16 moments" : "", m && p ? ", " : "",
             p ? "bf16 masters" : "",
             !m && !p        ? "f32"
             : o->stochastic ? ", stochastic"
                             : ", nearest");
}

json_t *lf_exec_fingerprint(const lf_exec *ex, lf_err *err)
{
    char hash[20], state[64];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)lf_plan_hash(ex->p));
    state_text(state, sizeof state, &ex->p->adamw);
    json_t *j =
        json_pack("{s:s, s:s, s:i, s:s, s:i, s:s, s:s, s:s, s:s}", "backend", ex->b->ops->name,
                  "kernels", ex->b->kernels->family, "kernel_version", LF_KERNEL_VERSION, "target",
                  ex->p->o.target->name, "threads", ex->b->threads, "numeric",
                  ex->p->o.mode == LF_INVARIANT ? "invariant" : "fast", "compute",
                  lf_plan_compute(ex->p), "optimizer_state", state, "plan", hash);
    const char *products = ex->b->ops->products ? ex->b->ops->products(ex->b, ex->p->o.mode) : NULL;
    const char *attention =
        ex->b->ops->attention ? ex->b->ops->attention(ex->b, ex->p->o.mode) : NULL;
    if (!j || (attention && json_object_set_new(j, "attention", json_string(attention))) ||
        (ex->b->device && json_object_set_new(j, "device", json_string(ex->b->device))) ||
        (products && json_object_set_new(j, "products", json_string(products)))) {
        json_decref(j);
        lf_fail(err, LF_ENOMEM, "fingerprint: out of memory");
        return NULL;
    }
    return j;
}
