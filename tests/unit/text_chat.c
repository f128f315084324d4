/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations to ids and masks against transformers (tests/golden/chat/make_chat.py), where
 * templates are found, and what is refused with which words.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/text/chat/chat.h"
#include "engine/text/jinja/jinja.h"
#include "tests/tap/tap.h"

#define NOW 1700000000

static const char *golden(const char *name)
{
    static char p[4200];
    const char *src = getenv("LF_SRCDIR");
    snprintf(p, sizeof p, "%s/tests/golden/%s", src ? src : ".", name);
    return p;
}

static void slurp(lf_buf *b, const char *name)
{
    lf_err err = LF_ERR_INIT;
    lf_buf_init(b);
    if (lf_io_read_file(golden(name), (size_t)64 << 20, b, &err) != 0)
        tap_bail("%s", err.text);
}

/* A tokenizer with its files as they stand in a directory. */
struct kit {
    lf_tokenizer *tok;
    lf_tok_state *state;
    lf_tok_files files;
};

/* tok: text of a tokenizer.json; config: members of tokenizer_config.json (stolen); jinja:
 * chat_template.jinja, NULL: none */
static void kit_of(struct kit *k, const char *tok, json_t *config, const char *jinja)
{
    lf_err err = LF_ERR_INIT;
    lf_buf box;
    char *text = json_dumps(config, 0);
    lf_buf_init(&box);
    lf_buf_addf(&box, "loong-flow tokenizer files 1\ntokenizer.json %zu\n%s", strlen(tok), tok);
    lf_buf_addf(&box, "tokenizer_config.json %zu\n%s", strlen(text), text);
    if (jinja)
        lf_buf_addf(&box, "chat_template.jinja %zu\n%s", strlen(jinja), jinja);
    k->tok = lf_tokenizer_parse(box.data, box.len, "kit", &err);
    k->state = k->tok ? lf_tok_state_create(k->tok, &err) : NULL;
    if (!k->state || lf_tok_files_unpack(&k->files, box.data, box.len, "kit", &err) != 0)
        tap_bail("%s", err.text);
    free(text);
    json_decref(config);
    lf_buf_fini(&box);
}

/* The golden tokenizer; lower: with its normalizer. */
static void kit_with(struct kit *k, json_t *config, const char *jinja, bool lower)
{
    lf_buf tok;
    slurp(&tok, "chat/tokenizer.json");
    if (lower) {
        json_t *root = json_loads(tok.data, 0, NULL);
        json_object_set_new(root, "normalizer", json_pack("{s:s}", "type", "Lowercase"));
        char *all = json_dumps(root, 0);
        lf_buf_clear(&tok);
        lf_buf_adds(&tok, all);
        json_decref(root);
        free(all);
    }
    kit_of(k, tok.data, config, jinja);
    lf_buf_fini(&tok);
}

static void kit_open(struct kit *k, json_t *config, const char *jinja)
{
    kit_with(k, config, jinja, false);
}

static void kit_close(struct kit *k)
{
    lf_tok_state_destroy(k->state);
    lf_tokenizer_destroy(k->tok);
    lf_tok_files_fini(&k->files);
}

/* A row {"messages", "tools"} as the stages read it. */
static void row_open(lf_row *r, json_t *conversation)
{
    lf_err err = LF_ERR_INIT;
    lf_shape_opts o = {.shape = LF_SHAPE_AUTO};
    uint64_t replaced = 0;
    char *line = json_dumps(conversation, 0);
    if (lf_shape_row(r, &o, line, strlen(line), "row", &replaced, &err) != 0)
        tap_bail("%s", err.text);
    free(line);
}

/* ---- against transformers ---- */

static bool same_ids(const lf_ids *ids, json_t *want)
{
    bool same = ids->n == json_array_size(want);
    for (size_t i = 0; same && i < ids->n; i++)
        same = ids->v[i] == (uint32_t)json_integer_value(json_array_get(want, i));
    return same;
}

static bool same_mask(const lf_chat_doc *d, const char *want)
{
    bool same = d->ids.n == strlen(want);
    for (size_t i = 0; same && i < d->ids.n; i++)
        same = d->mask[i] == (want[i] == '1');
    return same;
}

