/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-tokenize: text in, shards of token ids and a tokenizer out. Options and wiring; the work is in
 * the other tokenize_*.c. Killed at any point, a later run with the same out, or with resume_from,
 * goes on after the last finished group of shards and ends with the same bytes.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/text/corpus/corpus_kind.h"
#include "stages/opts.h"
#include "stages/stage.h"
#include "stages/tokenize_priv.h"

/* ---- options ---- */

static const char **strings_of(const lf_optset *o, const char *name, size_t *n, size_t room,
                               lf_err *err)
{
    *n = lf_optset_count(o, name);
    const char **v = lf_calloc(*n + room, sizeof(*v), err);
    for (size_t i = 0; v && i < *n; i++)
        v[i] = lf_optset_str_at(o, name, i);
    return v;
}

static int read_corpus(tokenize *s, const lf_optset *o, lf_err *err)
{
    lf_corpus_args *c = &s->corpus;
    s->inputs = strings_of(o, "inputs", &c->n_inputs, 1, err);
    if (!s->inputs)
        return LF_ENOMEM;
    c->inputs = s->inputs;
    c->format = (enum lf_corpus_format)lf_optset_choice(o, "input_format");
    c->rows_only = s->shape.shape != LF_SHAPE_TEXT && s->shape.shape != LF_SHAPE_AUTO ? "shape"
                   : lf_optset_is_set(o, "text_field")                                ? "text_field"
                                                                                      : NULL;
    c->arrays = s->shape.shape != LF_SHAPE_TEXT;
    c->strict = lf_optset_choice(o, "invalid_utf8") == 1;
    c->any_bytes = !c->strict && lf_optset_is_set(o, "invalid_utf8");
    if (c->format != LF_CORPUS_TEXT && s->shape.shape == LF_SHAPE_TEXT)
        c->text_field = lf_optset_str(o, "text_field");
    if (c->format != LF_CORPUS_JSONL) {
        c->split = (enum lf_corpus_split)lf_optset_choice(o, "doc_split");
        if (c->split == LF_CORPUS_SEPARATOR)
            c->separator = lf_optset_str(o, "doc_separator");
        if (c->split == LF_CORPUS_SIZE)
            c->doc_bytes = (size_t)lf_optset_int(o, "doc_bytes");
    }
    c->max_doc_bytes = (size_t)lf_optset_int(o, "max_doc_bytes");
    s->energon = (lf_energon_opts){lf_optset_str(o, "split_part"),
                                   (enum lf_energon_loader)lf_optset_choice(o, "sample_loader")};
    c->energon = &s->energon;
    if (c->split == LF_CORPUS_SEPARATOR && !c->separator)
        return lf_fail(err, LF_EINVAL, "doc_split = separator needs doc_separator");
    return 0;
}

/* What becomes of rows that are more than a text. */
static void read_chat(tokenize *s, const lf_optset *o)
{
    lf_rowdocs_opts *r = &s->rows;
    s->chat_file = lf_optset_str(o, "chat_template");
    s->chat_opts = (lf_chat_opts){.name = lf_optset_str(o, "chat_name"),
                                  .vars = lf_optset_str(o, "chat_vars"),
                                  .now = lf_optset_int(o, "chat_time")};
    r->shape = &s->shape;
    r->train = (lf_chat_train){.mask = (enum lf_chat_mask)lf_optset_choice(o, "mask"),
                               .last_only = lf_optset_choice(o, "train_turns") == 1,
                               .no_end = !lf_optset_bool(o, "train_end")};
    r->any_order = lf_optset_choice(o, "turn_order") == 1;
    r->train_prompt = lf_optset_bool(o, "train_on_prompt");
    s->drop_non_prefix = lf_optset_choice(o, "non_prefix") == 1;
}

static int read_shape(tokenize *s, const lf_optset *o, lf_err *err)
{
    lf_shape_opts *h = &s->shape;
    h->shape = (enum lf_shape)lf_optset_choice(o, "shape");
    s->doctor = lf_optset_bool(o, "doctor");
    /* The doctor looks at what is there; unless told otherwise it knows every shape and minds no
     * other column. */
    if (s->doctor) {
        s->json = lf_optset_bool(o, "json");
        s->doctor_memory = (size_t)lf_optset_int(o, "doctor_memory");
        s->seq_length = (uint64_t)lf_optset_int(o, "seq_length");
        h->ignore_unmapped = true;
        if (!lf_optset_is_set(o, "shape") && !lf_optset_is_set(o, "text_field"))
            h->shape = LF_SHAPE_AUTO;
    }
    h->strict = lf_optset_choice(o, "invalid_utf8") == 1;
    if (h->shape == LF_SHAPE_TEXT)
        return 0;
    read_chat(s, o);
    if (!s->doctor || lf_optset_is_set(o, "unmapped"))
        h->ignore_unmapped = lf_optset_choice(o, "unmapped") == 1;
    s->columns = strings_of(o, "columns", &h->n_columns, 1, err);
    s->roles = s->columns ? strings_of(o, "roles", &h->n_roles, 1, err) : NULL;
    if (!s->roles)
        return LF_ENOMEM;
    h->columns = s->columns;
    h->roles = s->roles;
    return lf_shape_check(h, err);
}

