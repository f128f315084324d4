/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-generate: options, wiring, one call of the engine. Output: OUT/text/out.jsonl, continued by id after a stop.
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
#include "engine/infer/request.h"
#include "engine/infer/runner.h"
#include "stages/infer_common.h"
#include "stages/opts.h"
#include "stages/stage.h"

typedef struct generate {
    const lf_optset *o;
    lf_comm *comm;          /* NULL: alone */
    lf_buf lines_of, shown; /* several ranks: this one's part of a round */
    const char *checkpoint, *tokenizer_path, *prompts, *out;
    struct lf_runner_opts run;
    lf_gen_defaults d;
    const char **stop, **eos, **from;
    size_t n_prompt, n_eos, n_from;
    int32_t *end;
    bool show;
    lf_tokenizer *tok;
    lf_gen_jobs jobs;
    lf_lines *lines;
    lf_buf line;
    size_t kept, done;
    lf_progress progress;
} generate;

static void destroy(void *self)
{
    generate *g = self;
    if (!g)
        return;
    lf_lines_close(g->lines);
    lf_gen_jobs_fini(&g->jobs);
    lf_tokenizer_destroy(g->tok);
    lf_buf_fini(&g->line);
    lf_buf_fini(&g->lines_of);
    lf_buf_fini(&g->shown);
    free(g->stop);
    free(g->eos);
    free(g->from);
    free(g->end);
    free(g);
}

static void read_sampling(generate *g, const lf_optset *o)
{
    g->d.params = (lf_sample_params){lf_optset_float(o, "temperature"),        lf_optset_float(o, "top_p"),
                                     lf_optset_float(o, "min_p"),              lf_optset_float(o, "repetition_penalty"),
                                     lf_optset_float(o, "presence_penalty"),   lf_optset_float(o, "frequency_penalty"),
                                     lf_optset_int(o, "top_k")};
    g->d.n = lf_optset_int(o, "samples");
    g->d.max_tokens = lf_optset_int(o, "max_tokens");
    g->d.min_tokens = lf_optset_int(o, "min_tokens");
    g->d.top_logprobs = lf_optset_int(o, "logprobs");
    g->d.ignore_eos = lf_optset_bool(o, "ignore_eos");
    g->d.add_special = lf_optset_bool(o, "add_special");
    g->d.skip_special = lf_optset_bool(o, "skip_special");
    g->d.seed = (uint64_t)lf_optset_int(o, "seed");
}

static int setup(void **self, const lf_optset *o, lf_err *err)
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
    g->prompts = lf_optset_str(o, "prompts");
    g->out = lf_optset_str(o, "out");
    g->n_prompt = lf_optset_count(o, "prompt");
    for (size_t i = 0; i < g->n_prompt; i++)
        (void)lf_optset_str_at(o, "prompt", i);
    read_sampling(g, o);
    g->run = (struct lf_runner_opts){.threads = lf_stage_threads(o),
                                     .bf16 = lf_optset_choice(o, "precision") == 1,
                                     .fast = lf_optset_choice(o, "numeric") == 1,
                                     .max_context = lf_optset_int(o, "max_context"),
                                     .slots = lf_optset_int(o, "batch"),
                                     .max_rows = lf_optset_int(o, "step_rows"),
                                     .kv_tokens = lf_optset_int(o, "kv_tokens"),
                                     .page_tokens = lf_optset_int(o, "page_tokens")};
    g->show = lf_optset_bool(o, "show");
    int rc = lf_infer_strings(&g->stop, &g->d.n_stop, o, "stop", err);
    g->d.stop = g->stop;
    if (rc == 0)
        rc = lf_infer_strings(&g->eos, &g->n_eos, o, "eos", err);
    if (rc == 0)
        rc = lf_infer_strings(&g->from, &g->n_from, o, "resume_from", err);
    if (rc == 0)
        rc = lf_sample_check(&g->d.params, err);
    if (rc == 0 && g->d.min_tokens > g->d.max_tokens)
        rc = lf_fail(err, LF_EINVAL, "min_tokens %lld is above max_tokens %lld", (long long)g->d.min_tokens, (long long)g->d.max_tokens);
    if (rc == 0 && !g->prompts && g->n_prompt == 0)
        rc = lf_fail(err, LF_EINVAL, "nothing to continue: give prompts = FILE.jsonl or prompt = TEXT");
    if (rc == 0 && g->n_prompt > 0 && !g->tokenizer_path)
        rc = lf_fail(err, LF_EINVAL, "prompt = TEXT needs tokenizer =");
    if (rc == 0 && g->show && !g->tokenizer_path)
        rc = lf_fail(err, LF_EINVAL, "show prints texts, which needs tokenizer =");
    return rc;
}

