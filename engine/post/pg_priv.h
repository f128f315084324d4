/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the policy-gradient loop, for pg*.c. */
#ifndef LF_POST_PG_PRIV_H
#define LF_POST_PG_PRIV_H

#include "engine/back/nvml.h"
#include "engine/base/frame.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/graph/profile.h"
#include "engine/infer/eyes.h"
#include "engine/infer/loaded.h"
#include "engine/model/flops.h"
#include "engine/post/pg.h"
#include "engine/post/pg_model.h"
#include "engine/post/prompt_sight.h"
#include "engine/post/reshard.h"
#include "engine/post/rm_score.h"
#include "engine/post/rollout.h"
#include "engine/store/shard.h"
#include "engine/train/best.h"
#include "engine/train/devcomm.h"

/* The phase that the watchdog is told for the whole run. */
#define LF_PG_PHASE "policy gradients"

/* Everything that a checkpoint holds beside tensors. */
struct lf_pg_state {
    int64_t round; /* rounds that are done */
    /* trained mini-batches: optimizer steps of the critic; actor_updates: those of the actor, which
     * come after the warm-up */
    int64_t updates;
    int64_t actor_updates;
    int64_t done;    /* trained mini-batches of the current round; 0: it may not have begun */
    int64_t prompts; /* prompts taken so far */
    int64_t episodes, tokens; /* completions trained on, their tokens */
    double beta;
    struct lf_running scores;
    struct lf_scaler actor_scale, critic_scale;
    struct lf_best best;   /* round by best_metric; its step counts updates */
    char key[LF_HASH_HEX]; /* key of the current round, with done > 0 */
    double active_s;       /* seconds trained, over all starts */
};

/* Statistics of a round after generation; functions of the rollout alone. */
struct lf_pg_round_stats {
    double score, score_std, score_min, score_max, reward, reward_min, reward_max;
    double kl, adv, adv_abs, adv_min, adv_max, value, value_min, value_max, ret, ret_min, ret_max,
        explained;
    double prompt_len, prompt_min, prompt_max, len, len_min, len_max, ended_len, ended;
    double flat; /* share of groups whose scores are equal */
    double source[64], source_std[64];
};

/* Sums and settings of an update. */
struct lf_pg_update {
    struct lf_pg_sums pg;
    struct lf_value_sums value;
    double ptx; /* mean loss of a trained token of ptx_data */
    double grad_norm, critic_grad_norm, lr, critic_lr;
    double scale, critic_scale; /* of the losses for these steps */
    /* the first of its round, made from the weights that generated the round */
    bool first;
    double seconds;
    double flops; /* of actor and critic over these sequences, generation not counted */
    bool visited; /* by samples, whose numbers are in guest */
    double guest[LF_TRAIN_GUEST_METRICS];
};

/* The ranks of a model, or of generation. */
struct lf_pg_place {
    bool own; /* a layout of its own; else that of the actor, whose communicators these are */
    struct lf_axes axes;
    struct lf_train_who who; /* this rank's place on it */
    struct lf_axes_comms comms;
    struct lf_devcomm dev; /* opened where a model is connected with it */
};

typedef struct lf_pg {
    const struct lf_pg_config *c;
    lf_run run;
    struct lf_train_who who;    /* the place of this rank on the axes of the run */
    struct lf_axes_comms comms; /* ranks by axis; data NULL: one rank */
    struct lf_devcomm dev;      /* gradients between ranks */
    struct lf_pg_place at[LF_PG_PLACES];
    struct lf_loaded_ranks reward_with; /* how the reward model is divided */
    lf_shardset *data;
    uint64_t *docs; /* documents that are short enough */
    uint64_t n_docs;
    lf_shardset *ptx;
    uint64_t *ptx_docs, n_ptx; /* documents with a token to predict */
    int64_t context, rows;
    int64_t longest;              /* prompt */
    lf_shard_eyes *eyes;          /* NULL: neither prompts nor ptx have pictures */
    lf_gen_eyes gen_eyes;         /* of prompts, for generation */
    struct lf_pictures_size seen; /* most of a prompt */
    json_t *hf_config;            /* of a model that sees, as it was published; NULL: none */
    lf_model_config mc;
    lf_back *back;
    double planned; /* bytes: lf_pg_planned, 0: not known */
    lf_nvml *nvml;  /* NULL: no numbers of the GPU; rank 0 */
    lf_pg_model *actor, *ref, *critic;
    lf_pg_model *generator; /* generates, with weights of its own; NULL: the actor does */
    lf_reshard *bring;      /* weights of the actor to it */
    bool brought;           /* all of them, once */
    bool fresh;             /* those that are trained, since they changed */
    double moved;           /* bytes that came to this rank for the current round */
    double move_s;
    bool want_ref, want_critic;
    bool ref_below; /* the reference is the actor without its adapter */
    double peak;    /* FLOP/s of all ranks at most; 0: unknown, or not asked for */
    struct lf_train_flops actor_flops, critic_flops; /* 0 without a critic */
    struct lf_guest_host host;                       /* of samples */
    const lf_shardset *prompts[1];
    lf_cmd *command;
    struct lf_cmd_counts asked; /* by all ranks */
    lf_rm *reward_model;
    char *sources;
    size_t n_sources;
    lf_schedule schedule;
    struct lf_pg_state s;
    lf_rollout r; /* of the current round; n 0: none */
    struct lf_pg_round_stats st;
    double gen_s, score_s, train_s;
    int64_t gen_tokens;
    /* updates and rounds of the newest checkpoint in out; -1: unknown */
    int64_t saved, saved_round;
    lf_early early;           /* the length in rounds, as it stands */
    double session0, active0; /* when this start began to train; active_s then */
    double counted_s;         /* active_s at the end of the last round of this start */
    int64_t here0;            /* rounds then */
} lf_pg;

