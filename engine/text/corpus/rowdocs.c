/* SPDX-License-Identifier: Apache-2.0
 *
 * A row's documents. Every function here returns 0 with d->fate set when the row is at fault, and a
 * failure only for what is not the row's.
 */
#include "engine/text/corpus/rowdocs.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/text/chat/shape_priv.h"
#include "engine/text/corpus/rowdocs_priv.h"

static const char *const fates[LF_ROW_FATES] = {"kept",      "empty",    "broken",    "non_prefix",
                                                "no_target", "too_long", "all_masked"};

const char *lf_row_fate_name(enum lf_row_fate f)
{
    return (unsigned)f < LF_ROW_FATES ? fates[f] : "?";
}

void lf_rowdocs_init(lf_rowdocs *d)
{
    *d = (lf_rowdocs){0};
    lf_buf_init(&d->mask);
    lf_buf_init(&d->text);
    lf_buf_init(&d->rest);
    lf_chat_doc_init(&d->chat);
}

void lf_rowdocs_fini(lf_rowdocs *d)
{
    lf_ids_fini(&d->ids);
    lf_ids_fini(&d->part);
    lf_buf_fini(&d->mask);
    lf_buf_fini(&d->text);
    lf_buf_fini(&d->rest);
    lf_chat_doc_fini(&d->chat);
    free(d->turns);
    free(d->spans);
}

struct ctx {
    lf_rowdocs *d;
    const lf_rowdocs_opts *o;
    lf_tok_state *t;
    const lf_row *row;
};

/* The row is left out. */
static int leave_out(lf_rowdocs *d, enum lf_row_fate fate, const char *why)
{
    d->fate = fate;
    lf_err_clear(&d->why);
    lf_fail(&d->why, LF_EFORMAT, "%s", why);
    return 0;
}

/* ---- one document at a time ---- */

static int add_mask(lf_rowdocs *d, size_t n, char value, lf_err *err)
{
    static const char ones[64] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                  1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                  1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const char zeros[64];
    for (; n > 0; n -= n < 64 ? n : 64)
        lf_buf_add(&d->mask, value ? ones : zeros, n < 64 ? n : 64);
    return lf_buf_check(&d->mask, err);
}

static int add_span(lf_rowdocs *d, size_t begin, size_t end, lf_err *err)
{
    int rc = lf_grow(&d->spans, &d->cap_spans, d->n_spans, sizeof *d->spans, err);
    if (rc == 0)
        d->spans[d->n_spans++] = (lf_chat_span){begin, end, true};
    return rc;
}

static void count_trained(lf_rowdocs *d, size_t at, bool masked)
{
    if (!masked) {
        d->trained += d->ids.n > at ? d->ids.n - at - 1 : 0;
        return;
    }
    for (size_t i = at + 1; i < d->ids.n; i++)
        d->trained += d->mask.data[i] != 0;
    d->masked = d->masked || (d->ids.n > at && memchr(d->mask.data + at, 0, d->ids.n - at) != NULL);
}

/* Tokens that are nobody's target, such as placeholders. true: there are some. */
static bool mask_untrained(const struct ctx *c, size_t at)
{
    lf_rowdocs *d = c->d;
    bool any = false;
    for (size_t i = at; i < d->ids.n; i++)
        for (size_t k = 0; k < c->o->n_untrained; k++)
            if (d->ids.v[i] == c->o->untrained[k]) {
                d->mask.data[i] = 0;
                any = true;
            }
    return any;
}

/* The document that begins at ids[at] is complete: its length, its truncation, what is odd about
 * it. */
static int end_doc(const struct ctx *c, size_t at, bool masked, lf_err *err)
{
    lf_rowdocs *d = c->d;
    int64_t bos = lf_tokenizer_bos(c->o->tok);
    size_t n = d->ids.n - at, before = d->trained;
    bool whole = d->kind == LF_ROW_PAIR || d->kind == LF_ROW_PROMPT ||
                 c->o->truncate == LF_TRUNCATE_DROP || c->row->rewrite;
    d->double_bos = d->double_bos || (n > 1 && bos >= 0 && d->ids.v[at] == (uint32_t)bos &&
                                      d->ids.v[at + 1] == (uint32_t)bos);
    if (c->o->max_length && n > c->o->max_length) {
        if (whole)
            return leave_out(d, LF_ROW_TOO_LONG, "too long");
        int rc = lf_rowdocs_cut(d, c->o, at, err);
        if (rc < 0)
            return rc;
        n = d->ids.n - at;
    }
    masked = mask_untrained(c, at) || masked;
    if (masked && n > 0) {
        d->bare_answer = d->bare_answer || d->mask.data[at];
        d->mask.data[at] = 0;
    }
    count_trained(d, at, masked);
    if (masked && d->kind != LF_ROW_PROMPT && d->trained == before)
        return leave_out(d, d->truncated ? LF_ROW_ALL_MASKED : LF_ROW_NO_TARGET,
                         "no token is trained");
    d->len[d->n_docs++] = n;
    return 0;
}

