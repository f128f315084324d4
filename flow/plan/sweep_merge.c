/* SPDX-License-Identifier: Apache-2.0
 *
 * The plans of the children of a sweep as one: stages that are the same are in it once.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/plan/pipeline_priv.h"
#include "flow/plan/sweep.h"

/* ---- names of stages within a stage ---- */

/* A name in the place of another, where names has one for it. */
static int rename_word(char **word, const lf_pairs *names, lf_err *err)
{
    const char *now = lf_pairs_get(names, *word);
    return now != NULL ? lf_text_set(word, now, "stage", err) : 0;
}

static int rename_words(lf_texts *words, const lf_pairs *names, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < words->n; i++)
        rc = rename_word(&words->v[i], names, err);
    return rc;
}

/* The references of a text: "${stage:NAME" up to its dot or brace. */
static int rename_refs(char **text, const lf_pairs *names, lf_err *err)
{
    static const char begin[] = "${stage:";
    const char *p = *text, *d;
    lf_buf b;
    if (strstr(p, begin) == NULL)
        return 0;
    lf_buf_init(&b);
    while ((d = strstr(p, begin)) != NULL) {
        const char *name = d + strlen(begin);
        const size_t n = strcspn(name, ".}");
        char word[128];
        snprintf(word, sizeof word, "%.*s", (int)n, name);
        const char *now = lf_pairs_get(names, word);
        lf_buf_add(&b, p, (size_t)(name - p));
        lf_buf_adds(&b, now != NULL ? now : word);
        p = name + n;
    }
    lf_buf_adds(&b, p);
    int rc = lf_buf_check(&b, err);
    if (rc == 0)
        rc = lf_text_set(text, b.data, "reference", err);
    lf_buf_fini(&b);
    return rc;
}

static int rename_needs(lf_doc_stage *st, const lf_pairs *names, lf_err *err)
{
    int rc = rename_words(&st->after, names, err);
    if (rc == 0)
        rc = rename_words(&st->deps, names, err);
    for (size_t i = 0; rc == 0 && i < st->options.n; i++)
        for (size_t k = 0; rc == 0 && k < st->options.v[i].values.n; k++)
            rc = rename_refs(&st->options.v[i].values.v[k], names, err);
    for (size_t i = 0; rc == 0 && i < st->inputs.n; i++) {
        lf_doc_input *in = &st->inputs.v[i];
        rc = rename_refs(&in->text, names, err);
        for (size_t k = 0; rc == 0 && k < in->refs.n; k++)
            rc = rename_word(&in->refs.v[k].stage, names, err);
    }
    return rc;
}

/* ---- merging ---- */

/* The stage that has everything of st but its place, LF_NAMES_NONE: there is none yet. key: owned
 * by the merge afterwards. */
static int find_same(size_t *at, char **key, lf_sweep_merge *m, const lf_doc_stage *st, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    char *text = lf_doc_stage_text(st, err);
    lf_buf_addf(&b, "%s %s", st->name, text != NULL ? text : "");
    free(text);
    *key = text == NULL ? NULL : lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    if (*key == NULL)
        return LF_ENOMEM;
    *at = lf_names_find(&m->same, *key, "");
    return 0;
}

static int take_stage(lf_sweep_merge *m, lf_doc_stage *st, char *key, int64_t child, lf_err *err)
{
    char name[160];
    char **mine = lf_rows_add(&m->keys, sizeof *mine, err);
    if (mine == NULL) {
        free(key);
        return LF_ENOMEM;
    }
    *mine = key;
    snprintf(name, sizeof name, "%s@%lld", st->name, (long long)child);
    int rc = lf_text_set(&st->name, name, "stage", err);
    lf_doc_stage *slot = rc == 0 ? lf_rows_add(&m->plan->stages, sizeof *slot, err) : NULL;
    if (slot == NULL)
        return LF_ENOMEM;
    *slot = *st;
    memset(st, 0, sizeof *st); /* it is the merged plan's now */
    return lf_names_put(&m->same, key, "", m->plan->stages.n - 1, err);
}

