/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-tokenize --show-shards: what the shards hold in all, and some of their documents.
 */
#include "config.h"

#include "stages/tokenize_show.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/base/sys.h"
#include "engine/model/same_tokenizer.h"
#include "engine/text/corpus/lengths.h"

#define SITE_SHOW   0x5a0c0001u
#define JSON_SCHEMA 1

struct show {
    const tok_show *o;
    char *dir, *tokenizer; /* owned; NULL: ids alone */
    lf_tokenizer *tok;
    lf_shardset *set;
    const lf_shard_info *info;
    uint64_t n; /* samples that there are */
    uint64_t *chosen;
    size_t n_chosen;
    uint64_t trained, empty;
    struct lf_hist lengths;
};

/* ---- one document ---- */

void lf_tok_shown_fini(tok_shown *d)
{
    free(d->ids);
    free(d->is_trained);
    free(d->begins);
    *d = (tok_shown){0};
}

static void mark_sequences(tok_shown *d, const lf_shard *f)
{
    const uint64_t *docs = lf_shard_doc_seqs(f), *seqs = lf_shard_seq_offsets(f);
    const uint64_t at = lf_shard_offsets(f)[d->index];
    for (uint64_t k = docs ? docs[d->index] + 1 : 1; docs && k < docs[d->index + 1]; k++)
        if (seqs[k] - at < d->n)
            d->begins[seqs[k] - at] = true;
}

static const lf_shard *file_of(const lf_shardset *s, uint64_t doc)
{
    const lf_shard *f;
    for (size_t i = 0; (f = lf_shardset_file(s, i)); i++) {
        uint64_t n = lf_shard_get_info(f)->n_docs;
        if (doc < n)
            return f;
        doc -= n;
    }
    return NULL;
}

int lf_tok_shown_read(tok_shown *d, const lf_shardset *s, uint64_t doc, lf_err *err)
{
    *d = (tok_shown){.n = lf_shardset_doc_len(s, doc)};
    lf_shardset_locate(s, doc, &d->file, &d->index);
    d->ids = lf_calloc(d->n + 1, sizeof *d->ids, err);
    d->is_trained = d->ids ? lf_calloc(d->n + 1, sizeof *d->is_trained, err) : NULL;
    d->begins = d->is_trained ? lf_calloc(d->n + 1, sizeof *d->begins, err) : NULL;
    int rc = d->begins ? lf_shardset_read(s, doc, 0, (size_t)d->n, d->ids, err) : LF_ENOMEM;
    if (rc < 0) {
        lf_tok_shown_fini(d);
        return rc;
    }
    for (uint64_t i = 1; i < d->n; i++)
        d->trained += d->is_trained[i] = lf_shardset_trained(s, doc, i);
    mark_sequences(d, file_of(s, doc));
    return 0;
}

/* ---- opening ---- */

/* The artifact is in dir, or in dir/shards. */
static int find_dir(struct show *s, const char *dir, lf_err *err)
{
    struct stat st;
    if (stat(dir, &st) != 0)
        return lf_fail_errno(err, "%s", dir);
    if (!S_ISDIR(st.st_mode))
        return lf_fail(err, LF_EINVAL,
                       "%s is a file; name the directory of the shards, which has a "
                       "manifest.json",
                       dir);
    char *here = lf_path_join(dir, LF_ARTIFACT_MANIFEST, err);
    char *below = here ? lf_path_join(dir, "shards", err) : NULL;
    char *there = below ? lf_path_join(below, LF_ARTIFACT_MANIFEST, err) : NULL;
    int rc = there ? 0 : LF_ENOMEM;
    if (rc == 0 && !lf_io_exists(here) && lf_io_exists(there)) {
        s->dir = below;
        below = NULL;
    } else if (rc == 0 && !(s->dir = lf_strdup(dir, err)))
        rc = LF_ENOMEM;
    free(here);
    free(below);
    free(there);
    return rc;
}

/* The shards may be named through a link, and their tokenizer lies where they do. */
static int tokenizer_beside(char **out, const char *dir, lf_err *err)
{
    char real[PATH_MAX];
    if (!realpath(dir, real))
        return lf_fail_errno(err, "%s", dir);
    char *last = strrchr(real, '/');
    last[last == real] = 0;
    return (*out = lf_path_join(real, "tokenizer", err)) ? 0 : LF_ENOMEM;
}

