/* SPDX-License-Identifier: Apache-2.0
 *
 * Stacks of a mapping table (map.h): each layout is written down a second time, as the loops that a
 * program of that family would index with, and holds in both directions, for runs of elements that
 * begin and end anywhere. A table with the tensors or the groups in another order must differ. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/bf16.h"
#include "engine/convert/move.h"
#include "tests/tap/tap.h"

/* Sizes of a model: small, so that every run can be tried; and one whose segments are longer than
 * what is read at a time. */
struct sizes {
    int64_t hidden, heads, kv_heads, head_dim, ffn, experts, expert_ffn;
};
static const struct sizes small = {3, 4, 2, 4, 8, 3, 4}, large = {67, 4, 2, 8, 1024, 2, 2100};

#define BLOCK "layers.0."
#define EXPS  BLOCK "moe.experts."
#define Q     BLOCK "attn.q.weight"
#define K     BLOCK "attn.k.weight"
#define V     BLOCK "attn.v.weight"
#define GATE  BLOCK "moe.shared.gate.weight"
#define UP    BLOCK "moe.shared.up.weight"
#define E_G   EXPS "gate.weight"
#define E_U   EXPS "up.weight"

/* All that the model declares. */
static const char *const all[] = {"embed.weight",
                                  "final_norm.weight",
                                  "head.weight",
                                  BLOCK "attn_norm.weight",
                                  Q,
                                  K,
                                  V,
                                  BLOCK "attn.q.bias",
                                  BLOCK "attn.k.bias",
                                  BLOCK "attn.v.bias",
                                  BLOCK "attn.o.weight",
                                  BLOCK "mlp_norm.weight",
                                  GATE,
                                  UP,
                                  BLOCK "moe.shared.down.weight",
                                  BLOCK "moe.router.weight",
                                  E_G,
                                  E_U,
                                  EXPS "down.weight"};
#define N_ALL (sizeof all / sizeof *all)

static lf_model_config config(const struct sizes *s)
{
    const struct {
        const char *key;
        int64_t value;
    } keys[] = {{"layers", 1},
                {"vocab", 5},
                {"max_positions", 8},
                {"experts_per_token", 1},
                {"hidden", s->hidden},
                {"heads", s->heads},
                {"kv_heads", s->kv_heads},
                {"head_dim", s->head_dim},
                {"ffn", s->ffn},
                {"shared_ffn", s->ffn},
                {"experts", s->experts},
                {"expert_ffn", s->expert_ffn}};
    lf_err err = LF_ERR_INIT;
    lf_model_config c;
    char text[24];
    lf_model_config_defaults(&c);
    int rc = lf_model_config_family(&c, "llama", "test", &err);
    for (size_t i = 0; i < sizeof keys / sizeof *keys && rc == 0; i++) {
        snprintf(text, sizeof text, "%lld", (long long)keys[i].value);
        rc = lf_model_config_set(&c, keys[i].key, text, "test", &err);
    }
    if (rc == 0)
        rc = lf_model_config_set(&c, "qkv_bias", "yes", "test", &err);
    if (rc != 0 || lf_model_config_finish(&c, &err) != 0)
        tap_bail("%s", err.text);
    return c;
}

/* A map in which all tensors but those that `ours` names are themselves. */
static int build(lf_map *m, const struct sizes *s, enum lf_map_kind kind, const char *ours,
                 lf_err *err)
{
    struct lf_map_row rows[N_ALL + 2] = {{"fused", kind, ours, NULL}};
    size_t n = 1;
    for (size_t i = 0; i < N_ALL; i++) {
        const char *at = strstr(ours, all[i]);
        while (at && at > ours && at[-1] != ' ') /* a name, and not a count */
            at = strstr(at + 1, all[i]);
        if (!at)
            rows[n++] = (struct lf_map_row){all[i], LF_MAP_COPY, all[i], NULL};
    }
    const struct lf_map_form form = {.tables = {rows}, .n_tables = 1};
    const lf_model_config c = config(s);
    return lf_map_build(m, &form, &c, err);
}

/* ---- layouts, as their programs index them ---- */

/* An element of tensor `part` of a stack. */
struct elem {
    int part;
    int64_t at;
};
typedef struct elem layout(const struct sizes *s, int64_t i);

/* Digits of *i, the last first. */
static int64_t digit(int64_t *i, int64_t base)
{
    const int64_t d = *i % base;
    *i /= base;
    return d;
}

