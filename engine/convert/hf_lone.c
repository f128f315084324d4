/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json of encoders of pictures that are models of their own. */
#include <stdio.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/hf_priv.h"
#include "engine/model/vision.h"

bool lf_hf_is_lone(const struct lf_hf_family *f, json_t *config)
{
    const char *class =
        json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
    return !f->lone->class || (class && strcmp(class, f->lone->class) == 0);
}

bool lf_hf_fits_lone(const struct lf_hf_family *f, const lf_model_config *c)
{
    if (strcmp(c->family, f->name) == 0)
        return true;
    const enum lf_model_beside has = lf_model_restores(c)     ? LF_BESIDE_RESTORING
                                     : lf_model_classifies(c) ? LF_BESIDE_CLASSES
                                                              : LF_BESIDE_NOTHING;
    return !f->lone->nested && f->lone->beside == has && lf_model_sees_alone(c) &&
           (has != LF_BESIDE_CLASSES || f->lone->reads == c->classes.read) &&
           lf_hf_in_words(lf_vision_families[c->vision.family], f->lone->tower->families);
}

/* What the tower reads, without what says nothing of it. The caller owns it. */
static json_t *object_of(const struct lf_hf_lone *l, json_t *config, const char *path, lf_err *err)
{
    json_t *have = l->nested ? json_object_get(config, l->nested) : config;
    if (!json_is_object(have)) {
        lf_fail(err, LF_EFORMAT, "%s: %s is missing or no object", path, l->nested);
        return NULL;
    }
    json_t *o = json_copy(have);
    if (!o)
        lf_fail(err, LF_ENOMEM, "out of memory");
    for (const char *p = l->ignore; o && p && *p; p += strcspn(p, " "), p += strspn(p, " ")) {
        char key[48];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(p, " "), p);
        json_object_del(o, key);
    }
    return o;
}

/* The head for classes; *keys are read here, and gone from the object behind this. */
static int read_classes(lf_model_config *c, const struct lf_hf_lone *l, json_t *o, const char *path,
                        lf_err *err)
{
    lf_hf_reader r = {o, path, NULL};
    const int64_t n = lf_hf_labels(o);
    int rc = lf_hf_set_number(&r, c, "num_labels", "classes.labels", (double)n, err);
    if (rc == 0)
        rc = lf_hf_set(&r, c, "architectures", "classes.read", lf_class_reads[l->reads], err);
    json_object_del(o, "num_labels");
    return rc;
}

int lf_hf_read_lone(lf_model_config *c, const struct lf_hf_family *f, json_t *config,
                    const char *path, lf_err *err)
{
    json_t *o = object_of(f->lone, config, path, err);
    int rc = o ? 0 : LF_EFORMAT;
    if (rc == 0 && f->lone->beside == LF_BESIDE_CLASSES)
        rc = read_classes(c, f->lone, o, path, err);
    if (rc == 0)
        rc = lf_hf_read_tower(c, f->lone->tower, o, path, err);
    snprintf(c->family, sizeof c->family, "%s", f->name);
    json_decref(o);
    return rc;
}

int lf_hf_write_lone(const struct lf_hf_family *f, const lf_model_config *c, json_t *o, lf_err *err)
{
    const struct lf_hf_tower *t = f->lone->tower;
    if (f->lone->nested)
        return lf_fail(err, LF_EINVAL,
                       "a model of family %s has a text tower too, which goes out only as it came "
                       "in; say the family of its encoder alone (family = %s-vision)",
                       f->name, f->name);
    int rc = lf_hf_write_keys(t->keys, c, o, err);
    if (rc == 0 && f->lone->beside == LF_BESIDE_CLASSES)
        rc = lf_hf_write_labels(c->classes.labels, NULL, o, err);
    return rc != 0 ? rc : t->write(c, o, err);
}