/* The tokenizer that was named, or the one that lf-tokenize puts beside its shards. */
static int find_tokenizer(struct show *s, const char *named, lf_err *err)
{
    char *beside = NULL;
    int rc = named ? 0 : tokenizer_beside(&beside, s->dir, err);
    if (rc == 0 && named && !(beside = lf_strdup(named, err)))
        rc = LF_ENOMEM;
    if (rc < 0)
        return rc;
    if (!named && !lf_io_exists(beside)) {
        free(beside);
        lf_log(1, "no tokenizer lies beside %s, so ids are shown; name it with --tokenizer",
               s->dir);
        return 0;
    }
    s->tokenizer = beside;
    if (!(s->tok = lf_tokenizer_load(beside, err)))
        return err && err->rc ? err->rc : LF_EFORMAT;
    return lf_same_tokenizer_made(s->dir, lf_tokenizer_sha256(s->tok), beside, err);
}

static int open_all(struct show *s, const char *dir, const char *tokenizer, lf_err *err)
{
    int rc = find_dir(s, dir, err);
    if (rc == 0)
        rc = lf_shardset_open(&s->set, s->dir, s->o->split, err);
    if (rc == 0)
        rc = find_tokenizer(s, tokenizer, err);
    if (rc < 0)
        return rc;
    s->info = lf_shardset_get_info(s->set);
    s->n = s->info->rows == LF_ROWS_PAIRS ? s->info->n_docs / 2 : s->info->n_docs;
    return 0;
}

static void measure(struct show *s)
{
    for (uint64_t d = 0; d < s->info->n_docs; d++) {
        uint64_t n = lf_shardset_doc_len(s->set, d);
        lf_hist_add(&s->lengths, n);
        s->empty += n == 0;
        if (n > 1)
            s->trained += lf_shardset_count_trained(s->set, d, 1, n - 1);
    }
}

/* ---- choosing ---- */

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int choose_named(struct show *s, lf_err *err)
{
    const lf_opt_list *l = &s->o->sample;
    for (size_t i = 0; i < l->n; i++) {
        int64_t k = -1;
        if (lf_parse_i64(&k, l->v[i], NULL) < 0 || k < 0 || (uint64_t)k >= s->n)
            return lf_fail(err, LF_EINVAL, "sample = %s: the split %s of %s has samples 0 to %lld",
                           l->v[i], s->o->split, s->dir, (long long)s->n - 1);
        s->chosen[s->n_chosen++] = (uint64_t)k;
    }
    return 0;
}

/* Different ones, in the order of the shards. */
static int choose(struct show *s, lf_err *err)
{
    size_t n =
        s->o->sample.n ? s->o->sample.n : (size_t)(s->o->samples < s->n ? s->o->samples : s->n);
    s->chosen = lf_calloc(n + 1, sizeof *s->chosen, err);
    if (!s->chosen)
        return LF_ENOMEM;
    if (s->o->sample.n)
        return choose_named(s, err);
    for (size_t i = 0; i < n; i++)
        s->chosen[s->n_chosen++] = lf_rng_permute(s->o->seed, SITE_SHOW, s->n, i);
    qsort(s->chosen, s->n_chosen, sizeof *s->chosen, by_number);
    return 0;
}

/* ---- for people ---- */

static double percent(uint64_t part, uint64_t all)
{
    return all ? 100 * (double)part / (double)all : 0;
}

/* A path, a name or JSON from outside, in one line. */
static void add_line(lf_buf *out, const char *s, size_t n)
{
    lf_buf one;
    lf_buf_init(&one);
    lf_buf_add_visible(&one, s, n);
    for (size_t i = 0; i < one.len; i++)
        lf_buf_addc(out, one.data[i] == '\n' || one.data[i] == '\t' ? '?' : one.data[i]);
    lf_buf_fini(&one);
}

static void add_eos(const struct show *s, lf_buf *out)
{
    const uint8_t *text = NULL;
    size_t n = 0;
    if (s->info->eos_id < 0) {
        lf_buf_adds(out, ", no end of document");
        return;
    }
    lf_buf_addf(out, ", end of document %lld", (long long)s->info->eos_id);
    if (s->tok && lf_tokenizer_text(s->tok, (uint32_t)s->info->eos_id, &text, &n)) {
        lf_buf_addc(out, ' ');
        lf_tok_escape(out, text, n, false);
    }
}

