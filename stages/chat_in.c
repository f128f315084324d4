/* SPDX-License-Identifier: Apache-2.0
 *
 * See chat_in.h. */
#include "stages/chat_in.h"

#include <stdlib.h>
#include <string.h>

#include "engine/text/chat/shape.h"

/* Messages of a request, in the shape of a row; the request's own variables take the place of those
 * of the options. */
static int render(void *arg, json_t *messages, json_t *tools, json_t *kwargs, lf_buf *out,
                  lf_err *err)
{
    const struct lf_chat_in *c = arg;
    lf_row row = {0};
    lf_chat *own = NULL;
    lf_shape_opts shape = {
        .shape = LF_SHAPE_MESSAGES, .reads = lf_chat_reads, .reads_arg = c->chat};
    json_t *o = json_pack("{s:O,s:O*}", "messages", messages, "tools", tools);
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL,
         *vars = kwargs ? json_dumps(kwargs, JSON_COMPACT) : NULL;
    lf_chat_opts with = c->opts;
    with.vars = vars;
    int rc = text && (vars || !kwargs) ? 0 : lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0)
        rc = lf_shape_row(&row, &shape, text, strlen(text), "messages", NULL, err);
    if (rc == 0 && kwargs && !(own = lf_chat_load(c->tokenizer_path, c->tok, &with, err)))
        rc = LF_EINVAL;
    if (rc == 0)
        rc = lf_chat_render(own ? own : c->chat, row.prompt.turns, row.prompt.n_turns, row.tools,
                            true, out, err);
    lf_chat_destroy(own);
    lf_row_fini(&row);
    json_decref(o);
    free(vars);
    free(text);
    return rc;
}

int lf_chat_in_load(struct lf_chat_in *c, const lf_tokenizer *tok, lf_gen_defaults *d, lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    c->tok = tok;
    c->chat = lf_chat_load(c->tokenizer_path, tok, &c->opts, &why);
    if (!c->chat && why.rc != LF_ENOENT)
        return lf_fail(err, why.rc ? why.rc : LF_EFORMAT, "%s", why.text);
    d->chat = c->chat ? render : NULL;
    d->chat_arg = c;
    return 0;
}

void lf_chat_in_fini(struct lf_chat_in *c)
{
    lf_chat_destroy(c->chat);
    c->chat = NULL;
}