/* EOS behind a text that does not end with it. */
static int add_eos(const struct ctx *c, size_t at, lf_err *err)
{
    lf_rowdocs *d = c->d;
    int64_t eos = c->o->eos_id, named = lf_tokenizer_eos(c->o->tok);
    bool there = d->ids.n > at && eos >= 0 && d->ids.v[d->ids.n - 1] == (uint32_t)eos;
    int rc = eos >= 0 && !there ? lf_ids_add(&d->ids, (uint32_t)eos, err) : 0;
    if (eos < 0 && d->ids.n > at && (named < 0 || d->ids.v[d->ids.n - 1] != (uint32_t)named))
        d->no_eos = true;
    return rc;
}

/* Are its pictures beside its text, which then is as any other, and may be empty? */
static bool is_beside(const struct ctx *c)
{
    return c->row->rewrite && c->row->rewrite->beside;
}

/* A rewritten text has the texts of special tokens, which become these. */
static unsigned flags_of(const struct ctx *c)
{
    return c->row->rewrite && !is_beside(c) ? c->o->flags & ~(unsigned)LF_TOK_SPECIAL_TEXT
                                            : c->o->flags;
}

/* A prompt that is a text, with its pictures' placeholders. */
static int encode_prompt(const struct ctx *c, const lf_piece *p, lf_err *why, lf_err *err)
{
    const lf_rewrite *w = c->row->rewrite;
    lf_rowdocs *d = c->d;
    lf_buf text;
    lf_buf_init(&text);
    if (p->len)
        lf_buf_add(&text, p->text, p->len);
    int rc = lf_buf_check(&text, err);
    if (rc == 0 && w)
        rc = w->fn(w->arg, &text, NULL, 0, false, why);
    if (rc == 0 && text.len)
        rc =
            lf_tokenizer_encode(c->t, text.data, text.len, flags_of(c), &d->ids, &d->replaced, err);
    lf_buf_fini(&text);
    return rc;
}

static int text_doc(const struct ctx *c, const char *text, size_t len, lf_err *err)
{
    lf_rowdocs *d = c->d;
    size_t at = d->ids.n;
    lf_err why = LF_ERR_INIT;
    if (len == 0 && !is_beside(c))
        return leave_out(d, LF_ROW_EMPTY, "no text");
    int rc = is_beside(c)
                 ? encode_prompt(c, &c->row->prompt, &why, err)
                 : lf_tokenizer_encode(c->t, text, len, c->o->flags, &d->ids, &d->replaced, err);
    if (rc < 0 && why.rc)
        return why.rc == LF_ENOMEM ? lf_fail(err, LF_ENOMEM, "%s", why.text)
                                   : leave_out(d, LF_ROW_BROKEN, why.text);
    if (rc == 0)
        rc = add_eos(c, at, err);
    if (rc == 0 && d->ids.n == at)
        return leave_out(d, LF_ROW_EMPTY, "no text");
    if (rc == 0)
        rc = add_mask(d, d->ids.n - at, 1, err);
    return rc < 0 ? rc : end_doc(c, at, false, err);
}

static bool blank(const char *text, size_t len)
{
    while (len > 0 && strchr(" \t\r\n", text[len - 1]) && text[len - 1])
        len--;
    return len == 0;
}

