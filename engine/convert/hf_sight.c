/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json of models that see: the parts for decoder, encoder and projector, and the forms that
 * names of their tensors have in files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/hf_priv.h"

static int no_memory(lf_err *err)
{
    return lf_fail(err, LF_ENOMEM, "out of memory");
}

const char *lf_hf_text_key(const struct lf_hf_family *f)
{
    return f->sight && f->sight->text_key ? f->sight->text_key : "text_config";
}

bool lf_hf_lacks_token(const struct lf_hf_family *f, json_t *config)
{
    return f->sight && f->sight->token_key && !json_object_get(config, f->sight->token_key);
}

/* ---- the parts of config.json ---- */

/* Objects of their own: keys are taken out, set and filled in before the tables read them. */
struct parts {
    json_t *outer, *text, *vision;
};

static void drop_parts(struct parts *p)
{
    json_decref(p->outer);
    json_decref(p->text);
    json_decref(p->vision);
}

static bool names_key(const struct lf_hf_key *keys, const char *key)
{
    const size_t n = strlen(key);
    for (const struct lf_hf_key *k = keys; k->name; k++)
        for (const char *p = k->name; p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL)
            if (strcspn(p, "|") == n && strncmp(p, key, n) == 0)
                return true;
    return false;
}

/* Files of before text_config have its keys beside those of the model. */
static int split_flat(const struct lf_hf_family *f, struct parts *p)
{
    static const char *const both[] = {"model_type", "architectures", "tie_word_embeddings"};
    const char *key;
    json_t *v;
    int bad = !(p->text = json_object());
    json_object_foreach(p->outer, key, v)
    {
        const bool ours = strcmp(key, "vision_config") == 0 || strcmp(key, both[0]) == 0 ||
                          strcmp(key, both[1]) == 0 || names_key(f->keys, key);
        if (!ours || strcmp(key, both[2]) == 0)
            bad = bad || json_object_set(p->text, key, v);
    }
    json_object_foreach(p->text, key, v) if (strcmp(key, both[2]) != 0)
        json_object_del(p->outer, key);
    return bad;
}

/* A part of config.json, which is taken out of what is left. */
static json_t *take_part(const struct lf_hf_sight *s, json_t *outer, json_t *config,
                         const char *key)
{
    char dict[64];
    json_t *part = json_object_get(config, key);
    json_object_del(outer, key);
    snprintf(dict, sizeof dict, "%s_dict", key);
    if (s->dicts && json_is_object(json_object_get(config, dict))) {
        part = json_object_get(config, dict);
        json_object_del(outer, dict);
    }
    return part;
}

static int split(const struct lf_hf_family *f, json_t *config, const char *path, struct parts *p,
                 lf_err *err)
{
    const char *key = lf_hf_text_key(f);
    if (!(p->outer = json_copy(config)))
        return no_memory(err);
    json_t *text = take_part(f->sight, p->outer, config, key),
           *vision = take_part(f->sight, p->outer, config, "vision_config");
    if (!json_is_object(vision))
        return lf_fail(err, LF_EFORMAT, "%s: vision_config is missing or no object", path);
    const bool flat = f->sight->flat && (!text || json_is_null(text));
    if (!json_is_object(text) && !flat)
        return lf_fail(err, LF_EFORMAT, "%s: %s is missing or no object", path, key);
    if (!(p->vision = json_copy(vision)) ||
        (flat ? split_flat(f, p) : !(p->text = json_copy(text))))
        return no_memory(err);
    return 0;
}

/* Is the head the embedding? config.json and text_config may both say it. */
static int tie(const struct lf_hf_sight *s, struct parts *p, const char *path, lf_err *err)
{
    json_t *outer = json_object_get(p->outer, "tie_word_embeddings"),
           *inner = json_object_get(p->text, "tie_word_embeddings");
    bool tied = strcmp(s->tied, "true") == 0;
    if (s->tied_inner && json_is_boolean(outer) && json_is_boolean(inner) &&
        !json_equal(outer, inner))
        return lf_fail(err, LF_EFORMAT, "%s: %s says something else of tie_word_embeddings", path,
                       s->text_key);
    if (json_is_boolean(outer))
        tied = json_is_true(outer) || (s->tied_either && json_is_true(inner));
    else if (json_is_boolean(inner))
        tied = json_is_true(inner);
    if (json_object_set_new(p->outer, "tie_word_embeddings", json_boolean(tied)) ||
        json_object_set_new(p->text, "tie_word_embeddings", json_boolean(tied)))
        return no_memory(err);
    return 0;
}

