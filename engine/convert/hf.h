/* SPDX-License-Identifier: Apache-2.0
 *
 * Families of Hugging Face models as data: how keys of config.json map to those of [model]
 * (engine/model/config.h), and how their tensors map to ours (map.h). Both tables serve both
 * directions.
 *
 * config.json is read strictly. A key that no row and no hook of the family reads, and that is not
 * on the list of keys without effect on numbers, is an error that names it, because ignoring a
 * switch makes another model. An export writes what the rows say, reads the text back and compares
 * it with the model. So a model that the family cannot express is refused, with the name of the
 * key.
 *
 * A model with output = score is a sequence classifier: "architectures" ends in
 * ForSequenceClassification, one label.
 * With output = labels it ends in that, ForTokenClassification or ForQuestionAnswering; encoders
 * have regression of one label as such a model too.
 *
 * A family is one entry of families_*.c:
 *
 *     {.name = "gpt2", .model_type = "gpt2", .architecture = "GPT2LMHeadModel", .prefix =
 *     "transformer.",
 *      .switches = {"norm=layer", ...}, .keys = gpt2_keys, .rows = gpt2_rows}
 *
 * A model that sees pictures (engine/model/composed.h) is three descriptions in one config.json:
 * its decoder is that of another family (text_config), its encoder that of a tower (vision_config),
 * and keys, rows, read and write of its own entry are of the rest: the projector, and where
 * pictures enter. struct lf_hf_sight says which.
 */
#ifndef LF_CONVERT_HF_H
#define LF_CONVERT_HF_H

#include <jansson.h>

#include "engine/convert/map.h"

enum lf_hf_kind {
    LF_HF_NUMBER = 1, /* a count or a real: the text of our key */
    LF_HF_BOOL,       /* yes or no */
    LF_HF_NOT,        /* the opposite of our key */
    LF_HF_ACT,        /* the name of an activation */
    /* must be `def`: unsupported variants have another value */
    LF_HF_SAME,
    /* must be `def` where it stands, and is not written: published files have the key, and the
     * class does not read it */
    LF_HF_UNREAD,
    LF_HF_INERT /* changes no number; def is written, NULL: nothing */
};

struct lf_hf_key {
    /* name in config.json; several names of one key are separated by '|', and the first is
     * written */
    const char *name;
    enum lf_hf_kind kind;
    /* our keys, separated by blanks, which all get the value; SAME, UNREAD, INERT: NULL */
    const char *ours;
    /* JSON text: the default in the class of transformers; NULL: the key is required. null, as def
     * or in the file, means our own default (no window, as many key heads as query heads) */
    const char *def;
};

/* config.json while it is read. Every key that is read is removed from `left`. */
typedef struct lf_hf_reader {
    json_t *o;        /* the object; borrowed */
    const char *path; /* for messages */
    json_t *left;     /* owned object of the keys that nothing has read yet */
} lf_hf_reader;

/* Is it a key of any config.json, which changes no number of a model? */
bool lf_hf_is_inert(const char *key);
/* Reads a key. NULL when absent or null. */
json_t *lf_hf_take(lf_hf_reader *r, const char *key);
/* Set one of our keys from text or a number; messages name their key. 0 is refused for keys where
 * our 0 means none or a derived value (windows, caps, widths), because in config.json 0 is a
 * size. */
int lf_hf_set(lf_hf_reader *r, lf_model_config *c, const char *theirs, const char *ours,
              const char *value, lf_err *err);
int lf_hf_set_list(lf_hf_reader *r, lf_model_config *c, const char *theirs, const char *ours,
                   json_t *list, lf_err *err); /* of numbers */
int lf_hf_set_number(lf_hf_reader *r, lf_model_config *c, const char *theirs, const char *ours,
                     double value, lf_err *err);
/* These read a value; when it is absent or null, *out keeps its value. */
int lf_hf_get_f64(lf_hf_reader *r, const char *key, double *out, lf_err *err);
int lf_hf_get_i64(lf_hf_reader *r, const char *key, int64_t *out, lf_err *err);
int lf_hf_get_bool(lf_hf_reader *r, const char *key, bool *out, lf_err *err);

/* How names of rows may begin in a file; the first that a tensor of the file begins with counts,
 * and without one the last. */