static int summary_text(const struct show *s, lf_buf *out, lf_err *err)
{
    const lf_shard_info *f = s->info;
    json_t *lengths = lf_hist_json(&s->lengths, "tokens");
    if (!lengths)
        return lf_fail(err, LF_ENOMEM, "no memory for the lengths");
    add_line(out, s->dir, strlen(s->dir));
    lf_buf_addf(out, ", split %s: %llu documents", s->o->split, (unsigned long long)f->n_docs);
    if (f->rows == LF_ROWS_PAIRS)
        lf_buf_addf(out, " in %llu pairs", (unsigned long long)s->n);
    if (f->rows != LF_ROWS_PLAIN && f->rows != LF_ROWS_PAIRS)
        lf_buf_addf(out, " (%s)", lf_rows_name(f->rows));
    lf_buf_addf(out, ", %llu tokens", (unsigned long long)f->n_tokens);
    if (f->rows != LF_ROWS_PROMPTS)
        lf_buf_addf(out, ", %llu of them trained (%.1f %%)", (unsigned long long)s->trained,
                    percent(s->trained, f->n_tokens));
    if (s->empty)
        lf_buf_addf(out, ", %llu documents are empty", (unsigned long long)s->empty);
    lf_buf_addf(out, "\nvocabulary of %lld, %.12s", (long long)f->vocab_size, f->tokenizer_sha256);
    if (s->tokenizer) {
        lf_buf_adds(out, " in ");
        add_line(out, s->tokenizer, strlen(s->tokenizer));
    }
    add_eos(s, out);
    lf_buf_adds(out, "\n");
    if (f->n_docs)
        lf_lengths_text(lengths, out);
    json_decref(lengths);
    return 0;
}

static bool colours(const struct show *s)
{
    return !s->o->json && lf_wants_colour(1);
}

/* What rows have beside their documents. */
static void more_text(const struct show *s, uint64_t k, lf_buf *out)
{
    size_t n = 0;
    if (s->info->rows == LF_ROWS_PAIRS && lf_shardset_has_margin(s->set))
        lf_buf_addf(out, ", margin %g", (double)lf_shardset_margin(s->set, k));
    if (s->info->rows == LF_ROWS_UNPAIRED)
        lf_buf_adds(out, lf_shardset_label(s->set, k) ? ", labelled good" : ", labelled bad");
    if (s->info->rows == LF_ROWS_PROMPTS) {
        const char *rest = lf_shardset_rest(s->set, k, &n);
        if (rest && n > 2) {
            lf_buf_adds(out, ", with ");
            add_line(out, rest, n);
        }
    }
}

static const char *role_of(const struct show *s, uint64_t i)
{
    return s->info->rows == LF_ROWS_PAIRS     ? (i % 2 ? "rejected" : "chosen")
           : s->info->rows == LF_ROWS_PROMPTS ? "prompt"
                                              : "document";
}

static const char *kind_name(enum lf_shard_picture_kind k)
{
    return k == LF_PICTURE_JPEG ? "JPEG" : k == LF_PICTURE_PNG ? "PNG" : "WebP";
}

static void picture_text(const struct show *s, uint64_t doc, uint64_t i, lf_buf *out)
{
    char bytes[32];
    lf_shard_picture p;
    lf_shardset_picture_get(s->set, doc, i, &p);
    lf_buf_addf(out,
                "  picture %llu: %s of %u x %u pixels, %s; %d tile%s of %d x %d patches, %u "
                "placeholders from token %u on\n",
                (unsigned long long)i + 1, kind_name(p.kind), p.w, p.h,
                lf_fmt_bytes(bytes, sizeof bytes, (double)p.n), p.tiles, p.tiles == 1 ? "" : "s",
                p.grid_w, p.grid_h, p.count, p.first);
}

