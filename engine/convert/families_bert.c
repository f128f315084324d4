/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoders of texts that fill in hidden tokens: BERT, RoBERTa with XLM-R and CamemBERT, which is
 * BERT with other names and positions, DistilBERT, ModernBERT; both models of ELECTRA; ERNIE and
 * data2vec, which are BERT and RoBERTa; those with norms before the branches: Megatron's BERT,
 * RoBERTa-PreLayerNorm, XLM-R XL. */
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/str.h"
#include "engine/convert/families.h"

/* Its classes with labels of texts, tokens and spans. */
#define LABELS(name)                                                                               \
    {                                                                                              \
        name "ForSequenceClassification", name "ForTokenClassification",                           \
            name "ForQuestionAnswering"                                                            \
    }

#define FILLER                                                                                     \
    "norm=layer", "norm_bias=yes", "mask=both", "position=learned", "mlp=plain", "qkv_bias=yes",   \
        "out_bias=yes", "mlp_bias=yes", "head_bias=yes", "head_transform=yes",                     \
        "head_transform_bias=yes"
#define ENCODER FILLER, "block=post", "embed_norm=yes", "final_norm=no"

static const char *const bert_switches[] = {ENCODER, "tied_head=yes", NULL};
static const char *const roberta_switches[] = {ENCODER, "tied_head=yes", "activation=gelu", NULL};
static const char *const distilbert_switches[] = {ENCODER, "norm_eps=1e-12", NULL};
static const char *const modernbert_switches[] = {
    "norm=layer",    "mask=both",          "embed_norm=yes",
    "first_norm=no", "position=rope",      "activation=gelu",
    "mlp=glu",       "head_transform=yes", NULL};

/* Without a tie transformers 5 adds a bias that files do not have apart from the other. is_decoder:
 * that class sees the past alone. */
#define BERT_KEYS(words, hidden_, heads_, ffn_)                                                    \
    {"vocab_size", LF_HF_NUMBER, "vocab", words},                                                  \
        {"hidden_size", LF_HF_NUMBER, "hidden", hidden_},                                          \
        {"num_hidden_layers", LF_HF_NUMBER, "layers", "12"},                                       \
        {"num_attention_heads", LF_HF_NUMBER, "heads", heads_},                                    \
        {"intermediate_size", LF_HF_NUMBER, "ffn", ffn_},                                          \
        {"hidden_dropout_prob", LF_HF_NUMBER, "embed_dropout attn_dropout mlp_dropout", "0.1"},    \
        {"type_vocab_size", LF_HF_NUMBER, "token_types", "2"},                                     \
        {"layer_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-12"}, BERT_OTHER_KEYS

#define BERT_OTHER_KEYS                                                                            \
    {"attention_probs_dropout_prob", LF_HF_NUMBER, "attn_prob_dropout", "0.1"},                    \
        {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},                                   \
        {"is_decoder", LF_HF_SAME, NULL, "false"},                                                 \
        {"add_cross_attention", LF_HF_SAME, NULL, "false"},                                        \
        {"tie_word_embeddings", LF_HF_SAME, NULL, "true"},                                         \
        {"classifier_dropout", LF_HF_INERT, NULL, NULL}, /* of heads, which have none here */      \
    {                                                                                              \
        "position_embedding_type", LF_HF_UNREAD, NULL, "\"absolute\""                              \
    }

static const struct lf_hf_key bert_keys[] = {
    BERT_KEYS("30522", "768", "12", "3072"),
    {"hidden_act", LF_HF_ACT, "activation", "\"gelu\""},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "512"},
    /* of the head over pairs, in the first files */
    {"directionality", LF_HF_UNREAD, NULL, "\"bidi\""},
    {"pooler_fc_size", LF_HF_INERT, NULL, NULL},
    {"pooler_num_attention_heads", LF_HF_INERT, NULL, NULL},
    {"pooler_num_fc_layers", LF_HF_INERT, NULL, NULL},
    {"pooler_size_per_head", LF_HF_INERT, NULL, NULL},
    {"pooler_type", LF_HF_INERT, NULL, NULL},
    {0},
};

/* The head has gelu whatever hidden_act says. */
#define ROBERTA_KEYS(words)                                                                        \
    {                                                                                              \
        BERT_KEYS(words, "768", "12", "3072"), {"hidden_act", LF_HF_SAME, NULL, "\"gelu\""}, {0},  \
    }