/* The n bytes of a prompt, which ends at `cut`, and its answer. */
static int encode_both(const struct ctx *c, const char *text, size_t n, size_t cut, lf_err *err)
{
    lf_rowdocs *d = c->d;
    const unsigned flags = flags_of(c);
    if (!c->row->rewrite || !c->row->rewrite->apart)
        return lf_tokenizer_encode(c->t, text, n, flags, &d->ids, &d->replaced, err);
    int rc = cut ? lf_tokenizer_encode(c->t, text, cut, flags, &d->ids, &d->replaced, err) : 0;
    return rc < 0 || cut == n
               ? rc
               : lf_tokenizer_encode(c->t, text + cut, n - cut, flags, &d->ids, &d->replaced, err);
}

/* Texts of a prompt and an answer, tokenized in one piece. prompt NULL: unknown, masked by the
 * caller. */
static int pair_doc(const struct ctx *c, const lf_piece *prompt, const lf_piece *answer,
                    lf_err *err)
{
    lf_rowdocs *d = c->d;
    const lf_rewrite *w = c->row->rewrite;
    size_t at = d->ids.n, same = 0, from = d->text.len;
    uint64_t again = 0;
    lf_err why = LF_ERR_INIT;
    lf_buf said;
    lf_buf_init(&said);
    lf_buf_add(&said, prompt->text, prompt->len);
    int rc = lf_buf_check(&said, err);
    const int bad = rc == 0 && w ? w->fn(w->arg, &said, NULL, 0, false, &why) : 0;
    lf_buf_add(&d->text, said.data, said.len);
    lf_buf_fini(&said);
    if (bad < 0)
        return why.rc == LF_ENOMEM ? lf_fail(err, LF_ENOMEM, "%s", why.text)
                                   : leave_out(d, LF_ROW_BROKEN, why.text);
    const size_t cut = d->text.len - from;
    lf_buf_add(&d->text, answer->text, answer->len);
    d->part.n = d->n_spans = 0;
    if (d->text.len == from && !is_beside(c))
        return leave_out(d, LF_ROW_EMPTY, "no text");
    d->empty_answer = d->empty_answer || blank(answer->text, answer->len);
    if (rc == 0)
        rc = lf_buf_check(&d->text, err);
    if (rc == 0)
        rc = encode_both(c, d->text.data + from, d->text.len - from, cut, err);
    if (rc == 0 && cut)
        rc =
            lf_tokenizer_encode(c->t, d->text.data + from, cut, flags_of(c), &d->part, &again, err);
    while (rc == 0 && same < d->part.n && at + same < d->ids.n &&
           d->part.v[same] == d->ids.v[at + same])
        same++;
    d->seam = d->seam || same < d->part.n;
    if (rc == 0)
        rc = add_eos(c, at, err);
    bool all = c->o->train_prompt && d->kind == LF_ROW_PLAIN;
    if (rc == 0)
        rc = add_mask(d, same, all, err);
    if (rc == 0)
        rc = add_mask(d, d->ids.n - at - same, 1, err);
    if (rc == 0)
        rc = add_span(d, same, d->ids.n - at, err);
    return rc < 0 ? rc : end_doc(c, at, !all, err);
}

/* ---- conversations ---- */

static int add_turns(lf_rowdocs *d, const lf_turn *turns, size_t n, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = lf_grow(&d->turns, &d->cap_turns, d->n_turns, sizeof *d->turns, err);
        if (rc == 0)
            d->turns[d->n_turns++] = turns[i];
    }
    return rc;
}

/* A piece's turns; a text beside turns is one turn of that role. */
static int add_piece(lf_rowdocs *d, const lf_piece *p, enum lf_role role, lf_err *err)
{
    const lf_turn one = {.role = role, .text = p->text, .len = p->len};
    return p->text ? add_turns(d, &one, 1, err) : add_turns(d, p->turns, p->n_turns, err);
}

static int need_chat(const struct ctx *c, lf_err *err)
{
    return c->o->chat
               ? 0
               : lf_fail(err, LF_EINVAL, "a row of shape %s with turns needs a chat template%s%s",
                         lf_shape_name(c->row->shape), c->o->no_chat ? ": " : "",
                         c->o->no_chat ? c->o->no_chat : "");
}

/* Does the last trained turn teach where to stop? */
static bool ends_special(const struct ctx *c, size_t at)
{
    const lf_chat_doc *k = &c->d->chat;
    int64_t eos = lf_tokenizer_eos(c->o->tok);
    for (size_t s = k->n_spans; s-- > 0;)
        if (k->spans[s].trained) {
            for (size_t i = k->spans[s].begin; i < k->spans[s].end; i++) {
                uint32_t id = c->d->ids.v[at + i];
                if (lf_tokenizer_is_special(c->o->tok, id) || (eos >= 0 && id == (uint32_t)eos))
                    return true;
            }
            return false;
        }
    return false;
}