static int plan(void *self, json_t *out, lf_err *err)
{
    generate *g = self;
    return lf_infer_plan(out, g->checkpoint, &g->run, err);
}

static int read_jobs(generate *g, lf_err *err)
{
    int rc = 0;
    if (g->tokenizer_path)
        rc = lf_infer_tokenizer(&g->tok, g->tokenizer_path, err);
    if (rc == 0)
        rc = lf_infer_end_tokens(&g->end, &g->d.n_end, g->tok, g->tokenizer_path, g->eos, g->n_eos, err);
    g->d.end = g->end;
    for (size_t i = 0; rc == 0 && i < g->n_prompt; i++) {
        char id[32];
        snprintf(id, sizeof id, "prompt-%zu", i + 1);
        rc = lf_gen_jobs_add_prompt(&g->jobs, id, lf_optset_str_at(g->o, "prompt", i), g->tok, &g->d, err);
    }
    if (rc == 0 && g->prompts)
        rc = lf_gen_jobs_read(&g->jobs, g->prompts, g->tok, &g->d, err);
    return rc;
}

/* A kept line must be the result of the job at its place. */
static int check_line(void *arg, size_t index, const char *line, size_t len, lf_err *err)
{
    generate *g = arg;
    const char *id = NULL;
    int64_t sample = -1, seed = 0;
    json_error_t je;
    json_t *v = json_loadb(line, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je); /* a text may hold any character */
    if (!v)
        return lf_fail(err, LF_EFORMAT, "%s", je.text);
    int rc = lf_json_get_str(&id, v, "id", true, "result", err);
    if (rc == 0)
        rc = lf_json_get_i64(&sample, v, "sample", true, "result", err);
    if (rc == 0)
        rc = lf_json_get_i64(&seed, v, "seed", false, "result", err);
    if (rc == 0 && (index >= g->jobs.n || strcmp(id, g->jobs.v[index].id) != 0 || sample != (int64_t)g->jobs.v[index].sample ||
                    (uint64_t)seed != g->jobs.v[index].seed))
        rc = lf_fail(err, LF_EFORMAT, "the result of '%s' sample %lld is not the one expected here: the file belongs to another run", id,
                     (long long)sample);
    json_decref(v);
    return rc;
}

static bool first(const generate *g)
{
    return !g->comm || g->comm->rank == 0;
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
    if (rc == 0 && (fwrite(shown->data, 1, shown->len, stdout) != shown->len || fflush(stdout) != 0))
        rc = lf_fail_errno(err, "writing to standard output");
    return rc;
}

/* Alone results are put as they come; of several ranks each keeps its own until the round is over. */
static int sink(void *arg, const lf_gen_result *r, lf_err *err)
{
    generate *g = arg;
    lf_buf *lines = g->comm ? &g->lines_of : &g->line;
    if (!g->comm) {
        lf_buf_clear(lines);
        lf_buf_clear(&g->shown);
    }
    int rc = lf_gen_result_line(lines, r, err);
    if (g->show)
        add_shown(&g->shown, r);
    if (rc == 0)
        rc = lf_buf_check(&g->shown, err);
    if (rc == 0 && !g->comm)
        rc = put(g, lines, &g->shown, err);
    g->done++;
    if (!g->comm)
        lf_progress_update(&g->progress, (double)(g->kept + g->done));
    return rc;
}

/* Rounds of `block` jobs per rank. The results of a job do not depend on what runs beside it, so they are those of one rank;
 * what was not put when a stop comes is made again. */
static int run_rounds(generate *g, const lf_gen_model *m, struct lf_gen_stats *st, lf_err *err)
{
    size_t n = g->jobs.n, block = 4 * (size_t)m->slots, ranks = (size_t)g->comm->size, me = (size_t)g->comm->rank;
    int rc = 0;
    for (size_t at = g->kept; at < n && rc == 0;) {
        size_t from = at + me * block < n ? at + me * block : n, k = n - from < block ? n - from : block;
        struct lf_gen_stats part = {0};
        lf_buf_clear(&g->lines_of);
        lf_buf_clear(&g->shown);
        if (k > 0)
            rc = lf_gen_run(m, g->tok, g->jobs.v + from, k, sink, g, lf_stop_requested, &part, err);
        rc = lf_stage_agree(g->comm, rc, err);
        if (rc == 0)
            rc = lf_infer_gather(g->comm, &g->lines_of, err);
        if (rc == 0)
            rc = lf_infer_gather(g->comm, &g->shown, err);
        if (rc == 0 && first(g))
            rc = put(g, &g->lines_of, &g->shown, err);
        rc = lf_stage_agree(g->comm, rc, err);
        st->steps += part.steps;
        st->new_tokens += part.new_tokens;
        st->seconds += part.seconds;
        at = n - at < ranks * block ? n : at + ranks * block;
        if (first(g))
            lf_progress_update(&g->progress, (double)at);
    }
    if (rc == 0)
        rc = lf_comm_all_reduce(g->comm, &st->new_tokens, 1, LF_COMM_I64, LF_COMM_SUM, err);
    g->done = g->jobs.n - g->kept;
    return rc;
}

