/* SPDX-License-Identifier: Apache-2.0
 *
 * Rendering: turns and tools to what a template sees, and the template over them.
 */
#include "engine/text/chat/chat.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/text/chat/chat_priv.h"

/* ---- messages ---- */

/* The same reasoning under every name that templates read; the first that is there counts. */
static int alias_reasoning(json_t *m)
{
    json_t *r = json_object_get(m, "reasoning_content");
    r = r ? r : json_object_get(m, "thinking");
    r = r ? r : json_object_get(m, "reasoning");
    if (!r)
        return 0;
    if (!json_object_get(m, "thinking") && json_object_set(m, "thinking", r) != 0)
        return -1;
    return json_object_set(m, "reasoning_content", r);
}

/* [{"name", "arguments"}] or one of them, as an assistant's tool_calls. */
static json_t *call_message(const lf_turn *t, lf_err *err)
{
    json_t *call = t->text ? json_loadb(t->text, t->len, JSON_REJECT_DUPLICATES, NULL) : NULL, *e;
    json_t *list = json_array(), *m = json_pack("{s:s, s:s}", "role", "assistant", "content", "");
    bool ok = call && list && m;
    size_t i;
    if (json_is_object(call)) {
        e = call;
        call = json_pack("[o]", e);
    }
    json_array_foreach(call, i, e)
    {
        ok = ok && json_is_string(json_object_get(e, "name")) &&
             json_array_append_new(list,
                                   json_pack("{s:s, s:O}", "type", "function", "function", e)) == 0;
    }
    ok = ok && json_array_size(list) > 0 && json_object_set(m, "tool_calls", list) == 0;
    json_decref(call);
    json_decref(list);
    if (ok)
        return m;
    json_decref(m);
    lf_fail(err, LF_EFORMAT,
            "a function_call turn is no JSON object with a name and arguments: %.80s",
            t->text ? t->text : "(no text)");
    return NULL;
}

static json_t *turn_message(const lf_turn *t, lf_err *err)
{
    const char *key;
    json_t *v;
    if (t->role == LF_ROLE_FUNCTION_CALL)
        return call_message(t, err);
    if (!t->json) {
        json_t *plain =
            json_pack("{s:s, s:s%}", "role", lf_role_name(t->role), "content", t->text, t->len);
        if (!plain)
            lf_fail(err, LF_EFORMAT, "a turn of %s is no UTF-8 text", lf_role_name(t->role));
        return plain;
    }
    json_t *m = json_object();
    int bad = !m;
    json_object_foreach(t->json, key, v)
    {
        bad = bad || (!json_is_null(v) && json_object_set(m, key, v) != 0);
    }
    if (bad || alias_reasoning(m)) {
        json_decref(m);
        lf_fail(err, LF_ENOMEM, "no memory for a message");
        return NULL;
    }
    return m;
}

static json_t *messages_of(const lf_turn *turns, size_t n, lf_err *err)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) {
        json_t *m = turn_message(&turns[i], err);
        if (m && json_array_append_new(list, m) == 0)
            continue;
        json_decref(list);
        return NULL;
    }
    if (!list)
        lf_fail(err, LF_ENOMEM, "no memory for messages");
    return list;
}

/* A list as it stands; a text is read as JSON, and functions in it that stand there bare get the
 * usual envelope. */
static int tools_of(json_t **out, json_t *tools, lf_err *err)
{
    json_t *list, *e;
    size_t i;
    *out = NULL;
    if (!tools || (json_is_string(tools) && json_string_length(tools) == 0))
        return 0;
    if (json_is_array(tools)) {
        *out = json_array_size(tools) ? json_incref(tools) : NULL;
        return 0;
    }
    list = json_loadb(json_string_value(tools) ? json_string_value(tools) : "",
                      json_string_length(tools), JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_array(list)) {
        json_decref(list);
        return lf_fail(err, LF_EFORMAT, "the tools are no list, and no text that is JSON of one");
    }
    json_array_foreach(list, i, e)
    {
        if (json_object_get(e, "name") && !json_object_get(e, "function"))
            json_array_set_new(list, i, json_pack("{s:s, s:O}", "type", "function", "function", e));
    }
    if (json_array_size(list) == 0) {
        json_decref(list);
        list = NULL;
    }
    *out = list;
    return 0;
}

/* ---- rendering ---- */

