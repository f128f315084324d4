/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations to ids and loss masks: where the assistant's turns lie in the tokens of the whole
 * text.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/chat/chat_priv.h"

void lf_chat_doc_init(lf_chat_doc *d)
{
    *d = (lf_chat_doc){0};
    lf_buf_init(&d->text);
    lf_buf_init(&d->part);
}

void lf_chat_doc_fini(lf_chat_doc *d)
{
    lf_ids_fini(&d->ids);
    lf_ids_fini(&d->part_ids);
    lf_buf_fini(&d->text);
    lf_buf_fini(&d->part);
    free(d->mask);
    free(d->spans);
    free(d->ends);
}

struct call {
    lf_chat_doc *d;
    const lf_chat *c;
    lf_tok_state *t;
    struct lf_conversation said;
    const lf_chat_train *o;
};

/* Is turn i to be trained? */
static bool wanted(const struct call *k, size_t i, size_t last)
{
    const lf_turn *t = &k->said.turns[i];
    if (!lf_turn_is_answer(t) || i < k->o->first || t->train == LF_TURN_NOT_TRAINED)
        return false;
    return !k->o->last_only || i == last || t->train == LF_TURN_TRAINED;
}

static int fault(lf_chat_doc *d, enum lf_chat_fault f, int rc)
{
    if (rc < 0 && rc != LF_ENOMEM)
        d->fault = f;
    return rc;
}

static int non_prefix(lf_chat_doc *d, size_t turn, const char *what, lf_err *err)
{
    size_t at = 0;
    while (at < d->part.len && at < d->text.len && d->part.data[at] == d->text.data[at])
        at++;
    return fault(d, LF_CHAT_NON_PREFIX,
                 lf_fail(err, LF_EFORMAT,
                         "the template is not prefix-preserving here: the text up to %s turn %zu "
                         "does not begin %s of "
                         "the conversation (from byte %zu on); train_turns = last, or a template "
                         "with {%% generation "
                         "%%}, may do",
                         what, turn + 1, at == d->part.len ? "the tokens" : "the text", at));
}

/* Tokens of the first `len` bytes of the whole text; -1: they are not its first tokens. The prefix
 * is in d->part. */
static int count_prefix(const struct call *k, size_t *count, bool *fits, lf_err *err)
{
    lf_chat_doc *d = k->d;
    d->part_ids.n = 0;
    int rc = lf_tokenizer_encode(k->t, d->part.data, d->part.len, 0, &d->part_ids, NULL, err);
    *count = d->part_ids.n;
    *fits = rc == 0 && *count <= d->ids.n &&
            (*count == 0 || memcmp(d->part_ids.v, d->ids.v, *count * sizeof *d->ids.v) == 0);
    return rc;
}

static bool begins(const lf_chat_doc *d)
{
    return d->part.len <= d->text.len && memcmp(d->part.data, d->text.data, d->part.len) == 0;
}

/* An end-of-text token behind the whole conversation is not the turn's. */
static void cut_closing(const lf_chat *c, lf_chat_doc *d)
{
    const json_t *eos = json_object_get(c->vars, "eos_token");
    size_t n = json_string_length(eos);
    if (n > 0 && n <= d->part.len &&
        memcmp(d->part.data + d->part.len - n, json_string_value(eos), n) == 0)
        d->part.data[d->part.len -= n] = 0;
}

static int rewrite_part(const struct call *k, lf_err *err)
{
    const lf_rewrite *w = k->said.rewrite;
    return w ? w->fn(w->arg, &k->d->part, NULL, 0, true, err) : 0;
}

/* The whole text, with the blocks that the template marks in it. */
static int rewrite_whole(const struct call *k, lf_jinja_spans *spans, lf_err *err)
{
    const lf_rewrite *w = k->said.rewrite;
    if (!w)
        return 0;
    size_t *place = lf_malloc(2 * spans->n + 1, sizeof *place, err);
    if (!place)
        return LF_ENOMEM;
    for (size_t i = 0; i < spans->n; i++) {
        place[2 * i] = spans->v[i].begin;
        place[2 * i + 1] = spans->v[i].end;
    }
    int rc = w->fn(w->arg, &k->d->text, place, 2 * spans->n, false, err);
    for (size_t i = 0; i < spans->n; i++)
        spans->v[i] = (lf_jinja_span){place[2 * i], place[2 * i + 1]};
    free(place);
    return rc;
}