/* mrope_section of the rotary parameters, which the tables of the decoder do not know. */
static int take_sections(const struct lf_hf_sight *s, lf_model_config *c, json_t *text,
                         const char *path, lf_err *err)
{
    json_t *given = json_object_get(text, "rope_parameters");
    const char *where = json_is_object(given) ? "rope_parameters" : "rope_scaling";
    given = json_is_object(given) ? given : json_object_get(text, where);
    json_t *o = json_is_object(given) ? json_copy(given) : NULL;
    json_t *list = json_object_get(o, "mrope_section"),
           *mixed = json_object_get(o, "mrope_interleaved");
    lf_hf_reader r = {text, path, NULL};
    const bool interleaved = s->rope == LF_HF_ROPE_INTERLEAVED;
    int rc = 0;
    if (!json_is_array(list))
        rc = lf_fail(err, LF_EFORMAT, "%s: rope_scaling or rope_parameters has no mrope_section",
                     path);
    else if (json_is_boolean(mixed) && json_is_true(mixed) != interleaved)
        rc = lf_hf_bad_value(&r, "mrope_interleaved", mixed, "is not what this class does", err);
    if (rc == 0)
        rc = lf_hf_set_list(&r, c, "mrope_section", "rope_sections", list, err);
    if (rc == 0 && interleaved)
        rc = lf_hf_set(&r, c, "mrope_interleaved", "rope_sections_interleaved", "yes", err);
    static const char *const kinds[] = {"type", "rope_type"};
    for (int k = 0; k < 2 && rc == 0; k++) {
        const char *type = json_string_value(json_object_get(o, kinds[k]));
        if (type && strcmp(type, "mrope") == 0)
            json_object_set_new(o, kinds[k], json_string("default"));
    }
    json_object_del(o, "mrope_section");
    json_object_del(o, "mrope_interleaved");
    if (rc == 0 && json_object_set(text, where, o))
        rc = no_memory(err);
    json_decref(o);
    return rc;
}

/* Whatever default the table of the decoder has is another class's. rope_theta may also stand
 * within. */
static int check_needs(const char *needs, json_t *text, const char *path, lf_err *err)
{
    for (const char *p = needs; p && *p; p += strcspn(p, " "), p += strspn(p, " ")) {
        char key[48];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(p, " "), p);
        if (!json_object_get(text, key) &&
            !json_object_get(json_object_get(text, "rope_parameters"), key))
            return lf_fail(err, LF_EFORMAT, "%s: %s is missing", path, key);
    }
    return 0;
}

/* What a class that sees takes for granted of its decoder. */
static int check_must(const char *must, json_t *text, const char *path, lf_err *err)
{
    json_t *want = must ? json_loads(must, 0, NULL) : NULL, *v;
    lf_hf_reader r = {text, path, NULL};
    const char *key;
    int rc = 0;
    json_object_foreach(want, key, v)
    {
        json_t *have = json_object_get(text, key);
        if (rc == 0 && have && !json_is_null(have) && !json_equal(have, v))
            rc = lf_hf_bad_value(&r, key, have, "is not supported in a model that sees", err);
        json_object_del(text, key);
    }
    json_decref(want);
    return rc;
}

static int fill_text(const struct lf_hf_sight *s, json_t *text, lf_err *err)
{
    json_t *def = s->text_defaults ? json_loads(s->text_defaults, 0, NULL) : NULL;
    if (s->text_defaults && !def)
        LF_BUG("'%s' is not JSON", s->text_defaults);
    for (const char *p = s->text_ignore; p && *p; p += strcspn(p, " "), p += strspn(p, " ")) {
        char key[48];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(p, " "), p);
        json_object_del(text, key);
    }
    json_object_del(text, "architectures"); /* that of the whole model counts */
    const int bad = def && json_object_update_missing(text, def);
    json_decref(def);
    return bad ? no_memory(err) : 0;
}

/* Leaves keys in text_config that the table of its decoder knows, with the defaults of the class.
 * LF_ENOTSUP: one that the class takes for granted has another value. */
static int plain_text(const struct lf_hf_sight *s, json_t *text, const char *path, lf_err *err)
{
    int rc = check_must(s->text_must, text, path, err);
    if (rc == 0)
        rc = check_must(s->text_unread, text, path, err);
    return rc != 0 ? rc : fill_text(s, text, err);
}

