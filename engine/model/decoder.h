/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder core: one table of parameters and one builder that reads like the mathematics, for
 * every family of config.h. Training, scoring, prefill and decode use the same blocks with
 * different attention and heads.
 *
 * Logical tensors, matrices [out, in] row-major (group in brackets: its members lie next to each
 * other in the store):
 *
 *     embed.weight [V, E]                              pos_embed.weight [P, C]
 *     type_embed.weight [token_types, C]               embed_norm.{weight,bias} [C]
 *     embed_in.weight [C, E], embed_out.weight [E, C]  with embed_dim only, else E = C
 *     layers.N.attn_norm.{weight,bias} [C]             layers.N.mlp_norm.{weight,bias} [C]
 *     layers.N.attn.{q,k,v}.{weight,bias} [HD or GD, C]  (group layers.N.attn.qkv)
 *     layers.N.attn.o.{weight,bias} [C, HE]            layers.N.attn.{q,k}_norm.weight [D]
 *                                          (qk_norm_all_heads: [HD] and [GD], divided as q and k)
 *     with kv_lora in place of q, k and v (mla.c):
 *     layers.N.attn.q.weight [HD, C], or with q_lora
 *     layers.N.attn.q_a.weight [q_lora, C]             layers.N.attn.q_a_norm.weight [q_lora]
 *     layers.N.attn.q_b.weight [HD, q_lora]
 *     layers.N.attn.kv_a.weight [kv_lora + rope_dim, C]
 *     layers.N.attn.kv_a_norm.weight [kv_lora]
 *     layers.N.attn.k_b.weight [H nope_dim, kv_lora]   (group layers.N.attn.kv_b)
 *     layers.N.attn.v_b.weight [H v_dim, kv_lora]      (group layers.N.attn.kv_b)
 *     layers.N.attn.gate.{weight,bias} [HD, C]         (attn_gate; group layers.N.attn.qkv)
 *                                  (no k, v, k_norm in kv_shared_layers; keys_as_values: no v)
 *     of layers that scan (mixer.c), H = scan_heads, G = scan_groups, K = scan_conv:
 *     layers.N.scan.{q,k}.{weight,bias} [G Dk, C], .v, .z [H Dv, C], .a, .b [H, C]
 *                                  (group layers.N.scan.in; z, a, b where the kind has them)
 *     layers.N.scan.conv_{q,k}.{weight [G Dk, K], bias}, .conv_v [H Dv, K]
 *                                  (group layers.N.scan.conv without scan_scales)
 *     layers.N.scan.{f_a,g_a}.weight [scan_rank, C]    (KDA; group layers.N.scan.fg_a)
 *     layers.N.scan.f_b.weight [H Dk, scan_rank], .g_b [H Dv, scan_rank]
 *     layers.N.scan.a_log [H], .dt_bias [H] (KDA: [H Dk]), .skip [H] (Mamba-2)
 *     layers.N.scan.norm.weight [H Dv], or [Dv] of each head
 *     layers.N.scan.o.{weight [C, H Dv], bias [C]}
 *     layers.N.conv.{b,c,x}.{weight,bias} [C, C]       (short convolution; group layers.N.conv.in)
 *     layers.N.conv.filter.{weight [C, K], bias [C]}, layers.N.conv.o.{weight [C, C], bias}
 *     layers.N.mlp.{gate,up}.{weight,bias} [F, C]      (group layers.N.mlp.gate_up; plain: only up)
 *     layers.N.mlp.down.{weight,bias} [C, F]
 *     layers.N.{attn,mlp}_post_norm.{weight,bias} [C]  (sandwich)
 *     layers.N.mlp.out_norm, .moe.norm, .moe.out_norm  (layer_mlps b: mlp, experts, their sum)
 *     layers.N.moe.router.norm.weight [C], .gain [E]   (router_norm, expert_gain)
 *     layers.N.per_layer.in.weight [P, C], .out [C, P], .norm.weight [C]   (per_layer.c)
 *     per_layer.{embed.weight [V, LP], project.weight [LP, C], norm.weight [P]}
 *                                          (per_layer_vocab rows in place of V)
 *     altup.in.I.weight, altup.out.I.weight [C, C], I = 1 ... N - 1   (group altup.in)
 *     layers.N.altup.norm.weight [C], .router.weight [N, C], .predict.weight [N N, N],
 *     .correct.weight [N, N], .gain [C]                (altup.c, N = altup_streams)
 *     layers.N.laurel.in.weight [laurel_rank, C], .out [C, laurel_rank], .norm.weight [C]
 *     layers.N.gain [1]                                (layer_gain; frozen)
 *     final_norm.{weight,bias} [C]
 *     layers.N.mtp.{embed_norm,hidden_norm,final_norm}.{weight,bias} [C], layers.N.mtp.join.weight
 *     [C, 2C], and those of a layer, for N = L ... L + mtp_layers - 1 (mtp.c)
 *     head_in.{weight [C, C], bias [C]}, head_norm.{weight,bias} [C]   (head_transform)
 *     head.{weight [V, E], bias [V]}                   weight absent when tied
 *     label_in.{weight [E, E], bias [E]}, nsp.{weight [2, E], bias [2]}   (nsp_head: nsp.c)
 *     score.weight [1, E]                              (output = score: in place of head.*)
 *     label_in.{weight [E, E], bias [E]}, labels.{weight [N, E], bias [N]}
 *                                          (output = labels, in place of head.*: labels.c)
 *
 * A layer is two branches f, a mixer (attention, or another of mixer.c) and an MLP, each joined to
 * the stream x by `block`:
 *     pre       x + f(norm x)                       post   norm(x + f(x))
 *     sandwich  x + post_norm(f(norm x))            alpha  h = norm x;  residual_alpha * h + f(h)
 *     out       x + norm(f(x))
 *     out_attention   out in layers that attend, pre in the others
 * (residual_factors has numbers for each kind of branch) or, with parallel_block, x + attn(norm x)
 * + mlp(norm x). residual_scale multiplies what is added to x. An MLP and experts side by side are
 * norm(mlp(norm x)) + norm(experts(norm x)), with three norms of their own. Behind both branches
 * stand the channels of per_layer.c, and a number that multiplies all (layer_gain).
 *
 * Weight decay applies to matrices, not to vectors or taps of convolutions. Initial values depend
 * on the seed and a tensor's name only.
 *
 * Inputs of the graphs have one row per token unless said otherwise: tokens, positions i32 [R, 1];
 * targets i32 [R, 1] (-1: none); cu_seqlens i32 [n_docs + 1, 1]; with token_types also types i32
 * [R, 1]. Where heads of mtp_layers are trained, mtp.K.tokens and mtp.K.targets i32 [R, 1] for K =
 * 1, 2 ... are tokens and targets of the row K further on (lf_decoder_ahead); where nsp_head is,
 * nsp.targets i32 [R, 1] are classes of pairs (nsp.c). Training with dropout also has samples i64
 * [R, 1], the global sample of the row, and offsets i32 [R, 1], its place in the sample.
 * (Positions restart in each document, so they would repeat random decisions.)
 */
