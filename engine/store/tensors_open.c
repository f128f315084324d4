/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a set: one file, or the files of an index and the agreement of both. The same for every
 * kind of file that the Hugging Face libraries index.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/store/tensors_priv.h"

#define MAX_INDEX ((size_t)256 << 20) /* bytes of an index: 2^20 tensors of long names */

/* ---- several files ---- */

struct shard {
    char *name; /* of the file, as the index has it */
    int file;   /* in the set; -1 while it is not opened */
};

struct claim {
    char *tensor;
    size_t shard;
};

struct st_index {
    struct shard *shards;
    struct claim *claims; /* sorted by tensor once read */
    size_t n_shards, cap_shards, n_claims, cap_claims;
};

static void index_fini(struct st_index *x)
{
    for (size_t i = 0; i < x->n_shards; i++)
        free(x->shards[i].name);
    for (size_t i = 0; i < x->n_claims; i++)
        free(x->claims[i].tensor);
    free(x->shards);
    free(x->claims);
}

#define MAX_SHARDS 10000

/* Which shard a name is; new ones are added. An index is written shard by shard or by tensor name,
 * so the shard asked for last is the likely one. */
static int shard_of(struct st_index *x, const char *name, size_t likely, size_t *out, lf_err *err)
{
    if (likely < x->n_shards && strcmp(x->shards[likely].name, name) == 0) {
        *out = likely;
        return 0;
    }
    for (size_t i = 0; i < x->n_shards; i++)
        if (strcmp(x->shards[i].name, name) == 0) {
            *out = i;
            return 0;
        }
    if (x->n_shards >= MAX_SHARDS)
        return lf_fail(err, LF_EFORMAT, "more than %d files are named", MAX_SHARDS);
    int rc = lf_grow(&x->shards, &x->cap_shards, x->n_shards, sizeof *x->shards, err);
    if (rc < 0)
        return rc;
    char *copy = lf_strdup(name, err);
    if (!copy)
        return LF_ENOMEM;
    x->shards[x->n_shards] = (struct shard){copy, -1};
    *out = x->n_shards++;
    return 0;
}

static int read_weight_map(struct st_index *x, const char *text, size_t len, lf_err *err)
{
    lf_jscan j;
    lf_buf file;
    size_t shard = 0;
    int rc;
    lf_buf_init(&file);
    lf_jscan_init(&j, text, len, "weight_map");
    while ((rc = lf_jscan_next(&j, err)) == 1) {
        rc = lf_jscan_string(&j, &file, err);
        if (rc == 0 && x->n_claims >= LF_ST_MAX_TENSORS)
            rc = lf_fail(err, LF_EFORMAT, "more than %zu tensors", LF_ST_MAX_TENSORS);
        if (rc == 0)
            rc = shard_of(x, file.data, shard, &shard, err);
        if (rc == 0)
            rc = lf_grow(&x->claims, &x->cap_claims, x->n_claims, sizeof *x->claims, err);
        char *name = rc == 0 ? lf_strdup(j.key.data, err) : NULL;
        if (!name) {
            rc = rc < 0 ? rc : LF_ENOMEM;
            break;
        }
        x->claims[x->n_claims++] = (struct claim){name, shard};
    }
    lf_jscan_fini(&j);
    lf_buf_fini(&file);
    return rc;
}

static int claim_cmp(const void *a, const void *b)
{
    return strcmp(((const struct claim *)a)->tensor, ((const struct claim *)b)->tensor);
}

static int parse_index(struct st_index *x, const lf_buf *text, lf_err *err)
{
    lf_jscan j;
    bool have = false;
    int rc;
    size_t bad = lf_utf8_check(text->data, text->len);
    if (bad < text->len)
        return lf_fail(err, LF_EFORMAT, "byte %zu is not UTF-8", bad);
    lf_jscan_init(&j, text->data, text->len, "index");
    while ((rc = lf_jscan_next(&j, err)) == 1) {
        if (strcmp(j.key.data, "weight_map") != 0)
            continue;
        rc = have ? lf_fail(err, LF_EFORMAT, "\"weight_map\" is there twice")
                  : read_weight_map(x, j.value, j.value_len, err);
        have = true;
        if (rc < 0)
            break;
    }
    lf_jscan_fini(&j);
    if (rc < 0)
        return rc;
    if (!have || !x->n_claims)
        return lf_fail(err, LF_EFORMAT, "there is no \"weight_map\" that names a tensor");
    qsort(x->claims, x->n_claims, sizeof *x->claims, claim_cmp);
    for (size_t i = 1; i < x->n_claims; i++)
        if (claim_cmp(&x->claims[i - 1], &x->claims[i]) == 0)
            return lf_fail(err, LF_EFORMAT, "tensor %.200s is in \"weight_map\" twice",
                           x->claims[i].tensor);
    return 0;
}

/* Index and files say the same. */
static int check_claims(const lf_st *s, const struct st_index *x, lf_err *err)
{
    for (size_t i = 0; i < x->n_claims; i++) {
        const struct shard *sh = &x->shards[x->claims[i].shard];
        const lf_st_entry *e = lf_st_find(s, x->claims[i].tensor);
        if (!e)
            return lf_fail(err, LF_EFORMAT, "tensor %.200s should be in %.200s and is in no file",
                           x->claims[i].tensor, sh->name);
        if (e->file != sh->file)
            return lf_fail(err, LF_EFORMAT, "tensor %.200s should be in %.200s and is in %.400s",
                           e->name, sh->name, lf_st_file_at(s, (size_t)e->file));
    }
    for (size_t i = 0; i < s->n_recs && s->n_recs != x->n_claims; i++) {
        struct claim key = {(char *)(uintptr_t)s->recs[i].e.name, 0};
        if (!bsearch(&key, x->claims, x->n_claims, sizeof key, claim_cmp))
            return lf_fail(err, LF_EFORMAT,
                           "%.400s has tensor %.200s, which the index does not list",
                           lf_st_file_at(s, (size_t)s->recs[i].e.file), s->recs[i].e.name);
    }
    return 0;
}