static json_t *pictures_json(const struct show *s, uint64_t doc)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < lf_shardset_pictures(s->set, doc); i++) {
        lf_shard_picture p;
        char hex[LF_HASH_HEX];
        lf_shardset_picture_get(s->set, doc, i, &p);
        lf_hash_hex(hex, p.sha256);
        json_array_append_new(list, json_pack("{s:s,s:I,s:I,s:I,s:i,s:i,s:i,s:I,s:I,s:s}", "format",
                                              kind_name(p.kind), "width", (json_int_t)p.w, "height",
                                              (json_int_t)p.h, "bytes", (json_int_t)p.n, "tiles",
                                              p.tiles, "grid_h", p.grid_h, "grid_w", p.grid_w,
                                              "first", (json_int_t)p.first, "placeholders",
                                              (json_int_t)p.count, "sha256", hex));
    }
    return list;
}

static int document_text(const struct show *s, uint64_t doc, lf_buf *out, lf_err *err)
{
    tok_shown d;
    const tok_look look = {.tok = s->tok,
                           .colour = colours(s),
                           .ids = s->o->ids,
                           .tokens = s->o->tokens,
                           .image_token = s->info->processor ? (int32_t)s->info->image_token : -1};
    int rc = lf_tok_shown_read(&d, s->set, doc, err);
    if (rc < 0)
        return rc;
    if (s->info->rows == LF_ROWS_PAIRS)
        lf_buf_addf(out, "%s: ", role_of(s, doc));
    lf_buf_addf(out, "%llu tokens", (unsigned long long)d.n);
    if (s->info->rows != LF_ROWS_PROMPTS)
        lf_buf_addf(out, ", %llu trained", (unsigned long long)d.trained);
    lf_buf_adds(out, "\n");
    for (uint64_t i = 0; i < lf_shardset_pictures(s->set, doc); i++)
        picture_text(s, doc, i, out);
    lf_tok_shown_text(out, &d, &look);
    lf_tok_shown_fini(&d);
    return 0;
}

static int sample_text(const struct show *s, uint64_t k, lf_buf *out, lf_err *err)
{
    bool pair = s->info->rows == LF_ROWS_PAIRS;
    const char *file;
    uint64_t index, doc = pair ? 2 * k : k;
    lf_shardset_locate(s->set, doc, &file, &index);
    lf_buf_addf(out, "\n--- %s %llu, %s:%llu", pair ? "pair" : role_of(s, doc),
                (unsigned long long)k, file, (unsigned long long)index);
    more_text(s, k, out);
    lf_buf_adds(out, pair ? "\n" : ": ");
    int rc = document_text(s, doc, out, err);
    return rc == 0 && pair ? document_text(s, doc + 1, out, err) : rc;
}

static int make_text(const struct show *s, lf_buf *out, lf_err *err)
{
    int rc = summary_text(s, out, err);
    if (rc == 0 && s->n_chosen)
        lf_buf_addf(out, "\ntokens are divided by \xC2\xB7; %s\n",
                    colours(s) ? "trained ones are green" : "trained ones stand between {+ and +}");
    for (size_t i = 0; rc == 0 && i < s->n_chosen; i++)
        rc = sample_text(s, s->chosen[i], out, err);
    return rc;
}

/* ---- as JSON ---- */