/* A judged answer ends with the token that ends its turn, as a generated one does: line ends that
 * the template puts behind it are cut off. */
static int end_at_turn(const struct ctx *c, lf_err *err)
{
    lf_chat_doc *k = &c->d->chat;
    lf_chat_span *s = k->n_spans ? &k->spans[k->n_spans - 1] : NULL;
    lf_buf tail;
    if (!s || s->end != k->ids.n)
        return 0;
    size_t end = s->end;
    while (end > s->begin && !lf_tokenizer_is_special(c->o->tok, k->ids.v[end - 1]))
        end--;
    if (end == s->begin || end == s->end)
        return 0;
    lf_buf_init(&tail);
    int rc = lf_tokenizer_decode(c->o->tok, k->ids.v + end, s->end - end, false, &tail, err);
    if (rc == 0 && strspn(tail.data, " \t\r\n") == tail.len)
        k->ids.n = s->end = end;
    lf_buf_fini(&tail);
    return rc;
}

/* Where everything is trained, a turn that says it is not cannot be obeyed. */
static int check_all_trained(const lf_rowdocs *d, lf_err *err)
{
    for (size_t i = 0; i < d->n_turns; i++)
        if (d->turns[i].train == LF_TURN_NOT_TRAINED)
            return lf_fail(err, LF_EFORMAT,
                           "turn %zu says that it is not trained (weight, loss or train), and "
                           "train_on_prompt trains all of them; leave one of the two out",
                           i + 1);
    return 0;
}

static int take_chat(const struct ctx *c, size_t at, lf_err *err)
{
    lf_rowdocs *d = c->d;
    const lf_chat_doc *k = &d->chat;
    const bool all = c->o->train_prompt && d->kind == LF_ROW_PLAIN;
    d->n_spans = 0;
    int rc = all ? check_all_trained(d, err) : 0;
    if (rc < 0)
        return rc;
    rc = lf_ids_add_all(&d->ids, k->ids.v, k->ids.n, err);
    if (rc == 0 && all)
        rc = add_mask(d, k->ids.n, 1, err);
    else if (rc == 0)
        lf_buf_add(&d->mask, k->mask, k->ids.n);
    for (size_t s = 0; s < k->n_spans && rc == 0; s++)
        rc = add_span(d, k->spans[s].begin, k->spans[s].end, err);
    lf_buf_add(&d->text, k->text.data, k->text.len);
    d->no_eos = d->no_eos || !ends_special(c, at);
    if (rc == 0)
        rc = lf_buf_check(&d->mask, err);
    return rc < 0 ? rc : lf_buf_check(&d->text, err);
}

/* Something beside the text of an answer: a call of a tool, a reasoning. */
static bool says_more(const lf_turn *t)
{
    static const char *const keys[] = {"tool_calls", "function_call", "reasoning_content",
                                       "reasoning", "thinking"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *v = json_object_get(t->json, keys[i]);
        if (json_array_size(v) > 0 || json_object_size(v) > 0 || json_string_length(v) > 0)
            return true;
    }
    return false;
}

/* Is an answer that is trained, of the turns from `first` on, empty? */
static bool has_empty(const lf_rowdocs *d, size_t first, bool last_only)
{
    bool last = true;
    for (size_t i = d->n_turns; i-- > first;) {
        const lf_turn *t = &d->turns[i];
        if (!lf_turn_is_answer(t))
            continue;
        bool taught =
            t->train == LF_TURN_TRAINED || (t->train == LF_TURN_UNSAID && (last || !last_only));
        if (taught && t->text && blank(t->text, t->len) && !says_more(t))
            return true;
        last = false;
    }
    return false;
}

