/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-generate: options, wiring, one call of the engine. Output: OUT/text/out.jsonl, continued by id
 * after a stop.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "engine/infer/lines.h"
#include "engine/infer/result.h"
#include "engine/infer/runner.h"
#include "stages/chat_in.h"
#include "stages/generate_priv.h"
#include "stages/infer_ranks.h"
#include "stages/opts.h"
#include "stages/stage.h"

typedef struct generate {
    const lf_optset *o;
    const char *processor, *media_dir; /* NULL: not given */
    lf_comm *comm;                     /* NULL: alone */
    struct lf_infer_ranks ranks;
    lf_buf lines_of, shown; /* several ranks: this one's part of a round */
    const char *checkpoint, *tokenizer_path, *prompts, *out;
    struct lf_runner_opts run;
    char *adapter; /* run.adapter, where it was found */
    generate_settings s;
    const char **from;
    size_t n_prompt, n_from;
    bool show;
    lf_tokenizer *tok;
    struct lf_chat_in chat;
    lf_gen_eyes eyes;
    lf_gen_jobs jobs;
    lf_gen_writer *writer;
    lf_lines *lines;
    lf_buf line;
    size_t kept, done; /* result lines */
    lf_progress progress;
} generate;

static bool first(const generate *g)
{
    return !g->comm || g->comm->rank == 0;
}

static void destroy(void *self)
{
    generate *g = self;
    if (!g)
        return;
    lf_lines_close(g->lines);
    lf_gen_writer_destroy(g->writer);
    lf_gen_jobs_fini(&g->jobs);
    lf_gen_eyes_fini(&g->eyes);
    lf_chat_in_fini(&g->chat);
    lf_tokenizer_destroy(g->tok);
    lf_buf_fini(&g->line);
    lf_buf_fini(&g->lines_of);
    lf_buf_fini(&g->shown);
    generate_settings_fini(&g->s);
    free(g->from);
    free(g->adapter);
    free(g);
}

static int setup(void **self, lf_optset *o, lf_err *err)
{
    generate *g = lf_calloc(1, sizeof *g, err);
    if (!g)
        return LF_ENOMEM;
    *self = g;
    g->o = o;
    lf_buf_init(&g->line);
    lf_buf_init(&g->lines_of);
    lf_buf_init(&g->shown);
    g->checkpoint = lf_optset_str(o, "checkpoint");
    g->tokenizer_path = lf_optset_str(o, "tokenizer");
    g->processor = lf_optset_str(o, "processor");
    g->media_dir = lf_optset_str(o, "media_dir");
    g->prompts = lf_optset_str(o, "prompts");
    g->out = lf_optset_str(o, "out");
    g->n_prompt = lf_optset_count(o, "prompt");
    for (size_t i = 0; i < g->n_prompt; i++)
        (void)lf_optset_str_at(o, "prompt", i);
    g->run = (struct lf_runner_opts){.threads = lf_stage_threads(o),
                                     .device = lf_stage_device(o),
                                     .compute = lf_stage_precision(o),
                                     .fast = lf_optset_choice(o, "numeric") == 1,
                                     .max_context = lf_optset_int(o, "max_context"),
                                     .slots = lf_optset_int(o, "slots"),
                                     .max_rows = lf_optset_int(o, "step_rows"),
                                     .kv_tokens = lf_optset_int(o, "kv_tokens"),
                                     .page_tokens = lf_optset_int(o, "page_tokens"),
                                     .switching = lf_optset_choice(o, "longrope") == 1,
                                     .speculative = lf_optset_choice(o, "speculative") == 1};
    g->run.adapter = lf_optset_str(o, "adapter");
    g->run.averages = lf_optset_choice(o, "weights") == 1;
    g->show = lf_optset_bool(o, "show");
    g->chat = (struct lf_chat_in){.tokenizer_path = g->tokenizer_path,
                                  .opts = {.file = lf_optset_str(o, "chat_template"),
                                           .name = lf_optset_str(o, "chat_name"),
                                           .vars = lf_optset_str(o, "chat_vars")}};
    int rc = lf_infer_ranks_read(&g->ranks, o, err);
    if (rc == 0)
        rc = generate_settings_read(&g->s, o, err);
    if (rc == 0)
        rc = lf_infer_strings(&g->from, &g->n_from, o, "resume_from", err);
    if (rc == 0 && !g->prompts && g->n_prompt == 0)
        rc = lf_fail(err, LF_EINVAL,
                     "nothing to continue: give prompts = FILE.jsonl or prompt = TEXT");
    if (rc == 0 && g->n_prompt > 0 && !g->tokenizer_path)
        rc = lf_fail(err, LF_EINVAL, "prompt = TEXT needs tokenizer =");
    if (rc == 0 && g->show && !g->tokenizer_path)
        rc = lf_fail(err, LF_EINVAL, "show prints texts, which needs tokenizer =");
    return rc;
}

