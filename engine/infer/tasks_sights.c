/* SPDX-License-Identifier: Apache-2.0
 *
 * What stands before an answer: texts, messages and pictures of documents; see tasks.h.
 *
 * Choices of one document have one context. Its pictures are decoded once for the sizes and once
 * for the features, which the prompts of all choices share.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/infer/tasks_priv.h"

#define MARK "<image>" /* of lm-evaluation-harness, whatever the model's is */

void lf_tasks_see(lf_tasks *t, const lf_gen_defaults *d)
{
    t->see = d;
}

/* The harness's marks become the model's. */
static void replace_marks(const char *text, size_t len, const char *mark, lf_buf *out)
{
    const char *end = text + len, *next;
    for (; (next = memmem(text, (size_t)(end - text), MARK, strlen(MARK))); text = next) {
        lf_buf_add(out, text, (size_t)(next - text));
        lf_buf_adds(out, mark);
        next += strlen(MARK);
    }
    lf_buf_add(out, text, (size_t)(end - text));
}

static int render(const lf_tasks *t, json_t *messages, lf_buf *out, lf_err *err)
{
    if (!t->see || !t->see->chat)
        return lf_fail(err, LF_EINVAL,
                       "'messages' needs the tokenizer of a chat model: there is no chat template");
    if (!json_is_array(messages))
        return lf_fail(err, LF_EINVAL, "'messages' is not a list");
    return t->see->chat(t->see->chat_arg, messages, NULL, NULL, out, err);
}

/* A column of parquet may be null. */
json_t *lf_tasks_given(json_t *o, const char *name)
{
    json_t *v = json_object_get(o, name);
    return json_is_null(v) ? NULL : v;
}

/* The text before its pictures have placeholders. */
static int text_of(const lf_tasks *t, json_t *o, const char *member, lf_buf *out, lf_err *err)
{
    const char *text = "";
    json_t *messages = lf_tasks_given(o, "messages");
    if (messages && lf_tasks_given(o, member))
        return lf_fail(err, LF_EINVAL, "both 'messages' and '%s' are given", member);
    if (messages)
        return render(t, messages, out, err);
    const char *what = strcmp(member, "ctx") == 0 ? "request" : "document";
    const int rc = lf_json_get_str(&text, o, member, true, what, err);
    lf_buf_add(out, text, strlen(text));
    return rc != 0 ? rc : lf_buf_check(out, err);
}

/* The list of pictures, owned; the column `image` has one. NULL: there are none. */
static json_t *images_of(json_t *o)
{
    json_t *one = lf_tasks_given(o, "image"), *many = lf_tasks_given(o, "images");
    if (many)
        return json_incref(many);
    return one ? json_pack("[O]", one) : NULL;
}

/* Is the context one of continuations? White space at its end is theirs, so a processor that adds
 * something to a prompt adds it before that. */
static bool continued(const lf_tasks *t)
{
    const eval_task *k = &t->tasks[t->n_tasks - 1];
    const int type = k->kind == LF_TASK_REQUESTS ? lf_output_type_of(k) : -1;
    return k->kind == LF_TASK_CHOICE || type == LF_OUT_CHOICE || type == LF_OUT_LL;
}

/* own: a document of ours, in which every mark stands for a picture. A request of the harness
 * without pictures is a text, whatever is written there. */
static int look(lf_tasks *t, json_t *o, json_t *images, bool own, eval_context *c, lf_err *err)
{
    json_t *messages = lf_tasks_given(o, "messages");
    const lf_gen_eyes *eyes = t->see ? t->see->eyes : NULL;
    const lf_buf *r = &c->rendered;
    const size_t n = continued(t) ? lf_rstrip_len(r->data, r->len) : r->len;
    lf_gen_eyes here = eyes ? *eyes : (lf_gen_eyes){0};
    here.dir = here.dir ? here.dir : t->dir;
    int rc =
        lf_gen_sights_collect(&c->sights, eyes ? &here : NULL, images, messages, t->arena, err);
    if (rc == 0 && eyes && (c->sights || own) && !messages)
        replace_marks(r->data, n, lf_expand_mark(&eyes->expand), &c->text);
    else
        lf_buf_add(&c->text, r->data, n);
    lf_buf_add(&c->tail, r->data + n, r->len - n);
    if (rc == 0)
        rc = lf_buf_check(&c->text, err);
    if (rc == 0)
        rc = lf_buf_check(&c->tail, err);
    return rc == 0 && eyes ? lf_gen_sights_expand(c->sights, &here, &c->text, t->arena, err) : rc;
}

void lf_tasks_forget(lf_tasks *t)
{
    json_decref(t->context.of);
    lf_buf_fini(&t->context.rendered);
    lf_buf_fini(&t->context.text);
    lf_buf_fini(&t->context.tail);
    t->context = (eval_context){.of = NULL};
    lf_buf_init(&t->context.rendered);
    lf_buf_init(&t->context.text);
    lf_buf_init(&t->context.tail);
}

int lf_tasks_context(lf_tasks *t, json_t *o, const char *member, eval_context **out, lf_err *err)
{
    eval_context *c = &t->context;
    json_t *images = images_of(o);
    json_t *of = json_pack("{s:O*,s:O*,s:o*}", "text", json_object_get(o, member), "messages",
                           json_object_get(o, "messages"), "images", images);
    *out = c;
    if (!of)
        return lf_fail(err, LF_ENOMEM, "out of memory");
    if (c->of && json_equal(of, c->of)) {
        json_decref(of);
        return 0;
    }
    lf_tasks_forget(t);
    int rc = text_of(t, o, member, &c->rendered, err);
    if (rc == 0)
        rc = look(t, o, images, strcmp(member, "context") == 0, c, err);
    if (rc == 0)
        c->of = of;
    else
        json_decref(of);
    return rc;
}

int lf_tasks_place(lf_tasks *t, eval_context *c, const int32_t *ids, size_t n,
                   const struct lf_gen_media **out, lf_err *err)
{
    const lf_gen_job job = {.prompt = ids, .n_prompt = n};
    const struct lf_gen_media *m;
    *out = NULL;
    if (!c->sights)
        return 0;
    int rc = lf_gen_sights_place(&m, c->sights, t->see->eyes, &job, t->arena, err);
    struct lf_gen_media *own = rc != 0 ? NULL : lf_arena_alloc(t->arena, 1, sizeof *own, err);
    if (rc != 0 || !own)
        return rc != 0 ? rc : LF_ENOMEM;
    *own = *m;
    c->pictures = c->pictures ? c->pictures : m->pictures;
    own->pictures = c->pictures;
    *out = own;
    return 0;
}

static void most(const struct lf_gen_media *m, int64_t *patches, int64_t *tiles)
{
    const lf_media_batch *b = m ? ((const struct lf_look_pictures *)m->pictures)->batch : NULL;
    *patches = b && b->n_patches > *patches ? b->n_patches : *patches;
    *tiles = b && b->n_tiles > *tiles ? b->n_tiles : *tiles;
}

void lf_tasks_sights(const lf_tasks *t, int64_t *patches, int64_t *tiles)
{
    *patches = *tiles = 0;
    for (size_t i = 0; i < t->n_items; i++)
        most(t->media[i], patches, tiles);
    for (size_t i = 0; i < t->n_gens; i++)
        most(t->gens[i].media, patches, tiles);
}