static bool check_mask(lf_chat_doc *d, const struct kit *k, const lf_chat *c, const lf_row *r,
                       json_t *want)
{
    lf_err err = LF_ERR_INIT;
    lf_chat_train how = {.mask = LF_CHAT_MASK_PREFIX,
                         .last_only = json_is_true(json_object_get(want, "last"))};
    const char *mask = json_string_value(json_object_get(want, "mask")),
               *fault = json_string_value(json_object_get(want, "fault"));
    int rc = lf_chat_encode(
        d, c, k->state,
        &(struct lf_conversation){r->prompt.turns, r->prompt.n_turns, r->tools, NULL}, &how, &err);
    if (json_object_get(want, "error"))
        return rc < 0 && d->fault == LF_CHAT_BROKEN && err.text[0];
    if (!same_ids(&d->ids, json_object_get(want, "ids")) ||
        strcmp(d->text.data, json_string_value(json_object_get(want, "text"))) != 0)
        return false;
    if (fault)
        return rc < 0 && d->fault == (strcmp(fault, "non_prefix") == 0 ? LF_CHAT_NON_PREFIX
                                                                       : LF_CHAT_NO_TARGET);
    return rc == 0 && mask && same_mask(d, mask);
}

static bool check_marks(lf_chat_doc *d, const struct kit *k, const lf_chat *c, const lf_row *r,
                        json_t *want)
{
    lf_err err = LF_ERR_INIT;
    lf_chat_train how = {.mask = LF_CHAT_MASK_GENERATION};
    const char *marked = json_string_value(json_object_get(want, "marked"));
    int rc = marked ? lf_chat_encode(d, c, k->state,
                                     &(struct lf_conversation){r->prompt.turns, r->prompt.n_turns,
                                                               r->tools, NULL},
                                     &how, &err)
                    : 0;
    if (marked && !strchr(marked, '1'))
        return rc < 0 && d->fault == LF_CHAT_NO_TARGET;
    return !marked || (rc == 0 && same_mask(d, marked));
}

static bool check_prompt(const struct kit *k, const lf_chat *c, const lf_row *r, json_t *want)
{
    lf_err err = LF_ERR_INIT;
    lf_ids ids = {0};
    size_t last = 0;
    for (size_t i = 0; i < r->prompt.n_turns; i++)
        last = r->prompt.turns[i].role == LF_ROLE_ASSISTANT ? i : last;
    json_t *prompt = json_object_get(want, "prompt");
    if (!prompt)
        return true;
    int rc = lf_chat_prompt(
        c, k->state, &(struct lf_conversation){r->prompt.turns, last, r->tools, NULL}, &ids, &err);
    bool same = rc == 0 && same_ids(&ids, prompt);
    lf_ids_fini(&ids);
    return same;
}

/* Number of cases of a family that differ; "train": false is left out of generation blocks by
 * nobody in transformers.
 */
static int64_t check_family(const char *family, json_t *about, json_t *all)
{
    const char *template = json_string_value(json_object_get(about, "template"));
    char path[300], *vars = json_dumps(json_object_get(about, "vars"), 0);
    lf_err err = LF_ERR_INIT;
    struct kit k = {0};
    lf_chat_doc d;
    lf_buf source;
    json_t *config = json_deep_copy(json_object_get(about, "tokens")), *want;
    lf_chat_opts o = {.vars = vars, .now = NOW};
    int64_t bad = 0, n = 0;
    size_t i;
    lf_chat_doc_init(&d);
    snprintf(path, sizeof path, "jinja/templates/%s.jinja", template);
    slurp(&source, path);
    json_object_set_new(config, "chat_template", json_stringn(source.data, source.len));
    kit_open(&k, config, NULL);
    lf_chat *c = lf_chat_from_files(&k.files, "kit", k.tok, &o, &err);
    if (!c)
        tap_bail("%s: %s", family, err.text);
    json_array_foreach(json_object_get(all, "cases"), i, want)
    {
        const char *name = json_string_value(json_object_get(want, "conversation"));
        lf_row r = {0};
        if (strcmp(json_string_value(json_object_get(want, "family")), family) != 0)
            continue;
        row_open(&r, json_object_get(json_object_get(all, "conversations"), name));
        bool ok = check_mask(&d, &k, c, &r, want);
        if (strcmp(name, "not_all") != 0)
            ok = ok && check_marks(&d, &k, c, &r, want);
        ok = ok && check_prompt(&k, c, &r, want);
        if (!ok)
            tap_diag("%s, %s differs", family, name);
        bad += !ok;
        n++;
        lf_row_fini(&r);
    }
    tap_ok(n >= 38, "%s: %lld cases", family, (long long)n);
    lf_chat_destroy(c);
    kit_close(&k);
    lf_chat_doc_fini(&d);
    lf_buf_fini(&source);
    free(vars);
    return bad;
}

