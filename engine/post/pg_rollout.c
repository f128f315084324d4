/* SPDX-License-Identifier: Apache-2.0
 *
 * A round of generation: prompts in the order of the run, completions of each, their scores. What
 * is known goes to disk at once. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/rng.h"
#include "engine/base/sys.h"
#include "engine/infer/group.h"
#include "engine/post/pg_priv.h"

#define SITE_ORDER 0x50474f52u /* of the permutation of prompts; one site per epoch follows it */

/* The document of prompt number i of the run: a permutation of the data in each epoch. */
static uint64_t doc_of(const lf_pg *p, uint64_t i)
{
    uint32_t epoch = (uint32_t)(i / p->n_docs);
    return p->docs[lf_rng_permute(p->c->seed, SITE_ORDER + epoch, p->n_docs, i % p->n_docs)];
}

struct generation {
    lf_pg *p;
    lf_pg_part *part;
    lf_gen_job *jobs;
    size_t *index; /* of each job in the round */
};

static bool is_end(const lf_pg *p, int32_t token)
{
    for (size_t i = 0; i < p->c->n_end; i++)
        if (p->c->end[i] == token)
            return true;
    return false;
}

static int take_result(void *arg, const lf_gen_result *r, lf_err *err)
{
    struct generation *g = arg;
    g->p->gen_tokens += (int64_t)r->n;
    bool ended = r->n > 0 && is_end(g->p, r->tokens[r->n - 1]);
    return lf_pg_part_add(g->part, g->index[r->job - g->jobs], r->tokens, r->logprobs, r->n, ended,
                          err);
}

/* Prompts [from, from + n) of the round: tokens one after the other. */
struct prompts {
    int32_t *tokens;
    size_t *at; /* [n + 1] */
    size_t n;
};

static int read_prompts(struct prompts *q, const lf_pg *p, int64_t from, size_t n, lf_err *err)
{
    size_t total = 0;
    q->n = n;
    q->at = lf_calloc(n + 1, sizeof *q->at, err);
    for (size_t i = 0; q->at && i < n; i++)
        q->at[i + 1] = total += lf_shardset_doc_len(p->data, doc_of(p, (uint64_t)from + i));
    q->tokens = q->at ? lf_malloc(total + 1, sizeof *q->tokens, err) : NULL;
    int rc = q->tokens ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = lf_shardset_read(p->data, doc_of(p, (uint64_t)from + i), 0, q->at[i + 1] - q->at[i],
                              q->tokens + q->at[i], err);
    return rc;
}

static void free_prompts(struct prompts *q)
{
    free(q->tokens);
    free(q->at);
}

static uint64_t seed_of(const lf_pg *p, int64_t prompt, size_t sample)
{
    char id[32];
    snprintf(id, sizeof id, "prompt %lld", (long long)prompt);
    return lf_sample_seed(p->c->seed, id, (uint32_t)sample);
}

/* An early end drops a round that nothing was trained of, unless it would be left with none. */
static bool (*may_leave(const lf_pg *p))(void)
{
    const struct lf_train_sink *s = p->run.sink;
    if (!s)
        return NULL;
    return p->s.round > 0 && p->s.done == 0 && s->leave ? s->leave : s->stop;
}

/* The samples of prompt i (number `number` of the run) see its pictures, in one place for all. */
static int look_at(lf_gen_job *jobs, size_t n, const lf_pg *p, int64_t number, lf_arena *a,
                   lf_err *err)
{
    const struct lf_gen_media *media = NULL;
    int rc = n ? lf_pg_sight_of(&media, p, doc_of(p, (uint64_t)number), jobs, a, err) : 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        jobs[i].media = media;
    return rc;
}

/* Generate what the part does not hold yet of the prompts [from, from + n) of the run, which are
 * numbers [from - first, ...) of the round. */