/* Updates of a whole round of n sequences. */
int64_t lf_pg_updates(const struct lf_pg_config *c, size_t n);

/* pg_setup.c */
int lf_pg_open_data(lf_pg *p, lf_err *err);
int lf_pg_models(lf_pg *p, lf_err *err); /* plans */
/* Reads the weights of a new run, and in every run those of the reference. Collective; a failure is
 * this rank's. */
int lf_pg_weights(lf_pg *p, lf_err *err);
void lf_pg_close(lf_pg *p);

/* pg_see.c: pictures of prompts. */
/* Opens those of the data, when the model is known, and leaves prompts out that have too many. */
int lf_pg_see_open(lf_pg *p, lf_err *err);
int lf_pg_see_plan(lf_pg *p, lf_err *err); /* their bounds, without data */
void lf_pg_see_models(lf_pg *p);           /* gives them to the models that are planned */
int lf_pg_see_reward(lf_pg *p, lf_err *err);
/* Has this document pictures? */
bool lf_pg_sees(const lf_pg *p, uint64_t doc);
/* Says in d that it has the pictures of this document, if there are any. */
void lf_pg_see_doc(const lf_pg *p, struct lf_pg_doc *d, uint64_t doc);
/* Likewise of a document of ptx; what all its pictures are. */
void lf_pg_ptx_see_doc(const lf_pg *p, struct lf_pg_doc *d, uint64_t doc);
struct lf_pictures_size lf_pg_ptx_size(const lf_pg *p, uint64_t doc);
int64_t lf_pg_most_tiles(const lf_pg *p); /* of a micro-batch */
/* What generation needs of the pictures of a prompt, in the arena; *out is NULL: it has none. Jobs
 * with the same *out share their features. */
int lf_pg_sight_of(const struct lf_gen_media **out, const lf_pg *p, uint64_t doc,
                   const lf_gen_job *job, lf_arena *a, lf_err *err);

/* pg_places.c: layouts. */
/* Those of a plan, or before ranks know each other. */
void lf_pg_places_plan(lf_pg *p);
/* Collective. */
int lf_pg_places_open(lf_pg *p, lf_err *err);
int lf_pg_places_check(const lf_pg *p, lf_err *err);
/* Is the tensor axis of one of them another one than training's, so that sums are others? */
bool lf_pg_own_tensor(const lf_pg *p, int i);
/* Of the ranks of a model: this one's place, their communicators, and what sums between them. */
const struct lf_train_who *lf_pg_who(const lf_pg *p, const lf_pg_model *m);
const struct lf_axes_comms *lf_pg_comms(const lf_pg *p, const lf_pg_model *m);
const struct lf_devcomm *lf_pg_dev(const lf_pg *p, const lf_pg_model *m);
/* Connects the models with their ranks, and plans how weights move; collective. */
int lf_pg_places_connect(lf_pg *p, lf_err *err);
/* The model that generates. Before it does, its weights must be those of the actor: lf_pg_bring,
 * collective. Afterwards how many steps a rank makes is its own matter. */
static inline lf_pg_model *lf_pg_generator(const lf_pg *p)
{
    return p->generator ? p->generator : p->actor;
}
int lf_pg_bring(lf_pg *p, lf_err *err);
/* Adds to the fingerprint which layouts there are, and to a plan. */
int lf_pg_places_sign(const lf_pg *p, json_t *fingerprint, lf_err *err);
void lf_pg_places_log(const lf_pg *p);
double lf_pg_places_bytes(const lf_pg *p); /* memory of the host for communicators and messages */
/* What of a GPU's memory NCCL is expected to take for all models; 0 on a CPU. */
double lf_pg_gpu_comm_bytes(const lf_pg *p);
/* failed: some rank has failed. Before the models are closed. */
void lf_pg_places_disconnect(lf_pg *p, bool failed);
void lf_pg_places_close(lf_pg *p);

