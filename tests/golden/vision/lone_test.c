/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoders that are models of their own, as transformers saves them (lone/, ../mae/lone), and
 * models that tell classes: what
 * comes in is what the golden files of the cores have, which are held to transformers themselves;
 * what goes out is what came in, byte for byte; and the encoder of one form goes out in another.
 * What transformers computes of pictures (expected/, by stages/expected.py) proves each of them.
 */
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/str.h"
#include "engine/convert/convert.h"
#include "engine/store/safetensors.h"
#include "tests/tap/tap.h"

static lf_err err = LF_ERR_INIT;
static const char *src, *dir;

static void *need(void *p)
{
    if (!p)
        tap_bail("no memory, or %s", err.text);
    return p;
}

static char *text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* One of the last 16 stays. */
static char *text(const char *fmt, ...)
{
    static char ring[16][512];
    static int at;
    char *s = ring[at++ % 16];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s, sizeof ring[0], fmt, ap);
    va_end(ap);
    return s;
}

/* ---- conversions ---- */

static int convert(bool in, const char *from, const char *out, const char *family,
                   struct lf_convert_result *res)
{
    const struct lf_convert_opts o = {
        .from = from, .out = out, .threads = 1, .family = family, .pad_token = -1};
    return in ? lf_convert_import(&o, res, &err) : lf_convert_export(&o, res, &err);
}

static struct lf_convert_result must(bool in, const char *from, const char *out, const char *family)
{
    struct lf_convert_result res;
    if (convert(in, from, out, family, &res) != 0)
        tap_bail("%s to %s: %s", from, out, err.text);
    return res;
}

/* ---- comparisons ---- */

/* Numbers of tensor `name` of a golden file; NULL: it has none. */
static float *golden(hid_t file, const char *name, bool whole_names, int64_t *n)
{
    char set[160];
    if (strncmp(name, "vision.", 7) != 0 && !whole_names)
        return NULL;
    snprintf(set, sizeof set, "w/%s", whole_names ? name : name + strlen("vision."));
    if (H5Lexists(file, set, H5P_DEFAULT) <= 0)
        return NULL;
    hid_t d = H5Dopen2(file, set, H5P_DEFAULT), s = H5Dget_space(d);
    *n = H5Sget_simple_extent_npoints(s);
    float *p = need(calloc((size_t)*n, sizeof *p));
    if (H5Dread(d, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, p) < 0)
        tap_bail("cannot read %s", set);
    H5Sclose(s);
    H5Dclose(d);
    return p;
}

struct count {
    int same, other, unknown;
};

/* How many weights of a checkpoint are those of the golden file. shift: each is held to what the
 * next one should be. */
static struct count held(const char *ckpt, const char *h5, bool whole_names, bool shift)
{
    struct count c = {0};
    lf_ckpt *k = NULL;
    const char *last = NULL;
    hid_t file = H5Fopen(h5, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0 || lf_ckpt_open(&k, ckpt, 1, &err))
        tap_bail("%s, %s: %s", h5, ckpt, err.text);
    for (size_t i = 0; i < lf_ckpt_n_entries(k); i++) {
        const lf_ckpt_entry *e = lf_ckpt_entry_at(k, i);
        if (strcmp(e->kind, "weight") != 0)
            continue;
        const char *name = e->name + strlen("model/");
        int64_t n = 0, have = 1;
        for (int d = 0; d < e->ndim; d++)
            have *= e->shape[d];
        float *want = golden(file, shift && last ? last : name, whole_names, &n),
              *got = need(calloc((size_t)have, sizeof *got));
        last = name;
        if (lf_ckpt_read_flat(k, e, 0, have, got, &err))
            tap_bail("%s", err.text);
        if (!want)
            c.unknown++;
        else if (n == have && memcmp(want, got, (size_t)n * sizeof *got) == 0)
            c.same++;
        else
            c.other++;
        free(want);
        free(got);
    }
    lf_ckpt_close(k);
    H5Fclose(file);
    return c;
}