static int generate(lf_pg *p, lf_pg_part *part, const struct prompts *q, int64_t first,
                    int64_t from, lf_err *err)
{
    const size_t group = (size_t)p->c->samples;
    struct generation g = {.p = p, .part = part};
    struct lf_gen_stats stats;
    struct lf_group together;
    lf_gen_model model;
    lf_arena *arena = lf_arena_create(err);
    size_t k = 0, was = 0;
    g.jobs = lf_calloc(q->n * group + 1, sizeof *g.jobs, err);
    g.index = lf_calloc(q->n * group + 1, sizeof *g.index, err);
    int rc =
        g.jobs && g.index && arena ? lf_pg_model_gen(lf_pg_generator(p), &model, err) : LF_ENOMEM;
    for (size_t i = 0; i < q->n && rc == 0; i++) {
        for (size_t s = 0; s < group; s++) {
            size_t index = (size_t)(from - first + (int64_t)i) * group + s;
            if (lf_pg_part_at(part, index) || !lf_pg_mine(p, index))
                continue;
            g.index[k] = index;
            /* Raw sampling: the model divides its logits by the temperature, every token keeps its
             * probability. */
            g.jobs[k++] = (lf_gen_job){.id = "rollout",
                                       .sample = (uint32_t)s,
                                       .prompt = q->tokens + q->at[i],
                                       .n_prompt = q->at[i + 1] - q->at[i],
                                       .params = LF_SAMPLE_DEFAULTS,
                                       .max_tokens = p->c->max_tokens,
                                       .end = p->c->end,
                                       .n_end = p->c->n_end,
                                       .seed = seed_of(p, from + (int64_t)i, s)};
        }
        rc = look_at(g.jobs + was, k - was, p, from + (int64_t)i, arena, err);
        was = k;
    }
    const struct lf_profile_mark m = lf_profile_begin(p->c->profile);
    rc = lf_run_agree(&p->run, rc, err);
    if (rc == 0) /* how many steps of generation follow is this rank's own matter */
        rc = lf_pg_bring(p, err);
    lf_group_begin(&together, p->at[LF_PG_ROLLOUT].comms.tensor, may_leave(p));
    if (rc == 0 && k)
        rc = lf_gen_run(
            &model,
            &(struct lf_gen_work){
                .jobs = g.jobs, .n_jobs = k, .sink = take_result, .arg = &g, .stop = lf_group_stop},
            &stats, err);
    rc = lf_group_end(&together, rc, err);
    lf_profile_end(p->c->profile, LF_LANE_STEP, "rollout", m);
    free(g.jobs);
    free(g.index);
    lf_arena_destroy(arena);
    rc = lf_run_agree(&p->run, rc, err);
    const size_t base = (size_t)(from - first) * group;
    return rc != 0 ? rc : lf_pg_share_sequences(p, part, base, base + q->n * group, err);
}

/* Put the sequences of prompts [from, from + n) behind p->r; wanted[i]: it has no scores yet. */
static int add_sequences(lf_pg *p, const lf_pg_part *part, const struct prompts *q, int64_t first,
                         int64_t from, bool *wanted, lf_err *err)
{
    const size_t group = (size_t)p->c->samples;
    int rc = 0;
    for (size_t i = 0; i < q->n * group && rc == 0; i++) {
        size_t prompt = i / group, index = (size_t)(from - first) * group + i, at = p->r.n;
        const struct lf_pg_part_seq *s = lf_pg_part_at(part, index);
        int64_t number = from + (int64_t)prompt;
        struct lf_rollout_seq seq = {q->tokens + q->at[prompt],
                                     s->tokens,
                                     s->logprob,
                                     q->at[prompt + 1] - q->at[prompt],
                                     s->n,
                                     (uint64_t)number,
                                     doc_of(p, (uint64_t)number),
                                     seed_of(p, number, i % group),
                                     s->ended};
        rc = lf_rollout_add(&p->r, &seq, err);
        wanted[i] = !s->scored;
        if (rc == 0 && s->scored)
            memcpy(p->r.source + at * p->n_sources, s->score, p->n_sources * sizeof *s->score);
    }
    return rc;
}

