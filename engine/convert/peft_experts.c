/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters of experts, which PEFT has of stacked parameters (target_parameters). transformers 5 has
 * the matrices of a layer's experts as gate_up_proj [E, 2 I, H], rows of gate before those of up,
 * and down_proj [E, H, I]; without a gate the first is up_proj. In gpt-oss they are turned, which
 * PEFT knows, and rows of gate and up come in turns; in Llama 4 they are turned and PEFT does not
 * know it. A module whose two parameters are adapted is wrapped twice, the later parameter on the
 * outside. Modules of single experts, as programs before transformers 5 had them, are refused. */
#include <stdio.h>
#include <string.h>

#include "engine/base/str.h"
#include "engine/convert/peft_priv.h"

enum { GATE_UP, DOWN, PARAMS };

static bool gated(const struct lf_peft *p)
{
    return lf_decoder_config(p->dec)->mlp == LF_MLP_GLU;
}

/* The matrices of a parameter, in their order. */
static int parts_of(const struct lf_peft *p, int param, const char *part[2])
{
    part[0] = param == DOWN ? "down" : gated(p) ? "gate" : "up";
    part[1] = "up";
    return param == GATE_UP && gated(p) ? 2 : 1;
}

/* "layers.L.moe.experts.PART.weight" in the store; -1: the layer has no experts. */
static int weight_of(const struct lf_peft *p, int64_t l, const char *part)
{
    char name[96];
    snprintf(name, sizeof name, "layers.%lld.moe.experts.%s.weight", (long long)l, part);
    return lf_pstore_find(p->ps, name);
}

/* The program's module of the experts of a layer, from the tensor of a file that has their
 * matrices. Files of one tensor an expert are of programs before transformers 5, where some had
 * another name for what holds them, or for a stack (Granite). turns: rows of gate and up come in
 * turns there. */
static int module_of(struct lf_peft *p, int weight, const char **module, bool *turns, lf_err *err)
{
    static const char sparse[] = ".block_sparse_moe.", linear[] = ".input_linear.";
    const char *ours = lf_pstore_desc(p->ps, weight)->name;
    const struct lf_map_item *it = NULL;
    const struct lf_map_parts *parts = NULL;
    for (size_t k = 0; k < p->map.n_items && !it; k++)
        for (size_t s = 0; s < p->map.of_item[k].n && !it; s++)
            if (strcmp(p->map.ours[p->map.of_item[k].segs[s].src].name, ours) == 0) {
                it = &p->map.items[k];
                parts = &p->map.of_item[k];
            }
    const char *end = it ? strstr(it->name, ".experts.") : NULL;
    end = it && !end ? strstr(it->name, linear) : end;
    if (!end)
        return lf_fail(err, LF_ENOTSUP,
                       "family %s: the experts are no stacked parameters in that program, whose "
                       "adapters are not known here",
                       p->family->name);
    for (size_t s = 0; s < parts->n; s++)
        *turns = *turns || (parts->segs[s].n == 1 && parts->segs[s].times > 1);
    if (parts->blocks.n && it->kind != LF_MAP_EXPERT && !*turns)
        return lf_fail(err, LF_ENOTSUP,
                       "family %s: PEFT takes the experts' parameters, which are [in, out] in that "
                       "program, for [out, in]; such adapters are not known here",
                       p->family->name);
    char *whole =
        lf_arena_printf(p->arena, err, "%.*s.experts.weight", (int)(end - it->name), it->name);
    const char *name = whole ? lf_peft_module(p, whole, err) : NULL,
               *old = name && it->kind == LF_MAP_EXPERT ? strstr(name, sparse) : NULL;
    if (old)
        name = lf_arena_printf(p->arena, err, "%.*s.mlp.%s", (int)(old - name), name,
                               old + strlen(sparse));
    *module = name;
    return name ? 0 : LF_ENOMEM;
}

static const char *stem(const struct lf_peft *p, const char *name, lf_err *err)
{
    return lf_arena_printf(p->arena, err, "%.*s", (int)(strlen(name) - strlen(".weight")), name);
}

/* A parameter of layer l; inner: the other one is adapted, too. */
static int add_stack(struct lf_peft *p, int64_t l, int param, bool inner, lf_err *err)
{
    struct lf_peft_experts *x = &p->stack[p->n_stacks];
    const char *part[2];
    *x = (struct lf_peft_experts){.inner = inner, .n = parts_of(p, param, part)};
    x->param = param == DOWN ? "down_proj" : gated(p) ? "gate_up_proj" : "up_proj";
    const int first = weight_of(p, l, part[0]), of = weight_of(p, l, gated(p) ? "gate" : "up");
    for (int k = 0; k < x->n; k++) {
        const int i = weight_of(p, l, part[k]);
        const struct lf_param_desc *d = lf_pstore_desc(p->ps, i);
        if (!lf_pstore_adapted(p->ps, d->group) ||
            (k > 0 && lf_pstore_adapter_first(p->ps, i) != first))
            return lf_fail(err, LF_ENOTSUP,
                           "experts of layer %lld: gate and up are one parameter in the program of "
                           "family %s, so adapt them as one "
                           "(lora_targets = layers.*.moe.experts.gate+up.weight)",
                           (long long)l, p->family->name);
        x->experts = d->dims[0];
        x->rows[k] = d->dims[1];
        x->cols = d->dims[2];
        if (!(x->stem[k] = stem(p, d->name, err)))
            return LF_ENOMEM;
    }
    const int rc = module_of(p, of, &x->module, &x->turns, err);
    p->n_stacks += rc == 0;
    return rc;
}

