/* SPDX-License-Identifier: Apache-2.0
 *
 * models: the model descriptions that are installed, with their sizes, and which of them can be
 * trained in so much memory. What a model takes is asked from lf-pretrain --plan, as `plan` does.
 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/cmd/cmds.h"
#include "flow/cmd/cost.h"
#include "flow/plan/presets.h"
#include "flow/record/record.h"
#include "flow/run/freeze.h"
#include "flow/run/par.h"

static const lf_opt models_rows[] = {
    LF_CMD_COMMON,
    LF_CMD_COLUMNS,
    {.name = "fits",
     .type = LF_OPT_BYTES,
     LF_OPT_COMMAND,
     .min = 1,
     .max = 1e18,
     .help = "only those that one rank can train in so much memory, such as 24G"},
    {.name = "device",
     .type = LF_OPT_ENUM,
     LF_OPT_COMMAND,
     .def = "cpu",
     .choices = "cpu|cuda",
     .help = "whose memory"},
    {.name = "precision",
     .type = LF_OPT_ENUM,
     LF_OPT_COMMAND,
     .def = "bf16",
     .choices = "f32|bf16|fp16|fp8",
     .help = "as in pretrain"},
    {.name = "moments",
     .type = LF_OPT_ENUM,
     LF_OPT_COMMAND,
     .def = "f32",
     .choices = "f32|bf16",
     .help = "as in pretrain"},
    {.name = "masters",
     .type = LF_OPT_ENUM,
     LF_OPT_COMMAND,
     .def = "f32",
     .choices = "f32|bf16",
     .help = "as in pretrain"},
    {.name = "recompute",
     .type = LF_OPT_ENUM,
     LF_OPT_COMMAND,
     .def = "none",
     .choices = "none|selective|full",
     .help = "as in pretrain"},
    {.name = "seq_length",
     .type = LF_OPT_COUNT,
     LF_OPT_COMMAND,
     .def = "1024",
     .min = 2,
     .max = 1 << 24,
     .help = "as in pretrain; a model of less context takes its own"},
    {.name = "micro_batch",
     .type = LF_OPT_COUNT,
     LF_OPT_COMMAND,
     .def = "1",
     .min = 1,
     .max = 1e6,
     .help = "as in pretrain"},
};
LF_CMD_TABLE(models, "list the models that preset = NAME takes, and which fit into a memory",
             models_rows);

static const lf_column cols[] = {
    {"name", "MODEL", false, false},     {"family", "FAMILY", false, false},
    {"size", "PARAMETERS", true, false}, {"layers", "LAYERS", true, false},
    {"hidden", "HIDDEN", true, false},   {"context", "CONTEXT", true, false},
    {"needs", "MEMORY", true, false},    {"vocab", "VOCAB", true, true},
    {"parameters", "COUNT", true, true}, {"memory_bytes", "BYTES", true, true},
    {"error", "WHY NOT", false, true},
};
static const lf_format formats[] = {{"names", "name"}, {NULL, NULL}};
static const lf_table table = {cols, sizeof cols / sizeof cols[0], formats};

struct model {
    char *name, *family, *layers, *hidden, *context, *vocab, *error;
    lf_int parameters, memory_bytes;
    char size[32], needs[32];
    lf_pairs keys; /* not shown in the list */
    lf_cost cost;
};
static const struct lf_fields model_fields =
    LF_FIELDS_SHOWN(struct model,
                    LF_MEMBERS(struct model, name, family, layers, hidden, context, vocab,
                               parameters, memory_bytes, error),
                    {LF_FIELD_BUF(struct model, size, "size"), .opt = true},
                    {LF_FIELD_BUF(struct model, needs, "needs"), .opt = true});
typedef LF_ROWS(struct model) model_list;

/* One model with all of its settings. */
static const struct lf_fields whole_fields =
    LF_FIELDS_SHOWN(struct model, LF_MEMBERS(struct model, name, parameters, memory_bytes),
                    {LF_FIELD_AS(struct model, keys, "model")});

static void model_fini(struct model *m)
{
    lf_pairs_fini(&m->keys);
    lf_cost_fini(&m->cost);
    lf_fields_fini(m, &model_fields);
}

/* ---- asking lf-pretrain ---- */

struct asking {
    const lf_cmd *c;
    char *exe;       /* NULL: there is none */
    lf_cost_dir dir; /* for the settings */
    struct model *models;
};

