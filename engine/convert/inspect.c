/* SPDX-License-Identifier: Apache-2.0
 *
 * What a path holds, as JSON: read from headers and manifests alone. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/convert/families.h"
#include "engine/convert/priv.h"
#include "engine/model/scales.h"
#include "engine/model/weights.h"
#include "engine/store/foreign.h"
#include "engine/store/megatron_ckpt.h"
#include "engine/store/megatron_data.h"

/* [name, dtype, shape] of every tensor, and how many elements and bytes they are. */
static int add_tensor(json_t *list, const char *name, const char *dtype, int ndim,
                      const int64_t *shape)
{
    json_t *dims = json_array(),
           *row = dims ? json_pack("{s:s, s:s, s:O}", "name", name, "dtype", dtype, "shape", dims)
                       : NULL;
    int bad = !row;
    for (int k = 0; k < ndim && !bad; k++)
        bad = json_array_append_new(dims, json_integer(shape[k]));
    json_decref(dims);
    if (bad)
        json_decref(row);
    return bad || json_array_append_new(list, row);
}

static int tensors_of(json_t *o, const lf_st *s)
{
    json_t *list = json_array();
    int64_t elems = 0, bytes = 0;
    int bad = !list;
    for (size_t i = 0; i < lf_st_n_entries(s) && !bad; i++) {
        const lf_st_entry *e = lf_st_entry_at(s, i);
        elems += e->elems;
        bytes += e->bytes;
        bad = add_tensor(list, e->name, lf_st_dtype_name(e->dtype), e->ndim, e->shape);
    }
    bad = bad || json_object_set_new(o, "elements", json_integer(elems)) ||
          json_object_set_new(o, "bytes", json_integer(bytes)) ||
          json_object_set(o, "tensors", list);
    json_decref(list);
    return bad;
}

/* A part that cannot be read is told, not fatal: inspecting is for finding out what is wrong. */
static int tell(json_t *o, const char *key, const lf_err *why)
{
    return json_object_set_new(o, key, json_string(why->text));
}

static int inspect_map(json_t *o, const struct lf_hf_family *f, lf_model_config *c,
                       const struct lf_hf_quant *quant, lf_st *st)
{
    lf_err why = LF_ERR_INIT;
    lf_map map = {0};
    struct lf_map_form form;
    int fits = lf_hf_unquantise(st, quant, &why);
    fits = fits != 0 ? fits : lf_hf_settle_tie(c, f, st, &why);
    fits = fits != 0 ? fits : lf_hf_form(&form, f, c, st, NULL, &why);
    fits = fits != 0 ? fits : lf_map_build(&map, &form, c, &why);
    fits = fits != 0 ? fits : lf_map_bind(&map, st, &form, f->canon, &why);
    lf_map_fini(&map);
    return fits ? tell(o, "mapping_error", &why)
                : json_object_set_new(o, "mapping", json_string("complete"));
}

/* config: config.json, or the arguments of Megatron. st NULL: it could not be opened, why is told
 * already. */
static int inspect_parts(json_t *o, const struct lf_hf_family *f, json_t *config, const char *path,
                         lf_st *st)
{
    lf_err why = LF_ERR_INIT;
    lf_model_config c;
    struct lf_hf_quant quant;
    int rc = lf_hf_config_read(&c, f, config, path, &why);
    if (rc == 0)
        rc = lf_hf_quant_read(&quant, config, path, &why);
    int bad = json_object_set_new(o, "family", json_string(f->name));
    if (rc != 0)
        return bad || tell(o, "config_error", &why);
    bad = bad || json_object_set_new(o, "model", lf_model_config_to_json(&c, NULL)) ||
          json_object_set_new(o, "parameters", json_integer(lf_model_param_count(&c)));
    return bad || (st ? inspect_map(o, f, &c, &quant, st) : 0);
}

/* What is not of the part that was asked for is no tensor of it. */
static int open_part(lf_st **st, const char *dir, int parts, lf_err *why)
{
    lf_buf left;
    int rc = lf_hf_open_tensors(st, dir, why);
    if (rc != 0 || parts != LF_PARTS_TEXT)
        return rc;
    lf_buf_init(&left);
    rc = lf_hf_text_tensors(*st, &left, why);
    lf_buf_fini(&left);
    return rc;
}

static int inspect_hf(json_t *o, const char *dir, int parts)
{
    lf_err why = LF_ERR_INIT;
    lf_st *st = NULL;
    int bad = open_part(&st, dir, parts, &why) ? tell(o, "tensors_error", &why) : tensors_of(o, st);
    lf_err_clear(&why);
    json_t *config = lf_hf_read_json(dir, LF_HF_CONFIG, &why);
    if (config && parts == LF_PARTS_TEXT) {
        json_t *part = lf_hf_text_part(config, LF_HF_CONFIG, &why);
        json_decref(config);
        config = part;
    }
    const struct lf_hf_family *f = config ? lf_hf_family_of(config, LF_HF_CONFIG, &why) : NULL;
    bad =
        bad || (f ? inspect_parts(o, f, config, LF_HF_CONFIG, st) : tell(o, "config_error", &why));
    lf_st_close(st);
    json_decref(config);
    return bad;
}

static int inspect_megatron(json_t *o, const char *dir)
{
    lf_err why = LF_ERR_INIT;
    lf_st *st = NULL;
    json_t *args = NULL;
    if (lf_megatron_ckpt_open(&st, &args, dir, NULL, &why))
        return tell(o, "tensors_error", &why);
    int bad = tensors_of(o, st) || json_object_set(o, "arguments", args) ||
              inspect_parts(o, &lf_hf_megatron, args, dir, st);
    lf_st_close(st);
    json_decref(args);
    return bad;
}