static const struct lf_hf_key roberta_keys[] = ROBERTA_KEYS("50265"),
                              xlm_roberta_keys[] = ROBERTA_KEYS("30522");

#define BERT_LAYER_ROWS(model)                                                                     \
    BERT_NORMLESS_ROWS(model),                                                                     \
        {model "embeddings.LayerNorm.{P}", LF_MAP_COPY, "embed_norm.{P}", NULL},                   \
        {model "encoder.layer.{L}.attention.output.LayerNorm.{P}", LF_MAP_COPY,                    \
         "layers.{L}.attn_norm.{P}", NULL},                                                        \
    {                                                                                              \
        model "encoder.layer.{L}.output.LayerNorm.{P}", LF_MAP_COPY, "layers.{L}.mlp_norm.{P}",    \
            NULL                                                                                   \
    }

#define BERT_NORMLESS_ROWS(model)                                                                  \
    {model "embeddings.word_embeddings.weight", LF_MAP_COPY, "embed.weight", NULL},                \
        {model "embeddings.position_embeddings.weight", LF_MAP_COPY, "pos_embed.weight", NULL},    \
        {model "embeddings.token_type_embeddings.weight", LF_MAP_COPY, "type_embed.weight", NULL}, \
        {model "embeddings.position_ids", LF_MAP_IGNORED, "the numbers 0, 1, 2 ...", NULL},        \
        {model "encoder.layer.{L}.attention.self.query.{P}", LF_MAP_COPY, "layers.{L}.attn.q.{P}", \
         NULL},                                                                                    \
        {model "encoder.layer.{L}.attention.self.key.{P}", LF_MAP_COPY, "layers.{L}.attn.k.{P}",   \
         NULL},                                                                                    \
        {model "encoder.layer.{L}.attention.self.value.{P}", LF_MAP_COPY, "layers.{L}.attn.v.{P}", \
         NULL},                                                                                    \
        {model "encoder.layer.{L}.attention.output.dense.{P}", LF_MAP_COPY,                        \
         "layers.{L}.attn.o.{P}", NULL},                                                           \
        {model "encoder.layer.{L}.intermediate.dense.{P}", LF_MAP_COPY, "layers.{L}.mlp.up.{P}",   \
         NULL},                                                                                    \
        {model "encoder.layer.{L}.output.dense.{P}", LF_MAP_COPY, "layers.{L}.mlp.down.{P}",       \
         NULL},                                                                                    \
        {"qa_outputs.{P}", LF_MAP_COPY, "labels.{P}", "labels_of=span"},                           \
    {                                                                                              \
        model "pooler.", LF_MAP_LEFT_OUT, "the pooler, which heads over whole texts read",         \
            "label_head!=tanh nsp_head=no"                                                         \
    }

#define BERT_HEAD_ROWS(model)                                                                      \
    {model "pooler.dense.{P}", LF_MAP_COPY, "label_in.{P}", NULL},                                 \
        {"classifier.{P}", LF_MAP_COPY, "labels.{P}", "labels_of!=span"},                          \
        {"cls.predictions.transform.dense.{P}", LF_MAP_COPY, "head_in.{P}", NULL},                 \
        {"cls.predictions.transform.LayerNorm.{P}", LF_MAP_COPY, "head_norm.{P}", NULL},           \
        {"cls.predictions.bias", LF_MAP_COPY, "head.bias", NULL},                                  \
        {"cls.predictions.decoder.weight", LF_MAP_TIED, "embed.weight", NULL},                     \
    {                                                                                              \
        "cls.predictions.decoder.bias", LF_MAP_TIED, "head.bias", NULL                             \
    }

static const struct lf_map_row bert_rows[] = {
    BERT_LAYER_ROWS("bert."),
    BERT_HEAD_ROWS("bert."),
    {"cls.seq_relationship.{P}", LF_MAP_COPY, "nsp.{P}", "nsp_head=yes"},
    {"cls.seq_relationship.", LF_MAP_LEFT_OUT, "the head that says whether texts follow each other",
     "nsp_head=no"},
    {0},
};