static json_t *variables(const lf_chat *c, json_t *messages, json_t *tools, bool generation_prompt,
                         lf_err *err)
{
    const char *key;
    json_t *v, *vars = json_object();
    const struct lf_json_member m[] = {
        {"messages", json_incref(messages)},
        {"tools", tools ? json_incref(tools) : json_null()},
        {"documents", json_null()},
        {"add_generation_prompt", json_boolean(generation_prompt)},
    };
    int rc = lf_json_set(vars, m, sizeof m / sizeof m[0], "variables of a template", err);
    json_object_foreach(c->vars, key, v)
    {
        const struct lf_json_member own = {key, rc == 0 ? json_deep_copy(v) : NULL};
        rc = rc != 0 ? rc : lf_json_set(vars, &own, 1, "variables of a template", err);
    }
    if (rc == 0)
        return vars;
    json_decref(vars);
    return NULL;
}

int lf_chat_render_spans(const lf_chat *c, const struct lf_conversation *said,
                         bool generation_prompt, lf_buf *out, lf_jinja_spans *spans, lf_err *err)
{
    json_t *list = NULL, *messages = NULL, *vars = NULL;
    lf_jinja_opts o = {.now = c->now};
    int rc = said->n == 0 && !generation_prompt
                 ? lf_fail(err, LF_EFORMAT, "a conversation without turns")
                 : 0;
    if (rc == 0)
        rc = tools_of(&list, said->tools, err);
    if (rc == 0 && !(messages = messages_of(said->turns, said->n, err)))
        rc = err && err->rc ? err->rc : LF_EFORMAT;
    if (rc == 0 && !(vars = variables(c, messages, list, generation_prompt, err)))
        rc = LF_ENOMEM;
    if (rc == 0)
        rc = lf_jinja_render(list && c->tools ? c->tools : c->main, vars, &o, out, spans, err);
    json_decref(vars);
    json_decref(messages);
    json_decref(list);
    return rc;
}

int lf_chat_render(const lf_chat *c, const lf_turn *turns, size_t n, json_t *tools,
                   bool generation_prompt, lf_buf *out, lf_err *err)
{
    const struct lf_conversation said = {turns, n, tools, NULL};
    return lf_chat_render_spans(c, &said, generation_prompt, out, NULL, err);
}

int lf_chat_prompt(const lf_chat *c, lf_tok_state *t, const struct lf_conversation *said,
                   lf_ids *out, lf_err *err)
{
    const lf_rewrite *w = said->rewrite;
    lf_buf text;
    lf_buf_init(&text);
    int rc = said->n == 0 ? lf_fail(err, LF_EFORMAT, "a conversation without turns")
                          : lf_chat_render(c, said->turns, said->n, said->tools, true, &text, err);
    if (rc == 0 && w)
        rc = w->fn(w->arg, &text, NULL, 0, false, err);
    if (rc == 0)
        rc = lf_tokenizer_encode(t, text.data, text.len, 0, out, NULL, err);
    lf_buf_fini(&text);
    return rc;
}

/* ---- the order of roles ---- */

int lf_chat_check_order(const lf_turn *turns, size_t n, lf_err *err)
{
    enum { START, USER, ANSWER, TOOL } state = START;
    size_t i = n > 0 && turns[0].role == LF_ROLE_SYSTEM;
    if (n == i)
        return lf_fail(err, LF_EFORMAT, "a conversation without turns");
    for (; i < n; i++) {
        enum lf_role r = turns[i].role;
        bool answer = lf_turn_is_answer(&turns[i]);
        bool fits = r == LF_ROLE_USER   ? state == START || state == ANSWER
                    : answer            ? state == USER || state == TOOL
                    : r == LF_ROLE_TOOL ? state == ANSWER || state == TOOL
                                        : false;
        if (!fits)
            return lf_fail(
                err, LF_EFORMAT,
                "turn %zu is of %s, %s; set turn_order = any to leave this to the template", i + 1,
                lf_role_name(r),
                r == LF_ROLE_SYSTEM ? "which stands in front only"
                : state == START    ? "but a conversation begins with a user's"
                : state == USER     ? "after one of the user"
                : state == ANSWER   ? "after one of the assistant"
                                    : "after a tool's");
        state = r == LF_ROLE_USER ? USER : answer ? ANSWER : TOOL;
    }
    return 0;
}
