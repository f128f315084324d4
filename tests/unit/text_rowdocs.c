/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows to documents: what is trained of each shape, EOS, truncation, and why rows are left out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/text/corpus/rowdocs.h"
#include "tests/tap/tap.h"

#define TEMPLATE                                                                                   \
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}"                       \
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"

static lf_tokenizer *tok;
static lf_tok_state *state;
static lf_chat *chat;
static lf_rowdocs docs;
static lf_shape_opts shape;

static void setup(void)
{
    char path[4200];
    const char *src = getenv("LF_SRCDIR");
    lf_err err = LF_ERR_INIT;
    lf_buf box;
    lf_tok_files f;
    const char *config = "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"pad_token\":\"</"
                         "s>\",\"chat_template\":\"" TEMPLATE "\"}";
    lf_buf file;
    lf_buf_init(&file);
    lf_buf_init(&box);
    snprintf(path, sizeof path, "%s/tests/golden/chat/tokenizer.json", src ? src : ".");
    if (lf_io_read_file(path, 1 << 24, &file, &err) != 0)
        tap_bail("%s", err.text);
    lf_buf_addf(&box,
                "loong-flow tokenizer files 1\ntokenizer.json %zu\n%stokenizer_config.json %zu\n%s",
                file.len, file.data, strlen(config), config);
    tok = lf_tokenizer_parse(box.data, box.len, "kit", &err);
    state = tok ? lf_tok_state_create(tok, &err) : NULL;
    if (!state || lf_tok_files_unpack(&f, box.data, box.len, "kit", &err) != 0 ||
        !(chat = lf_chat_from_files(&f, "kit", tok, NULL, &err)))
        tap_bail("%s", err.text);
    lf_tok_files_fini(&f);
    lf_buf_fini(&box);
    lf_buf_fini(&file);
    lf_rowdocs_init(&docs);
}

static lf_rowdocs_opts plain(void)
{
    return (lf_rowdocs_opts){
        .tok = tok, .chat = chat, .flags = LF_TOK_SPECIAL_TEXT, .eos_id = lf_tokenizer_eos(tok)};
}

/* The row's documents as text: trained parts in brackets, " | " between documents; or why there are
 * none. */
static void row(const lf_rowdocs_opts *o, const char *line, const char *want, const char *name)
{
    lf_row r = {0};
    lf_err err = LF_ERR_INIT;
    lf_buf b;
    uint64_t replaced = 0;
    size_t trained = 0;
    lf_buf_init(&b);
    int rc = lf_shape_row(&r, &shape, line, strlen(line), "f:1", &replaced, &err);
    if (rc == 0)
        rc = lf_rowdocs_encode(&docs, o, state, &r, &err);
    if (rc < 0)
        lf_buf_adds(&b, err.text);
    else if (docs.fate != LF_ROW_KEPT)
        lf_buf_addf(&b, "%s: %s", lf_row_fate_name(docs.fate), docs.why.text);
    for (size_t k = 0, at = 0; rc == 0 && k < docs.n_docs; at += docs.len[k++]) {
        lf_buf_adds(&b, k ? " | " : "");
        for (size_t i = at; i < at + docs.len[k]; i++) {
            bool now = docs.mask.data[i], before = i > at && docs.mask.data[i - 1];
            trained += now && i > at;
            if (now != before)
                lf_buf_addc(&b, now ? '[' : ']');
            lf_tokenizer_decode(tok, &docs.ids.v[i], 1, false, &b, &err);
        }
    }
    tap_str(b.data, want, name);
    tap_ok(rc < 0 || docs.fate != LF_ROW_KEPT ||
               (docs.trained == trained && docs.ids.n == docs.mask.len),
           "its count");
    lf_row_fini(&r);
    lf_buf_fini(&b);
}