#define ROBERTA_HEAD_ROWS                                                                          \
    {"classifier.dense.{P}", LF_MAP_COPY, "label_in.{P}", NULL},                                   \
        {"classifier.out_proj.{P}", LF_MAP_COPY, "labels.{P}", "labels_of=text"},                  \
        {"classifier.{P}", LF_MAP_COPY, "labels.{P}", "labels_of=token"},                          \
        {"lm_head.dense.{P}", LF_MAP_COPY, "head_in.{P}", NULL},                                   \
        {"lm_head.layer_norm.{P}", LF_MAP_COPY, "head_norm.{P}", NULL},                            \
        {"lm_head.bias", LF_MAP_COPY, "head.bias", NULL},                                          \
        {"lm_head.decoder.weight", LF_MAP_TIED, "embed.weight", NULL},                             \
    {                                                                                              \
        "lm_head.decoder.bias", LF_MAP_TIED, "head.bias", NULL                                     \
    }

static const struct lf_map_row roberta_rows[] = {
    BERT_LAYER_ROWS("roberta."), ROBERTA_HEAD_ROWS, {0}};
static const struct lf_map_row data2vec_rows[] = {
    BERT_LAYER_ROWS("data2vec_text."), ROBERTA_HEAD_ROWS, {0}};

/* The first files call weight and bias of a norm gamma and beta. */
static void canon_norms(char *out, size_t cap, const char *name)
{
    const size_t n = strlen(name);
    if (lf_str_has_suffix(name, ".LayerNorm.gamma"))
        snprintf(out, cap, "%.*sweight", (int)(n - strlen("gamma")), name);
    else if (lf_str_has_suffix(name, ".LayerNorm.beta"))
        snprintf(out, cap, "%.*sbias", (int)(n - strlen("beta")), name);
    else
        snprintf(out, cap, "%s", name);
}

/* Positions count from behind the row of padding, whose number is its token's. */
static int read_roberta(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t pad = 1, rows = 512;
    int rc = lf_hf_get_i64(r, "pad_token_id", &pad, err);
    rc = rc != 0 ? rc : lf_hf_get_i64(r, "max_position_embeddings", &rows, err);
    if (rc == 0 && (pad < 0 || pad + 1 >= rows))
        rc = lf_fail(err, LF_ENOTSUP,
                     "%s: pad_token_id = %lld: positions count from the number behind it, and "
                     "max_position_embeddings = %lld",
                     r->path, (long long)pad, (long long)rows);
    rc = rc != 0 ? rc
                 : lf_hf_set_number(r, c, "pad_token_id", "position_offset", (double)pad + 1, err);
    return rc != 0 ? rc
                   : lf_hf_set_number(r, c, "max_position_embeddings", "max_positions",
                                      (double)(rows - pad - 1), err);
}

static int write_roberta(const lf_model_config *c, json_t *o, lf_err *err)
{
    if (c->position_offset < 1)
        return lf_fail(err, LF_EINVAL,
                       "position_offset = 0: positions count from the number behind a token of "
                       "padding there");
    const int bad = json_object_set_new(o, "pad_token_id", json_integer(c->position_offset - 1)) ||
                    json_object_set_new(o, "max_position_embeddings",
                                        json_integer(c->max_positions + c->position_offset));
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

const struct lf_hf_family lf_hf_bert = {
    .name = "bert",
    .model_type = "bert",
    .architecture = "BertForMaskedLM",
    .pairs = "BertForPreTraining",
    .label_classes = LABELS("Bert"),
    .native = true,
    .prefix = "bert.",
    .switches = bert_switches,
    .keys = bert_keys,
    .rows = bert_rows,
    .canon = canon_norms,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};

#define ROBERTA_AS(id, class, model, own_switches, own_keys, own_rows)                             \
    {                                                                                              \
        .name = id, .model_type = id, .architecture = class "ForMaskedLM", .native = true,         \
        .label_classes = LABELS(class), .prefix = model, .switches = own_switches,                 \
        .keys = own_keys, .rows = own_rows, .canon = canon_norms, .read = read_roberta,            \
        .write = write_roberta, .tol_max = LF_HF_TOL_MAX, .tol_rms = LF_HF_TOL_RMS                 \
    }
#define ROBERTA(id, class, own_keys)                                                               \
    ROBERTA_AS(id, class, "roberta.", roberta_switches, own_keys, roberta_rows)
const struct lf_hf_family lf_hf_roberta = ROBERTA("roberta", "Roberta", roberta_keys);
const struct lf_hf_family lf_hf_xlm_roberta =
    ROBERTA("xlm-roberta", "XLMRoberta", xlm_roberta_keys);
const struct lf_hf_family lf_hf_camembert = ROBERTA("camembert", "Camembert", xlm_roberta_keys);
const struct lf_hf_family lf_hf_data2vec =
    ROBERTA_AS("data2vec-text", "Data2VecText", "data2vec_text.", roberta_switches,
               xlm_roberta_keys, data2vec_rows);

/* ---- ERNIE: BERT, whose embeddings of tasks no model without use_task_id has ---- */

static const struct lf_hf_key ernie_keys[] = {
    BERT_KEYS("30522", "768", "12", "3072"),
    {"hidden_act", LF_HF_ACT, "activation", "\"gelu\""},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "512"},
    {"use_task_id", LF_HF_SAME, NULL, "false"},
    {"task_type_vocab_size", LF_HF_INERT, NULL, NULL},
    {0},
};