static int inspect_idx(json_t *o, const char *path, lf_err *err)
{
    lf_megatron_data *d = NULL;
    int rc = lf_megatron_open(&d, path, err);
    if (rc != 0)
        return rc;
    const lf_megatron_info *i = lf_megatron_get_info(d);
    int bad = json_object_set_new(o, "dtype", json_string(lf_megatron_dtype_name(i->dtype))) ||
              json_object_set_new(o, "sequences", json_integer((json_int_t)i->n_seqs)) ||
              json_object_set_new(o, "documents", json_integer((json_int_t)i->n_docs)) ||
              json_object_set_new(o, "tokens", json_integer((json_int_t)i->n_tokens)) ||
              json_object_set_new(o, "modes", json_boolean(i->modes != NULL)) ||
              json_object_set_new(o, "packed", json_boolean(i->packed));
    lf_megatron_close(d);
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

bool lf_convert_is_moment(const char *kind)
{
    static const char *const others[] = {"weight", LF_CONVERT_KEPT, LF_SCALES_KIND, LF_CODES_KIND};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(kind, others[i]) == 0)
            return false;
    return true;
}

/* Numbers in a tensor of a manifest; 0 for what is none of the model's. */
static json_int_t elements_of_weight(const json_t *tensor)
{
    const char *kind = json_string_value(json_object_get(tensor, "kind"));
    json_int_t n = 1;
    json_t *d;
    size_t i;
    if (!kind || strcmp(kind, "weight") != 0)
        return 0;
    json_array_foreach(json_object_get(tensor, "shape"), i, d) n *= json_integer_value(d);
    return n;
}

/* From the manifest: bytes are not looked at. */
static int inspect_artifact(json_t *o, const char *dir, lf_err *err)
{
    static const char *const keys[] = {
        "identity",   "step",          "family", "checkpoint_identity",
        "vocab_size", "eos_token_ids", "splits"};
    lf_artifact a = {0};
    int64_t bytes = 0;
    int rc = lf_artifact_load(&a, dir, NULL, err), bad = 0;
    if (rc != 0)
        return rc;
    for (size_t i = 0; i < a.n_files; i++)
        bytes += a.files[i].bytes;
    bad = json_object_set_new(o, "kind", json_string(a.kind)) ||
          json_object_set_new(o, "files", json_integer((json_int_t)a.n_files)) ||
          json_object_set_new(o, "bytes", json_integer(bytes));
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && !bad; i++)
        if (json_object_get(a.meta, keys[i]))
            bad = json_object_set(o, keys[i], json_object_get(a.meta, keys[i]));
    json_t *list = json_array(), *t;
    size_t i;
    json_int_t weights = 0;
    bad = bad || !list;
    json_array_foreach(json_object_get(a.meta, "tensors"), i, t)
    {
        weights += elements_of_weight(t);
        json_t *row = json_pack("{s:O*, s:O*, s:O*, s:O*}", "name", json_object_get(t, "name"),
                                "kind", json_object_get(t, "kind"), "dtype",
                                json_object_get(t, "dtype"), "shape", json_object_get(t, "shape"));
        bad = bad || json_array_append_new(list, row);
    }
    if (weights)
        bad = bad || json_object_set_new(o, "parameters", json_integer(weights));
    if (json_array_size(list))
        bad = bad || json_object_set(o, "tensors", list);
    json_decref(list);
    lf_artifact_fini(&a);
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

static int inspect_checkpoint(json_t *o, const char *dir, lf_err *err)
{
    json_t *state = lf_hf_read_json(dir, "state.json", err), *hf = json_object_get(state, "hf");
    int rc = state ? inspect_artifact(o, dir, err) : LF_EFORMAT;
    json_t *model = json_object_get(state, "model"), *family = json_object_get(model, "family");
    if (rc == 0 && family && !json_object_get(o, "family"))
        json_object_set(o, "family", family);
    if (rc == 0 && model)
        json_object_set(o, "model", model);
    if (rc == 0 && hf)
        json_object_set(o, "imported_from", json_object_get(hf, "family"));
    json_decref(state);
    return rc;
}

json_t *lf_convert_inspect(const char *path, int parts, lf_err *err)
{
    enum lf_convert_form form = LF_FORM_UNKNOWN;
    int rc = lf_convert_form_of(&form, path, err);
    json_t *o =
        rc != 0 ? NULL : json_pack("{s:s, s:s}", "path", path, "form", lf_convert_form_name(form));
    if (rc == 0 && !o)
        rc = lf_fail(err, LF_EFORMAT, "the path is not UTF-8");
    if (rc == 0 && form == LF_FORM_HF && inspect_hf(o, path, parts))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0 && form == LF_FORM_MEGATRON && inspect_megatron(o, path))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0 && form == LF_FORM_IDX)
        rc = inspect_idx(o, path, err);
    if (rc == 0 && form == LF_FORM_CHECKPOINT)
        rc = inspect_checkpoint(o, path, err);
    if (rc == 0 && (form == LF_FORM_SHARDS || form == LF_FORM_TOKENIZER))
        rc = inspect_artifact(o, path, err);
    if (rc == 0 && form == LF_FORM_UNKNOWN)
        rc = lf_foreign_refuse(path, err);
    if (rc == 0 && form == LF_FORM_UNKNOWN)
        rc = lf_fail(err, LF_EINVAL,
                     "%s holds nothing that is known: no config.json, no manifest.json", path);
    if (rc == 0)
        return o;
    json_decref(o);
    return NULL;
}