int lf_hf_lone_text(const struct lf_hf_sight *s, json_t *outer, json_t *text, const char *path,
                    lf_err *err)
{
    struct parts p = {.outer = outer, .text = text};
    json_t *must = s->text_must ? json_loads(s->text_must, 0, NULL) : NULL;
    int rc = tie(s, &p, path, err);
    if (rc == 0)
        rc = plain_text(s, text, path, err);
    if (rc == 0 && must && json_object_update(text, must))
        rc = no_memory(err);
    json_decref(must);
    return rc;
}

static int read_text(lf_model_config *c, const struct lf_hf_family *f, json_t *text,
                     const char *path, lf_err *err)
{
    const struct lf_hf_sight *s = f->sight;
    int rc = plain_text(s, text, path, err);
    if (rc == 0 && s->rope != LF_HF_ROPE_ONE)
        rc = take_sections(s, c, text, path, err);
    if (rc == 0)
        rc = check_needs(s->text_needs, text, path, err);
    if (rc == 0)
        rc = lf_hf_read_object(c, s->text, text, path, err);
    return rc;
}

/* ---- the encoder ---- */

static const struct lf_hf_tower *tower_of(const struct lf_hf_family *f, json_t *vision,
                                          const char *path, lf_err *err)
{
    const char *type = json_string_value(json_object_get(vision, "model_type"));
    lf_buf b;
    for (const struct lf_hf_tower *const *t = f->sight->towers; *t; t++)
        if (!type || lf_hf_in_words(type, (*t)->model_type))
            return *t;
    lf_buf_init(&b);
    for (const struct lf_hf_tower *const *t = f->sight->towers; *t; t++)
        lf_buf_addf(&b, "%s%.*s", b.len ? ", " : "", (int)strcspn((*t)->model_type, " "),
                    (*t)->model_type);
    lf_fail(err, LF_ENOTSUP, "%s: model_type '%.60s' is not known for an encoder here; known: %s",
            path, type, b.data);
    lf_buf_fini(&b);
    return NULL;
}

int lf_hf_read_tower(lf_model_config *c, const struct lf_hf_tower *t, json_t *vision,
                     const char *path, lf_err *err)
{
    lf_hf_reader r = {vision, path, json_copy(vision)};
    int rc = r.left ? 0 : no_memory(err);
    if (rc == 0)
        rc = lf_hf_set(&r, c, "model_type", "vision.family", t->family(vision), err);
    if (rc == 0)
        rc = lf_hf_read_keys(&r, t->keys, c, err);
    if (rc == 0)
        rc = t->read(&r, c, err);
    if (rc == 0)
        rc = lf_hf_check_left(&r, t->model_type, err);
    json_decref(r.left);
    return rc;
}

static int read_vision(lf_model_config *c, const struct lf_hf_family *f, json_t *vision,
                       const char *path, lf_err *err)
{
    const struct lf_hf_tower *t = tower_of(f, vision, path, err);
    if (t && check_must(f->sight->vision_must, vision, path, err) != 0)
        return LF_ENOTSUP;
    return t ? lf_hf_read_tower(c, t, vision, path, err) : LF_ENOTSUP;
}

static int read_all(lf_model_config *c, const struct lf_hf_family *f, struct parts *p,
                    const char *path, lf_err *err)
{
    lf_buf text, vision;
    lf_buf_init(&text);
    lf_buf_init(&vision);
    lf_buf_addf(&text, "%s: %s", path, lf_hf_text_key(f));
    lf_buf_addf(&vision, "%s: vision_config", path);
    int rc = lf_buf_check(&text, err) || lf_buf_check(&vision, err) ? LF_ENOMEM : 0;
    if (rc == 0)
        rc = tie(f->sight, p, path, err);
    if (rc == 0)
        rc = read_text(c, f, p->text, text.data, err);
    if (rc == 0)
        rc = read_vision(c, f, p->vision, vision.data, err);
    if (rc == 0)
        rc = lf_hf_read_object(c, f, p->outer, path, err);
    if (rc == 0 && c->output != LF_OUTPUT_TOKENS)
        rc = lf_fail(err, LF_ENOTSUP, "%s: a classifier that sees is not supported", path);
    lf_buf_fini(&text);
    lf_buf_fini(&vision);
    return rc;
}

