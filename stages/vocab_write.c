/* SPDX-License-Identifier: Apache-2.0
 *
 * What lf-vocab reads and writes: the old tokenizer's files; OUT/tokenizer (with growth.json and
 * what lay beside the old one), OUT/checkpoint, OUT/report.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "stages/vocab_priv.h"

#define SIDE_MAX ((size_t)64 << 20)

#define TEMPLATE "chat_template.jinja" /* what lies beside the old one and makes no ids */

static bool is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int lf_vocab_present(const vocab *v, const char *name, lf_err *err)
{
    enum lf_artifact_state state;
    lf_err why = LF_ERR_INIT;
    lf_artifact a = {0};
    char *dir = lf_path_join(v->out, name, err),
         *manifest = dir ? lf_path_join(dir, LF_ARTIFACT_MANIFEST, err) : NULL;
    int rc = manifest ? lf_io_tidy(manifest, err) : LF_ENOMEM; /* out is this process's alone */
    if (rc == 0)
        rc = lf_artifact_state(&state, dir, &why);
    if (rc != 0 && why.rc)
        rc = lf_fail(err, rc, "%s", why.text);
    if (rc == 0 && state == LF_ARTIFACT_PRESENT) {
        const char *made = NULL;
        char *text = NULL;
        rc = lf_artifact_load(&a, dir, NULL, err);
        if (rc == 0 && strcmp(a.kind, "checkpoint") != 0)
            made = json_string_value(json_object_get(a.meta, "made_from"));
        /* A checkpoint's manifest is the store's: it follows the tokenizer beside it, which has
         * been checked. */
        if (rc == 0 && strcmp(a.kind, "checkpoint") != 0 &&
            (!made || strcmp(made, v->made_from) != 0))
            rc = lf_fail(err, LF_EEXIST,
                         "%s was made with other options or inputs; use another out", dir);
        rc = rc == 0 ? 1 : rc;
        free(text);
    } else if (rc == 0 && state != LF_ARTIFACT_ABSENT) {
        rc = lf_fail(err, LF_EFORMAT, "%s is damaged (%s); remove it or use another out", dir,
                     why.text);
    }
    lf_artifact_fini(&a);
    free(manifest);
    free(dir);
    return rc;
}

/* Write one file of an artifact and list it. */
static int put(lf_artifact *a, const char *dir, const char *name, const lf_buf *text, lf_err *err)
{
    char *file = lf_path_join(dir, name, err);
    int rc =
        file ? lf_io_write_file(file, text->data, text->len, LF_ARTIFACT_MODE, err) : LF_ENOMEM;
    free(file);
    return rc == 0 ? lf_artifact_add_hashed(a, dir, name, err) : rc;
}

/* {"old_size": n, "tokens": [{"id", "text", "old": [...]}, ...]}: a token a line. */
static int write_growth(const vocab *v, lf_buf *out, lf_err *err)
{
    size_t n;
    const lf_grown *t = lf_grower_tokens(v->g, &n);
    lf_buf_addf(out, "{\"old_size\":%zu,\"new_tokens\":%zu,\"tokens\":[", lf_grower_old_size(v->g),
                n);
    for (size_t i = 0; i < n; i++) {
        lf_buf_addf(out, "%s\n{\"id\":%zu,\"text\":", i ? "," : "", lf_grower_old_size(v->g) + i);
        lf_buf_add_json(out, t[i].text, strlen(t[i].text));
        lf_buf_adds(out, ",\"old\":[");
        for (size_t k = 0; k < t[i].n_old; k++)
            lf_buf_addf(out, "%s%u", k ? "," : "", (unsigned)t[i].old[k]);
        lf_buf_adds(out, "]}");
    }
    lf_buf_adds(out, "]}\n");
    return lf_buf_check(out, err);
}

/* The files that make a tokenizer: ids in those beside the main one are old ones, so they stay
 * true. */