#ifndef LF_MODEL_DECODER_H
#define LF_MODEL_DECODER_H

#include "engine/graph/exec.h"
#include "engine/graph/graph.h"
#include "engine/model/config.h"
#include "engine/model/vision.h"

typedef struct lf_decoder lf_decoder;

/* Creates a decoder; c is copied. positions is the length of the tables: every position that is fed
 * must be below it. The decoder must outlive every plan with its graphs, because constants are
 * filled from it. LF_EINVAL: positions exceeds max_positions, or vocab is 0. LF_ENOTSUP: the
 * rope_scaling of the description cannot do this length. */
lf_decoder *lf_decoder_create(const lf_model_config *c, int64_t positions, lf_err *err);
void lf_decoder_destroy(lf_decoder *d);
const lf_model_config *lf_decoder_config(const lf_decoder *d);

/* The heads of mtp_layers, where there are any, are trained: loss graphs for training have their
 * losses. Comes before anything is declared; else these tensors are frozen, and no graph of packed
 * documents reads them. */
void lf_decoder_train_mtp(lf_decoder *d);
/* Heads that the loss graphs for training have. */
int64_t lf_decoder_mtp(const lf_decoder *d);
/* The same of nsp_head (nsp.c): trained, its loss is in all loss graphs; else it is frozen. */
void lf_decoder_train_nsp(lf_decoder *d);
bool lf_decoder_nsp(const lf_decoder *d);
/* Losses beyond the model's own that have sums in the step record: of either. */
int64_t lf_decoder_more(const lf_decoder *d);

