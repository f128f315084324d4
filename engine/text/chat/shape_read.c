/* SPDX-License-Identifier: Apache-2.0
 *
 * The pieces of a row of known shape.
 */
#include <stdio.h>
#include <string.h>

#include "engine/base/str.h"
#include "engine/text/chat/shape_priv.h"

static const char *const role_names[] = {"system", "user", "assistant", "tool", "function_call"};

const char *lf_role_name(enum lf_role r)
{
    return (unsigned)r < 5 ? role_names[r] : "?";
}

/* ---- roles ---- */

static int find_role(enum lf_role *out, const struct lf_row_ctx *c, const char *name, lf_err *err)
{
    static const struct {
        const char *name;
        enum lf_role role;
    } usual[] = {{"system", LF_ROLE_SYSTEM},
                 {"developer", LF_ROLE_SYSTEM},
                 {"user", LF_ROLE_USER},
                 {"human", LF_ROLE_USER},
                 {"assistant", LF_ROLE_ASSISTANT},
                 {"gpt", LF_ROLE_ASSISTANT},
                 {"tool", LF_ROLE_TOOL},
                 {"observation", LF_ROLE_TOOL},
                 {"function_call", LF_ROLE_FUNCTION_CALL}};
    size_t n = strlen(name);
    for (size_t i = 0; i < c->o->n_roles; i++)
        if (strncmp(c->o->roles[i], name, n) == 0 && c->o->roles[i][n] == '=')
            for (int r = 0; r < 5; r++)
                if (strcmp(c->o->roles[i] + n + 1, role_names[r]) == 0) {
                    *out = (enum lf_role)r;
                    return 0;
                }
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++)
        if (strcmp(usual[i].name, name) == 0) {
            *out = usual[i].role;
            return 0;
        }
    return lf_fail(err, LF_EFORMAT,
                   "%s: speaker \"%.60s\" is not known; map it with roles, such as %.60s=user",
                   c->where, name, name);
}

/* ---- texts and turns ---- */

static void set_text(lf_piece *p, json_t *v)
{
    p->text = json_string_value(v);
    p->len = json_string_length(v);
}

static int wrong_type(const struct lf_row_ctx *c, const char *name, const char *want, lf_err *err)
{
    return lf_fail(err, LF_EFORMAT, "%s: column \"%s\" is not %s", c->where,
                   lf_shape_column(c->o, name), want);
}

/* An optional text; *out stays NULL without it. */
static int get_text(json_t **out, const struct lf_row_ctx *c, const char *name, lf_err *err)
{
    json_t *v = lf_shape_get(c, name);
    if (v && !json_is_string(v))
        return wrong_type(c, name, "a text", err);
    *out = v && json_string_length(v) ? v : NULL;
    return 0;
}

/* The member of a message under its usual names ("role" or "from"), or as columns renames it. From
 * now on it goes by our name in the message, which is what templates know. */
static json_t *member(const struct lf_row_ctx *c, json_t *m, const char *ours, const char *sharegpt)
{
    const char *name = lf_shape_column(c->o, ours);
    json_t *v = json_object_get(m, name);
    if (!v && strcmp(name, ours) == 0)
        v = json_object_get(m, name = sharegpt);
    if (v && strcmp(name, ours) != 0 && json_object_set(m, ours, v) == 0)
        json_object_del(m, name);
    return v;
}

/* ---- the members of a turn ---- */

static const char *const members[] = {"role",
                                      "content",
                                      "name",
                                      "tool_calls",
                                      "tool_call_id",
                                      "function_call",
                                      "reasoning_content",
                                      "reasoning",
                                      "thinking",
                                      "train",
                                      "weight",
                                      "loss"};
#define N_MEMBERS (sizeof members / sizeof members[0])