/* A token's text; a part of a character is U+FFFD, which JSON can hold. */
static json_t *token_json(const struct show *s, int32_t id)
{
    const uint8_t *bytes = NULL;
    size_t n = 0;
    lf_buf b;
    bool known = lf_tokenizer_is_special(s->tok, (uint32_t)id)
                     ? lf_tokenizer_text(s->tok, (uint32_t)id, &bytes, &n)
                     : lf_tokenizer_token(s->tok, (uint32_t)id, &bytes, &n);
    if (!known)
        return json_null();
    lf_buf_init(&b);
    lf_buf_add_json(&b, (const char *)bytes, n);
    json_t *j = json_loadb(b.data, b.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    lf_buf_fini(&b);
    return j;
}

static int document_json(const struct show *s, uint64_t doc, json_t *list, lf_err *err)
{
    tok_shown d;
    int rc = lf_tok_shown_read(&d, s->set, doc, err);
    if (rc < 0)
        return rc;
    json_t *ids = json_array(), *text = json_array(), *mask = json_array(), *begins = json_array();
    for (uint64_t i = 0; i < d.n; i++) {
        json_array_append_new(ids, json_integer(d.ids[i]));
        json_array_append_new(mask, json_boolean(d.is_trained[i]));
        if (s->tok)
            json_array_append_new(text, token_json(s, d.ids[i]));
        if (d.begins[i])
            json_array_append_new(begins, json_integer((json_int_t)i));
    }
    json_t *o = json_pack("{s:s,s:s,s:I,s:I,s:I,s:o,s:o,s:o}", "role", role_of(s, doc), "file",
                          d.file, "index", (json_int_t)d.index, "tokens", (json_int_t)d.n,
                          "trained", (json_int_t)d.trained, "ids", ids, "mask", mask, "text", text);
    if (o && lf_shardset_pictures(s->set, doc))
        json_object_set_new(o, "pictures", pictures_json(s, doc));
    if (o && json_array_size(begins))
        json_object_set(o, "begins", begins);
    json_decref(begins);
    lf_tok_shown_fini(&d);
    return json_array_append_new(list, o) == 0
               ? 0
               : lf_fail(err, LF_ENOMEM, "no memory for the document");
}

static int sample_json(const struct show *s, uint64_t k, json_t *list, lf_err *err)
{
    bool pair = s->info->rows == LF_ROWS_PAIRS;
    json_t *docs = json_array(),
           *o = json_pack("{s:I,s:o}", "sample", (json_int_t)k, "documents", docs);
    int rc = document_json(s, pair ? 2 * k : k, docs, err);
    if (rc == 0 && pair)
        rc = document_json(s, 2 * k + 1, docs, err);
    if (pair && lf_shardset_has_margin(s->set))
        json_object_set_new(o, "margin", json_real((double)lf_shardset_margin(s->set, k)));
    if (s->info->rows == LF_ROWS_UNPAIRED)
        json_object_set_new(o, "label", json_boolean(lf_shardset_label(s->set, k)));
    if (rc == 0 && s->info->rows == LF_ROWS_PROMPTS) {
        size_t n = 0;
        const char *rest = lf_shardset_rest(s->set, k, &n);
        json_t *columns = rest && n ? json_loadb(rest, n, JSON_ALLOW_NUL, NULL) : NULL;
        json_object_set_new(o, "rest", columns ? columns : json_object());
    }
    json_array_append_new(list, o);
    return rc;
}

static int make_json(const struct show *s, lf_buf *out, lf_err *err)
{
    const lf_shard_info *f = s->info;
    json_t *list = json_array();
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->n_chosen; i++)
        rc = sample_json(s, s->chosen[i], list, err);
    json_t *o = json_pack(
        "{s:i,s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:o,s:{s:I,s:I,s:s,s:s*},s:o}", "schema", JSON_SCHEMA,
        "shards", s->dir, "split", s->o->split, "rows", lf_rows_name(f->rows), "documents",
        (json_int_t)f->n_docs, "empty", (json_int_t)s->empty, "tokens", (json_int_t)f->n_tokens,
        "trained", (json_int_t)s->trained, "lengths", lf_hist_json(&s->lengths, "tokens"),
        "vocabulary", "size", (json_int_t)f->vocab_size, "eos_id", (json_int_t)f->eos_id, "sha256",
        f->tokenizer_sha256, "path", s->tokenizer, "samples", list);
    char *text = rc == 0 && o ? json_dumps(o, JSON_COMPACT) : NULL;
    if (rc == 0 && !text)
        rc = lf_fail(err, LF_EFORMAT, "%s: what it holds cannot be written as JSON", s->dir);
    lf_buf_adds(out, text ? text : "");
    lf_buf_adds(out, "\n");
    free(text);
    json_decref(o);
    return rc;
}

int lf_tok_show(const tok_show *o, const char *dir, const char *tokenizer, lf_err *err)
{
    struct show s = {.o = o};
    lf_buf out;
    lf_buf_init(&out);
    int rc = open_all(&s, dir, tokenizer, err);
    if (rc == 0)
        rc = choose(&s, err);
    if (rc == 0) {
        measure(&s);
        rc = o->json ? make_json(&s, &out, err) : make_text(&s, &out, err);
    }
    if (rc == 0)
        rc = lf_buf_check(&out, err);
    if (rc == 0 && (fwrite(out.data, 1, out.len, stdout) != out.len || fflush(stdout) != 0))
        rc = lf_fail_errno(err, "cannot write to standard output");
    lf_buf_fini(&out);
    lf_shardset_close(s.set);
    lf_tokenizer_destroy(s.tok);
    free(s.chosen);
    free(s.tokenizer);
    free(s.dir);
    return rc;
}