#define LF_HF_FORMS 5
struct lf_hf_name {
    const char *rows, *file[LF_HF_FORMS]; /* ended by NULL */
};

/* An encoder of pictures, as vision_config describes it. */
struct lf_hf_tower {
    const char *model_type; /* of vision_config; several words, the first is written */
    /* Returns vision.family for a vision_config. */
    const char *(*family)(json_t *config);
    const char *families; /* what it may return; the tower of an export is found by it */
    const struct lf_hf_key *keys;
    const struct lf_map_row *rows;
    struct lf_hf_name names;
    int (*read)(lf_hf_reader *r, lf_model_config *c, lf_err *err);
    int (*write)(const lf_model_config *c, json_t *o, lf_err *err);
};

/* An encoder that is a model of its own: all of config.json is what a tower reads, or one object of
 * it. */
struct lf_hf_lone {
    const struct lf_hf_tower *tower;
    const char *nested; /* key of that object, beside which stands a text tower; NULL: the whole */
    const char *ignore; /* keys of the object that say nothing of the encoder */
    const char *class;  /* architectures[0] of this form; NULL: any */
    /* the decoder of a masked autoencoder (mae.h) or heads for classes (classes.h) belong to it */
    enum lf_model_beside beside;
    int reads;                      /* enum lf_class_read of such heads */
    const struct lf_hf_name *names; /* ended by {0} */
    const char *const *kept;        /* see lf_map_form */
};

struct lf_hf_family;
struct lf_hf_sight {
    const struct lf_hf_family *text;
    const char *text_type; /* model_type of text_config; several words, the first is written */
    const char *text_key;  /* what text_config is called; NULL: so */
    bool first;            /* the decoder of files whose text_config has no model_type */
    /* The keys of text_config may stand in config.json itself. */
    bool flat;
    /* text_config_dict and vision_config_dict, where they are objects, stand in place of
     * text_config and vision_config: the class lets them win, with its defaults for what they lack
     * (files of transformers 4, such as CLIP ViT-L/14). */
    bool dicts;
    /* JSON: what the class of the decoder takes where text_config lacks a key, in published files;
     * NULL: nothing */
    const char *text_defaults;
    const char *text_needs;  /* keys of text_config that no default is right for */
    const char *text_ignore; /* keys of text_config that nothing reads */
    /* JSON: keys of text_config that must be so where they stand; NULL: none. Those of text_unread
     * are not written: published files have them, and no class reads them */
    const char *text_must, *text_unread;
    /* JSON: the same of vision_config, which the keys of the tower do not know; NULL: none */
    const char *vision_must;
    const struct lf_hf_name *tower_name; /* of its tensors; NULL: that of the tower */
    /* the tensors of the decoder where the experts of a file are one tensor (hf_sight.c): with
     * matrices that are turned, as such a family is published, and that are not. turned_rows NULL:
     * plain_rows are as published. plain_rows NULL: there are no experts, or none in one tensor */
    const struct lf_map_row *turned_rows, *plain_rows;
    const char *tied; /* JSON: tie_word_embeddings where no one says it */
    bool tied_either; /* text_config may say it against config.json */
    bool tied_inner;  /* text_config says it, and config.json nothing else */
    /* The key of the token that a picture's rows stand at is in no file: it is that of this word of
     * the tokenizer. NULL: it is in config.json */
    const char *token_key, *token_word;
    enum { LF_HF_ROPE_ONE = 0, LF_HF_ROPE_SECTIONS, LF_HF_ROPE_INTERLEAVED } rope;
    const struct lf_hf_tower *const *towers; /* ended by NULL; the first is the default */
    const struct lf_hf_name *names;          /* of the decoder and the projector; ended by {0} */
};

/* What a name of a file has that the program of transformers calls otherwise: adapters have the
 * names of the program. */
struct lf_hf_module {
    const char *file, *program;
};