static void test_golden(void)
{
    lf_err err = LF_ERR_INIT;
    const char *family;
    json_t *about, *all = lf_json_load_file(golden("chat/chat.json"), (size_t)64 << 20, &err);
    if (!all)
        tap_bail("%s", err.text);
    json_object_foreach(json_object_get(all, "families"), family, about)
        tap_i64(check_family(family, about, all), 0, family);
    json_decref(all);
}

/* marks.json: {% generation %} in places that no turn's end is at, and inside of tokens. */
static bool check_mark_case(json_t *all, const json_t *want)
{
    struct kit k = {0};
    lf_chat_doc d;
    lf_row r = {0};
    lf_err err = LF_ERR_INIT;
    const lf_chat_train how = {.mask = LF_CHAT_MASK_GENERATION};
    const char *mask = json_string_value(json_object_get(want, "mask"));
    json_t *template = json_object_get(json_object_get(all, "templates"),
                                       json_string_value(json_object_get(want, "template")));
    kit_with(&k, json_pack("{s:O, s:s}", "chat_template", template, "eos_token", "</s>"), NULL,
             json_is_true(json_object_get(want, "lower")));
    row_open(&r, json_object_get(json_object_get(all, "conversations"),
                                 json_string_value(json_object_get(want, "conversation"))));
    lf_chat_doc_init(&d);
    lf_chat *c = lf_chat_from_files(&k.files, "kit", k.tok, NULL, &err);
    int rc =
        c ? lf_chat_encode(&d, c, k.state,
                           &(struct lf_conversation){r.prompt.turns, r.prompt.n_turns, NULL, NULL},
                           &how, &err)
          : -1;
    bool ok = same_ids(&d.ids, json_object_get(want, "ids"));
    if (strchr(mask + 1, '1'))
        ok = ok && rc == 0 && d.ids.n == strlen(mask);
    else
        ok = ok && rc < 0 && d.fault == LF_CHAT_NO_TARGET;
    for (size_t i = 1; ok && rc == 0 && i < d.ids.n; i++) /* nothing predicts the first */
        ok = d.mask[i] == (mask[i] == '1');
    if (!ok)
        tap_diag("%s, %s%s: %s", json_string_value(json_object_get(want, "template")),
                 json_string_value(json_object_get(want, "conversation")),
                 json_is_true(json_object_get(want, "lower")) ? ", lower" : "", err.text);
    lf_chat_destroy(c);
    lf_chat_doc_fini(&d);
    lf_row_fini(&r);
    kit_close(&k);
    return ok;
}

static void test_marks(void)
{
    lf_err err = LF_ERR_INIT;
    json_t *want, *all = lf_json_load_file(golden("chat/marks.json"), (size_t)1 << 20, &err);
    int64_t bad = 0, n = 0;
    size_t i;
    if (!all)
        tap_bail("%s", err.text);
    json_array_foreach(json_object_get(all, "cases"), i, want)
    {
        bad += !check_mark_case(all, want);
        n++;
    }
    tap_ok(n > 90, "%lld cases of marks", (long long)n);
    tap_i64(bad, 0, "masks that differ from transformers' assistant_masks");
    json_decref(all);
}

/* What transformers says of the same files: a tokenizer that puts a space in front of each piece of
 * text, and joins over the beginning of a block. Metaspace leaves a piece alone that begins with
 * one, Prepend does not. */
