/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-convert: options, wiring, calls of engine/convert. An import makes OUT/tokenizer and
 * OUT/checkpoint, an export OUT/model.
 *
 * Proof. An import without a file of expected logits has shown that every tensor found its place,
 * not that the model computes what it should. So it is published, says UNVERIFIED and ends with 1,
 * unless verify = none says that this is meant. With a file the verdict is printed, and a model
 * beyond its family's tolerance ends with 1: its checkpoint is taken back.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "engine/convert/convert.h"
#include "engine/store/foreign.h"
#include "stages/convert_adapter.h"
#include "stages/convert_data.h"
#include "stages/convert_tokens.h"
#include "stages/infer_common.h"
#include "stages/made_by.h"
#include "stages/opts.h"
#include "stages/stage.h"

typedef struct convert {
    const lf_optset *o;
    struct lf_convert_opts c;
    const char *out, *verify;
    char **
        /* [n_from] directories of earlier starts with the artifact that is being made */
        left;
    const char **from;
    size_t n_from;
    int to;
    bool inspect, moments;
    struct convert_data d;
    struct convert_tokens t; /* export */
    struct convert_adapter a;
    lf_progress bar; /* begun with the first tensor */
} convert;

enum { TO_AUTO = 0, TO_CHECKPOINT, TO_HF, TO_SHARDS, TO_MEGATRON };

static void warn(void *arg, const char *text)
{
    (void)arg;
    lf_log(1, "%s", text);
}

/* Each of import and export is one loop over the tensors. */
static void on_progress(void *arg, double done, double total)
{
    convert *v = arg;
    if (v->bar.what == NULL)
        lf_progress_begin(&v->bar, "convert", "bytes", 0, total);
    lf_progress_update(&v->bar, done);
}

static void destroy(void *self)
{
    convert *v = self;
    for (size_t i = 0; v && i < v->n_from; i++)
        free(v->left[i]);
    if (v) {
        free(v->left);
        free(v->from);
        convert_tokens_fini(&v->t);
    }
    free(v);
}

static int earlier_runs(convert *v, const lf_optset *o, lf_err *err)
{
    size_t n = lf_optset_count(o, "resume_from");
    if (!(v->from = lf_calloc(n + 1, sizeof *v->from, err)) ||
        !(v->left = lf_calloc(n + 1, sizeof *v->left, err)))
        return LF_ENOMEM;
    for (; v->n_from < n; v->n_from++)
        v->from[v->n_from] = lf_optset_str_at(o, "resume_from", v->n_from);
    return 0;
}

/* v->c writes the artifact of this name into dir; so did runs before. */
static int aim(convert *v, const char *name, const char *dir, lf_err *err)
{
    v->c.out = dir;
    for (size_t i = 0; i < v->n_from; i++) {
        free(v->left[i]);
        if (!(v->left[i] = lf_path_join(v->from[i], name, err)))
            return LF_ENOMEM;
    }
    v->c.left = (const char *const *)v->left;
    v->c.n_left = v->n_from;
    return 0;
}