/* Declares every tensor of the table in ps. */
int lf_decoder_declare(const lf_decoder *d, lf_pstore *ps, lf_err *err);

/* A part of the model that runs as a graph of its own: a chunk of a pipeline (Huang et al. 2019,
 * GPipe; Narayanan et al. 2021). Chunks in their order are the model, and give its bits. What goes
 * from one to the next (graph.h, lf_cut_in and lf_cut_out), under the same name on both sides:
 *
 *     x [R, C]           forward, compute type: the stream behind the layers so far
 *     dx [R, C]          backward, compute type: the gradient of the whole loss by x
 *     source [S, C]      forward, compute type, of encoder-decoders: the encoder's stream behind
 *                        the layers so far, or, behind the encoder, what it gave
 *     dsource [S, C]     backward, compute type: the gradient of the whole loss by it
 *     load [2, E]        forward, f32: the balance of experts over the layers so far
 *     load_total [2, E]  backward, f32: that over all layers of the model
 *
 * The last two are there where a training graph has experts on both sides of the cut, load_total
 * only with router_aux > 0. Of encoder-decoders the encoder's layers come first. Both embeddings
 * are in the first chunk, so that what the decoder reads goes through those of the encoder, and
 * source is there up to the last layer. tokens, types and noise are inputs of the first chunk,
 * targets of the last one, and all others (positions, cu_seqlens, prefix, runs ...) of every chunk:
 * no layer of any family reads the embedding but through x. source_tokens and source_positions are
 * inputs of the first chunk. */
struct lf_decoder_chunk {
    int64_t begin, end; /* layers [begin, end), as lf_model_depth counts; there may be none */
    bool first;         /* it has all that is before the layers: embedding, its norm and dropout */
    bool last;          /* it has all that is behind them: final norm, head and loss */
    /* Nothing is trained in chunks before it: dx and load_total go no further. */
    bool frozen_before;
    /* Nothing in it either: its graph of training has no backward pass. */
    bool frozen;
};
/* Declares the tensors of n chunks alone, in the order of the whole model and with its initial
 * values. A tied head, and heads of mtp_layers that are trained, need embed.weight in the last
 * chunk too. LF_EINVAL: a chunk is not of this model. */
int lf_decoder_declare_chunks(const lf_decoder *d, lf_pstore *ps,
                              const struct lf_decoder_chunk *chunks, int n, lf_err *err);
/* A tensor that two chunks hold. Both update it with the sum of both gradients, that of `other`
 * first, as the whole model adds them. Checkpoints and the norm of the gradient take it from
 * `owner` alone. */
struct lf_decoder_tied {
    const char *name;
    int owner, other; /* numbers of chunks */
};
enum { LF_DECODER_TIED = 1 }; /* the most that a model has */
/* Are rows of sources inputs of a chunk? Of encoder-decoders: of the first, and of all with layers
 * of their own or behind them. */
bool lf_decoder_reads_source(const lf_model_config *c, const struct lf_decoder_chunk *k);
/* A small tensor that every chunk holds which has layers of its stack: with position = relative,
 * where all layers of a stack share one table. The gradient is the sum of those of all chunks. */
struct lf_decoder_spread {
    const char *name;
    int64_t elements;
    bool source; /* of the encoder, else of the decoder */
};
enum { LF_DECODER_SPREAD = 2 }; /* the most that a model has */
/* Writes them; returns how many. */
int lf_decoder_spread(const lf_model_config *c, struct lf_decoder_spread out[LF_DECODER_SPREAD]);
/* Has a chunk layers of the encoder (source), or of the decoder? */
bool lf_decoder_has_layers(const lf_model_config *c, const struct lf_decoder_chunk *k, bool source);
/* Writes the tensors that different chunks of a cut model hold; returns how many. */
int lf_decoder_tied(const lf_decoder *d, const struct lf_decoder_chunk *chunks, int n,
                    struct lf_decoder_tied out[LF_DECODER_TIED]);

/* The layers that multiply in 8 bits where the plan has fp8 (plan.h): all of each kind except the
 * first and the last `edges` layers of the whole model. Embedding, head, routers and experts never
 * do. */
struct lf_fp8_layers {
    bool attention; /* qkv, o */
    bool mlp;       /* gate, up, down; in mixtures those of the shared expert */
    int edges;
};
/* Marks these layers in a store whose tensors are declared, be they those of a chunk. LF_EINVAL: no
 * layer of the model is left. */