#define SPACE "\\u2581"
#define SPACED(normalizer, pre)                                                                    \
    "{\"normalizer\":" normalizer ",\"pre_tokenizer\":" pre ",\"post_processor\":null,"            \
    "\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"" SPACE                                 \
    "\",\"prepend_scheme\":\"never\","                                                             \
    "\"split\":false},\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true,"           \
    "\"normalized\":false,\"single_word\":false,\"lstrip\":false,\"rstrip\":false}],"              \
    "\"model\":{\"type\":\"BPE\",\"unk_token\":null,\"fuse_unk\":false,\"byte_fallback\":false,"   \
    "\"vocab\":{\"<s>\":0,\"" SPACE "\":1,\"a\":2,\":\":3,\"x\":4,\"" SPACE SPACE "\":5,\":" SPACE \
    "\":6},\"merges\":[[\"" SPACE "\",\"" SPACE "\"],[\":\",\"" SPACE "\"]]}}"
#define METASPACE                                                                                  \
    "{\"type\":\"Metaspace\",\"replacement\":\"" SPACE                                             \
    "\",\"prepend_scheme\":\"always\",\"split\":false}"
#define PREPEND                                                                                    \
    "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"" SPACE           \
    "\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" SPACE "\"}]}"

static void spaced(const char *tokenizer, const char *user, const char *want, const char *name)
{
    struct kit k = {0};
    lf_chat_doc d;
    lf_row r = {0};
    lf_err err = LF_ERR_INIT;
    lf_buf got;
    const lf_chat_train how = {.mask = LF_CHAT_MASK_GENERATION};
    kit_of(&k, tokenizer, json_pack("{s:s}", "eos_token", "<s>"),
           "{% for m in messages %}{% if m.role == 'assistant' %}: {% generation %}{{ m.content "
           "}}{% endgeneration %}{% else %}<s>{{ m.content }}{% endif %}{% endfor %}");
    json_t *j = json_pack("{s:[{s:s,s:s},{s:s,s:s}]}", "messages", "role", "user", "content", user,
                          "role", "assistant", "content", " x");
    row_open(&r, j);
    lf_buf_init(&got);
    lf_chat_doc_init(&d);
    lf_chat *c = lf_chat_from_files(&k.files, "kit", k.tok, NULL, &err);
    int rc =
        c ? lf_chat_encode(&d, c, k.state,
                           &(struct lf_conversation){r.prompt.turns, r.prompt.n_turns, NULL, NULL},
                           &how, &err)
          : -1;
    for (size_t i = 0; i < d.ids.n && rc == 0; i++)
        lf_buf_addf(&got, "%s%u%s", i ? " " : "", d.ids.v[i], d.mask[i] ? "*" : "");
    tap_str(rc ? err.text : got.data, want, name);
    lf_chat_destroy(c);
    json_decref(j);
    lf_row_fini(&r);
    kit_close(&k);
    lf_chat_doc_fini(&d);
    lf_buf_fini(&got);
}

static void test_spaced(void)
{
    spaced(SPACED("null", METASPACE), "a", "0 1 2 3 5* 4*",
           "a space in front of a piece, and a block that begins inside of a token");
    spaced(SPACED("null", METASPACE), " a", "0 1 2 3 5* 4*", "none in front of one that has one");
    spaced(SPACED(PREPEND, "null"), " a", "0 5 2 3 5* 4*", "one more in front of one that has one");
    spaced(SPACED(PREPEND, "null"), "  a", "0 5 1 2 3 5* 4*", "and of one with two");
}

/* ---- where the template is found ---- */

static void renders(const struct kit *k, const lf_chat_opts *o, bool tools, const char *want,
                    const char *name)
{
    lf_err err = LF_ERR_INIT;
    lf_buf b;
    lf_turn turn = {.role = LF_ROLE_USER, .text = "hi", .len = 2};
    json_t *list = tools ? json_pack("[{s:s}]", "name", "f") : NULL;
    lf_buf_init(&b);
    lf_chat *c = lf_chat_from_files(&k->files, "kit", k->tok, o, &err);
    int rc = c ? lf_chat_render(c, &turn, 1, list, true, &b, &err) : err.rc;
    tap_str(rc ? err.text : b.data, want, name);
    lf_chat_destroy(c);
    json_decref(list);
    lf_buf_fini(&b);
}

