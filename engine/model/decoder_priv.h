/* SPDX-License-Identifier: Apache-2.0
 *
 * The representation of the decoder, for the files of engine/model. */
#ifndef LF_MODEL_DECODER_PRIV_H
#define LF_MODEL_DECODER_PRIV_H

#include "engine/model/decoder.h"

/* The source of one constant table of cos or sin. */
struct lf_dec_table {
    const lf_decoder *d;
    unsigned what; /* LF_ROPE_LOCAL, LF_ROPE_QUERY */
    bool sin;
};
/* The source of one that turns nothing, and multiplies queries by what they grow by. */
struct lf_dec_growth {
    const lf_decoder *d;
    bool nope, sin;
};

/* The source of the decays of a layer with lightning attention. */
struct lf_dec_slopes {
    const lf_model_config *c;
    int64_t layer;
};

struct lf_decoder {
    lf_model_config c;
    lf_model_config source; /* of encoder-decoders: the encoder's layers */
    int64_t positions;
    lf_vision *vision;                 /* NULL: it sees nothing */
    lf_vision *mae;                    /* the layers that restore pictures; NULL: none */
    double adapter_dropout;            /* lf_decoder_adapt */
    bool mtp;                          /* lf_decoder_train_mtp */
    bool nsp;                          /* lf_decoder_train_nsp */
    struct lf_dec_table table[4][2];   /* by `what`; cos, sin */
    struct lf_dec_growth growth[2][2]; /* by nope; cos, sin */
    struct lf_dec_slopes *slopes;      /* [layers] */
};

/* Are there positions whose queries logn_length or query_growth scales? */
static inline bool lf_dec_logn(const lf_decoder *d)
{
    return (d->c.logn_length > 0 && d->positions > d->c.logn_length) ||
           (d->c.query_growth > 0 && d->positions > d->c.rope_original_positions);
}

/* longrope: may a document be long enough for the long factors? Then their table lies behind the
 * rope_original_positions rows of the short ones, and turns has the row of each token. */
static inline bool lf_dec_two_tables(const lf_decoder *d)
{
    return lf_decoder_switch(d) > 0;
}

/* Do tokens see some of what follows them, but not all? Then the input runs says what. */
static inline bool lf_dec_looks_ahead(const lf_model_config *c)
{
    return c->mask == LF_MASK_IMAGE_BLOCKS || (c->mask == LF_MASK_BOTH && c->sliding_window > 0);
}

/* The state of the builder of one graph. */
struct lf_dec_build {
    const lf_decoder *d;
    const lf_model_config *c;
    lf_graph *g;
    /* dropout: there are random decisions of any kind, and so the inputs samples and offsets */
    bool dropout, train;
    bool drops; /* experts drop what is beyond their capacity */
    bool adapter_off, noise;
    struct lf_decoder_chunk chunk; /* what the graph has of the model */
    bool differentiated;           /* gradients come from the next chunk and go to the one before */
    int64_t more; /* heads of mtp_layers that the model has in this graph and in other chunks */
    lf_val load;  /* sums of the load of experts over the layers so far, in training */
    lf_val tokens, positions, types, samples, offsets;
    lf_val alibi;
    const struct lf_decoder_media *media;    /* NULL: no pictures */
    lf_val deep[LF_MODEL_MAX_TAPS];          /* what joins the stream behind the first layers */
    lf_val feature_samples, feature_offsets; /* where features are dropped out */
    lf_val places;                           /* three positions of each token */
    lf_val per_layer;                        /* [R, layers P]; per_layer.c */
    /* keys and values that later layers read: of layers without a window, and with one */
    lf_val shared[2][2];
    lf_val prefix, turns, blocks, runs; /* LF_NONE where the description does not need them */
    /* over documents */
    lf_val cu_seqlens;
    int64_t max_doc, rows;
    /* of encoder-decoders: which stack's tensors are meant, "" or "encoder."; what is added to
     * scores, where all layers of the stack share it; the encoder's stream, or what it gave, as the
     * next chunk takes it, and as layers of the decoder read it; its documents */
    const char *stack;
    lf_val relative, source, memory, source_cu;
    int64_t max_source;
    lf_val source_last, source_table; /* over the cache */
    /* over the cache */
    const struct lf_decoder_paged *paged;
    lf_val seq, table;
};

/* A graph that begins with the layers over packed documents, for r->media NULL; *x becomes what the
 * head would read, [R, E]. */
lf_graph *lf_dec_documents(const lf_decoder *d, lf_pstore *ps, const char *name,
                           const struct lf_decoder_rows *r, bool train, lf_val *x, lf_err *err);
/* The builder of a graph over packed documents, with its inputs, and what lf_dec_documents makes of
 * it: what the head would read, LF_NONE where the chunk has no head. */
int lf_dec_begin(struct lf_dec_build *b, const lf_decoder *d, lf_pstore *ps, const char *name,
                 const struct lf_decoder_rows *r, bool train, lf_err *err);