/* What requests need of the model: pictures where it sees, how a source ends. */
static int open_eyes(generate *g, lf_err *err)
{
    const char *dir = g->media_dir;
    lf_model_config model;
    bool have = false;
    int rc = lf_runner_config(&model, g->checkpoint, err);
    g->s.seq2seq = rc == 0 && lf_model_is_seq2seq(&model);
    if (g->s.seq2seq && g->tok && lf_tokenizer_eos(g->tok) >= 0) {
        g->s.d.answers = true;
        g->s.d.source_end = (int32_t)lf_tokenizer_eos(g->tok);
    }
    if (rc == 0)
        rc = lf_infer_eyes(&g->eyes, &have, g->processor, g->tokenizer_path, &model, err);
    if (rc != 0 || !have)
        return rc;
    const char *prompts = g->prompts ? g->prompts : "", *slash = strrchr(prompts, '/');
    if (dir || slash) {
        g->eyes.dir = lf_strdup(dir ? dir : prompts, err);
        if (!g->eyes.dir)
            return LF_ENOMEM;
        if (!dir)
            g->eyes.dir[slash - prompts] = 0;
    }
    g->s.d.eyes = &g->eyes;
    return 0;
}

static int read_jobs(generate *g, lf_err *err)
{
    int rc = 0;
    if (g->tokenizer_path)
        rc = lf_infer_tokenizer(&g->tok, g->tokenizer_path, err);
    if (rc == 0 && g->tok)
        rc = lf_infer_same_tokenizer(g->checkpoint, g->run.adapter, g->tok, g->tokenizer_path, err);
    if (rc == 0)
        rc = open_eyes(g, err);
    if (rc == 0 && g->tok)
        rc = lf_chat_in_load(&g->chat, g->tok, &g->s.d, err);
    if (rc == 0)
        rc = generate_settings_complete(&g->s, g->tok, g->tokenizer_path, first(g), err);
    for (size_t i = 0; rc == 0 && i < g->n_prompt; i++) {
        char id[32];
        snprintf(id, sizeof id, "prompt-%zu", i + 1);
        rc = lf_gen_jobs_add_prompt(&g->jobs, id, lf_optset_str_at(g->o, "prompt", i), g->tok,
                                    &g->s.d, err);
    }
    if (rc == 0 && g->prompts)
        rc = lf_gen_jobs_read(&g->jobs, g->prompts, g->tok, &g->s.d, err);
    lf_gen_jobs_sights(&g->jobs, &g->run.max_patches, &g->run.max_tiles);
    return rc;
}

/* Where the model sees, requests are read as in the run, for the sizes of their pictures. *unknown:
 * there are none yet. */
static int plan_pictures(generate *g, bool *unknown, lf_err *err)
{
    const char *const with[] = {g->tokenizer_path, g->processor, g->media_dir, g->prompts};
    lf_model_config model;
    const char *missing;
    const int rc =
        lf_infer_plan_config(&model, &missing, g->checkpoint, g->run.adapter, false, err);
    if (rc != 0 || missing || !model.vision.family)
        return rc;
    *unknown = !lf_infer_there(with, sizeof with / sizeof *with);
    return *unknown ? 0 : read_jobs(g, err);
}