static void refused(const struct kit *k, const lf_chat_opts *o, int rc, const char *says,
                    const char *name)
{
    lf_err err = LF_ERR_INIT;
    lf_chat *c = lf_chat_from_files(&k->files, "kit", k->tok, o, &err);
    tap_rc(c ? 0 : err.rc, rc, &err, says, name);
    lf_chat_destroy(c);
}

static void test_found(void)
{
    struct kit k;
    char mine[4200];
    lf_err err = LF_ERR_INIT;
    kit_open(&k,
             json_pack("{s:s, s:s}", "chat_template", "A{{ eos_token }}{{ bos_token is defined }}",
                       "eos_token", "</s>"),
             NULL);
    renders(&k, NULL, false, "A</s>False", "a text in tokenizer_config.json, with its tokens");
    renders(&k, &(lf_chat_opts){.vars = "{\"eos_token\":\"E\",\"bos_token\":1}"}, false, "AETrue",
            "variables win");
    refused(&k, &(lf_chat_opts){.vars = "[1]"}, LF_EINVAL, "no JSON object",
            "variables that are no object");
    refused(&k, &(lf_chat_opts){.vars = "{"}, LF_EFORMAT, "chat_vars",
            "variables that are no JSON");
    snprintf(mine, sizeof mine, "%s/mine.jinja", tap_tmpdir());
    if (lf_io_write_file(mine, "\xEF\xBB\xBFM{{ x }}{{ eos_token }}", 26, 0600, &err) != 0)
        tap_bail("%s", err.text);
    renders(&k, &(lf_chat_opts){.file = mine, .vars = "{\"x\":1}"}, false, "M1</s>",
            "a file of the user's, behind a byte order mark");
    refused(&k, &(lf_chat_opts){.file = "/nowhere.jinja"}, LF_ENOENT, "/nowhere.jinja",
            "a file that is not there");
    kit_close(&k);

    kit_open(&k, json_pack("{s:s}", "chat_template", "A"), "J{{ messages[0].content }}");
    renders(&k, NULL, false, "Jhi", "chat_template.jinja wins");
    kit_close(&k);

    kit_open(&k,
             json_pack("{s:[{s:s,s:s},{s:s,s:s},{s:s,s:s}]}", "chat_template", "name", "rag",
                       "template", "R", "name", "default", "template", "D", "name", "tool_use",
                       "template", "T"),
             NULL);
    renders(&k, NULL, false, "D", "of several the default one");
    renders(&k, NULL, true, "T", "and tool_use with tools");
    renders(&k, &(lf_chat_opts){.name = "rag"}, true, "R", "or the one that is named");
    refused(&k, &(lf_chat_opts){.name = "rga"}, LF_EFORMAT, "called rga", "which must be there");
    kit_close(&k);

    kit_open(&k, json_object(), NULL);
    refused(&k, NULL, LF_ENOENT, "no chat template", "no template");
    kit_close(&k);
    kit_open(&k, json_pack("{s:n}", "chat_template"), NULL);
    refused(&k, NULL, LF_ENOENT, "no chat template", "null is no template");
    kit_close(&k);
    kit_open(&k, json_pack("{s:{s:s,s:s}}", "chat_template", "default", "D", "tool_use", "T"),
             NULL);
    renders(&k, NULL, false, "D", "several by name, the default one");
    renders(&k, NULL, true, "T", "and tool_use with tools");
    kit_close(&k);
    kit_open(&k, json_pack("{s:s}", "chat_template", "a\n{% if x %}"), NULL);
    refused(&k, NULL, LF_EFORMAT,
            "chat_template:2:", "a template that cannot be read is named with the line");
    kit_close(&k);
    kit_open(&k, json_pack("{s:s}", "chat_template", "{{ strftime_now('%Y') }}"), NULL);
    refused(&k, NULL, LF_EINVAL, "chat_time", "a template that asks for the date");
    renders(&k, &(lf_chat_opts){.now = NOW}, false, "2023", "is told it");
    kit_close(&k);
}

