/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores of pairs between steps: see scored.h. */
#include "engine/post/scored.h"

#include <stdio.h>
#include <stdlib.h>

#include "engine/base/mem.h"
#include "engine/infer/group.h"
#include "engine/model/decoder.h"
#include "engine/model/sight.h"
#include "engine/post/rm_score.h"
#include "engine/post/sample_lines.h"

#define DOCS 16 /* most answers of a pass */

struct answer {
    lf_rm_text text; /* tokens in the arena */
    size_t prompt;   /* of them */
};

struct lf_scored {
    struct lf_scored_opts o;
    struct lf_train_guest guest;
    const struct lf_guest_host *host;
    lf_rm_scorer *scorer;
    lf_shard_eyes *eyes; /* NULL: there are no pictures */
    lf_exec *ex;
    lf_arena *arena;
    struct answer *answer; /* [n], chosen and rejected in turn */
    size_t n;
    lf_rm_text *texts; /* [n] */
    float *score;      /* [n] */
    lf_buf lines;
};

static const char *const metrics[] = {"sample_accuracy", "sample_margin"};

static int plan(void *user, const lf_decoder *d, lf_pstore *ps, lf_plan *p, lf_err *err)
{
    lf_scored *s = user;
    const struct lf_rm_scorer_opts o = {.max_context = s->o.context,
                                        .rows = s->o.context,
                                        .docs = DOCS,
                                        .patches =
                                            lf_decoder_config(d)->vision.family ? s->o.patches : 0,
                                        .tiles = s->o.tiles,
                                        .eras = 1};
    return lf_rm_scorer_plan(&s->scorer, p, ps, d, &o, err);
}

static void leave(void *user)
{
    lf_scored *s = user;
    lf_rm_scorer_destroy(s->scorer);
    s->scorer = NULL;
}

/* ---- pairs ---- */

/* Set k of the host, and a document of it. */
static bool fits(const lf_scored *s, size_t k, uint64_t doc)
{
    const uint64_t n = lf_shardset_doc_len(s->host->docs[k], doc);
    const struct lf_pictures_size size =
        s->eyes ? lf_pictures_size(lf_shard_eyes_pictures(s->eyes), lf_shard_eyes_doc(k, doc))
                : (struct lf_pictures_size){0};
    const int64_t tiles =
        s->eyes ? lf_sight_bounds(s->host->model, s->o.patches, s->o.tiles, 1).vision.images - 1
                : 0;
    return n > 0 && n <= (uint64_t)s->o.context && size.patches <= s->o.patches &&
           size.tiles <= tiles;
}

static int add_answer(lf_scored *s, size_t k, uint64_t doc, lf_err *err)
{
    const lf_shardset *set = s->host->docs[k];
    struct answer *a = &s->answer[s->n];
    const size_t n = lf_shardset_doc_len(set, doc);
    int32_t *ids = lf_arena_alloc(s->arena, n, sizeof *ids, err);
    int rc = ids ? lf_shardset_read(set, doc, 0, n, ids, err) : LF_ENOMEM;
    if (rc != 0)
        return rc;
    while (a->prompt < n && !lf_shardset_trained(set, doc, a->prompt))
        a->prompt++;
    a->text = s->texts[s->n] = (lf_rm_text){.tokens = ids,
                                            .n = n,
                                            .sees = s->eyes && lf_shardset_pictures(set, doc) > 0,
                                            .doc = lf_shard_eyes_doc(k, doc)};
    s->n++;
    return 0;
}

static int read_pairs(lf_scored *s, lf_err *err)
{
    const struct lf_guest_host *h = s->host;
    const size_t most = 2 * (size_t)s->o.rows;
    s->answer = lf_calloc(most, sizeof *s->answer, err);
    s->texts = lf_calloc(most, sizeof *s->texts, err);
    s->score = lf_calloc(most, sizeof *s->score, err);
    int rc = s->answer && s->texts && s->score ? 0 : LF_ENOMEM;
    for (size_t k = 0; k < h->n_docs && rc == 0; k++) {
        const lf_shardset *set = h->docs[k];
        const uint64_t docs = lf_shardset_get_info(set)->n_docs;
        for (uint64_t d = 0; d + 1 < docs && s->n < most && rc == 0; d += 2) {
            if (!fits(s, k, d) || !fits(s, k, d + 1))
                continue;
            rc = add_answer(s, k, d, err);
            if (rc == 0)
                rc = add_answer(s, k, d + 1, err);
        }
    }
    return rc == 0 && !s->n ? lf_fail(err, LF_EINVAL,
                                      "samples: no data has a valid split with pairs to score: "
                                      "give valid_data")
                            : rc;
}