static int read_fd(int fd, const char *path, lf_buf *out, lf_err *err)
{
    struct stat st;
    char *text = NULL;
    int rc = fstat(fd, &st) < 0 ? lf_fail_errno(err, "cannot look at %s", path) : 0;
    if (rc == 0 && (uint64_t)st.st_size > MAX_INDEX)
        rc = lf_fail(err, LF_EFORMAT, "%s has %lld bytes; an index has at most %zu", path,
                     (long long)st.st_size, MAX_INDEX);
    if (rc == 0 && !(text = lf_malloc((size_t)st.st_size, 1, err)))
        rc = LF_ENOMEM;
    if (rc == 0)
        rc = lf_io_pread_all(fd, text, (size_t)st.st_size, 0, path, err);
    if (rc == 0) {
        lf_buf_add(out, text, (size_t)st.st_size);
        rc = lf_buf_check(out, err);
    }
    free(text);
    return rc;
}

/* index: open at fd (taken). */
static int add_indexed(lf_st *s, const struct lf_st_kind *kind, int fd, const char *dir,
                       const char *name, lf_err *err)
{
    struct st_index x = {0};
    char *path = lf_path_join(dir, name, err);
    lf_buf text;
    lf_buf_init(&text);
    int rc = path ? read_fd(fd, path, &text, err) : LF_ENOMEM;
    close(fd);
    if (rc == 0 && (rc = parse_index(&x, &text, err)) < 0)
        lf_err_prefix(err, "%s", path);
    for (size_t i = 0; i < x.n_shards && rc == 0; i++) {
        char *file = lf_path_join(dir, x.shards[i].name, err);
        int shard = file ? lf_st_open_file(dir, x.shards[i].name, err) : LF_ENOMEM;
        if (shard < 0)
            rc = lf_err_prefix(err, "%s names a file of the model", path);
        else if ((rc = kind->add(s, shard, file, err)) == 0)
            x.shards[i].file = (int)s->n_files - 1;
        free(file);
    }
    if (rc == 0)
        rc = lf_st_seal(s, err);
    if (rc == 0 && (rc = check_claims(s, &x, err)) < 0)
        lf_err_prefix(err, "%s", path);
    lf_buf_fini(&text);
    index_fini(&x);
    free(path);
    return rc;
}

/* ---- what path is ---- */

/* A descriptor, -1 when there is no such file, another negative lf_rc when it cannot be opened. */
static int maybe_open(const char *dir, const char *name, bool *there, lf_err *err)
{
    lf_err e = LF_ERR_INIT;
    int fd = lf_st_open_file(dir, name, &e);
    *there = fd >= 0;
    if (fd == LF_ENOENT)
        return 0;
    if (fd < 0 && err)
        *err = e;
    return fd;
}

static int add_directory(lf_st *s, const struct lf_st_kind *kind, const char *dir, lf_err *err)
{
    bool has_one = false, has_index = false;
    char *path = NULL;
    int one = maybe_open(dir, kind->one, &has_one, err);
    int index = one < 0 ? one : maybe_open(dir, kind->index, &has_index, err);
    int rc = index < 0 ? index : 0;
    if (rc == 0 && has_one && has_index)
        rc = lf_fail(err, LF_EINVAL, "%s holds both %s and %s; name the one you mean", dir,
                     kind->one, kind->index);
    if (rc == 0 && !has_one && !has_index)
        rc = lf_fail(err, LF_ENOENT, "%s holds neither %s nor %s", dir, kind->one, kind->index);
    if (rc == 0 && !(path = lf_path_join(dir, kind->one, err)))
        rc = LF_ENOMEM;
    if (rc == 0 && has_one) {
        has_one = false; /* taken */
        if ((rc = kind->add(s, one, path, err)) == 0)
            rc = lf_st_seal(s, err);
    } else if (rc == 0) {
        has_index = false;
        rc = add_indexed(s, kind, index, dir, kind->index, err);
    }
    if (has_one)
        close(one);
    if (has_index)
        close(index);
    free(path);
    return rc;
}

static int add_path(lf_st *s, const struct lf_st_kind *kind, const char *path, lf_err *err)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return lf_fail_errno(err, "cannot look at %s", path);
    if (S_ISDIR(st.st_mode))
        return add_directory(s, kind, path, err);
    if (!S_ISREG(st.st_mode))
        return lf_fail(err, LF_EINVAL, "%s is neither a file nor a directory", path);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return lf_fail_errno(err, "cannot open %s", path);
    if (!lf_str_has_suffix(path, ".json")) {
        int rc = kind->add(s, fd, path, err);
        return rc < 0 ? rc : lf_st_seal(s, err);
    }
    const char *slash = strrchr(path, '/');
    char *dir = slash ? lf_strndup(path, (size_t)(slash - path) + (slash == path), err)
                      : lf_strdup(".", err);
    int rc = LF_ENOMEM;
    if (dir)
        rc = add_indexed(s, kind, fd, dir, slash ? slash + 1 : path, err);
    else
        close(fd);
    free(dir);
    return rc;
}

int lf_st_open_kind(lf_st **out, const struct lf_st_kind *kind, const char *path, lf_err *err)
{
    lf_st *s = lf_st_create(err);
    int rc = s ? add_path(s, kind, path, err) : LF_ENOMEM;
    if (rc < 0)
        lf_st_close(s);
    else
        *out = s;
    return rc;
}