int lf_hf_read_sight(lf_model_config *c, const struct lf_hf_family *f, json_t *config,
                     const char *path, lf_err *err)
{
    struct parts p = {0};
    int rc = split(f, config, path, &p, err);
    if (rc == 0)
        rc = read_all(c, f, &p, path, err);
    drop_parts(&p);
    return rc;
}

/* ---- writing ---- */

const struct lf_hf_tower *lf_hf_tower_for(const struct lf_hf_family *f, const lf_model_config *c)
{
    json_t *o = lf_model_config_to_json(c, NULL);
    const char *name = json_string_value(json_object_get(o, "vision.family"));
    const struct lf_hf_tower *const *t = f->sight->towers;
    while (name && *t && !lf_hf_in_words(name, (*t)->families))
        t++;
    const struct lf_hf_tower *found = name ? *t : NULL;
    json_decref(o);
    return found;
}

static json_t *typed(const char *types)
{
    return json_pack("{s:s#}", "model_type", types, (int)strcspn(types, " "));
}

static int write_sections(const struct lf_hf_sight *s, const lf_model_config *c, json_t *text)
{
    json_t *o = json_object_get(text, "rope_scaling"), *list = json_array();
    int bad = !list;
    for (int64_t i = 0; i < c->rope_sections.n && !bad; i++)
        bad = json_array_append_new(list, json_integer((json_int_t)c->rope_sections.v[i]));
    if (!bad && !o) {
        bad = json_object_set_new(text, "rope_scaling", json_pack("{s:s}", "rope_type", "default"));
        o = json_object_get(text, "rope_scaling");
    }
    bad = bad || json_object_set(o, "mrope_section", list) ||
          (s->rope == LF_HF_ROPE_INTERLEAVED &&
           json_object_set_new(o, "mrope_interleaved", json_true()));
    json_decref(list);
    return bad;
}

/* What a class takes for granted. */
static int write_must(const char *text, json_t *o, lf_err *err)
{
    json_t *must = text ? json_loads(text, 0, NULL) : NULL;
    const int bad = must && json_object_update(o, must);
    json_decref(must);
    return bad ? no_memory(err) : 0;
}

static int write_text(const struct lf_hf_sight *s, const lf_model_config *c, json_t *text,
                      lf_err *err)
{
    int rc = lf_hf_write_keys(s->text->keys, c, text, err);
    if (rc == 0 && s->text->write)
        rc = s->text->write(c, text, err);
    if (rc == 0 && s->rope != LF_HF_ROPE_ONE && write_sections(s, c, text))
        rc = no_memory(err);
    return rc != 0 ? rc : write_must(s->text_must, text, err);
}

int lf_hf_write_sight(const struct lf_hf_family *f, const lf_model_config *c, json_t *o,
                      lf_err *err)
{
    const struct lf_hf_tower *t = lf_hf_tower_for(f, c);
    if (!c->vision.family)
        return lf_fail(err, LF_EINVAL, "it sees nothing (vision.family)");
    if (!t)
        return lf_fail(err, LF_EINVAL, "its encoder is of another family (vision.family)");
    json_t *text = typed(f->sight->text_type), *vision = typed(t->model_type);
    int rc = text && vision && json_object_set(o, lf_hf_text_key(f), text) == 0 &&
                     json_object_set(o, "vision_config", vision) == 0
                 ? 0
                 : no_memory(err);
    if (rc == 0)
        rc = write_text(f->sight, c, text, err);
    if (rc == 0)
        rc = lf_hf_write_keys(t->keys, c, vision, err);
    if (rc == 0)
        rc = t->write(c, vision, err);
    if (rc == 0)
        rc = write_must(f->sight->vision_must, vision, err);
    json_decref(text);
    json_decref(vision);
    return rc;
}

static int keep_inert(const struct lf_hf_key *keys, json_t *o, json_t *was)
{
    int bad = 0;
    for (const struct lf_hf_key *k = keys; k->name && !bad; k++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(k->name, "|"), k->name);
        json_t *v = k->kind == LF_HF_INERT ? json_object_get(was, name) : NULL;
        if (v && !json_object_get(o, name))
            bad = json_object_set(o, name, v);
    }
    return bad;
}