/* Rows [group][a | b | ...], each part of `rows[k]` rows a group. */
static struct elem grouped(int64_t i, int64_t width, const int64_t *rows, int n)
{
    const int64_t c = digit(&i, width);
    int64_t sum = 0;
    for (int k = 0; k < n; k++)
        sum += rows[k];
    int64_t r = digit(&i, sum);
    int k = 0;
    for (; r >= rows[k]; k++)
        r -= rows[k];
    return (struct elem){k, (i * rows[k] + r) * width + c};
}

static struct elem qwen_gated_q(const struct sizes *s, int64_t i)
{
    const int64_t rows[] = {s->head_dim, s->ffn / s->heads};
    return grouped(i, s->hidden, rows, 2);
}

static struct elem qwen_qkvz(const struct sizes *s, int64_t i)
{
    const int64_t G = s->kv_heads,
                  rows[] = {s->heads / G * s->head_dim, s->head_dim, s->head_dim, s->ffn / G};
    return grouped(i, s->hidden, rows, 4);
}

static struct elem qwen_ba(const struct sizes *s, int64_t i)
{
    const int64_t r = s->ffn / s->kv_heads, rows[] = {r, r};
    return grouped(i, s->hidden, rows, 2);
}

static struct elem qkv_bias(const struct sizes *s, int64_t i)
{
    const int64_t rows[] = {s->heads / s->kv_heads * s->head_dim, s->head_dim, s->head_dim};
    return grouped(i, 1, rows, 3);
}

static struct elem qkv(const struct sizes *s, int64_t i)
{
    const int64_t rows[] = {s->heads / s->kv_heads * s->head_dim, s->head_dim, s->head_dim};
    return grouped(i, s->hidden, rows, 3);
}

static struct elem kv_b(const struct sizes *s, int64_t i)
{
    const int64_t rows[] = {s->head_dim, s->head_dim};
    return grouped(i, s->hidden, rows, 2);
}

static struct elem megatron_oldest(const struct sizes *s, int64_t i)
{
    const int64_t rows[] = {1, 1};
    return grouped(i, s->hidden, rows, 2);
}

/* Pieces of one row that lie far apart. */
static struct elem one_of_many(const struct sizes *s, int64_t i)
{
    const int64_t rows[] = {1, s->ffn / (s->kv_heads * s->head_dim)};
    return grouped(i, s->hidden, rows, 2);
}

static struct elem mamba_in(const struct sizes *s, int64_t i)
{
    const int64_t kv = s->kv_heads * s->head_dim,
                  rows[] = {s->ffn, s->heads * s->head_dim, kv, kv, s->ffn};
    return grouped(i, s->hidden, rows, 5);
}

/* [q;k;v of each group] transposed. */
static struct elem qkv_turned(const struct sizes *s, int64_t i)
{
    const int64_t all_rows = (s->heads + 2 * s->kv_heads) * s->head_dim, r = digit(&i, all_rows);
    return qkv(s, r * s->hidden + i);
}

/* [E, 2F, C] halves; [E, C, 2F] halves; [E, C, 2F] by turns; [E, 2F, C] by turns. */
static struct elem experts(const struct sizes *s, int64_t e, int64_t f, int64_t c, bool by_turns)
{
    const int64_t F = s->expert_ffn;
    const int part = by_turns ? (int)(f % 2) : f >= F;
    return (struct elem){part, (e * F + (by_turns ? f / 2 : f % F)) * s->hidden + c};
}

static struct elem granite(const struct sizes *s, int64_t i)
{
    const int64_t c = digit(&i, s->hidden), f = digit(&i, 2 * s->expert_ffn);
    return experts(s, i, f, c, false);
}

static struct elem llama4(const struct sizes *s, int64_t i)
{
    const int64_t f = digit(&i, 2 * s->expert_ffn), c = digit(&i, s->hidden);
    return experts(s, i, f, c, false);
}

static struct elem gpt_oss(const struct sizes *s, int64_t i)
{
    const int64_t f = digit(&i, 2 * s->expert_ffn), c = digit(&i, s->hidden);
    return experts(s, i, f, c, true);
}

static struct elem by_turns(const struct sizes *s, int64_t i)
{
    const int64_t c = digit(&i, s->hidden), f = digit(&i, 2 * s->expert_ffn);
    return experts(s, i, f, c, true);
}