static int plan(void *self, json_t *out, lf_err *err)
{
    generate *g = self;
    bool unknown = false;
    g->run.with = lf_infer_with(&g->ranks);
    int rc = plan_pictures(g, &unknown, err);
    if (rc == 0)
        rc = lf_infer_plan(out, g->checkpoint, &g->run, err);
    if (rc == 0)
        rc = lf_infer_ranks_plan(&g->ranks, out, err);
    return rc == 0 && unknown ? lf_infer_plan_unseen(out, "prompts", err) : rc;
}

/* A kept line must be the result that belongs in its place. */
static int check_line(void *arg, size_t index, const char *line, size_t len, lf_err *err)
{
    return lf_gen_line_check(&((generate *)arg)->jobs, index, line, len, err);
}

/* What a model says may hold escape sequences; the exact text is in out.jsonl. */
static void add_shown(lf_buf *out, const lf_gen_result *r)
{
    lf_buf_adds(out, "--- ");
    lf_buf_add_visible(out, r->job->id, strlen(r->job->id));
    lf_buf_addf(out, " sample %u (%s)\n", r->job->sample, lf_finish_name(r->finish));
    lf_buf_add_visible(out, r->text, r->text_len);
    lf_buf_addc(out, '\n');
}

/* Write and print; rank 0. */
static int put(generate *g, const lf_buf *lines, const lf_buf *shown, lf_err *err)
{
    int rc = g->lines ? lf_lines_append(g->lines, lines->data, lines->len, err) : 0;
    if (rc == 0 &&
        (fwrite(shown->data, 1, shown->len, stdout) != shown->len || fflush(stdout) != 0))
        rc = lf_fail_errno(err, "writing to standard output");
    return rc;
}

/* Alone results are put as they come; of several ranks each keeps its own until the round is
 * over. */
static int sink(void *arg, const lf_gen_result *r, lf_err *err)
{
    generate *g = arg;
    lf_buf *lines = g->comm ? &g->lines_of : &g->line;
    if (!g->comm) {
        lf_buf_clear(lines);
        lf_buf_clear(&g->shown);
    }
    int rc = lf_gen_writer_take(g->writer, r, lines, err);
    if (g->show)
        add_shown(&g->shown, r);
    if (rc == 0)
        rc = lf_buf_check(&g->shown, err);
    if (rc == 0 && !g->comm)
        rc = put(g, lines, &g->shown, err);
    if (!g->comm)
        lf_progress_update(&g->progress, (double)g->jobs.req[r->job->request].first_line);
    return rc;
}

/* Requests [first, last), from job `job` on. */
typedef struct span {
    size_t first, last, job;
} span;

/* At least one request, and no more than `block` jobs where more than one. */
static span next_span(const generate *g, size_t at, size_t job, size_t block)
{
    span p = {at, at, job};
    size_t end = job;
    while (p.last < g->jobs.n_req &&
           (p.last == at || end - job + g->jobs.req[p.last].n_jobs <= block)) {
        end = g->jobs.req[p.last].first + g->jobs.req[p.last].n_jobs;
        p.last++;
    }
    return p;
}

/* Make the results of a span and the lines of its refused requests; alone they are put as they
 * come. */
static int make_span(generate *g, const lf_gen_model *m, const span *p, size_t skip,
                     struct lf_gen_stats *st, lf_err *err)
{
    size_t end = p->last < g->jobs.n_req ? g->jobs.req[p->last].first : g->jobs.n;
    lf_gen_writer_seek(g->writer, p->first, skip);
    lf_buf_clear(&g->line);
    lf_buf_clear(&g->shown);
    int rc = end > p->job ? lf_gen_run(m,
                                       &(struct lf_gen_work){.tok = g->tok,
                                                             .jobs = g->jobs.v + p->job,
                                                             .n_jobs = end - p->job,
                                                             .sink = sink,
                                                             .arg = g,
                                                             .stop = lf_group_stop},
                                       st, err)
                          : 0;
    if (!g->comm) {
        lf_buf_clear(&g->line);
        lf_buf_clear(&g->shown);
    }
    if (rc == 0)
        rc = lf_gen_writer_pass(g->writer, p->last, g->comm ? &g->lines_of : &g->line, err);
    return rc == 0 && !g->comm ? put(g, &g->line, &g->shown, err) : rc;
}

