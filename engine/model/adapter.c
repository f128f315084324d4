/* SPDX-License-Identifier: Apache-2.0
 *
 * Which layers are adapted, and the description of an adapter as JSON. */
#include "engine/model/adapter.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/str.h"
#include "engine/model/decoder_priv.h"
#include "engine/model/weights.h"

double lf_adapter_scale(const struct lf_adapter_config *a)
{
    return a->alpha / (a->rank_stabilised ? sqrt((double)a->rank) : (double)a->rank);
}

int lf_adapter_check(const struct lf_adapter_config *a, lf_err *err)
{
    if (a->rank < 1 || a->rank > LF_ADAPTER_MAX_RANK)
        return lf_fail(err, LF_EINVAL, "lora_rank must be at least 1 and at most %d",
                       LF_ADAPTER_MAX_RANK);
    if (!(a->alpha > 0) || !isfinite(a->alpha))
        return lf_fail(err, LF_EINVAL, "lora_alpha must be above 0");
    if (!(a->dropout >= 0 && a->dropout < 1))
        return lf_fail(err, LF_EINVAL, "lora_dropout must be in [0, 1)");
    return 0;
}

/* ---- targets ---- */

/* The part of "layers.0.attn.q.weight" that users name: "q". */
static void part_of(char *buf, size_t cap, const char *name)
{
    const char *end = strrchr(name, '.'), *from = end;
    while (from && from > name && from[-1] != '.')
        from--;
    snprintf(buf, cap, "%.*s", end ? (int)(end - from) : 0, from ? from : "");
}

/* Encoder and projector are named by patterns that say so: vision.*, projector.* */
static bool names(const char *target, const char *name)
{
    char part[64];
    const char *dot = strchr(name, '.');
    if (lf_weights_is_sight(name))
        return dot && strncmp(target, name, (size_t)(dot - name + 1)) == 0 &&
               fnmatch(target, name, 0) == 0;
    part_of(part, sizeof part, name);
    return strcmp(target, part) == 0 || fnmatch(target, name, 0) == 0;
}

/* A linear layer of a layer that can have an adapter: not a norm, a router or a gate of one
 * column. */
static bool adaptable(const struct lf_param_desc *d)
{
    static const char *const parts[] = {
        "q",   "k",         "v",          "o",  "gate", "up",  "down", "q_a",   "q_b", "kv_a",
        "k_b", "v_b",       "z",          "a",  "b",    "c",   "x",    "f_a",   "f_b", "g_a",
        "g_b", "latent_in", "latent_out", "in", "out",  "fc1", "fc2",  "reduce"};
    char part[64];
    part_of(part, sizeof part, d->name);
    bool known = false;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        known = known || strcmp(part, parts[i]) == 0;
    const bool layer =
        lf_str_has_prefix(d->name, "layers.") || lf_str_has_prefix(d->name, "encoder.layers.") ||
        lf_str_has_prefix(d->name, "vision.layers.") || lf_str_has_prefix(d->name, "projector.");
    return known && d->ndim >= 2 && !d->adapter && layer &&
           lf_str_has_suffix(d->name, ".weight"); /* biases of experts are no matrices */
}

/* A group that is being chosen from. */
struct choice {
    bool whole;
    uint32_t members;                 /* with an adapter */
    uint32_t set[LF_ADAPTER_MEMBERS]; /* members that share an A */
    int n_sets;
};

static int add_set(struct choice *c, uint32_t set, const char *target, const char *group,
                   lf_err *err)
{
    if (!set || (c->members & set) == set)
        for (int s = 0; s < c->n_sets; s++)
            if (c->set[s] == set)
                return 0; /* named before, by another target */
    if (c->members & set)
        return lf_fail(
            err, LF_EINVAL,
            "lora_targets = %s: parts of %s are named twice, joined with others and not; "
            "take one of them",
            target, group);
    c->members |= set;
    c->set[c->n_sets++] = set;
    return 0;
}

/* Adapters of experts are those that PEFT has of stacked parameters. */
static int check_experts(const struct lf_adapter_config *a, const char *target, const char *name,
                         lf_err *err)
{
    if (!a->dora && a->dropout == 0)
        return 0;
    return lf_fail(
        err, LF_ENOTSUP,
        "lora_targets = %s takes in the experts (%s), whose adapters have no %s; leave it out, "
        "or name the layers: q, k, v, o (of latent attention q, q_a, q_b, kv_a, kv_b, o), or "
        "layers.*.moe.shared.*",
        target, name, a->dora ? "lengths (lora_dora)" : "lora_dropout");
}

