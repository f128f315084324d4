/* SPDX-License-Identifier: Apache-2.0
 *
 * The model card, README.md of an export: what the model is, where it comes from, how it is loaded.
 * The same checkpoint gives the same text: neither times nor paths stand in it. */
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/card.h"

/* 1234567 -> "1,234,567" */
static void add_count(lf_buf *b, int64_t n)
{
    if (n >= 1000) {
        add_count(b, n / 1000);
        lf_buf_addf(b, ",%03lld", (long long)(n % 1000));
    } else {
        lf_buf_addf(b, "%lld", (long long)n);
    }
}

static void add_row(lf_buf *b, const char *name, int64_t n)
{
    lf_buf_addf(b, "| %s | ", name);
    add_count(b, n);
    lf_buf_adds(b, " |\n");
}

/* By enum lf_model_labels_of. */
static const char *const label_tags[] = {"text-classification", "token-classification",
                                         "question-answering"};
static const char *const label_kinds[] = {"classifier of texts", "classifier of tokens",
                                          "model that finds answers"};
static const char *const label_classes[] = {"AutoModelForSequenceClassification",
                                            "AutoModelForTokenClassification",
                                            "AutoModelForQuestionAnswering"};

/* Does it tell which tokens were replaced? */
static bool replaced(const struct lf_convert_card *c)
{
    return c->family->discriminator &&
           strcmp(lf_hf_class_of(c->family, c->config), c->family->discriminator) == 0;
}

/* What the hub sorts models by. */
static void add_head(lf_buf *b, const struct lf_convert_card *c)
{
    const char *type = c->family->model_type;
    const lf_model_config *m = c->config;
    const bool score = m->output == LF_OUTPUT_SCORE, sees = c->family->sight != NULL,
               both = m->mask == LF_MASK_BOTH, labels = m->output == LF_OUTPUT_LABELS;
    lf_buf_addf(
        b,
        "---\nlibrary_name: transformers\npipeline_tag: %s\ntags:\n- loong-flow\n- %.*s\n%s---\n\n",
        lf_model_classifies(m) ? "image-classification"
        : c->family->lone      ? "image-feature-extraction"
        : score                ? "text-classification"
        : labels               ? label_tags[m->labels_of]
        : lf_model_is_dual(m)  ? "zero-shot-image-classification"
        : sees                 ? "image-text-to-text"
        : both                 ? "fill-mask"
                               : "text-generation",
        (int)strcspn(type, " "), type, score ? "- reward-model\n" : "");
    lf_buf_addf(b, "# A %s of family %s\n\n",
                lf_model_classifies(m) ? "classifier of pictures"
                : c->family->lone      ? "vision encoder"
                : score                ? "reward model"
                : replaced(c)          ? "model that tells which tokens were replaced"
                : labels               ? label_kinds[m->labels_of]
                : lf_model_is_dual(m)  ? "model of pictures and texts"
                : both                 ? "masked language model"
                                       : "language model",
                c->family->name);
    lf_buf_addf(b, "Exported by loong-flow (`lf-convert`) from checkpoint `%s`.\n\n", c->identity);
}

static void add_table(lf_buf *b, const struct lf_convert_card *c)
{
    const lf_model_config *m = c->config;
    const bool lone = c->family->lone != NULL;
    lf_buf_adds(b, "| | |\n|---|---|\n");
    lf_buf_addf(b, "| class | %s |\n", lf_hf_class_of(c->family, m));
    add_row(b, "parameters", c->params);
    lf_buf_addf(b, "| type of the weights | %s |\n", c->dtype);
    add_row(b, "layers", lone ? m->vision.layers : m->layers);
    add_row(b, "hidden width", lone ? m->vision.hidden : m->hidden);
    if (lone || lf_model_attends(m))
        lf_buf_addf(b, "| heads | %lld, keys and values %lld, width %lld |\n",
                    (long long)(lone ? m->vision.heads : m->heads),
                    (long long)(lone ? m->vision.heads : m->kv_heads),
                    (long long)(lone ? m->vision.head_dim : m->head_dim));
    if (m->scan_heads > 0)
        lf_buf_addf(b, "| heads of scans | %lld, keys %lld wide, values %lld |\n",
                    (long long)m->scan_heads, (long long)m->scan_key_dim,
                    (long long)m->scan_value_dim);
    if (m->experts > 0)
        lf_buf_addf(b, "| experts | %lld, of which %lld work on a token |\n", (long long)m->experts,
                    (long long)m->experts_per_token);
    if (!lone)
        add_row(b, "vocabulary", m->vocab);
    if (!lone || m->vision.positions)
        add_row(b, "positions", lone ? m->vision.positions : m->max_positions);
    json_t *steps = json_object_get(c->state, "step"),
           *tokens = json_object_get(c->state, "tokens");
    if (json_is_integer(steps) && json_integer_value(steps) > 0)
        add_row(b, "steps of the last training", json_integer_value(steps));
    if (json_is_integer(tokens) && json_integer_value(tokens) > 0)
        add_row(b, "tokens of the last training", json_integer_value(tokens));
}

static void add_use(lf_buf *b, const struct lf_convert_card *c)
{
    const lf_model_config *m = c->config;
    const bool score = m->output == LF_OUTPUT_SCORE, both = m->mask == LF_MASK_BOTH;
    const char *class = c->family->lone || lf_model_is_dual(m) ? c->family->architecture
                        : replaced(c)                          ? "AutoModelForPreTraining"
                        : score                         ? "AutoModelForSequenceClassification"
                        : m->output == LF_OUTPUT_LABELS ? label_classes[m->labels_of]
                        : c->family->sight              ? "AutoModelForImageTextToText"
                        : lf_model_tells_pairs(m)       ? "AutoModelForPreTraining"
                        : both                          ? "AutoModelForMaskedLM"
                                                        : "AutoModelForCausalLM";
    lf_buf_addf(b, "\n## Use\n\n```python\nfrom transformers import %s%s%s\n\n", class,
                c->tokenizer ? ", " : "", c->tokenizer ? c->tokenizer : "");
    if (c->tokenizer)
        lf_buf_addf(b, "tokenizer = %s.from_pretrained(\".\")\n%s", c->tokenizer,
                    c->ends ? "tokenizer.add_eos_token = True  # captions end with it\n" : "");
    lf_buf_addf(b, "model = %s.from_pretrained(\".\", dtype=\"%s\")\n```\n", class, c->dtype);
    if (score)
        lf_buf_adds(b, "\nThe one logit of a text is its score, before the mean and the standard "
                       "deviation (`mean` "
                       "and `std` of config.json, where they stand) are taken out.\n");
    lf_buf_adds(
        b,
        "\nTraining data, licence and intended use are for the one who publishes this to add.\n");
}

int lf_convert_card_text(lf_buf *out, const struct lf_convert_card *c, lf_err *err)
{
    lf_buf_clear(out);
    add_head(out, c);
    add_table(out, c);
    add_use(out, c);
    return lf_buf_check(out, err);
}
