/* SPDX-License-Identifier: Apache-2.0
 *
 * Spec ids and the cached hashes of outside files.
 */
#include "config.h"

#include "flow/plan/spec.h"

#include <dirent.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/record/hashcache.h"
#include "flow/record/record.h"

#define RACY_S         2.0
#define TREE_MAX_DEPTH 32

struct hasher {
    const lf_doc *plan;
    const char *project;
    lf_hashcache *cache;
};

/* ---- outside files ---- */

static int64_t time_ns(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

static bool is_known(lf_hashed *out, const struct hasher *h, const char *path,
                     const struct stat *st)
{
    /* The time of change too: a person can set the other back. */
    if (!lf_hashcache_find(out, h->cache, path) || out->size != st->st_size ||
        out->mtime_ns != time_ns(&st->st_mtim) || out->ctime_ns != time_ns(&st->st_ctim) ||
        out->inode != (int64_t)st->st_ino)
        return false;
    int64_t newest = out->mtime_ns > out->ctime_ns ? out->mtime_ns : out->ctime_ns;
    return out->at - 1e-9 * (double)newest >= RACY_S;
}

static int hash_file(char hex[LF_HASH_HEX], struct hasher *h, const char *path,
                     const struct stat *st, lf_err *err)
{
    lf_hashed e;
    if (is_known(&e, h, path, st)) {
        memcpy(hex, e.sha256, LF_HASH_HEX);
        return 0;
    }
    double at = lf_wall_s();
    uint8_t digest[LF_HASH_BYTES];
    int64_t bytes = 0;
    int rc = lf_tree_hash_file(digest, &bytes, path, err);
    if (rc < 0)
        return rc;
    lf_hash_hex(hex, digest);
    e = (lf_hashed){.size = bytes,
                    .mtime_ns = time_ns(&st->st_mtim),
                    .ctime_ns = time_ns(&st->st_ctim),
                    .inode = (int64_t)st->st_ino,
                    .at = at};
    memcpy(e.sha256, hex, LF_HASH_HEX);
    return lf_hashcache_put(h->cache, path, &e, err);
}

static int hash_path(lf_buf *out, struct hasher *h, const char *path, const char *rel, int depth,
                     lf_err *err);

/* Hidden files are left out, as the stages that read directories do. */
static int not_hidden(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static int hash_dir(lf_buf *out, struct hasher *h, const char *path, const char *rel, int depth,
                    lf_err *err)
{
    if (depth > TREE_MAX_DEPTH)
        return lf_fail(err, LF_EINVAL, "%s: directories are nested more than %d deep", path,
                       TREE_MAX_DEPTH);
    struct dirent **list = NULL;
    int n = scandir(path, &list, not_hidden, alphasort);
    if (n < 0)
        return lf_fail_errno(err, "cannot list %s", path);
    int rc = 0;
    for (int i = 0; i < n; i++) {
        lf_buf p, r;
        lf_buf_init(&p);
        lf_buf_init(&r);
        lf_buf_addf(&p, "%s/%s", path, list[i]->d_name);
        lf_buf_addf(&r, "%s/%s", rel, list[i]->d_name);
        if (rc == 0)
            rc = hash_path(out, h, p.data, r.data, depth + 1, err);
        lf_buf_fini(&p);
        lf_buf_fini(&r);
        free(list[i]);
    }
    free(list);
    return rc;
}

/* One line per file: name below the input, then the hash of what it holds. */
static int hash_path(lf_buf *out, struct hasher *h, const char *path, const char *rel, int depth,
                     lf_err *err)
{
    struct stat st;
    int rc = lf_path_plain(path, "input", err); /* the list below is one of lines */
    if (rc < 0)
        return rc;
    if (stat(path, &st) < 0)
        return lf_fail_errno(err, "input %s", path);
    if (S_ISDIR(st.st_mode))
        return hash_dir(out, h, path, rel, depth, err);
    if (!S_ISREG(st.st_mode))
        return lf_fail(err, LF_EINVAL, "input %s is neither a file nor a directory", path);
    char hex[LF_HASH_HEX];
    rc = hash_file(hex, h, path, &st, err);
    if (rc == 0)
        lf_buf_addf(out, "%s %s\n", rel, hex);
    return rc;
}

/* What an option names. A Megatron index, NAME.idx, stands for the tokens in NAME.bin. */
static int hash_input(lf_buf *out, struct hasher *h, const char *path, const char *rel, lf_err *err)
{
    int rc = hash_path(out, h, path, rel, 0, err);
    if (rc < 0 || !lf_str_has_suffix(path, ".idx"))
        return rc;
    lf_buf bin;
    struct stat st;
    lf_buf_init(&bin);
    lf_buf_add(&bin, path, strlen(path) - strlen("idx"));
    lf_buf_adds(&bin, "bin");
    rc = lf_buf_check(&bin, err);
    if (rc == 0 && stat(bin.data, &st) == 0)
        rc = hash_path(out, h, bin.data, "bin", 0, err);
    lf_buf_fini(&bin);
    return rc;
}

static int hash_outside(lf_buf *out, struct hasher *h, const char *text, lf_err *err)
{
    lf_buf path, list;
    lf_buf_init(&path);
    lf_buf_init(&list);
    if (text[0] != '/')
        lf_buf_addf(&path, "%s/", h->project);
    lf_buf_adds(&path, text);
    struct stat st;
    int rc = 0;
    if (stat(path.data, &st) == 0) {
        rc = hash_input(&list, h, path.data, "", err);
    } else {
        glob_t g;
        memset(&g, 0, sizeof g);
        if (glob(path.data, 0, NULL, &g) != 0)
            rc = lf_fail(err, LF_ENOENT, "input %s does not exist", path.data);
        for (size_t i = 0; rc == 0 && i < g.gl_pathc; i++) {
            const char *base = strrchr(g.gl_pathv[i], '/');
            rc = hash_input(&list, h, g.gl_pathv[i], base != NULL ? base + 1 : g.gl_pathv[i], err);
        }
        globfree(&g);
    }
    uint8_t digest[LF_HASH_BYTES];
    if (rc == 0)
        rc = lf_buf_check(&list, err);
    if (rc == 0)
        rc = lf_hash_buf(digest, list.data, list.len, err);
    if (rc == 0) {
        char hex[LF_HASH_HEX];
        lf_hash_hex(hex, digest);
        lf_buf_addf(out, "sha256:%s", hex);
    }
    lf_buf_fini(&path);
    lf_buf_fini(&list);
    return rc;
}

/* ---- spec of a stage ---- */

static int spec_of_refs(lf_buf *out, const struct hasher *h, const lf_doc_input *in, lf_err *err)
{
    const char *p = in->text;
    for (size_t i = 0; i < in->refs.n; i++) {
        const char *d = strstr(p, "${stage:"), *close = d != NULL ? strchr(d, '}') : NULL;
        const lf_doc_stage *from = lf_doc_find(h->plan, in->refs.v[i].stage);
        if (close == NULL || from == NULL || from->frozen_id == NULL)
            return lf_fail(err, LF_EFORMAT, "plan document: a reference and its text disagree");
        lf_buf_add(out, p, (size_t)(d - p));
        lf_buf_addf(out, "stage:%s.%s", from->frozen_id, in->refs.v[i].output);
        p = close + 1;
    }
    lf_buf_adds(out, p);
    return 0;
}

static int spec_input(lf_buf *b, struct hasher *h, const lf_doc_stage *stage,
                      const lf_doc_input *in, lf_err *err)
{
    if (in->refs.n > 0)
        return spec_of_refs(b, h, in, err);
    if (lf_pairs_get(&stage->types, in->option) != NULL && !in->word.v)
        return hash_outside(b, h, in->text, err);
    lf_buf_adds(b, in->text);
    return 0;
}

/* The name under which an option enters the spec id: the one it had before it was renamed. */
static const char *hash_name(const lf_doc_stage *stage, const char *option)
{
    const char *was = lf_pairs_get(&stage->renamed, option);
    return was != NULL ? was : option;
}

static int spec_inputs(lf_doc_stage *stage, struct hasher *h, lf_err *err)
{
    int rc = 0;
    stage->spec.inputs.given = true;
    for (size_t i = 0; rc == 0 && i < stage->inputs.n; i++) {
        const lf_doc_input *in = &stage->inputs.v[i];
        if (in->identity.given && !in->identity.v)
            continue; /* it changes what is looked at on the way, not what comes out */
        lf_texts *list = lf_lists_add(&stage->spec.inputs, hash_name(stage, in->option), err);
        lf_buf b;
        lf_buf_init(&b);
        rc = list == NULL ? LF_ENOMEM : spec_input(&b, h, stage, in, err);
        if (rc == 0)
            rc = lf_buf_check(&b, err);
        if (rc == 0)
            rc = lf_texts_add(list, b.data, err);
        lf_buf_fini(&b);
    }
    return rc;
}

static int spec_options(lf_doc_stage *stage, lf_err *err)
{
    const lf_pairs *identity = &stage->identity;
    int rc = 0;
    stage->spec.options.given = identity->given;
    for (size_t i = 0; rc == 0 && i < identity->n; i++)
        rc = lf_pairs_add(&stage->spec.options, hash_name(stage, identity->v[i].name),
                          identity->v[i].value, err);
    return rc;
}

static int spec_one(lf_doc_stage *stage, struct hasher *h, lf_err *err)
{
    lf_spec *s = &stage->spec;
    lf_spec_fini(s);
    lf_spec_fini(&stage->settled);
    s->given = true;
    s->spec_version = stage->spec_version;
    int rc = lf_text_set(&s->kind, stage->kind, "kind", err);
    if (rc == 0)
        rc = spec_options(stage, err);
    if (rc == 0)
        rc = lf_pairs_copy(&s->model, &stage->model, err);
    if (rc == 0)
        rc = spec_inputs(stage, h, err);
    char *text = rc == 0 ? lf_spec_text(s, err) : NULL;
    uint8_t digest[LF_HASH_BYTES];
    if (rc == 0)
        rc = text == NULL ? LF_ENOMEM : lf_hash_buf(digest, text, strlen(text), err);
    if (rc == 0) {
        char hex[LF_HASH_HEX];
        lf_hash_hex(hex, digest);
        rc = lf_text_set(&stage->frozen_id, hex, "spec_id", err);
        if (rc == 0)
            rc = lf_text_set(&stage->spec_id, hex, "spec_id", err);
    }
    free(text);
    return rc;
}

int lf_spec_assign(lf_doc *plan, const char *project, const char *cache_path, lf_err *err)
{
    struct hasher h = {
        .plan = plan, .project = project, .cache = lf_hashcache_load(cache_path, err)};
    int rc = h.cache == NULL ? LF_ENOMEM : 0;
    for (size_t i = 0; rc == 0 && i < plan->stages.n; i++) {
        lf_doc_stage *st = &plan->stages.v[i];
        rc = spec_one(st, &h, err);
        if (rc < 0)
            lf_err_prefix(err, "stage %s", st->name);
    }
    if (rc == 0 && cache_path != NULL)
        lf_hashcache_save(h.cache, cache_path);
    lf_hashcache_free(h.cache);
    return rc;
}

/* ---- differences ---- */

/* Specs have hash names, users know an option by its name of today: texts in place. */
static int todays_names(lf_texts *out, const lf_pairs *renamed, lf_err *err)
{
    int rc = 0;
    for (size_t k = 0; k < renamed->n; k++)
        for (size_t i = 0; rc == 0 && i < out->n; i++)
            if (strcmp(out->v[i], renamed->v[k].value) == 0)
                rc = lf_text_set(&out->v[i], renamed->v[k].name, "renamed", err);
    return rc;
}

static int named(lf_texts *out, const char *prefix, const char *name, lf_err *err)
{
    char text[512];
    snprintf(text, sizeof text, "%s%s", prefix, name);
    return lf_texts_add(out, text, err);
}

/* Adds the names that are in only one of them or differ. */
static int diff_pairs(lf_texts *out, const lf_pairs *a, const lf_pairs *b, const char *prefix,
                      lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < a->n; i++)
        if (!lf_text_same(a->v[i].value, lf_pairs_get(b, a->v[i].name)))
            rc = named(out, prefix, a->v[i].name, err);
    for (size_t i = 0; rc == 0 && i < b->n; i++)
        if (lf_pairs_get(a, b->v[i].name) == NULL)
            rc = named(out, prefix, b->v[i].name, err);
    return rc;
}

static int diff_lists(lf_texts *out, const lf_lists *a, const lf_lists *b, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < a->n; i++)
        if (!lf_texts_same(&a->v[i].values, lf_lists_get(b, a->v[i].name)))
            rc = lf_texts_add(out, a->v[i].name, err);
    for (size_t i = 0; rc == 0 && i < b->n; i++)
        if (lf_lists_get(a, b->v[i].name) == NULL)
            rc = lf_texts_add(out, b->v[i].name, err);
    return rc;
}

int lf_spec_diff(lf_texts *out, const lf_spec *a, const lf_doc_stage *stage, lf_err *err)
{
    const lf_spec *b = lf_doc_spec(stage);
    *out = (lf_texts){.given = true};
    int rc = lf_text_same(a->kind, b->kind) ? 0 : lf_texts_add(out, "kind", err);
    if (rc == 0 && a->spec_version.v != b->spec_version.v)
        rc = lf_texts_add(out, "spec_version", err);
    if (rc == 0)
        rc = diff_pairs(out, &a->options, &b->options, "", err);
    if (rc == 0)
        rc = diff_lists(out, &a->inputs, &b->inputs, err);
    if (rc == 0)
        rc = todays_names(out, &stage->renamed, err);
    if (rc == 0)
        rc = diff_pairs(out, &a->model, &b->model, "model.", err);
    if (rc < 0)
        lf_texts_fini(out);
    return rc;
}