/* t: the number of the target; without targets all are chosen. */
static int choose_one(struct choice *c, const struct lf_param_desc *d, int member,
                      const struct lf_adapter_config *a, int t, bool *hit, lf_err *err)
{
    const char *target = a->n_targets ? a->target[t] : "all";
    const bool all = strcmp(target, "all") == 0 && !lf_weights_is_sight(d->name),
               whole = strcmp(d->group, d->name) != 0 && names(target, d->group);
    if (!all && !whole && !names(target, d->name))
        return 0;
    if (d->ndim != 2 && check_experts(a, target, d->name, err))
        return LF_ENOTSUP;
    *hit = true;
    c->whole = c->whole || whole;
    return whole ? 0 : add_set(c, 1u << member, target, d->group, err);
}

/* "layers.*.scan.q+k.weight": the same with part k of the names between '+' in place of all of
 * them. false: there are not so many. */
static bool joined_part(char *buf, size_t cap, const char *target, int k)
{
    const char *from = strchr(target, '+'), *end = from;
    while (from > target && from[-1] != '.')
        from--;
    end += strcspn(end, ".");
    const char *part = from;
    for (; k > 0 && part < end; k--) {
        part += strcspn(part, "+.");
        part += part < end;
    }
    if (k > 0 || part >= end)
        return false;
    snprintf(buf, cap, "%.*s%.*s%s", (int)(from - target), target, (int)strcspn(part, "+."), part,
             end);
    return true;
}

/* Members that share one A, as parts of a group do that are one module elsewhere. A group that
 * lacks one of them is not meant. */
static int choose_joined(struct choice *c, const lf_pstore *ps, int i, int n, const char *target,
                         bool *hit, lf_err *err)
{
    char part[sizeof((struct lf_adapter_config *)0)->target[0]];
    uint32_t set = 0;
    for (int j = 0; joined_part(part, sizeof part, target, j); j++) {
        int found = -1;
        for (int k = 0; k < n && found < 0; k++) {
            const struct lf_param_desc *d = lf_pstore_desc(ps, i + k);
            found = adaptable(d) && d->ndim == 2 && names(part, d->name) ? k : -1;
        }
        if (found < 0)
            return 0;
        set |= 1u << found;
    }
    *hit = *hit || set;
    return set ? add_set(c, set, target, lf_pstore_desc(ps, i)->group, err) : 0;
}

/* Does the target join gate and up of these experts, and nothing else? */
static bool joins(const char *target, const char *gate, const char *up)
{
    char part[sizeof((struct lf_adapter_config *)0)->target[0]];
    return strchr(target, '+') && joined_part(part, sizeof part, target, 0) && names(part, gate) &&
           joined_part(part, sizeof part, target, 1) && names(part, up) &&
           !joined_part(part, sizeof part, target, 2);
}

/* Where tensor i is the gate of experts whose up reads the same A, as those do that are one
 * parameter elsewhere: the target that joins them, and in *with their up. -1: none does. */
static int joins_experts(const lf_pstore *ps, int i, const struct lf_adapter_config *a, int *with)
{
    static const char gate[] = ".gate.weight";
    const struct lf_param_desc *d = lf_pstore_desc(ps, i);
    char up[160];
    if (d->ndim != 3 || !lf_str_has_suffix(d->name, gate))
        return -1;
    snprintf(up, sizeof up, "%.*s.up.weight", (int)(strlen(d->name) - strlen(gate)), d->name);
    *with = lf_pstore_find(ps, up);
    for (int t = 0; t < a->n_targets && *with >= 0; t++)
        if (joins(a->target[t], d->name, up))
            return t;
    return -1;
}

/* Is the tensor of a head of mtp_layers that has no adapter? Who reads an adapter runs no head in
 * training, so the adapter says it. */
static bool idle(const lf_decoder *d, const struct lf_adapter_config *a, const char *name)
{
    const int64_t first = d->c.layers + (a->mtp ? d->c.mtp_layers : 0);
    return strncmp(name, "layers.", 7) == 0 && strtoll(name + 7, NULL, 10) >= first;
}

