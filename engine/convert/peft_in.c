/* SPDX-License-Identifier: Apache-2.0
 *
 * An adapter as PEFT keeps it to one of ours. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/bf16.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/str.h"
#include "engine/convert/peft_priv.h"
#include "engine/model/weights.h"
#include "engine/store/safetensors.h"

/* ---- adapter_config.json ---- */

/* Keys whose other values make another function; value: what is known here, as JSON. */
static const struct {
    const char *key, *value;
} fixed[] = {{"peft_type", "\"LORA\""},
             {"bias", "\"none\""},
             {"lora_bias", "false"},
             {"use_qalora", "false"}};

/* Keys that change no number here, or that are read below. Any other must hold nothing. */
static const char *const known[] = {"r",
                                    "lora_alpha",
                                    "lora_dropout",
                                    "use_rslora",
                                    "use_dora",
                                    "target_modules",
                                    "target_parameters",
                                    "exclude_modules",
                                    "fan_in_fan_out",
                                    "auto_mapping",
                                    "base_model_name_or_path",
                                    "revision",
                                    "peft_version",
                                    "task_type",
                                    "inference_mode",
                                    "init_lora_weights",
                                    "layers_pattern",
                                    "layers_to_transform",
                                    "modules_to_save",
                                    "megatron_core",
                                    "loftq_config",
                                    "qalora_group_size",
                                    "runtime_config"};

static bool is_empty(json_t *v)
{
    return !v || json_is_null(v) || json_is_false(v) ||
           (json_is_object(v) && json_object_size(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0);
}

static bool is_known(const char *key)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(key, known[i]) == 0)
            return true;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (strcmp(key, fixed[i].key) == 0)
            return true;
    return false;
}

/* What is trained whole: the head of a sequence classifier, by its two names. Tells whether it is
 * named. */
static int check_saved(bool *head, json_t *o, const char *where, lf_err *err)
{
    size_t i;
    json_t *v, *saved = json_object_get(o, "modules_to_save");
    if (saved && !json_is_null(saved) && !json_is_array(saved))
        return lf_fail(err, LF_EFORMAT, "%s: modules_to_save is no list", where);
    json_array_foreach(saved, i, v)
    {
        const char *s = json_string_value(v);
        if (!s || (strcmp(s, "score") != 0 && strcmp(s, "classifier") != 0))
            return lf_fail(
                err, LF_ENOTSUP,
                "%s: modules_to_save holds %s; only score, a reward model's head, is known", where,
                s ? s : "something else than names");
        *head = true;
    }
    return 0;
}

static int check_keys(json_t *o, const char *where, lf_err *err)
{
    const char *key;
    json_t *v, *init = json_object_get(o, "init_lora_weights");
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        v = json_object_get(o, fixed[i].key);
        char *is = v && !json_is_null(v) ? json_dumps(v, JSON_ENCODE_ANY) : NULL;
        const bool same = !is || strcmp(is, fixed[i].value) == 0;
        int rc = same ? 0
                      : lf_fail(err, LF_ENOTSUP, "%s: %s = %s; only %s is known", where,
                                fixed[i].key, is, fixed[i].value);
        free(is);
        if (rc != 0)
            return rc;
    }
    json_object_foreach(o, key, v) if (!is_known(key) && !is_empty(v)) return lf_fail(
        err, LF_ENOTSUP, "%s: %s is set, which is not known here", where, key);
    if (json_is_string(init) &&
        strcmp(json_string_value(init), "gaussian") != 0) /* PiSSA and others change the base */
        return lf_fail(err, LF_ENOTSUP,
                       "%s: init_lora_weights = %s belongs to a base that it changed", where,
                       json_string_value(init));
    return 0;
}