static int setup(void **self, lf_optset *o, lf_err *err)
{
    convert *v = lf_calloc(1, sizeof *v, err);
    if (!v)
        return LF_ENOMEM;
    *self = v;
    v->o = o;
    v->out = lf_optset_str(o, "out");
    v->to = lf_optset_choice(o, "to");
    v->verify = lf_optset_str(o, "verify");
    v->t.pad_token = lf_optset_str(o, "pad_token");
    v->inspect = lf_optset_bool(o, "inspect");
    if (v->inspect)
        v->moments = lf_optset_bool(o, "moments");
    int rc = lf_infer_strings(&v->t.eos, &v->t.n_eos, o, "eos", err);
    if (rc != 0)
        return rc;
    v->d = (struct convert_data){.o = o,
                                 .from = lf_optset_str(o, "from"),
                                 .tokenizer = lf_optset_str(o, "tokenizer"),
                                 .eod_token = lf_optset_str(o, "eod_token"),
                                 .vocab_size = lf_optset_int(o, "vocab_size"),
                                 .append_eod = lf_optset_bool(o, "append_eod")};
    v->c = (struct lf_convert_opts){.from = lf_optset_str(o, "from"),
                                    .dtype = lf_optset_choice(o, "dtype"),
                                    .quantize = lf_optset_choice(o, "quantize"),
                                    .parts = lf_optset_choice(o, "parts"),
                                    .averages = lf_optset_choice(o, "weights") == 1,
                                    .file_bytes = lf_optset_int(o, "max_file"),
                                    .family = lf_optset_str(o, "family"),
                                    .tokenizer = lf_optset_str(o, "tokenizer"),
                                    .pad_token = -1,
                                    .threads = lf_stage_threads(o),
                                    .stop = lf_stop_requested,
                                    .warn = warn,
                                    .progress = on_progress,
                                    .arg = v};
    v->a = (struct convert_adapter){.o = o,
                                    .from = v->c.from,
                                    .base = lf_optset_str(o, "base"),
                                    .out = v->out,
                                    .bf16 = v->c.dtype == LF_CONVERT_BF16,
                                    .threads = v->c.threads};
    if (v->to == TO_CHECKPOINT && (v->c.family || v->c.tokenizer))
        return lf_fail(err, LF_EINVAL,
                       "family and tokenizer are of exports, to = checkpoint is an import");
    if (v->to == TO_HF && v->verify)
        return lf_fail(err, LF_EINVAL,
                       "verify is of imports; an export says what the checkpoint says");
    return earlier_runs(v, o, err);
}

/* What is written, as far as it can be known: as much as is there. */
static int64_t tree_bytes(const char *dir, int parts)
{
    enum lf_convert_form form = LF_FORM_UNKNOWN;
    lf_artifact a = {0};
    int64_t n = 0;
    if (lf_convert_form_of(&form, dir, NULL) == 0 && form == LF_FORM_HF)
        return lf_convert_hf_bytes(dir, parts);
    if (lf_artifact_load(&a, dir, NULL, NULL) == 0)
        for (size_t i = 0; i < a.n_files; i++)
            n += a.files[i].bytes;
    lf_artifact_fini(&a);
    return n;
}