static int put_files(const vocab *v, lf_artifact *a, const char *dir, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < v->files.n && rc == 0; i++) {
        const char *main = v->files.form == LF_TOK_FORM_JSON ? "tokenizer.json" : "tokenizer.model";
        rc = put(a, dir, i == 0 ? main : v->files.v[i].name, &v->files.v[i].data, err);
    }
    return rc;
}

static int put_template(const vocab *v, lf_artifact *a, const char *dir, lf_err *err)
{
    lf_buf text;
    lf_buf_init(&text);
    char *from = is_dir(v->base) ? lf_path_join(v->base, TEMPLATE, err) : NULL;
    int rc = 0;
    if (from && lf_io_exists(from)) {
        rc = lf_io_read_file(from, SIDE_MAX, &text, err);
        if (rc == 0)
            rc = put(a, dir, TEMPLATE, &text, err);
    }
    free(from);
    lf_buf_fini(&text);
    return rc;
}

int lf_vocab_put_tokenizer(const vocab *v, lf_err *err)
{
    lf_artifact a = {0};
    lf_buf growth;
    lf_buf_init(&growth);
    char *dir = lf_path_join(v->out, "tokenizer", err);
    int rc = dir ? lf_io_mkdirs(dir, 0750, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_artifact_init(&a, "tokenizer", err);
    if (rc == 0)
        rc = put_files(v, &a, dir, err);
    if (rc == 0)
        rc = write_growth(v, &growth, err);
    if (rc == 0)
        rc = put(&a, dir, "growth.json", &growth, err);
    if (rc == 0)
        rc = put_template(v, &a, dir, err);
    if (rc == 0) {
        json_object_set_new(a.meta, "made_from", json_string(v->made_from));
        json_object_set_new(a.meta, "trained", json_true());
        json_object_set_new(a.meta, "grown_from",
                            json_string(lf_tokenizer_sha256(lf_grower_base(v->g))));
        json_object_set_new(a.meta, "vocab_size", json_integer(lf_tokenizer_vocab_size(v->grown)));
        json_object_set_new(a.meta, "eos_id", json_integer(lf_tokenizer_eos(v->grown)));
        json_object_set_new(a.meta, "sha256", json_string(lf_tokenizer_sha256(v->grown)));
        rc = lf_artifact_publish(&a, dir, err);
    }
    lf_artifact_fini(&a);
    lf_buf_fini(&growth);
    free(dir);
    return rc;
}

static json_t *grown_state(const vocab *v, const lf_ckpt *c, const lf_rows_plan *p)
{
    static const char *const inits[] = {"subtokens", "mean", "gaussian", "last"};
    char hex[LF_HASH_HEX];
    lf_hash_hex(hex, lf_ckpt_identity(c));
    return json_pack("{s:s,s:I,s:I,s:I,s:s,s:s}", "from", hex, "old_tokens", (json_int_t)p->used,
                     "new_tokens", (json_int_t)p->n_new, "rows", (json_int_t)p->rows, "init",
                     inits[p->init], "tokenizer_sha256", lf_tokenizer_sha256(v->grown));
}

/* Old ids of the new tokens in the form of the plan. */
static int parts_of(const vocab *v, lf_rows_plan *p, const uint32_t ***old, size_t **n_old,
                    lf_err *err)
{
    size_t n;
    const lf_grown *t = lf_grower_tokens(v->g, &n);
    *old = lf_calloc(n ? n : 1, sizeof(**old), err);
    *n_old = lf_calloc(n ? n : 1, sizeof(**n_old), err);
    if (!*old || !*n_old)
        return LF_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        (*old)[i] = t[i].old;
        (*n_old)[i] = t[i].n_old;
    }
    p->used = (int64_t)lf_grower_old_size(v->g);
    p->n_new = (int64_t)n;
    p->old = *old;
    p->n_old = *n_old;
    return 0;
}