static int open_eyes(lf_scored *s, lf_err *err)
{
    const struct lf_guest_host *h = s->host;
    if (!s->o.patches)
        return 0;
    int rc = lf_shard_eyes_open(&s->eyes, h->docs, h->n_docs, "valid_data", h->model, err);
    if (rc == 0 && s->eyes)
        lf_rm_scorer_see(s->scorer, lf_shard_eyes_pictures(s->eyes));
    return rc;
}

static int bind(void *user, const struct lf_guest_host *host, lf_exec *ex, lf_back *back,
                lf_err *err)
{
    lf_scored *s = user;
    (void)back;
    s->host = host;
    s->ex = ex;
    int rc = host->draws ? open_eyes(s, err) : 0;
    return rc != 0 || !host->draws ? rc : read_pairs(s, err);
}

/* ---- a visit ---- */

static int add_text(lf_scored *s, const struct answer *a, lf_err *err)
{
    lf_buf text;
    lf_buf_init(&text);
    int rc = s->o.tok ? lf_tokenizer_decode(s->o.tok, (const uint32_t *)a->text.tokens + a->prompt,
                                            a->text.n - a->prompt, true, &text, err)
                      : 0;
    lf_buf_adds(&s->lines, ",\"text\":");
    lf_buf_add_json(&s->lines, text.len ? text.data : "", text.len);
    lf_buf_fini(&text);
    return rc;
}

static int add_line(lf_scored *s, int64_t step, size_t i, lf_err *err)
{
    const struct answer *a = &s->answer[i];
    lf_buf *b = &s->lines;
    lf_buf_addf(b, "{\"step\":%lld", (long long)step);
    int rc = lf_sample_add_prompt(b, s->o.tok, a->text.tokens, a->prompt, err);
    lf_buf_addf(b, ",\"id\":\"valid-%zu\",\"sample\":%zu,\"answer\":\"%s\",\"prompt_tokens\":%zu",
                i / 2 + 1, i % 2, i % 2 ? "rejected" : "chosen", a->prompt);
    if (rc == 0)
        rc = add_text(s, a, err);
    lf_buf_adds(b, ",\"token_ids\":[");
    for (size_t k = a->prompt; k < a->text.n; k++)
        lf_buf_addf(b, k > a->prompt ? ",%d" : "%d", (int)a->text.tokens[k]);
    lf_buf_addf(b, "],\"score\":%.9g}\n", (double)s->score[i]);
    return rc;
}

static int visit(void *user, int64_t step, double *values, lf_err *err)
{
    lf_scored *s = user;
    double right = 0, margin = 0;
    const double pairs = (double)(s->n / 2);
    struct lf_group together;
    lf_buf_clear(&s->lines);
    lf_group_begin(&together, s->host->group, NULL);
    int rc = lf_rm_scorer_run(s->scorer, s->ex, s->texts, s->n, s->score, lf_group_stop, err);
    rc = lf_group_end(&together, rc, err);
    for (size_t i = 0; i < s->n && rc == 0; i++)
        rc = add_line(s, step, i, err);
    if (rc != 0)
        return rc;
    for (size_t i = 0; i + 1 < s->n; i += 2) {
        right += s->score[i] > s->score[i + 1];
        margin += (double)s->score[i] - (double)s->score[i + 1];
    }
    values[0] = right / pairs;
    values[1] = margin / pairs;
    lf_run_log(s->host->run, 2, "%g pairs after step %lld: accuracy %.3f, margin %.4f", pairs,
               (long long)step, values[0], values[1]);
    return lf_sample_write(s->host->run, step, &s->lines, err);
}

/* ---- the object ---- */

lf_scored *lf_scored_create(const struct lf_scored_opts *o, lf_err *err)
{
    lf_scored *s = lf_calloc(1, sizeof *s, err);
    if (!s)
        return NULL;
    s->o = *o;
    lf_buf_init(&s->lines);
    s->guest = (struct lf_train_guest){.user = s,
                                       .interval = o->interval,
                                       .plan = plan,
                                       .bind = bind,
                                       .visit = visit,
                                       .leave = leave,
                                       .metrics = metrics,
                                       .n_metrics = sizeof metrics / sizeof *metrics};
    s->arena = lf_arena_create(err);
    if (s->arena)
        return s;
    lf_scored_destroy(s);
    return NULL;
}

void lf_scored_destroy(lf_scored *s)
{
    if (!s)
        return;
    lf_rm_scorer_destroy(s->scorer);
    lf_shard_eyes_close(s->eyes);
    lf_arena_destroy(s->arena);
    lf_buf_fini(&s->lines);
    free(s->answer);
    free(s->texts);
    free(s->score);
    free(s);
}

const struct lf_train_guest *lf_scored_guest(const lf_scored *s)
{
    return &s->guest;
}