#define NSP_LEFT_OUT                                                                               \
    {                                                                                              \
        "cls.seq_relationship.", LF_MAP_LEFT_OUT,                                                  \
            "the head that says whether texts follow each other", NULL                             \
    }
static const struct lf_map_row ernie_rows[] = {
    BERT_LAYER_ROWS("ernie."), BERT_HEAD_ROWS("ernie."), NSP_LEFT_OUT, {0}};

const struct lf_hf_family lf_hf_ernie_text = {
    .name = "ernie",
    .model_type = "ernie",
    .architecture = "ErnieForMaskedLM",
    .label_classes = LABELS("Ernie"),
    .native = true,
    .prefix = "ernie.",
    .switches = bert_switches,
    .keys = ernie_keys,
    .rows = ernie_rows,
    .canon = canon_norms,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};

/* ---- norms before the branches, and one behind the last layer ---- */

#define PRE_ENCODER FILLER, "block=pre", "final_norm=yes", "tied_head=yes"
static const char *const megatron_bert_switches[] = {PRE_ENCODER, "embed_norm=no", NULL};
static const char *const prenorm_switches[] = {PRE_ENCODER, "embed_norm=yes", "activation=gelu",
                                               NULL};
static const char *const xlm_xl_switches[] = {PRE_ENCODER, "embed_norm=no", "activation=gelu",
                                              NULL};

static const struct lf_hf_key megatron_bert_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", "29056"},
    {"hidden_size", LF_HF_NUMBER, "hidden", "1024"},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", "24"},
    {"num_attention_heads", LF_HF_NUMBER, "heads", "16"},
    {"intermediate_size", LF_HF_NUMBER, "ffn", "4096"},
    {"hidden_dropout_prob", LF_HF_NUMBER, "embed_dropout attn_dropout mlp_dropout", "0.1"},
    {"type_vocab_size", LF_HF_NUMBER, "token_types", "2"},
    {"layer_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-12"},
    BERT_OTHER_KEYS,
    {"hidden_act", LF_HF_ACT, "activation", "\"gelu\""},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "512"},
    {0},
};

/* Nothing is dropped behind the MLP. */
static const struct lf_hf_key xlm_xl_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", "250880"},
    {"hidden_size", LF_HF_NUMBER, "hidden", "2560"},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", "36"},
    {"num_attention_heads", LF_HF_NUMBER, "heads", "32"},
    {"intermediate_size", LF_HF_NUMBER, "ffn", "10240"},
    {"hidden_dropout_prob", LF_HF_NUMBER, "embed_dropout attn_dropout", "0.1"},
    {"type_vocab_size", LF_HF_NUMBER, "token_types", "1"},
    {"layer_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    BERT_OTHER_KEYS,
    {"hidden_act", LF_HF_SAME, NULL, "\"gelu\""},
    {0},
};

#define PRE(outside, ours)                                                                         \
    {                                                                                              \
        outside ".{P}", LF_MAP_COPY, ours ".{P}", NULL                                             \
    }
