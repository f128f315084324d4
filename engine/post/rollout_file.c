/* SPDX-License-Identifier: Apache-2.0
 *
 * Rollouts as HDF5 files: see rollout.h. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/post/rollout.h"
#include "engine/store/h5.h"

#define MAX_SEQUENCES ((uint64_t)1 << 28)

static int put_all(lf_h5 *f, const lf_rollout *r, lf_err *err)
{
    const size_t n = r->n, t = (size_t)r->first[n];
    int rc = lf_h5_put_attr_str(f, "lf_format", LF_ROLLOUT_FORMAT, err);
    if (rc == 0)
        rc = lf_h5_put_attr_str(f, "key", r->key, err);
    if (rc == 0)
        rc = lf_h5_put_attr_str(f, "sources", r->sources, err);
    if (rc == 0)
        rc = lf_h5_put_attr_i64(f, "step", r->step, err);
    if (rc == 0)
        rc = lf_h5_put_attr_i64(f, "next_prompt", r->next_prompt, err);
    if (rc == 0)
        rc = lf_h5_put_attr_i64(f, "dropped", r->dropped, err);
    if (rc == 0)
        rc = lf_h5_put_attr_i64(f, "group", (int64_t)r->group, err);
    if (rc == 0)
        rc = lf_h5_put_attr_i64(f, "n_sources", (int64_t)r->n_sources, err);
    if (rc == 0)
        rc = lf_h5_put(f, "offsets", LF_H5_U64, r->offsets, n + 1, err);
    if (rc == 0)
        rc = lf_h5_put(f, "tokens", LF_H5_I32, r->tokens, r->offsets[n], err);
    if (rc == 0)
        rc = lf_h5_put(f, "prompt_len", LF_H5_U32, r->prompt_len, n, err);
    if (rc == 0)
        rc = lf_h5_put(f, "prompt", LF_H5_U64, r->prompt, n, err);
    if (rc == 0)
        rc = lf_h5_put(f, "doc", LF_H5_U64, r->doc, n, err);
    if (rc == 0)
        rc = lf_h5_put(f, "seed", LF_H5_U64, r->seed, n, err);
    if (rc == 0)
        rc = lf_h5_put(f, "ended", LF_H5_U8, r->ended, n, err);
    if (rc == 0)
        rc = lf_h5_put(f, "source", LF_H5_F64, r->source, n * r->n_sources, err);
    if (rc == 0)
        rc = lf_h5_put(f, "score", LF_H5_F64, r->score, n, err);
    if (rc == 0)
        rc = lf_h5_put(f, "reward", LF_H5_F64, r->reward, n, err);
    if (rc == 0)
        rc = lf_h5_put(f, "logprob", LF_H5_F32, r->logprob, t, err);
    if (rc == 0 && r->ref)
        rc = lf_h5_put(f, "ref_logprob", LF_H5_F32, r->ref, t, err);
    if (rc == 0 && r->value)
        rc = lf_h5_put(f, "value", LF_H5_F32, r->value, t, err);
    if (rc == 0 && r->adv)
        rc = lf_h5_put(f, "advantage", LF_H5_F64, r->adv, t, err);
    if (rc == 0 && r->ret)
        rc = lf_h5_put(f, "return", LF_H5_F64, r->ret, t, err);
    return rc;
}

int lf_rollout_write(const lf_rollout *r, const char *path, lf_err *err)
{
    lf_buf tmp;
    lf_h5 *f = NULL;
    lf_err closing = LF_ERR_INIT;
    lf_buf_init(&tmp);
    lf_buf_addf(&tmp, "%s.tmp", path);
    int rc = lf_buf_check(&tmp, err);
    if (rc == 0)
        unlink(tmp.data); /* of a start that was killed here */
    if (rc == 0)
        rc = lf_h5_create(&f, tmp.data, err);
    if (rc == 0)
        rc = put_all(f, r, err);
    if (lf_h5_close(f, &closing) && rc == 0)
        rc = lf_fail(err, closing.rc, "%s", closing.text);
    if (rc == 0)
        rc = lf_io_publish_tmp(tmp.data, path, err);
    if (rc != 0 && tmp.len)
        unlink(tmp.data);
    lf_buf_fini(&tmp);
    return rc;
}