lf_val lf_dec_trunk(struct lf_dec_build *b);
/* The graph, or NULL with its failure in err. */
lf_graph *lf_dec_done(lf_graph *g, lf_err *err);
/* Tokens with what is added to them, and the norm behind it, before dropout and what leads to the
 * stream. */
lf_val lf_dec_embedded(struct lf_dec_build *b);
/* What the first layer of a stack reads, of what lf_dec_embedded gave. */
lf_val lf_dec_bottom_of(struct lf_dec_build *b, lf_val x);
lf_val lf_dec_bottom(struct lf_dec_build *b);
/* Declares what a generator (electra.h) has for itself. */
int lf_dec_declare_generator(const lf_decoder *d, lf_pstore *ps, lf_err *err);
/* Values of position = relative by distance: of layer l, or of all layers of the stack. */
lf_val lf_dec_relative(struct lf_dec_build *b, int64_t l);
/* Layers [begin, end) of one of two stacks. */
struct lf_dec_span {
    int64_t begin, end;
};
/* Those that a chunk has of the encoder (source) or of the decoder. */
struct lf_dec_span lf_dec_span(const lf_model_config *c, const struct lf_decoder_chunk *k,
                               bool source);
/* lf_dec_relative where these layers share one table; else LF_NONE. */
lf_val lf_dec_shared_relative(struct lf_dec_build *b, struct lf_dec_span own);
/* Has a chunk what stands between both stacks, the encoder's last norm? */
bool lf_dec_ends_source(const lf_model_config *c, const struct lf_decoder_chunk *k);
/* Does the encoder's stream, or what it gave, go through a cut before layer `cut`? */
bool lf_dec_source_crosses(const lf_model_config *c, int64_t cut);
/* Rows of the source axis of a graph; max_doc as of lf_decoder_rows. */
struct lf_dec_source {
    int64_t rows, max_doc, n_docs;
};
/* The builder of the encoder in the graph of b, with its inputs; what the encoder gives, [rows,
 * C], or its stream behind the layers so far. */
struct lf_dec_build lf_dec_source(const struct lf_dec_build *b, const struct lf_dec_source *s);
lf_val lf_dec_encode(struct lf_dec_build *e);
/* Attention of layer l of the decoder to what the encoder gave: [R, C]. */
lf_val lf_dec_cross(struct lf_dec_build *b, lf_val h, int64_t l);
/* Stores the keys and values of it that the decoder's layers read, in the cache of b. */
void lf_dec_keep_source(struct lf_dec_build *b, const struct lf_dec_build *e, lf_val memory);
/* The chunk that is the whole model. */
struct lf_decoder_chunk lf_dec_whole(const lf_model_config *c);
/* Declares the encoder and the projector, where there are any. */
int lf_dec_declare_sight(const lf_decoder *d, lf_pstore *ps, lf_err *err);
/* Adds the rows of pictures to embedded tokens; behind layer l, those that enter there. */
lf_val lf_dec_see(struct lf_dec_build *b, lf_val x);
lf_val lf_dec_deep(struct lf_dec_build *b, lf_val x, int64_t l);
/* Checks that a chunk is one of this model. */
int lf_dec_check_chunk(const lf_model_config *c, const struct lf_decoder_chunk *k, lf_err *err);
/* Refuses layouts that cannot divide the model. */
int lf_dec_check_layout(const lf_model_config *c, const struct lf_layout *of, lf_err *err);
/* Are there layers with experts before layer `cut`, and from it on? Then what they count
 * crosses. */
bool lf_dec_load_crosses(const struct lf_dec_build *b, int64_t cut);
/* What comes from the chunk before: the stream, and the balance of experts. */
lf_val lf_dec_chunk_in(struct lf_dec_build *b);
/* The balance of experts over all layers of the model, for the backward pass. Behind the layers. */
void lf_dec_chunk_total(struct lf_dec_build *b);
/* What the next chunk takes. */
void lf_dec_chunk_out(struct lf_dec_build *b, lf_val x);

#define LF_DEC_OUTSIDE (-1) /* the layer of a part outside of the layers */
/* Applies the norm "layers.l.part" to x. */
lf_val lf_dec_norm(struct lf_dec_build *b, lf_val x, const char *part, int64_t l);
/* y = x w^T (+ bias); the names of both begin with "layers.l.part". */
lf_val lf_dec_linear(struct lf_dec_build *b, lf_val x, bool bias, const char *part, int64_t l);
/* The same with a bias of another name, or LF_NONE. */
lf_val lf_dec_linear_with(struct lf_dec_build *b, lf_val x, lf_val bias, const char *part,
                          int64_t l);
/* The gated unit of the description: act(gate) * up, cut and moved where it says so. */
lf_val lf_dec_glu(struct lf_dec_build *b, lf_val gate, lf_val up);
lf_val lf_dec_dropout(struct lf_dec_build *b, lf_val x, double p, const char *part, int64_t l);
/* Which heads turn by their positions: `heads` side by side, from channel `first` of each on.
 * query: by tables of their own, where logn_length scales queries. */
