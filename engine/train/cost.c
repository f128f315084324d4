/* SPDX-License-Identifier: Apache-2.0
 *
 * What parts of a model take: in sums, in a schedule, and on record. See cost.h.
 */
#include "engine/train/cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/train/laid.h"

void lf_train_costs_fini(struct lf_train_costs *k)
{
    free(k->part);
    free(k->layers);
    *k = (struct lf_train_costs){0};
}

/* ---- sums ---- */

static int64_t weight(const struct lf_train_cost *c, int micro_batches)
{
    return llround(1e9 * (micro_batches * (c->f_s + c->z_s) + c->update_s));
}

void lf_train_cost_weigh(struct lf_pipe_layers *of, int64_t *cost, const struct lf_train_costs *k,
                         int micro_batches)
{
    for (int l = 0; l < k->n - 2; l++)
        cost[l] = weight(&k->part[l + 1], micro_batches);
    *of = (struct lf_pipe_layers){.cost = cost,
                                  .n = k->n - 2,
                                  .embedding = weight(&k->part[0], micro_batches),
                                  .head = weight(&k->part[k->n - 1], micro_batches)};
}

static void add(struct lf_train_cost *sum, const struct lf_train_cost *more)
{
    sum->f_s += more->f_s;
    sum->b_s += more->b_s;
    sum->w_s += more->w_s;
    sum->z_s += more->z_s;
    sum->update_s += more->update_s;
}

static struct lf_train_cost of_chunk(const struct lf_train_costs *k, const struct lf_train_cut *cut,
                                     int rank, int chunk)
{
    const struct lf_decoder_chunk part = lf_train_part(cut, lf_pipe_stage(&cut->spec, rank, chunk));
    struct lf_train_cost sum = {0};
    if (part.first)
        add(&sum, &k->part[0]);
    for (int64_t l = part.begin; l < part.end; l++)
        add(&sum, &k->part[l + 1]);
    if (part.last)
        add(&sum, &k->part[k->n - 1]);
    return sum;
}

struct lf_train_cost lf_train_cost_rank(const struct lf_train_costs *k,
                                        const struct lf_train_cut *cut, int rank)
{
    struct lf_train_cost sum = {0};
    for (int i = 0; i < cut->spec.chunks; i++) {
        const struct lf_train_cost c = of_chunk(k, cut, rank, i);
        add(&sum, &c);
    }
    return sum;
}

int lf_train_cost_walk(struct lf_pipe_timing *t, double *step_s, const struct lf_train_costs *k,
                       const struct lf_train_cut *cut, int micro_batches, lf_err *err)
{
    const struct lf_pipe_spec *s = &cut->spec;
    struct lf_pipe_cost *cost = lf_calloc((size_t)s->ranks * (size_t)s->chunks, sizeof *cost, err);
    double longest = 0;
    if (!cost)
        return LF_ENOMEM;
    for (int r = 0; r < s->ranks; r++) {
        for (int i = 0; i < s->chunks; i++) {
            const struct lf_train_cost c = of_chunk(k, cut, r, i);
            cost[r * s->chunks + i] = (struct lf_pipe_cost){c.f_s, c.b_s, c.w_s, c.z_s, 0, 0};
        }
        longest = fmax(longest, lf_train_cost_rank(k, cut, r).update_s);
    }
    const struct lf_pipe_walk_opts o = {.cost = cost};
    const int rc = lf_pipe_walk(t, lf_train_list(cut, micro_batches), &o, err);
    if (rc == 0)
        *step_s = t->end_s + longest;
    free(cost);
    return rc;
}

/* ---- on record ---- */

static json_t *part_json(const struct lf_train_cost *c)
{
    return json_pack("[I,I,I,I,I]", (json_int_t)llround(1e9 * c->f_s),
                     (json_int_t)llround(1e9 * c->b_s), (json_int_t)llround(1e9 * c->w_s),
                     (json_int_t)llround(1e9 * c->z_s), (json_int_t)llround(1e9 * c->update_s));
}

/* Whose times they are: ranks of each axis, and parts of each of them. */
static json_t *layout_json(const struct lf_axes *a, const struct lf_train_who *who)
{
    json_t *o = lf_laid_axes(a, who);
    if (o && json_object_set_new(o, "chunks", json_integer(lf_train_chunks(a)))) {
        json_decref(o);
        o = NULL;
    }
    return o;
}

json_t *lf_train_costs_json(const struct lf_train_costs *k, const struct lf_train_cut *cut,
                            const struct lf_axes *a, const struct lf_train_who *who)
{
    json_t *parts = json_array(), *o = NULL;
    bool bad = !parts;
    for (int i = 0; i < k->n && !bad; i++)
        bad = json_array_append_new(parts, part_json(&k->part[i])) != 0;
    lf_buf layers;
    lf_buf_init(&layers);
    lf_pipe_cut_print(&layers, cut->layers, cut->spec.ranks * cut->spec.chunks);
    if (!bad && lf_buf_check(&layers, NULL) == 0)
        o = json_pack("{s:o,s:s,s:O}", "axes", layout_json(a, who), "layers", layers.data, "parts",
                      parts);
    lf_buf_fini(&layers);
    json_decref(parts);
    return o;
}

static bool read_part(struct lf_train_cost *c, const json_t *of)
{
    double *const to[] = {&c->f_s, &c->b_s, &c->w_s, &c->z_s, &c->update_s};
    enum { N = sizeof to / sizeof *to };
    bool good = json_array_size(of) == N;
    for (size_t i = 0; i < N && good; i++) {
        const json_t *v = json_array_get(of, i);
        good = json_is_integer(v) && json_integer_value(v) >= 0;
        *to[i] = 1e-9 * (double)json_integer_value(v);
    }
    return good;
}

int lf_train_costs_read(struct lf_train_costs *out, const json_t *record, const struct lf_axes *a,
                        const struct lf_train_who *who, int layers, lf_err *err)
{
    const json_t *parts = json_object_get(record, "parts");
    const char *cut = json_string_value(json_object_get(record, "layers"));
    const int stages = who->pipeline_ranks * lf_train_chunks(a);
    *out = (struct lf_train_costs){.n = layers + 2};
    json_t *is = layout_json(a, who);
    bool good = is && json_equal(json_object_get(record, "axes"), is) && cut &&
                json_array_size(parts) == (size_t)out->n &&
                lf_pipe_cut_parse(NULL, cut, stages, layers, NULL) == 0;
    json_decref(is);
    if (!good)
        return is ? 0 : lf_fail(err, LF_ENOMEM, "pipeline_cost: out of memory");
    out->part = lf_calloc((size_t)out->n, sizeof *out->part, err);
    out->layers = out->part ? lf_strdup(cut, err) : NULL;
    for (int i = 0; out->layers && i < out->n && good; i++)
        good = read_part(&out->part[i], json_array_get(parts, (size_t)i));
    if (out->layers && good)
        return 1;
    const int rc = out->layers ? 0 : LF_ENOMEM;
    lf_train_costs_fini(out);
    return rc;
}