static const struct lf_map_row megatron_bert_rows[] = {
    BERT_NORMLESS_ROWS("bert."),
    BERT_HEAD_ROWS("bert."),
    NSP_LEFT_OUT,
    PRE("bert.encoder.layer.{L}.attention.ln", "layers.{L}.attn_norm"),
    PRE("bert.encoder.layer.{L}.ln", "layers.{L}.mlp_norm"),
    PRE("bert.encoder.ln", "final_norm"),
    {0},
};

#define PRENORM "roberta_prelayernorm."
static const struct lf_map_row prenorm_rows[] = {
    BERT_NORMLESS_ROWS(PRENORM),
    ROBERTA_HEAD_ROWS,
    PRE(PRENORM "embeddings.LayerNorm", "embed_norm"),
    PRE(PRENORM "encoder.layer.{L}.attention.LayerNorm", "layers.{L}.attn_norm"),
    PRE(PRENORM "encoder.layer.{L}.intermediate.LayerNorm", "layers.{L}.mlp_norm"),
    PRE(PRENORM "LayerNorm", "final_norm"),
    {0},
};

static const struct lf_map_row xlm_xl_rows[] = {
    BERT_NORMLESS_ROWS("roberta."),
    ROBERTA_HEAD_ROWS,
    PRE("roberta.encoder.layer.{L}.attention.self_attn_layer_norm", "layers.{L}.attn_norm"),
    PRE("roberta.encoder.layer.{L}.LayerNorm", "layers.{L}.mlp_norm"),
    PRE("roberta.encoder.LayerNorm", "final_norm"),
    {0},
};

const struct lf_hf_family lf_hf_megatron_bert = {
    .name = "megatron-bert",
    .model_type = "megatron-bert",
    .architecture = "MegatronBertForMaskedLM",
    .label_classes = LABELS("MegatronBert"),
    .native = true,
    .prefix = "bert.",
    .switches = megatron_bert_switches,
    .keys = megatron_bert_keys,
    .rows = megatron_bert_rows,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};
const struct lf_hf_family lf_hf_roberta_prenorm =
    ROBERTA_AS("roberta-prelayernorm", "RobertaPreLayerNorm", PRENORM, prenorm_switches,
               roberta_keys, prenorm_rows);
const struct lf_hf_family lf_hf_xlm_roberta_xl = ROBERTA_AS(
    "xlm-roberta-xl", "XLMRobertaXL", "roberta.", xlm_xl_switches, xlm_xl_keys, xlm_xl_rows);

/* ---- ELECTRA ---- */

/* The head over the vocabulary has gelu whatever hidden_act says; that of the discriminator has
 * hidden_act. What summary_* say is of multiple choice. */
static const struct lf_hf_key electra_keys[] = {
    BERT_KEYS("30522", "256", "4", "1024"),
    {"hidden_act", LF_HF_SAME, NULL, "\"gelu\""},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "512"},
    {"summary_activation", LF_HF_INERT, NULL, NULL},
    {"summary_last_dropout", LF_HF_INERT, NULL, NULL},
    {"summary_type", LF_HF_INERT, NULL, NULL},
    {"summary_use_proj", LF_HF_INERT, NULL, NULL},
    {0},
};

static const struct lf_map_row electra_rows[] = {
    BERT_LAYER_ROWS("electra."),
    {"electra.embeddings_project.{P}", LF_MAP_COPY, "embed_in.{P}", NULL},
    {"discriminator_predictions.dense.{P}", LF_MAP_COPY, "label_in.{P}",
     "labels_of=token label_head=gelu"},
    {"discriminator_predictions.dense_prediction.{P}", LF_MAP_COPY, "labels.{P}",
     "labels_of=token label_head=gelu"},
    {"classifier.dense.{P}", LF_MAP_COPY, "label_in.{P}", "labels_of=text"},
    {"classifier.out_proj.{P}", LF_MAP_COPY, "labels.{P}", "labels_of=text"},
    {"classifier.{P}", LF_MAP_COPY, "labels.{P}", "labels_of=token label_head!=gelu"},
    {"generator_predictions.dense.{P}", LF_MAP_COPY, "head_in.{P}", NULL},
    {"generator_predictions.LayerNorm.{P}", LF_MAP_COPY, "head_norm.{P}", NULL},
    {"generator_lm_head.bias", LF_MAP_COPY, "head.bias", NULL},
    {"generator_lm_head.weight", LF_MAP_TIED, "embed.weight", NULL},
    {0},
};