/* Positions that the model knows bound the sequence; other models take any. */
static int64_t seq_length(const lf_cmd *c, const struct model *m)
{
    int64_t positions = 0, n = lf_optset_int(c->opts, "seq_length");
    const char *text = lf_pairs_get(&m->keys, "max_positions");
    if (text != NULL && lf_parse_count(&positions, text, NULL) == 0 && positions < n)
        n = positions;
    return n;
}

/* Patches of one picture. 0: this model sees none, or does not say how many. */
static int64_t patches(const struct model *m)
{
    int64_t grid = 0, n = 0;
    const char *text = lf_pairs_get(&m->keys, "vision.grid");
    if (text != NULL && lf_parse_count(&grid, text, NULL) == 0)
        return grid * grid;
    text = lf_pairs_get(&m->keys, "vision.positions");
    return text != NULL && lf_parse_count(&n, text, NULL) == 0 ? n : 0;
}

/* What a model can learn by, in the order in which lf-pretrain is asked: it takes one of these for
 * each kind of model and refuses the others. Numbers of tokens stand for some; sizes do not follow
 * them. */
static const struct way {
    const char *settings;
    bool sources; /* an encoder reads as many tokens as the decoder */
    bool packed;  /* sequences of seq_length tokens; the others have pictures */
} ways[] = {
    {"", false, true},
    {"objective = mlm\nmask_token = 103\n", false, true},
    {"objective = span\nsentinel_token = 199\n", true, true},
    {"objective = denoise\nmask_token = 103\n", true, true},
    {"objective = classes\n", false, false},
    {"objective = clip\n", false, false},
    {"objective = siglip\n", false, false},
};

static int settings_of(lf_buf *b, const lf_cmd *c, const struct model *m, const struct way *way,
                       lf_err *err)
{
    static const char *const words[] = {"precision", "moments", "masters", "recompute"};
    const long long length = seq_length(c, m), batch = lf_optset_int(c->opts, "micro_batch");
    lf_buf_addf(b, "[stage]\nsteps = 1\ndata = %s\nmicro_batch = %lld\ndevice = %s\n%s",
                lf_cost_not_made(), batch, lf_optset_str(c->opts, "device"), way->settings);
    if (way->packed)
        lf_buf_addf(b, "seq_length = %lld\n", length);
    else
        lf_buf_addf(b, "max_patches = %lld\n", batch * (long long)patches(m));
    if (way->sources)
        lf_buf_addf(b, "source_length = %lld\n", length);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        lf_buf_addf(b, "%s = %s\n", words[i], lf_optset_str(c->opts, words[i]));
    lf_buf_adds(b, "[model]\n");
    for (size_t i = 0; i < m->keys.n; i++)
        lf_buf_addf(b, "%s = %s\n", m->keys.v[i].name, m->keys.v[i].value);
    return lf_buf_check(b, err);
}

/* What ask_way returns beside 0 and errors. Who did not answer in time is not asked again. */
enum { REFUSED = 1, NO_ANSWER = 2 };

/* refused: lf-pretrain's last word, where it does not plan this model in this way. */
static int ask_way(const struct asking *a, size_t i, const struct way *way, lf_err *refused,
                   lf_err *err)
{
    struct model *m = &a->models[i];
    char path[PATH_MAX];
    lf_buf b;
    lf_buf_init(&b);
    int rc = lf_path_set(path, err, "%s/%zu.ini", a->dir.path, i);
    if (rc == 0)
        rc = settings_of(&b, a->c, m, way, err);
    if (rc == 0)
        rc = lf_io_write_file(path, b.data, b.len, 0600, err);
    lf_buf_fini(&b);
    if (rc < 0)
        return rc;
    const int planned = lf_cost_plan(&m->cost, a->exe, path, a->dir.path, refused);
    return planned == 0 ? 0 : planned == LF_EINVAL ? REFUSED : NO_ANSWER;
}

/* The answer, or in m->error why there is none: what was said of next tokens, which names the
 * objective of this model. */
