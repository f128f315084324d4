/* SPDX-License-Identifier: Apache-2.0
 *
 * samples: what a model said while it trained.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "flow/cmd/cmds.h"
#include "flow/cmd/table.h"
#include "flow/plan/sweep.h"
#include "flow/record/fields.h"
#include "flow/run/samples.h"

static const lf_opt samples_rows[] = {
    LF_CMD_COMMON,
    {.name = "run", .type = LF_OPT_STR, LF_OPT_COMMAND, .help = "run; default: the newest"},
    {.name = "step",
     .type = LF_OPT_INT,
     LF_OPT_COMMAND,
     .min = 1,
     .max = 1e15,
     .help = "those of this step; default: the last ones"},
    {.name = "all",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "those of every step"},
};
LF_CMD_TABLE(samples, "what a model said while it trained (sample_interval)", samples_rows);

struct said {
    const char *run, *stage;
    lf_text_lines samples;
};
static const struct lf_fields said_fields =
    LF_FIELDS(struct said, LF_MEMBERS(struct said, run, stage),
              LF_LIST(struct said, samples, lf_text_line_fields));

/* Each line of a text behind a mark. */
static void print_text(const char *mark, const char *text)
{
    for (;;) {
        const size_t n = strcspn(text, "\n");
        lf_say("  %s %.*s\n", mark, (int)n, text);
        if (text[n] == '\0' || text[n + 1] == '\0')
            return;
        text += n + 1;
    }
}

static void print_sample(const lf_text_line *r)
{
    lf_say("step %lld: %s", (long long)r->step.v, r->id != NULL ? r->id : "-");
    if (r->sample.v > 0 && r->answer == NULL)
        printf(".%lld", (long long)r->sample.v);
    if (r->answer != NULL)
        lf_say(", %s", r->answer);
    if (r->score.given)
        printf(", score %.4f", r->score.v);
    putchar('\n');
    if (r->prompt == NULL) {
        printf("  > %zu tokens, of which no tokenizer tells the text\n", lf_text_line_tokens(r));
        return;
    }
    print_text("|", r->prompt);
    print_text(">", r->text != NULL ? r->text : "");
}

/* The samples of one step alone. */
static void keep_step(lf_text_lines *rows, int64_t step)
{
    size_t n = 0;
    for (size_t i = 0; i < rows->n; i++) {
        const bool is = rows->v[i].step.v == step;
        if (!is)
            lf_text_line_fini(&rows->v[i]);
        else if (n++ != i)
            rows->v[n - 1] = rows->v[i];
    }
    rows->n = n;
}

/* The stage named, or the one that has the most. */
static int pick(struct said *out, const lf_cmd *c, const lf_run_view *v, lf_err *err)
{
    const char *word = lf_cmd_word(c, 0);
    for (size_t i = 0; i < v->n; i++) {
        lf_text_lines rows;
        if (word != NULL && !lf_sweep_named(v->stages[i].plan->name, word))
            continue;
        int rc = lf_samples_records(&rows, &v->stages[i], err);
        if (rc < 0)
            return rc;
        const bool more = out->stage == NULL || rows.n > out->samples.n;
        lf_text_lines_fini(more ? &out->samples : &rows);
        if (more) {
            out->samples = rows;
            out->stage = v->stages[i].plan->name;
        }
    }
    return out->stage != NULL ? 0 : lf_view_no_stage(v, word != NULL ? word : "", err);
}

static int samples_of(lf_cmd *c, lf_run_view *v, lf_err *err)
{
    struct said s = {.run = v->run.id};
    int rc = pick(&s, c, v, err);
    const bool any = s.samples.n > 0;
    if (rc == 0 && any && lf_optset_is_set(c->opts, "step"))
        keep_step(&s.samples, lf_optset_int(c->opts, "step"));
    else if (rc == 0 && any && !lf_optset_bool(c->opts, "all"))
        keep_step(&s.samples, s.samples.v[s.samples.n - 1].step.v);
    if (rc == 0 && c->json)
        rc = lf_cmd_print(&s, &said_fields, err);
    else if (rc == 0 && !any && lf_cmd_word(c, 0) == NULL)
        lf_say("no stage of run %s has samples; sample_interval of a training stage makes some\n",
               lf_run_label(&v->run));
    else if (rc == 0 && !any)
        lf_say("stage %s has no samples; sample_interval of a training stage makes some\n",
               s.stage);
    else if (rc == 0 && s.samples.n == 0)
        lf_say("stage %s has no samples of step %lld; --all shows those that it has\n", s.stage,
               (long long)lf_optset_int(c->opts, "step"));
    for (size_t i = 0; rc == 0 && !c->json && i < s.samples.n; i++)
        print_sample(&s.samples.v[i]);
    lf_text_lines_fini(&s.samples);
    return rc;
}

static int run_samples(lf_cmd *c, lf_err *err)
{
    return lf_cmd_with_run(c, lf_optset_str(c->opts, "run"), samples_of, err);
}

const lf_cmd_def lf_cmd_samples = {
    .table = &samples_table, .words = "[STAGE]", .max_words = 1, .run = run_samples};
