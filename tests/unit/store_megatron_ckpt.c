/* SPDX-License-Identifier: Apache-2.0
 *
 * Megatron-LM checkpoints: merged over ranks and stages they are the model that was divided; what
 * does not fit together is refused by name. Directories: tests/golden/store/make_megatron_ckpt.py.
 */
#include "engine/store/megatron_ckpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/store/safetensors.h"
#include "tests/tap/tap.h"

#define ROWS 10 /* of the vocabulary, when asked to cut its padding */

static const char *golden(const char *name, const char *file)
{
    static char path[4][4096];
    static int turn;
    char *p = path[turn++ % 4];
    const char *src = getenv("LF_SRCDIR");
    snprintf(p, sizeof path[0], "%s/tests/golden/store/megatron_ckpt/%s%s", src ? src : ".", name,
             file);
    return p;
}

static void same_tensor(const lf_st *s, const lf_st_entry *e, const lf_st *want,
                        const lf_st_entry *w, bool cut)
{
    unsigned char a[4096], b[4096], part[4096];
    lf_err err = LF_ERR_INIT;
    bool vocab =
        cut && w->ndim == 2 && (strstr(w->name, "word_emb") || strstr(w->name, "output_layer"));
    size_t elem = lf_st_dtype_bytes(e->dtype);
    int64_t rows = vocab ? ROWS : w->ndim ? w->shape[0] : 1;
    tap_ok(e->dtype == w->dtype && e->ndim == w->ndim && e->shape[0] == rows &&
               e->shape[1] == w->shape[1],
           "%s: type and shape", w->name);
    if (lf_st_read(s, e, 0, e->elems, a, &err) < 0 || lf_st_read(want, w, 0, w->elems, b, &err) < 0)
        tap_bail("%s", err.text);
    tap_mem(a, b, (size_t)e->bytes, w->name);
    bool ok = true;
    for (int64_t lo = 0; lo < e->elems && ok; lo += 5)
        for (int64_t hi = lo + 1; hi <= e->elems && ok; hi += 11)
            ok = lf_st_read(s, e, lo, hi - lo, part, &err) == 0 &&
                 memcmp(part, b + (size_t)lo * elem, (size_t)(hi - lo) * elem) == 0;
    tap_ok(ok, "%s: ranges", w->name);
}

static void good(const char *name, bool cut, size_t copies)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL, *want = NULL;
    json_t *args = NULL;
    size_t missing = 0;
    int64_t v = 0;
    tap_rc(lf_megatron_ckpt_open(&s, &args, golden(name, ""),
                                 &(lf_megatron_ckpt_options){.vocab_size = cut ? ROWS : 0}, &err),
           0, &err, NULL, name);
    tap_rc(lf_st_open(&want, golden(name, "/expected.safetensors"), &err), 0, &err, NULL,
           "what it should be");
    if (!s || !want)
        return;
    for (size_t i = 0; i < lf_st_n_entries(want); i++) {
        const lf_st_entry *w = lf_st_entry_at(want, i), *e = lf_st_find(s, w->name);
        if (e)
            same_tensor(s, e, want, w, cut);
        else
            missing++;
    }
    tap_i64((int64_t)missing, 0, "no tensor is missing");
    tap_i64((int64_t)lf_st_n_entries(s), (int64_t)(lf_st_n_entries(want) + copies),
            "and there is none too many");
    for (size_t i = 0, n = 0; i < lf_st_n_entries(s); i++) {
        n += lf_st_entry_at(s, i)->alias_of >= 0;
        if (i + 1 == lf_st_n_entries(s))
            tap_i64((int64_t)n, (int64_t)copies, "copies of tied embeddings are aliases");
    }
    tap_ok(lf_json_get_i64(&v, args, "hidden_size", true, "args", &err) == 0 && v == 8,
           "arguments");
    tap_ok(lf_json_get_i64(&v, args, "model_type", true, "args", &err) == 0 && v == 1,
           "an enumeration is its value");
    tap_str(json_string_value(json_object_get(args, "params_dtype")), "F32", "a dtype is its name");
    tap_ok(json_array_size(json_object_get(args, "data_path")) == 2, "a list");
    tap_ok(json_is_null(json_object_get(args, "tokenizer_model")), "None");
    tap_ok(json_is_real(json_object_get(args, "checkpoint_version")), "the version");
    json_decref(args);
    lf_st_close(s);
    lf_st_close(want);
}

