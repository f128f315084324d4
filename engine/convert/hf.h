/* SPDX-License-Identifier: Apache-2.0
 *
 * Families of Hugging Face models as data: how config.json says what [model] says
 * (engine/model/config.h), and how their tensors map to ours (map.h). Both tables serve both
 * directions.
 *
 * config.json is read strictly: a key that no row and no hook of the family takes, and that is not
 * on the list of keys that change no number, is an error that names it, because a switch nobody
 * reads makes another model. Written is what the rows say; the text is then read back and compared
 * with the model, so a model that the family cannot express is refused by the name of the key.
 *
 * A model with output = score is a sequence classifier: "architectures" ends in
 * ForSequenceClassification, one label.
 *
 * A family is one entry of families_*.c:
 *
 *     {.name = "gpt2", .model_type = "gpt2", .architecture = "GPT2LMHeadModel", .prefix =
 *     "transformer.",
 *      .switches = {"norm=layer", ...}, .keys = gpt2_keys, .rows = gpt2_rows}
 */
#ifndef LF_CONVERT_HF_H
#define LF_CONVERT_HF_H

#include <jansson.h>

#include "engine/convert/map.h"

enum lf_hf_kind {
    LF_HF_NUMBER = 1, /* a count or a real: the text of our key */
    LF_HF_BOOL,       /* yes or no */
    LF_HF_NOT,        /* the opposite of our key */
    LF_HF_ACT,        /* name of an activation */
    /* must be `def`, whatever it means: variants that are not supported have another value */
    LF_HF_SAME,
    /* must be `def` where it stands: published files have it, the class does not read it, and
     * another value would mean another model to somebody; not written */
    LF_HF_UNREAD,
    LF_HF_INERT /* changes no number; def: what is written, NULL: nothing */
};

struct lf_hf_key {
    /* in config.json; several names of one key have '|' between them, the first is written */
    const char *name;
    enum lf_hf_kind kind;
    const char
        *ours; /* our keys, separated by blanks: all get the value. SAME, UNREAD, INERT: NULL */
    /* JSON text: the value meant by absence, as the class of transformers has it; NULL: must be
     * there. null, as def or in the file, means our own default (no window, as many key heads as
     * query heads) */
    const char *def;
};

/* config.json while it is read: every key that is looked at is ticked off. */
typedef struct lf_hf_reader {
    json_t *o;        /* the object; borrowed */
    const char *path; /* for messages */
    json_t *left;     /* keys not looked at yet: an object of its own */
} lf_hf_reader;

/* Look at a key. NULL when absent or null. */
json_t *lf_hf_take(lf_hf_reader *r, const char *key);
/* Set one of our keys from text or a number; the message names theirs. 0 is refused for keys of
 * which 0 says that there is none (windows, caps, widths that follow): to a file's reader it is a
 * size. */
int lf_hf_set(lf_hf_reader *r, lf_model_config *c, const char *theirs, const char *ours,
              const char *value, lf_err *err);
int lf_hf_set_number(lf_hf_reader *r, lf_model_config *c, const char *theirs, const char *ours,
                     double value, lf_err *err);
/* A number; absent or null: *out keeps its value. */
int lf_hf_get_f64(lf_hf_reader *r, const char *key, double *out, lf_err *err);
int lf_hf_get_i64(lf_hf_reader *r, const char *key, int64_t *out, lf_err *err);
int lf_hf_get_bool(lf_hf_reader *r, const char *key, bool *out, lf_err *err);

struct lf_hf_family {
    const char *name; /* what an imported model's `family` says */
    /* families of ours, separated by blanks, that are exported in this form too; NULL: none */
    const char *also;
    const char *model_type; /* of config.json; several separated by blanks, the first is written */
    /* a key of config.json that tells this one from others of its model_type; NULL: none */
    const char *needs;
    const char *lacks;        /* a key that must not be there; NULL: none */
    const char *architecture; /* written to "architectures" */
    /* the same of a model with output = score: a sequence classifier of one label, whose head is
     * score.weight; NULL: transformers has none */
    const char *classifier;
    const char *prefix; /* of tensor names; files without a head may lack it; NULL: none */
    /* "key=value" of [model], ended by NULL: what all models of the family share */
    const char *const *switches;
    const struct lf_hf_key *keys; /* ended by name == NULL */
    const struct lf_map_row *rows;
    /* keys that are not known are passed over: training arguments, not a description of the
     * model */
    bool loose;
    /* The name that rows use for a tensor of the file, into out; NULL: its own. */
    void (*canon)(char *out, size_t cap, const char *name);
    /* What rows cannot say; NULL: nothing. read runs after the rows, before the check; write adds
     * to o. LF_EINVAL says what of c the class of the family would read as something else. */
    int (*read)(lf_hf_reader *r, lf_model_config *c, lf_err *err);
    int (*write)(const lf_model_config *c, json_t *o, lf_err *err);
    /* What a conversion may differ by from the reference in f64, relative to the largest logit and
     * to the rms of all.
     */
    double tol_max, tol_rms;
};

