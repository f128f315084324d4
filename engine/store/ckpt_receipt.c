/* SPDX-License-Identifier: Apache-2.0
 *
 * Receipts as text. They come from other processes of the same run, so they are checked like a
 * file.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/store/ckpt_priv.h"

#define VERSION   1
#define MAX_PARTS 1000000

static json_t *files_json(const struct lf_ckpt_receipt *r)
{
    json_t *a = json_array();
    for (size_t i = 0; a && i < r->n_files; i++) {
        char hex[LF_HASH_HEX];
        lf_hash_hex(hex, r->files[i].sha256);
        if (json_array_append_new(a, json_pack("{s:s, s:I, s:s}", "path", r->files[i].path, "bytes",
                                               (json_int_t)r->files[i].bytes, "tree_sha256", hex)) <
            0) {
            json_decref(a);
            return NULL;
        }
    }
    return a;
}

static json_t *tensors_json(const struct lf_ckpt_receipt *r)
{
    json_t *a = json_array();
    for (size_t i = 0; a && i < r->meta.n_recs; i++)
        if (json_array_append_new(a, lf_ckpt_rec_json(&r->meta.recs[i], true)) < 0) {
            json_decref(a);
            return NULL;
        }
    return a;
}

char *lf_ckpt_receipt_text(const struct lf_ckpt_receipt *r, lf_err *err)
{
    char run[32];
    snprintf(run, sizeof run, "%016" PRIx64, r->run);
    json_t *o = json_pack("{s:i, s:s, s:I, s:i, s:i, s:s, s:I, s:o, s:o}", "lf_receipt", VERSION,
                          "dir", r->dir, "step", (json_int_t)r->step, "part", r->part, "parts",
                          r->parts, "run", run, "saves", (json_int_t)r->saves, "files",
                          files_json(r), "tensors", tensors_json(r));
    char *text = o ? lf_json_dump(o, err) : NULL;
    json_decref(o);
    if (!text)
        lf_fail(err, LF_ENOMEM, "no memory for the receipt of a part of a checkpoint");
    return text;
}

static int load_ids(struct lf_ckpt_receipt *r, json_t *o, lf_err *err)
{
    static const char what[] = "a receipt";
    const char *dir = NULL, *run = NULL;
    char *end;
    int64_t version = 0, part = 0, parts = 0;
    int rc;
    if ((rc = lf_json_get_i64(&version, o, "lf_receipt", true, what, err)) < 0)
        return rc;
    if (version != VERSION)
        return lf_fail(err, LF_ENOTSUP, "version %lld; this program reads %d", (long long)version,
                       VERSION);
    if ((rc = lf_json_get_str(&dir, o, "dir", true, what, err)) < 0 ||
        (rc = lf_json_get_i64(&r->step, o, "step", true, what, err)) < 0 ||
        (rc = lf_json_get_i64(&part, o, "part", true, what, err)) < 0 ||
        (rc = lf_json_get_i64(&parts, o, "parts", true, what, err)) < 0 ||
        (rc = lf_json_get_str(&run, o, "run", true, what, err)) < 0 ||
        (rc = lf_json_get_i64(&r->saves, o, "saves", true, what, err)) < 0)
        return rc;
    r->run = strtoull(run, &end, 16);
    if (parts < 1 || parts > MAX_PARTS || part < 0 || part >= parts || end != run + 16 || *end)
        return lf_fail(err, LF_EFORMAT, "part %lld of %lld in run '%.40s'", (long long)part,
                       (long long)parts, run);
    r->part = (int)part;
    r->parts = (int)parts;
    return (r->dir = lf_strdup(dir, err)) ? 0 : LF_ENOMEM;
}

static int load_file(struct lf_ckpt_receipt *r, json_t *o, lf_err *err)
{
    struct lf_ckpt_file *f = &r->files[r->n_files];
    const char *path = NULL, *hex = NULL;
    int rc;
    if ((rc = lf_json_get_str(&path, o, "path", true, "a file", err)) < 0 ||
        (rc = lf_json_get_i64(&f->bytes, o, "bytes", true, "a file", err)) < 0 ||
        (rc = lf_json_get_str(&hex, o, "tree_sha256", true, "a file", err)) < 0 ||
        (rc = lf_artifact_parse_hex(f->sha256, hex, err)) < 0)
        return rc;
    if (lf_ckpt_file_part(path) != r->part)
        return lf_fail(err, LF_EFORMAT, "file '%.100s' is not one of part %d", path, r->part);
    if (!(f->path = lf_strdup(path, err)))
        return LF_ENOMEM;
    r->n_files++;
    return 0;
}

static int load_tensor(struct lf_ckpt_receipt *r, json_t *o, lf_err *err)
{
    struct lf_ckpt_rec *t = &r->meta.recs[r->meta.n_recs++];
    int rc = lf_ckpt_rec_load(t, o, true, err);
    if (rc == 0 && r->meta.n_recs > 1 && lf_ckpt_cmp(&t[-1].e, &t->e) >= 0)
        return lf_fail(err, LF_EFORMAT, "tensors are not sorted at %s", t->e.name);
    for (size_t k = 0; k < t->n_pieces && rc == 0; k++)
        if (lf_ckpt_file_part(t->pieces[k].file) != r->part)
            return lf_fail(err, LF_EFORMAT, "tensor %s (%s) lies in '%.100s', not of part %d",
                           t->e.name, t->e.kind, t->pieces[k].file, r->part);
    return rc;
}

static int load_receipt(struct lf_ckpt_receipt *r, json_t *o, lf_err *err)
{
    json_t *files = NULL, *tensors = NULL;
    int rc;
    if (!json_is_object(o))
        return lf_fail(err, LF_EFORMAT, "it is no object");
    if ((rc = load_ids(r, o, err)) < 0 ||
        (rc = lf_json_get_array(&files, o, "files", true, "a receipt", err)) < 0 ||
        (rc = lf_json_get_array(&tensors, o, "tensors", true, "a receipt", err)) < 0)
        return rc;
    if (json_array_size(tensors) > LF_CKPT_MAX_TENSORS ||
        json_array_size(files) > LF_ARTIFACT_MAX_FILES)
        return lf_fail(err, LF_EFORMAT, "%zu tensors in %zu files", json_array_size(tensors),
                       json_array_size(files));
    r->files = lf_calloc(json_array_size(files) + 1, sizeof *r->files, err);
    r->meta.recs = lf_calloc(json_array_size(tensors) + 1, sizeof *r->meta.recs, err);
    if (!r->files || !r->meta.recs)
        return LF_ENOMEM;
    for (size_t i = 0; i < json_array_size(files) && rc == 0; i++)
        rc = load_file(r, json_array_get(files, i), err);
    for (size_t i = 0; i < json_array_size(tensors) && rc == 0; i++)
        rc = load_tensor(r, json_array_get(tensors, i), err);
    return rc;
}

int lf_ckpt_receipt_parse(struct lf_ckpt_receipt *out, const char *text, lf_err *err)
{
    struct lf_ckpt_receipt r = {0};
    lf_err why = LF_ERR_INIT;
    json_t *o = lf_json_load_text(text, strlen(text), "receipt", &why);
    int rc = o ? load_receipt(&r, o, &why) : why.rc;
    json_decref(o);
    if (rc == 0) {
        *out = r;
        return 0;
    }
    lf_ckpt_receipt_fini(&r);
    return lf_fail(err, rc == LF_ENOMEM || rc == LF_ENOTSUP ? rc : LF_EFORMAT,
                   "receipt of a part of a checkpoint: %.900s", why.text);
}

void lf_ckpt_receipt_fini(struct lf_ckpt_receipt *r)
{
    for (size_t i = 0; i < r->n_files; i++)
        free(r->files[i].path);
    free(r->files);
    free(r->dir);
    lf_ckpt_meta_fini(&r->meta);
    *r = (struct lf_ckpt_receipt){0};
}