int lf_decoder_mark_fp8(const lf_decoder *d, lf_pstore *ps, const struct lf_fp8_layers *f,
                        lf_err *err);

/* Static bounds of the pictures of a graph of a model that sees (composed.h). */
struct lf_decoder_media {
    struct lf_vision_rows vision;
    int64_t features; /* F: most rows behind the projector */
    int64_t selected; /* entries of media.select: the rows that are selected */
    int64_t
        placed;    /* entries of media.place: F, or several for each where features are resampled */
    int64_t lines; /* most newlines */
    /* rows of a rank, where ranks of the context axis divide those of the micro-batch; 0: all */
    int64_t own_rows;
    bool given;   /* features are inputs: no encoder is in the graph */
    bool encoded; /* the encoder's rows are inputs, and its projector is in the graph */
    enum lf_dtype encoded_type; /* of these: the compute type of the plan */
    /* adapters drop out what they read in training, so that rows of the encoder and features have
     * samples and offsets (composed.h) */
    bool drops;
};
/* Is media.select an input? */
bool lf_decoder_selects(const lf_model_config *c);

struct lf_decoder_rows {
    int64_t rows;    /* R: packed tokens */
    int64_t n_docs;  /* most documents in cu_seqlens */
    int64_t max_doc; /* longest document; 0 = rows */
    /* of an adapted model (adapter.h): uses the base alone, such as for a reference policy */
    bool adapter_off;
    bool noise; /* training graphs: input "noise" f32 [R, C] is added to the embeddings */
    /* loss graphs: output "entropy" f32 [R, 1] of the predictions in nats, 0 where nothing is
     * trained */
    bool entropy;
    /* NULL: the graph is of the whole model. Outputs and targets are those of the last chunk */
    const struct lf_decoder_chunk *chunk;
    const struct lf_decoder_media *media; /* NULL: there are no pictures */
    /* of encoder-decoders: rows of packed source tokens, and the longest source; 0 = source_rows.
     * Further inputs are then source_tokens, source_positions i32 [source_rows, 1] and
     * source_cu_seqlens i32 [n_docs + 1, 1], whose document i is the source of document i; with
     * dropout source_samples i64 and source_offsets i32 [source_rows, 1] too */
    int64_t source_rows, max_source;
};

/* The loss over packed documents. train: the graph is for differentiation and has the dropouts of
 * the description. */
lf_graph *lf_decoder_loss_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                                const struct lf_decoder_rows *r, bool train, lf_err *err);
bool lf_decoder_has_dropout(const lf_model_config *c);
/* How many ranks, of those of the context axis that are neighbours, can exchange heads of attention
 * (graph/layout.h): the most that divide all kinds of heads of a rank of `tensor`. */
int lf_decoder_context_heads(const lf_model_config *c, int tensor, int context);
/* How many rows a row sees at most, itself too, where every layer has a window or chunks and no
 * document a prefix; 0: no bound. */
int64_t lf_decoder_reach(const lf_model_config *c);
/* Have at least half of the layers that attend a window, or chunks, of at most `most` rows, and no
 * document a prefix? */
bool lf_decoder_mostly_near(const lf_model_config *c, int64_t most);
/* Do its training graphs make random decisions, so that samples and offsets are inputs? */
bool lf_decoder_is_random(const lf_decoder *d);
/* Fills out [rows] with the value of the row `ahead` further on of the same document, `none` behind
 * its end. Rows behind the last document get none. */
void lf_decoder_ahead(const int32_t *of, const int32_t *cu_seqlens, int64_t n_docs, int64_t rows,
                      int64_t ahead, int32_t none, int32_t *out);
/* Computes prefix[d] for documents of rows [cu_seqlens[d], cu_seqlens[d + 1]) from their targets:
 * the rows before the first that is trained, and that one too with `last` (prefix_last of
 * config.h); 0 where no token is trained. */
void lf_decoder_prefixes(const int32_t *targets, const int32_t *cu_seqlens, int64_t n_docs,
                         bool last, int32_t *prefix);
/* Compute the two positions of rope2d: for the token at `position` of a document with this prefix,
 * and for all rows of documents. */
void lf_decoder_turn(int64_t position, int64_t prefix, int32_t *turn, int32_t *block);
void lf_decoder_turns(const int32_t *cu_seqlens, int64_t n_docs, const int32_t *prefix,
                      int64_t rows, int32_t *turns, int32_t *blocks);