/* Biases [E, 2F] by turns: here [ffn, 2 hidden] of the two matrices [ffn, hidden]. */
static struct elem expert_biases(const struct sizes *s, int64_t i)
{
    const int64_t f = digit(&i, 2 * s->hidden);
    return (struct elem){(int)(f % 2), i * s->hidden + f / 2};
}

static struct elem conv1d(const struct sizes *s, int64_t i)
{
    const int64_t rows[] = {s->heads * s->head_dim, s->kv_heads * s->head_dim,
                            s->kv_heads * s->head_dim};
    return grouped(i, s->hidden, rows, 3);
}

/* wrong: the same tensors in an order that this is not. shape: letters H hidden, F ffn, E experts,
 * 1, and R, what is left. */
static const struct {
    const char *name;
    enum lf_map_kind kind;
    const char *ours;
    layout *of;
    enum lf_map_kind wrong_kind;
    const char *wrong, *shape;
} cases[] = {
    {"q and its gate by head", LF_MAP_STACK, "groups=heads " Q " " GATE, qwen_gated_q, LF_MAP_STACK,
     "groups=kv_heads " Q " " GATE, "RH"},
    {"q, k, v, z by key head", LF_MAP_STACK, "groups=kv_heads " Q " " K " " V " " GATE, qwen_qkvz,
     LF_MAP_STACK, "groups=kv_heads " Q " " V " " K " " GATE, "RH"},
    {"b, a by key head", LF_MAP_STACK, "groups=kv_heads " GATE " " UP, qwen_ba, LF_MAP_STACK,
     GATE " " UP, "RH"},
    {"q, k, v by group", LF_MAP_STACK, "groups=kv_heads " Q " " K " " V, qkv, LF_MAP_STACK,
     Q " " K " " V, "RH"},
    {"biases of q, k, v by group", LF_MAP_STACK,
     "groups=kv_heads " BLOCK "attn.q.bias " BLOCK "attn.k.bias " BLOCK "attn.v.bias", qkv_bias,
     LF_MAP_STACK, BLOCK "attn.q.bias " BLOCK "attn.k.bias " BLOCK "attn.v.bias", "R"},
    {"biases, where matrices are transposed", LF_MAP_STACK_T,
     "groups=2 " BLOCK "attn.q.bias " BLOCK "attn.k.bias " BLOCK "attn.v.bias", qkv_bias,
     LF_MAP_STACK_T, "groups=4 " BLOCK "attn.q.bias " BLOCK "attn.k.bias " BLOCK "attn.v.bias",
     "R"},
    {"q, k, v by group, transposed", LF_MAP_STACK_T, "groups=kv_heads " Q " " K " " V, qkv_turned,
     LF_MAP_STACK_T, Q " " K " " V, "HR"},
    {"k and v of each head", LF_MAP_STACK, "groups=kv_heads " K " " V, kv_b, LF_MAP_STACK,
     "groups=kv_heads " V " " K, "RH"},
    {"k and v of each channel of each head", LF_MAP_STACK, "groups=kv_heads*head_dim " K " " V,
     megatron_oldest, LF_MAP_STACK, "groups=head_dim " K " " V, "RH"},
    {"as many groups as a tensor has rows", LF_MAP_STACK, "groups=layers.0.attn.k.weight " K " " V,
     megatron_oldest, LF_MAP_STACK, "groups=kv_heads " K " " V, "RH"},
    {"one row of k and many of another", LF_MAP_STACK, "groups=kv_heads*head_dim " K " " GATE,
     one_of_many, LF_MAP_STACK, "groups=kv_heads " K " " GATE, "RH"},
    {"z, x, B, C, dt", LF_MAP_STACK, GATE " " Q " " K " " V " " UP, mamba_in, LF_MAP_STACK,
     GATE " " Q " " V " " K " " UP, "RH"},
    {"a convolution of each channel", LF_MAP_DEPTHWISE, Q " " K " " V, conv1d, LF_MAP_DEPTHWISE,
     Q " " V " " K, "R1H"},
    {"experts, halves", LF_MAP_STACK, "blocks=experts " E_G " " E_U, granite, LF_MAP_STACK,
     "blocks=experts " E_U " " E_G, "ERH"},
    {"experts, halves, transposed", LF_MAP_STACK_T, "blocks=experts " E_G " " E_U, llama4,
     LF_MAP_STACK_T, "blocks=experts groups=2 " E_G " " E_U, "EHR"},
    {"experts, by turns", LF_MAP_STACK, "blocks=experts groups=expert_ffn " E_G " " E_U, by_turns,
     LF_MAP_STACK, "blocks=experts " E_G " " E_U, "ERH"},
    {"experts, by turns, transposed", LF_MAP_STACK_T, "blocks=experts groups=" E_G " " E_G " " E_U,
     gpt_oss, LF_MAP_STACK_T, "blocks=experts groups=expert_ffn " E_U " " E_G, "EHR"},
    {"biases of experts, by turns", LF_MAP_STACK, "blocks=shared_ffn groups=hidden " GATE " " UP,
     expert_biases, LF_MAP_STACK, "blocks=shared_ffn " GATE " " UP, "FR"},
};
#define N_CASES (sizeof cases / sizeof *cases)