int lf_hf_keep_sight(const struct lf_hf_family *f, const lf_model_config *c, json_t *o, json_t *was,
                     lf_err *err)
{
    const struct lf_hf_tower *t = lf_hf_tower_for(f, c);
    const int bad = keep_inert(f->keys, o, was) ||
                    (t && keep_inert(t->keys, json_object_get(o, "vision_config"),
                                     json_object_get(was, "vision_config")));
    return bad ? no_memory(err) : 0;
}

/* ---- the form of a file ---- */

static const char *found_in(const struct lf_hf_name *n, const lf_st *st)
{
    int k = 0;
    for (; k < LF_HF_FORMS && n->file[k]; k++)
        for (size_t i = 0; i < lf_st_n_entries(st); i++)
            if (lf_str_has_prefix(lf_st_entry_at(st, i)->name, n->file[k]))
                return n->file[k];
    return n->file[k - 1];
}

static const char *saved_as(const struct lf_hf_name *n, json_t *saved)
{
    const char *was = json_string_value(json_object_get(saved, n->rows));
    int k = 0;
    for (; k < LF_HF_FORMS && n->file[k]; k++)
        if (was && strcmp(was, n->file[k]) == 0)
            return n->file[k];
    return n->file[k - 1];
}

static const struct lf_hf_name *tower_name(const struct lf_hf_sight *s, const struct lf_hf_tower *t)
{
    return s->tower_name ? s->tower_name : &t->names;
}

static void add_name(struct lf_map_form *out, const struct lf_hf_name *n, const lf_st *st,
                     json_t *saved)
{
    if (out->n_names == LF_MAP_NAMES)
        LF_BUG("%s: more than %d names", n->rows, LF_MAP_NAMES);
    out->names[out->n_names++] =
        (struct lf_map_name){n->rows, st ? found_in(n, st) : saved_as(n, saved)};
}

/* Files of a decoder without its head leave out what all names begin with. */
static bool is_bare(const lf_st *s, const char *prefix)
{
    for (size_t i = 0; prefix && i < lf_st_n_entries(s); i++)
        if (lf_str_has_prefix(lf_st_entry_at(s, i)->name, prefix))
            return false;
    return prefix != NULL;
}

static bool has_shape(const lf_st_entry *e, int64_t a, int64_t b, int64_t c)
{
    return e->ndim == 3 && e->shape[0] == a && e->shape[1] == b && e->shape[2] == c;
}

#define GATE_UP ".mlp.experts.gate_up_proj" /* of all experts of a layer */

/* Are the experts of a file matrices [out, in] each, and not turned? A matrix that is square tells
 * nothing, but then the others do. */
static bool has_plain_experts(const lf_st *st, const lf_model_config *c)
{
    bool plain = true;
    for (size_t i = 0; i < lf_st_n_entries(st) && plain; i++) {
        const lf_st_entry *e = lf_st_entry_at(st, i);
        if (lf_str_has_suffix(e->name, GATE_UP))
            plain = has_shape(e, c->experts, 2 * c->expert_ffn, c->hidden);
        else if (lf_str_has_suffix(e->name, ".mlp.experts.down_proj"))
            plain = has_shape(e, c->experts, c->hidden, c->expert_ffn);
    }
    return plain;
}

static bool has_name(const lf_st *st, const char *suffix)
{
    for (size_t i = 0; i < lf_st_n_entries(st); i++)
        if (lf_str_has_suffix(lf_st_entry_at(st, i)->name, suffix))
            return true;
    return false;
}

#define PLAIN "plain_experts"

/* The table of the decoder. Without a file or its form it is as published; but where experts are
 * published turned, they are not if a matrix is square: transformers turns it back by its shape
 * alone, and would not. */
static const struct lf_map_row *decoder_rows(const struct lf_hf_sight *s, const lf_model_config *c,
                                             const lf_st *st, json_t *saved)
{
    json_t *was = json_object_get(saved, PLAIN);
    if (!s->plain_rows)
        return s->text->rows;
    const bool square = c->hidden == c->expert_ffn || c->hidden == 2 * c->expert_ffn,
               plain = st && s->turned_rows ? has_plain_experts(st, c)
                       : st                 ? has_name(st, GATE_UP)
                       : was                ? json_is_true(was)
                                            : square || !s->turned_rows;
    return plain ? s->plain_rows : s->turned_rows ? s->turned_rows : s->text->rows;
}