/* ac->head: whether a head is said to be there. */
static int read_config(struct lf_adapter_config *ac, const char *dir, lf_err *err)
{
    json_t *o = lf_hf_read_json(dir, LF_PEFT_CONFIG, err);
    int rc = o ? check_keys(o, LF_PEFT_CONFIG, err) : err && err->rc ? err->rc : LF_EFORMAT;
    if (rc == 0)
        rc = check_saved(&ac->head, o, LF_PEFT_CONFIG, err);
    if (rc == 0)
        rc = lf_json_get_i64(&ac->rank, o, "r", true, LF_PEFT_CONFIG, err);
    if (rc == 0) {
        ac->alpha = json_number_value(json_object_get(o, "lora_alpha"));
        ac->dropout = json_number_value(json_object_get(o, "lora_dropout"));
        ac->rank_stabilised = json_is_true(json_object_get(o, "use_rslora"));
        ac->dora = json_is_true(json_object_get(o, "use_dora"));
        rc = lf_adapter_check(ac, err) ? lf_err_prefix(err, LF_PEFT_CONFIG) : 0;
    }
    json_decref(o);
    return rc;
}

/* ---- which of our layers ---- */

/* Entry `which` (0 A, 1 B, 2 magnitude) of a module. */
static const lf_st_entry *find(const lf_st *s, const char *module, size_t len, int which)
{
    char key[512];
    snprintf(key, sizeof key, LF_PEFT_BEFORE "%.*s.%s", (int)len, module,
             lf_peft_tensors[which].theirs);
    return lf_st_find(s, key);
}

/* What layers of one kind are called, before their number. NULL: it is in none. */
static const char *layers_of(const char *name)
{
    static const char *const all[] = {"layers.", "vision.layers.", "projector.deep."};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (lf_str_has_prefix(name, all[i]))
            return all[i];
    return NULL;
}

/* "layers.0.attn.q.weight": where "attn.q" begins, and how long it is. */
static const char *place_in_layer(const char *name, size_t *n)
{
    const char *in = layers_of(name), *p = in ? strchr(name + strlen(in), '.') : NULL;
    p = p ? p + 1 : name;
    *n = (size_t)(strrchr(p, '.') - p);
    return p;
}

static bool in_decoder(const char *name)
{
    return lf_str_has_prefix(name, "layers.");
}

/* Have layers of that name adapters? */
static bool can_have(const char *name)
{
    return in_decoder(name) || lf_str_has_prefix(name, "vision.layers.") ||
           lf_str_has_prefix(name, "projector.");
}