/* ---- reading ---- */

struct reader {
    lf_h5 *f;
    int fd;
    const char *path;
};

/* Dataset `name` of this type with exactly n elements (n SIZE_MAX: any, told in *got) as an owned
 * array. */
static int get(const struct reader *q, const char *name, enum lf_h5_type type, size_t n, void *out,
               size_t *got, lf_err *err)
{
    lf_h5_dataset d = {0};
    size_t each = lf_h5_type_bytes(type);
    int rc = lf_h5_stat(q->f, name, &d, err);
    if (rc == 0 &&
        (d.type != type || (n != SIZE_MAX && d.n_elems != n) || d.n_elems > (SIZE_MAX - 8) / each))
        rc = lf_fail(err, LF_EFORMAT, "%s: %s is not %zu of %s", q->path, name, n,
                     lf_h5_type_name(type));
    size_t count = rc != 0 ? 0 : (size_t)d.n_elems;
    char *v = rc != 0 ? NULL : lf_malloc(count + 1, each, err);
    if (rc == 0 && !v)
        rc = LF_ENOMEM;
    for (size_t i = 0; rc == 0 && i < d.n_extents; i++)
        rc = lf_io_pread_all(q->fd, v + d.extents[i].first * each, (size_t)d.extents[i].n * each,
                             (off_t)d.extents[i].offset, q->path, err);
    lf_h5_dataset_fini(&d);
    if (rc != 0) {
        free(v);
        return rc;
    }
    memcpy(out, &v, sizeof v);
    if (got)
        *got = count;
    return 0;
}

static int get_attributes(lf_rollout *r, const struct reader *q, lf_err *err)
{
    char *format = NULL, *key = NULL;
    int64_t group = 0, k = 0;
    int rc = lf_h5_get_attr_str(q->f, "lf_format", &format, err);
    if (rc == 0 && strcmp(format, LF_ROLLOUT_FORMAT) != 0)
        rc = lf_fail(err, LF_EFORMAT, "%s is not a rollout (%s)", q->path, format);
    if (rc == 0)
        rc = lf_h5_get_attr_str(q->f, "key", &key, err);
    if (rc == 0)
        rc = lf_h5_get_attr_str(q->f, "sources", &r->sources, err);
    if (rc == 0)
        rc = lf_h5_get_attr_i64(q->f, "step", &r->step, err);
    if (rc == 0)
        rc = lf_h5_get_attr_i64(q->f, "next_prompt", &r->next_prompt, err);
    if (rc == 0)
        rc = lf_h5_get_attr_i64(q->f, "dropped", &r->dropped, err);
    if (rc == 0)
        rc = lf_h5_get_attr_i64(q->f, "group", &group, err);
    if (rc == 0)
        rc = lf_h5_get_attr_i64(q->f, "n_sources", &k, err);
    if (rc == 0 && (strlen(key) != LF_HASH_HEX - 1 || group < 1 || k < 0 || k > 1000))
        rc = lf_fail(err, LF_EFORMAT, "%s: key, group or sources are not what they should be",
                     q->path);
    if (rc == 0) {
        memcpy(r->key, key, LF_HASH_HEX);
        r->group = (size_t)group;
        r->n_sources = (size_t)k;
    }
    free(format);
    free(key);
    return rc;
}