/* Which columns of parquet are read: those that mean something where others are passed over, else
 * all, so that one that means nothing is seen. */
static int choose_columns(tokenize *s, lf_err *err)
{
    size_t n = 1;
    const lf_shape_opts *h = &s->shape;
    bool text = h->shape == LF_SHAPE_TEXT, pictures = lf_optset_is_set(s->o, "processor");
    const char *const *known = text ? &s->corpus.text_field : lf_shape_known(&n);
    if (pictures) {
        s->corpus.samples = true;
        s->corpus.ignore_others = h->ignore_unmapped;
        s->binary[0] = lf_shape_column(h, "image");
        s->binary[1] = lf_shape_column(h, "images");
        s->corpus.binary = s->binary;
        s->corpus.n_binary = 2;
    }
    if (!text && (!h->ignore_unmapped || h->shape == LF_SHAPE_PROMPT))
        return 0;
    if (!(s->read_columns = lf_calloc(n, sizeof(*s->read_columns), err)))
        return LF_ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (text || pictures || strncmp(known[i], "image", 5) != 0)
            s->read_columns[s->corpus.n_columns++] = text ? known[i] : lf_shape_column(h, known[i]);
    s->corpus.columns = s->read_columns;
    return 0;
}

static int read_tokenizer(tokenize *s, const lf_optset *o, lf_err *err)
{
    s->tokenizer_path = lf_optset_str(o, "tokenizer");
    if (s->tokenizer_path && strcmp(s->tokenizer_path, "train") == 0)
        s->tokenizer_path = NULL;
    if (s->seq_length && !s->tokenizer_path)
        return lf_fail(err, LF_EINVAL, "seq_length counts tokens: give tokenizer, too");
    if (s->tokenizer_path || s->doctor)
        return 0;
    if (s->shape.shape != LF_SHAPE_TEXT)
        return lf_fail(err, LF_EINVAL, "shape = %s needs a tokenizer; one is trained on text only",
                       lf_shape_name(s->shape.shape));
    lf_bpe_train_args *t = &s->train;
    s->specials = strings_of(o, "special_tokens", &t->n_specials, 1, err);
    if (!s->specials)
        return LF_ENOMEM;
    t->specials = s->specials;
    t->vocab_size = (size_t)lf_optset_int(o, "vocab_size");
    s->vocab_type = lf_optset_choice(o, "vocab_type");
    if (s->vocab_type == VOCAB_BYTE_BPE) {
        t->pattern = (enum lf_bpe_pattern)lf_optset_choice(o, "pattern");
        t->normalizer = (enum lf_bpe_normalizer)lf_optset_choice(o, "normalizer");
    } else {
        s->coverage = lf_optset_float(o, "character_coverage");
        if (!lf_optset_is_set(o, "special_tokens"))
            t->n_specials = 0; /* </s> ends documents */
    }
    if (s->vocab_type != VOCAB_UNIGRAM)
        t->min_frequency = (uint64_t)lf_optset_int(o, "min_frequency");
    s->train_bytes = lf_optset_int(o, "train_bytes");
    if (t->vocab_size < 256 + t->n_specials)
        return lf_fail(err, LF_EINVAL,
                       "vocab_size = %zu has no room for 256 bytes and %zu special tokens",
                       t->vocab_size, t->n_specials);
    return 0;
}

/* SHA-256 over every identity option in effect, except names of files: those are told by their
 * contents. */
static int hash_options(tokenize *s, const lf_optset *o, lf_err *err)
{
    lf_buf b;
    uint8_t digest[LF_HASH_BYTES];
    lf_buf_init(&b);
    int rc = 0;
    for (size_t i = 0; i < lf_tokenize_opts.n_opts && rc == 0; i++) {
        const lf_opt *op = &lf_tokenize_opts.opts[i];
        if (op->cls != LF_OPT_IDENTITY || op->type == LF_OPT_PATH ||
            (!op->def && !lf_optset_is_set(o, op->name)))
            continue;
        lf_buf_addf(&b, "%s=", op->name);
        rc = lf_optset_canonical(o, op->name, &b, err);
        lf_buf_addc(&b, '\n');
    }
    lf_buf_addf(&b, "trained=%d\n", !s->tokenizer_path);
    lf_buf_addf(&b, "spec_version=%d\n", lf_tokenize_opts.spec_version);
    if (s->media.on)
        lf_buf_addf(&b, "media=%s\n%s\n", s->media.image_processor.data, s->media.settings.data);
    if (s->chat_file) {
        lf_buf_adds(&b, "chat_template=");
        if (rc == 0)
            rc = lf_io_read_file(s->chat_file, (size_t)4 << 20, &b, err);
    }
    if (rc == 0)
        rc = lf_buf_check(&b, err);
    if (rc == 0)
        rc = lf_hash_buf(digest, b.data, b.len, err);
    if (rc == 0)
        lf_hash_hex(s->options_sha, digest);
    lf_buf_fini(&b);
    return rc;
}