struct lf_hf_family {
    const char *name; /* the `family` of an imported model */
    /* further families of ours, separated by blanks, that are exported in this form; NULL: none */
    const char *also;
    /* model_type of config.json; several are separated by blanks, and the first is written */
    const char *model_type;
    /* a key of config.json that only this family of its model_type has; NULL: none */
    const char *needs;
    const char *lacks;        /* a key that must be absent; NULL: none */
    const char *architecture; /* written to "architectures" */
    /* "architectures" of a model with output = score: a sequence classifier of one label, whose
     * head is score.weight; NULL: transformers has none */
    const char *classifier;
    /* "architectures" of models with output = labels, by enum lf_model_labels_of; NULL: there is no
     * such class, but texts go to the classifier */
    const char *label_classes[3];
    /* "architectures" of one with nsp_head (BERT); NULL: there is none */
    const char *pairs;
    /* "architectures" of a model that tells of each token by one number, behind label_head = gelu,
     * whether it was replaced (ELECTRA); NULL: there is none */
    const char *discriminator;
    /* transformers has a class for it, which has defaults of its own for tokens that no one names;
     * one with a classifier it has anyway */
    bool native;
    /* prefix of tensor names, which files without a head may lack; NULL: none */
    const char *prefix;
    /* "key=value" of [model] that all models of the family share; ended by NULL */
    const char *const *switches;
    const struct lf_hf_key *keys;       /* ended by name == NULL */
    const struct lf_hf_module *modules; /* ended by {0}; NULL: names are the same */
    const struct lf_map_row *rows;
    /* the same of a release whose experts are blocks of 4-bit floats; NULL: there is none */
    const struct lf_map_row *packed_rows;
    const struct lf_hf_sight *sight; /* NULL: the model sees nothing, or it is lone */
    const struct lf_hf_lone *lone;   /* NULL: the model has a text decoder */
    /* why no model of the family is imported, though its tables are there; NULL: it is */
    const char *refused;
    /* Heads of mtp_layers: they are layers behind the last one in the file; what comes first of
     * what they read (enum lf_model_mtp_join), their MLP and norm (enums lf_model_mtp_mlp,
     * lf_model_mtp_norm). A family without rows of {M} or {H} has none. */
    bool heads_are_layers;
    int mtp_join, mtp_mlp, mtp_norm;
    /* config.json says nothing of the one head that a file may have */
    bool unsaid_head;
    /* config.json does not say whether the head is the embedding: it is not where the file has
     * lm_head.weight, and that differs from shared.weight */
    bool tie_by_tensors;
    /* unknown keys are ignored, as the file has training arguments and no description of a model */
    bool loose;
    /* Writes the name that rows use for a tensor of the file to out; NULL: the same name. */
    void (*canon)(char *out, size_t cap, const char *name);
    /* For what rows cannot express; may be NULL. read runs after the rows and before the check;
     * write adds to o. LF_EINVAL: the class of the family would read a part of c as something
     * else. */
    int (*read)(lf_hf_reader *r, lf_model_config *c, lf_err *err);
    int (*write)(const lf_model_config *c, json_t *o, lf_err *err);
    /* Tolerances of a conversion against the reference in f64, relative to the largest logit and to
     * the rms of all.
     */
    double tol_max, tol_rms;
};

/* For f32 against f64. Rounding alone gives about 1e-6 of either; a wrong switch gives 1e-2 and
 * more. */
#define LF_HF_TOL_MAX 1e-4
#define LF_HF_TOL_RMS 1e-5

extern const struct lf_hf_family *const lf_hf_families[]; /* ended by NULL */

/* Returns the family of a config.json. NULL with err set: LF_ENOTSUP, model_type is not read;
 * the message says what it needs (later.c), or, of one that nothing is known of, lists the known
 * ones. */
const struct lf_hf_family *lf_hf_family_of(json_t *config, const char *path, lf_err *err);

/* later.c: what transformers has and lf-convert does not read; ended by types == NULL */
struct lf_hf_later {
    const char *types; /* model_types, separated by blanks */
    const char *needs; /* the operation, structure or table that is missing; follows "it needs" */
};
extern const struct lf_hf_later lf_hf_laters[];
/* Returns what a model_type needs that is missing. NULL: nothing is known of it. */
const char *lf_hf_later_needs(const char *type);

/* Returns the class of transformers that has the head of this model; NULL: the family has none. */
const char *lf_hf_class_of(const struct lf_hf_family *f, const lf_model_config *c);

/* Returns the family that an export writes: by `name`, or, when it is NULL, by c->family. */
const struct lf_hf_family *lf_hf_family_for(const lf_model_config *c, const char *name,
                                            lf_err *err);