/* With mask = image_blocks runs i32 [R, 2] is an input of every graph: of each token the position
 * in its document of the first token of its block and that behind the last. A block is neighbouring
 * tokens `image` of one document, each of which sees those behind it too; a window cuts what is
 * before a token, there as well. As in transformers tokens of two pictures without a token between
 * them are one block. Any other token is alone: (i, i + 1). positions i32 [rows] counts in each
 * document from 0. With mask = both and sliding_window = W the same input has (i - W + 1, i + W) of
 * each token, cut at the ends of its document, and layers with a window read it. */
void lf_decoder_runs(const int32_t *tokens, const int32_t *positions, int64_t rows, int64_t image,
                     int32_t *runs);
/* Returns the length at which longrope switches: all tokens of a longer document turn by the long
 * factors, those of other documents by the short ones. 0: there is one table, because no document
 * can be longer or because there is no longrope. Where it is not 0, turns i32 [R, 1] is an input of
 * every graph: the row of the tables by which a token turns. */
int64_t lf_decoder_switch(const lf_decoder *d);
/* Returns the row for a token at `position` of a long or a short document. */
int32_t lf_decoder_table_row(const lf_decoder *d, int64_t position, bool is_long);
/* Packed documents; borrowed. */
struct lf_decoder_docs {
    int slot;                  /* of the chain */
    const int32_t *cu_seqlens; /* [n + 1] */
    int64_t n;
    int64_t rows; /* rows of the input; those behind the last document are padding */
    /* rows own[0 ... own_rows - 1] of these alone are those of the graph, where ranks divide rows;
     * own NULL: all are */
    const int32_t *own;
    int64_t own_rows;
    /* places and runs come from elsewhere (sight.h); else the three positions are equal, and every
     * token is alone */
    bool pictures;
    /* [n] the length that each document counts as, such as the longest that it could have had when
     * it was generated; NULL: its rows */
    const int32_t *reach;
    const int32_t *types; /* [rows] below token_types; NULL: all are 0 */
    bool inner;           /* of a chunk that is not the first, which reads no types */
};
/* Writes the types of pairs of texts: 0 up to the first token `separator` of a document, and with
 * it, 1 behind it. types covers all documents. */
void lf_decoder_second(const int32_t *tokens, const int32_t *cu_seqlens, int64_t n_docs,
                       int64_t separator, int32_t *types);
/* Writes their turns, places, runs and types, where these are inputs. */
int lf_decoder_write_turns(const lf_decoder *d, lf_exec *ex, int chain,
                           const struct lf_decoder_docs *docs, lf_err *err);
/* Writes what mask = prefix lets each document look at, and where rope2d counts from; of other
 * masks nothing. targets [rows]: -1 where none is trained; scratch: lf_decoder_prefix_room
 * numbers. */
int lf_decoder_write_prefixes(const lf_decoder *d, lf_exec *ex, int chain,
                              const struct lf_decoder_docs *docs, const int32_t *targets,
                              int32_t *scratch, lf_err *err);
static inline size_t lf_decoder_prefix_room(int64_t docs, int64_t rows)
{
    return (size_t)(docs + 2 * rows);
}
/* Scoring: outputs "loss" (-log p of the target), "lse" and "argmax" per row, beside the sums of
 * the step record. */
lf_graph *lf_decoder_score_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                                 const struct lf_decoder_rows *r, lf_err *err);
/* Heads whose losses the host computes outside of the graph. */
struct lf_decoder_heads {
    /* outputs take their gradients from inputs; otherwise forward alone (reference, values) */
    bool train;
    /* with train: the dropouts of the description and of an adapter, as in lf_decoder_loss_graph.
     * Without dropout two passes over the same tokens are the same function, which a ratio of
     * policies needs */
    bool dropout;
    bool logp; /* output "lp" f32 [R, 1]: log p of targets (0 where -1); gradient input "dlp" */
    /* with logp: output "entropy" f32 [R, 1] of its rows, in nats; gradient input "dentropy" */
    bool entropy;
    /* output "score" f32 [R, 1]: x w^T with w = score.weight [1, E], which output = score declares,
     * or [R, N] of N labels (labels.c), which output = labels has;
     * gradient input "dscore". The score of a text by a reward model is that of its last row,
     * cu_seqlens[d + 1] - 1 */
    bool score;
    /* output "hidden" f32 [R, E]: what a head reads; gradient input "dhidden" */
    bool hidden;
    /* 1 / T of logp and entropy; 0: 1. Training on samples drawn at T uses the same T here. */
    double inv_temperature;
};
/* Log-probabilities, entropies and scores of packed documents. In invariant numerics lp has the
 * bits of -loss of the score graph. For the same T it has the bits that a generator gets from the
 * logits of the paged graph with lf_k_logit_stats. */