static bool any_adapted(const struct lf_peft *p, int64_t l, int param)
{
    const char *part[2];
    bool is = false;
    for (int k = 0, n = parts_of(p, param, part); k < n; k++) {
        const int i = weight_of(p, l, part[k]);
        is = is || (i >= 0 && lf_pstore_adapted(p->ps, lf_pstore_desc(p->ps, i)->group));
    }
    return is;
}

int lf_peft_find_stacks(struct lf_peft *p, lf_err *err)
{
    const int64_t layers = lf_decoder_config(p->dec)->layers;
    p->stack = lf_arena_alloc(p->arena, (size_t)layers * PARAMS, sizeof *p->stack, err);
    int rc = p->stack ? 0 : LF_ENOMEM;
    for (int64_t l = 0; l < layers && rc == 0; l++)
        for (int k = 0; k < PARAMS && rc == 0; k++)
            if (any_adapted(p, l, k))
                rc = add_stack(p, l, k, k == GATE_UP && any_adapted(p, l, DOWN), err);
    return rc;
}

/* ---- their tensors ---- */

const char *lf_peft_stack_name(const struct lf_peft *p, const struct lf_peft_experts *x, int which,
                               lf_err *err)
{
    return lf_arena_printf(p->arena, err, LF_PEFT_BEFORE "%s.%s%s", x->module,
                           x->inner ? "base_layer." : "", lf_peft_tensors[which].theirs);
}

static int64_t all_rows(const struct lf_peft_experts *x)
{
    return x->rows[0] + x->rows[1];
}

void lf_peft_stack_shape(const struct lf_peft *p, const struct lf_peft_experts *x, int which,
                         int64_t shape[2])
{
    const int64_t ranks = x->experts * p->ac.rank;
    shape[0] = which ? all_rows(x) : ranks;
    shape[1] = which ? ranks : x->cols;
}

void lf_peft_stack_turn(const struct lf_peft *p, const struct lf_peft_experts *x, int which,
                        float *ours, float *theirs, bool in)
{
    const int64_t r = p->ac.rank, E = x->experts;
    if (!which) {
        memcpy(in ? ours : theirs, in ? theirs : ours, (size_t)(E * r * x->cols) * sizeof *ours);
        return;
    }
    for (int64_t k = 0, row = 0; k < x->n; ours += E * x->rows[k] * r, row += x->rows[k], k++)
        for (int64_t e = 0; e < E; e++)
            for (int64_t i = 0; i < x->rows[k]; i++)
                for (int64_t j = 0; j < r; j++) {
                    float *a = &ours[(e * x->rows[k] + i) * r + j],
                          *b = &theirs[((x->turns ? i * x->n + k : row + i) * r + j) * E + e];
                    *(in ? a : b) = in ? *b : *a;
                }
}

/* ---- what a file has ---- */

/* Has the file an A of so many columns and a B of so many rows, of this module? */
static bool has(const struct lf_peft *p, const lf_st *s, const char *module, bool inner,
                const int64_t dims[2])
{
    char name[512];
    const lf_st_entry *e[2];
    for (int k = 0; k < 2; k++) {
        snprintf(name, sizeof name, LF_PEFT_BEFORE "%s.%s%s", module, inner ? "base_layer." : "",
                 lf_peft_tensors[k].theirs);
        e[k] = lf_st_find(s, name);
    }
    return e[0] && e[1] && e[0]->ndim == 2 && e[1]->ndim == 2 && e[0]->shape[1] == dims[0] &&
           e[1]->shape[0] == dims[1] && p->ac.rank > 0;
}

static int add_targets(struct lf_peft *p, int param, lf_err *err)
{
    static const char *const names[] = {"layers.*.moe.experts.gate+up.weight",
                                        "layers.*.moe.experts.down.weight",
                                        "layers.*.moe.experts.up.weight"};
    struct lf_adapter_config *ac = &p->ac;
    const char *name = names[param == GATE_UP && !gated(p) ? 2 : param];
    for (int t = 0; t < ac->n_targets; t++)
        if (strcmp(ac->target[t], name) == 0)
            return 0;
    if (ac->n_targets >= LF_ADAPTER_TARGETS)
        return lf_fail(err, LF_ENOTSUP, "the file adapts layers of more kinds than %d",
                       LF_ADAPTER_TARGETS);
    memcpy(ac->target[ac->n_targets++], name, strlen(name) + 1);
    return 0;
}

int lf_peft_stack_targets(struct lf_peft *p, const lf_st *s, lf_err *err)
{
    const int64_t layers = lf_decoder_config(p->dec)->layers;
    bool any = false;
    int rc = 0;
    for (size_t i = 0; i < lf_st_n_entries(s) && !any; i++)
        any = strstr(lf_st_entry_at(s, i)->name, ".experts.lora_A.") != NULL;
    for (int64_t l = 0; l < layers && rc == 0 && any; l++) {
        const char *module, *part[2];
        bool turns = false;
        const int first = weight_of(p, l, gated(p) ? "gate" : "up");
        if (first < 0)
            continue;
        if ((rc = module_of(p, first, &module, &turns, err)) != 0)
            return rc;
        for (int k = 0; k < PARAMS && rc == 0; k++) {
            int64_t dims[2] = {0, 0};
            for (int j = 0, n = parts_of(p, k, part); j < n; j++) {
                const struct lf_param_desc *d = lf_pstore_desc(p->ps, weight_of(p, l, part[j]));
                dims[0] = d->dims[2];
                dims[1] += d->dims[1];
            }
            if (has(p, s, module, false, dims) || has(p, s, module, true, dims))
                rc = add_targets(p, k, err);
        }
    }
    return rc;
}