/* Converts config.json to a finished description of a model. */
int lf_hf_config_read(lf_model_config *out, const struct lf_hf_family *f, json_t *config,
                      const char *path, lf_err *err);
/* Converts back; the caller owns the object. dtype is the value of "dtype" ("bfloat16"). LF_EINVAL:
 * the family cannot express a key of [model]; the message names it. */
json_t *lf_hf_config_write(const struct lf_hf_family *f, const lf_model_config *c,
                           const char *dtype, lf_err *err);

/* The tables of a family for a model, and how names begin: as in the file st; or as lf_hf_form_save
 * kept it in `saved`; or, where both are NULL, as published. */
int lf_hf_form(struct lf_map_form *out, const struct lf_hf_family *f, const lf_model_config *c,
               const lf_st *st, json_t *saved, lf_err *err);
/* The same with the names that modules have in the program of transformers, by which an adapter
 * calls them: those that tensors of st begin with behind `before`; of others (st may be NULL) those
 * of transformers 5. */
int lf_hf_form_program(struct lf_map_form *out, const struct lf_hf_family *f,
                       const lf_model_config *c, const lf_st *st, const char *before, lf_err *err);
/* Not 0: out of memory. */
int lf_hf_form_save(const struct lf_map_form *form, const struct lf_hf_family *f, json_t *saved);

/* What config.json calls the description of the decoder. */
const char *lf_hf_text_key(const struct lf_hf_family *f);
/* Must token_key be put into a config.json before it is read? */
bool lf_hf_lacks_token(const struct lf_hf_family *f, json_t *config);
/* Puts keys of a model that sees into `o`, newly written, that change no number of it and that only
 * the old config.json `was` knows: how pictures are cut, what films are. */
int lf_hf_keep_sight(const struct lf_hf_family *f, const lf_model_config *c, json_t *o, json_t *was,
                     lf_err *err);

/* ---- what families share (hf_parts.c) ---- */

/* How a class of transformers reads the keys of rotary positions. */
struct lf_hf_rope {
    double theta; /* default of rope_theta */
    bool part;    /* the class reads partial_rotary_factor; others turn whole heads */
    /* original_max_position_embeddings where the file has it not beside max_position_embeddings; 0:
     * that of rope_scaling, or max_position_embeddings; -1: always these two */
    int64_t original;
    const char *longrope; /* another name of this type; NULL: none */
    json_t *params;       /* replaces rope_parameters, borrowed; NULL: those of the file */
};
/* rope_theta, rope_scaling or rope_parameters, partial_rotary_factor. */
int lf_hf_read_rope_as(lf_hf_reader *r, lf_model_config *c, const struct lf_hf_rope *as,
                       lf_err *err);
/* The same for classes that turn whole heads. */
int lf_hf_read_rope(lf_hf_reader *r, lf_model_config *c, double theta, lf_err *err);
/* sliding_attention of a rope_parameters that has an object per kind of layer: the base of layers
 * with a window, of which nothing else may differ. own NULL or null: *theta stays. */
int lf_hf_read_local_rope(const lf_hf_reader *r, json_t *own, double *theta, lf_err *err);
int lf_hf_write_rope(const lf_model_config *c, json_t *o, lf_err *err);
/* The same as a rope_parameters that has an object per kind of layer. */
int lf_hf_write_rope_kinds(const lf_model_config *c, json_t *o, lf_err *err);
/* The same with partial_rotary_factor, for families whose class turns a part of a head. Other
 * families cannot express rope_fraction. */
int lf_hf_write_partial_rope(const lf_model_config *c, json_t *o, lf_err *err);

/* ---- quantised weights (quant.c) ---- */

/* quantization_config: 8-bit floats with a scale for each block of rows x cols or for each weight,
 * or 4-bit floats in blocks of 32. */
struct lf_hf_quant {
    int64_t rows, cols; /* 0: weights are not of 8 bits; LF_ST_WHOLE: each has one scale */
    bool mxfp4;
};
/* Reads it from config.json. LF_ENOTSUP: another method or form; the message names it. */
int lf_hf_quant_read(struct lf_hf_quant *out, json_t *config, const char *path, lf_err *err);
#define LF_HF_QUANT "quantization_config"
/* The same of 4-bit floats: of their blocks, and of the exponents of these. */
#define LF_HF_MX_BLOCKS "_blocks"
#define LF_HF_MX_SCALES "_scales"
#define LF_HF_SCALE_AFTER                                                                          \
    "_scale_inv" /* what the name of a matrix is followed by in that of its scales */