/* Of the sequences from `before` on those that are wanted and this rank's. index0: number of the
 * first in the round. Owned. */
static bool *choose_mine(const lf_pg *p, enum lf_pg_place_of at, size_t before, const bool *wanted,
                         size_t index0, lf_err *err)
{
    const size_t n = p->r.n - before;
    bool *mine = lf_calloc(n + 1, sizeof *mine, err);
    for (size_t i = 0; mine && i < n; i++)
        mine[i] = wanted[i] && lf_pg_owner_at(p, at, index0 + i) == p->at[at].who.data;
    return mine;
}

/* By the reward model, whose ranks need not be those that generate. Collective. */
static int score_by_model(lf_pg *p, size_t before, const bool *wanted, size_t index0, lf_err *err)
{
    bool *mine = choose_mine(p, LF_PG_REWARD, before, wanted, index0, err);
    struct lf_group together;
    const struct lf_profile_mark m = lf_profile_begin(p->c->profile);
    lf_group_begin(&together, p->at[LF_PG_REWARD].comms.tensor,
                   p->run.sink ? p->run.sink->stop : NULL);
    int rc = mine ? lf_pg_score_model(p, &p->r, before, mine, err) : LF_ENOMEM;
    rc = lf_group_end(&together, rc, err);
    lf_profile_end(p->c->profile, LF_LANE_STEP, "reward model", m);
    free(mine);
    return rc;
}

/* By rules and the command, and all scores of a sequence go to disk. */
static int score_mine(lf_pg *p, lf_pg_part *part, size_t before, const bool *wanted, size_t index0,
                      lf_err *err)
{
    const size_t n = p->r.n - before;
    bool *mine = choose_mine(p, LF_PG_ROLLOUT, before, wanted, index0, err);
    const struct lf_profile_mark m = lf_profile_begin(p->c->profile);
    int rc = mine ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < n && rc == 0; i++) {
        double *score = p->r.source + (before + i) * p->n_sources;
        if (!mine[i] || !lf_pg_speaks(p))
            continue;
        rc = lf_pg_score_one(p, &p->r, before + i, score, err);
        if (rc == 0)
            rc = lf_pg_part_score(part, index0 + i, score, err);
    }
    lf_profile_end(p->c->profile, LF_LANE_STEP, "rules and command", m);
    free(mine);
    return rc;
}

static int collect(lf_pg *p, lf_pg_part *part, const struct prompts *q, int64_t first, int64_t from,
                   lf_err *err)
{
    const size_t group = (size_t)p->c->samples, before = p->r.n,
                 index0 = (size_t)(from - first) * group;
    bool *wanted = lf_calloc(q->n * group + 1, sizeof *wanted, err);
    int rc = wanted ? add_sequences(p, part, q, first, from, wanted, err) : LF_ENOMEM;
    if (p->reward_model) {
        rc = lf_run_agree(&p->run, rc, err);
        rc = lf_run_agree(&p->run, rc != 0 ? rc : score_by_model(p, before, wanted, index0, err),
                          err);
        if (rc == 0)
            rc = lf_pg_share_model(p, before, wanted, index0, err);
    }
    if (rc == 0)
        rc = score_mine(p, part, before, wanted, index0, err);
    rc = lf_run_agree(&p->run, rc, err);
    if (rc == 0)
        rc = lf_pg_share_scores(p, before, wanted, index0, err);
    free(wanted);
    return rc;
}

/* The weighted sum over sources. */
static void sum_scores(lf_pg *p, size_t from)
{
    for (size_t i = from; i < p->r.n; i++) {
        double sum = 0;
        for (size_t k = 0; k < p->n_sources; k++)
            sum += lf_pg_source_weight(p, k) * p->r.source[i * p->n_sources + k];
        p->r.score[i] = sum;
    }
}

/* Groups of p->r from `from` on whose scores differ move up; the others are gone. Their tokens must
 * move too, so they are added again. */