static int run_jobs(generate *g, lf_runner *r, struct lf_gen_stats *st, lf_err *err)
{
    lf_gen_model m;
    int rc = lf_runner_gen_model(r, &m, err);
    if (rc)
        return rc;
    if (g->tok && (int64_t)lf_tokenizer_vocab_size(g->tok) < m.vocab)
        m.vocab = (int64_t)lf_tokenizer_vocab_size(g->tok); /* rows that no token names are not drawn */
    rc = lf_gen_check(&m, g->tok, g->jobs.v, g->jobs.n, err);
    if (rc)
        return rc;
    if (first(g))
        lf_progress_begin(&g->progress, "generate", "results", (double)g->kept, (double)g->jobs.n);
    rc = g->comm ? run_rounds(g, &m, st, err)
                 : lf_gen_run(&m, g->tok, g->jobs.v + g->kept, g->jobs.n - g->kept, sink, g, lf_stop_requested, st, err);
    if (first(g))
        lf_progress_end(&g->progress);
    if (g->lines && (rc == 0 || rc == LF_EINTR)) {
        int sync = lf_lines_sync(g->lines, rc ? NULL : err);
        rc = rc ? rc : sync;
    }
    return rc;
}

static int publish(generate *g, const char *dir, lf_runner *r, const struct lf_gen_stats *st, lf_err *err)
{
    lf_artifact a = {0};
    int rc = lf_lines_finish(g->lines, err);
    if (rc == 0)
        rc = lf_artifact_init(&a, "text", err);
    if (rc == 0)
        rc = lf_artifact_add_hashed(&a, dir, "out.jsonl", err);
    if (rc == 0) {
        json_t *fp = lf_runner_fingerprint(r, err);
        rc = fp ? 0 : LF_ENOMEM;
        json_object_set_new(a.meta, "results", json_integer((json_int_t)g->jobs.n));
        json_object_set_new(a.meta, "checkpoint_identity", json_string(lf_runner_identity(r)));
        json_object_set_new(a.meta, "new_tokens_this_run", json_integer(st->new_tokens));
        json_object_set_new(a.meta, "sampling_order",
                            json_string("bias, repetition, presence and frequency penalty, temperature, top_k, top_p, min_p"));
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
    struct lf_gen_stats st = {0};
    int rc = dir ? lf_infer_lines(g->comm, &g->lines, dir, "text", "out.jsonl", g->from, g->n_from, check_line, g, &g->kept, err) : 0;
    if (rc == 0 && g->kept > 0 && first(g))
        lf_log(2, "continuing behind %zu of %zu results", g->kept, g->jobs.n);
    if (rc == 0)
        rc = lf_stage_agree(g->comm, lf_runner_open(&r, g->checkpoint, &g->run, err), err);
    if (rc == 0)
        rc = lf_stage_agree(g->comm, run_jobs(g, r, &st, err), err);
    if (rc == 0 && dir && first(g))
        rc = publish(g, dir, r, &st, err);
    rc = lf_stage_agree(g->comm, rc, err);
    if (rc == 0 && first(g))
        lf_log(2, "%zu results, %lld new tokens in %.1f s: %.1f tokens/s over %lld steps", g->done, (long long)st.new_tokens, st.seconds,
               st.seconds > 0 ? (double)st.new_tokens / st.seconds : 0.0, (long long)st.steps);
    lf_runner_close(r);
    return rc;
}

static int run(void *self, lf_comm *comm, lf_err *err)
{
    generate *g = self;
    bool done = false;
    g->comm = comm;
    if (comm) /* a rank may be slow for long; one that is dead is noticed all the same */
        lf_comm_phase(comm, "generation", 0);
    int rc = g->out || g->show ? read_jobs(g, err) : lf_fail(err, LF_EINVAL, "give --out DIR to write results below, or --show");
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

int main(int argc, char **argv)
{
    static const lf_stage stage = {&lf_generate_opts, "prompt", setup, plan, run, destroy, true};
    return lf_stage_main(&stage, argc, argv);
}