/* ---- windows by layer (hf_layers.c) ---- */

/* Reads sliding_window: def when absent, -1 when null. */
int lf_hf_get_window(lf_hf_reader *r, int64_t def, int64_t *out, lf_err *err);
/* Reads every how many layers something is; *out keeps its value when the key is absent or null.
 * LF_EFORMAT: below 1. */
int lf_hf_get_period(lf_hf_reader *r, const char *key, int64_t *out, lf_err *err);
/* The layers that slide where there is no layer_types: those from `from` on and below `below` (0:
 * all), except each period-th (0: no exception). */
struct lf_hf_slide {
    int64_t from, below, period;
    enum { LF_HF_LAST = 0, LF_HF_FIRST, LF_HF_SECOND } exception; /* which of each period it is */
    bool only; /* the class does not read layer_types, which then must agree */
};
/* Sets the keys of [model] for windows, from layer_types or `by`. window -1: there is no window;
 * then, if `null`, no layer slides, and otherwise it is an error. */
int lf_hf_read_layers(lf_hf_reader *r, lf_model_config *c, int64_t window, bool null,
                      const struct lf_hf_slide *by, lf_err *err);
/* Writes layer_types of a model with windows. */
int lf_hf_write_layers(const lf_model_config *c, json_t *o, lf_err *err);
/* Returns n where the first n layers attend in full and the others have a window, else 0. */
int64_t lf_hf_full_from(const lf_model_config *c);
/* Returns n where every n-th layer attends in full and the others have a window, 0: none does. Of
 * several it is `first`, or else the smallest. */
int64_t lf_hf_full_period(const lf_model_config *c, int64_t first);
/* A mixer: its name in layer_types and its letter of layer_mixers. A list ends in {0}. */
struct lf_hf_mixer {
    const char *name;
    char letter;
};
/* layer_types -> layer_mixers. def: a pattern for files without the list. */
int lf_hf_read_mixers(lf_hf_reader *r, lf_model_config *c, const struct lf_hf_mixer *mixers,
                      const char *def, lf_err *err);
/* The same where every n-th layer is mixers[1] without a list, and all others are mixers[0]; key
 * says n, and `n` is what is meant where it is absent. */
int lf_hf_read_interval(lf_hf_reader *r, lf_model_config *c, const struct lf_hf_mixer *mixers,
                        const char *key, int64_t n, lf_err *err);
/* LF_EINVAL: a layer is none of them. */
int lf_hf_write_mixers(const lf_model_config *c, json_t *o, const struct lf_hf_mixer *mixers,
                       lf_err *err);
/* Sets a pattern of [model] from its letters, one for each layer. theirs: the key that says it. */
int lf_hf_set_letters(lf_hf_reader *r, lf_model_config *c, const char *theirs, const char *ours,
                      const char *letters, lf_err *err);
/* decoder_sparse_step: every how many layers has experts; mlp_only_layers: these have a plain MLP
 * too, or the first `first` where it is absent. */
int lf_hf_read_mlp_layers(lf_hf_reader *r, lf_model_config *c, int64_t first, lf_err *err);
int lf_hf_write_mlp_layers(const lf_model_config *c, json_t *o, lf_err *err);
/* How many first layers have a plain MLP: key says it, def where it is absent. */
int lf_hf_read_dense_layers(lf_hf_reader *r, lf_model_config *c, const char *key, int64_t def,
                            lf_err *err);
int lf_hf_write_dense_layers(const lf_model_config *c, json_t *o, const char *key, lf_err *err);
/* mlp_layer_types: "dense" or "sparse" for each layer; the first `dense` are dense where it is
 * absent. */
int lf_hf_read_mlp_types(lf_hf_reader *r, lf_model_config *c, int64_t dense, lf_err *err);
int lf_hf_write_mlp_types(const lf_model_config *c, json_t *o, lf_err *err);

/* "gelu_new" -> "gelu_tanh"; NULL: unknown. lf_hf_act_to returns the name that is written. */
const char *lf_hf_act_from(const char *theirs);
const char *lf_hf_act_to(const char *ours);

#endif