int lf_sweep_merge_child(lf_sweep_merge *m, lf_doc *plan, lf_sweep_child *child, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < plan->stages.n; i++) {
        lf_doc_stage *st = &plan->stages.v[i];
        size_t at = LF_NAMES_NONE;
        char *key = NULL, *base = lf_strdup(st->name, err);
        rc = base == NULL ? LF_ENOMEM : rename_needs(st, &child->stages, err);
        if (rc == 0)
            rc = find_same(&at, &key, m, st, err);
        if (rc == 0 && at == LF_NAMES_NONE) {
            at = m->plan->stages.n;
            rc = take_stage(m, st, key, child->number.v, err);
        } else {
            free(key);
        }
        if (rc == 0)
            rc = lf_pairs_add(&child->stages, base, m->plan->stages.v[at].name, err);
        free(base);
    }
    return rc;
}

/* Are two children made of the same stages? Then an axis changes nothing. */
static bool same_stages(const lf_sweep_child *a, const lf_sweep_child *b)
{
    bool same = a->stages.n == b->stages.n && a->stages.n > 0;
    for (size_t i = 0; same && i < a->stages.n; i++)
        same = strcmp(a->stages.v[i].value, b->stages.v[i].value) == 0;
    return same;
}

static int check_different(const lf_sweep *s, lf_err *err)
{
    for (size_t i = 0; i < s->children.n; i++)
        for (size_t k = i + 1; k < s->children.n; k++)
            if (same_stages(&s->children.v[i], &s->children.v[k])) {
                lf_buf b;
                lf_buf_init(&b);
                lf_sweep_line(&b, &s->children.v[i]);
                lf_buf_adds(&b, " and ");
                lf_sweep_line(&b, &s->children.v[k]);
                int rc = lf_fail(err, LF_EINVAL,
                                 "[sweep]: children %zu and %zu are the same work (%s): a value "
                                 "stands twice, or no stage reads the key",
                                 i + 1, k + 1, b.data);
                lf_buf_fini(&b);
                return rc;
            }
    return 0;
}

/* A stage that is the same in every child has its own name. */
static int name_common(lf_sweep_merge *m, lf_err *err)
{
    lf_pairs names = {.n = 0};
    lf_sweep *s = &m->plan->sweep;
    const lf_pairs *first = &s->children.v[0].stages;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < first->n; i++) {
        bool common = true;
        for (size_t k = 1; common && k < s->children.n; k++)
            common = lf_text_same(lf_pairs_get(&s->children.v[k].stages, first->v[i].name),
                                  first->v[i].value);
        if (common)
            rc = lf_pairs_add(&names, first->v[i].value, first->v[i].name, err);
    }
    for (size_t i = 0; rc == 0 && i < m->plan->stages.n; i++) {
        rc = rename_word(&m->plan->stages.v[i].name, &names, err);
        if (rc == 0)
            rc = rename_needs(&m->plan->stages.v[i], &names, err);
    }
    for (size_t k = 0; rc == 0 && k < s->children.n; k++)
        for (size_t i = 0; rc == 0 && i < s->children.v[k].stages.n; i++)
            rc = rename_word(&s->children.v[k].stages.v[i].value, &names, err);
    lf_pairs_fini(&names);
    return rc;
}

int lf_sweep_merge_end(lf_sweep_merge *m, bool whole, lf_err *err)
{
    int rc = whole ? check_different(&m->plan->sweep, err) : 0;
    if (rc == 0)
        rc = name_common(m, err);
    return rc == 0 ? lf_doc_index(m->plan, err) : rc;
}

void lf_sweep_merge_fini(lf_sweep_merge *m)
{
    lf_names_fini(&m->same);
    for (size_t i = 0; i < m->keys.n; i++)
        free(m->keys.v[i]);
    free(m->keys.v);
    memset(m, 0, sizeof *m);
}
