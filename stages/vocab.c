/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-vocab: a tokenizer that grows, and the rows of a model with it. Options and the order of work.
 * Killed at any point, the same command does again what was not published: every output is a
 * function of the inputs and options alone.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "engine/model/same_tokenizer.h"
#include "stages/opts.h"
#include "stages/stage.h"
#include "stages/vocab_priv.h"

static void destroy(void *self)
{
    vocab *v = self;
    if (!v)
        return;
    lf_grower_destroy(v->g);
    lf_tokenizer_destroy(v->grown);
    lf_tok_files_fini(&v->files);
    free(v->text);
    free(v->old_text);
    free(v->specials);
    free(v);
}

static int strings(const char ***out, size_t *n, const lf_optset *o, const char *name, lf_err *err)
{
    *n = lf_optset_count(o, name);
    *out = lf_calloc(*n + 1, sizeof(**out), err);
    for (size_t i = 0; *out && i < *n; i++)
        (*out)[i] = lf_optset_str_at(o, name, i);
    return *out ? 0 : LF_ENOMEM;
}

/* SHA-256 over every identity option in effect, except names of files; run adds what the files
 * hold. */
static int hash_options(vocab *v, const lf_optset *o, lf_err *err)
{
    lf_buf b;
    uint8_t digest[LF_HASH_BYTES];
    lf_buf_init(&b);
    int rc = 0;
    for (size_t i = 0; i < lf_vocab_opts.n_opts && rc == 0; i++) {
        const lf_opt *op = &lf_vocab_opts.opts[i];
        if (op->cls != LF_OPT_IDENTITY || op->type == LF_OPT_PATH ||
            (!op->def && !lf_optset_is_set(o, op->name)))
            continue;
        lf_buf_addf(&b, "%s=", op->name);
        rc = lf_optset_canonical(o, op->name, &b, err);
        lf_buf_addc(&b, '\n');
    }
    if (rc == 0)
        rc = lf_buf_check(&b, err);
    if (rc == 0)
        rc = lf_hash_buf(digest, b.data, b.len, err);
    if (rc == 0)
        lf_hash_hex(v->made_from, digest);
    lf_buf_fini(&b);
    return rc;
}

/* Is the vocabulary to get tokens that merges make? */
static bool learns(const vocab *v)
{
    return v->n_text > 0 || v->donor;
}

static int setup(void **self, lf_optset *o, lf_err *err)
{
    vocab *v = lf_calloc(1, sizeof(*v), err);
    if (!v)
        return LF_ENOMEM;
    *self = v;
    v->base = lf_optset_str(o, "base");
    v->donor = lf_optset_str(o, "donor");
    v->checkpoint = lf_optset_str(o, "checkpoint");
    v->out = lf_optset_str(o, "out");
    v->threads = lf_stage_threads(o);
    v->text_field = lf_optset_str(o, "text_field");
    v->strict = lf_optset_choice(o, "invalid_utf8") == 1;
    v->any_bytes = !v->strict && lf_optset_is_set(o, "invalid_utf8");
    v->metrics = lf_optset_str(o, "metrics");
    (void)lf_optset_count(o, "resume_from"); /* nothing is taken over: the work is short */
    int rc = strings(&v->text, &v->n_text, o, "text", err);
    if (rc == 0)
        rc = strings(&v->old_text, &v->n_old_text, o, "old_text", err);
    if (rc == 0)
        rc = strings(&v->specials, &v->n_specials, o, "special_tokens", err);
    if (rc == 0 && !learns(v) && v->n_specials == 0)
        rc = lf_fail(err, LF_EINVAL,
                     "nothing to grow by: give text or donor, or name special_tokens");
    if (rc == 0 && learns(v))
        v->grow = (lf_grow_args){.new_tokens = (size_t)lf_optset_int(o, "new_tokens"),
                                 .coverage = lf_optset_float(o, "character_coverage"),
                                 .max_piece = (size_t)lf_optset_int(o, "max_piece")};
    if (rc == 0 && v->n_text > 0) {
        v->grow.min_frequency = (uint64_t)lf_optset_int(o, "min_frequency");
        v->held_out = lf_optset_float(o, "held_out");
    }
    if (rc == 0 && v->checkpoint) {
        v->init = (enum lf_rows_init)lf_optset_choice(o, "init");
        v->pad_to = lf_optset_int(o, "pad_to");
        v->seed = (uint64_t)lf_optset_int(o, "seed");
    }
    if (rc == 0 && !v->out && !lf_optset_bool(o, "plan"))
        rc = lf_fail(
            err, LF_EINVAL,
            "--out is missing: the directory to write tokenizer, checkpoint and report below");
    return rc == 0 ? hash_options(v, o, err) : rc;
}

/* ---- plan ---- */