/* Do the sizes that sequences claim add up? Makes `first` from them. */
static int check_shape(lf_rollout *r, const struct reader *q, size_t n_tokens, lf_err *err)
{
    r->first = lf_calloc(r->n + 1, sizeof *r->first, err);
    if (!r->first)
        return LF_ENOMEM;
    bool good = r->offsets[0] == 0 && r->offsets[r->n] == n_tokens && r->n % r->group == 0;
    for (size_t i = 0; i < r->n && good; i++) {
        good = r->offsets[i + 1] > r->offsets[i] && r->offsets[i + 1] <= n_tokens &&
               r->prompt_len[i] >= 1 && r->prompt_len[i] < r->offsets[i + 1] - r->offsets[i];
        r->first[i + 1] =
            good ? r->first[i] + (int64_t)(r->offsets[i + 1] - r->offsets[i] - r->prompt_len[i])
                 : 0;
    }
    return good
               ? 0
               : lf_fail(err, LF_EFORMAT, "%s: its sequences do not add up to its tokens", q->path);
}

static int get_all(lf_rollout *r, const struct reader *q, lf_err *err)
{
    size_t n_off = 0, n_tokens = 0;
    int rc = get_attributes(r, q, err);
    if (rc == 0)
        rc = get(q, "offsets", LF_H5_U64, SIZE_MAX, &r->offsets, &n_off, err);
    if (rc == 0 && (n_off < 2 || n_off > MAX_SEQUENCES))
        rc = lf_fail(err, LF_EFORMAT, "%s holds no sequence", q->path);
    if (rc != 0)
        return rc;
    r->n = r->cap = n_off - 1;
    rc = get(q, "tokens", LF_H5_I32, SIZE_MAX, &r->tokens, &n_tokens, err);
    if (rc == 0)
        rc = get(q, "prompt_len", LF_H5_U32, r->n, &r->prompt_len, NULL, err);
    if (rc == 0)
        rc = check_shape(r, q, n_tokens, err);
    if (rc == 0)
        rc = get(q, "prompt", LF_H5_U64, r->n, &r->prompt, NULL, err);
    if (rc == 0)
        rc = get(q, "doc", LF_H5_U64, r->n, &r->doc, NULL, err);
    if (rc == 0)
        rc = get(q, "seed", LF_H5_U64, r->n, &r->seed, NULL, err);
    if (rc == 0)
        rc = get(q, "ended", LF_H5_U8, r->n, &r->ended, NULL, err);
    if (rc == 0)
        rc = get(q, "source", LF_H5_F64, r->n * r->n_sources, &r->source, NULL, err);
    if (rc == 0)
        rc = get(q, "score", LF_H5_F64, r->n, &r->score, NULL, err);
    if (rc == 0)
        rc = get(q, "reward", LF_H5_F64, r->n, &r->reward, NULL, err);
    if (rc != 0)
        return rc;
    r->cap_tokens = n_tokens;
    r->cap_completion = (size_t)r->first[r->n];
    rc = get(q, "logprob", LF_H5_F32, r->cap_completion, &r->logprob, NULL, err);
    if (rc == 0 && lf_h5_has(q->f, "ref_logprob"))
        rc = get(q, "ref_logprob", LF_H5_F32, r->cap_completion, &r->ref, NULL, err);
    if (rc == 0 && lf_h5_has(q->f, "value"))
        rc = get(q, "value", LF_H5_F32, r->cap_completion, &r->value, NULL, err);
    if (rc == 0)
        rc = get(q, "advantage", LF_H5_F64, r->cap_completion, &r->adv, NULL, err);
    return rc != 0 ? rc : get(q, "return", LF_H5_F64, r->cap_completion, &r->ret, NULL, err);
}

int lf_rollout_read(lf_rollout *r, const char *path, lf_err *err)
{
    struct reader q = {NULL, open(path, O_RDONLY | O_CLOEXEC), path};
    *r = (lf_rollout){0};
    if (q.fd < 0)
        return lf_fail_errno(err, "%s", path);
    int rc = lf_h5_open(&q.f, path, err);
    if (rc == 0)
        rc = get_all(r, &q, err);
    lf_h5_close(q.f, NULL);
    close(q.fd);
    if (rc != 0)
        lf_rollout_fini(r);
    return rc;
}