/* ---- rows and their faults ---- */

static void encodes(const char *template, const char *row, const lf_chat_train *how,
                    enum lf_chat_fault fault, const char *want, const char *name)
{
    struct kit k;
    lf_err err = LF_ERR_INIT;
    lf_chat_doc d;
    lf_row r = {0};
    lf_buf b;
    lf_buf_init(&b);
    lf_chat_doc_init(&d);
    kit_open(&k,
             json_pack("{s:s,s:s,s:s}", "chat_template", template, "bos_token", "<s>", "eos_token",
                       "</s>"),
             NULL);
    json_t *j = json_loads(row, 0, NULL);
    row_open(&r, j);
    lf_chat *c = lf_chat_from_files(&k.files, "kit", k.tok, NULL, &err);
    int rc = c ? lf_chat_encode(
                     &d, c, k.state,
                     &(struct lf_conversation){r.prompt.turns, r.prompt.n_turns, r.tools, NULL},
                     how, &err)
               : err.rc;
    if (fault != LF_CHAT_FINE) {
        tap_ok(rc < 0 && d.fault == fault && strstr(err.text, want), "%s: %s", name, err.text);
    } else {
        for (size_t i = 0; i < d.ids.n && rc == 0; i++) { /* trained parts in brackets */
            if (d.mask[i] && (i == 0 || !d.mask[i - 1]))
                lf_buf_addc(&b, '[');
            if (!d.mask[i] && i > 0 && d.mask[i - 1])
                lf_buf_addc(&b, ']');
            lf_tokenizer_decode(k.tok, &d.ids.v[i], 1, false, &b, &err);
        }
        tap_str(rc ? err.text : b.data, want, name);
    }
    lf_chat_destroy(c);
    json_decref(j);
    lf_row_fini(&r);
    kit_close(&k);
    lf_chat_doc_fini(&d);
    lf_buf_fini(&b);
}

#define PLAIN                                                                                      \
    "<s>{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}"                    \
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
#define MARKED                                                                                     \
    "<s>{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}{% generation %}{{ "  \
    "m.content }}</s>{% "                                                                          \
    "endgeneration %}{% else %}{{ m.content }}</s>{% endif %}{% endfor %}"
#define TWICE                                                                                      \
    "<s>{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% "   \
    "endgeneration "                                                                               \
    "%}!{% generation %}{{ m.content }}{% endgeneration %}</s>{% else %}{{ m.content }}</s>{% "    \
    "endif %}{% endfor %}"
#define ROW(...)        "{\"messages\":[" __VA_ARGS__ "]}"
#define U(text)         "{\"role\":\"user\",\"content\":\"" text "\"}"
#define A(text)         "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define NOT(text)       "{\"role\":\"assistant\",\"content\":\"" text "\",\"train\":false}"
#define AND(text, more) "{\"role\":\"assistant\",\"content\":\"" text "\"," more "}"
#define YES(text)       "{\"role\":\"assistant\",\"content\":\"" text "\",\"train\":true}"

