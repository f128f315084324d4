/* SPDX-License-Identifier: Apache-2.0
 *
 * generation_config.json; see genconfig.h.
 */
#include "engine/infer/genconfig.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/infer/gen.h"

static const struct {
    const char *ours, *theirs;
    bool whole;
} keys[LF_GEN_KEYS] = {
    [LF_GEN_TEMPERATURE] = {"temperature", "temperature"},
    [LF_GEN_TOP_K] = {"top_k", "top_k", true},
    [LF_GEN_TOP_P] = {"top_p", "top_p"},
    [LF_GEN_MIN_P] = {"min_p", "min_p"},
    [LF_GEN_REPETITION_PENALTY] = {"repetition_penalty", "repetition_penalty"},
    [LF_GEN_MAX_TOKENS] = {"max_tokens", "max_new_tokens", true},
    [LF_GEN_MIN_TOKENS] = {"min_tokens", "min_new_tokens", true},
    [LF_GEN_BEAMS] = {"beams", "num_beams", true},
    [LF_GEN_LENGTH_PENALTY] = {"length_penalty", "length_penalty"},
    [LF_GEN_EARLY_STOPPING] = {"early_stopping", "early_stopping"},
    [LF_GEN_NO_REPEAT] = {"no_repeat_ngram_size", "no_repeat_ngram_size", true},
    [LF_GEN_FIRST_TOKEN] = {"first_token", "forced_bos_token_id", true},
    [LF_GEN_LAST_TOKEN] = {"last_token", "forced_eos_token_id", true},
};

const char *lf_gen_key_name(enum lf_gen_key k)
{
    return keys[k].ours;
}

static int read_eos(lf_gen_config *c, json_t *ids, const char *path, lf_err *err)
{
    size_t n = json_is_array(ids) ? json_array_size(ids) : ids && !json_is_null(ids);
    if (n > LF_GEN_CONFIG_MAX_EOS)
        return lf_fail(err, LF_EFORMAT, "%s: eos_token_id has %zu entries; %d are read", path, n,
                       LF_GEN_CONFIG_MAX_EOS);
    for (size_t i = 0; i < n; i++) {
        json_t *id = json_is_array(ids) ? json_array_get(ids, i) : ids;
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            return lf_fail(err, LF_EFORMAT, "%s: eos_token_id is no token", path);
        c->eos[c->n_eos++] = (int32_t)json_integer_value(id);
    }
    return 0;
}

static int read_early(lf_gen_config *c, json_t *v, const char *path, lf_err *err)
{
    const char *text = json_string_value(v);
    if (!json_is_boolean(v) && !(text && strcmp(text, "never") == 0))
        return lf_fail(err, LF_EFORMAT, "%s: early_stopping is neither true, false nor \"never\"",
                       path);
    c->has[LF_GEN_EARLY_STOPPING] = true;
    c->value[LF_GEN_EARLY_STOPPING] = text              ? LF_BEAMS_NEVER
                                      : json_is_true(v) ? LF_BEAMS_YES
                                                        : LF_BEAMS_NO;
    return 0;
}

static int read_number(lf_gen_config *c, enum lf_gen_key k, json_t *v, const char *path,
                       lf_err *err)
{
    c->value[k] = json_number_value(v);
    if (keys[k].whole && json_is_number(v) &&
        (c->value[k] > INT32_MAX || c->value[k] != floor(c->value[k])))
        return lf_fail(err, LF_EFORMAT, "%s: %s = %g is no whole number of 0 to %d", path,
                       keys[k].theirs, c->value[k], INT32_MAX);
    if (!json_is_number(v) || !isfinite(c->value[k]) ||
        (c->value[k] < 0 && k != LF_GEN_LENGTH_PENALTY))
        return lf_fail(err, LF_EFORMAT, "%s: %s is no number of 0 or more", path, keys[k].theirs);
    c->has[k] = true;
    return 0;
}

/* Lengths of a target and its first token together; the other keys have the last word. */
static int read_lengths(lf_gen_config *c, json_t *o, const char *path, lf_err *err)
{
    static const struct {
        enum lf_gen_key k;
        const char *theirs;
    } lengths[] = {{LF_GEN_MAX_TOKENS, "max_length"}, {LF_GEN_MIN_TOKENS, "min_length"}};
    int rc = 0;
    for (size_t i = 0; i < 2 && rc == 0; i++) {
        json_t *v = json_object_get(o, lengths[i].theirs);
        if (!v || json_is_null(v) || c->has[lengths[i].k])
            continue;
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
            rc = lf_fail(err, LF_EFORMAT, "%s: %s is no length", path, lengths[i].theirs);
        c->has[lengths[i].k] = json_integer_value(v) > 1;
        c->value[lengths[i].k] = (double)json_integer_value(v) - 1;
    }
    return rc;
}

static int read_values(lf_gen_config *c, json_t *o, bool seq2seq, const char *path, lf_err *err)
{
    int rc = 0;
    for (int k = 0; k < LF_GEN_KEYS && rc == 0; k++) {
        json_t *v = json_object_get(o, keys[k].theirs);
        if (v && !json_is_null(v))
            rc = k == LF_GEN_EARLY_STOPPING ? read_early(c, v, path, err)
                                            : read_number(c, (enum lf_gen_key)k, v, path, err);
    }
    if (json_is_false(json_object_get(o, "do_sample"))) {
        c->has[LF_GEN_TEMPERATURE] = true;
        c->value[LF_GEN_TEMPERATURE] = 0;
    }
    if (c->has[LF_GEN_MAX_TOKENS] && c->value[LF_GEN_MAX_TOKENS] < 1)
        c->has[LF_GEN_MAX_TOKENS] = false;
    if (c->has[LF_GEN_BEAMS] &&
        (c->value[LF_GEN_BEAMS] < 1 || json_is_true(json_object_get(o, "do_sample"))))
        c->has[LF_GEN_BEAMS] = false; /* draws among beams are another search */
    if (!seq2seq) /* transformers forces it behind a prompt of one token alone */
        c->has[LF_GEN_FIRST_TOKEN] = false;
    return rc == 0 && seq2seq ? read_lengths(c, o, path, err) : rc;
}

int lf_gen_config_read(lf_gen_config *out, const char *dir, bool seq2seq, lf_err *err)
{
    *out = (lf_gen_config){0};
    char *path = lf_path_join(dir, "generation_config.json", err);
    if (!path)
        return LF_ENOMEM;
    if (!lf_io_exists(path)) {
        free(path);
        return 0;
    }
    json_t *o = lf_json_load_file(path, (size_t)16 << 20, err);
    lf_gen_config c = {0};
    int rc = !o                   ? LF_EFORMAT
             : !json_is_object(o) ? lf_fail(err, LF_EFORMAT, "%s is not an object", path)
                                  : read_values(&c, o, seq2seq, path, err);
    if (rc == 0)
        rc = read_eos(&c, json_object_get(o, "eos_token_id"), path, err);
    if (rc == 0)
        *out = c;
    json_decref(o);
    free(path);
    return rc;
}