/* ---- both sides in memory ---- */

/* Values that every type holds, so that an element tells where it comes from as far as 16 bits
 * can. */
static float value(int part, int64_t at)
{
    return lf_f32_of_bf16((uint16_t)(0x3000 + (part * 40503 + at * 7) % 0x4000));
}

struct rig {
    lf_map map;
    size_t fused;           /* item */
    int64_t elems;          /* of it */
    const char *parts;      /* in the order of the layout */
    float *side[7];         /* the outside tensor, and the parts from 1 on */
    enum lf_st_dtype dtype; /* of sources */
};

static int64_t elems_of(const struct lf_map_ours *o)
{
    int64_t n = 1;
    for (int k = 0; k < o->ndim; k++)
        n *= o->shape[k];
    return n;
}

/* Which of the parts our tensor number i is, from 1 on. */
static int side_of(const struct rig *r, int i)
{
    const char *name = r->map.ours[i].name;
    int k = 0;
    for (const char *p = r->parts; *p; p += strspn(p, " ")) {
        const size_t n = strcspn(p, " ");
        k += memchr(p, '=', n) == NULL;
        if (strlen(name) == n && memcmp(name, p, n) == 0)
            return k;
        p += n;
    }
    tap_bail("%s is no part of %s", name, r->parts);
}

static enum lf_st_dtype dtype(void *ctx, int src)
{
    (void)src;
    return ((struct rig *)ctx)->dtype;
}

static int read_side(const struct rig *r, int side, int64_t all_elems, int64_t first, int64_t n,
                     void *dst, lf_err *err)
{
    if (first < 0 || n < 0 || first + n > all_elems)
        return lf_fail(err, LF_EINVAL, "elements %lld to %lld of %lld", (long long)first,
                       (long long)(first + n), (long long)all_elems);
    for (int64_t i = 0; i < n; i++)
        if (r->dtype == LF_ST_F32)
            memcpy((float *)dst + i, &r->side[side][first + i], sizeof(float));
        else
            ((uint16_t *)dst)[i] = lf_bf16_of(r->side[side][first + i]);
    return 0;
}

static int read_item(void *ctx, int src, int64_t first, int64_t n, void *dst, lf_err *err)
{
    const struct rig *r = ctx;
    if ((size_t)src != r->fused)
        return lf_fail(err, LF_EINVAL, "outside tensor %d", src);
    return read_side(r, 0, r->elems, first, n, dst, err);
}

static int read_ours(void *ctx, int src, int64_t first, int64_t n, void *dst, lf_err *err)
{
    const struct rig *r = ctx;
    return read_side(r, side_of(r, src), elems_of(&r->map.ours[src]), first, n, dst, err);
}

static void open_rig(struct rig *r, const struct sizes *s, enum lf_map_kind kind, const char *ours)
{
    lf_err err = LF_ERR_INIT;
    *r = (struct rig){.elems = 1};
    if (build(&r->map, s, kind, ours, &err) != 0)
        tap_bail("%s: %s", ours, err.text);
    const struct lf_map_item *it = lf_map_find(&r->map, "fused");
    r->fused = (size_t)(it - r->map.items);
    for (int k = 0; k < it->ndim; k++)
        r->elems *= it->shape[k];
}