static void test_rows(void)
{
    lf_chat_train all = {0}, last = {.last_only = true}, no_end = {.no_end = true},
                  from = {.first = 3};
    const char *four = ROW(U("a") "," A("b") "," U("c") "," A("d"));
    encodes(PLAIN, four, &all, 0,
            "<s><|user|>a</s><|assistant|>[b</s>]<|user|>c</s><|assistant|>[d</s>", "every turn");
    encodes(PLAIN, four, &last, 0,
            "<s><|user|>a</s><|assistant|>b</s><|user|>c</s><|assistant|>[d</s>", "the last turn");
    encodes(PLAIN, four, &no_end, 0,
            "<s><|user|>a</s><|assistant|>[b]</s><|user|>c</s><|assistant|>[d]</s>",
            "without the end of turns");
    encodes(PLAIN, four, &from, 0,
            "<s><|user|>a</s><|assistant|>b</s><|user|>c</s><|assistant|>[d</s>", "from a turn on");
    encodes(MARKED, four, &all, 0,
            "<s><|user|>a</s><|assistant|>[b</s>]<|user|>c</s><|assistant|>[d</s>", "by the marks");
    encodes(MARKED, four, &last, 0,
            "<s><|user|>a</s><|assistant|>b</s><|user|>c</s><|assistant|>[d</s>",
            "the last of the marks");
    encodes(PLAIN, ROW(U("a") "," NOT("b") "," U("c") "," A("d")), &all, 0,
            "<s><|user|>a</s><|assistant|>b</s><|user|>c</s><|assistant|>[d</s>", "train: false");
    encodes(PLAIN, ROW(U("a") "," YES("b") "," U("c") "," A("d")), &last, 0,
            "<s><|user|>a</s><|assistant|>[b</s>]<|user|>c</s><|assistant|>[d</s>",
            "train: true beside the last turn");
    encodes(PLAIN, ROW(U("a") "," AND("b", "\"weight\":0") "," U("c") "," AND("d", "\"weight\":1")),
            &all, 0, "<s><|user|>a</s><|assistant|>b</s><|user|>c</s><|assistant|>[d</s>",
            "weight: 0 and 1");
    encodes(PLAIN,
            ROW(U("a") "," AND("b", "\"loss\":true") "," U("c") "," AND("d", "\"loss\":false")),
            &last, 0, "<s><|user|>a</s><|assistant|>[b</s>]<|user|>c</s><|assistant|>d</s>",
            "loss: true and false");
    encodes(TWICE, four, &last, 0, "<s>a</s>b!b</s>c</s>[d]![d]</s>", "the last turn's two marks");
    encodes(TWICE, ROW(U("a") "," NOT("b") "," U("c") "," A("d")), &all, 0,
            "<s>a</s>b!b</s>c</s>[d]![d]</s>", "train: false with two marks in a turn");
    encodes("<s>{% generation %}{{ messages | length }}{% endgeneration %}" TWICE, four, &last, 0,
            "<s>4<s>a</s>b!b</s>c</s>[d]![d]</s>", "a mark in front is of no turn");
    encodes("{% if messages | length < 4 %}{% generation %}y{% endgeneration %}{% endif %}"
            "{% generation %}x{% endgeneration %}",
            four, &last, LF_CHAT_BROKEN, "cannot be chosen", "marks that come and go");
    encodes(MARKED, ROW(U("a") "," AND("b", "\"weight\":0.0") "," U("c") "," A("d")), &all, 0,
            "<s><|user|>a</s><|assistant|>b</s><|user|>c</s><|assistant|>[d</s>",
            "weight: 0 by the marks");
    encodes(PLAIN, ROW(U("a") "," AND("b", "\"loss\":false,\"weight\":0")), &all, LF_CHAT_NO_TARGET,
            "no turn", "nothing is trained");
    encodes("{{ bos_token }}" PLAIN, four, &all, LF_CHAT_BROKEN, "BOS token twice", "two BOS");
    encodes(PLAIN, ROW(U("a")), &all, LF_CHAT_NO_TARGET, "no turn of the assistant", "no answer");
    encodes("{% if messages | length > 1 %}{{ raise_exception('only one') }}{% endif %}", four,
            &all, LF_CHAT_BROKEN, "only one", "a template that raises");
    encodes("x{{ messages | length }}" PLAIN, four, &all, LF_CHAT_NON_PREFIX,
            "the prompt of turn 2", "a text that changes in front");
    encodes("{% for m in messages %}{{ m.content }} {% endfor %}", four, &all, LF_CHAT_NON_PREFIX,
            "turn 2 does not begin the tokens", "tokens that reach over the seam");
    encodes("{% for m in messages %}{{ m.content }}{% endfor %}", ROW(U("a") "," A("")), &all,
            LF_CHAT_NO_TARGET, "no turn", "an answer of no tokens");
    encodes("{{ messages[0].nope.x }}", four, &all, LF_CHAT_BROKEN, "'nope'", "a wrong use");
    encodes("{{ messages | tojson }}",
            ROW("{\"role\":\"user\",\"content\":\"q\",\"x\":null},{\"role\":\"assistant\","
                "\"content\":\"a\","
                "\"reasoning\":\"r\"}"),
            &(lf_chat_train){.mask = LF_CHAT_MASK_PREFIX}, LF_CHAT_NON_PREFIX, "turn 2",
            "JSON of messages");
}