/* pg_ranks.c: the exchanges of ranks. Each is collective and does nothing with one rank. */
/* The rank of the data axis that a sequence of a round belongs to. Completions of a prompt stay
 * together. Ranks that divide matrices have the same place on that axis, and do the same. */
static inline int lf_pg_owner_at(const lf_pg *p, enum lf_pg_place_of at, size_t index)
{
    return (int)(index / (size_t)p->c->samples % (size_t)p->at[at].who.data_ranks);
}
/* Of those that generate. */
static inline int lf_pg_owner(const lf_pg *p, size_t index)
{
    return lf_pg_owner_at(p, LF_PG_ROLLOUT, index);
}
static inline bool lf_pg_mine(const lf_pg *p, size_t index)
{
    return lf_pg_owner(p, index) == p->at[LF_PG_ROLLOUT].who.data;
}
/* Of those the one that asks for scores and writes what they have found. */
static inline bool lf_pg_speaks(const lf_pg *p)
{
    return p->at[LF_PG_ROLLOUT].who.tensor == 0;
}
/* The turns in which the ranks of a model take n micro-batches: those of the rank with the most. */
static inline int64_t lf_pg_turns(const struct lf_train_who *w, int64_t n)
{
    return (n + w->data_ranks - 1) / w->data_ranks;
}
/* The micro-batch of this rank in turn i. */
static inline int64_t lf_pg_turn(const struct lf_train_who *w, int64_t i)
{
    return i * w->data_ranks + w->data;
}
/* Do all ranks stand at the same place, with the same settings and weights? */
int lf_pg_same(const lf_pg *p, bool done, lf_err *err);
struct lf_pg_part;
struct lf_pg_message {
    int rank; /* of the sender */
    const char *data;
    size_t bytes;
};
/* Reads a message: sequences of [from, to) that belong to the sender, each of at most max_tokens.
 * LF_EFORMAT: it holds anything else. */
int lf_pg_unpack(const lf_pg *p, struct lf_pg_part *part, size_t from, size_t to,
                 const struct lf_pg_message *m, lf_err *err);
/* Sends sequences [from, to) of the current round from the ranks that generated them to all. */
int lf_pg_share_sequences(lf_pg *p, struct lf_pg_part *part, size_t from, size_t to, lf_err *err);
/* Shares the requested scores of sequences [from, r.n). index0 is the number of the first of them
 * in the round. */
int lf_pg_share_scores(lf_pg *p, size_t from, const bool *wanted, size_t index0, lf_err *err);
/* Shares the scores of the reward model, where its ranks are not those that generate: before the
 * call its rank of the sequence has a score, after it all have. */
int lf_pg_share_model(lf_pg *p, size_t from, const bool *wanted, size_t index0, lf_err *err);
/* Fills x[n] on all ranks of a model. Before the call those with one place on the data axis have
 * each number, and the others have 0 in its place. */
int lf_pg_share_floats(const lf_pg *p, const lf_pg_model *m, float *x, size_t n, lf_err *err);
int lf_pg_share_sums(const lf_pg *p, struct lf_pg_update *u, lf_err *err);

/* pg_rollout.c: makes p->r the round after p->s.round. The round is read from its file, continued
 * from its part, or generated; then it is published. LF_EINTR: a stop was requested; the finished
 * sequences are kept in the part. */
int lf_pg_rollout(lf_pg *p, lf_err *err);
/* pg_part.c: the file of an unfinished round. */
struct lf_pg_part_seq {
    uint32_t n;
    bool there, ended, scored;
    int32_t *tokens;
    float *logprob;
    double *score; /* [n_sources] */
};
typedef struct lf_pg_part {
    struct lf_pg_part_seq *seq;
    size_t cap;
    size_t n_sources;
    lf_frame_writer *w;
    char *path;
} lf_pg_part;
/* Reads the files of all ranks and begins that of this rank. */
int lf_pg_part_open(lf_pg_part *f, const lf_pg *p, const char *key, lf_err *err);
int lf_pg_part_add(lf_pg_part *f, size_t index, const int32_t *tokens, const float *logprob,
                   size_t n, bool ended, lf_err *err);
/* Records a sequence that another rank writes into its own file. */
int lf_pg_part_know(lf_pg_part *f, size_t index, const void *tokens, const void *logprob, size_t n,
                    bool ended, lf_err *err);