static int ask_one(void *user, size_t i, lf_err *err)
{
    const struct asking *a = user;
    struct model *m = &a->models[i];
    lf_err first = LF_ERR_INIT;
    int rc = ask_way(a, i, &ways[0], &first, err);
    for (size_t w = 1; rc == REFUSED && w < sizeof ways / sizeof ways[0]; w++) {
        lf_err e = LF_ERR_INIT;
        if (ways[w].packed || patches(m) > 0)
            rc = ask_way(a, i, &ways[w], &e, err);
    }
    if (rc > 0)
        return lf_text_set(&m->error, first.text, "error", err);
    if (rc < 0)
        return rc;
    const struct lf_cost_bytes *bytes = &m->cost.bytes;
    bool gpu = strcmp(lf_optset_str(a->c->opts, "device"), "cuda") == 0;
    m->parameters = lf_int_of((int64_t)m->cost.parameters.v);
    m->memory_bytes = lf_int_of((int64_t)(gpu ? bytes->device.v : bytes->total.v));
    lf_fmt_count(m->size, sizeof m->size, m->cost.parameters.v);
    char *giga = strchr(m->size, 'G'); /* parameters are counted in billions */
    if (giga != NULL)
        *giga = 'B';
    lf_fmt_bytes(m->needs, sizeof m->needs, (double)m->memory_bytes.v);
    return 0;
}

static int ask_all(model_list *list, const lf_cmd *c, lf_err *err)
{
    struct asking a = {.c = c, .models = list->v};
    lf_err e = LF_ERR_INIT;
    int rc = lf_exe_find(&a.exe, "lf-pretrain", &e);
    if (rc < 0 && lf_optset_is_set(c->opts, "fits"))
        return lf_fail(err, rc, "--fits: %s", e.text);
    if (rc < 0) { /* the names are worth something, too */
        lf_say_err("loong-flow: sizes are not known: %s\n", e.text);
        return 0;
    }
    rc = lf_cost_dir_make(&a.dir, err);
    if (rc == 0)
        rc = lf_par_each(list->n, ask_one, &a, err);
    lf_cost_dir_remove(&a.dir);
    free(a.exe);
    return rc;
}

/* ---- the list ---- */

/* A model without texts has the sizes of its encoder of pictures: its layers in all, and the width
 * of its last stage where it has several. */
static int add_sizes(struct model *m, lf_err *err)
{
    char total[24];
    const char *family = lf_pairs_get(&m->keys, "family"),
               *stages = lf_pairs_get(&m->keys, "vision.stage_layers"),
               *widths = lf_pairs_get(&m->keys, "vision.stage_widths"),
               *layers = lf_pairs_get(&m->keys, "layers"),
               *hidden = lf_pairs_get(&m->keys, "hidden");
    if (family == NULL && layers == NULL) {
        family = lf_pairs_get(&m->keys, "vision.family");
        layers = lf_pairs_get(&m->keys, "vision.layers");
        hidden = lf_pairs_get(&m->keys, "vision.hidden");
        if (stages != NULL && widths != NULL) {
            long long sum = 0;
            for (const char *s = stages; s != NULL; s = strchr(s, ','))
                sum += strtoll(s += *s == ',', NULL, 10);
            snprintf(total, sizeof total, "%lld", sum);
            layers = total;
            hidden = strrchr(widths, ',') ? strrchr(widths, ',') + 1 : widths;
            hidden += strspn(hidden, " ");
        }
    }
    int rc = lf_text_set(&m->family, family, "family", err);
    if (rc == 0)
        rc = lf_text_set(&m->layers, layers, "layers", err);
    return rc == 0 ? lf_text_set(&m->hidden, hidden, "hidden", err) : rc;
}

static int add_model(model_list *list, const char *dir, const char *name, lf_err *err)
{
    struct model *m = lf_rows_add(list, sizeof *m, err);
    if (m == NULL)
        return LF_ENOMEM;
    int rc = lf_preset_load(&m->keys, dir, name, err);
    if (rc == 0)
        rc = lf_text_set(&m->name, name, "name", err);
    if (rc == 0)
        rc = add_sizes(m, err);
    if (rc == 0)
        rc = lf_text_set(&m->context, lf_pairs_get(&m->keys, "max_positions"), "context", err);
    return rc == 0 ? lf_text_set(&m->vocab, lf_pairs_get(&m->keys, "vocab"), "vocab", err) : rc;
}

static int by_parameters(const void *a, const void *b)
{
    const struct model *x = a, *y = b;
    if (x->parameters.v != y->parameters.v)
        return x->parameters.v < y->parameters.v ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Those that do not fit are taken out; what is not known does not fit. */
static void keep_fitting(model_list *list, const lf_cmd *c)
{
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        struct model *m = &list->v[i];
        if (m->memory_bytes.given && m->memory_bytes.v <= lf_optset_int(c->opts, "fits"))
            list->v[n++] = *m;
        else
            model_fini(m);
    }
    list->n = n;
}

