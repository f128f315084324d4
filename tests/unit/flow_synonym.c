/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of other tools: each row points at something that there is, and messages use the row whose
 * own name is allowed where the word stands.
 */
#include "engine/base/synonym.h"

#include <stdio.h>
#include <string.h>

#include "engine/model/config_priv.h"
#include "flow/plan/pipeline_priv.h"
#include "stages/opts.h"
#include "tests/tap/tap.h"

enum { MAX_NAMES = 1200 };

/* All that may be written in a pipeline file: options of stages, resources, the model, kinds. */
static size_t all_names(const char **out)
{
    size_t n = 0;
    for (const lf_opt_table *const *t = lf_all_opts; *t != NULL; t++) {
        out[n++] = (*t)->stage;
        for (size_t i = 0; i < (*t)->n_opts; i++)
            if (((*t)->opts[i].flags & LF_OPT_CLI_ONLY) == 0)
                out[n++] = (*t)->opts[i].name;
    }
    n += lf_resource_keys(out + n, 64);
    for (size_t i = 0; i < lf_model_n_keys; i++)
        out[n++] = lf_model_keys[i].name;
    out[n++] = "data_dir";
    return n;
}

static bool is_there(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static void rows(void)
{
    const char *names[MAX_NAMES];
    size_t n = all_names(names), rows = 0, bad = 0;
    const lf_synonym *s;
    for (; (s = lf_synonym_at(rows)) != NULL; rows++) {
        bool good = s->ours != NULL ? is_there(s->ours, names, n) : s->how != NULL;
        good = good && s->theirs[strspn(s->theirs, "abcdefghijklmnopqrstuvwxyz0123456789_")] == 0;
        bad += !good;
        if (!good)
            tap_diag("%s: there is no %s", s->theirs, s->ours != NULL ? s->ours : "explanation");
    }
    tap_ok(rows >= 100, "%zu names of other tools", rows);
    tap_ok(bad == 0, "each points at something that there is");
    tap_ok(!is_there("learning_rate", names, n), "and a name that is not there is seen");
}

static size_t names_of(const char **out, const char *kind)
{
    size_t n = 0;
    for (const lf_opt_table *const *t = lf_all_opts; *t != NULL; t++)
        for (size_t i = 0; strcmp((*t)->stage, kind) == 0 && i < (*t)->n_opts; i++)
            out[n++] = (*t)->opts[i].name;
    return n;
}

static void hint(const char *kind, const char *word, const char *want)
{
    const char *names[MAX_NAMES];
    char text[200];
    lf_synonym_hint(text, sizeof text, word, names, names_of(names, kind));
    tap_str(text, want, word);
}

static void hints(void)
{
    hint("pretrain", "max_steps", "; here it is \"steps\"");
    hint("ppo", "max_steps",
         "; here it is \"rounds\" (a round generates round_prompts x samples texts and trains on "
         "them)");
    hint("generate", "max-new-tokens", "; here it is \"max_tokens\"");
    hint("pretrain", "bf16", "; here it is \"precision\" (bf16 = true is precision = bf16)");
    hint("pretrain", "optim", "; the optimizer is always AdamW; see moments and masters");
    hint("pretrain", "stepz", "; did you mean \"steps\"?");
    hint("pretrain", "xyzzy", "");
}

static void values(void)
{
    tap_str(lf_synonym_value("bfloat16", "f32|bf16"), "bf16", "bfloat16 is bf16");
    tap_ok(lf_synonym_value("float16", "f32|bf16") == NULL, "only where there is such a choice");
    tap_ok(lf_synonym_value("bf16", "f32|bf16") == NULL, "our own word has no other");
}

int main(void)
{
    TAP(3, rows());
    TAP(7, hints());
    TAP(3, values());
    return tap_done();
}