/* The same for the ranks of a group together. */
static int run_span(generate *g, const lf_gen_model *m, const span *p, size_t skip,
                    struct lf_gen_stats *st, lf_err *err)
{
    lf_infer_ranks_begin(&g->ranks);
    return lf_group_end(&g->ranks.group, make_span(g, m, p, skip, st, err), err);
}

/* A span of about `block` jobs per group of ranks. The results of a job do not depend on what runs
 * beside it, so they are those of one group; what was not put when a stop comes is made again. */
static int run_round(generate *g, const lf_gen_model *m, const span *mine, size_t skip,
                     struct lf_gen_stats *st, lf_err *err)
{
    struct lf_gen_stats part = {0};
    lf_buf_clear(&g->lines_of);
    int rc = lf_stage_agree(g->comm, run_span(g, m, mine, skip, &part, err), err);
    if (rc == 0)
        rc = lf_infer_ranks_gather(&g->ranks, g->comm, &g->lines_of, err);
    if (rc == 0)
        rc = lf_infer_ranks_gather(&g->ranks, g->comm, &g->shown, err);
    if (rc == 0 && first(g))
        rc = put(g, &g->lines_of, &g->shown, err);
    st->steps += part.steps;
    st->new_tokens += part.new_tokens;
    st->shared_tokens += part.shared_tokens;
    st->drafted += part.drafted;
    st->accepted += part.accepted;
    st->seconds += part.seconds;
    return lf_stage_agree(g->comm, rc, err);
}

static int run_rounds(generate *g, const lf_gen_model *m, size_t at, size_t job, size_t skip,
                      struct lf_gen_stats *st, lf_err *err)
{
    int rc = 0;
    while (at < g->jobs.n_req && rc == 0) {
        span mine = {0};
        size_t begin = at;
        for (int r = 0; r < g->ranks.who.data_ranks; r++) {
            span p = next_span(g, at, job, 4 * (size_t)m->slots);
            if (r == g->ranks.who.data)
                mine = p;
            at = p.last;
            job = at < g->jobs.n_req ? g->jobs.req[at].first : g->jobs.n;
        }
        rc = run_round(g, m, &mine, mine.first == begin ? skip : 0, st, err);
        skip = 0;
        if (first(g))
            lf_progress_update(
                &g->progress,
                (double)(at < g->jobs.n_req ? g->jobs.req[at].first_line : g->jobs.n_lines));
    }
    int64_t *const sums[] = {&st->new_tokens, &st->drafted, &st->accepted};
    for (size_t i = 0; i < sizeof sums / sizeof *sums && rc == 0; i++)
        rc = lf_comm_all_reduce(g->ranks.comms.data, sums[i], 1, LF_COMM_I64, LF_COMM_SUM, err);
    return rc;
}

/* Where to go on behind the kept lines: a request of which some lines are there is made again,
 * unless each of its lines is a job's. */
static size_t resume_at(const generate *g, size_t *job, size_t *skip)
{
    size_t offset, at = lf_gen_jobs_at_line(&g->jobs, g->kept, &offset);
    const lf_gen_request *q = &g->jobs.req[at];
    *skip = 0;
    *job = at < g->jobs.n_req ? q->first : g->jobs.n;
    if (at < g->jobs.n_req && q->form == LF_FORM_LINES && q->n_out == q->n_jobs)
        *job += offset;
    else
        *skip = offset;
    return at;
}