static void destroy(void *self)
{
    tokenize *s = self;
    if (!s)
        return;
    free(s->inputs);
    free(s->specials);
    free(s->columns);
    free(s->read_columns);
    free(s->roles);
    free(s->dirs);
    lf_tokenize_media_fini(&s->media);
    free(s);
}

/* Only the rows that it reads may be given, and one word: the directory. */
static int read_show(tokenize *s, const lf_optset *o, lf_err *err)
{
    s->show = (tok_show){.on = true,
                         .split = lf_optset_str(o, "split"),
                         .seed = (uint64_t)lf_optset_int(o, "seed"),
                         .sample = lf_optset_list(o, "sample"),
                         .tokens = (uint64_t)lf_optset_int(o, "show_tokens"),
                         .ids = lf_optset_bool(o, "ids"),
                         .json = lf_optset_bool(o, "json")};
    if (s->show.sample.n == 0)
        s->show.samples = (uint64_t)lf_optset_int(o, "samples");
    s->tokenizer_path = lf_optset_str(o, "tokenizer");
    s->inputs = strings_of(o, "inputs", &s->corpus.n_inputs, 1, err);
    if (!s->inputs)
        return LF_ENOMEM;
    return s->corpus.n_inputs == 1
               ? 0
               : lf_fail(err, LF_EINVAL, "show_shards looks at one directory, %zu were given",
                         s->corpus.n_inputs);
}

static int read_media(tokenize *s, const lf_optset *o, lf_err *err)
{
    if (lf_optset_is_set(o, "processor") && s->shape.shape == LF_SHAPE_TEXT)
        return lf_fail(err, LF_EINVAL,
                       "processor is for rows with pictures; set shape to what they are (auto)");
    return lf_tokenize_media_setup(
        &s->media,
        &(struct tok_media_opts){.processor = lf_optset_str(o, "processor"),
                                 .tokenizer = s->tokenizer_path,
                                 .dir = lf_optset_str(o, "media_dir"),
                                 .header_only = lf_optset_choice(o, "picture_check") == 1,
                                 .placeholders = lf_optset_str(o, "placeholders")},
        err);
}

/* Lines of GLUE's files are rows of this shape. */
static int read_glue(tokenize *s, const lf_optset *o, lf_err *err)
{
    int rc = lf_glue_set(&s->glue, lf_optset_str(o, "glue"), lf_optset_str(o, "glue_between"), err);
    if (rc != 0 || !s->glue.task)
        return rc;
    if (s->shape.shape != LF_SHAPE_PROMPT)
        return lf_fail(err, LF_EINVAL, "glue makes rows of prompts: say shape = prompt");
    if (s->media.on || s->corpus.class_mark)
        return lf_fail(err, LF_EINVAL, "glue is of texts, without pictures");
    s->corpus.format = LF_CORPUS_TEXT;
    s->corpus.split = LF_CORPUS_LINE;
    s->corpus.rows_only = NULL;
    s->corpus.arrays = false;
    s->corpus.glue = &s->glue;
    return 0;
}

/* Pictures in folders of their classes are rows of this shape. */
static int read_classes(tokenize *s, lf_err *err)
{
    if (!s->media.on)
        return lf_fail(err, LF_EINVAL, "class_folders is of pictures: give processor");
    if (s->shape.shape != LF_SHAPE_PROMPT && s->shape.shape != LF_SHAPE_AUTO)
        return lf_fail(err, LF_EINVAL, "class_folders makes rows of prompts: say shape = prompt");
    if (s->media.dir)
        return lf_fail(err, LF_EINVAL,
                       "media_dir is where rows begin paths of pictures, and with class_folders "
                       "these lie below the input; leave it out");
    if (s->corpus.n_inputs != 1)
        return lf_fail(
            err, LF_EINVAL,
            "class_folders reads one folder, which has all classes; there are %zu inputs",
            s->corpus.n_inputs);
    s->corpus.class_mark = lf_expand_mark(&s->media.expand);
    s->corpus.class_caption = lf_optset_str(s->o, "class_caption");
    return s->corpus.class_caption && !strstr(s->corpus.class_caption, "{}")
               ? lf_fail(err, LF_EINVAL,
                         "class_caption = %.80s has no {}, which the name of the class stands for",
                         s->corpus.class_caption)
               : 0;
}