/* Both sides by the loops of a layout. */
static void fill(struct rig *r, const struct sizes *s, size_t i, enum lf_st_dtype type)
{
    const struct lf_map_item *it = &r->map.items[r->fused];
    r->parts = cases[i].ours;
    r->dtype = type;
    for (int k = -1; k < it->n_ours; k++) {
        const int64_t n = k < 0 ? r->elems : elems_of(&r->map.ours[it->ours[k]]);
        const int side = k < 0 ? 0 : side_of(r, it->ours[k]);
        if (!(r->side[side] = calloc((size_t)n, sizeof **r->side)))
            tap_bail("out of memory");
        for (int64_t j = 0; j < n; j++) {
            const struct elem e = k < 0 ? cases[i].of(s, j) : (struct elem){side - 1, j};
            r->side[side][j] = value(e.part + 1, e.at);
        }
    }
}

static void close_rig(struct rig *r)
{
    for (int k = 0; k < 7; k++)
        free(r->side[k]);
    lf_map_fini(&r->map);
}

#define GUARD 8 /* bytes before and behind a run, which stay as they are */

/* Has [first, first + n) of a tensor what it should? got: with room for both guards. */
static bool run_is(struct lf_move *m, int64_t first, int64_t n, const float *want, char *got)
{
    static const char guard[GUARD] = "guarded";
    lf_err err = LF_ERR_INIT;
    const size_t size = lf_st_dtype_bytes(m->dtype);
    char *run = got + GUARD, *end = run + (size_t)n * size;
    memcpy(got, guard, GUARD);
    memcpy(end, guard, GUARD);
    if (lf_move_block(m, first, n, run, &err) != 0) {
        tap_diag("%s", err.text);
        return false;
    }
    bool same = memcmp(got, guard, GUARD) == 0 && memcmp(end, guard, GUARD) == 0;
    for (int64_t i = 0; i < n && same; i++) {
        const uint16_t half = lf_bf16_of(want[first + i]);
        same = memcmp(run + (size_t)i * size, size == 2 ? (const void *)&half : &want[first + i],
                      size) == 0;
    }
    return same;
}

/* How many runs of a tensor are wrong: all of a small one, else those that a conversion would ask
 * for with blocks of an odd length. */
static int wrong_runs(struct lf_move *m, const float *want)
{
    char *got = malloc((size_t)m->elems * sizeof(float) + 2 * GUARD);
    int bad = 0;
    if (!got)
        tap_bail("out of memory");
    if (m->elems <= 400)
        for (int64_t first = 0; first < m->elems; first++)
            for (int64_t n = 1; first + n <= m->elems; n++)
                bad += !run_is(m, first, n, want, got);
    else
        for (int64_t first = 0, n; first < m->elems; first += n) {
            n = m->elems - first < 150001 ? m->elems - first : 150001;
            bad += !run_is(m, first, n, want, got);
        }
    free(got);
    return bad;
}

/* Wrong runs of the outside tensor, or of ours, of a stack. */
static int out(struct rig *r, enum lf_st_dtype to)
{
    const struct lf_move_source from = {r, dtype, read_ours};
    struct lf_move m = {.from = &from, .dtype = to};
    lf_move_to_item(&m, &r->map, r->fused);
    return wrong_runs(&m, r->side[0]);
}

static int in(struct rig *r, enum lf_st_dtype to)
{
    const struct lf_move_source from = {r, dtype, read_item};
    const struct lf_map_item *it = &r->map.items[r->fused];
    int bad = 0;
    for (int k = 0; k < it->n_ours; k++) {
        struct lf_move m = {.from = &from, .dtype = to};
        lf_move_to_ours(&m, &r->map, (size_t)it->ours[k]);
        bad += wrong_runs(&m, r->side[side_of(r, it->ours[k])]);
    }
    return bad;
}

static void check_shape(const struct rig *r, const struct sizes *s, const char *shape,
                        const char *name)
{
    const struct lf_map_item *it = &r->map.items[r->fused];
    bool same = it->ndim == (int)strlen(shape);
    int64_t left = r->elems;
    for (const char *p = shape; *p; p++)
        left /= *p == 'H' ? s->hidden : *p == 'F' ? s->ffn : *p == 'E' ? s->experts : 1;
    for (int k = 0; k < it->ndim && same; k++) {
        const char p = shape[k];
        same = it->shape[k] == (p == 'H'   ? s->hidden
                                : p == 'F' ? s->ffn
                                : p == 'E' ? s->experts
                                : p == '1' ? 1
                                           : left);
    }
    tap_ok(same, "%s: the shape outside", name);
}