/* Are all tensors of directory a, whose names begin with `only`, in b without that beginning? */
static int missed(const char *a, const char *b, const char *only, const char *begins)
{
    lf_st *s = NULL, *t = NULL;
    int bad = 0;
    if (lf_st_open(&s, a, &err) || lf_st_open(&t, b, &err))
        tap_bail("%s", err.text);
    for (size_t i = 0; i < lf_st_n_entries(s); i++) {
        const lf_st_entry *e = lf_st_entry_at(s, i);
        if (!lf_str_has_prefix(e->name, only))
            continue;
        char name[160];
        snprintf(name, sizeof name, "%s%s", begins, e->name + strlen(only));
        const lf_st_entry *f = lf_st_find(t, name);
        char *u = need(malloc((size_t)e->bytes)), *w = need(malloc((size_t)e->bytes));
        const bool same = f && f->bytes == e->bytes && f->dtype == e->dtype && f->ndim == e->ndim &&
                          memcmp(f->shape, e->shape, (size_t)e->ndim * sizeof *e->shape) == 0 &&
                          lf_st_read(s, e, 0, e->elems, u, &err) == 0 &&
                          lf_st_read(t, f, 0, f->elems, w, &err) == 0 &&
                          memcmp(u, w, (size_t)e->bytes) == 0;
        if (!same) {
            bad++;
            tap_diag("%s is not there as it was", e->name);
        }
        free(u);
        free(w);
    }
    lf_st_close(s);
    lf_st_close(t);
    return bad;
}

static bool same_text(const char *a, const char *b)
{
    lf_buf x, y;
    lf_buf_init(&x);
    lf_buf_init(&y);
    if (lf_io_read_file(a, 1 << 20, &x, &err) || lf_io_read_file(b, 1 << 20, &y, &err))
        tap_bail("%s", err.text);
    const bool same = x.len == y.len && memcmp(x.data, y.data, x.len) == 0;
    lf_buf_fini(&x);
    lf_buf_fini(&y);
    return same;
}

static int64_t tensors_of(const char *model)
{
    lf_st *s = NULL;
    if (lf_st_open(&s, model, &err))
        tap_bail("%s", err.text);
    const int64_t n = (int64_t)lf_st_n_entries(s);
    lf_st_close(s);
    return n;
}

/* ---- proofs ---- */

/* A copy of a file of expectations in which the patches of the first picture have moved on by one,
 * the last one to the first place. */
static const char *other_picture(const char *expected)
{
    const char *out = text("%s/other.safetensors", dir);
    lf_st *st = NULL;
    lf_buf b;
    uint64_t head = 0;
    lf_buf_init(&b);
    if (lf_st_open(&st, expected, &err) || lf_io_read_file(expected, 1 << 20, &b, &err))
        tap_bail("%s", err.text);
    const int64_t *shape = lf_st_find(st, "pixels")->shape;
    const size_t patch = (size_t)shape[2] * sizeof(float), rest = (size_t)(shape[1] - 1) * patch;
    for (int i = 7; i >= 0; i--)
        head = head << 8 | (unsigned char)b.data[i];
    const char *offsets = strstr(strstr(b.data + 8, "\"pixels\""), "\"data_offsets\":[");
    char *at = b.data + 8 + head + strtoull(offsets + strlen("\"data_offsets\":["), NULL, 10),
         *last = need(malloc(patch));
    memcpy(last, at + rest, patch);
    memmove(at + patch, at, rest);
    memcpy(at, last, patch);
    free(last);
    if (lf_io_write_file(out, b.data, b.len, 0600, &err))
        tap_bail("%s", err.text);
    lf_buf_fini(&b);
    lf_st_close(st);
    return out;
}

/* A checkpoint of this name computes what transformers does, and other rows of another picture. */
static void proved(const char *ckpt, const char *expected, const char *of)
{
    const char *file = text("%s/tests/golden/vision/expected/%s.safetensors", src, expected);
    struct lf_convert_verdict v = {0}, w = {0};
    lf_err_clear(&err);
    int rc = lf_convert_verify(text("%s/%s", dir, ckpt), file, 1, &v, &err);
    tap_ok(rc == 0 && v.max < 1e-5 && v.rms < 1e-5 && v.rows > (strstr(of, "logits") ? 1 : 20) &&
               strcmp(v.of, of) == 0,
           "%s: proved by %lld %s: %.2g, %.2g %s", ckpt, (long long)v.rows, of, v.max, v.rms,
           err.text);
    rc = lf_convert_verify(text("%s/%s", dir, ckpt), other_picture(file), 1, &w, &err);
    tap_ok(rc == 0 && w.rms > 1e-3, "which another picture is not: %.2g %s", w.rms, err.text);
}