static int setup(void **self, lf_optset *o, lf_err *err)
{
    static const int dtype_bytes[] = {0, 2, 4};
    tokenize *s = lf_calloc(1, sizeof(*s), err);
    if (!s)
        return LF_ENOMEM;
    *self = s;
    s->o = o;
    if (lf_optset_bool(o, "show_shards"))
        return read_show(s, o, err);
    int rc = read_shape(s, o, err);
    if (rc == 0)
        rc = read_corpus(s, o, err);
    if (rc == 0)
        rc = choose_columns(s, err);
    if (rc == 0)
        rc = read_tokenizer(s, o, err);
    if (rc == 0)
        rc = read_media(s, o, err);
    if (rc == 0 && lf_optset_bool(o, "class_folders"))
        rc = read_classes(s, err);
    else if (rc == 0 && lf_optset_str(o, "class_caption"))
        rc = lf_fail(err, LF_EINVAL, "class_caption is of class_folders: say class_folders = yes");
    if (rc == 0)
        rc = read_glue(s, o, err);
    if (rc != 0)
        return rc;
    s->append_eos = lf_optset_bool(o, "append_eos");
    if (s->append_eos)
        s->eos_token = lf_optset_str(o, "eos_token");
    s->flags = (lf_optset_bool(o, "add_template") ? LF_TOK_TEMPLATE : 0u) |
               (lf_optset_choice(o, "special_in_text") == 0 ? LF_TOK_SPECIAL_TEXT : 0u) |
               (s->corpus.strict ? LF_TOK_STRICT : 0u);
    s->rows.flags = s->flags;
    s->rows.max_length = (size_t)lf_optset_int(o, "max_length");
    s->rows.truncate = (enum lf_truncate)lf_optset_choice(o, "truncation");
    s->skip_bad = lf_optset_choice(o, "bad_rows") == 1;
    s->valid_fraction = lf_optset_float(o, "valid_fraction");
    s->valid_seed = lf_optset_int(o, "valid_seed");
    s->shard_tokens = (uint64_t)lf_optset_int(o, "shard_tokens");
    s->dtype = dtype_bytes[lf_optset_choice(o, "dtype")];
    s->limit_docs = (uint64_t)lf_optset_int(o, "limit_docs");
    s->limit_bytes = (uint64_t)lf_optset_int(o, "limit_bytes");
    s->threads = lf_stage_threads(o);
    s->out = lf_optset_str(o, "out");
    s->metrics = lf_optset_str(o, "metrics");
    s->dirs = strings_of(o, "resume_from", &s->n_dirs, 1, err);
    if (!s->dirs)
        return LF_ENOMEM;
    if (!s->out && !lf_optset_bool(o, "plan") && !s->doctor)
        return lf_fail(err, LF_EINVAL,
                       "--out is missing: the directory to write shards and tokenizer below");
    if (s->out)
        s->dirs[s->n_dirs++] = s->out;
    return hash_options(s, o, err);
}

/* ---- what is taken as text ---- */

/* Files whose names say that they hold rows, in forms that are read as plain text. Their first one;
 * *n: how many there are. */
static const char *tables_as_text(const tokenize *s, const lf_corpus *c, size_t *n)
{
    static const char *const names[] = {".json", ".csv", ".tsv"};
    const char *first = NULL;
    size_t sources;
    const lf_corpus_source *src = lf_corpus_sources(c, &sources);
    *n = 0;
    for (size_t i = 0; i < sources && s->corpus.format == LF_CORPUS_AUTO; i++)
        for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
            const size_t len = lf_corpus_strip_compression(src[i].path);
            if (!lf_corpus_ends_with(src[i].path, len, names[k]) || (k == 0 && s->corpus.arrays))
                continue; /* whether it has rows is seen when it is read */
            first = first ? first : src[i].path;
            ++*n;
        }
    return first;
}

/* False: there is nothing to say. */
static bool say_tables(char *text, size_t cap, const tokenize *s, const lf_corpus *c)
{
    size_t n;
    const char *first = tables_as_text(s, c, &n);
    char more[40] = "";
    if (n > 1)
        snprintf(more, sizeof(more), " and %zu more", n - 1);
    if (first)
        snprintf(text, cap,
                 "%s%s: taken as plain text, as it stands; rows come from .jsonl and .parquet "
                 "(input_format = jsonl takes lines of JSON; input_format = text silences this)",
                 first, more);
    return first != NULL;
}

/* ---- few documents ---- */

#define READ_AT_ONCE ((int64_t)4 << 20) /* bytes that a plan reads to count their documents */

/* *n: how many documents there are, as far as a plan may know; -1: it may not. *texts: a file of
 * plain text is among them. What cannot be read, and inputs without a document, are refused here
 * as they would be by the run. */