/* The conversation in d->turns, of which turns before `first` are not trained. */
static int chat_doc(const struct ctx *c, size_t first, lf_err *err)
{
    static const enum lf_row_fate fate_of[] = {LF_ROW_BROKEN, LF_ROW_BROKEN, LF_ROW_NON_PREFIX,
                                               LF_ROW_NO_TARGET};
    lf_rowdocs *d = c->d;
    lf_chat_train how = c->o->train;
    size_t at = d->ids.n;
    lf_err why = LF_ERR_INIT;
    int rc = need_chat(c, err);
    if (rc < 0)
        return rc;
    how.first = first;
    how.last_only = how.last_only && d->kind == LF_ROW_PLAIN;
    d->empty_answer = d->empty_answer || has_empty(d, first, how.last_only);
    how.all_spans = c->o->max_length && c->o->truncate == LF_TRUNCATE_BUDGET;
    if (!c->o->any_order && lf_chat_check_order(d->turns, d->n_turns, &why) < 0)
        return leave_out(d, LF_ROW_BROKEN, why.text);
    rc = lf_chat_encode(
        &d->chat, c->o->chat, c->t,
        &(struct lf_conversation){d->turns, d->n_turns, c->row->tools, c->row->rewrite}, &how,
        &why);
    if (rc < 0 && d->chat.fault == LF_CHAT_FINE)
        return lf_fail(err, rc, "%s", why.text);
    if (rc < 0)
        return leave_out(d, fate_of[d->chat.fault], why.text);
    rc = d->kind == LF_ROW_PLAIN ? 0 : end_at_turn(c, err);
    if (rc == 0)
        rc = take_chat(c, at, err);
    return rc < 0 ? rc : end_doc(c, at, true, err);
}

/* ---- the shapes ---- */

static int answer_doc(const struct ctx *c, const lf_piece *prompt, const lf_piece *answer,
                      lf_err *err)
{
    lf_rowdocs *d = c->d;
    if (!prompt->turns && !answer->turns)
        return pair_doc(c, prompt, answer, err);
    d->n_turns = 0;
    int rc = add_piece(d, prompt, LF_ROLE_USER, err);
    size_t first = d->n_turns;
    if (rc == 0)
        rc = add_piece(d, answer, LF_ROLE_ASSISTANT, err);
    return rc < 0 ? rc : chat_doc(c, first, err);
}

static int conversation_doc(const struct ctx *c, lf_err *err)
{
    lf_rowdocs *d = c->d;
    d->n_turns = 0;
    int rc = add_piece(d, &c->row->prompt, LF_ROLE_USER, err);
    if (rc == 0)
        rc = add_piece(d, &c->row->completion, LF_ROLE_ASSISTANT, err);
    return rc < 0 ? rc : chat_doc(c, 0, err);
}

static bool same_turn(const lf_turn *a, const lf_turn *b)
{
    bool text = a->text && b->text ? a->len == b->len && memcmp(a->text, b->text, a->len) == 0
                                   : !a->text && !b->text;
    return a->role == b->role && text && (!a->json || !b->json || json_equal(a->json, b->json));
}

static size_t shared_turns(const lf_piece *a, const lf_piece *b)
{
    size_t n = 0;
    while (n < a->n_turns && n < b->n_turns && same_turn(&a->turns[n], &b->turns[n]))
        n++;
    return n;
}

/* Does a turn say this text, be it as a list of one part? */
static bool says(const lf_turn *t, const char *text, size_t len)
{
    const json_t *parts = json_object_get(t->json, "content");
    const json_t *part = json_object_get(json_array_get(parts, 0), "text");
    if (t->text)
        return t->len == len && memcmp(t->text, text, len) == 0;
    return json_array_size(parts) == 1 && json_string_length(part) == len &&
           memcmp(json_string_value(part), text, len) == 0;
}

/* A prompt that the answers repeat: they begin with a user's turn that says the same. */
static bool repeated(const lf_piece *prompt, const lf_piece *answer)
{
    for (size_t i = 0; prompt->text && i < answer->n_turns; i++) {
        const lf_turn *t = &answer->turns[i];
        if (t->role != LF_ROLE_SYSTEM)
            return t->role == LF_ROLE_USER && says(t, prompt->text, prompt->len);
    }
    return false;
}

/* Both documents' first tokens that are the same are not trained. */
static int mask_shared(const struct ctx *c, lf_err *err)
{
    lf_rowdocs *d = c->d;
    size_t a = d->len[0], b = d->len[1], n = 0;
    (void)err;
    while (n < a && n < b && d->ids.v[n] == d->ids.v[a + n])
        n++;
    memset(d->mask.data, 0, n);
    memset(d->mask.data + a, 0, n);
    d->trained -= n > 1 ? 2 * (n - 1) : 0;
    d->masked = true;
    d->other_prompt = n == 0 || (n == 1 && (int64_t)d->ids.v[0] == lf_tokenizer_bos(c->o->tok));
    return 0;
}

