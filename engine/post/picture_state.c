/* SPDX-License-Identifier: Apache-2.0
 *
 * See picture_state.h. */
#include "engine/post/picture_state.h"

#include <string.h>

#include "engine/base/json.h"

/* Takes the name of a document's class. Returns 1 where it is new, 0, or -1 where another document
 * calls the same class otherwise. */
static int take_name(json_t *names, const lf_shardset *s, uint64_t doc, const char *label)
{
    size_t len = 0;
    const char *text = lf_shardset_rest(s, doc, &len);
    json_t *row = text ? lf_json_load_text(text, len, "row", NULL) : NULL,
           *k = json_object_get(row, label), *name = json_object_get(row, "class");
    int is = 0;
    if (json_is_integer(k) && json_is_string(name) && json_integer_value(k) >= 0 &&
        (size_t)json_integer_value(k) < json_array_size(names)) {
        json_t *before = json_array_get(names, (size_t)json_integer_value(k));
        is = json_is_null(before) ? 1 : json_equal(before, name) ? 0 : -1;
        if (is == 1 && json_array_set(names, (size_t)json_integer_value(k), name))
            is = -1;
    }
    json_decref(row);
    return is;
}

/* The names of all n classes, or NULL: some have none, or two. */
static json_t *names_of(const lf_trainer *t, const char *label, int64_t n)
{
    json_t *names = json_array();
    int64_t found = 0;
    int is = 0;
    for (int64_t k = 0; k < n && names; k++)
        json_array_append_new(names, json_null());
    for (size_t i = 0; names && i < lf_train_n_sources(t, false) && found < n && is >= 0; i++) {
        const lf_shardset *s = lf_train_source_set(t, i, false);
        const uint64_t docs = lf_shardset_get_info(s)->n_docs;
        for (uint64_t d = 0; d < docs && found < n && is >= 0; d++) {
            is = take_name(names, s, d, label);
            found += is > 0;
        }
    }
    if (found == n && is >= 0)
        return names;
    json_decref(names);
    return NULL;
}

int lf_picture_state(json_t *o, const lf_trainer *t, const char *label, int64_t n, lf_err *err)
{
    if (!lf_train_first_rank(t))
        return 0;
    const char *text = lf_shardset_get_info(lf_train_source_set(t, 0, false))->processor;
    int bad = text && json_object_set_new(o, "processor", json_string(text));
    json_t *names = n ? names_of(t, label, n) : NULL;
    if (names && !bad)
        bad = json_object_set(o, "label_names", names);
    json_decref(names);
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}