int lf_vocab_put_checkpoint(const vocab *v, lf_err *err)
{
    lf_rows_plan p = {.init = v->init, .seed = v->seed};
    lf_model_config mc;
    lf_ckpt *c = NULL;
    lf_ckpt_result done = {.bytes = 0};
    const uint32_t **old = NULL;
    size_t *n_old = NULL;
    json_t *grown = NULL;
    char *dir = lf_path_join(v->out, "checkpoint", err);
    int rc = dir ? lf_ckpt_open(&c, v->checkpoint, v->threads, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_weights_config(&mc, c, err);
    if (rc == 0) {
        rc = parts_of(v, &p, &old, &n_old, err);
    }
    if (rc == 0) {
        p.std = mc.init_std;
        p.rows = lf_rows_padded(p.used, p.n_new, mc.vocab, v->pad_to);
        grown = grown_state(v, c, &p);
        rc = grown ? lf_rows_grow(dir, c, &p, grown, v->threads, &done, err) : LF_ENOMEM;
    }
    if (rc == 0)
        lf_log(2, "checkpoint: %lld rows, %lld of them new tokens, %lld padding", (long long)p.rows,
               (long long)p.n_new, (long long)(p.rows - p.used - p.n_new));
    json_decref(grown);
    free(old);
    free(n_old);
    lf_ckpt_close(c);
    free(dir);
    return rc;
}

/* ---- report ---- */

static json_t *measure_json(const vocab_measure *m)
{
    double b = (double)m->bytes;
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:f,s:f,s:f}", "documents", (json_int_t)m->docs,
                     "changed", (json_int_t)m->changed, "bytes", (json_int_t)m->bytes,
                     "tokens_before", (json_int_t)m->before, "tokens_after", (json_int_t)m->after,
                     "tokens_per_byte_before", m->bytes ? (double)m->before / b : 0.0,
                     "tokens_per_byte_after", m->bytes ? (double)m->after / b : 0.0, "ratio",
                     m->before ? (double)m->after / (double)m->before : 1.0);
}

static void say(const char *what, const vocab_measure *m)
{
    if (m->bytes == 0)
        return;
    lf_log(2,
           "%s: %.4f tokens a byte before, %.4f after (%.1f %%), %llu of %llu documents encoded as "
           "before",
           what, (double)m->before / (double)m->bytes, (double)m->after / (double)m->bytes,
           100.0 * (double)m->after / (double)(m->before ? m->before : 1),
           (unsigned long long)(m->docs - m->changed), (unsigned long long)m->docs);
}

int lf_vocab_put_report(const vocab *v, const vocab_measure *fresh, const vocab_measure *old,
                        lf_err *err)
{
    lf_artifact a = {0};
    lf_buf text;
    lf_buf_init(&text);
    size_t n;
    (void)lf_grower_tokens(v->g, &n);
    json_t *o = json_pack("{s:I,s:I,s:I,s:b}", "old_size", (json_int_t)lf_grower_old_size(v->g),
                          "new_tokens", (json_int_t)n, "donor_tokens_left",
                          (json_int_t)lf_grower_left(v->g), "held_out", v->held_out > 0);
    char *dir = lf_path_join(v->out, "report", err), *dump = NULL;
    int rc = o && dir ? lf_io_mkdirs(dir, 0750, err) : LF_ENOMEM;
    if (rc == 0 && fresh->docs)
        json_object_set_new(o, "new_text", measure_json(fresh));
    if (rc == 0 && old->docs)
        json_object_set_new(o, "old_text", measure_json(old));
    if (rc == 0)
        rc = (dump = json_dumps(o, JSON_COMPACT))
                 ? 0
                 : lf_fail(err, LF_ENOMEM, "no memory for the report");
    if (rc == 0) {
        lf_buf_addf(&text, "%s\n", dump);
        rc = lf_artifact_init(&a, "report", err);
    }
    if (rc == 0)
        rc = put(&a, dir, "report.json", &text, err);
    if (rc == 0) {
        json_object_set_new(a.meta, "made_from", json_string(v->made_from));
        rc = lf_artifact_publish(&a, dir, err);
    }
    say(v->held_out > 0 ? "new text, held out" : "new text", fresh);
    say("old text", old);
    free(dump);
    json_decref(o);
    lf_artifact_fini(&a);
    lf_buf_fini(&text);
    free(dir);
    return rc;
}