/* What the targets make of the group that begins with tensor i. hits: per target, did it match
 * anything yet. */
static int choose(struct choice *c, const lf_pstore *ps, int i, int n,
                  const struct lf_adapter_config *a, bool *hits, lf_err *err)
{
    int rc = 0;
    for (int k = 0; k < n && rc == 0; k++) {
        const struct lf_param_desc *d = lf_pstore_desc(ps, i + k);
        for (int t = 0; t < (a->n_targets ? a->n_targets : 1) && rc == 0 && adaptable(d); t++)
            if (!a->n_targets || !strchr(a->target[t], '+'))
                rc = choose_one(c, d, k, a, t, &hits[t], err);
    }
    for (int t = 0; t < a->n_targets && rc == 0; t++)
        if (strchr(a->target[t], '+'))
            rc = choose_joined(c, ps, i, n, a->target[t], &hits[t], err);
    if (rc == 0 && c->whole && c->members)
        rc = lf_fail(err, LF_EINVAL,
                     "lora_targets: %s is named as a whole and by its parts; take one of them",
                     lf_pstore_desc(ps, i)->group);
    return rc;
}

int lf_adapter_model(lf_model_config *mc, const struct lf_adapter_config *a, lf_err *err)
{
    if (a->labels) {
        const int rc = lf_model_want_labels(mc, a->labels, a->labels_of, err);
        return rc != 0 ? rc : lf_model_config_finish(mc, err);
    }
    if (!a->head || mc->output == LF_OUTPUT_SCORE)
        return 0;
    mc->output = LF_OUTPUT_SCORE;
    return lf_model_config_finish(mc, err);
}

/* The matrices of labels, as far as this chunk has them. */
static int adapt_labels(const lf_decoder *d, lf_pstore *ps, const struct lf_adapter_config *a,
                        lf_err *err)
{
    static const char *const whole[] = {"labels.weight", "labels.bias", "label_in.weight",
                                        "label_in.bias"};
    int rc = 0;
    if (d->c.output != LF_OUTPUT_LABELS || d->c.labels != a->labels ||
        d->c.labels_of != a->labels_of)
        return lf_fail(err, LF_EINVAL,
                       "the adapter tells %lld labels (lf-rm, objective = labels), and this model "
                       "%s",
                       (long long)a->labels, d->c.output == LF_OUTPUT_LABELS ? "others" : "none");
    for (size_t i = 0; i < sizeof whole / sizeof *whole && rc == 0; i++)
        if (lf_pstore_find(ps, whole[i]) >= 0)
            rc = lf_pstore_adapt_whole(ps, whole[i], err);
    return rc;
}

/* The head, where one is trained. */
static int adapt_head(const lf_decoder *d, lf_pstore *ps, const struct lf_adapter_config *a,
                      lf_err *err)
{
    if (a->labels)
        return adapt_labels(d, ps, a, err);
    if (!a->head)
        return 0;
    if (d->c.output != LF_OUTPUT_SCORE)
        return lf_fail(
            err, LF_EINVAL,
            "the adapter is a reward model's: it has a score head, this model predicts tokens");
    return lf_pstore_find(ps, "score.weight") < 0 ? 0 /* another chunk has it */
                                                  : lf_pstore_adapt_whole(ps, "score.weight", err);
}

/* How many tensors the group has that begins with tensor i. */
static int group_size(const lf_pstore *ps, int i)
{
    const char *group = lf_pstore_desc(ps, i)->group;
    int n = 1;
    while (i + n < lf_pstore_count(ps) && strcmp(lf_pstore_desc(ps, i + n)->group, group) == 0)
        n++;
    return n;
}

/* Does nothing read the tensor? Its adapter is kept, and not trained. */
static bool unread(const lf_decoder *d, const char *name)
{
    const lf_vision_config *v = &d->c.vision;
    const int64_t read = v->read_layers ? v->read_layers : v->layers;
    return lf_str_has_prefix(name, "vision.layers.") && strtoll(name + 14, NULL, 10) >= read;
}

/* A store of some chunks lacks layers that targets may be about: looks among those of the whole
 * model. */