static int count_documents(int64_t *n, bool *texts, const tokenize *s, lf_corpus *c, lf_err *err)
{
    lf_corpus_record r;
    const int64_t bytes = lf_corpus_total_bytes(c);
    int rc = 1;
    *n = -1;
    *texts = false;
    if (s->limit_docs || s->limit_bytes || bytes < 0 || bytes > READ_AT_ONCE || s->show.on)
        return 0;
    for (*n = 0; (rc = lf_corpus_next(c, &r, err)) == 1; ++*n)
        *texts = *texts || r.form == LF_RECORD_TEXT;
    return rc == 0 && *n == 0 ? lf_fail(err, LF_EINVAL, "the inputs hold no document") : rc;
}

/* A document is kept for validation by its content, so of few it may be none. */
static bool say_few(char *text, size_t cap, const tokenize *s, int64_t n, bool texts)
{
    const double none = n > 0 && s->valid_fraction > 0 ? pow(1 - s->valid_fraction, (double)n) : 0;
    if (none < 0.01)
        return false;
    snprintf(text, cap,
             "valid_fraction = %g of %lld document%s: none is kept for validation with a chance of "
             "%.0f %%%s",
             s->valid_fraction, (long long)n, n > 1 ? "s" : "", 100 * none,
             texts && s->corpus.split == LF_CORPUS_FILE
                 ? "; doc_split = blank or line makes more documents of a text"
                 : "");
    return true;
}

/* ---- plan ---- */

/* Rough: English gives 4 bytes a token; compressed text unpacks to three times its size, and so do
 * the pages of parquet. */
static int plan(void *self, json_t *out, lf_err *err)
{
    tokenize *s = self;
    lf_corpus *c = NULL;
    int rc = lf_corpus_open(&c, &s->corpus, err);
    if (rc != 0)
        return rc;
    size_t n;
    const lf_corpus_source *src = lf_corpus_sources(c, &n);
    double text = 0;
    bool unknown = false;
    for (size_t i = 0; i < n; i++) {
        static const char *const packed[] = {".gz",  ".dz",  ".zst",  ".xz",   ".bz2",     ".zip",
                                             ".tgz", ".txz", ".tbz2", ".tzst", ".parquet", ".pq"};
        double factor = 1;
        for (size_t k = 0; k < sizeof(packed) / sizeof(packed[0]); k++)
            factor = lf_str_has_suffix(src[i].path, packed[k]) ? 3 : factor;
        text += src[i].bytes > 0 ? (double)src[i].bytes * factor : 0;
        unknown = unknown || src[i].bytes < 0;
    }
    char tables[1200], few[300];
    const bool said = say_tables(tables, sizeof(tables), s, c);
    int64_t documents;
    bool texts;
    rc = count_documents(&documents, &texts, s, c, err);
    const bool lacks = say_few(few, sizeof(few), s, documents, texts);
    lf_corpus_close(c);
    if (rc != 0)
        return rc;
    if (s->limit_bytes && text > (double)s->limit_bytes)
        text = (double)s->limit_bytes;
    int bytes = s->dtype ? s->dtype : !s->tokenizer_path && s->train.vocab_size <= 65536 ? 2 : 4;
    json_int_t tokens = (json_int_t)(text / 4);
    json_int_t host = (json_int_t)((double)s->threads * 8e6 + 64e6);
    json_object_set_new(out, "tokens", json_integer(tokens));
    json_object_set_new(out, "disk_bytes", json_integer(tokens * bytes + (json_int_t)(1 << 20)));
    json_object_set_new(out, "bytes", json_pack("{s:I,s:I}", "host", host, "total", host));
    json_t *notes = json_array();
    json_array_append_new(
        notes,
        json_string("tokens and disk are estimates: 4 bytes of text a token, compressed text "
                    "three times its size"));
    if (unknown)
        json_array_append_new(notes, json_string("standard input: its size is not known"));
    if (said)
        json_array_append_new(notes, json_string(tables));
    if (lacks)
        json_array_append_new(notes, json_string(few));
    json_object_set_new(out, "notes", notes);
    return 0;
}

/* ---- run ---- */

typedef struct encoding {
    tokenize *s;
    const lf_corpus *corpus;
    tok_rows *rows;       /* [threads] */
    uint64_t valid_below; /* hash values below this are validation documents */
    bool all_train;
} encoding;

/* What a document is: its text and, of a prompt, its pictures, for prompts of many pictures are one
 * and the same. */