/* Tokens before the end of turns[: n]; *fits false: they do not begin those of the conversation. */
static int measure(const struct call *k, size_t n, bool generation_prompt, size_t *count,
                   bool *fits, lf_err *err)
{
    lf_chat_doc *d = k->d;
    *fits = true;
    if (n == k->said.n && !generation_prompt) {
        *count = d->ids.n;
        return 0;
    }
    lf_buf_clear(&d->part);
    int rc =
        lf_chat_render(k->c, k->said.turns, n, k->said.tools, generation_prompt, &d->part, err);
    if (rc == 0)
        rc = rewrite_part(k, err);
    if (rc < 0)
        return fault(d, LF_CHAT_BROKEN, rc);
    if (!begins(d) && !generation_prompt)
        cut_closing(k->c, d);
    *fits = begins(d);
    return *fits ? count_prefix(k, count, fits, err) : 0;
}

static int add_span(lf_chat_doc *d, size_t begin, size_t end, bool trained, lf_err *err)
{
    int rc = lf_grow(&d->spans, &d->cap_spans, d->n_spans, sizeof *d->spans, err);
    if (rc == 0)
        d->spans[d->n_spans++] = (lf_chat_span){begin, end, trained};
    return rc;
}

/* ---- by prefixes ---- */

static int prefix_turn(const struct call *k, size_t i, bool train, lf_err *err)
{
    size_t begin = 0, end = 0;
    bool fits = false;
    int rc = measure(k, i, true, &begin, &fits, err);
    if (rc == 0 && !fits)
        return train ? non_prefix(k->d, i, "the prompt of", err) : 0;
    if (rc == 0)
        rc = measure(k, i + 1, false, &end, &fits, err);
    if (rc == 0 && (!fits || end < begin))
        return train ? non_prefix(k->d, i, "the end of", err) : 0;
    return rc == 0 ? add_span(k->d, begin, end, train, err) : rc;
}

/* Turns that are not trained are looked for as far as it goes: what the template says about them is
 * no failure. */
static int by_prefixes(const struct call *k, size_t last, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < k->said.n && rc == 0; i++) {
        bool train = wanted(k, i, last);
        lf_err why = LF_ERR_INIT;
        if (train) {
            rc = prefix_turn(k, i, true, err);
        } else if (k->o->all_spans && lf_turn_is_answer(&k->said.turns[i])) {
            rc = prefix_turn(k, i, false, &why);
            k->d->fault = LF_CHAT_FINE;
            rc = rc == LF_ENOMEM ? lf_fail(err, rc, "%s", why.text) : 0;
        }
    }
    return rc;
}

/* ---- by the template's own marks ---- */

/* Does the run of spaces that token i begins have one more than the text? Tokenizers put a space in
 * front of a text, or of each piece between special tokens. */
static bool adds_space(const struct call *k, size_t i, size_t at)
{
    const lf_chat_doc *d = k->d;
    const uint8_t *p = NULL;
    size_t n = 0, run = 0, there = 0;
    while (at + there < d->text.len && d->text.data[at + there] == ' ')
        there++;
    for (; i < d->ids.n && lf_tokenizer_token(k->c->tok, d->ids.v[i], &p, &n); i++) {
        size_t spaces = 0;
        while (spaces < n && p[spaces] == ' ')
            spaces++;
        run += spaces;
        if (spaces < n)
            break;
    }
    return run == there + 1;
}

/* Where every token ends in the text, in d->ends; *exact false: the tokens do not spell the text,
 * because the tokenizer changes it. */
static int find_ends(const struct call *k, bool *exact, lf_err *err)
{
    lf_chat_doc *d = k->d;
    size_t at = 0;
    bool in_run = false; /* the token before ends with a space */
    *exact = true;
    if (d->ids.n > d->cap_ends) {
        int rc = lf_realloc(&d->ends, d->ids.n, sizeof *d->ends, err);
        if (rc < 0)
            return rc;
        d->cap_ends = d->ids.n;
    }
    for (size_t i = 0; i < d->ids.n && *exact; i++) {
        const uint8_t *p = NULL;
        size_t n = 0;
        *exact = lf_tokenizer_token(k->c->tok, d->ids.v[i], &p, &n);
        if (*exact && n > 0 && p[0] == ' ' && !in_run && adds_space(k, i, at)) {
            p++;
            n--;
            in_run = n == 0 || p[n - 1] == ' ';
        } else {
            in_run = *exact && n > 0 && p[n - 1] == ' ';
        }
        *exact = *exact && n <= d->text.len - at && memcmp(d->text.data + at, p, n) == 0;
        at += n;
        d->ends[i] = at;
    }
    *exact = *exact && at == d->text.len;
    return 0;
}