static int run_jobs(generate *g, const lf_gen_model *m, struct lf_gen_stats *st, lf_err *err)
{
    size_t job, skip, at = resume_at(g, &job, &skip);
    if (first(g))
        lf_progress_begin(&g->progress, "generate", "results", (double)g->kept,
                          (double)g->jobs.n_lines);
    int rc = g->comm ? run_rounds(g, m, at, job, skip, st, err)
                     : run_span(g, m, &(span){at, g->jobs.n_req, job}, skip, st, err);
    if (first(g) && rc == 0) /* what was put last has not been counted */
        lf_progress_update(&g->progress, (double)g->jobs.n_lines);
    if (first(g))
        lf_progress_end(&g->progress);
    if (g->lines && (rc == 0 || rc == LF_EINTR)) {
        int sync = lf_lines_sync(g->lines, rc != 0 ? NULL : err);
        if (rc == 0)
            rc = sync;
    }
    g->done = g->jobs.n_lines - g->kept;
    return rc;
}

/* Open the model and look whether it can do what is asked. */
static int open_model(generate *g, lf_runner **r, lf_gen_model *m, lf_err *err)
{
    int rc = lf_runner_open(r, g->checkpoint, &g->run, err);
    if (rc == 0)
        rc = lf_runner_gen_model(*r, m, err);
    if (rc == 0 && g->tok && (int64_t)lf_tokenizer_vocab_size(g->tok) < m->vocab)
        m->vocab =
            (int64_t)lf_tokenizer_vocab_size(g->tok); /* rows that no token names are not drawn */
    if (rc == 0)
        rc = lf_gen_jobs_fit(&g->jobs, m, g->tok, err);
    if (rc == 0 &&
        !(g->writer = lf_gen_writer_create(&g->jobs, g->tok, lf_runner_identity(*r), err)))
        rc = LF_ENOMEM;
    if (rc == 0 && first(g) && lf_gen_jobs_refused(&g->jobs) > 0)
        lf_log(1, "%zu of %zu requests cannot be run; their lines say why",
               lf_gen_jobs_refused(&g->jobs), g->jobs.n_req);
    return rc;
}

static int publish(generate *g, const char *dir, lf_runner *r, const struct lf_gen_stats *st,
                   lf_err *err)
{
    lf_artifact a = {0};
    int rc = lf_lines_finish(g->lines, err);
    if (rc == 0)
        rc = lf_artifact_init(&a, "text", err);
    if (rc == 0)
        rc = lf_artifact_add_hashed(&a, dir, "out.jsonl", err);
    if (rc == 0) {
        json_t *fp = lf_runner_fingerprint(r, err);
        rc = fp ? lf_infer_ranks_sign(&g->ranks, fp, err) : LF_ENOMEM;
        json_object_set_new(a.meta, "results", json_integer((json_int_t)g->jobs.n_lines));
        json_object_set_new(a.meta, "refused",
                            json_integer((json_int_t)lf_gen_jobs_refused(&g->jobs)));
        json_object_set_new(a.meta, "checkpoint_identity", json_string(lf_runner_identity(r)));
        json_object_set_new(a.meta, "new_tokens_this_run", json_integer(st->new_tokens));
        if (g->run.speculative) {
            json_object_set_new(a.meta, "drafted_this_run", json_integer(st->drafted));
            json_object_set_new(a.meta, "accepted_this_run", json_integer(st->accepted));
        }
        json_object_set_new(a.meta, "sampling_order",
                            json_string("bias, repetition, presence and frequency penalty, "
                                        "temperature, top_k, top_p, min_p"));
        json_object_set_new(a.meta, "fingerprint", fp);
    }
    if (rc == 0)
        rc = lf_artifact_publish(&a, dir, err);
    lf_artifact_fini(&a);
    return rc;
}