struct lf_dec_turn {
    int64_t heads, first, layer;
    bool query;
};
lf_val lf_dec_rope(struct lf_dec_build *b, lf_val x, const struct lf_dec_turn *t);
/* Queries of layer l, [R, H D], times what query_growth or nope_growth says, as all of a head. */
lf_val lf_dec_grow(struct lf_dec_build *b, lf_val q, int64_t l);
/* What attention reads: q [R, H D], k [R, G D], v [R, G E]. */
struct lf_dec_heads {
    lf_val q, k, v;
    lf_val gate; /* [R, H D] or LF_NONE */
};
/* Those of layer l with multi-head latent attention (mla.c); x [R, C]. */
struct lf_dec_heads lf_dec_latent_heads(struct lf_dec_build *b, lf_val x, int64_t l);
/* Attention of layer l over a cache of latents, [R, H v_dim] (mla.c); x [R, C]. */
lf_val lf_dec_absorbed(struct lf_dec_build *b, lf_val x, const struct lf_attn_opts *o, int64_t l);
/* Columns that a scan reads (mixer.c); 0: it has none of them. */
struct lf_dec_scan_widths {
    int64_t keys, values;           /* of queries, and of keys; of values */
    int64_t gate, steps, strengths; /* z, a, b */
};
struct lf_dec_scan_widths lf_dec_scan_widths(const lf_model_config *c, int64_t layer);
/* The scan of layer l, projected back; x and the result are [R, C] (mixer.c). */
lf_val lf_dec_scan(struct lf_dec_build *b, lf_val x, int64_t l);
/* The short convolution of layer l, likewise. */
lf_val lf_dec_short_conv(struct lf_dec_build *b, lf_val x, int64_t l);
/* alpha x, and x itself where alpha is 1. */
lf_val lf_dec_scaled(struct lf_dec_build *b, lf_val x, double alpha);
/* act(u), of MLPs without a gate. */
lf_val lf_dec_act(struct lf_dec_build *b, lf_val u);
/* The experts of layer l (moe.c): h is what they read, and x the stream, which the router reads in
 * its place where it has a norm of its own. */
lf_val lf_dec_moe(struct lf_dec_build *b, lf_val x, lf_val h, int64_t l);
/* The channels of a token that layers read (per_layer.c), from what the first layer reads: those
 * of all layers side by side. */
lf_val lf_dec_per_layer(struct lf_dec_build *b, lf_val x);
/* What layer l makes of its channels, for the stream x behind it. */
lf_val lf_dec_read_per_layer(struct lf_dec_build *b, lf_val x, int64_t l);
/* Streams of altup.c, [R, N C]: made of what the first layer would read, and joined again behind
 * the last one. */
lf_val lf_dec_altup_in(struct lf_dec_build *b, lf_val x);
lf_val lf_dec_altup_out(struct lf_dec_build *b, lf_val x);
/* A copy of the first of them, [R, C]. */
lf_val lf_dec_altup_first(struct lf_dec_build *b, lf_val x);
/* What layer l takes them for, before it computes the first; and what they are behind it, where y
 * [R, C] is what it computed of the first that was predicted. */
lf_val lf_dec_altup_predict(struct lf_dec_build *b, lf_val x, int64_t l);
lf_val lf_dec_altup_correct(struct lf_dec_build *b, lf_val predicted, lf_val first, lf_val y,
                            int64_t l);
/* Adds to all but the first what layer l makes of its channels. */
lf_val lf_dec_altup_add_per_layer(struct lf_dec_build *b, lf_val x, int64_t l);
/* The stream x behind the mixer of layer l, which read h, with LAuReL. */
lf_val lf_dec_laurel(struct lf_dec_build *b, lf_val x, lf_val h, int64_t l);
/* Layer l; x and the result are [R, C], or all streams of altup.c. */
lf_val lf_dec_block(struct lf_dec_build *b, lf_val x, int64_t l);
/* The loss of head `more` (0: the model's own) from what its norm gave. */
void lf_dec_loss(struct lf_dec_build *b, lf_val x, lf_val targets, const struct lf_xent_opts *o);
/* norm(act(W x + b)), which head_transform puts before a head. */
lf_val lf_dec_transform(struct lf_dec_build *b, lf_val x);
/* The numbers of labels [R, N] from what the last norm gave (labels.c); every rank has all rows. */
lf_val lf_dec_label_logits(struct lf_dec_build *b, lf_val x);
/* The embedding of tokens i32 [R, 1], as a head of mtp_layers reads it. */
lf_val lf_dec_mtp_embed(struct lf_dec_build *b, lf_val tokens);
/* Layer l of mtp_layers (mtp.c), from the embedded token and what the final norm before it gave
 * [R, C] to what its own gives. */
lf_val lf_dec_mtp_layer(struct lf_dec_build *b, lf_val embedded, lf_val hidden, int64_t l);
/* The losses of the heads of mtp_layers; x is what the final norm gave. */
void lf_dec_mtp_losses(struct lf_dec_build *b, lf_val x);
/* The loss of nsp_head; x is what the head over the vocabulary reads. */
void lf_dec_nsp_loss(struct lf_dec_build *b, lf_val x);

#endif