static void test_layout(size_t i)
{
    char name[160];
    struct rig r;
    open_rig(&r, &small, cases[i].kind, cases[i].ours);
    fill(&r, &small, i, LF_ST_F32);
    const struct lf_map_item *it = &r.map.items[r.fused];
    snprintf(name, sizeof name, "%s: out", cases[i].name);
    tap_i64(out(&r, LF_ST_F32), 0, name);
    snprintf(name, sizeof name, "%s: in", cases[i].name);
    tap_i64(in(&r, LF_ST_F32), 0, name);
    snprintf(name, sizeof name, "%s: one segment a tensor", cases[i].name);
    tap_i64((int64_t)r.map.of_item[r.fused].n, it->n_ours, name);
    check_shape(&r, &small, cases[i].shape, cases[i].name);
    /* the same tensors, mapped by another row */
    struct rig w;
    open_rig(&w, &small, cases[i].wrong_kind, cases[i].wrong);
    fill(&w, &small, i, LF_ST_F32);
    tap_ok(out(&w, LF_ST_F32) > 0 && in(&w, LF_ST_F32) > 0, "%s: another order differs",
           cases[i].name);
    close_rig(&w);
    close_rig(&r);
}

static void test_large(size_t i)
{
    static const enum lf_st_dtype types[] = {LF_ST_F32, LF_ST_BF16};
    char name[160];
    struct rig r;
    for (int from = 0; from < 2; from++) {
        open_rig(&r, &large, cases[i].kind, cases[i].ours);
        fill(&r, &large, i, types[from]);
        for (int to = 0; to < 2; to++) {
            snprintf(name, sizeof name, "%s, large: %s to %s", cases[i].name,
                     lf_st_dtype_name(types[from]), lf_st_dtype_name(types[to]));
            tap_i64(out(&r, types[to]) + in(&r, types[to]), 0, name);
        }
        close_rig(&r);
    }
}

/* What a row asks for and the tensors do not give. */
static void test_refusals(void)
{
    static const struct {
        enum lf_map_kind kind;
        const char *ours, *text;
    } bad[] = {
        {LF_MAP_STACK, "groups=3 " K " " V,
         K " has 8 rows, no multiple of the 3 groups of fused (groups=3 " K " " V ")"},
        {LF_MAP_STACK, "groups=kv_head " K " " V, "fused: 'kv_head' counts nothing"},
        {LF_MAP_STACK, "groups=kv_heads*norm " K " " V, "fused: 'norm' counts nothing"},
        {LF_MAP_STACK, "groups=sliding_window " K " " V, "fused: 'sliding_window' counts nothing"},
        {LF_MAP_STACK, "groups=layers.0.mlp.up.weight " K " " V, "counts nothing"},
        {LF_MAP_STACK, "groups=4294967296*4294967296 " K " " V, "4294967296*4294967296 is too"},
        {LF_MAP_STACK, "blocks=heads " E_G " " E_U, E_G " is no 4 blocks, which fused has"},
        {LF_MAP_STACK, "blocks=3 final_norm.weight " K, " has (blocks=3 final_norm.weight"},
        {LF_MAP_STACK, E_G " " E_U, E_G " and " E_G " do not make one tensor fused"},
        {LF_MAP_STACK, Q " " BLOCK "attn.o.weight",
         Q " and " BLOCK "attn.o.weight do not make one tensor fused"},
        {LF_MAP_STACK, Q " " BLOCK "attn.q.bias", "do not make one tensor fused"},
        {LF_MAP_DEPTHWISE, BLOCK "attn.q.bias", "do not make one tensor fused"},
        {LF_MAP_STACK, "groups=kv_heads " Q " layers.0.nothing.weight", "has only some"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lf_err err = LF_ERR_INIT;
        lf_map m;
        tap_rc(build(&m, &small, bad[i].kind, bad[i].ours, &err), LF_EINVAL, &err, bad[i].text,
               bad[i].ours);
    }
}

/* One tensor twice in a stack. */
static void test_twice(void)
{
    lf_err err = LF_ERR_INIT;
    lf_map m;
    tap_rc(build(&m, &small, LF_MAP_STACK, K " " K, &err), LF_EINVAL, &err,
           K " is not covered exactly once", "a tensor twice");
}

int main(void)
{
    for (size_t i = 0; i < N_CASES; i++) {
        TAP(5, test_layout(i));
        TAP(4, test_large(i));
    }
    TAP(13, test_refusals());
    TAP(1, test_twice());
    return tap_done();
}