static const struct {
    const char *name;
    int rc;
    const char *text;
} BAD[] = {
    {"bad-norm", LF_EFORMAT, "tensor decoder.final_layernorm.weight should be the same in"},
    {"bad-kind", LF_ENOTSUP, "tensor decoder.layers.0.mlp.mystery.weight is of no known kind"},
    {"bad-names", LF_EFORMAT, "rank 1 has other tensors than rank 0, near"},
    {"bad-shape", LF_EFORMAT, "mlp.linear_fc1.weight: rank 1 has another type or shape"},
    {"bad-qkv", LF_EFORMAT, "linear_qkv.weight has 14 rows over 2 ranks"},
    {"bad-rank", LF_EFORMAT,
     "name 2 tensor and 1 pipeline ranks, the directory has 1 and 1 (a missing rank?)"},
    {"bad-layers", LF_EFORMAT, "the files hold 1 layers, num_layers is 2"},
    {"bad-experts", LF_ENOTSUP, "expert_model_parallel_size"},
    {"bad-tracker", LF_EFORMAT, "holds \"soon\", neither a number nor"},
    {"bad-gone", LF_ENOENT, "names iter_0000030, which is not there"},
    {"bad-tied", LF_EFORMAT, "(tied embeddings) and are not"},
};

static void bad(void)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    json_t *args = NULL;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        tap_rc(lf_megatron_ckpt_open(&s, &args, golden(BAD[i].name, ""), NULL, &err), BAD[i].rc,
               &err, BAD[i].text, BAD[i].name);
    tap_rc(lf_megatron_ckpt_open(&s, &args, tap_tmpdir(), NULL, &err), LF_ENOENT, &err,
           "holds neither", "nothing there");
    tap_rc(lf_megatron_ckpt_open(&s, &args, golden("core-tp2-pp2", ""),
                                 &(lf_megatron_ckpt_options){.vocab_size = 13}, &err),
           LF_EINVAL, &err, "has 12 rows, fewer than the vocabulary of 13",
           "a vocabulary larger than the embeddings");
    tap_ok(!s && !args, "nothing is returned");
}

/* One iteration's directory; then a rank that is a link, and one without its file. */
static void directories(void)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    char path[4096], from[4096];
    tap_rc(lf_megatron_ckpt_open(&s, NULL, golden("core-tp2-vpp", "/release"), NULL, &err), 0, &err,
           NULL, "an iteration");
    lf_st_close(s);
    s = NULL;
    snprintf(path, sizeof path, "%s/common.pt", tap_tmpdir());
    if (lf_io_write_file(path, "x", 1, 0640, &err) < 0)
        tap_bail("%s", err.text);
    tap_rc(lf_megatron_ckpt_open(&s, NULL, tap_tmpdir(), NULL, &err), LF_ENOTSUP, &err,
           "torch_dist", "the newer form");
    snprintf(path, sizeof path, "%s/it/mp_rank_00", tap_tmpdir());
    if (lf_io_mkdirs(path, 0750, &err) < 0)
        tap_bail("%s", err.text);
    snprintf(path, sizeof path, "%s/it", tap_tmpdir());
    tap_rc(lf_megatron_ckpt_open(&s, NULL, path, NULL, &err), LF_ENOENT, &err,
           "a checkpoint of 1 tensor and 1 pipeline ranks", "a rank without its file");
    snprintf(path, sizeof path, "%s/it/mp_rank_00/model_optim_rng.pt", tap_tmpdir());
    snprintf(from, sizeof from, "%s",
             golden("old-v2", "/iter_0000020/mp_rank_00/model_optim_rng.pt"));
    if (symlink(from, path) < 0)
        tap_bail("cannot make a link");
    snprintf(path, sizeof path, "%s/it", tap_tmpdir());
    tap_rc(lf_megatron_ckpt_open(&s, NULL, path, NULL, &err), LF_EINVAL, &err, "symbolic link",
           "a rank's file is a link");
}

int main(void)
{
    TAP(83, good("core-tp2-pp2", false, 0));
    TAP(83, good("core-tp2-pp2", true, 0));
    TAP(101, good("core-tp2-vpp", true, 1));
    TAP(95, good("old-v1-tp2", false, 0));
    TAP(95, good("old-v0-tp2-pp2", false, 1));
    TAP(95, good("old-v2", true, 0));
    TAP(14, bad());
    TAP(4, directories());
    return tap_done();
}