static int whole_conversation(const struct ctx *c, const lf_piece *p, size_t first, lf_err *err)
{
    c->d->n_turns = 0;
    int rc = add_turns(c->d, p->turns, p->n_turns, err);
    return rc < 0 ? rc : chat_doc(c, first, err);
}

static int pair_docs(const struct ctx *c, lf_err *err)
{
    const lf_row *r = c->row;
    lf_rowdocs *d = c->d;
    const lf_piece *side[2] = {&r->completion, &r->rejected};
    bool turns = side[0]->turns && side[1]->turns, none = !r->prompt.text && !r->prompt.turns;
    bool whole =
        turns && (none || (repeated(&r->prompt, side[0]) && repeated(&r->prompt, side[1])));
    size_t shared = whole ? shared_turns(side[0], side[1]) : 0;
    int rc = 0;
    for (int k = 0; k < 2 && whole; k++) /* they part before an answer */
        d->other_prompt = d->other_prompt || (shared < side[k]->n_turns &&
                                              !lf_turn_is_answer(&side[k]->turns[shared]));
    d->has_margin = r->has_margin;
    d->margin = (float)r->margin;
    for (int k = 0; k < 2 && rc == 0 && d->fate == LF_ROW_KEPT; k++)
        rc = whole ? whole_conversation(c, side[k], shared, err)
                   : answer_doc(c, &r->prompt, side[k], err);
    if (rc < 0 || d->fate != LF_ROW_KEPT)
        return rc;
    if (d->len[0] == d->len[1] &&
        memcmp(d->ids.v, d->ids.v + d->len[0], d->len[0] * sizeof *d->ids.v) == 0)
        return leave_out(d, LF_ROW_BROKEN, "the better and the worse answer are the same");
    return none && !turns ? mask_shared(c, err) : 0;
}

static int unpaired_doc(const struct ctx *c, lf_err *err)
{
    const lf_row *r = c->row;
    size_t last = 0;
    c->d->label = r->label;
    if (r->prompt.text || r->prompt.turns)
        return answer_doc(c, &r->prompt, &r->completion, err);
    for (size_t i = 0; i < r->completion.n_turns; i++) {
        last = lf_turn_is_answer(&r->completion.turns[i]) ? i : last;
    }
    return whole_conversation(c, &r->completion, last, err);
}

static int add_rest(const struct ctx *c, lf_err *err)
{
    static const lf_shape_opts none = {0};
    json_t *other = json_copy(c->row->rest);
    int rc = other ? 0 : lf_fail(err, LF_ENOMEM, "no memory for a row");
    if (rc == 0) {
        json_object_del(other, lf_shape_column(c->o->shape ? c->o->shape : &none, "prompt"));
        json_object_del(other, LF_ROWMEDIA_OWN);
    }
    char *text = rc == 0 ? lf_json_dump(other, err) : NULL;
    if (text)
        lf_buf_adds(&c->d->rest, text);
    rc = rc != 0 ? rc : text ? lf_buf_check(&c->d->rest, err) : LF_ENOMEM;
    free(text);
    json_decref(other);
    return rc;
}

