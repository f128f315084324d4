/* SPDX-License-Identifier: Apache-2.0
 *
 * The paged key/value cache: writing new rows into it, and attention over it. Attention runs the same tile step as
 * attn_fwd; a block is up to ATTN_QB (row, head) pairs of one sequence and one group, so every tile is read once for
 * all heads of the group. A page holds whole tiles, so a tile never crosses a page.
 */
#include "config.h"

#include "kernels/cpu/attn.h"

LF_CPU_DECLARE(kv_write)
LF_CPU_DECLARE(attn_paged)

LF_NO_WORK(kv_write)

static bool cache_ok(int64_t groups, int64_t d, int64_t page_tokens, int64_t max_pages, uint8_t t)
{
    return groups > 0 && d > 0 && page_tokens > 0 && page_tokens % ATTN_T == 0 && max_pages > 0 && lf_is_float(t);
}

int LF_SYM(kv_write_check)(const struct lf_k_kv_write *a)
{
    bool ok = a->rows >= 0 && cache_ok(a->groups, a->d, a->page_tokens, a->max_pages, a->x_type) &&
              a->ldk >= a->groups * a->d && a->ldv >= a->groups * a->d;
    return ok ? LF_K_OK : LF_K_EINVAL;
}

int LF_SYM(kv_write)(lf_queue *q, const struct lf_k_kv_write *a)
{
    const uint8_t t = a->x_type;
    const int64_t width = a->groups * a->d;
    const size_t bytes = (size_t)width * lf_dtype_size((enum lf_dtype)t);
#pragma omp parallel num_threads(lf_team(q, a->rows *(int64_t)bytes * 4))
    {
        int64_t lo, hi;
        lf_part(a->rows, 1, omp_get_thread_num(), omp_get_num_threads(), &lo, &hi);
        for (int64_t r = lo; r < hi; r++) {
            if (a->seq[r] < 0)
                continue;
            int64_t page = a->table[a->seq[r] * a->max_pages + a->pos[r] / a->page_tokens];
            int64_t slot = (page * a->page_tokens + a->pos[r] % a->page_tokens) * width;
            memcpy(lf_at_w(a->k_pages, slot, t), lf_at(a->k, r * a->ldk, t), bytes);
            memcpy(lf_at_w(a->v_pages, slot, t), lf_at(a->v, r * a->ldv, t), bytes);
        }
    }
    return LF_K_OK;
}

/* ---- attention ---- */

int LF_SYM(attn_paged_check)(const struct lf_k_attn_paged *a)
{
    bool ok = a->rows >= 0 && a->heads > 0 && cache_ok(a->groups, a->d, a->page_tokens, a->max_pages, a->x_type) &&
              a->heads % a->groups == 0 && a->d % 2 == 0 && a->d <= ATTN_MAX_D && a->ldq >= a->heads * a->d &&
              a->ldo >= a->heads * a->d && a->softcap >= 0.0f && a->window >= 0;
    return ok ? LF_K_OK : LF_K_EINVAL;
}

static size_t thread_floats(const struct attn_shape *s)
{
    return LF_SYM(attn_block_floats)(s->dp) + (size_t)(s->kd * ATTN_T + ATTN_T * s->dp);
}

static struct attn_shape shape_of(const struct lf_k_attn_paged *a)
{
    return attn_shape_of(a->d, a->scale, a->softcap, a->window, true, a->x_type);
}

size_t LF_SYM(attn_paged_work)(const struct lf_k_attn_paged *a, int threads)
{
    struct attn_shape s = shape_of(a);
    return (size_t)threads * thread_floats(&s) * sizeof(float);
}

/* Asks for the tile at position j of a sequence to be brought near while the one before it is worked on. */
static void prefetch_tile(const struct lf_k_attn_paged *a, int64_t seq, int64_t j, int64_t keys, int64_t g)
{
    const uint8_t t = a->x_type;
    const int64_t width = a->groups * a->d, size = (int64_t)lf_dtype_size((enum lf_dtype)t);
    const int64_t page = a->table[seq * a->max_pages + j / a->page_tokens];
    const int64_t slot = (page * a->page_tokens + j % a->page_tokens) * width + g * a->d;
    const char *k = (const char *)a->k_pages + slot * size, *v = (const char *)a->v_pages + slot * size;
    for (int64_t i = 0; i < keys; i++)
        for (int64_t b = 0; b < a->d * size; b += 64) {
            __builtin_prefetch(k + i * width * size + b, 0, 2);
            __builtin_prefetch(v + i * width * size + b, 0, 2);
        }
}