static int drop_flat(lf_pg *p, size_t from, lf_err *err)
{
    lf_rollout *r = &p->r, kept;
    const size_t group = r->group;
    int rc = lf_rollout_init(&kept, p->sources, p->n_sources, group, err);
    kept.dropped = r->dropped;
    for (size_t g = 0; g < r->n && rc == 0; g += group) {
        if (g >= from && lf_group_flat(r->score + g, group)) {
            kept.dropped++;
            continue;
        }
        for (size_t i = g; i < g + group && rc == 0; i++) {
            const int32_t *tokens = r->tokens + r->offsets[i];
            struct lf_rollout_seq s = {tokens,
                                       tokens + r->prompt_len[i],
                                       r->logprob + r->first[i],
                                       r->prompt_len[i],
                                       lf_rollout_len(r, i) - r->prompt_len[i],
                                       r->prompt[i],
                                       r->doc[i],
                                       r->seed[i],
                                       r->ended[i]};
            rc = lf_rollout_add(&kept, &s, err);
            if (rc == 0)
                memcpy(kept.source + (kept.n - 1) * p->n_sources, r->source + i * p->n_sources,
                       p->n_sources * sizeof *r->source);
        }
    }
    if (rc != 0) {
        lf_rollout_fini(&kept);
        return rc;
    }
    lf_rollout_fini(r);
    *r = kept;
    sum_scores(p, 0);
    return 0;
}

/* Prompts until the round is full; more than one turn only where dynamic sampling drops groups. */
static int fill_round(lf_pg *p, lf_pg_part *part, lf_err *err)
{
    const size_t want = (size_t)p->c->prompts;
    const int64_t first = p->s.prompts;
    int64_t from = first;
    int rc = 0;
    for (int64_t turn = 0; rc == 0 && p->r.n / p->r.group < want &&
                           turn < (p->c->dynamic_sampling ? p->c->dynamic_rounds : 1);
         turn++) {
        struct prompts q = {0};
        size_t before = p->r.n, need = want - p->r.n / p->r.group;
        double t0 = lf_now_s();
        rc = lf_run_agree(&p->run, read_prompts(&q, p, from, need, err), err);
        if (rc == 0)
            rc = generate(p, part, &q, first, from, err);
        double t1 = lf_now_s();
        if (rc == 0)
            rc = collect(p, part, &q, first, from, err);
        free_prompts(&q);
        p->gen_s += t1 - t0;
        p->score_s += lf_now_s() - t1;
        from += (int64_t)need;
        if (rc == 0)
            sum_scores(p, before);
        if (rc == 0 && p->c->dynamic_sampling)
            rc = drop_flat(p, before, err);
    }
    if (rc == 0 && p->r.n == 0)
        rc = lf_fail(err, LF_EINVAL,
                     "%lld prompts in a row had completions of equal scores: nothing to learn "
                     "from; change the prompts, the "
                     "temperature or the reward, raise dynamic_rounds or turn dynamic_sampling off",
                     (long long)(from - first));
    p->r.next_prompt = from;
    return rc;
}

/* Scores to rewards. The running statistics take in the round's scores first. */
static int shape(lf_pg *p, lf_err *err)
{
    lf_rollout *r = &p->r;
    for (size_t i = 0; i < r->n; i++)
        lf_running_add(&p->s.scores, r->score[i]);
    for (size_t i = 0; i < r->n; i++)
        r->reward[i] = lf_shape(&p->c->shaping, &p->s.scores, r->score[i],
                                (int64_t)(lf_rollout_len(r, i) - r->prompt_len[i]), r->ended[i]);
    if (!p->c->whiten_rewards)
        return 0;
    int64_t *one = lf_calloc(r->n + 1, sizeof *one, err);
    if (!one)
        return LF_ENOMEM;
    for (size_t i = 0; i <= r->n; i++)
        one[i] = (int64_t)i;
    lf_whiten(r->reward, &(struct lf_seqs){r->n, one, NULL}, p->c->whiten_biased, true);
    free(one);
    return 0;
}

/* ---- rounds that are there already ---- */