static void test_texts(void)
{
    lf_rowdocs_opts o = plain(), no_eos = o, token = o, prompt = o;
    no_eos.eos_id = -1;
    token.flags = 0;
    prompt.train_prompt = true;
    row(&o, "{\"text\":\"a b\"}", "[a b</s>", "a text gets EOS, also where padding is EOS");
    tap_ok(!docs.masked && !docs.no_eos && docs.kind == LF_ROW_PLAIN, "and is all trained");
    row(&token, "{\"text\":\"a b</s>\"}", "[a b</s>", "one that has it gets none");
    row(&no_eos, "{\"text\":\"a b\"}", "[a b", "without EOS");
    tap_ok(docs.no_eos, "this is noted");
    row(&token, "{\"text\":\"<s><s>a\"}", "[<s><s>a</s>", "two BOS");
    tap_ok(docs.double_bos, "are noted");
    row(&o, "{\"text\":\"\"}", "empty: no text", "no text");
    row(&o, "{\"prompt\":\"a: \",\"completion\":\"1\"}", "a: [1</s>",
        "a prompt and its completion");
    tap_ok(docs.masked && !docs.seam, "the seam holds");
    row(&o, "{\"prompt\":\"a: \",\"completion\":\"b\"}", "a:[ b</s>",
        "a token reaches over the seam");
    tap_ok(docs.seam, "which is noted");
    row(&o, "{\"prompt\":\"\",\"completion\":\"ab\"}", "a[b</s>", "no prompt");
    row(&prompt, "{\"prompt\":\"a: \",\"completion\":\"1\"}", "[a: 1</s>",
        "prompts are trained, too");
    row(&o, "{\"input_ids\":[300,301,2],\"labels\":[-100,-100,-100]}",
        "no_target: no token is trained", "no label at all");
    row(&o, "{\"input_ids\":[]}", "empty: no tokens", "no tokens");
    row(&o, "{\"input_ids\":[5,720000]}",
        "broken: input_ids[1] = 720000, the tokenizer's ids end at 719", "an id beyond");
}

#define U(t) "{\"role\":\"user\",\"content\":\"" t "\"}"
#define A(t) "{\"role\":\"assistant\",\"content\":\"" t "\"}"

/* What is said about rows that are kept. */
static void noted(const lf_rowdocs_opts *o, const char *line, bool empty, bool other,
                  const char *name)
{
    lf_row r = {0};
    lf_err err = LF_ERR_INIT;
    uint64_t replaced = 0;
    int rc = lf_shape_row(&r, &shape, line, strlen(line), "f:1", &replaced, &err);
    if (rc == 0)
        rc = lf_rowdocs_encode(&docs, o, state, &r, &err);
    tap_rc(rc ? rc : docs.fate != LF_ROW_KEPT, 0, &err, NULL, name);
    tap_ok(docs.empty_answer == empty, "%s: %s", name,
           empty ? "an empty answer" : "no empty answer");
    tap_ok(docs.other_prompt == other, "%s: %s", name, other ? "different prompts" : "one prompt");
    lf_row_fini(&r);
}