/* An embedding that is as wide as the stream has no projection. */
static int read_electra(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t width = 128;
    int rc = lf_hf_get_i64(r, "embedding_size", &width, err);
    if (rc != 0 || width == c->hidden)
        return rc;
    rc = lf_hf_set_number(r, c, "embedding_size", "embed_dim", (double)width, err);
    return rc != 0 ? rc : lf_hf_set(r, c, "embedding_size", "embed_narrow", "yes", err);
}

static int write_electra(const lf_model_config *c, json_t *o, lf_err *err)
{
    if (c->embed_dim && !c->embed_narrow)
        return lf_fail(err, LF_EINVAL,
                       "embed_narrow = no: positions are as wide as the embedding "
                       "there");
    return json_object_set_new(o, "embedding_size", json_integer(lf_model_embed_width(c)))
               ? lf_fail(err, LF_ENOMEM, "out of memory")
               : 0;
}

const struct lf_hf_family lf_hf_electra = {
    .name = "electra",
    .model_type = "electra",
    .architecture = "ElectraForMaskedLM",
    .label_classes = LABELS("Electra"),
    .discriminator = "ElectraForPreTraining",
    .native = true,
    .prefix = "electra.",
    .switches = roberta_switches,
    .keys = electra_keys,
    .rows = electra_rows,
    .canon = canon_norms,
    .read = read_electra,
    .write = write_electra,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};

/* ---- DistilBERT ---- */

static const struct lf_hf_key distilbert_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", "30522"},
    {"dim|hidden_size", LF_HF_NUMBER, "hidden", "768"},
    {"n_layers|num_hidden_layers", LF_HF_NUMBER, "layers", "6"},
    {"n_heads|num_attention_heads", LF_HF_NUMBER, "heads", "12"},
    {"hidden_dim", LF_HF_NUMBER, "ffn", "3072"},
    {"activation", LF_HF_ACT, "activation", "\"gelu\""},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "512"},
    {"dropout", LF_HF_NUMBER, "embed_dropout mlp_dropout", "0.1"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0.1"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"sinusoidal_pos_embds", LF_HF_SAME, NULL, "false"},
    {"tie_weights_", LF_HF_UNREAD, NULL, "true"},
    {"qa_dropout", LF_HF_INERT, NULL, NULL}, /* of heads, which have none here */
    {"seq_classif_dropout", LF_HF_INERT, NULL, NULL},
    {0},
};