static int hits_elsewhere(const lf_decoder *d, const lf_pstore *ps,
                          const struct lf_adapter_config *a, bool *hits, lf_err *err)
{
    lf_pstore *all = lf_pstore_create(err);
    int rc = all ? lf_decoder_declare(d, all, err) : LF_ENOMEM;
    for (int i = 0, n, with; rc == 0 && i < lf_pstore_count(all); i += n) {
        struct choice c = {0};
        n = group_size(all, i);
        if (lf_pstore_find(ps, lf_pstore_desc(all, i)->name) < 0 &&
            !idle(d, a, lf_pstore_desc(all, i)->name))
            rc = choose(&c, all, i, n, a, hits, err);
        const int t = joins_experts(all, i, a, &with);
        if (rc == 0 && t >= 0)
            hits[t] = true;
    }
    lf_pstore_destroy(all);
    return rc;
}

/* Adds ", x" unless it is there. */
static void add_once(lf_buf *b, const char *x)
{
    const size_t n = strlen(x);
    for (const char *p = b->data; (p = strstr(p, x)) != NULL; p += n)
        if (p >= b->data + 2 && p[-1] == ' ' && (p[n] == 0 || p[n] == ','))
            return;
    lf_buf_addf(b, ", %s", x);
}

/* Names the layers of this model that can have an adapter: "q, qkv, k, v, o". */
static int no_hit(const lf_pstore *ps, const char *target, lf_err *err)
{
    char part[64];
    bool sees = false;
    lf_buf b;
    lf_buf_init(&b);
    for (int i = 0; i < lf_pstore_count(ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(ps, i);
        sees = sees || lf_weights_is_sight(d->name);
        if (!adaptable(d) || lf_weights_is_sight(d->name))
            continue;
        part_of(part, sizeof part, d->name);
        add_once(&b, part);
        part_of(part, sizeof part, d->group);
        add_once(&b, part);
    }
    int rc = lf_buf_check(&b, err);
    if (rc == 0)
        rc = lf_fail(err, LF_EINVAL,
                     "lora_targets = %s matches no linear layer of this model; known are all%s and "
                     "patterns over names like layers.0.attn.o.weight%s",
                     target, b.data,
                     sees ? ", vision.layers.0.attn.qkv.weight and projector.fc1.weight" : "");
    lf_buf_fini(&b);
    return rc;
}

/* What targets make of the group that begins with tensor i. Experts that are joined are adapted
 * with the first of them. */
static int adapt_group(lf_pstore *ps, int i, int n, const struct lf_adapter_config *a, bool *hits,
                       lf_err *err)
{
    const struct lf_adapter_desc ad = {
        .rank = a->rank, .scale = (float)lf_adapter_scale(a), .magnitude = a->dora};
    const char *group = lf_pstore_desc(ps, i)->group;
    struct choice c = {0};
    int with = -1;
    int rc = choose(&c, ps, i, n, a, hits, err);
    const int t = joins_experts(ps, i, a, &with);
    const bool chosen = c.whole || c.n_sets, there = lf_pstore_adapted(ps, group);
    if (rc != 0 || (!chosen && t < 0))
        return rc;
    if (chosen && (t >= 0 || there))
        return lf_fail(err, LF_EINVAL,
                       "lora_targets: the experts %s are named twice, joined with others and not; "
                       "take one of them",
                       group);
    if (t >= 0)
        hits[t] = true;
    if (t >= 0 && (rc = check_experts(a, a->target[t], group, err)) != 0)
        return rc;
    rc = lf_pstore_adapt(ps, group, c.set, c.whole || t >= 0 ? 0 : c.n_sets, &ad, err);
    return rc != 0 || t < 0 ? rc
                            : lf_pstore_adapt_like(ps, lf_pstore_desc(ps, with)->group, group, err);
}

int lf_decoder_adapt(lf_decoder *d, lf_pstore *ps, const struct lf_adapter_config *a, lf_err *err)
{
    bool hits[LF_ADAPTER_TARGETS] = {false};
    const int count = lf_pstore_count(ps);
    int rc = lf_adapter_check(a, err);
    lf_pstore_freeze(ps, "", true);
    for (int i = 0, n; i < count && rc == 0; i += n) {
        n = group_size(ps, i);
        const int before = lf_pstore_count(ps);
        rc = idle(d, a, lf_pstore_desc(ps, i)->name) ? 0 : adapt_group(ps, i, n, a, hits, err);
        for (int k = before; k < lf_pstore_count(ps) && unread(d, lf_pstore_desc(ps, i)->name); k++)
            lf_pstore_freeze(ps, lf_pstore_desc(ps, k)->name, true);
    }
    if (rc == 0)
        rc = hits_elsewhere(d, ps, a, hits, err);
    for (int t = 0; t < (a->n_targets ? a->n_targets : 1) && rc == 0; t++)
        if (!hits[t])
            rc = no_hit(ps, a->n_targets ? a->target[t] : "all", err);
    if (rc == 0)
        rc = adapt_head(d, ps, a, err);
    if (rc == 0)
        d->adapter_dropout = a->dropout;
    return rc;
}

static bool sight_adapted(const lf_pstore *ps, const char *part)
{
    for (int i = 0; i < lf_pstore_count(ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(ps, i);
        if (d->adapter && lf_str_has_prefix(d->name, part))
            return true;
    }
    return false;
}

bool lf_adapter_of_encoder(const lf_pstore *ps)
{
    return sight_adapted(ps, "vision.");
}

/* ---- description ---- */

json_t *lf_adapter_to_json(const struct lf_adapter_config *a, lf_err *err)
{
    json_t *targets = json_array();
    int bad = !targets;
    for (int t = 0; t < a->n_targets && !bad; t++)
        bad = json_array_append_new(targets, json_string(a->target[t]));
    json_t *o = bad ? NULL
                    : json_pack("{s:I,s:f,s:b,s:f,s:O}", "rank", (json_int_t)a->rank, "alpha",
                                a->alpha, "rank_stabilised", a->rank_stabilised, "dropout",
                                a->dropout, "targets", targets);
    if (o && ((a->dora && json_object_set_new(o, "dora", json_true())) ||
              (a->head && json_object_set_new(o, "head", json_true())) ||
              (a->labels && (json_object_set_new(o, "labels", json_integer(a->labels)) ||
                             json_object_set_new(o, "labels_of", json_integer(a->labels_of)))) ||
              (a->mtp && json_object_set_new(o, "mtp", json_true())))) {
        json_decref(o);
        o = NULL;
    }
    json_decref(targets);
    if (!o)
        lf_fail(err, LF_ENOMEM, "description of the adapter: out of memory");
    return o;
}

int lf_adapter_from_json(struct lf_adapter_config *out, json_t *o, const char *where, lf_err *err)
{
    struct lf_adapter_config a = {0};
    size_t i;
    json_t *v, *targets = json_object_get(o, "targets"),
               *rs = json_object_get(o, "rank_stabilised");
    int rc = lf_json_get_i64(&a.rank, o, "rank", true, where, err);
    a.alpha = json_number_value(json_object_get(o, "alpha"));
    a.dropout = json_number_value(json_object_get(o, "dropout"));
    a.rank_stabilised = json_is_true(rs);
    a.dora = json_is_true(json_object_get(o, "dora"));
    a.head = json_is_true(json_object_get(o, "head"));
    a.mtp = json_is_true(json_object_get(o, "mtp"));
    int64_t of = 0;
    if (rc == 0)
        rc = lf_json_get_i64(&a.labels, o, "labels", false, where, err);
    if (rc == 0)
        rc = lf_json_get_i64(&of, o, "labels_of", a.labels > 0, where, err);
    if (rc != 0)
        return rc;
    if (a.labels < 0 || of < LF_LABELS_OF_TEXT || of > LF_LABELS_OF_SPAN || (a.labels && a.head))
        return lf_fail(err, LF_EFORMAT, "%s: the labels of the adapter are damaged", where);
    a.labels_of = (int)of;
    if (!json_is_boolean(rs) || !json_is_array(targets) ||
        json_array_size(targets) > LF_ADAPTER_TARGETS)
        return lf_fail(err, LF_EFORMAT, "%s: the description of the adapter is damaged", where);
    json_array_foreach(targets, i, v)
    {
        const char *s = json_string_value(v);
        if (!s || strlen(s) >= sizeof a.target[0])
            return lf_fail(err, LF_EFORMAT, "%s: the targets of the adapter are damaged", where);
        memcpy(a.target[a.n_targets++], s, strlen(s) + 1);
    }
    rc = lf_adapter_check(&a, err);
    if (rc == 0)
        *out = a;
    return rc != 0 ? lf_err_prefix(err, "%s", where) : 0;
}

int lf_adapter_config(struct lf_adapter_config *out, const lf_ckpt *c, lf_err *err)
{
    json_t *o = json_object_get(lf_ckpt_state(c), "adapter");
    if (!json_is_object(o))
        return lf_fail(err, LF_ENOENT, "%s is a checkpoint of whole weights, not an adapter",
                       lf_ckpt_dir(c));
    return lf_adapter_from_json(out, o, lf_ckpt_dir(c), err);
}

int lf_adapter_config_of(struct lf_adapter_config *out, const char *dir, lf_err *err)
{
    char *path = lf_path_join(dir, "state.json", err);
    json_t *state = path ? lf_json_load_file(path, (size_t)64 << 20, err) : NULL,
           *o = json_object_get(state, "adapter");
    int rc = state ? 0 : err && err->rc ? err->rc : LF_EFORMAT;
    if (rc == 0 && !json_is_object(o))
        rc = lf_fail(err, LF_ENOENT, "%s is a checkpoint of whole weights, not an adapter", dir);
    if (rc == 0)
        rc = lf_adapter_from_json(out, o, dir, err);
    json_decref(state);
    free(path);
    return rc;
}

/* base NULL: base_dir is opened, if need be. */
static int check_identity(const lf_ckpt *a, const char *is, const lf_ckpt *base,
                          const char *base_dir, lf_err *err)
{
    const char *was = json_string_value(json_object_get(lf_ckpt_state(a), "base"));
    lf_ckpt *opened = NULL;
    if (!was)
        return lf_fail(err, LF_EFORMAT, "%s does not say which weights it is an adapter of",
                       lf_ckpt_dir(a));
    if (strcmp(was, is) == 0)
        return 0;
    /* The same weights have another identity where a version before or after saved them. */
    int rc = base ? 0 : lf_ckpt_open_checked(&opened, base_dir, LF_CKPT_CHECK_STRUCTURE, 1, err);
    if (rc == 0)
        rc = lf_ckpt_is(base ? base : opened, was, err);
    lf_ckpt_close(opened);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    return lf_fail(err, LF_EINVAL,
                   "%s is an adapter of other weights (identity %.16s) than those in %s (%.16s)",
                   lf_ckpt_dir(a), was, base_dir, is);
}

int lf_adapter_check_base(const lf_ckpt *a, const lf_ckpt *base, lf_err *err)
{
    char is[LF_HASH_HEX];
    lf_hash_hex(is, lf_ckpt_identity(base));
    return check_identity(a, is, base, lf_ckpt_dir(base), err);
}

/* Rank, targets and scale must be those that ps was declared with; dropout is of training alone. */
static int check_same(const struct lf_adapter_config *is, const lf_ckpt *a, lf_err *err)
{
    struct lf_adapter_config was, now = *is;
    int rc = lf_adapter_config(&was, a, err);
    was.dropout = now.dropout = 0;
    json_t *x = rc != 0 ? NULL : lf_adapter_to_json(&was, err),
           *y = rc != 0 ? NULL : lf_adapter_to_json(&now, err);
    if (rc == 0 && (!x || !y))
        rc = LF_ENOMEM;
    if (rc == 0 && !json_equal(x, y))
        rc = lf_fail(err, LF_EINVAL,
                     "%s is an adapter with other settings (rank, alpha, targets ...)",
                     lf_ckpt_dir(a));
    json_decref(x);
    json_decref(y);
    return rc;
}

int lf_adapter_load(lf_pstore *ps, const struct lf_adapter_config *ac, const char *dir,
                    const struct lf_adapter_base *base, int threads, char id[LF_HASH_HEX],
                    lf_err *err)
{
    lf_ckpt *ck = NULL;
    int rc = lf_ckpt_open(&ck, dir, threads, err);
    if (rc != 0)
        return lf_err_prefix(err, "adapter");
    rc = check_same(ac, ck, err);
    if (rc == 0)
        rc = check_identity(ck, base->id, NULL, base->dir, err);
    if (rc == 0)
        rc = lf_weights_load_adapter(ps, ck, LF_WEIGHTS_PREFIX, false, err);
    if (rc == 0 && id)
        lf_hash_hex(id, lf_ckpt_identity(ck));
    lf_ckpt_close(ck);
    return rc;
}