/* Would the short name of a tensor or group, the end of its place, mean others too? */
static bool is_short(const struct lf_peft *p, const char *place, size_t n)
{
    size_t from = n, m;
    while (from > 0 && place[from - 1] != '.')
        from--;
    for (int i = 0; i < lf_pstore_count(p->ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(p->ps, i);
        const char *const both[] = {d->name, d->group};
        if (d->ndim < 2 || !in_decoder(d->name) || !lf_str_has_suffix(d->name, ".weight"))
            continue;
        for (int k = 0; k < 2; k++) {
            const char *o = place_in_layer(both[k], &m);
            const size_t tail = n - from;
            if (m > tail && o[m - tail - 1] == '.' &&
                strncmp(o + m - tail, place + from, tail) == 0 &&
                (m != n || strncmp(o, place, n) != 0))
                return false;
        }
    }
    return true;
}

/* place: "attn.q", or of parts that share an A "attn.q+gate"; of: the name of one of them. */
static void add_target(struct lf_peft *p, const char *of, const char *place, size_t n)
{
    struct lf_adapter_config *ac = &p->ac;
    char target[sizeof ac->target[0]];
    const char *end = place + n, *from = end;
    while (from > place && from[-1] != '.')
        from--;
    const char *in = layers_of(of);
    if (!memchr(place, '+', n) && in_decoder(of) && is_short(p, place, n))
        snprintf(target, sizeof target, "%.*s", (int)(end - from), from);
    else
        snprintf(target, sizeof target, "%s%s%.*s.weight", in ? in : "", in ? "*." : "", (int)n,
                 place);
    for (int t = 0; t < ac->n_targets && t < LF_ADAPTER_TARGETS; t++)
        if (strcmp(ac->target[t], target) == 0)
            return;
    if (ac->n_targets < LF_ADAPTER_TARGETS)
        memcpy(ac->target[ac->n_targets], target, sizeof target);
    ac->n_targets++; /* find_targets refuses too many */
}

static bool has_source(const struct lf_peft *p, const struct lf_map_parts *parts, const char *name)
{
    for (size_t g = 0; g < parts->n; g++)
        if (strcmp(p->map.ours[parts->segs[g].src].name, name) == 0)
            return true;
    return false;
}

/* The target that a module is: a tensor, a group, or some of a group. */
static void add_module(struct lf_peft *p, const struct lf_map_parts *parts)
{
    const char *first = p->map.ours[parts->segs[0].src].name;
    const int i = lf_pstore_find(p->ps, first);
    const char *group = i < 0 ? first : lf_pstore_desc(p->ps, i)->group;
    char joined[96];
    size_t n, at = 0, in = 0, all = 0;
    for (int k = 0; k < lf_pstore_count(p->ps); k++) {
        const struct lf_param_desc *d = lf_pstore_desc(p->ps, k);
        if (strcmp(d->group, group) != 0)
            continue;
        all++;
        if (!has_source(p, parts, d->name) || at + 1 >= sizeof joined)
            continue;
        const char *place = place_in_layer(d->name, &n), *last = place + n;
        while (in && last > place && last[-1] != '.')
            last--;
        last = in ? last : place;
        at += (size_t)snprintf(joined + at, sizeof joined - at, "%s%.*s", in ? "+" : "",
                               (int)(place + n - last), last);
        in++;
    }
    if (in > 1 && in < all) {
        add_target(p, first, joined, at < sizeof joined ? at : sizeof joined - 1);
        return;
    }
    const char *place = place_in_layer(in > 1 ? group : first, &n);
    add_target(p, first, place, n);
}

/* A module of a model that sees which has no adapter here. */
static int refuse_outside(const char *module, const char *ours, lf_err *err)
{
    const bool words = lf_str_has_prefix(ours, "embed.") || lf_str_has_prefix(ours, "head.");
    return lf_fail(err, LF_ENOTSUP,
                   "the file adapts %s, which is %s here: linear layers of decoder, encoder and "
                   "projector have adapters, %s have none; train it without them (exclude_modules "
                   "of PEFT)",
                   module, ours, words ? "embedding and head" : "patches and positions");
}

/* The parts that the file has adapters of. */
static int find_targets(struct lf_peft *p, const lf_st *s, lf_err *err)
{
    for (size_t k = 0; k < p->map.n_items; k++) {
        const struct lf_map_item *it = &p->map.items[k];
        const struct lf_map_parts *parts = &p->map.of_item[k];
        const size_t n = strlen(it->name), tail = strlen(".weight");
        if (n <= tail || strcmp(it->name + n - tail, ".weight") != 0 || !parts->n)
            continue;
        const char *module = lf_peft_module(p, it->name, err);
        if (!module)
            return LF_ENOMEM;
        if (!find(s, module, strlen(module), 0))
            continue;
        const char *ours = p->map.ours[parts->segs[0].src].name;
        if (p->map.ours[parts->segs[0].src].ndim == 3)
            return lf_fail(err, LF_ENOTSUP,
                           "the file adapts %s, a module of one expert; adapters of experts are "
                           "known of stacked parameters (target_parameters of PEFT)",
                           module);
        if (p->family->sight && !can_have(ours))
            return refuse_outside(module, ours, err);
        add_module(p, parts);
    }
    return p->ac.n_targets <= LF_ADAPTER_TARGETS
               ? lf_peft_stack_targets(p, s, err)
               : lf_fail(err, LF_ENOTSUP,
                         "the file adapts layers of more kinds than %d, which is as many as an "
                         "adapter has here",
                         LF_ADAPTER_TARGETS);
}

/* ---- tensors ---- */

/* Tensor e of the file as f32 [rows, cols], cols 0: [rows]. */
static int read_f32(struct lf_peft *p, const lf_st *s, const lf_st_entry *e, int64_t rows,
                    int64_t cols, float **out, lf_err *err)
{
    if ((e->dtype != LF_ST_F32 && e->dtype != LF_ST_BF16) || e->ndim != (cols ? 2 : 1) ||
        e->shape[0] != rows || (cols && e->shape[1] != cols))
        return lf_fail(err, LF_EFORMAT, "%s: it is not F32 or BF16 [%lld, %lld]", e->name,
                       (long long)rows, (long long)cols);
    float *x = lf_arena_alloc(p->arena, (size_t)e->elems, sizeof *x, err);
    if (!x)
        return LF_ENOMEM;
    int rc = lf_st_read(s, e, 0, e->elems, x, err);
    const char *half = (const char *)x;
    for (int64_t i = e->elems - 1; i >= 0 && rc == 0 && e->dtype == LF_ST_BF16;
         i--) { /* widened in place, from the end */
        uint16_t h;
        memcpy(&h, half + 2 * i, 2);
        x[i] = lf_f32_of_bf16(h);
    }
    *out = x;
    return rc;
}

/* The head as it is. */
static int take_head(struct lf_peft *p, const lf_st *s, lf_ckpt_tensor *t, lf_err *err)
{
    const int i = lf_pstore_find(p->ps, LF_PEFT_SCORE);
    const int64_t cols = lf_pstore_desc(p->ps, i)->dims[1];
    float *x = NULL;
    int rc = read_f32(p, s, lf_st_find(s, LF_PEFT_HEAD), 1, cols, &x, err);
    *t = (lf_ckpt_tensor){.name = LF_WEIGHTS_PREFIX LF_PEFT_SCORE,
                          .kind = "weight",
                          .dtype = LF_H5_F32,
                          .ndim = 2,
                          .shape = {1, cols},
                          .data = x};
    return rc;
}

/* Tensor `which` of the adapter of ours that begins with stem. */
static int name_tensor(struct lf_peft *p, lf_ckpt_tensor *t, const char *stem, int which,
                       lf_err *err)
{
    t->name = lf_arena_printf(p->arena, err, LF_WEIGHTS_PREFIX "%s.%s", stem,
                              lf_peft_tensors[which].ours);
    t->kind = "weight";
    t->dtype = LF_H5_F32;
    return t->name ? 0 : LF_ENOMEM;
}

/* Tensor `which` of a module, its rows in our order, as one of ours or several; *n counts them. */
static int take_tensor(struct lf_peft *p, const lf_st *s, const struct lf_peft_unit *u, int which,
                       lf_ckpt_tensor *t, size_t *n, lf_err *err)
{
    const struct lf_peft_shape sh = lf_peft_shape(p, u, which);
    const lf_st_entry *e = find(s, u->module, strlen(u->module), which);
    const int64_t cols = sh.cols ? sh.cols : 1;
    float *x = NULL;
    if (!e)
        return lf_fail(err, LF_ENOTSUP,
                       "%s has no %s in the file: an adapter of some layers only is not known here",
                       u->module, lf_peft_tensors[which].theirs);
    int rc = read_f32(p, s, e, sh.rows, sh.cols, &x, err);
    float *ours = rc || !sh.permuted
                      ? x
                      : lf_arena_alloc(p->arena, (size_t)(sh.rows * cols), sizeof *ours, err);
    if (rc != 0 || !ours)
        return rc != 0 ? rc : LF_ENOMEM;
    for (int64_t r = 0; r < sh.rows && sh.permuted; r++)
        memcpy(ours + u->row[r] * cols, x + r * cols, (size_t)cols * sizeof *ours);
    for (int k = 0; k < lf_peft_parts(u, which); k++) {
        const struct lf_peft_part of = lf_peft_part(p, u, which, k);
        t[*n] = (lf_ckpt_tensor){
            .ndim = sh.cols ? 2 : 1, .shape = {of.rows, sh.cols}, .data = ours + of.at * cols};
        if (name_tensor(p, &t[(*n)++], of.stem, which, err))
            return LF_ENOMEM;
    }
    return 0;
}

/* Tensor `which` of a stacked parameter of experts, as one of ours or two; *n counts them. */
static int take_stack(struct lf_peft *p, const lf_st *s, const struct lf_peft_experts *x, int which,
                      lf_ckpt_tensor *t, size_t *n, lf_err *err)
{
    int64_t shape[2];
    lf_peft_stack_shape(p, x, which, shape);
    const char *theirs = lf_peft_stack_name(p, x, which, err);
    const lf_st_entry *e = theirs ? lf_st_find(s, theirs) : NULL;
    float *all = NULL, *ours = NULL;
    if (!theirs)
        return LF_ENOMEM;
    int rc = e ? read_f32(p, s, e, shape[0], shape[1], &all, err)
               : lf_fail(err, LF_ENOTSUP,
                         "%s is not in the file: an adapter of some layers only is not known here",
                         theirs);
    if (rc == 0 && !(ours = lf_arena_alloc(p->arena, (size_t)e->elems, sizeof *ours, err)))
        rc = LF_ENOMEM;
    if (rc == 0)
        lf_peft_stack_turn(p, x, which, ours, all, true);
    for (int k = 0; k < (which ? x->n : 1) && rc == 0; k++) {
        const int64_t rows = which ? x->rows[k] : p->ac.rank, cols = which ? p->ac.rank : x->cols;
        t[*n] = (lf_ckpt_tensor){.ndim = 3, .shape = {x->experts, rows, cols}, .data = ours};
        rc = name_tensor(p, &t[(*n)++], x->stem[k], which, err);
        ours += x->experts * rows * cols;
    }
    return rc;
}

/* Is it of a stacked parameter? */
static bool of_stack(const struct lf_peft *p, const lf_st *s, const lf_st_entry *e, lf_err *err)
{
    bool is = false;
    for (size_t k = 0; k < 2 * p->n_stacks && !is; k++) {
        const char *name = lf_peft_stack_name(p, &p->stack[k / 2], (int)(k % 2), err);
        is = name && e == lf_st_find(s, name);
    }
    return is;
}

static int check_all_taken(const struct lf_peft *p, const lf_st *s, lf_err *err)
{
    const int each = lf_peft_each(p);
    if (lf_st_n_entries(s) == lf_peft_count(p))
        return 0;
    for (size_t i = 0; i < lf_st_n_entries(s); i++) {
        const lf_st_entry *e = lf_st_entry_at(s, i);
        bool taken = (p->ac.head && e == lf_st_find(s, LF_PEFT_HEAD)) || of_stack(p, s, e, err);
        for (size_t k = 0; k < p->n * (size_t)each && !taken; k++)
            taken = e == find(s, p->unit[k / (size_t)each].module,
                              strlen(p->unit[k / (size_t)each].module), (int)(k % (size_t)each));
        if (!taken)
            return lf_fail(err, LF_ENOTSUP, "%s is no adapter of a linear layer that is known here",
                           e->name);
    }
    return lf_fail(err, LF_EFORMAT, "the file holds something twice");
}

static int take_nth(struct lf_peft *p, const lf_st *s, size_t i, lf_ckpt_tensor *t, size_t *n,
                    lf_err *err)
{
    const size_t each = (size_t)lf_peft_each(p);
    size_t k;
    const int which = lf_peft_of_stack(p, i, &k);
    if (which >= 0)
        return take_stack(p, s, &p->stack[k], which, t, n, err);
    return lf_peft_is_head(p, i)
               ? take_head(p, s, &t[(*n)++], err)
               : take_tensor(p, s, &p->unit[i / each], (int)(i % each), t, n, err);
}

/* What of the base's state an adapter repeats, and what makes it one. Another head makes another
 * model: its scores were not measured, and config.json of a language model is not its own.
 * Owned. */
static json_t *adapter_state(const struct lf_peft *p, const lf_ckpt *base, lf_err *err)
{
    static const char *const kept[] = {"tokenizer_sha256", "hf", "score"};
    const size_t n_kept = p->ac.head ? 1 : 3;
    char hex[LF_HASH_HEX];
    json_t *o = json_object(), *ac = lf_adapter_to_json(&p->ac, err);
    json_t *model = lf_model_config_to_json(lf_decoder_config(p->dec), err);
    lf_hash_hex(hex, lf_ckpt_identity(base));
    int bad = !o || !ac || !model || json_object_set_new(o, "step", json_integer(0)) ||
              json_object_set(o, "adapter", ac) || json_object_set(o, "model", model) ||
              json_object_set_new(o, "base", json_string(hex));
    for (size_t i = 0; i < n_kept && !bad; i++) {
        json_t *v = json_object_get(lf_ckpt_state(base), kept[i]);
        bad = v && json_object_set(o, kept[i], v);
    }
    json_decref(model);
    json_decref(ac);
    if (!bad)
        return o;
    json_decref(o);
    lf_fail(err, LF_ENOMEM, "state of the adapter: out of memory");
    return NULL;
}

static int write_out(struct lf_peft *p, const lf_st *s, const lf_ckpt *base,
                     const struct lf_peft_opts *o, struct lf_convert_result *res, lf_err *err)
{
    lf_ckpt_writer *w = NULL;
    lf_ckpt_result r;
    const lf_ckpt_options wo = {.threads = o->threads};
    const size_t theirs = lf_peft_count(p);
    size_t n = 0;
    lf_ckpt_tensor *t = lf_arena_alloc(p->arena, theirs * LF_ADAPTER_MEMBERS, sizeof *t, err);
    json_t *state = t ? adapter_state(p, base, err) : NULL;
    int rc = state ? 0 : LF_ENOMEM;
    for (size_t k = 0; k < theirs && rc == 0; k++)
        rc = take_nth(p, s, k, t, &n, err);
    if (rc == 0)
        rc = check_all_taken(p, s, err);
    if (rc == 0)
        rc = lf_ckpt_writer_create(&w, t, n, &wo, err);
    if (rc == 0)
        rc = lf_ckpt_save_begin(w, o->out, state, err);
    if (rc == 0)
        rc = lf_ckpt_save_wait(w, &r, err);
    lf_ckpt_writer_destroy(w);
    json_decref(state);
    if (rc < 0)
        return rc;
    *res = (struct lf_convert_result){.tensors = (int64_t)n, .bytes = r.bytes};
    snprintf(res->family, sizeof res->family, "%s", p->family->name);
    memcpy(res->identity, r.identity, sizeof r.identity);
    return 0;
}

/* base, path: for the message. */
static int refuse_stranger(const struct lf_peft *p, const lf_st *s, const char *path,
                           const char *base, lf_err *err)
{
    const size_t before = strlen(LF_PEFT_BEFORE);
    bool whole = false;
    for (size_t i = 0; i < lf_st_n_entries(s) && !p->family->sight; i++) {
        const char *name = lf_st_entry_at(s, i)->name;
        whole =
            whole || (lf_str_has_prefix(name, LF_PEFT_BEFORE) && lf_hf_is_inside(name + before));
    }
    return lf_fail(
        err, LF_EINVAL, "%s holds no adapter of a layer of the model in %s (family %s)%s", path,
        base, p->family->name,
        whole ? ": it is one of a model that also sees or hears, so its base is imported "
                "without parts = text"
              : "");
}

int lf_peft_import(const struct lf_peft_opts *o, struct lf_convert_result *res, lf_err *err)
{
    struct lf_peft p = {0};
    lf_model_config mc;
    lf_ckpt *base = NULL;
    lf_st *s = NULL;
    char *path = lf_path_join(o->from, LF_PEFT_FILE, err);
    int rc = path ? lf_ckpt_open(&base, o->base, o->threads, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_weights_config(&mc, base, err);
    if (rc == 0)
        rc = read_config(&p.ac, o->from, err);
    if (rc == 0)
        rc = lf_st_open(&s, path, err);
    const bool head = rc == 0 && lf_st_find(s, LF_PEFT_HEAD);
    if (rc == 0 && p.ac.head && !head)
        rc = lf_fail(err, LF_EFORMAT,
                     "%s holds no " LF_PEFT_HEAD ", but modules_to_save of " LF_PEFT_CONFIG
                     " names it",
                     path);
    p.ac.head = head;
    if (rc == 0)
        rc = lf_adapter_model(&mc, &p.ac, err);
    if (rc == 0)
        rc = lf_peft_open(&p, &mc, s, err);
    if (rc == 0)
        rc = find_targets(&p, s, err);
    if (rc == 0 && !p.ac.n_targets)
        rc = refuse_stranger(&p, s, path, o->base, err);
    if (rc == 0)
        rc = lf_peft_units(&p, err);
    if (rc == 0)
        rc = write_out(&p, s, base, o, res, err);
    free(path);
    lf_st_close(s);
    lf_ckpt_close(base);
    lf_peft_close(&p);
    return rc;
}
