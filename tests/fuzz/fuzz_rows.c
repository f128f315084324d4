/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: rows of every shape (conversations, prompts and answers, pairs, ids) to documents.
 * The first two bytes choose the options, the rest is the line. What is kept must hold together:
 * lengths, masks, counts, limits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/text/corpus/rowdocs.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_corpus = NULL;

static const char *const seeds[] = {
    "\1\3{\"messages\":[{\"role\":\"system\",\"content\":\"be "
    "kind\"},{\"role\":\"user\",\"content\":\"why?\"},{\"role\":\"assistant\",\"content\":"
    "\"h\\u00e9\"}]}",
    "\1\4{\"conversations\":[{\"from\":\"human\",\"value\":\"a</"
    "s>\"},{\"from\":\"gpt\",\"value\":\"b\"}],\"system\":\"s\",\"tools\":\"[]\"}",
    "\1\5{\"instruction\":\"do\",\"input\":\"it\",\"output\":\"done\",\"history\":[[\"q\",\"a\"]]}",
    "\1\6{\"prompt\":\"x \",\"chosen\":\"yes it is\",\"rejected\":\"no\",\"margin\":0.5}",
    "\1\7{\"prompt\":\"x\",\"completion\":\"y\",\"label\":true}",
    "\1\10{\"prompt\":[{\"role\":\"user\",\"content\":\"2+2\"}],\"answer\":\"4\"}",
    "\1\11{\"input_ids\":[1,2,3],\"labels\":[-100,2,3]}",
    "\1\2{\"prompt\":\"The sea\",\"completion\":\" is wide\"}",
    "\1\1{\"text\":\"\\ud800 <s>text</s>\"}"};

size_t fuzz_seed(size_t i, uint8_t *buf, size_t cap)
{
    size_t n = i < sizeof seeds / sizeof seeds[0] ? strlen(seeds[i]) : 0;
    if (n == 0 || n > cap)
        return 0;
    memcpy(buf, seeds[i], n);
    return n;
}

static const char CONFIG[] =
    "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"pad_token\":\"</s>\",\"chat_template\":\"{% "
    "for m in messages "
    "%}<|{{ m.role }}|>"
    "{{ m.content }}</s>\\n{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}\"}";

static struct {
    lf_tokenizer *tok;
    lf_tok_state *state;
    lf_chat *chat;
    lf_rowdocs docs;
} kit;

static void setup(void)
{
    char path[4200];
    const char *src = getenv("LF_SRCDIR");
    lf_err err = LF_ERR_INIT;
    lf_buf box, file;
    lf_tok_files f;
    lf_buf_init(&box);
    lf_buf_init(&file);
    snprintf(path, sizeof path, "%s/tests/golden/chat/tokenizer.json", src ? src : ".");
    if (lf_io_read_file(path, 1 << 24, &file, &err)) {
        fprintf(stderr, "fuzz_rows: %s (set LF_SRCDIR)\n", err.text);
        exit(1);
    }
    lf_buf_addf(&box,
                "loong-flow tokenizer files 1\ntokenizer.json %zu\n%stokenizer_config.json %zu\n%s",
                file.len, file.data, strlen(CONFIG), CONFIG);
    kit.tok = lf_tokenizer_parse(box.data, box.len, "kit", &err);
    kit.state = kit.tok ? lf_tok_state_create(kit.tok, &err) : NULL;
    if (!kit.state || lf_tok_files_unpack(&f, box.data, box.len, "kit", &err) ||
        !(kit.chat = lf_chat_from_files(&f, "kit", kit.tok, NULL, &err)))
        abort();
    lf_tok_files_fini(&f);
    lf_buf_fini(&box);
    lf_buf_fini(&file);
    lf_rowdocs_init(&kit.docs);
}

static void check(const lf_rowdocs *d, const lf_rowdocs_opts *o)
{
    size_t total = 0, trained = 0;
    for (size_t k = 0; k < d->n_docs; k++) {
        size_t at = total;
        total += d->len[k];
        if (total > d->ids.n || (o->max_length && d->len[k] > o->max_length))
            abort();
        for (size_t i = at + 1; i < total; i++)
            trained += d->mask.data[i] == 1;
        for (size_t i = at; i < total; i++)
            if ((d->mask.data[i] != 0 && d->mask.data[i] != 1) ||
                d->ids.v[i] >= lf_tokenizer_vocab_size(kit.tok))
                abort();
    }
    if (d->fate == LF_ROW_KEPT &&
        (total != d->ids.n || d->mask.len != d->ids.n || d->trained != trained || d->n_docs < 1))
        abort();
    /* A text of one token has none before it; where something is masked, something else is
     * trained. */
    if (d->fate == LF_ROW_KEPT && d->kind != LF_ROW_PROMPT && trained == 0 &&
        (d->masked || total != 1))
        abort();
    if (d->fate != LF_ROW_KEPT && d->n_docs != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lf_err err = LF_ERR_INIT;
    lf_row r = {0};
    uint64_t replaced = 0;
    if (!kit.tok)
        setup();
    if (size < 2)
        return 0;
    const lf_shape_opts shape = {.shape = (enum lf_shape)(data[1] % LF_SHAPES),
                                 .ignore_unmapped = data[0] & 1};
    const lf_rowdocs_opts o = {.tok = kit.tok,
                               .chat = kit.chat,
                               .shape = &shape,
                               .flags = LF_TOK_SPECIAL_TEXT,
                               .eos_id = lf_tokenizer_eos(kit.tok),
                               .train = {.last_only = data[0] & 2},
                               .any_order = data[0] & 4,
                               .train_prompt = data[0] & 8,
                               .max_length = data[0] & 16 ? 12 : 0,
                               .truncate = (enum lf_truncate)((data[0] >> 5) % 3)};
    int rc = lf_shape_row(&r, &shape, (const char *)data + 2, size - 2, "f:1", &replaced, &err);
    fuzz_check_error(rc, &err);
    if (!rc) {
        err = (lf_err)LF_ERR_INIT;
        rc = lf_rowdocs_encode(&kit.docs, &o, kit.state, &r, &err);
        fuzz_check_error(rc, &err);
        if (!rc)
            check(&kit.docs, &o);
    }
    lf_row_fini(&r);
    return 0;
}