/* A file that is of something else. */
static void unproved(const char *ckpt, const char *file, enum lf_rc want, const char *says)
{
    struct lf_convert_verdict v;
    lf_err_clear(&err);
    const int rc = lf_convert_verify(
        text("%s/%s", dir, ckpt), text("%s/tests/golden/%s.safetensors", src, file), 1, &v, &err);
    tap_ok(rc == (int)want && strstr(err.text, says), "%s by %s: %s", ckpt, file, err.text);
}

/* ---- the forms ---- */

struct form {
    const char *dir, *h5, *family; /* h5 NULL: vit_test.c holds its weights to their gradients */
    int unread;                    /* weights that the golden file has not */
    const char *expected;
};

static void test_weights(const struct form *f, const char *ckpt, const char *h5, bool whole)
{
    const struct count c = held(ckpt, h5, whole, false), shifted = held(ckpt, h5, whole, true);
    tap_ok(c.same > 20 && c.other == 0 && c.unknown == f->unread,
           "%d weights are those of the golden file, %d are not, %d it has not", c.same, c.other,
           c.unknown);
    tap_ok(shifted.other > 20 && shifted.same <= 1, "which %d of their neighbours are not",
           shifted.other);
}

static void test_form(const struct form *f)
{
    const char *name = strrchr(f->dir, '/') + 1, *from = text("%s/tests/golden/%s", src, f->dir),
               *ckpt = text("%s/%s.in", dir, name), *out = text("%s/%s.out", dir, name),
               *h5 = f->h5 ? text("%s/tests/golden/%s", src, f->h5) : NULL;
    const bool whole = f->h5 && strstr(f->h5, "mae");
    const struct lf_convert_result in = must(true, from, ckpt, NULL);
    tap_str(in.family, f->family, name);
    if (h5)
        test_weights(f, ckpt, h5, whole);
    const struct lf_convert_result r = must(false, ckpt, out, NULL);
    tap_ok(same_text(text("%s/config.json", from), text("%s/config.json", out)),
           "config.json goes out as it came in");
    tap_ok(missed(from, out, "", "") == 0 && r.tensors == tensors_of(from),
           "and so do all %lld tensors", (long long)r.tensors);
    proved(text("%s.in", name), f->expected,
           whole   ? "patches"
           : f->h5 ? "rows"
                   : "logits of pictures");
}

static void class_is(const char *model, const char *class)
{
    json_t *o = lf_json_load_file(text("%s/config.json", model), 1 << 20, &err);
    const char *have = json_string_value(json_array_get(json_object_get(o, "architectures"), 0));
    tap_str(have, class, "its class");
    json_decref(o);
}

/* The tower of a pair alone. */
static void test_tower(const char *pair, const char *family, const char *class)
{
    const char *out = text("%s/%s.tower", dir, pair);
    if (strcmp(pair, "siglip2") != 0) /* which came in already, as an encoder */
        must(true, text("%s/tests/golden/vision/lone/%s-pair", src, pair),
             text("%s/%s-pair.in", dir, pair), NULL);
    must(false, text("%s/%s-pair.in", dir, pair), out, family);
    class_is(out, class);
    const char *from = text("%s/tests/golden/vision/lone/%s-pair", src, pair);
    tap_ok(missed(out, from, "vision_model.", "vision_model.") == 0 && tensors_of(out) > 20,
           "has the tensors of the vision tower");
    const struct lf_convert_result in = must(true, out, text("%s/%s.again", dir, pair), NULL);
    tap_str(in.family, family, "and comes in again");
    const struct count c = held(text("%s/%s.again", dir, pair),
                                text("%s/tests/golden/vision/%s.h5", src, pair), false, false);
    tap_ok(c.same > 20 && c.other == 0, "with the same weights");
}

