/* SPDX-License-Identifier: Apache-2.0
 *
 * Spec ids by what was made: see settle.h.
 */
#include "config.h"

#include "flow/plan/settle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/hash.h"
#include "engine/base/str.h"

/* What a producer is called in the spec of its readers, as frozen and as it is. */
static void names_of(char was[100], char is[100], const lf_doc_stage *from)
{
    snprintf(was, 100, "stage:%.64s.", from->frozen_id);
    if (from->ended_at_step > 0)
        snprintf(is, 100, "stage:%.64s@%lld.", from->spec_id, (long long)from->ended_at_step);
    else
        snprintf(is, 100, "stage:%.64s.", from->spec_id);
}

static bool as_frozen(const lf_doc_stage *from)
{
    return from->ended_at_step == 0 && lf_text_same(from->spec_id, from->frozen_id);
}

static int replace(char **text, const char *was, const char *is, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    const char *p = *text;
    for (const char *at = strstr(p, was); at != NULL; at = strstr(p, was)) {
        lf_buf_add(&b, p, (size_t)(at - p));
        lf_buf_adds(&b, is);
        p = at + strlen(was);
    }
    lf_buf_adds(&b, p);
    int rc = lf_buf_check(&b, err);
    if (rc == 0)
        rc = lf_text_set(text, b.data, "spec", err);
    lf_buf_fini(&b);
    return rc;
}

static int replace_all(lf_spec *s, const lf_doc_stage *from, lf_err *err)
{
    char was[100], is[100];
    int rc = 0;
    names_of(was, is, from);
    for (size_t i = 0; i < s->inputs.n; i++)
        for (size_t k = 0; rc == 0 && k < s->inputs.v[i].values.n; k++)
            if (strstr(s->inputs.v[i].values.v[k], was) != NULL)
                rc = replace(&s->inputs.v[i].values.v[k], was, is, err);
    return rc;
}

static int set_id(lf_doc_stage *stage, const char *id, lf_err *err)
{
    return lf_text_same(stage->spec_id, id) ? 0 : lf_text_set(&stage->spec_id, id, "spec_id", err);
}

static int hash_settled(lf_doc_stage *stage, lf_err *err)
{
    uint8_t digest[LF_HASH_BYTES];
    char hex[LF_HASH_HEX], *text = lf_spec_text(&stage->settled, err);
    int rc = text == NULL ? LF_ENOMEM : lf_hash_buf(digest, text, strlen(text), err);
    free(text);
    if (rc < 0)
        return rc;
    lf_hash_hex(hex, digest);
    return set_id(stage, hex, err);
}

int lf_spec_settle(lf_doc_stage *stage, const lf_doc *plan, lf_err *err)
{
    int rc = 0;
    lf_spec_fini(&stage->settled);
    for (size_t k = 0; rc == 0 && k < stage->deps.n; k++) {
        const lf_doc_stage *from = lf_doc_find(plan, stage->deps.v[k]);
        if (from == NULL || as_frozen(from))
            continue;
        if (!stage->settled.given)
            rc = lf_spec_copy(&stage->settled, &stage->spec, err);
        if (rc == 0)
            rc = replace_all(&stage->settled, from, err);
    }
    if (rc < 0)
        return rc;
    return stage->settled.given ? hash_settled(stage, err) : set_id(stage, stage->frozen_id, err);
}