static int hash_content(uint8_t d[LF_HASH_BYTES], const tok_rows *r, const lf_buf *text,
                        lf_err *err)
{
    const size_t n = r->docs.kind == LF_ROW_PROMPT ? r->pics.n : 0;
    if (!n)
        return lf_hash_buf(d, text->data, text->len, err);
    lf_hash *h = lf_hash_create(err);
    if (!h)
        return LF_ENOMEM;
    lf_hash_update(h, text->data, text->len);
    for (size_t i = 0; i < n; i++)
        lf_hash_update(h, r->pics.v[i].sha256, sizeof r->pics.v[i].sha256);
    lf_hash_final(h, d);
    lf_hash_destroy(h);
    return 0;
}

/* By content, so re-runs, other orders and other shard sizes keep every document, and its copies,
 * on its side. */
static int choose_split(const encoding *e, const tok_rows *r, const lf_buf *text, int *split,
                        lf_err *err)
{
    uint8_t d[LF_HASH_BYTES];
    *split = SPLIT_TRAIN;
    if (e->all_train)
        return 0;
    int rc = hash_content(d, r, text, err);
    uint64_t h = 0;
    for (int i = 0; i < 8 && rc == 0; i++)
        h = h << 8 | d[i];
    /* The seed turns the circle of hash values. */
    h += (uint64_t)e->s->valid_seed * 0x9E3779B97F4A7C15u;
    if (h < e->valid_below)
        *split = SPLIT_VALID;
    return rc;
}

static int encode_one(encoding *e, int thread, tok_batch *b, size_t i, lf_err *err)
{
    char where[1024];
    tok_rows *r = &e->rows[thread];
    const lf_buf *text = NULL;
    int split = SPLIT_TRAIN;
    lf_tokenize_where(where, sizeof(where), e->corpus, b, i);
    int rc = lf_tokenize_row(r, b, i, where, &text, err);
    if (rc == 0 && r->docs.fate == LF_ROW_KEPT)
        rc = choose_split(e, r, text, &split, err);
    return rc != 0 ? rc : lf_tokenize_row_put(r, b, i, text, split, err);
}

static int encode_batch(void *ctx, int thread, tok_batch *b, lf_err *err)
{
    bool masked = false;
    b->ids.n = 0;
    lf_buf_clear(&b->mask);
    lf_buf_clear(&b->rest);
    lf_buf_clear(&b->pics);
    lf_buf_clear(&b->pic_bytes);
    b->replaced = 0;
    if (b->n > b->cap_docs) {
        int rc = lf_realloc(&b->docs, b->cap, sizeof(*b->docs), err);
        if (rc != 0)
            return rc;
        b->cap_docs = b->cap;
    }
    int rc = 0;
    for (size_t i = 0; i < b->n && rc == 0; i++) {
        rc = encode_one(ctx, thread, b, i, err);
        masked = masked || (rc == 0 && b->docs[i].masked);
    }
    if (!masked)
        lf_buf_clear(&b->mask); /* nothing to tell */
    return rc;
}

/* Collective: where to begin, as rank 0 found it. */
static int share_start(const tokenize *s, const tok_writer *w, tok_pipe *p, lf_err *err)
{
    uint64_t v[] = {w->at.source, w->at.source_first, w->at.next, w->at.raw_bytes};
    int rc = lf_tokenize_ranks_u64(s->k, v, sizeof(v) / sizeof(v[0]), err);
    p->start = (tok_start){(size_t)v[0], v[1], v[2]};
    p->bytes_before = v[3];
    return rc;
}

/* The way of encoded batches: to the writer, from the other ranks to rank 0's. */
static void set_sink(tokenize *s, tok_writer *w, tok_pipe *p)
{
    p->sink = s->k->rank == 0 ? lf_tokenize_ranks_take : lf_tokenize_ranks_give;
    p->sink_ctx = s->k;
    s->k->sink = lf_tokenize_writer_sink;
    s->k->sink_ctx = w;
}

static int open_rows(encoding *e, size_t n, const lf_tokenizer *t, lf_err *err)
{
    e->rows = lf_calloc(n, sizeof(*e->rows), err);
    for (size_t i = 0; e->rows && i < n; i++) {
        tok_rows *r = &e->rows[i];
        r->s = e->s;
        lf_rowdocs_init(&r->docs);
        lf_buf_init(&r->text);
        lf_tokenize_pics_init(&r->pics, &e->s->media);
        if (!(r->state = lf_tok_state_create(t, err)))
            return LF_ENOMEM;
    }
    return e->rows ? 0 : LF_ENOMEM;
}

static void close_rows(encoding *e, size_t n)
{
    for (size_t i = 0; e->rows && i < n && e->rows[i].s; i++) {
        lf_rowdocs_fini(&e->rows[i].docs);
        lf_buf_fini(&e->rows[i].text);
        lf_tokenize_pics_fini(&e->rows[i].pics);
        lf_tok_state_destroy(e->rows[i].state);
    }
    free(e->rows);
}

#define PICTURE_RECORDS 32 /* of a batch, which holds the files of their pictures */