/* The token that byte `at` of the text lies in; ids.n: behind the last. */
static size_t token_at(const lf_chat_doc *d, size_t at)
{
    size_t lo = 0, hi = d->ids.n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (d->ends[mid] > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

/* Tokens of the first `at` bytes. Where these alone become other tokens, the last that differs
 * reaches over the boundary: it counts when `over` is set. */
static int count_tokens(const struct call *k, size_t at, bool over, size_t *count, lf_err *err)
{
    lf_chat_doc *d = k->d;
    bool fits = false;
    lf_buf_clear(&d->part);
    lf_buf_add(&d->part, d->text.data, at);
    int rc = lf_buf_check(&d->part, err);
    if (rc == 0)
        rc = count_prefix(k, count, &fits, err);
    if (rc < 0 || fits)
        return rc;
    for (*count = 0; *count < d->ids.n && *count < d->part_ids.n; ++*count)
        if (d->ids.v[*count] != d->part_ids.v[*count])
            break;
    *count += over && *count < d->ids.n;
    return 0;
}

/* The tokens of a block, with those that it shares with what stands before and behind, as
 * transformers counts them. */
static int mark_block(const struct call *k, const lf_jinja_span *s, bool exact, bool train,
                      lf_err *err)
{
    lf_chat_doc *d = k->d;
    size_t begin = 0, end = 0;
    if (s->end <= s->begin)
        return 0;
    if (exact) {
        begin = token_at(d, s->begin);
        end = token_at(d, s->end - 1) + 1;
        return add_span(d, begin, end < d->ids.n ? end : d->ids.n, train, err);
    }
    int rc = count_tokens(k, s->begin, false, &begin, err);
    if (rc == 0)
        rc = count_tokens(k, s->end, true, &end, err);
    return rc == 0 ? add_span(d, begin, end > begin ? end : begin, train, err) : rc;
}

/* Blocks in what is rendered of the first n turns. */
static int count_blocks(const struct call *k, size_t n, size_t all, size_t *count, lf_err *err)
{
    lf_jinja_spans spans = {0};
    *count = all;
    if (n == k->said.n)
        return 0;
    lf_buf_clear(&k->d->part);
    const struct lf_conversation first = {k->said.turns, n, k->said.tools, NULL};
    int rc = lf_chat_render_spans(k->c, &first, n == 0, &k->d->part, &spans, err);
    *count = spans.n;
    free(spans.v);
    return rc < 0 ? fault(k->d, LF_CHAT_BROKEN, rc) : 0;
}

/* The blocks of turn i are those that come with it. */
static int mark_turn(const struct call *k, const lf_jinja_spans *spans, bool exact, size_t i,
                     bool train, size_t *done, lf_err *err)
{
    size_t end = 0;
    int rc = count_blocks(k, i + 1, spans->n, &end, err);
    if (rc == 0 && (end < *done || end > spans->n))
        return fault(k->d, LF_CHAT_BROKEN,
                     lf_fail(err, LF_EFORMAT,
                             "the template marks %zu blocks, of which %zu are there without turn "
                             "%zu and %zu with it, so "
                             "its own cannot be chosen",
                             spans->n, *done, i + 1, end));
    for (; rc == 0 && *done < end; ++*done)
        rc = mark_block(k, &spans->v[*done], exact, train, err);
    return rc;
}

/* Without a choice all blocks are trained, wherever they are. With one, a block for each turn of
 * the assistant is that turn's; of some other number each turn has those that come with it. */
static int by_marks(const struct call *k, const lf_jinja_spans *spans, size_t last, lf_err *err)
{
    size_t answers = 0, done = 0, need = 0;
    bool exact = false;
    for (size_t i = 0; i < k->said.n; i++) {
        answers += lf_turn_is_answer(&k->said.turns[i]);
        need += lf_turn_is_answer(&k->said.turns[i]) && wanted(k, i, last);
    }
    int rc = find_ends(k, &exact, err);
    if (need == answers) {
        for (; done < spans->n && rc == 0; done++)
            rc = mark_block(k, &spans->v[done], exact, true, err);
        return rc;
    }
    if (answers != spans->n && rc == 0) /* those in front of all turns are nobody's */
        rc = count_blocks(k, 0, spans->n, &done, err);
    for (size_t i = 0; i < k->said.n && rc == 0; i++) {
        bool answer = lf_turn_is_answer(&k->said.turns[i]), train = answer && wanted(k, i, last);
        if (answers != spans->n)
            rc = mark_turn(k, spans, exact, i, train, &done, err);
        else if (answer)
            rc = mark_block(k, &spans->v[done++], exact, train, err);
    }
    return rc;
}

/* ---- the mask ---- */

/* Where the last special token of [begin, end) stands; end: there is none. */
static size_t end_of_turn(const struct call *k, size_t begin, size_t end)
{
    for (size_t i = end; i > begin; i--)
        if (lf_tokenizer_is_special(k->c->tok, k->d->ids.v[i - 1]))
            return i - 1;
    return end;
}

static int fill_mask(const struct call *k, lf_err *err)
{
    lf_chat_doc *d = k->d;
    bool any = false;
    if (d->ids.n > d->cap_mask) {
        int rc = lf_realloc(&d->mask, d->ids.n, 1, err);
        if (rc < 0)
            return rc;
        d->cap_mask = d->ids.n;
    }
    if (d->ids.n)
        memset(d->mask, 0, d->ids.n);
    for (size_t s = 0; s < d->n_spans; s++) {
        size_t b = d->spans[s].begin, e = d->spans[s].end;
        e = k->o->no_end ? end_of_turn(k, b, e) : e;
        if (d->spans[s].trained && e > b) {
            memset(d->mask + b, 1, e - b);
            any = true;
        }
    }
    if (any)
        d->mask[0] = 0; /* nothing predicts it */
    return any ? 0
               : fault(d, LF_CHAT_NO_TARGET,
                       lf_fail(err, LF_EFORMAT,
                               "no turn of the assistant is trained in this conversation"));
}

static int check_bos(const struct call *k, lf_err *err)
{
    int64_t bos = lf_tokenizer_bos(k->c->tok);
    const lf_ids *v = &k->d->ids;
    if (bos < 0 || v->n < 2 || v->v[0] != (uint32_t)bos || v->v[1] != (uint32_t)bos)
        return 0;
    return fault(k->d, LF_CHAT_BROKEN,
                 lf_fail(err, LF_EFORMAT, "the template writes the BOS token twice"));
}

int lf_chat_encode(lf_chat_doc *d, const lf_chat *c, lf_tok_state *t,
                   const struct lf_conversation *said, const lf_chat_train *o, lf_err *err)
{
    struct call k = {d, c, t, *said, o};
    json_t *tools = said->tools;
    lf_jinja_spans spans = {0};
    size_t last = said->n;
    d->ids.n = d->n_spans = 0;
    d->fault = LF_CHAT_FINE;
    lf_buf_clear(&d->text);
    for (size_t i = 0; i < said->n; i++)
        last = lf_turn_is_answer(&said->turns[i]) ? i : last;
    int rc = lf_chat_render_spans(c, said, false, &d->text, &spans, err);
    if (rc == 0)
        rc = rewrite_whole(&k, &spans, err);
    if (rc < 0)
        fault(d, LF_CHAT_BROKEN, rc);
    bool tools_side = c->tools && (json_array_size(tools) > 0 || json_string_length(tools) > 0);
    bool marks = tools_side ? c->tools_marks : c->marks;
    if (rc == 0 && o->mask == LF_CHAT_MASK_GENERATION && !marks)
        rc = lf_fail(
            err, LF_EINVAL,
            "mask = generation needs a template with {%% generation %%}; this one has none");
    if (rc == 0)
        rc = lf_tokenizer_encode(t, d->text.data, d->text.len, 0, &d->ids, NULL, err);
    if (rc == 0)
        rc = check_bos(&k, err);
    if (rc == 0)
        rc = marks && o->mask != LF_CHAT_MASK_PREFIX ? by_marks(&k, &spans, last, err)
                                                     : by_prefixes(&k, last, err);
    if (rc == 0)
        rc = fill_mask(&k, err);
    free(spans.v);
    return rc;
}

int lf_chat_turn_end(const lf_chat *c, int64_t *id, lf_err *err)
{
    const lf_turn probe[] = {{.role = LF_ROLE_USER, .text = "a", .len = 1},
                             {.role = LF_ROLE_ASSISTANT, .text = "b", .len = 1}};
    const lf_chat_train how = {.mask = LF_CHAT_MASK_AUTO};
    lf_err why = LF_ERR_INIT;
    lf_chat_doc d;
    lf_chat_doc_init(&d);
    lf_tok_state *t = lf_tok_state_create(c->tok, err);
    int rc =
        t ? lf_chat_encode(&d, c, t, &(struct lf_conversation){probe, 2, NULL, NULL}, &how, &why)
          : LF_ENOMEM;
    const struct call k = {.d = &d, .c = c};
    if (rc < 0 && t)
        rc = d.fault == LF_CHAT_FINE ? lf_fail(err, rc, "%s", why.text)
                                     : 0; /* a template that refuses this ends nothing */
    if (rc == 0) {
        const lf_chat_span *s =
            d.fault == LF_CHAT_FINE && d.n_spans ? &d.spans[d.n_spans - 1] : NULL;
        size_t at = s ? end_of_turn(&k, s->begin, s->end) : 0;
        *id = s && at < s->end ? (int64_t)d.ids.v[at] : -1;
    }
    lf_tok_state_destroy(t);
    lf_chat_doc_fini(&d);
    return rc;
}