lf_graph *lf_decoder_heads_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                                 const struct lf_decoder_rows *r, const struct lf_decoder_heads *h,
                                 lf_err *err);
/* The logits of every row: output "logits" f32 [R, V], before the soft cap of the description
 * (lf_decoder_softcap). */
lf_graph *lf_decoder_logits_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                                  const struct lf_decoder_rows *r, lf_err *err);

/* Generation over a paged cache. Row r is position positions[r] of sequence seq[r] (-1: unused
 * row). It stores its key and value and sees positions 0..positions[r] of its sequence. Prefill and
 * decode differ in `rows` only. Further inputs are seq i32 [R, 1]; table i32 [n_seq, max_pages];
 * prefix, here i32 [n_seq, 1]; and select i32 [n_select, 1], the rows whose logits are needed. A
 * prefix, and a block of runs, is fed in one step, because its tokens see each other. Output
 * "logits" f32 [n_select, V] is before soft cap and temperature; lf_k_logit_stats applies the soft
 * cap, then 1 / T, as in training, and sums up. States kv.N.k and kv.N.v [n_pages * page_tokens,
 * G*D] are shared by name. */
struct lf_decoder_paged {
    int64_t rows, n_seq, max_pages, n_pages, page_tokens, n_select;
    enum lf_dtype cache;  /* the compute type */
    enum lf_numeric mode; /* of the plan: what states of scans hold follows from it */
    bool adapter_off;     /* as of lf_decoder_rows */
    bool media;           /* features of pictures are inputs (composed.h) */
    bool hidden;          /* output "hidden" [R, C], compute type: what the final norm gives */
    bool latent;          /* the cache keeps latents (lf_decoder_keeps_latents) */
    /* of encoder-decoders: rows of the graph of sources; pages for sources, and the most of one */
    int64_t source_rows, n_source_pages, max_source_pages;
};
/* Of encoder-decoders, once for a request: encodes the sources of sequences and stores what the
 * decoder's layers read of them, in the states kv.N.ck and kv.N.cv [n_source_pages * page_tokens,
 * H*D] of each layer N. Inputs are source_tokens, source_positions and source_seq i32 [source_rows,
 * 1] (source_seq -1: unused row), source_cu_seqlens i32 [n_seq + 1, 1] and source_table i32 [n_seq,
 * max_source_pages]. It has no output. The paged graph reads these states by source_table too, and
 * has the input source_last i32 [rows, 1]: of each row the tokens of its sequence's source, less
 * one. LF_EINVAL: there is no encoder. */
lf_graph *lf_decoder_source_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                                  const struct lf_decoder_paged *p, lf_err *err);
/* May the cache keep latents in place of keys and values? With kv_lora a layer then has the state
 * kv.N.latent [n_pages * page_tokens, kv_lora + rope_dim], and k_b and v_b multiply queries and
 * results (mla.c). That sums in another order than training, so no plan with invariant numerics
 * may; nor one where kv_b has an adapter, or whose attention does not take rows of this width. CPUs
 * only. */
bool lf_decoder_keeps_latents(const lf_decoder *d, const lf_pstore *ps, enum lf_numeric mode);
lf_graph *lf_decoder_paged_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                                 const struct lf_decoder_paged *p, lf_err *err);
/* The first head of mtp_layers over the same cache, behind such a step. Row r is position
 * positions[r] of sequence seq[r], with what the step gave there as input "hidden" [R, C] (compute
 * type) and with the token behind it in tokens[r]. "logits" are those of the token behind that one.
 * States kv.L.k and kv.L.v are the head's. LF_EINVAL: the model has no such head. */
lf_graph *lf_decoder_draft_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                                 const struct lf_decoder_paged *p, lf_err *err);

/* Computes z = cap * tanh(z / cap) in place, as the loss does; nothing when the description has no
 * cap. */
void lf_decoder_softcap(const lf_model_config *c, float *logits, int64_t n);

#endif