static void test_noted(void)
{
    lf_rowdocs_opts o = plain(), last = o;
    last.train.last_only = true;
    noted(&o, "{\"prompt\":\"a: \",\"completion\":\"1\"}", false, false, "an answer");
    noted(&o, "{\"prompt\":\"a: \",\"completion\":\"\"}", true, false, "no text");
    noted(&o, "{\"prompt\":\"a: \",\"completion\":\" \\n\"}", true, false, "white space");
    noted(&o, "{\"messages\":[" U("a") "," A("") "]}", true, false, "a turn without text");
    noted(&o, "{\"messages\":[" U("a") "," A("") "," U("b") "," A("c") "]}", true, false,
          "one of two");
    noted(&last, "{\"messages\":[" U("a") "," A("") "," U("b") "," A("c") "]}", false, false,
          "not trained");
    noted(&o,
          "{\"messages\":[" U("a") ",{\"role\":\"assistant\",\"content\":\"\",\"weight\":0}," U(
              "b") "," A("c") "]}",
          false, false, "weight 0");
    noted(&o, "{\"messages\":[" U("") "," A("c") "]}", false, false, "a question without text");
    noted(&o,
          "{\"messages\":[" U("a") ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{"
                                   "\"function\":{\"name\":"
                                   "\"f\",\"arguments\":{}}}]}]}",
          false, false, "a call of a tool");
    noted(&o, "{\"instruction\":\"a\",\"output\":\"\"}", true, false, "alpaca");
    noted(&o, "{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"\"}", true, false,
          "a rejected answer");
    noted(&o, "{\"prompt\":\"a\",\"completion\":\"\",\"label\":false}", true, false,
          "a labelled answer");
    noted(&o, "{\"prompt\":\"a\"}", false, false, "a prompt has none");
    noted(&o, "{\"chosen\":[" U("a") "," A("b") "],\"rejected\":[" U("a") "," A("c") "]}", false,
          false, "a pair");
    noted(&o, "{\"chosen\":[" U("a") "," A("b") "],\"rejected\":[" U("x") "," A("c") "]}", false,
          true, "a pair of other questions");
    noted(&o,
          "{\"chosen\":[" U("a") "," A("b") "," U("c") "," A("d") "],\"rejected\":[" U("a") "," A(
              "b") "," U("x") "," A("d") "]}",
          false, true, "another second question");
    noted(&o,
          "{\"chosen\":[" U("a") "," A("b") "," U("c") "," A("d") "],\"rejected\":[" U("a") "," A(
              "x") "," U("c") "," A("d") "]}",
          false, false, "another first answer");
    noted(&o, "{\"chosen\":\"Q: 1 A: x\",\"rejected\":\"Q: 1 A: y\"}", false, false,
          "texts that begin alike");
    noted(&o, "{\"chosen\":\"one\",\"rejected\":\"two\"}", false, true, "texts that do not");
}

static void test_pairs(void)
{
    lf_rowdocs_opts o = plain(), prompt = o, last = o, none = o, any = o;
    prompt.train_prompt = last.train.last_only = any.any_order = true;
    none.chat = NULL;
    none.no_chat = "nobody gave one";
    row(&o, "{\"prompt\":\"q: \",\"chosen\":\"1\",\"rejected\":\"2\",\"margin\":2.5}",
        "q: [1</s> | q: [2</s>", "texts");
    tap_ok(docs.kind == LF_ROW_PAIR && docs.has_margin && docs.margin > 2.4f && docs.n_docs == 2,
           "with a margin");
    row(&prompt,
        "{\"messages\":[" U("q") ",{\"role\":\"assistant\",\"content\":\"a\",\"weight\":0}," U(
            "r") "," A("b") "]}",
        "turn 2 says that it is not trained (weight, loss or train), and train_on_prompt trains "
        "all of them; "
        "leave one of the two out",
        "train_on_prompt and a turn that is not trained do not go together");
    row(&prompt, "{\"prompt\":\"q: \",\"chosen\":\"1\",\"rejected\":\"2\"}",
        "q: [1</s> | q: [2</s>", "train_on_prompt is not for pairs");
    row(&o, "{\"chosen\":\"q: 1, 3\",\"rejected\":\"q: 1, 4\"}", "q: 1, [3</s> | q: 1, [4</s>",
        "what both share is the prompt");
    row(&o, "{\"prompt\":\"q\",\"chosen\":[" A("a") "],\"rejected\":[" A("b") "]}",
        "<|user|>q</s><|assistant|>[a</s> | <|user|>q</s><|assistant|>[b</s>", "a text and turns");
    row(&o,
        "{\"chosen\":[" U("x") "," A("y") "," U("q") "," A("a") "],\"rejected\":[" U("x") "," A(
            "y") "," U("q") "," A("b") "]}",
        "<|user|>x</s><|assistant|>y</s><|user|>q</s><|assistant|>[a</s> | "
        "<|user|>x</s><|assistant|>y</s><|user|>q</s><|assistant|>[b</s>",
        "turns that both share are the prompt");
    row(&last,
        "{\"chosen\":[" U("x") "," A("y") "," U("q") "," A("a") "],\"rejected\":[" U("x") "," A(
            "z") "," U("r") "," A("b") "]}",
        "<|user|>x</s><|assistant|>[y</s>]<|user|>q</s><|assistant|>[a</s> | "
        "<|user|>x</s><|assistant|>[z</s>]<|user|>r</s><|assistant|>[b</s>",
        "from the turn on in which they differ");
    row(&o, "{\"prompt\":\"q\",\"chosen\":\"a\",\"rejected\":\"a\"}",
        "broken: the better and the worse answer are the same", "no difference");
    row(&o, "{\"prompt\":\"q\",\"completion\":[" A("a") "],\"label\":true}",
        "<|user|>q</s><|assistant|>[a</s>", "a labelled answer");
    tap_ok(docs.kind == LF_ROW_UNPAIRED && docs.label, "is good");
    row(&o, "{\"messages\":[" U("x") "," A("y") "," U("q") "," A("a") "],\"kto_tag\":false}",
        "<|user|>x</s><|assistant|>y</s><|user|>q</s><|assistant|>[a</s>",
        "the last answer of a labelled conversation");
    tap_ok(docs.kind == LF_ROW_UNPAIRED && !docs.label, "is not");
    row(&none, "{\"messages\":[" U("x") "," A("y") "]}",
        "a row of shape messages with turns needs a chat template: nobody gave one", "no template");
    row(&o, "{\"messages\":[" A("x") "]}",
        "broken: turn 1 is of assistant, but a conversation begins with a user's; set turn_order = "
        "any to leave this "
        "to the template",
        "wrong order");
    row(&any, "{\"messages\":[" A("x") "]}", "<|assistant|>[x</s>", "any order");
    row(&o, "{\"messages\":[" U("x") "]}",
        "no_target: no turn of the assistant is trained in this conversation", "no answer");
}

/* Where turns end with EOS and a line end. */
static void test_judged(void)
{
    static const char lines[] =
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{{ '\\n' }}{% endfor %}{% if "
        "add_generation_prompt %}<|assistant|>{% endif %}";
    lf_err err = LF_ERR_INIT;
    lf_rowdocs_opts o = plain();
    lf_chat *c = lf_chat_from_text(lines, strlen(lines), "lines", tok, NULL, &err);
    int64_t end = 0;
    if (!c)
        tap_bail("%s", err.text);
    o.chat = c;
    tap_rc(lf_chat_turn_end(c, &end, &err), 0, &err, NULL, "what ends a turn");
    tap_i64(end, lf_tokenizer_eos(tok), "is EOS");
    row(&o, "{\"messages\":[" U("q") "," A("a") "]}", "<|user|>q</s>\n<|assistant|>[a</s>\n",
        "a conversation has its last line end");
    row(&o, "{\"prompt\":\"q\",\"chosen\":[" A("a") "],\"rejected\":[" A("b") "]}",
        "<|user|>q</s>\n<|assistant|>[a</s> | <|user|>q</s>\n<|assistant|>[b</s>",
        "answers that are judged end with EOS");
    lf_chat_destroy(c);
    static const char none[] = "{% for m in messages %}{{ m.content }}, {% endfor %}";
    c = lf_chat_from_text(none, strlen(none), "none", tok, NULL, &err);
    tap_ok(c && lf_chat_turn_end(c, &end, &err) == 0 && end == -1,
           "a template that ends turns with no token");
    lf_chat_destroy(c);
}

static void test_prompts(void)
{
    lf_rowdocs_opts o = plain();
    static const char *const cols[] = {"prompt=q"};
    shape.shape = LF_SHAPE_PROMPT;
    row(&o, "{\"prompt\":[" U("x") "],\"b\":[1],\"a\":{\"k\":null}}", "<|user|>x</s><|assistant|>",
        "a prompt");
    tap_str(docs.rest.data, "{\"a\":{\"k\":null},\"b\":[1]}", "the other columns");
    tap_ok(docs.kind == LF_ROW_PROMPT && docs.trained == 0 && docs.masked,
           "nothing of it is trained");
    row(&o, "{\"prompt\":\"1 + 1 =\"}", "1 + 1 =", "a text");
    row(&o, "{\"prompt\":[" U("x") "," A("y") "]}",
        "broken: the prompt ends with a turn of the assistant, which is answered already",
        "answered already");
    row(&o, "{\"prompt\":\"\"}", "empty: no text", "no text");
    o.max_length = 3;
    row(&o, "{\"prompt\":\"1 + 1 =\"}", "too_long: too long", "too long");
    shape = (lf_shape_opts){.shape = LF_SHAPE_PROMPT, .columns = cols, .n_columns = 1};
    o = plain();
    o.shape = &shape;
    row(&o, "{\"q\":\"1\",\"answer\":2}", "1", "under another name");
    tap_str(docs.rest.data, "{\"answer\":2}", "the prompt is not among the other columns");
    shape = (lf_shape_opts){0};
}

static void budget(size_t p, size_t a, size_t room, size_t want_p, size_t want_a)
{
    size_t had_p = p, had_a = a;
    lf_truncate_budget(&p, &a, room);
    tap_ok(p == want_p && a == want_a, "prompt %zu answer %zu in %zu: %zu %zu, wanted %zu %zu",
           had_p, had_a, room, p, a, want_p, want_a);
}

/* Letters are tokens of their own here: "1 2 3" has five. */
static void test_cut(void)
{
    const char *four =
        "{\"messages\":[" U("1,2,3,4") "," A("5,6,7") "," U("8,9") "," A("1,2,3,4") "]}";
    lf_rowdocs_opts o = plain();
    budget(10, 4, 10, 6, 4);
    budget(4, 10, 10, 4, 6);
    budget(4, 4, 10, 4, 4);
    budget(30, 10, 20, 15, 5);
    budget(30, 9, 20, 11, 9);
    budget(9, 30, 20, 9, 11);
    budget(30, 30, 20, 10, 10);
    budget(100, 50, 20, 14, 6);
    budget(0, 50, 20, 0, 20);
    budget(50, 0, 20, 20, 0);
    o.max_length = 12;
    row(&o, four, "<|user|>1,2,3,4</s><|assistant|>[5,", "the start is kept");
    tap_ok(docs.truncated && docs.len[0] == 12, "and this is noted");
    o.max_length = 8;
    row(&o, four, "all_masked: no token is trained", "no answer is left");
    row(&o, "{\"text\":\"1,2,3,4,5,6,7\"}", "[1,2,3,4,", "a text");
    o.truncate = LF_TRUNCATE_DROP;
    row(&o, four, "too_long: too long", "dropped");
    o.truncate = LF_TRUNCATE_END;
    row(&o, "{\"prompt\":\"1,2,3,4,5,6,7,8\",\"chosen\":\"1\",\"rejected\":\"2\"}",
        "too_long: too long", "pairs are dropped in any case");
    o.truncate = LF_TRUNCATE_BUDGET;
    o.max_length = 20;
    /* turns: prompt 10 (with both markers) answer 6, prompt 6 answer 8; 16 of 20 for the first, 4
     * left: 6 and 8 -> 2, 2
     */
    row(&o, four, "<|user|>1,2,3,4</s><|assistant|>[5,6,7</s>]<|user|>8[1,",
        "room is shared turn by turn");
    o.train.last_only = true;
    /* 6 and 8 of the second are whole, 6 are left: 10 and 6 -> 4, 2 */
    row(&o, four, "<|user|>1,25,<|user|>8,9</s><|assistant|>[1,2,3,4</s>", "the last turn first");
    tap_ok(docs.len[0] == 20 && docs.trained == 8, "is whole when only it is trained");
    o.train.last_only = false;
    o.max_length = 9;
    row(&o, "{\"prompt\":\"1,2,3,4,5,6: \",\"completion\":\"1,2\"}", "1,2,3[1,2</s>",
        "an answer of less than half is kept whole");
    row(&o, "{\"prompt\":\"1\",\"completion\":\"1,2,3,4,5,6\"}", "1[1,2,3,4,", "so is a prompt");
}

int main(void)
{
    setup();
    TAP(29, test_texts());
    TAP(57, test_noted());
    TAP(31, test_pairs());
    TAP(7, test_judged());
    TAP(15, test_prompts());
    TAP(30, test_cut());
    lf_rowdocs_fini(&docs);
    lf_chat_destroy(chat);
    lf_tok_state_destroy(state);
    lf_tokenizer_destroy(tok);
    return tap_done();
}