#define DISTIL "distilbert.transformer.layer.{L}."
static const struct lf_map_row distilbert_rows[] = {
    {"distilbert.embeddings.word_embeddings.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"distilbert.embeddings.position_embeddings.weight", LF_MAP_COPY, "pos_embed.weight", NULL},
    {"distilbert.embeddings.LayerNorm.{P}", LF_MAP_COPY, "embed_norm.{P}", NULL},
    {"distilbert.embeddings.position_ids", LF_MAP_IGNORED, "the numbers 0, 1, 2 ...", NULL},
    {DISTIL "attention.q_lin.{P}", LF_MAP_COPY, "layers.{L}.attn.q.{P}", NULL},
    {DISTIL "attention.k_lin.{P}", LF_MAP_COPY, "layers.{L}.attn.k.{P}", NULL},
    {DISTIL "attention.v_lin.{P}", LF_MAP_COPY, "layers.{L}.attn.v.{P}", NULL},
    {DISTIL "attention.out_lin.{P}", LF_MAP_COPY, "layers.{L}.attn.o.{P}", NULL},
    {DISTIL "sa_layer_norm.{P}", LF_MAP_COPY, "layers.{L}.attn_norm.{P}", NULL},
    {DISTIL "ffn.lin1.{P}", LF_MAP_COPY, "layers.{L}.mlp.up.{P}", NULL},
    {DISTIL "ffn.lin2.{P}", LF_MAP_COPY, "layers.{L}.mlp.down.{P}", NULL},
    {DISTIL "output_layer_norm.{P}", LF_MAP_COPY, "layers.{L}.mlp_norm.{P}", NULL},
    {"pre_classifier.{P}", LF_MAP_COPY, "label_in.{P}", NULL},
    {"classifier.{P}", LF_MAP_COPY, "labels.{P}", "labels_of!=span"},
    {"qa_outputs.{P}", LF_MAP_COPY, "labels.{P}", "labels_of=span"},
    {"vocab_transform.{P}", LF_MAP_COPY, "head_in.{P}", NULL},
    {"vocab_layer_norm.{P}", LF_MAP_COPY, "head_norm.{P}", NULL},
    {"vocab_projector.bias", LF_MAP_COPY, "head.bias", NULL},
    {"vocab_projector.weight", LF_MAP_COPY, "head.weight", NULL},
    {"vocab_projector.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {0},
};

const struct lf_hf_family lf_hf_distilbert = {
    .name = "distilbert",
    .model_type = "distilbert",
    .architecture = "DistilBertForMaskedLM",
    .label_classes = LABELS("DistilBert"),
    .native = true,
    .prefix = "distilbert.",
    .switches = distilbert_switches,
    .keys = distilbert_keys,
    .rows = distilbert_rows,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};

/* ---- ModernBERT ---- */

/* Dropouts stand where ours do not. */
static const struct lf_hf_key modernbert_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", "50368"},
    {"hidden_size", LF_HF_NUMBER, "hidden", "768"},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", "22"},
    {"num_attention_heads", LF_HF_NUMBER, "heads", "12"},
    {"intermediate_size", LF_HF_NUMBER, "ffn", "1152"},
    {"hidden_activation", LF_HF_SAME, NULL, "\"gelu\""},
    {"classifier_activation", LF_HF_SAME, NULL, "\"gelu\""}, /* of the transform */
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "8192"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"initializer_cutoff_factor", LF_HF_INERT, NULL, NULL},
    {"norm_eps|layer_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"norm_bias", LF_HF_BOOL, "norm_bias", "false"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"mlp_bias", LF_HF_BOOL, "mlp_bias", "false"},
    {"decoder_bias", LF_HF_BOOL, "head_bias", "true"},
    {"classifier_bias", LF_HF_BOOL, "head_transform_bias", "false"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"embedding_dropout", LF_HF_NUMBER, "embed_dropout", "0"},
    {"attention_dropout", LF_HF_SAME, NULL, "0.0"},
    {"mlp_dropout", LF_HF_SAME, NULL, "0.0"},
    {"classifier_pooling", LF_HF_INERT, NULL, NULL}, /* see check_pooling */
    {"classifier_dropout", LF_HF_INERT, NULL, NULL},
    {"deterministic_flash_attn", LF_HF_INERT, NULL, NULL}, /* how the same numbers are computed */
    {"reference_compile", LF_HF_INERT, NULL, NULL},
    {"repad_logits_with_grad", LF_HF_INERT, NULL, NULL},
    {"sparse_prediction", LF_HF_INERT, NULL, NULL},
    {"sparse_pred_ignore_index", LF_HF_INERT, NULL, NULL},
    {"position_embedding_type", LF_HF_UNREAD, NULL, "\"absolute\""},
    {"cls_token_id", LF_HF_INERT, NULL, NULL},
    {0},
};

static const struct lf_map_row modernbert_rows[] = {
    {"model.embeddings.tok_embeddings.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"model.embeddings.norm.{P}", LF_MAP_COPY, "embed_norm.{P}", NULL},
    {"model.layers.{L}.attn_norm.{P}", LF_MAP_COPY, "layers.{L}.attn_norm.{P}", NULL},
    {"model.layers.{L}.attn.Wqkv.{P}", LF_MAP_STACK,
     "layers.{L}.attn.q.{P} layers.{L}.attn.k.{P} layers.{L}.attn.v.{P}", NULL},
    {"model.layers.{L}.attn.Wo.{P}", LF_MAP_COPY, "layers.{L}.attn.o.{P}", NULL},
    {"model.layers.{L}.mlp_norm.{P}", LF_MAP_COPY, "layers.{L}.mlp_norm.{P}", NULL},
    {"model.layers.{L}.mlp.Wi.{P}", LF_MAP_STACK, "layers.{L}.mlp.gate.{P} layers.{L}.mlp.up.{P}",
     NULL},
    {"model.layers.{L}.mlp.Wo.{P}", LF_MAP_COPY, "layers.{L}.mlp.down.{P}", NULL},
    {"model.final_norm.{P}", LF_MAP_COPY, "final_norm.{P}", NULL},
    {"head.dense.{P}", LF_MAP_COPY, "head_in.{P}", NULL},
    {"head.norm.{P}", LF_MAP_COPY, "head_norm.{P}", NULL},
    {"classifier.{P}", LF_MAP_COPY, "labels.{P}", NULL},
    {"decoder.bias", LF_MAP_COPY, "head.bias", NULL},
    {"decoder.weight", LF_MAP_COPY, "head.weight", NULL},
    {"decoder.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {0},
};

/* The two bases, in files of transformers 5 and of 4. Scaled positions are refused by
 * lf_hf_read_rope_as where they are not known. */
static int read_thetas(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    double theta = 160000, local = 10000;
    json_t *both = lf_hf_take(r, "rope_parameters"), *full, *empty = json_object();
    int rc = empty ? 0 : lf_fail(err, LF_ENOMEM, "out of memory");
    rc = rc != 0 ? rc : lf_hf_get_f64(r, "global_rope_theta", &theta, err);
    rc = rc != 0 ? rc : lf_hf_get_f64(r, "local_rope_theta", &local, err);
    rc = rc != 0
             ? rc
             : lf_hf_read_local_rope(r, json_object_get(both, "sliding_attention"), &local, err);
    if (rc == 0) {
        full = json_object_get(both, "full_attention");
        const struct lf_hf_rope as = {.theta = theta,
                                      .params = !both                  ? NULL
                                                : json_is_object(full) ? full
                                                                       : empty};
        rc = lf_hf_read_rope_as(r, c, &as, err);
    }
    if (rc == 0 && c->sliding_window > 0)
        rc = lf_hf_set_number(r, c, "local_rope_theta", "rope_local_theta", local, err);
    json_decref(empty);
    return rc;
}

/* Labels of a text from the mean of its tokens are another head. */
static int check_pooling(lf_hf_reader *r, const lf_model_config *c, lf_err *err)
{
    const char *pooling = json_string_value(json_object_get(r->o, "classifier_pooling"));
    if (c->output != LF_OUTPUT_LABELS || c->labels_of != LF_LABELS_OF_TEXT || !pooling ||
        strcmp(pooling, "cls") == 0)
        return 0;
    return lf_fail(err, LF_ENOTSUP,
                   "%s: classifier_pooling = %.20s: labels of a text are read at its first token "
                   "(cls) here",
                   r->path, pooling);
}

/* Every n-th layer from the first on sees all tokens, the others local_attention / 2 of either
 * side. */
static int read_modernbert(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    struct lf_hf_slide by = {.period = 3, .exception = LF_HF_FIRST};
    int64_t local = 128;
    int rc = check_pooling(r, c, err);
    rc = rc != 0 ? rc : lf_hf_get_period(r, "global_attn_every_n_layers", &by.period, err);
    rc = rc != 0 ? rc : lf_hf_get_i64(r, "local_attention", &local, err);
    if (rc == 0 && local < 0)
        rc = lf_fail(err, LF_EFORMAT, "%s: local_attention = %lld", r->path, (long long)local);
    rc = rc != 0 ? rc : lf_hf_read_layers(r, c, local / 2 + 1, false, &by, err);
    return rc != 0 ? rc : read_thetas(r, c, err);
}

static int write_modernbert(const lf_model_config *c, json_t *o, lf_err *err)
{
    const int64_t window = c->sliding_window > 0 ? c->sliding_window : 65;
    int rc = lf_hf_write_rope_kinds(c, o, err);
    rc = rc != 0 ? rc : lf_hf_write_layers(c, o, err);
    if (rc == 0 && json_object_set_new(o, "local_attention", json_integer(2 * (window - 1))))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    json_object_del(o, "sliding_window");
    return rc;
}

const struct lf_hf_family lf_hf_modernbert = {
    .name = "modernbert",
    .model_type = "modernbert",
    .architecture = "ModernBertForMaskedLM",
    .label_classes = LABELS("ModernBert"),
    .native = true,
    .prefix = "model.",
    .switches = modernbert_switches,
    .keys = modernbert_keys,
    .rows = modernbert_rows,
    .read = read_modernbert,
    .write = write_modernbert,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};
