/* SPDX-License-Identifier: Apache-2.0
 *
 * Defaults of requests: options, then what generation_config.json says where no option was given.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/sys.h"
#include "stages/generate_priv.h"

static int token_id(int64_t *id, const char *option, const char *text, size_t len, lf_err *err)
{
    char *end;
    *id = strtoll(text, &end, 10);
    if (len == 0 || end != text + len || *id < 0 || *id > INT32_MAX)
        return lf_fail(err, LF_EINVAL, "%s: '%s' does not begin with a token id", option, text);
    return 0;
}

/* The values of a REPEAT option as a JSON list of ids or of texts. */
static int list_option(json_t *more, const lf_optset *o, const char *name, bool ids, lf_err *err)
{
    size_t n = lf_optset_count(o, name);
    json_t *list = json_array();
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        const char *text = lf_optset_str_at(o, name, i);
        int64_t id = 0;
        if (ids)
            rc = token_id(&id, name, text, strlen(text), err);
        if (rc == 0 && json_array_append_new(list, ids ? json_integer(id) : json_string(text)))
            rc = lf_fail(err, LF_EINVAL, "%s: '%s' is not valid UTF-8", name, text);
    }
    if (rc != 0 || n == 0)
        json_decref(list);
    else if (json_object_set_new(more, name, list))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    return rc;
}

static int bias_option(json_t *more, const lf_optset *o, lf_err *err)
{
    size_t n = lf_optset_count(o, "logit_bias");
    json_t *all = json_object();
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        const char *text = lf_optset_str_at(o, "logit_bias", i), *eq = strchr(text, '=');
        char *end = NULL, key[24];
        int64_t id;
        double bias = eq ? strtod(eq + 1, &end) : 0;
        if (!eq || end == eq + 1 || *end || !(fabs(bias) <= 100))
            rc = lf_fail(err, LF_EINVAL,
                         "logit_bias: '%s' is not ID=NUMBER with a number from -100 to 100", text);
        if (rc == 0 && (rc = token_id(&id, "logit_bias", text, (size_t)(eq - text), err)) == 0) {
            snprintf(key, sizeof key, "%lld", (long long)id);
            rc = json_object_set_new(all, key, json_real(bias))
                     ? lf_fail(err, LF_ENOMEM, "out of memory")
                     : 0;
        }
    }
    if (rc != 0 || n == 0)
        json_decref(all);
    else if (json_object_set_new(more, "logit_bias", all))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    return rc;
}

static int lists(generate_settings *s, const lf_optset *o, lf_err *err)
{
    int rc = lf_infer_strings(&s->stop, &s->d.n_stop, o, "stop", err);
    s->d.stop = s->stop;
    if (rc == 0)
        rc = lf_infer_strings(&s->eos, &s->n_eos, o, "eos", err);
    if (rc == 0 && !(s->d.more = json_object()))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0)
        rc = list_option(s->d.more, o, "stop_token_ids", true, err);
    if (rc == 0)
        rc = list_option(s->d.more, o, "allowed_token_ids", true, err);
    if (rc == 0)
        rc = list_option(s->d.more, o, "bad_words", false, err);
    return rc != 0 ? rc : bias_option(s->d.more, o, err);
}

