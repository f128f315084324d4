/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-rm.
 */
#include "stages/rm.h"

#define ID LF_OPT_IDENTITY

#define CONFIG struct rm

static const lf_opt opts[] = {
    LF_COMMON_OPTS,
    LF_TRAIN_DATA_ROWS,
    {.name = "init_from",
     .group = "model",
     .type = LF_OPT_PATH,
     .cls = ID,
     .flags = LF_OPT_REQUIRED | LF_OPT_INPUT,
     LF_OPT_CHECKPOINT,
     .field = LF_OPT_FIELD(CONFIG, c.init_from),
     .help = "checkpoint to begin with: a language model or an encoder, whose head gives way to a "
             "score or labels, or a model that this stage made"},
    {.name = "objective",
     .group = "objective",
     .type = LF_OPT_ENUM,
     .cls = ID,
     .def = "pairs",
     .choices = "pairs|labels|contrast",
     .field = LF_OPT_FIELD(CONFIG, objective_kind),
     .help =
         "pairs: a score that ranks answers. labels: classes, numbers or answers of texts, from "
         "shards of shape prompt whose rows have a label; see Labels. contrast: vectors of texts, "
         "of "
         "prompts that are a question and its answer; see Vectors"},
    {.name = "label_kind",
     .type = LF_OPT_ENUM,
     .cls = ID,
     .def = "one",
     .choices = "one|any|numbers|tokens|span",
     .field = LF_OPT_FIELD(CONFIG, label_kind),
     .help = "with objective = labels: a text is of one class, of any of them, has numbers "
             "(regression); each token has a class; the answer stands in the text"},
    {.name = "labels",
     .type = LF_OPT_COUNT,
     .cls = ID,
     .def = "0",
     .max = 1 << 20,
     .field = LF_OPT_FIELD(CONFIG, l.form.labels),
     .help = "with objective = labels: how many classes or numbers there are; unset: 2 of one and "
             "of span, 1 of numbers"},
    {.name = "label_column",
     .type = LF_OPT_STR,
     .cls = ID,
     .def = "label",
     .field = LF_OPT_FIELD(CONFIG, l.form.column),
     .help = "with objective = labels: the column of the rows that has the label"},
    {.name = "separator",
     .type = LF_OPT_INT,
     .cls = ID,
     .def = "-1",
     .min = -1,
     .max = INT32_MAX,
     .field = LF_OPT_FIELD(CONFIG, l.separator),
     .help =
         "with objective = labels, for pairs of texts: number of the token between them; what is "
         "behind it is of the second type, in models that have types (BERT). -1: none. With "
         "objective = contrast the token that ends each text; needed there"},
    {.name = "temperature",
     .type = LF_OPT_FLOAT,
     .cls = ID,
     .def = "0.05",
     .min = 1e-6,
     .max = 100,
     .field = LF_OPT_FIELD(CONFIG, v.temperature),
     .help = "with objective = contrast: cosines are divided by it"},
    {.name = "both_ways",
     .type = LF_OPT_BOOL,
     .cls = ID,
     .def = "no",
     .field = LF_OPT_FIELD(CONFIG, v.both),
     .help = "with objective = contrast: answers find their questions too; half of the loss"},
    {.name = "pooling",
     .type = LF_OPT_ENUM,
     .cls = ID,
     .def = "auto",
     .choices = "auto|first|mean|last",
     .field = LF_OPT_FIELD(CONFIG, pooling),
     .help =
         "with objective = contrast: the vector of a text is the last state of its first token, "
         "the mean of all, or that of the last; auto: mean of encoders, last of decoders"},
    {.name = "score_init",
     .type = LF_OPT_ENUM,
     .cls = ID,
     .def = "sqrt",
     .choices = "sqrt|inverse|init_std|zero",
     .field = LF_OPT_FIELD(CONFIG, score_init),
     .help = "standard deviation of a new head of width d: 1/sqrt(d+1), 1/(d+1), the model's "
             "init_std, 0"},
    {.name = "centre",
     .type = LF_OPT_FLOAT,
     .cls = ID,
     .def = "0",
     .max = 10,
     .field = LF_OPT_FIELD(CONFIG, t.centre),
     .help = "adds this times (chosen + rejected)^2 to the loss of a pair, which holds scores "
             "near 0; 0.01 is usual"},
    {.name = "margins",
     .type = LF_OPT_BOOL,
     .cls = ID,
     .def = "yes",
     .field = LF_OPT_FIELD(CONFIG, t.margins),
     .help = "chosen must win by the margin of the data, where it has them"},
    {.name = "require_eos",
     .type = LF_OPT_BOOL,
     .cls = LF_OPT_OPERATIONAL,
     .def = "yes",
     .field = LF_OPT_FIELD(CONFIG, t.require_eos),
     .help = "an answer that does not end with the data's EOS is an error"},
    {.name = "normalize",
     .type = LF_OPT_ENUM,
     .cls = ID,
     .def = "auto",
     .choices = "auto|no|train|valid",
     .field = LF_OPT_FIELD(CONFIG, t.normalize),
     .help = "split whose scores' mean and standard deviation are stored with the model; auto: "
             "valid where there is one"},

    LF_TRAIN_LENGTH_ROWS("length of the run; one data only; unset, as steps and tokens are: 1"),

    LF_TRAIN_OPTIMIZER_ROWS(NULL, "peak learning rate; unset: 1e-5, with lora_rank 1e-4",
                            LF_TRAIN_MIN_LR, "cosine", LF_TRAIN_STEPS, "0.95", "0"),
    LF_TRAIN_SCALE_ROWS,
    LF_TRAIN_ADAPTER_ROWS,
    LF_TRAIN_PARTS_ROWS,
    LF_TRAIN_DROPOUT_ROWS,
    LF_TRAIN_AVERAGE_ROWS,
    LF_TRAIN_STATE_ROWS,
    LF_TRAIN_COMPUTE_ROWS(LF_TRAIN_PRECISIONS),
    LF_TRAIN_TENSOR_ROW,
    LF_TRAIN_ZERO_ROW,
    LF_TRAIN_OPERATION_ROWS,
    LF_TRAIN_SAVING_ROWS("steps", "steps"),
    LF_TRAIN_COPIES_ROWS,
    LF_TRAIN_GPU_ROWS,
    LF_TRAIN_PROFILE_ROWS,
    LF_TRAIN_DEVICE_ROWS,
    LF_TRAIN_SAMPLE_EVERY("steps", "score pairs of the validation data"),
    LF_TRAIN_SAMPLE_COUNT("pairs"),
    LF_TRAIN_TOKENIZER_ROW,
    LF_TRAIN_BEST_ROWS(LF_TRAIN_BEST_BY("loss|accuracy|margin|f1|matthews|pearson|exact"),
                       "validations"),
};

static const char *const outputs[] = {"checkpoint", "adapter", "best", NULL};

const lf_opt_table lf_rm_opts = {
    .stage = "rm",
    .spec_version = 2,
    .summary = "train a reward model on pairs of answers, or labels of texts",
    .opts = opts,
    .n_opts = sizeof(opts) / sizeof(opts[0]),
    .outputs = outputs,
    .carry = lf_train_carry,
    .finishes = true,
};