static int check_members(const struct lf_row_ctx *c, json_t *m, const char *column, lf_err *err)
{
    const char *key;
    json_t *v;
    json_object_foreach(m, key, v)
    {
        bool known = json_is_null(v) || c->o->ignore_unmapped ||
                     (c->o->reads && c->o->reads(c->o->reads_arg, key));
        for (size_t i = 0; i < N_MEMBERS && !known; i++)
            known = strcmp(key, members[i]) == 0;
        if (known)
            continue;
        const char *near = lf_nearest(key, members, N_MEMBERS);
        return lf_fail(err, LF_EFORMAT,
                       "%s: member \"%.100s\" of a turn in \"%s\" means nothing, nor does the chat "
                       "template read it%s%s; "
                       "remove it, or set unmapped = ignore",
                       c->where, key, column, near ? "; did you mean " : "", near ? near : "");
    }
    return 0;
}

/* Is the turn to be trained, by its own word? All three names may say it, if they say the same. */
static int read_train(lf_turn *t, const struct lf_row_ctx *c, json_t *m, const char *column,
                      lf_err *err)
{
    static const char *const names[] = {"train", "weight", "loss"};
    const char *first = NULL;
    for (size_t i = 0; i < 3; i++) {
        json_t *v = json_object_get(m, names[i]);
        double n = json_is_number(v)  ? json_number_value(v)
                   : json_is_true(v)  ? 1
                   : json_is_false(v) ? 0
                                      : -1;
        bool no = n >= 0 && n <= 0, yes = n >= 1 && n <= 1;
        if (!v || json_is_null(v))
            continue;
        if (!no && !yes)
            return lf_fail(
                err, LF_EFORMAT,
                "%s: \"%s\" of a turn in \"%s\" is neither 0 nor 1, neither false nor true",
                c->where, names[i], column);
        enum lf_turn_train said = yes ? LF_TURN_TRAINED : LF_TURN_NOT_TRAINED;
        if (first && said != t->train)
            return lf_fail(err, LF_EFORMAT,
                           "%s: \"%s\" and \"%s\" of a turn in \"%s\" contradict each other",
                           c->where, first, names[i], column);
        t->train = said;
        first = names[i];
    }
    if (t->train == LF_TURN_TRAINED && !lf_turn_is_answer(t))
        return lf_fail(err, LF_EFORMAT, "%s: a turn of %s in \"%s\" cannot be trained (\"%s\")",
                       c->where, lf_role_name(t->role), column, first);
    return 0;
}

static int read_turn(lf_turn *t, const struct lf_row_ctx *c, json_t *m, const char *column,
                     lf_err *err)
{
    json_t *role = member(c, m, "role", "from"), *content = member(c, m, "content", "value");
    if (!json_is_object(m) || !json_is_string(role))
        return lf_fail(
            err, LF_EFORMAT,
            "%s: a turn in \"%s\" has no role; what it is called is set with columns = role=NAME",
            c->where, column);
    int rc = find_role(&t->role, c, json_string_value(role), err);
    if (rc == 0)
        rc = check_members(c, m, column, err);
    if (rc == 0)
        rc = read_train(t, c, m, column, err);
    if (rc < 0)
        return rc;
    bool calls = json_object_get(m, "tool_calls") || json_object_get(m, "function_call");
    if (!json_is_string(content) && !json_is_array(content) && !calls)
        return lf_fail(err, LF_EFORMAT, "%s: a turn of %s in \"%s\" has no content", c->where,
                       lf_role_name(t->role), column);
    if (strcmp(json_string_value(role), "developer") != 0 &&
        strcmp(json_string_value(role), lf_role_name(t->role)) != 0 &&
        json_object_set_new(m, "role", json_string(lf_role_name(t->role))) != 0)
        return lf_fail(err, LF_ENOMEM, "no memory for a turn");
    t->json = m;
    t->text = json_string_value(content);
    t->len = json_string_length(content);
    return 0;
}