/* The published round of this key among out and earlier starts. 1 found. */
static int find_published(lf_pg *p, const char *key, lf_err *err)
{
    for (size_t i = 0; i <= p->c->n_resume_from; i++) {
        char *path = lf_pg_rollout_path(i < p->c->n_resume_from ? p->c->resume_from[i] : p->c->out,
                                        p->s.round + 1, ".h5", err);
        lf_rollout r = {0};
        lf_err why = LF_ERR_INIT;
        if (!path)
            return LF_ENOMEM;
        int rc = lf_io_exists(path) ? lf_rollout_read(&r, path, &why) : LF_ENOENT;
        if (rc != 0 && rc != LF_ENOENT)
            lf_run_log(&p->run, 1, "passing over %s: %s", path, why.text);
        free(path);
        if (rc == 0 && strcmp(r.key, key) == 0 && r.n_sources == p->n_sources) {
            p->r = r;
            return 1;
        }
        lf_rollout_fini(&r);
    }
    return 0;
}

/* What stands in out under this round's name is of another key: of settings or weights that are no
 * more. */
static int publish_first(lf_pg *p, lf_err *err)
{
    char *path = lf_pg_rollout_path(p->c->out, p->s.round + 1, ".h5", err);
    lf_buf aside;
    lf_buf_init(&aside);
    int rc = path ? 0 : LF_ENOMEM;
    for (int i = 1; rc == 0 && lf_io_exists(path); i++) {
        lf_buf_clear(&aside);
        lf_buf_addf(&aside, "%s.other-%d", path, i);
        rc = lf_buf_check(&aside, err);
        if (rc == 0 && !lf_io_exists(aside.data) && rename(path, aside.data) != 0)
            rc = lf_fail_errno(err, "setting aside %s", path);
    }
    if (rc == 0)
        rc = lf_rollout_write(&p->r, path, err);
    lf_buf_fini(&aside);
    free(path);
    return rc;
}

static int publish(lf_pg *p, lf_err *err)
{
    const struct lf_profile_mark m = lf_profile_begin(p->c->profile);
    int rc = lf_run_first(&p->run) ? publish_first(p, err) : 0;
    lf_profile_end(p->c->profile, LF_LANE_SAVE, "rollout file", m);
    return lf_run_agree(&p->run, rc, err);
}

static int begin(lf_pg *p, const char *key, lf_err *err)
{
    lf_rollout_fini(&p->r);
    int rc = lf_rollout_init(&p->r, p->sources, p->n_sources, (size_t)p->c->samples, err);
    p->gen_tokens = 0;
    p->gen_s = p->score_s = p->train_s = p->moved = p->move_s = 0;
    p->r.step = p->s.round + 1;
    memcpy(p->r.key, key, LF_HASH_HEX);
    return rc;
}

static int generate_round(lf_pg *p, const char *key, lf_err *err)
{
    lf_pg_part part;
    int64_t step = p->s.round + 1;
    int rc = begin(p, key, err);
    if (rc != 0)
        return rc;
    rc = lf_run_agree(&p->run, lf_pg_part_open(&part, p, key, err), err);
    if (rc == 0)
        rc = fill_round(p, &part, err);
    p->r.step = step; /* a round of which groups were dropped was made anew */
    memcpy(p->r.key, key, LF_HASH_HEX);
    if (rc == 0)
        rc = shape(p, err);
    if (rc == 0)
        rc = lf_pg_advantages(p, err);
    if (rc == 0)
        rc = publish(p, err);
    if (rc == 0)
        p->s.prompts = p->r.next_prompt;
    lf_pg_part_close(&part);
    return rc || !lf_run_first(&p->run) ? rc : lf_pg_part_remove(p, step, err);
}