int lf_pg_part_score(lf_pg_part *f, size_t index, const double *score, lf_err *err);
const struct lf_pg_part_seq *lf_pg_part_at(const lf_pg_part *f, size_t index); /* NULL: not there */
void lf_pg_part_close(lf_pg_part *f);
/* Removes the part files of all ranks from the out directory of this start. */
int lf_pg_part_remove(const lf_pg *p, int64_t round, lf_err *err);
/* "DIR/rollouts/step-NNNNNNNN<ending>", owned. */
char *lf_pg_rollout_path(const char *dir, int64_t round, const char *ending, lf_err *err);

/* pg_reward.c */
int lf_pg_reward_open(lf_pg *p, lf_err *err);
struct lf_rm_opts lf_pg_reward_opts(const lf_pg *p);
/* Opens the reward model, in memory of its own beside the plans of the others. Collective. */
int lf_pg_reward_model(lf_pg *p, lf_err *err);
struct lf_plan_memory; /* engine/graph/plan.h */
/* The memory of a process: all models, and what the target reserves. */
int lf_pg_planned(struct lf_plan_memory *out, lf_pg *p, lf_err *err);
/* Appends the text of a completion. */
int lf_pg_text(const lf_pg *p, const lf_rollout *r, size_t i, lf_buf *out, lf_err *err);
/* Computes score[n_sources] of sequence i of r by every source except the reward model. */
int lf_pg_score_one(lf_pg *p, const lf_rollout *r, size_t i, double *score, lf_err *err);
/* Scores sequences i of [from, r->n) with wanted[i - from] by the reward model, into r->source. */
int lf_pg_score_model(lf_pg *p, lf_rollout *r, size_t from, const bool *wanted, lf_err *err);
double lf_pg_source_weight(const lf_pg *p, size_t k);

/* pg_update.c */
/* Computes reference log-probabilities, values, token rewards and advantages of p->r, and the
 * statistics. */
int lf_pg_advantages(lf_pg *p, lf_err *err);
int lf_pg_round_statistics(lf_pg *p, lf_err *err);
/* Trains mini-batch number k of the round. */
int lf_pg_update_step(lf_pg *p, int64_t k, struct lf_pg_update *u, lf_err *err);

/* pg_ptx.c: documents beside rewards. */
int lf_pg_ptx_open(lf_pg *p, lf_err *err);
/* Leaves out those that no micro-batch holds with their pictures, when p->context is known. */
int lf_pg_ptx_see(lf_pg *p, lf_err *err);
/* Adds the gradients of these documents to those of the current update, of which rc, agreed upon,
 * is the result so far. Collective. */
int lf_pg_ptx_train(lf_pg *p, struct lf_pg_update *u, int rc, lf_err *err);
void lf_pg_ptx_close(lf_pg *p);

/* pg_early.c: the end of a run before its rounds. */
void lf_pg_early_begin(lf_pg *p);
/* Brings the schedule in line with p->early. */
void lf_pg_early_apply(lf_pg *p);
double lf_pg_active_s(const lf_pg *p); /* by now */
enum lf_run_end lf_pg_early_clock(const lf_pg *p);
/* Between two rounds: does what is asked for. */
void lf_pg_early_meet(lf_pg *p, enum lf_run_end ask);

/* Does this rank take part in saving? */
static inline bool lf_pg_saves(const lf_pg *p)
{
    return lf_run_first(&p->run) || p->run.parts;
}

/* pg_state.c */
/* Returns what state.json holds; NULL with err set on failure. */
json_t *lf_pg_state_json(const lf_pg *p, lf_err *err);
/* rc: how this rank fared so far. Collective. */
int lf_pg_writer_open(lf_pg *p, int rc, lf_err *err);
/* With zero the run goes on after a checkpoint that was saved now and then and could not be. */
enum lf_pg_saving { LF_PG_NOW_AND_THEN, LF_PG_STOP, LF_PG_FINAL };
int lf_pg_save(lf_pg *p, enum lf_pg_saving how, lf_err *err); /* collective */
int lf_pg_start(lf_pg *p, bool *done, lf_err *err);
/* pg_key.c: hash of everything that a round depends on, whatever ranks divide. Collective. */
int lf_pg_key(char key[LF_HASH_HEX], const lf_pg *p, lf_err *err);

/* pg_measure.c: the best round, and samples. Each is collective. */
/* Judges the round that was made, by the weights as they are. */
int lf_pg_judge(lf_pg *p, lf_err *err);
int lf_pg_publish_best(lf_pg *p, lf_err *err);
/* Before the first round. */
int lf_pg_samples_begin(lf_pg *p, lf_err *err);
/* After the last update of a round, where samples are due. */
int lf_pg_samples_visit(lf_pg *p, struct lf_pg_update *u, lf_err *err);

/* pg_report.c */
int lf_pg_report(lf_pg *p, const struct lf_pg_update *u, lf_err *err);
void lf_pg_report_round(const lf_pg *p, const struct lf_pg_update *u);
int lf_pg_show(const lf_pg *p, lf_err *err);

#endif