static int prompt_doc(const struct ctx *c, lf_err *err)
{
    lf_rowdocs *d = c->d;
    const struct lf_conversation said = {c->row->prompt.turns, c->row->prompt.n_turns,
                                         c->row->tools, c->row->rewrite};
    const lf_piece *p = &c->row->prompt;
    lf_err why = LF_ERR_INIT;
    int rc = p->turns ? need_chat(c, err) : 0;
    if (rc < 0)
        return rc;
    if (p->turns && !c->o->any_order && lf_chat_check_order(p->turns, p->n_turns, &why) < 0)
        return leave_out(d, LF_ROW_BROKEN, why.text);
    if (p->turns && !c->o->any_order && p->turns[p->n_turns - 1].role == LF_ROLE_ASSISTANT)
        return leave_out(d, LF_ROW_BROKEN,
                         "the prompt ends with a turn of the assistant, which is answered already");
    if (p->turns)
        rc = lf_chat_prompt(c->o->chat, c->t, &said, &d->ids, &why);
    else
        rc = encode_prompt(c, p, &why, err);
    if (rc < 0 && why.rc && rc != LF_ENOMEM)
        return leave_out(d, LF_ROW_BROKEN, why.text);
    if (rc < 0 && why.rc)
        return lf_fail(err, rc, "%s", why.text);
    if (rc == 0 && is_beside(c)) /* a caption ends as texts do */
        rc = add_eos(c, 0, err);
    if (rc == 0 && d->ids.n == 0)
        return leave_out(d, LF_ROW_EMPTY, "no text");
    if (rc == 0)
        rc = add_mask(d, d->ids.n, 0, err);
    if (rc == 0)
        rc = add_rest(c, err);
    lf_buf_add(&d->text, d->ids.v, d->ids.n * sizeof *d->ids.v);
    return rc < 0 ? rc : end_doc(c, 0, true, err);
}

static int tokens_doc(const struct ctx *c, lf_err *err)
{
    lf_rowdocs *d = c->d;
    const lf_row *r = c->row;
    uint32_t vocab = lf_tokenizer_vocab_size(c->o->tok);
    int64_t eos = lf_tokenizer_eos(c->o->tok);
    int rc = 0;
    for (size_t i = 0; i < r->n_ids && rc == 0; i++) {
        if (r->ids[i] >= vocab) {
            d->fate = LF_ROW_BROKEN;
            lf_fail(&d->why, LF_EFORMAT, "input_ids[%zu] = %u, the tokenizer's ids end at %u", i,
                    r->ids[i], vocab - 1);
            return 0;
        }
        rc = lf_ids_add(&d->ids, r->ids[i], err);
        if (rc == 0)
            rc = add_mask(d, 1, r->mask ? (char)r->mask[i] : 1, err);
    }
    lf_buf_add(&d->text, r->ids, r->n_ids * sizeof *r->ids);
    d->no_eos = r->n_ids > 0 && (eos < 0 || r->ids[r->n_ids - 1] != (uint32_t)eos);
    if (r->n_ids == 0)
        return leave_out(d, LF_ROW_EMPTY, "no tokens");
    return rc < 0 ? rc : end_doc(c, 0, r->mask != NULL, err);
}

static int make_docs(const struct ctx *c, lf_err *err)
{
    const lf_row *r = c->row;
    switch (r->shape) {
    case LF_SHAPE_TEXT:
        return text_doc(c, r->prompt.text, r->prompt.len, err);
    case LF_SHAPE_PROMPT_COMPLETION:
        return answer_doc(c, &r->prompt, &r->completion, err);
    case LF_SHAPE_PREFERENCE:
        c->d->kind = LF_ROW_PAIR;
        return pair_docs(c, err);
    case LF_SHAPE_UNPAIRED:
        c->d->kind = LF_ROW_UNPAIRED;
        return unpaired_doc(c, err);
    case LF_SHAPE_PROMPT:
        c->d->kind = LF_ROW_PROMPT;
        return prompt_doc(c, err);
    case LF_SHAPE_TOKENS:
        return tokens_doc(c, err);
    default:
        return conversation_doc(c, err);
    }
}

int lf_rowdocs_encode(lf_rowdocs *d, const lf_rowdocs_opts *o, lf_tok_state *t, const lf_row *row,
                      lf_err *err)
{
    struct ctx c = {d, o, t, row};
    d->fate = LF_ROW_KEPT;
    d->kind = LF_ROW_PLAIN;
    lf_err_clear(&d->why);
    d->n_docs = d->ids.n = d->trained = d->n_spans = d->len[0] = d->len[1] = 0;
    d->masked = d->has_margin = d->label = d->truncated = d->double_bos = d->seam = d->no_eos =
        false;
    d->empty_answer = d->other_prompt = d->bare_answer = false;
    d->margin = 0;
    d->replaced = 0;
    lf_buf_clear(&d->mask);
    lf_buf_clear(&d->text);
    lf_buf_clear(&d->rest);
    int rc = make_docs(&c, err);
    if (rc == 0)
        rc = lf_buf_check(&d->text, err);
    if (rc == 0 && d->fate != LF_ROW_KEPT)
        d->n_docs = d->ids.n = d->trained = 0;
    return rc;
}