static void test_mae_encoder(void)
{
    const char *out = text("%s/mae.encoder", dir), *from = text("%s/tests/golden/mae/lone", src);
    must(false, text("%s/lone.in", dir), out, "vit-mae-encoder");
    class_is(out, "ViTMAEModel");
    tap_ok(missed(from, out, "vit.", "") == 0 && missed(out, from, "", "vit.") == 0,
           "it has the encoder and nothing else");
    const struct lf_convert_result in = must(true, out, text("%s/mae.again", dir), NULL);
    tap_str(in.family, "vit-mae-encoder", "and comes in again");
    const struct lf_convert_result r =
        must(false, text("%s/mae.again", dir), text("%s/mae.third", dir), NULL);
    tap_ok(r.tensors == tensors_of(out) && missed(out, text("%s/mae.third", dir), "", "") == 0,
           "and goes out again");
    proved("mae.again", "mae-encoder", "rows");
}

static void refused(const char *from, const char *family, const char *says)
{
    struct lf_convert_result res;
    lf_err_clear(&err);
    const int rc = convert(false, text("%s/%s.in", dir, from), text("%s/no", dir), family, &res);
    tap_ok(rc == LF_EINVAL && strstr(err.text, says), "%s as %s: %s", from, family, err.text);
}

int main(void)
{
    static const struct form forms[] = {
        {"vision/lone/clip", "vision/clip.h5", "clip-vision", 2, /* the norm of its pooled output */
         "clip"},
        {"vision/lone/siglip", "vision/siglip.h5", "siglip-vision", 0, "siglip"},
        {"vision/lone/siglip2", "vision/siglip2.h5", "siglip2-vision", 0, "siglip2"},
        {"vision/lone/siglip2-pair", "vision/siglip2.h5", "siglip2", 0, "siglip2"},
        {"vision/lone/dinov2", "vision/dinov2.h5", "dinov2", 0, "dinov2"},
        {"vision/lone/dinov2-swiglu", "vision/dinov2-swiglu.h5", "dinov2", 0, "dinov2-swiglu"},
        {"mae/lone", "mae/mae.h5", "vit-mae", 0, "mae"},
        {"vision/lone/vit", NULL, "vit", 0, "vit"},
        {"vision/lone/deit", NULL, "deit", 0, "deit"},
        {"vision/lone/deit-taught", NULL, "deit-taught", 0, "deit-taught"},
        {"vision/lone/swin", NULL, "swin", 0, "swin"},
        {"vision/lone/swinv2", NULL, "swinv2", 0, "swinv2"},
        {"vision/lone/convnext", NULL, "convnext", 0, "convnext"},
    };
    src = getenv("LF_SRCDIR") ? getenv("LF_SRCDIR") : ".";
    dir = tap_tmpdir();
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        TAP(forms[i].h5 ? 7 : 5, test_form(&forms[i]));
    TAP(4, test_tower("clip", "clip-vision", "CLIPVisionModel"));
    TAP(4, test_tower("siglip", "siglip-vision", "SiglipVisionModel"));
    TAP(4, test_tower("siglip2", "siglip2-vision", "Siglip2VisionModel"));
    TAP(6, test_mae_encoder());
    TAP(1, refused("clip", "dinov2", "vision.family = dinov2"));
    TAP(1, refused("siglip2", "siglip2", "text tower"));
    TAP(1, refused("dinov2", "vit-mae", "vision.family"));
    TAP(1, refused("vit", "deit-taught", "encoders of vision.family = deit"));
    TAP(1, refused("deit", "deit-taught", "classes.read = both"));
    TAP(1, refused("clip", "llama", "encoder of pictures alone"));
    TAP(1, unproved("clip.in", "peft/llama/expected", LF_EFORMAT, "encoder of pictures"));
    TAP(1, unproved("lone.in", "vision/expected/clip", LF_EFORMAT, "no restored"));
    TAP(1, unproved("clip.in", "vision/expected/mae", LF_EFORMAT, "no hidden"));
    TAP(1, unproved("vit.in", "vision/expected/mae", LF_EFORMAT, "no logits"));
    TAP(1, unproved("clip.in", "vision/expected/siglip", LF_EINVAL, "25 rows"));
    return tap_done();
}