/* A number without a unit is one of bytes, which may not be what was meant. */
static int tell_none(const lf_cmd *c)
{
    char most[32];
    lf_say("no model can be trained in %s; sizes have units, such as 24G\n",
           lf_fmt_bytes(most, sizeof most, (double)lf_optset_int(c->opts, "fits")));
    return 0;
}

static int show_list(const lf_cmd *c, model_list *list, lf_err *err)
{
    if (list->n > 1)
        qsort(list->v, list->n, sizeof *list->v, by_parameters);
    if (lf_optset_is_set(c->opts, "fits"))
        keep_fitting(list, c);
    if (list->n == 0 && !c->json && lf_optset_is_set(c->opts, "fits"))
        return tell_none(c);
    int rc = lf_cmd_rows(c, list, &model_fields, &table, err);
    if (rc == 0 && !c->json && c->tty && lf_optset_str(c->opts, "columns") == NULL)
        printf("MEMORY: of one rank that pretrains it on %s in %s, %lld sequence%s of %lld tokens "
               "(or with one picture each) at once\n",
               strcmp(lf_optset_str(c->opts, "device"), "cuda") == 0 ? "a GPU" : "processors",
               lf_optset_str(c->opts, "precision"),
               (long long)lf_optset_int(c->opts, "micro_batch"),
               lf_optset_int(c->opts, "micro_batch") == 1 ? "" : "s",
               (long long)lf_optset_int(c->opts, "seq_length"));
    return rc;
}

/* ---- one model ---- */

static void print_bytes(const char *what, lf_real bytes)
{
    char text[32];
    if (bytes.v > 0)
        printf("  %-18s %s\n", what, lf_fmt_bytes(text, sizeof text, bytes.v));
}

static int show_model(const lf_cmd *c, const struct model *m, lf_err *err)
{
    const struct lf_cost_bytes *b = &m->cost.bytes;
    if (c->json)
        return lf_cmd_print(m, &whole_fields, err);
    lf_say("[model]\npreset = %s\n\n# stands for\n", m->name);
    for (size_t i = 0; i < m->keys.n; i++)
        lf_say("# %s = %s\n", m->keys.v[i].name, m->keys.v[i].value);
    if (m->error != NULL)
        lf_say("\ncannot be planned: %s\n", m->error);
    if (m->parameters.given)
        printf("\n%lld parameters (%s); training one rank takes\n", (long long)m->parameters.v,
               m->size);
    print_bytes("weights", b->params);
    print_bytes("gradients", b->grads);
    print_bytes("optimizer", b->optimizer);
    print_bytes("activations", b->activations);
    print_bytes("workspace", b->workspace);
    print_bytes("other host memory", b->host);
    print_bytes("on the GPU", b->device);
    print_bytes("in all", b->total);
    return 0;
}

static int list_models(model_list *list, const char *dir, const char *only, lf_err *err)
{
    lf_texts names = {.n = 0};
    if (only != NULL)
        return add_model(list, dir, only, err);
    int rc = lf_presets_list(&names, dir, err);
    for (size_t i = 0; rc == 0 && i < names.n; i++)
        rc = add_model(list, dir, names.v[i], err);
    lf_texts_fini(&names);
    return rc == 0 && list->n == 0
               ? lf_fail(err, LF_ENOENT,
                         "no models are installed; LF_MODELS_DIR may name where "
                         "they are")
               : rc;
}

static int run_models(lf_cmd *c, lf_err *err)
{
    model_list list = {.given = true};
    char *dir = lf_cmd_model_dir();
    const char *only = lf_cmd_word(c, 0);
    int rc = list_models(&list, dir, only, err);
    if (rc == 0)
        rc = ask_all(&list, c, err);
    if (rc == 0)
        rc = only != NULL ? show_model(c, &list.v[0], err) : show_list(c, &list, err);
    for (size_t i = 0; i < list.n; i++)
        model_fini(&list.v[i]);
    free(list.v);
    free(dir);
    return rc;
}

const lf_cmd_def lf_cmd_models = {
    .table = &models_table, .words = "[MODEL]", .max_words = 1, .run = run_models};