static int plan(void *self, json_t *plan, lf_err *err)
{
    convert *v = self;
    enum lf_convert_form form = LF_FORM_UNKNOWN;
    if (lf_convert_form_of(&form, v->c.from, NULL) == 0 && form == LF_FORM_UNKNOWN &&
        lf_foreign_refuse(v->c.from, err))
        return LF_ENOTSUP;
    json_t *notes = json_array();
    int64_t bytes = tree_bytes(v->c.from, v->c.parts);
    int bad =
        !notes ||
        json_array_append_new(
            notes, json_string("memory is a few MiB per thread, whatever the size of the model"));
    if (!bad && bytes == 0)
        bad = json_array_append_new(
            notes, json_string("sizes follow from the model, which does not exist yet"));
    if (!bad && !v->verify && v->to != TO_HF && bytes && form == LF_FORM_HF)
        bad = json_array_append_new(notes,
                                    json_string("no verify: the stage will end as failed, "
                                                "UNVERIFIED; say verify = FILE or verify = none"));
    if (!bad && bytes)
        bad = json_object_set_new(plan, "disk_bytes", json_integer((json_int_t)bytes));
    if (!bad)
        bad = json_object_set(plan, "notes", notes);
    json_decref(notes);
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

static void report(const char *dir, const struct lf_convert_result *r, double t0)
{
    char text[32], hex[LF_HASH_HEX];
    lf_hash_hex(hex, r->identity);
    if (r->reused)
        lf_log(2, "%s: %s were in place already, written by a run that did not end", dir,
               lf_fmt_bytes(text, sizeof text, (double)r->reused));
    lf_log(2, "%s: %lld tensors, family %s, %s in %.1f s; identity %.16s", dir,
           (long long)r->tensors, r->family, lf_fmt_bytes(text, sizeof text, (double)r->bytes),
           lf_now_s() - t0, hex);
    if (r->nonfinite)
        lf_log(1, "%s: %lld values are NaN or infinite", dir, (long long)r->nonfinite);
}

/* ---- import ---- */

static int import_tokenizer(const convert *v, const char *dir, lf_err *err)
{
    bool done = false, has = false;
    int rc = lf_made_already(&done, v->o, &lf_convert_opts, v->out, "tokenizer", err);
    if (rc != 0 || done)
        return rc;
    rc = lf_convert_tokenizer(v->c.from, dir, &has, err);
    if (rc == 0 && !has)
        lf_log(1, "%s holds no tokenizer", v->c.from);
    return rc;
}

static int import_weights(convert *v, const char *dir, lf_err *err)
{
    struct lf_convert_result r;
    bool done = false;
    int rc = lf_made_already(&done, v->o, &lf_convert_opts, v->out, "checkpoint", err);
    if (rc != 0 || done)
        return rc;
    double t0 = lf_now_s();
    rc = aim(v, "checkpoint", dir, err);
    if (rc == 0)
        rc = lf_convert_import(&v->c, &r, err);
    if (rc == 0)
        report(dir, &r, t0);
    return rc;
}

static int verify(const convert *v, const char *dir, lf_err *err)
{
    struct lf_convert_verdict w;
    if (!v->verify || strcmp(v->verify, "none") == 0) {
        puts("UNVERIFIED: every tensor has found its place; that the model computes what it should "
             "is not shown");
        return v->verify
                   ? 0
                   : lf_fail(err, LF_EINVAL,
                             "UNVERIFIED: %s is complete and can be used, but nothing shows "
                             "that it computes what the model should, which counts as failed; "
                             "verify = FILE (see expected.py) shows it, verify = none does "
                             "without",
                             dir);
    }
    int rc = lf_convert_verify(dir, v->verify, v->c.threads, &w, err);
    if (rc != 0)
        return rc;
    bool ok = w.max <= w.tol_max && w.rms <= w.tol_rms;
    printf("%s: %lld %s, max difference %.3g of %.3g, rms %.3g of %.3g\n",
           ok ? "VERIFIED" : "DIFFERENT", (long long)w.rows, w.of, w.max, w.tol_max, w.rms,
           w.tol_rms);
    if (fflush(stdout) != 0)
        return lf_fail_errno(err, "writing to standard output");
    if (ok)
        return 0;
    rc = lf_artifact_remove(dir, err); /* nobody is to go on with it */
    return rc != 0
               ? rc
               : lf_fail(err, LF_EFORMAT,
                         "the imported model is not the one that %s expects: %s differ by %.3g "
                         "(largest) and %.3g (rms)",
                         v->verify, strcmp(w.of, "tokens") == 0 ? "logits" : w.of, w.max, w.rms);
}

/* has_files: beside the weights lie a tokenizer and so on. */
static int import(convert *v, bool has_files, lf_err *err)
{
    char *ckpt = lf_path_join(v->out, "checkpoint", err),
         *tok = lf_path_join(v->out, "tokenizer", err);
    int rc = ckpt && tok ? 0 : LF_ENOMEM;
    if (rc == 0 && (v->c.family || v->c.tokenizer))
        rc = lf_fail(err, LF_EINVAL,
                     "family and tokenizer are of exports; %s is a Hugging Face model", v->c.from);
    if (rc == 0)
        rc = import_weights(
            v, ckpt, err); /* first: a model that is refused leaves no tokenizer for the next one */
    if (rc == 0 && has_files)
        rc = import_tokenizer(v, tok, err);
    if (rc == 0)
        rc = verify(v, ckpt, err);
    if (rc != 0 && tok && !lf_io_exists(ckpt))
        lf_artifact_remove(tok, NULL); /* it is of the model that was taken back */
    free(ckpt);
    free(tok);
    return rc;
}

/* ---- export ---- */

static int export(convert *v, lf_err *err)
{
    struct lf_convert_result r;
    bool done = false;
    char *dir = lf_path_join(v->out, "model", err);
    int rc = dir ? lf_made_already(&done, v->o, &lf_convert_opts, v->out, "model", err) : LF_ENOMEM;
    double t0 = lf_now_s();
    if (rc == 0 && v->verify)
        rc = lf_fail(err, LF_EINVAL, "verify is of imports; %s is a checkpoint", v->c.from);
    if (rc == 0 && !done)
        rc = convert_tokens_settle(&v->t, &v->c, err);
    if (rc == 0 && !done) {
        rc = aim(v, "model", dir, err);
        if (rc == 0)
            rc = lf_convert_export(&v->c, &r, err);
        if (rc == 0)
            report(dir, &r, t0);
    }
    free(dir);
    return rc;
}

static bool is_moment(const json_t *tensor)
{
    const char *kind = json_string_value(json_object_get(tensor, "kind"));
    return kind && lf_convert_is_moment(kind);
}

/* The summary in the order in which it is read, then tensors, one a line. */
static int inspected(const convert *v, json_t *o, lf_buf *out, lf_err *err)
{
    static const char *const first[] = {"path",       "form", "kind",  "family",
                                        "parameters", "step", "files", "bytes"};
    json_t *list = json_incref(json_object_get(o, "tensors")), *head = json_object(), *t;
    size_t i, n = 0, moments = 0;
    int bad = !head || (list && json_object_del(o, "tensors"));
    for (i = 0; i < sizeof first / sizeof first[0] && !bad; i++)
        bad = json_object_get(o, first[i]) &&
              json_object_set(head, first[i], json_object_get(o, first[i]));
    json_array_foreach(list, i, t) moments += is_moment(t);
    if (!bad && moments)
        bad = json_object_set_new(head, "optimizer_tensors", json_integer((json_int_t)moments));
    bad = bad || json_object_update_missing(head, o);
    char *text = bad ? NULL : json_dumps(head, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    if (text && list)
        lf_buf_addf(out, "%.*s,\n  \"tensors\": [", (int)strlen(text) - 2, text);
    else
        lf_buf_adds(out, text ? text : "");
    json_array_foreach(list, i, t)
    {
        char *row = text && (v->moments || !is_moment(t)) ? json_dumps(t, 0) : NULL;
        if (row)
            lf_buf_addf(out, "%s\n    %s", n++ ? "," : "", row);
        free(row);
    }
    lf_buf_adds(out, list ? "\n  ]\n}\n" : "\n");
    bad = !text;
    free(text);
    json_decref(head);
    json_decref(list);
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : lf_buf_check(out, err);
}

static int inspect(const convert *v, lf_err *err)
{
    lf_buf out;
    lf_buf_init(&out);
    json_t *o = lf_convert_inspect(v->c.from, v->c.parts, err);
    int rc = o ? inspected(v, o, &out, err) : LF_EFORMAT;
    if (rc == 0 && (fputs(out.data, stdout) < 0 || fflush(stdout) != 0))
        rc = lf_fail_errno(err, "writing to standard output");
    lf_buf_fini(&out);
    json_decref(o);
    return rc;
}

/* An adapter in our form: to PEFT's, or into its base. */
static int from_adapter(const convert *v, lf_err *err)
{
    if (v->verify || v->c.family || v->c.tokenizer)
        return lf_fail(err, LF_EINVAL,
                       "verify, family and tokenizer are of whole models; %s is an adapter",
                       v->c.from);
    if (v->to == TO_CHECKPOINT && v->c.dtype == LF_CONVERT_F16)
        return lf_fail(err, LF_EINVAL, "checkpoints hold f32 and bf16, not f16");
    if (v->to == TO_CHECKPOINT)
        return lf_convert_adapter_merge(&v->a, err);
    if (v->to != TO_AUTO && v->to != TO_HF)
        return lf_fail(
            err, LF_EINVAL,
            "an adapter goes to PEFT's files (to = hf) or into its base (to = checkpoint)");
    return lf_convert_adapter_export(&v->a, err);
}

static int run(void *self, lf_comm *comm, lf_err *err)
{
    convert *v = self;
    enum lf_convert_form form = LF_FORM_UNKNOWN;
    (void)comm;
    if (v->inspect)
        return inspect(v, err);
    int rc = v->out ? lf_convert_form_of(&form, v->c.from, err)
                    : lf_fail(err, LF_EINVAL, "give --out DIR to write results below");
    bool data = form == LF_FORM_IDX || form == LF_FORM_SHARDS, any = v->to == TO_AUTO;
    if (rc != 0)
        return rc;
    if (data && (v->verify || v->c.family))
        return lf_fail(err, LF_EINVAL, "verify and family are of models; %s is data", v->c.from);
    bool adapter = false;
    if (form == LF_FORM_CHECKPOINT && (rc = lf_convert_is_adapter(&adapter, v->c.from, err)))
        return rc;
    if (v->c.quantize && (data || adapter || form == LF_FORM_PEFT || form == LF_FORM_MEGATRON))
        return lf_fail(err, LF_EINVAL, "quantize is of models of Hugging Face; %s is none",
                       v->c.from);
    if (v->c.parts == LF_PARTS_TEXT && form != LF_FORM_HF)
        return lf_fail(err, LF_EINVAL, "parts = text is of an import from Hugging Face; %s is none",
                       v->c.from);
    if (v->c.parts == LF_PARTS_GENERATOR && (form != LF_FORM_CHECKPOINT || adapter))
        return lf_fail(err, LF_EINVAL,
                       "parts = generator is of an export of a whole model; %s is no checkpoint of "
                       "one",
                       v->c.from);
    if (v->c.averages && (form != LF_FORM_CHECKPOINT || adapter))
        return lf_fail(err, LF_EINVAL,
                       "weights = ema is of an export of a whole model; %s is no checkpoint of one",
                       v->c.from);
    if (form != LF_FORM_IDX && (v->d.vocab_size || v->d.append_eod || v->d.eod_token))
        return lf_fail(err, LF_EINVAL,
                       "vocab_size, append_eod and eod_token are of an .idx; %s is none",
                       v->c.from);
    if (adapter)
        return from_adapter(v, err);
    if (form == LF_FORM_PEFT && (any || v->to == TO_CHECKPOINT))
        return lf_convert_adapter_import(&v->a, err);
    if (v->a.base)
        return lf_fail(err, LF_EINVAL, "base is of adapters; %s is none", v->c.from);
    if ((form == LF_FORM_HF || form == LF_FORM_MEGATRON) && (any || v->to == TO_CHECKPOINT))
        return import(v, form == LF_FORM_HF, err);
    if (form == LF_FORM_CHECKPOINT && (any || v->to == TO_HF))
        return export(v, err);
    if (form == LF_FORM_IDX && (any || v->to == TO_SHARDS))
        return lf_convert_data_import(&v->d, v->out, err);
    if (form == LF_FORM_SHARDS && (any || v->to == TO_MEGATRON))
        return lf_convert_data_export(&v->d, v->out, err);
    if (form == LF_FORM_UNKNOWN && (rc = lf_foreign_refuse(v->c.from, err)) != 0)
        return rc;
    return lf_fail(err, LF_EINVAL,
                   "%s: %s; what is converted is a Hugging Face or Megatron model (to a "
                   "checkpoint), a checkpoint (to "
                   "hf), PEFT's files (to an adapter), an adapter (to hf, or into its base), an "
                   ".idx (to shards) and shards (to "
                   "megatron)",
                   v->c.from,
                   form == LF_FORM_UNKNOWN
                       ? "no model that is known (no config.json, no manifest.json)"
                       : lf_convert_form_name(form));
}

/* Which results there are follows from what `from` holds: run asks. */
static const char *const *makes(const void *self)
{
    static const char *const none[] = {NULL};
    (void)self;
    return none;
}

int main(int argc, char **argv)
{
    static const lf_stage stage = {.table = &lf_convert_opts,
                                   .setup = setup,
                                   .plan = plan,
                                   .run = run,
                                   .destroy = destroy,
                                   .makes = makes};
    return lf_stage_main(&stage, argc, argv);
}