/* Rows [r0, r1) of one sequence, heads [h0, h1) of group g. */
static void paged_block(const struct lf_k_attn_paged *a, const struct attn_shape *s, int64_t r0, int64_t r1, int64_t g,
                        int64_t h0, int64_t h1, float *mem)
{
    const uint8_t t = a->x_type;
    const int64_t width = a->groups * a->d, stride = width * (int64_t)lf_dtype_size((enum lf_dtype)t);
    float *kt = mem + LF_SYM(attn_block_floats)(s->dp), *v = kt + s->kd * ATTN_T;
    struct attn_block b;
    int64_t lo = INT64_MAX, hi = 0;
    LF_SYM(attn_block_init)(&b, mem, s->dp);
    for (int64_t r = r0; r < r1; r++)
        for (int64_t h = h0; h < h1; h++) {
            LF_SYM(attn_block_add)
            (&b, s, lf_at(a->q, r * a->ldq + h * a->d, t), a->alibi ? a->alibi[h] : 0.0f, a->pos[r],
             (int64_t)a->pos[r] + 1);
            lo = b.lo[b.n - 1] < lo ? b.lo[b.n - 1] : lo;
            hi = b.hi[b.n - 1] > hi ? b.hi[b.n - 1] : hi;
        }
    for (int64_t j = lo / ATTN_T * ATTN_T; j < hi; j += ATTN_T) {
        int64_t page = a->table[a->seq[r0] * a->max_pages + j / a->page_tokens],
                keys = hi - j < ATTN_T ? hi - j : ATTN_T;
        int64_t slot = (page * a->page_tokens + j % a->page_tokens) * width + g * a->d;
        LF_SYM(attn_pack_cols)(kt, lf_at(a->k_pages, slot, t), stride, keys, a->d, t);
        LF_SYM(attn_pack_rows)(v, lf_at(a->v_pages, slot, t), stride, keys, ATTN_T, a->d, t);
        if (j + ATTN_T < hi)
            prefetch_tile(a, a->seq[r0], j + ATTN_T, hi - j - ATTN_T < ATTN_T ? hi - j - ATTN_T : ATTN_T, g);
        LF_SYM(attn_block_tile)(&b, s, j, kt, v);
    }
    int64_t i = 0;
    for (int64_t r = r0; r < r1; r++)
        for (int64_t h = h0; h < h1; h++)
            LF_SYM(attn_block_out)(&b, s, i++, lf_at_w(a->o, r * a->ldo + h * a->d, t));
}

/* End of the run of rows from r0 that share a sequence, at most `most` rows. */
static int64_t run_end(const struct lf_k_attn_paged *a, int64_t r0, int64_t most)
{
    int64_t r = r0 + 1;
    while (r < a->rows && r - r0 < most && a->seq[r] == a->seq[r0])
        r++;
    return r;
}

static void zero_row(const struct lf_k_attn_paged *a, int64_t r)
{
    memset(lf_at_w(a->o, r * a->ldo, a->x_type), 0,
           (size_t)(a->heads * a->d) * lf_dtype_size((enum lf_dtype)a->x_type));
}

int LF_SYM(attn_paged)(lf_queue *q, const struct lf_k_attn_paged *a)
{
    const struct attn_shape s = shape_of(a);
    const int64_t per = a->heads / a->groups, hc = per < ATTN_QB ? per : ATTN_QB, parts = (per + hc - 1) / hc,
                  most = ATTN_QB / hc;
    const int team = lf_team(q, a->rows * a->heads * a->d * 4096);
    int64_t next = 0;
    if (a->rows == 0)
        return LF_K_OK;
    if (a->work_bytes < LF_SYM(attn_paged_work)(a, team))
        return LF_K_EINVAL;
#pragma omp parallel num_threads(team)
    {
        float *mem = (float *)a->work + (size_t)omp_get_thread_num() * thread_floats(&s);
        int64_t mine = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED), n = 0, r1;
        for (int64_t r0 = 0; r0 < a->rows; r0 = r1) {
            r1 = run_end(a, r0, most);
            for (; mine < n + a->groups * parts; mine = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED)) {
                int64_t g = (mine - n) / parts, h0 = g * per + (mine - n) % parts * hc;
                int64_t h1 = h0 + hc < (g + 1) * per ? h0 + hc : (g + 1) * per;
                if (a->seq[r0] >= 0)
                    paged_block(a, &s, r0, r1, g, h0, h1, mem);
                else if (h0 == 0)
                    for (int64_t r = r0; r < r1; r++)
                        zero_row(a, r);
            }
            n += a->groups * parts;
        }
    }
    return LF_K_OK;
}