/* Does a file have blocks of 4-bit floats, where the family has rows for them? */
static bool is_packed(const struct lf_hf_family *f, const lf_st *st)
{
    return st && f->packed_rows && has_name(st, LF_HF_MX_BLOCKS);
}

int lf_hf_form(struct lf_map_form *out, const struct lf_hf_family *f, const lf_model_config *c,
               const lf_st *st, json_t *saved, lf_err *err)
{
    struct lf_map_form form = {.tables = {is_packed(f, st) ? f->packed_rows : f->rows},
                               .n_tables = 1,
                               .heads_are_layers = f->heads_are_layers};
    json_t *names = json_object_get(saved, "names");
    if (f->prefix && (st ? is_bare(st, f->prefix) : json_is_true(json_object_get(saved, "bare"))))
        form.names[form.n_names++] = (struct lf_map_name){f->prefix, ""};
    if (f->lone) {
        form = (struct lf_map_form){
            .tables = {f->lone->tower->rows}, .n_tables = 1, .kept = f->lone->kept};
        for (const struct lf_hf_name *n = f->lone->names; n && n->rows; n++)
            add_name(&form, n, st, names);
    }
    if (f->sight) {
        const struct lf_hf_tower *t = lf_hf_tower_for(f, c);
        if (!t)
            return lf_fail(err, LF_EINVAL, "vision.family: family %s has no such encoder", f->name);
        form.tables[form.n_tables++] = decoder_rows(f->sight, c, st, saved);
        form.tables[form.n_tables++] = t->rows;
        for (const struct lf_hf_name *n = f->sight->names; n->rows; n++)
            add_name(&form, n, st, names);
        add_name(&form, tower_name(f->sight, t), st, names);
    }
    *out = form;
    return 0;
}

/* An adapter has the names of the program that made it, and programs have had other names. */
static const char *program_name(const struct lf_hf_name *n, const lf_st *st, const char *before)
{
    char begin[96];
    const char *now = n->file[0];
    for (int k = 0; k < LF_HF_FORMS && n->file[k]; k++) {
        snprintf(begin, sizeof begin, "%s%s", before, n->file[k]);
        for (size_t i = 0; st && i < lf_st_n_entries(st); i++)
            if (lf_str_has_prefix(lf_st_entry_at(st, i)->name, begin))
                return n->file[k];
        /* all but the head is below it in transformers 5 */
        if (!lf_str_has_prefix(now, "model.") && lf_str_has_prefix(n->file[k], "model."))
            now = n->file[k];
    }
    /* CLIP and SigLIP have nothing between tower and encoder in transformers 5.23 */
    static const char between[] = "vision_model.";
    const size_t end = strlen(now) - (lf_str_has_suffix(now, between) ? strlen(between) : 0);
    for (int k = 0; k < LF_HF_FORMS && n->file[k]; k++)
        if (strlen(n->file[k]) == end && strncmp(n->file[k], now, end) == 0)
            return n->file[k];
    return now;
}

int lf_hf_form_program(struct lf_map_form *out, const struct lf_hf_family *f,
                       const lf_model_config *c, const lf_st *st, const char *before, lf_err *err)
{
    struct lf_map_form form;
    const int rc = lf_hf_form(&form, f, c, NULL, NULL, err);
    if (rc != 0)
        return rc;
    const struct lf_hf_tower *t = f->sight ? lf_hf_tower_for(f, c) : NULL;
    for (size_t i = 0; t && i < form.n_names; i++) {
        const struct lf_hf_name *n = f->sight->names;
        while (n->rows && strcmp(n->rows, form.names[i].rows) != 0)
            n++;
        form.names[i].file = program_name(n->rows ? n : tower_name(f->sight, t), st, before);
    }
    *out = form;
    return 0;
}

int lf_hf_form_save(const struct lf_map_form *form, const struct lf_hf_family *f, json_t *saved)
{
    json_t *o = json_object();
    int bad = !o;
    for (size_t i = 0; i < form->n_names && !bad; i++)
        bad = json_object_set_new(o, form->names[i].rows, json_string(form->names[i].file));
    if (f->sight && f->sight->plain_rows)
        bad = bad || json_object_set_new(saved, PLAIN,
                                         json_boolean(form->tables[1] == f->sight->plain_rows));
    bad = bad || (f->sight || f->lone
                      ? json_object_set(saved, "names", o)
                      : json_object_set_new(saved, "bare", json_boolean(form->n_names > 0)));
    json_decref(o);
    return bad;
}