/* Collective. */
static int generate_all(generate *g, const char *dir, lf_err *err)
{
    lf_runner *r = NULL;
    lf_gen_model m;
    struct lf_gen_stats st = {0};
    int rc = lf_infer_adapter(&g->adapter, g->comm, &g->run.adapter, g->checkpoint, g->out,
                              g->run.threads, err);
    if (rc == 0)
        rc = lf_infer_ranks_open(&g->ranks, g->comm, err);
    g->run.with = lf_infer_with(&g->ranks);
    if (rc == 0)
        rc = lf_stage_agree(g->comm, open_model(g, &r, &m, err), err);
    if (rc == 0 && dir)
        rc = lf_infer_lines(g->comm, &g->lines, "text",
                            &(struct lf_lines_place){.dir = dir,
                                                     .name = "out.jsonl",
                                                     .from = g->from,
                                                     .n_from = g->n_from,
                                                     .check = check_line,
                                                     .arg = g},
                            &g->kept, err);
    if (rc == 0) {
        const struct lf_plan_memory mem = lf_infer_ranks_planned(&g->ranks, lf_runner_planned(r));
        lf_infer_tell_memory(g->comm, &mem);
    }
    if (rc == 0 && first(g) && g->s.set[LF_GEN_MAX_TOKENS] && g->s.d.max_tokens >= m.max_context)
        lf_log(1,
               "max_tokens = %lld is beyond the model's context of %lld tokens: texts end with the "
               "context",
               (long long)g->s.d.max_tokens, (long long)m.max_context);
    if (rc == 0 && g->kept > 0 && first(g))
        lf_log(2, "continuing behind %zu of %zu results", g->kept, g->jobs.n_lines);
    if (rc == 0)
        rc = lf_stage_agree(g->comm, run_jobs(g, &m, &st, err), err);
    if (rc == 0 && dir && first(g))
        rc = publish(g, dir, r, &st, err);
    rc = lf_stage_agree(g->comm, rc, err);
    if (rc == 0 && first(g))
        lf_log(2,
               "%zu results, %lld new tokens in %.1f s: %.1f tokens/s over %lld steps, %lld tokens "
               "of prompts shared",
               g->done, (long long)st.new_tokens, st.seconds,
               st.seconds > 0 ? (double)st.new_tokens / st.seconds : 0.0, (long long)st.steps,
               (long long)st.shared_tokens);
    if (rc == 0 && first(g) && g->run.speculative)
        lf_log(2, "%lld tokens guessed, %lld of them right (%.1f %%)", (long long)st.drafted,
               (long long)st.accepted,
               st.drafted > 0 ? 100.0 * (double)st.accepted / (double)st.drafted : 0.0);
    lf_infer_ranks_close(&g->ranks, rc);
    lf_runner_close(r);
    return rc;
}

static int run(void *self, lf_comm *comm, lf_err *err)
{
    generate *g = self;
    bool done = false;
    g->comm = comm;
    g->run.rank = comm ? comm->rank : 0;
    g->run.local_rank = comm ? comm->local_rank : 0;
    if (comm) /* a rank may be slow for long; one that is dead is noticed all the same */
        lf_comm_phase(comm, "generation", 0);
    int rc = g->out || g->show
                 ? read_jobs(g, err)
                 : lf_fail(err, LF_EINVAL, "give --out DIR to write results below, or --show");
    char *dir = rc == 0 && g->out ? lf_path_join(g->out, "text", err) : NULL;
    if (rc == 0 && g->out && !dir)
        rc = LF_ENOMEM;
    rc = lf_stage_agree(comm, rc, err);
    if (rc == 0 && dir)
        rc = lf_infer_done(comm, dir, &done, err);
    if (rc == 0 && done && first(g))
        lf_log(2, "%s is complete already", dir);
    else if (rc == 0 && !done)
        rc = generate_all(g, dir, err);
    free(dir);
    return rc;
}

static void profile(void *self, struct lf_profile *p)
{
    ((generate *)self)->run.profile = p;
}

int main(int argc, char **argv)
{
    static const lf_stage stage = {.table = &lf_generate_opts,
                                   .words = "prompt",
                                   .setup = setup,
                                   .plan = plan,
                                   .run = run,
                                   .destroy = destroy,
                                   .ranks = true,
                                   .profile = profile};
    return lf_stage_main(&stage, argc, argv);
}