/* The round of another run: its completions and scores; the rest is computed here. */
static int replay_round(lf_pg *p, const char *key, lf_err *err)
{
    char *path = lf_pg_rollout_path(p->c->replay, p->s.round + 1, ".h5", err);
    lf_rollout r = {0};
    int rc = path ? lf_rollout_read(&r, path, err) : LF_ENOMEM;
    if (rc == 0 && (strcmp(r.sources, p->sources) != 0 || r.group != (size_t)p->c->samples))
        rc = lf_fail(err, LF_EINVAL,
                     "%s has groups of %zu scored by '%s', this run groups of %lld scored by '%s'",
                     path, r.group, r.sources, (long long)p->c->samples, p->sources);
    for (size_t i = 0; i < r.n && rc == 0; i++)
        if (lf_rollout_len(&r, i) > (size_t)p->context ||
            r.doc[i] >= lf_shardset_get_info(p->data)->n_docs)
            rc = lf_fail(
                err, LF_EINVAL,
                "%s: sequence %zu is longer than max_prompt + max_tokens, or not of this data",
                path, i);
    for (size_t i = 0; rc == 0 && i < r.offsets[r.n]; i++)
        if (r.tokens[i] < 0 || r.tokens[i] >= p->mc.vocab)
            rc = lf_fail(err, LF_EINVAL, "%s: token %d is outside the model's vocabulary of %lld",
                         path, (int)r.tokens[i], (long long)p->mc.vocab);
    if (rc == 0)
        rc = begin(p, key, err);
    rc = lf_run_agree(&p->run, rc, err);
    free(path);
    if (rc != 0) {
        lf_rollout_fini(&r);
        return rc;
    }
    lf_rollout_fini(&p->r);
    p->r = r;
    p->r.step = p->s.round + 1;
    memcpy(p->r.key, key, LF_HASH_HEX);
    p->s.prompts = r.next_prompt;
    sum_scores(p, 0);
    rc = shape(p, err);
    if (rc == 0)
        rc = lf_pg_advantages(p, err);
    return rc != 0 ? rc : publish(p, err);
}

/* All ranks see the file of the round, or none does. */
static int all_found(const lf_pg *p, int64_t found, lf_err *err)
{
    int64_t v[] = {found, -found};
    int rc = p->run.comm ? lf_comm_all_reduce(p->run.comm, v, 2, LF_COMM_I64, LF_COMM_MAX, err) : 0;
    return rc || v[0] == -v[1] ? rc
                               : lf_fail(err, LF_EIO,
                                         "some ranks see the rollout of round %lld and others do "
                                         "not: out must be on a filesystem that all share",
                                         (long long)p->s.round + 1);
}

int lf_pg_rollout(lf_pg *p, lf_err *err)
{
    char key[LF_HASH_HEX];
    bool under_way = p->s.done > 0;
    int rc = 0;
    if (under_way)
        memcpy(key, p->s.key, sizeof key);
    else
        rc = lf_pg_key(key, p, err);
    int found = rc != 0 ? rc : find_published(p, key, err);
    rc = lf_run_agree(&p->run, found < 0 ? found : 0, err);
    if (rc == 0)
        rc = all_found(p, found, err);
    if (rc != 0)
        return rc;
    if (found) {
        memcpy(p->s.key, key, sizeof key);
        if (!under_way) {
            for (size_t i = 0; i < p->r.n; i++)
                lf_running_add(&p->s.scores, p->r.score[i]);
            p->s.prompts = p->r.next_prompt;
        }
        lf_run_log(&p->run, 2, "round %lld: its rollout is there already",
                   (long long)p->s.round + 1);
        return lf_pg_round_statistics(p, err);
    }
    if (under_way)
        return lf_fail(err, LF_ENOENT,
                       "the rollout of round %lld, which the checkpoint is in the middle of, is "
                       "not in out nor in resume_from "
                       "(rollouts/step-%08lld.h5 with key %.12s...)",
                       (long long)p->s.round + 1, (long long)p->s.round + 1, key);
    rc = p->c->replay ? replay_round(p, key, err) : generate_round(p, key, err);
    if (rc == 0) {
        memcpy(p->s.key, key, sizeof key);
        rc = lf_pg_round_statistics(p, err);
    }
    return rc;
}