static void test_sharegpt(void)
{
    const char *line =
        "{\"conversations\":[{\"from\":\"human\",\"value\":\"q\"},{\"from\":\"function_call\","
        "\"value\":"
        "\"{\\\"name\\\":\\\"f\\\","
        "\\\"arguments\\\":{\\\"x\\\":1}}\"},{\"from\":\"observation\",\"value\":\"7\"},{\"from\":"
        "\"gpt\",\"value\":\"a\"}],"
        "\"system\":\"s\",\"tools\":\"[{\\\"name\\\":\\\"f\\\"}]\"}";
    const char *template =
        "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}({{ "
        "c.function.name }} {{ "
        "c.function.arguments | tojson }}){% endfor %};{% endfor %}{{ tools | tojson }}";
    struct kit k;
    lf_err err = LF_ERR_INIT;
    lf_shape_opts o = {.shape = LF_SHAPE_AUTO};
    lf_row r = {0};
    lf_buf b;
    uint64_t replaced = 0;
    lf_buf_init(&b);
    kit_open(&k, json_pack("{s:s}", "chat_template", template), NULL);
    lf_chat *c = lf_chat_from_files(&k.files, "kit", k.tok, NULL, &err);
    int rc = lf_shape_row(&r, &o, line, strlen(line), "row", &replaced, &err);
    rc = rc ? rc : lf_chat_render(c, r.prompt.turns, r.prompt.n_turns, r.tools, false, &b, &err);
    tap_str(rc ? err.text : b.data,
            "system:s;user:q;assistant:(f {\"x\": 1});tool:7;assistant:a;[{\"type\": \"function\", "
            "\"function\": "
            "{\"name\": \"f\"}}]",
            "calls and tools of ShareGPT");
    lf_turn call = {.role = LF_ROLE_FUNCTION_CALL, .text = "f(1)", .len = 4};
    tap_rc(lf_chat_render(c, &call, 1, NULL, false, &b, &err), LF_EFORMAT, &err, "f(1)",
           "a call that is no JSON");
    json_t *odd = json_string("{}");
    tap_rc(lf_chat_render(c, r.prompt.turns, 1, odd, false, &b, &err), LF_EFORMAT, &err, "no list",
           "tools that are no list");
    tap_rc(lf_chat_render(c, NULL, 0, NULL, false, &b, &err), LF_EFORMAT, &err, "without turns",
           "no turns");
    json_decref(odd);
    lf_row_fini(&r);
    lf_chat_destroy(c);
    kit_close(&k);
    lf_buf_fini(&b);
}

/* Letters: system, user, assistant, tool, function_call. */
static void order(const char *roles, const char *says)
{
    lf_turn t[16] = {{0}};
    lf_err err = LF_ERR_INIT;
    size_t n = strlen(roles);
    for (size_t i = 0; i < n; i++)
        t[i].role = (enum lf_role)(strchr("suatf", roles[i]) - "suatf");
    tap_rc(lf_chat_check_order(t, n, &err), says ? LF_EFORMAT : 0, &err, says, roles);
}

static void test_order(void)
{
    order("ua", NULL);
    order("suaua", NULL);
    order("uftaua", NULL);
    order("uattau", NULL);
    order("", "without turns");
    order("s", "without turns");
    order("au", "turn 1 is of assistant, but a conversation begins");
    order("suu", "turn 3 is of user, after one of the user");
    order("uaa", "turn 3 is of assistant, after one of the assistant");
    order("usa", "turn 2 is of system, which stands in front only");
    order("uta", "turn 2 is of tool, after one of the user");
    order("uatu", "turn 4 is of user, after a tool's");
}

int main(void)
{
    TAP(20, test_golden());
    TAP(2, test_marks());
    TAP(4, test_spaced());
    TAP(18, test_found());
    TAP(24, test_rows());
    TAP(4, test_sharegpt());
    TAP(12, test_order());
    return tap_done();
}