/* f32 against f64: rounding alone gives about 1e-6 of either; a switch that is wrong gives 1e-2 and
 * more. */
#define LF_HF_TOL_MAX 1e-4
#define LF_HF_TOL_RMS 1e-5

extern const struct lf_hf_family *const lf_hf_families[]; /* ended by NULL */

/* The family of a config.json. NULL with err: unknown model_type (the known ones are listed). */
const struct lf_hf_family *lf_hf_family_of(json_t *config, const char *path, lf_err *err);
/* The family that an export writes: by `name`, or (NULL) by c->family. */
const struct lf_hf_family *lf_hf_family_for(const lf_model_config *c, const char *name,
                                            lf_err *err);

/* config.json to a finished model description. */
int lf_hf_config_read(lf_model_config *out, const struct lf_hf_family *f, json_t *config,
                      const char *path, lf_err *err);
/* And back: returns owned. dtype: what "dtype" says ("bfloat16"). LF_EINVAL names the key of
 * [model] that the family cannot express. */
json_t *lf_hf_config_write(const struct lf_hf_family *f, const lf_model_config *c,
                           const char *dtype, lf_err *err);

/* ---- what families share (hf_parts.c) ---- */

/* What a class of transformers makes of the keys of rotary positions. */
struct lf_hf_rope {
    double theta;         /* rope_theta where the file has none */
    bool part;            /* reads partial_rotary_factor; others turn whole heads */
    int64_t original;     /* original_max_position_embeddings, where it does not stand beside
                           * max_position_embeddings; 0: rope_scaling has it, or the latter; -1:
                           * these always, what stands outside is not read */
    const char *longrope; /* another name of this type; NULL: none */
    json_t *params;       /* in place of rope_parameters, borrowed; NULL: those of the file */
};
/* rope_theta, rope_scaling or rope_parameters, partial_rotary_factor. */
int lf_hf_read_rope_as(lf_hf_reader *r, lf_model_config *c, const struct lf_hf_rope *as,
                       lf_err *err);
/* The same for classes that turn whole heads. */
int lf_hf_read_rope(lf_hf_reader *r, lf_model_config *c, double theta, lf_err *err);
int lf_hf_write_rope(const lf_model_config *c, json_t *o, lf_err *err);
/* The same with partial_rotary_factor. Only of families whose class turns a part of a head: the
 * others have no place for rope_fraction. */
int lf_hf_write_partial_rope(const lf_model_config *c, json_t *o, lf_err *err);

/* ---- windows by layer (hf_layers.c) ---- */

/* sliding_window: def when it is absent, -1 when it is null. */
int lf_hf_get_window(lf_hf_reader *r, int64_t def, int64_t *out, lf_err *err);
/* Which layers slide where no layer_types says it: those from `from` on and below `below` (0: all),
 * but for each period-th (0: none left out). */
struct lf_hf_slide {
    int64_t from, below, period;
    bool only; /* the class does not read layer_types: it must say the same */
};
/* Sets what says so in [model], from layer_types or `by`. window -1: there is none; then `by`
 * slides nowhere if `null` says that the class takes it so, else it is an error. */
int lf_hf_read_layers(lf_hf_reader *r, lf_model_config *c, int64_t window, bool null,
                      const struct lf_hf_slide *by, lf_err *err);
/* layer_types of a model with windows. */
int lf_hf_write_layers(const lf_model_config *c, json_t *o, lf_err *err);
/* mlp_only_layers: layers that have a plain MLP in place of experts. */
int lf_hf_read_mlp_layers(lf_hf_reader *r, lf_model_config *c, lf_err *err);
int lf_hf_write_mlp_layers(const lf_model_config *c, json_t *o, lf_err *err);

/* "gelu_new" -> "gelu_tanh"; NULL: unknown. And the name that is written. */
const char *lf_hf_act_from(const char *theirs);
const char *lf_hf_act_to(const char *ours);

#endif