/* `extra` turns are left free in front. */
static int read_turns(lf_piece *p, const struct lf_row_ctx *c, json_t *list, const char *name,
                      size_t extra, lf_err *err)
{
    const char *column = lf_shape_column(c->o, name);
    json_t *m;
    size_t i, n = json_array_size(list);
    if (!json_is_array(list) || n == 0)
        return lf_fail(err, LF_EFORMAT, "%s: column \"%s\" is not a list of turns", c->where,
                       column);
    p->turns = lf_arena_alloc(c->arena, n + extra, sizeof *p->turns, err);
    if (!p->turns)
        return LF_ENOMEM;
    p->n_turns = n + extra;
    json_array_foreach(list, i, m)
    {
        int rc = read_turn(&p->turns[extra + i], c, m, column, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static lf_turn text_turn(enum lf_role role, json_t *text)
{
    return (lf_turn){
        .role = role, .text = json_string_value(text), .len = json_string_length(text)};
}

/* A column that is a text, a message, or a list of messages. */
static int read_piece(lf_piece *p, const struct lf_row_ctx *c, const char *name, lf_err *err)
{
    json_t *v = lf_shape_get(c, name);
    if (json_is_array(v))
        return read_turns(p, c, v, name, 0, err);
    if (json_is_object(v)) {
        p->turns = lf_arena_alloc(c->arena, 1, sizeof *p->turns, err);
        p->n_turns = 1;
        return p->turns ? read_turn(p->turns, c, v, lf_shape_column(c->o, name), err) : LF_ENOMEM;
    }
    if (!json_is_string(v))
        return wrong_type(c, name, "a text or a list of turns", err);
    set_text(p, v);
    return 0;
}

/* A conversation with the column `system` in front. */
static int read_conversation(lf_piece *p, const struct lf_row_ctx *c, const char *name, lf_err *err)
{
    json_t *system = NULL;
    int rc = get_text(&system, c, "system", err);
    if (rc == 0)
        rc = read_turns(p, c, lf_shape_get(c, name), name, system != NULL, err);
    if (rc == 0 && system)
        p->turns[0] = text_turn(LF_ROLE_SYSTEM, system);
    return rc;
}

/* ---- alpaca ---- */

static int read_history(lf_turn *t, const struct lf_row_ctx *c, json_t *history, lf_err *err)
{
    json_t *pair;
    size_t i;
    json_array_foreach(history, i, pair)
    {
        json_t *q = json_array_get(pair, 0), *a = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !json_is_string(q) || !json_is_string(a))
            return wrong_type(c, "history", "a list of pairs of texts", err);
        *t++ = text_turn(LF_ROLE_USER, q);
        *t++ = text_turn(LF_ROLE_ASSISTANT, a);
    }
    return 0;
}

static int read_alpaca(lf_row *r, const struct lf_row_ctx *c, lf_err *err)
{
    json_t *ask = lf_shape_get(c, "instruction"), *answer = lf_shape_get(c, "output"),
           *input = NULL, *system = NULL;
    json_t *history = lf_shape_get(c, "history");
    if (!json_is_string(ask) || !json_is_string(answer))
        return wrong_type(c, json_is_string(ask) ? "output" : "instruction", "a text", err);
    if (history && !json_is_array(history))
        return wrong_type(c, "history", "a list of pairs of texts", err);
    int rc = get_text(&input, c, "input", err);
    if (rc == 0)
        rc = get_text(&system, c, "system", err);
    if (rc < 0)
        return rc;
    size_t n = 2 * json_array_size(history) + 1 + (system != NULL);
    lf_turn *t = lf_arena_alloc(c->arena, n + 1, sizeof *t, err);
    if (!t)
        return LF_ENOMEM;
    if (system)
        t[0] = text_turn(LF_ROLE_SYSTEM, system);
    rc = read_history(t + (system != NULL), c, history, err);
    t[n - 1] = text_turn(LF_ROLE_USER, ask);
    if (rc == 0 && input) {
        size_t len = json_string_length(ask) + 1 + json_string_length(input);
        char *both = lf_arena_alloc(c->arena, len + 1, 1, err);
        if (!both)
            return LF_ENOMEM;
        memcpy(both, json_string_value(ask), json_string_length(ask));
        both[json_string_length(ask)] = '\n';
        memcpy(both + json_string_length(ask) + 1, json_string_value(input),
               json_string_length(input));
        t[n - 1].text = both;
        t[n - 1].len = len;
    }
    t[n] = text_turn(LF_ROLE_ASSISTANT, answer);
    r->prompt = (lf_piece){.turns = t, .n_turns = n};
    r->completion = (lf_piece){.turns = t + n, .n_turns = 1};
    return rc;
}

/* ---- preference, unpaired ---- */

static int check_ranked(const struct lf_row_ctx *c, json_t *m, lf_err *err)
{
    const char *key;
    json_t *v;
    json_object_foreach(m, key, v)
    {
        if (!c->o->ignore_unmapped && !json_is_null(v) && strcmp(key, "rank") != 0 &&
            strcmp(key, "completion") != 0)
            return lf_fail(
                err, LF_EFORMAT,
                "%s: member \"%.100s\" of an answer in \"%s\" means nothing; remove it, or set "
                "unmapped = ignore",
                c->where, key, lf_shape_column(c->o, "completions"));
    }
    return 0;
}

/* NeMo's form: two answers with ranks. */
static int read_ranked(lf_row *r, const struct lf_row_ctx *c, lf_err *err)
{
    json_t *list = lf_shape_get(c, "completions"), *m;
    size_t i;
    double rank[2];
    lf_piece p[2] = {{0}};
    int rc = read_piece(&r->prompt, c, "context", err);
    if (rc == 0 && json_array_size(list) != 2)
        return wrong_type(c, "completions", "a list of two answers with ranks", err);
    json_array_foreach(list, i, m)
    {
        json_t *k = json_object_get(m, "rank"), *v = json_object_get(m, "completion");
        if (rc < 0 || !json_is_number(k))
            return rc < 0 ? rc : wrong_type(c, "completions", "a list of {rank, completion}", err);
        if (json_object_size(m) > 2 && (rc = check_ranked(c, m, err)) < 0)
            return rc;
        rank[i] = json_number_value(k);
        if (json_is_array(v))
            rc = read_turns(&p[i], c, v, "completions", 0, err);
        else if (json_is_string(v))
            set_text(&p[i], v);
        else
            rc = wrong_type(c, "completions", "a list of {rank, completion}", err);
    }
    if (rc < 0)
        return rc;
    if (!(rank[0] < rank[1]) && !(rank[1] < rank[0]))
        return lf_fail(err, LF_EFORMAT, "%s: both answers have rank %g", c->where, rank[0]);
    r->completion = p[rank[1] < rank[0]];
    r->rejected = p[!(rank[1] < rank[0])];
    return 0;
}

static int read_preference(lf_row *r, const struct lf_row_ctx *c, const struct lf_variant *v,
                           lf_err *err)
{
    json_t *margin = lf_shape_get(c, "margin");
    int rc = 0;
    if (margin && !json_is_number(margin))
        return wrong_type(c, "margin", "a number", err);
    r->has_margin = margin != NULL;
    r->margin = margin ? json_number_value(margin) : 0;
    if (strcmp(v->columns[0], "context") == 0)
        return read_ranked(r, c, err);
    if (strcmp(v->columns[0], "conversations") == 0)
        rc = read_conversation(&r->prompt, c, "conversations", err);
    else if (lf_shape_get(c, "prompt"))
        rc = read_piece(&r->prompt, c, "prompt", err);
    if (rc == 0)
        rc = read_piece(&r->completion, c, "chosen", err);
    return rc < 0 ? rc : read_piece(&r->rejected, c, "rejected", err);
}

static int read_unpaired(lf_row *r, const struct lf_row_ctx *c, const struct lf_variant *v,
                         lf_err *err)
{
    const char *first = v->columns[0], *name = strcmp(first, "prompt") == 0 ? "label" : "kto_tag";
    json_t *label = lf_shape_get(c, name);
    int rc = 0;
    if (!json_is_boolean(label))
        return wrong_type(c, name, "true or false", err);
    r->label = json_is_true(label);
    if (strcmp(first, "prompt") == 0) {
        rc = read_piece(&r->prompt, c, "prompt", err);
        return rc < 0 ? rc : read_piece(&r->completion, c, "completion", err);
    }
    return strcmp(first, "instruction") == 0 ? read_alpaca(r, c, err)
                                             : read_conversation(&r->completion, c, first, err);
}

/* ---- tokens ---- */

static int get_ids(json_t **out, const struct lf_row_ctx *c, const char *name, size_t want,
                   lf_err *err)
{
    json_t *v = lf_shape_get(c, name), *e;
    size_t i;
    *out = v;
    if (!v)
        return 0;
    if (!json_is_array(v))
        return wrong_type(c, name, "a list of numbers", err);
    json_array_foreach(v, i, e)
    {
        if (!json_is_integer(e))
            return wrong_type(c, name, "a list of whole numbers", err);
    }
    if (want != (size_t)-1 && json_array_size(v) != want)
        return lf_fail(err, LF_EFORMAT, "%s: \"%s\" has %zu numbers, \"%s\" %zu", c->where,
                       lf_shape_column(c->o, name), json_array_size(v),
                       lf_shape_column(c->o, "input_ids"), want);
    return 0;
}

static int put_id(lf_row *r, const struct lf_row_ctx *c, size_t i, json_t *ids, json_t *labels,
                  lf_err *err)
{
    json_int_t id = json_integer_value(json_array_get(ids, i)),
               l = labels ? json_integer_value(json_array_get(labels, i)) : id;
    if (id < 0 || id > INT32_MAX)
        return lf_fail(err, LF_EFORMAT, "%s: input_ids[%zu] = %lld is no token id", c->where, i,
                       (long long)id);
    if (l != id && l != -100)
        return lf_fail(err, LF_EFORMAT,
                       "%s: labels[%zu] = %lld is neither the token (%lld) nor -100; other targets "
                       "are not kept",
                       c->where, i, (long long)l, (long long)id);
    r->mask[r->n_ids] = l != -100 || !labels;
    r->ids[r->n_ids++] = (uint32_t)id;
    return 0;
}

/* Padding (attention_mask 0) is dropped; batches are packed anew here. */
static int read_tokens(lf_row *r, const struct lf_row_ctx *c, lf_err *err)
{
    json_t *ids = NULL, *labels = NULL, *attend = NULL;
    int rc = get_ids(&ids, c, "input_ids", (size_t)-1, err);
    size_t n = json_array_size(ids);
    if (rc == 0)
        rc = get_ids(&labels, c, "labels", n, err);
    if (rc == 0)
        rc = get_ids(&attend, c, "attention_mask", n, err);
    if (rc == 0 && (!(r->ids = lf_arena_alloc(c->arena, n + 1, sizeof *r->ids, err)) ||
                    !(r->mask = lf_arena_alloc(c->arena, n + 1, 1, err))))
        rc = LF_ENOMEM;
    for (size_t i = 0; i < n && rc == 0; i++)
        if (!attend || json_integer_value(json_array_get(attend, i)))
            rc = put_id(r, c, i, ids, labels, err);
    if (!labels)
        r->mask = NULL;
    return rc;
}

int lf_shape_read(lf_row *r, const struct lf_row_ctx *c, const struct lf_variant *v, lf_err *err)
{
    int rc = 0;
    r->tools = lf_shape_get(c, "tools");
    switch (v->shape) {
    case LF_SHAPE_TEXT:
        if (!json_is_string(lf_shape_get(c, "text")))
            return wrong_type(c, "text", "a text", err);
        set_text(&r->prompt, lf_shape_get(c, "text"));
        return 0;
    case LF_SHAPE_PROMPT_COMPLETION:
        rc = read_piece(&r->prompt, c, "prompt", err);
        return rc < 0 ? rc : read_piece(&r->completion, c, "completion", err);
    case LF_SHAPE_MESSAGES:
        return read_turns(&r->prompt, c, lf_shape_get(c, "messages"), "messages", 0, err);
    case LF_SHAPE_SHAREGPT:
        return read_conversation(&r->prompt, c, "conversations", err);
    case LF_SHAPE_ALPACA:
        return read_alpaca(r, c, err);
    case LF_SHAPE_PREFERENCE:
        return read_preference(r, c, v, err);
    case LF_SHAPE_UNPAIRED:
        return read_unpaired(r, c, v, err);
    case LF_SHAPE_PROMPT:
        r->rest = c->root;
        return read_piece(&r->prompt, c, "prompt", err);
    default:
        return read_tokens(r, c, err);
    }
}