static int plan(void *self, json_t *out, lf_err *err)
{
    vocab *v = self;
    lf_artifact a = {0};
    json_int_t disk = 1 << 20;
    json_t *notes = json_array();
    if (v->checkpoint && lf_artifact_load(&a, v->checkpoint, "checkpoint", NULL) == 0) {
        for (size_t i = 0; i < a.n_files; i++)
            disk += (json_int_t)a.files[i].bytes;
        json_array_append_new(
            notes,
            json_string("the moments of a checkpoint are left out, so it may become smaller"));
    } else if (v->checkpoint) {
        json_array_append_new(
            notes, json_string("the checkpoint is not there yet: its size is not counted"));
    }
    lf_artifact_fini(&a);
    json_int_t host = (json_int_t)v->threads * (8 << 20) + (512 << 20);
    json_object_set_new(out, "disk_bytes", json_integer(disk));
    json_object_set_new(out, "bytes", json_pack("{s:I,s:I}", "host", host, "total", host));
    return json_object_set_new(out, "notes", notes) ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

/* ---- run ---- */

static int add_file_hash(lf_buf *b, const lf_buf *text, lf_err *err)
{
    uint8_t digest[LF_HASH_BYTES];
    char hex[LF_HASH_HEX];
    int rc = lf_hash_buf(digest, text->data, text->len, err);
    if (rc == 0) {
        lf_hash_hex(hex, digest);
        lf_buf_addf(b, "%s\n", hex);
    }
    return rc;
}

/* The checkpoint's identity, from its manifest. */
static int add_checkpoint(lf_buf *b, const char *dir, lf_err *err)
{
    lf_artifact a = {0};
    int rc = lf_artifact_load(&a, dir, "checkpoint", err);
    const char *id = rc == 0 ? json_string_value(json_object_get(a.meta, "identity")) : NULL;
    lf_buf_addf(b, "%s\n", id ? id : "");
    lf_artifact_fini(&a);
    return rc;
}

/* The options' hash with what the inputs are. */
static int hash_inputs(vocab *v, const lf_tok_files *donor, lf_err *err)
{
    lf_buf b;
    uint8_t digest[LF_HASH_BYTES];
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s\n", v->made_from);
    int rc = 0;
    for (size_t i = 0; i < v->files.n && rc == 0; i++)
        rc = add_file_hash(&b, &v->files.v[i].data, err);
    if (rc == 0 && donor->n > 0)
        rc = add_file_hash(&b, &donor->v[0].data, err);
    if (rc == 0)
        rc = lf_vocab_sources(v, v->text, v->n_text, &b, err);
    if (rc == 0)
        rc = lf_vocab_sources(v, v->old_text, v->n_old_text, &b, err);
    if (rc == 0 && v->checkpoint)
        rc = add_checkpoint(&b, v->checkpoint, err);
    if (rc == 0)
        rc = lf_buf_check(&b, err);
    if (rc == 0)
        rc = lf_hash_buf(digest, b.data, b.len, err);
    if (rc == 0)
        lf_hash_hex(v->made_from, digest);
    lf_buf_fini(&b);
    return rc;
}

static int progress(void *arg, size_t done, size_t total)
{
    (void)total;
    lf_progress_update(arg, (double)done);
    return lf_stop_requested() ? LF_EINTR : 0;
}

/* Tokens that merges make. */
static int learn(vocab *v, lf_err *err)
{
    lf_word_counts *words = NULL;
    lf_progress bar;
    size_t n = 0;
    int rc = lf_vocab_words(v, &words, err);
    if (rc == 0) {
        lf_progress_begin(&bar, "growing the vocabulary", "tokens",
                          (double)lf_grower_old_size(v->g),
                          (double)(lf_grower_old_size(v->g) + v->grow.new_tokens));
        rc = lf_grower_run(v->g, &v->grow, words, progress, &bar, err);
        if (rc == 0)
            lf_progress_end(&bar);
    }
    if (rc == 0)
        lf_grower_tokens(v->g, &n);
    if (rc == 0 && n == 0)
        rc = lf_fail(err, LF_EINVAL, "there is no new token: %s",
                     v->donor ? "all that the donor has are there, or no merge reaches them"
                              : "the text holds no pair seen min_frequency times");
    if (rc == 0 && n < v->grow.new_tokens && !v->donor)
        lf_log(1, "the text gives %zu new tokens only, not %zu", n, v->grow.new_tokens);
    if (rc == 0 && lf_grower_left(v->g) > 0)
        lf_log(1,
               "%zu tokens of the donor are left out: above new_tokens, or no merge reaches them",
               lf_grower_left(v->g));
    lf_word_counts_destroy(words);
    return rc;
}

static int grow(vocab *v, lf_err *err)
{
    int rc = learns(v) ? learn(v, err) : 0;
    if (rc == 0)
        rc = lf_grower_specials(v->g, v->specials, v->n_specials, err);
    if (rc == 0) {
        lf_buf_clear(&v->files.v[0].data);
        rc = lf_grower_write(v->g, &v->files.v[0].data, err);
    }
    return rc;
}

/* Is `name` still to be made? 1 yes, 0 it is there. */
static int wanted(const vocab *v, const char *name, lf_err *err)
{
    int rc = lf_vocab_present(v, name, err);
    return rc < 0 ? rc : rc == 0;
}

static lf_tokenizer *parse_files(const lf_tok_files *f, const char *name, lf_err *err)
{
    lf_buf block;
    lf_buf_init(&block);
    lf_tokenizer *t = lf_tok_files_pack(f, &block, err) == 0
                          ? lf_tokenizer_parse(block.data, block.len, name, err)
                          : NULL;
    lf_buf_fini(&block);
    return t;
}

/* The old tokenizer, without ids that only the files beside it know. */
static int open_base(vocab *v, lf_err *err)
{
    const lf_buf *main = &v->files.v[0].data;
    if (v->files.form != LF_TOK_FORM_JSON && v->files.form != LF_TOK_FORM_SPM)
        return lf_fail(err, LF_ENOTSUP,
                       "%s: %s cannot grow; tokenizer.json and a SentencePiece model can", v->base,
                       v->files.main);
    v->g = lf_grower_create(main->data, main->len, !learns(v), v->base, err);
    lf_tokenizer *all = v->g ? parse_files(&v->files, v->base, err) : NULL;
    int rc = all ? 0 : err->rc;
    if (all && lf_tokenizer_vocab_size(all) != lf_grower_old_size(v->g))
        rc = lf_fail(err, LF_ENOTSUP,
                     "%s: tokenizer_config.json adds tokens behind the %zu of %s, where new ones "
                     "would go; grow its "
                     "tokenizer.json, which holds them",
                     v->base, lf_grower_old_size(v->g), v->files.main);
    lf_tokenizer_destroy(all);
    return rc;
}

static int publish(vocab *v, lf_err *err)
{
    vocab_measure fresh, old;
    v->grown = parse_files(&v->files, "the grown tokenizer", err);
    int rc = v->grown ? wanted(v, "tokenizer", err) : LF_EFORMAT;
    if (rc == 1)
        rc = lf_vocab_put_tokenizer(v, err);
    if (rc == 0 && v->checkpoint) {
        rc = wanted(v, "checkpoint", err);
        if (rc == 1)
            rc = lf_vocab_put_checkpoint(v, err);
    }
    if (rc == 0)
        rc = lf_vocab_measure(&fresh, v, v->text, v->n_text, VOCAB_HELD_OUT, err);
    if (rc == 0)
        rc = lf_vocab_measure(&old, v, v->old_text, v->n_old_text, VOCAB_ALL, err);
    return rc == 0 ? lf_vocab_put_report(v, &fresh, &old, err) : rc;
}

/* The checkpoint must have a row for every old token; said before the work begins. */
static int check_rows(const vocab *v, lf_err *err)
{
    lf_model_config mc;
    lf_ckpt *c = NULL;
    int rc = v->checkpoint ? lf_ckpt_open(&c, v->checkpoint, v->threads, err) : 0;
    if (rc == 0 && c)
        rc = lf_weights_config(&mc, c, err);
    if (rc == 0 && c && (int64_t)lf_grower_old_size(v->g) > mc.vocab)
        rc = lf_fail(err, LF_EINVAL,
                     "%s has %lld rows, the tokenizer %zu tokens; they do not belong together",
                     v->checkpoint, (long long)mc.vocab, lf_grower_old_size(v->g));
    if (rc == 0)
        rc = lf_same_tokenizer(v->checkpoint, lf_tokenizer_sha256(lf_grower_base(v->g)), v->base,
                               err);
    lf_ckpt_close(c);
    return rc;
}

static int run(void *self, lf_comm *comm, lf_err *err)
{
    vocab *v = self;
    lf_tok_files donor = {0};
    (void)comm;
    int rc = lf_tok_files_read(&v->files, v->base, err);
    if (rc == 0 && v->donor)
        rc = lf_tok_files_read(&donor, v->donor, err);
    if (rc == 0)
        rc = hash_inputs(v, &donor, err);
    if (rc == 0)
        rc = lf_io_mkdirs(v->out, 0750, err);
    if (rc == 0)
        rc = lf_vocab_present(v, "report", err);
    if (rc == 1)
        lf_log(2, "%s is complete; nothing to do", v->out);
    if (rc == 0) {
        rc = open_base(v, err);
        if (rc == 0)
            rc = check_rows(v, err);
        if (rc == 0 && v->donor)
            rc = lf_grower_donor(v->g, donor.v[0].data.data, donor.v[0].data.len, v->donor, err);
        if (rc == 0)
            rc = grow(v, err);
        if (rc == 0)
            rc = publish(v, err);
    }
    lf_tok_files_fini(&donor);
    return rc < 0 ? rc : 0;
}

int main(int argc, char **argv)
{
    static const lf_stage stage = {.table = &lf_vocab_opts,
                                   .words = "text",
                                   .setup = setup,
                                   .plan = plan,
                                   .run = run,
                                   .destroy = destroy,
                                   .continues = true};
    return lf_stage_main(&stage, argc, argv);
}