/* Collective; w is rank 0's. */
static int encode_all(tokenize *s, lf_corpus *c, const lf_tokenizer *t, int64_t eos_id,
                      tok_writer *w, lf_err *err)
{
    size_t n = (size_t)s->threads;
    encoding e = {.s = s, .corpus = c, .all_train = !(s->valid_fraction > 0)};
    e.valid_below = (uint64_t)(s->valid_fraction * 18446744073709551616.0);
    s->rows.tok = t;
    s->rows.eos_id = eos_id;
    int rc = open_rows(&e, n, t, err);
    tok_pipe p = {.corpus = c,
                  .max_docs = s->limit_docs,
                  .max_bytes = s->limit_bytes,
                  .threads = s->threads,
                  .batch_records = s->media.on ? PICTURE_RECORDS : 0,
                  .rank = s->k->rank,
                  .ranks = s->k->size,
                  .work = encode_batch,
                  .ctx = &e,
                  .what = "tokenizing",
                  .reader_left = &s->reader_left};
    set_sink(s, w, &p);
    rc = lf_stage_agree(s->k->comm, rc, err);
    if (rc == 0)
        rc = share_start(s, w, &p, err);
    if (rc == 0)
        rc = lf_tokenize_ranks_end(s->k, lf_tokenize_pipe(&p, err), err);
    close_rows(&e, n);
    return rc;
}

/* The options' hash, with what the inputs are: labels and lengths, not where they lie. */
static int hash_sources(tokenize *s, const lf_corpus *c, lf_err *err)
{
    size_t n;
    const lf_corpus_source *src = lf_corpus_sources(c, &n);
    uint8_t digest[LF_HASH_BYTES];
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s\n", s->options_sha);
    for (size_t i = 0; i < n; i++)
        lf_buf_addf(&b, "%zu %s %lld\n", strlen(src[i].label), src[i].label,
                    (long long)src[i].bytes);
    for (size_t i = 0; i < n; i++)
        if (src[i].folder && (i == 0 || src[i].folder != src[i - 1].folder))
            lf_energon_identity(src[i].folder, &b);
    int rc = lf_buf_check(&b, err);
    if (rc == 0)
        rc = lf_hash_buf(digest, b.data, b.len, err);
    if (rc == 0)
        lf_hash_hex(s->options_sha, digest);
    lf_buf_fini(&b);
    return rc;
}

/* 1 when OUT/shards is published already, by these options and inputs; *sha then is that of its
 * tokenizer. */
static int finished(const tokenize *s, char sha[LF_HASH_HEX], lf_err *err)
{
    enum lf_artifact_state state;
    lf_err why = LF_ERR_INIT;
    lf_artifact a = {0};
    char *dir = lf_path_join(s->out, "shards", err);
    int rc = dir ? lf_artifact_state(&state, dir, &why) : LF_ENOMEM;
    if (rc == 0 && state == LF_ARTIFACT_PRESENT) {
        rc = lf_artifact_load(&a, dir, "shards", err);
        const char *made = json_string_value(json_object_get(a.meta, "made_from"));
        const char *tokenizer = json_string_value(json_object_get(a.meta, "tokenizer_sha256"));
        if (rc == 0 && (!made || strcmp(made, s->options_sha) != 0 || !tokenizer))
            rc = lf_fail(err, LF_EEXIST,
                         "%s was made with other options or inputs; use another out", dir);
        if (rc == 0)
            snprintf(sha, LF_HASH_HEX, "%s", tokenizer);
        rc = rc == 0 ? 1 : rc;
    } else if (rc == 0 && state != LF_ARTIFACT_ABSENT) {
        rc = lf_fail(err, LF_EFORMAT, "%s is damaged (%s); remove it or use another out", dir,
                     why.text);
    } else if (rc != 0 && why.rc) {
        rc = lf_fail(err, rc, "%s", why.text);
    }
    lf_artifact_fini(&a);
    free(dir);
    return rc;
}

static void drop_chat(tokenize *s)
{
    lf_chat_destroy(s->chat);
    s->chat = NULL;
    s->rows.chat = NULL;
}

/* The shards are there. They are what was asked for unless a tokenizer is named that they were not
 * made with. */
static int check_tokenizer(tokenize *s, lf_corpus *c, const char *sha, lf_err *err)
{
    lf_tokenizer *t = NULL;
    tok_ranks alone = {.size = 1}; /* nothing is trained here, so nobody else is needed */
    int64_t eos_id;
    s->k = &alone;
    int rc = s->tokenizer_path ? lf_tokenize_get_tokenizer(s, c, &t, &eos_id, err) : 0;
    if (t && strcmp(lf_tokenizer_sha256(t), sha) != 0)
        rc = lf_fail(err, LF_EEXIST, "%s/shards was made with another tokenizer; use another out",
                     s->out);
    drop_chat(s);
    lf_tokenizer_destroy(t);
    if (rc == 0)
        lf_log(2, "%s/shards is complete; nothing to do", s->out);
    return rc;
}