int generate_settings_read(generate_settings *s, const lf_optset *o, lf_err *err)
{
    lf_gen_defaults *d = &s->d;
    d->params = (lf_sample_params){lf_optset_float(o, "temperature"),
                                   lf_optset_float(o, "top_p"),
                                   lf_optset_float(o, "min_p"),
                                   lf_optset_float(o, "repetition_penalty"),
                                   lf_optset_float(o, "presence_penalty"),
                                   lf_optset_float(o, "frequency_penalty"),
                                   lf_optset_int(o, "top_k")};
    d->n = lf_optset_int(o, "samples");
    d->best_of = lf_optset_int(o, "best_of");
    d->beams =
        (struct lf_gen_beams){lf_optset_int(o, "beams"), lf_optset_float(o, "length_penalty"),
                              (enum lf_beams_early)lf_optset_choice(o, "early_stopping")};
    d->max_tokens = lf_optset_int(o, "max_tokens");
    d->min_tokens = lf_optset_int(o, "min_tokens");
    d->no_repeat = lf_optset_int(o, "no_repeat_ngram_size");
    d->first_token = lf_optset_int(o, "first_token") + 1;
    d->last_token = lf_optset_int(o, "last_token") + 1;
    d->top_logprobs = lf_optset_int(o, "logprobs");
    d->prompt_logprobs = lf_optset_int(o, "prompt_logprobs");
    d->truncate_prompt = lf_optset_int(o, "truncate_prompt_tokens");
    d->ignore_eos = lf_optset_bool(o, "ignore_eos");
    d->add_special = lf_optset_bool(o, "add_special");
    d->skip_special = lf_optset_bool(o, "skip_special");
    d->include_stop = lf_optset_bool(o, "include_stop");
    d->seed = (uint64_t)lf_optset_int(o, "seed");
    s->raw = lf_optset_bool(o, "raw");
    for (int k = 0; k < LF_GEN_KEYS; k++)
        s->set[k] = lf_optset_is_set(o, lf_gen_key_name(k));
    int rc = lists(s, o, err);
    if (rc == 0)
        rc = lf_sample_check(&d->params, err);
    if (rc == 0 && d->min_tokens > d->max_tokens && (s->raw || s->set[LF_GEN_MAX_TOKENS]))
        rc = lf_fail(err, LF_EINVAL, "min_tokens %lld is above max_tokens %lld",
                     (long long)d->min_tokens, (long long)d->max_tokens);
    if (rc == 0 && d->best_of != 0 && d->best_of < d->n)
        rc = lf_fail(err, LF_EINVAL, "best_of %lld is below samples %lld", (long long)d->best_of,
                     (long long)d->n);
    return rc;
}

static void take(lf_gen_defaults *d, enum lf_gen_key k, double v)
{
    const struct {
        double *real;
        int64_t *count;
    } to[LF_GEN_KEYS] = {[LF_GEN_TEMPERATURE] = {.real = &d->params.temperature},
                         [LF_GEN_TOP_P] = {.real = &d->params.top_p},
                         [LF_GEN_MIN_P] = {.real = &d->params.min_p},
                         [LF_GEN_REPETITION_PENALTY] = {.real = &d->params.repetition_penalty},
                         [LF_GEN_LENGTH_PENALTY] = {.real = &d->beams.length_penalty},
                         [LF_GEN_TOP_K] = {.count = &d->params.top_k},
                         [LF_GEN_MAX_TOKENS] = {.count = &d->max_tokens},
                         [LF_GEN_MIN_TOKENS] = {.count = &d->min_tokens},
                         [LF_GEN_BEAMS] = {.count = &d->beams.n},
                         [LF_GEN_NO_REPEAT] = {.count = &d->no_repeat},
                         [LF_GEN_FIRST_TOKEN] = {.count = &d->first_token},
                         [LF_GEN_LAST_TOKEN] = {.count = &d->last_token}};
    if (k == LF_GEN_EARLY_STOPPING)
        d->beams.early = (enum lf_beams_early)v;
    else if (to[k].real)
        *to[k].real = v;
    else /* tokens are numbered from 1 there */
        *to[k].count = (int64_t)v + (k == LF_GEN_FIRST_TOKEN || k == LF_GEN_LAST_TOKEN);
}

int generate_settings_complete(generate_settings *s, const lf_tokenizer *tok,
                               const char *tokenizer_path, bool say, lf_err *err)
{
    lf_gen_config c = {0};
    lf_buf taken;
    lf_buf_init(&taken);
    int rc = lf_infer_end_tokens(&s->end, &s->d.n_end, tok, tokenizer_path, s->eos, s->n_eos, err);
    s->d.end = s->end;
    if (rc == 0 && tokenizer_path)
        rc = lf_gen_config_read(&c, tokenizer_path, s->seq2seq, err);
    for (int k = 0; rc == 0 && k < LF_GEN_KEYS; k++) {
        if (!c.has[k] || s->set[k])
            continue;
        if (!s->raw)
            take(&s->d, k, c.value[k]);
        lf_buf_addf(&taken, "%s%s %g", taken.len ? ", " : "", lf_gen_key_name(k), c.value[k]);
    }
    if (rc == 0)
        rc = lf_sample_check(&s->d.params, err);
    if (rc == 0)
        rc = lf_buf_check(&taken, err);
    if (rc == 0 && say && taken.len > 0)
        lf_log(2,
               s->raw ? "raw: %s of generation_config.json not taken"
                      : "from generation_config.json: %s (--raw leaves it out)",
               taken.data);
    if (rc == 0 && say && s->d.n_end > 1)
        lf_log(2, "%zu end tokens", s->d.n_end);
    lf_buf_fini(&taken);
    return rc;
}

void generate_settings_fini(generate_settings *s)
{
    json_decref(s->d.more);
    free(s->stop);
    free(s->eos);
    free(s->end);
}