/* Collective: rank 0 writes, all work. */
static int make_shards(tokenize *s, lf_corpus *c, lf_err *err)
{
    lf_tokenizer *t = NULL;
    tok_writer w = {0};
    int64_t eos_id = -1;
    int rc = lf_tokenize_get_tokenizer(s, c, &t, &eos_id, err);
    if (rc == 0)
        rc = lf_tokenize_media_tokens(&s->media, t, &s->rows, err);
    if (rc == 0 && s->k->rank == 0)
        rc = lf_tokenize_writer_open(&w, s, t, c, eos_id, err);
    rc = lf_stage_agree(s->k->comm, rc, err);
    if (rc == 0)
        rc = encode_all(s, c, t, eos_id, &w, err);
    if (rc == 0 && s->k->rank == 0)
        rc = lf_tokenize_finish(&w, err);
    rc = lf_stage_agree(s->k->comm, rc, err);
    lf_tokenize_writer_fini(&w);
    drop_chat(s);
    lf_tokenizer_destroy(t);
    return rc;
}

static int open_corpus(tokenize *s, lf_corpus **c, lf_err *err)
{
    int rc = s->k->rank == 0 ? lf_io_mkdirs(s->out, 0750, err) : 0;
    if (rc == 0)
        rc = lf_corpus_open(c, &s->corpus, err);
    char tables[1200];
    if (rc == 0 && s->k->rank == 0 && say_tables(tables, sizeof(tables), s, *c))
        lf_log(1, "%s", tables);
    if (rc == 0 && s->k->size > 1 && lf_corpus_total_bytes(*c) < 0)
        rc = lf_fail(err, LF_EINVAL,
                     "standard input reaches one rank only; tokenize it on one, or name files");
    if (rc == 0 && !s->tokenizer_path && lf_corpus_total_bytes(*c) < 0)
        rc = lf_fail(
            err, LF_EINVAL,
            "a tokenizer cannot be trained on standard input, which is read once; name one");
    return rc != 0 ? rc : hash_sources(s, *c, err);
}

/* Collective. */
static int tokenize_on(tokenize *s, lf_corpus **c, lf_err *err)
{
    char sha[LF_HASH_HEX] = "";
    int rc = lf_stage_agree(s->k->comm, open_corpus(s, c, err), err);
    if (rc != 0)
        return rc;
    rc = s->k->rank == 0 ? finished(s, sha, err) : 0;
    uint64_t done = rc == 1;
    rc = lf_stage_agree(s->k->comm, rc < 0 ? rc : 0, err);
    if (rc == 0)
        rc = lf_tokenize_ranks_u64(s->k, &done, 1, err);
    if (rc != 0)
        return rc;
    if (!done)
        return make_shards(s, *c, err);
    lf_comm *comm = s->k->comm;
    rc = s->k->rank == 0 ? check_tokenizer(s, *c, sha, err) : 0;
    return lf_stage_agree(comm, rc, err);
}

static int run(void *self, lf_comm *comm, lf_err *err)
{
    tokenize *s = self;
    lf_corpus *c = NULL;
    tok_ranks k;
    if (s->show.on)
        return comm ? lf_fail(err, LF_EINVAL, "shards are shown by one process; start one rank")
                    : lf_tok_show(&s->show, s->inputs[0], s->tokenizer_path, err);
    if (s->doctor)
        return comm ? lf_fail(err, LF_EINVAL, "the doctor works alone; start one rank")
                    : lf_tokenize_doctor(s, err);
    int rc = lf_tokenize_ranks_open(&k, comm, err);
    s->k = &k;
    /* reading, training and writing are rank 0's and may take long; a dead rank is noticed all the
     * same */
    if (comm)
        lf_comm_phase(comm, "tokenizing", 0);
    if (rc == 0)
        rc = tokenize_on(s, &c, err);
    if (!s->reader_left)
        lf_corpus_close(c);
    lf_tokenize_ranks_close(&k);
    return rc;
}

/* The shards, which come last: a tokenizer that is there is held to its own hash. The doctor makes
 * its report anew each time. */
static const char *const *makes(const void *self)
{
    static const char *const none[] = {NULL}, *const shards[] = {"shards", NULL};
    const tokenize *s = self;
    return s->doctor || s->show.on ? none : shards;
}

int main(int argc, char **argv)
{
    static const lf_stage stage = {.table = &lf_tokenize_opts,
                                   .words = "inputs",
                                   .tell = lf_tokenize_decoders,
                                   .setup = setup,
                                   .plan = plan,
                                   .run = run,
                                   .destroy = destroy,
                                   .ranks = true,
                                   .makes = makes,
                                   .continues = true};
    return lf_stage_main(&stage, argc, argv);
}
