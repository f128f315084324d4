/* SPDX-License-Identifier: Apache-2.0
 *
 * What the writer, the publisher and the reader of checkpoints share: the description of tensors
 * and pieces, its JSON form, the grid of leaves, the identity, receipts.
 */
#ifndef LF_STORE_CKPT_PRIV_H
#define LF_STORE_CKPT_PRIV_H

#include <stdatomic.h>

#include "engine/base/artifact.h"
#include "engine/store/ckpt.h"

#define LF_CKPT_KIND        "checkpoint"
#define LF_CKPT_STATE       "state.json"
#define LF_CKPT_INDEX       "index.h5"
#define LF_CKPT_LEAVES      "leaves.bin"
#define LF_CKPT_STRUCTURE   "structure.h5" /* a temporary file */
#define LF_CKPT_MAX_TENSORS 1000000
#define LF_CKPT_MAX_PIECES  10000000
#define LF_CKPT_MAX_STATE   ((size_t)64 << 20)
#define LF_CKPT_VERSION     2       /* of the identity that a save makes */
#define LF_CKPT_LEAF_ELEMS  1048576 /* most elements of a leaf, unless a row's eighth has more */
#define LF_CKPT_ACROSS      8       /* most leaves beside each other */

struct lf_ckpt_piece {
    char *file; /* relative to the checkpoint */
    size_t at;  /* index of the file, in the writer's or in the manifest's list */
    int64_t offset;
    int64_t lo[LF_CKPT_MAX_DIMS], hi[LF_CKPT_MAX_DIMS];
    int64_t flat[2];
};

struct lf_ckpt_rec {
    lf_ckpt_entry e; /* its name and kind point to the two below */
    char *name, *kind;
    uint64_t n_elems;
    /* version 2: the hash of its leaves (lf_ckpt_tensor_digest); 1: the tree hash of the row-major
     * bytes */
    uint8_t sha256[LF_HASH_BYTES];
    struct lf_ckpt_piece *pieces;
    size_t n_pieces;
    /* The hashes of the leaves, ascending. Of a part: of those that lie whole in it. NULL: none, or
     * there is one leaf, whose hash is sha256. */
    uint8_t (*leaves)[LF_HASH_BYTES];
    size_t n_leaves;
};

struct lf_ckpt_meta {
    int version;              /* of the identity: 1 or 2 */
    struct lf_ckpt_rec *recs; /* sorted by kind, name */
    size_t n_recs;
    int64_t step;
    uint8_t identity[LF_HASH_BYTES];
};

/* Checks name, kind, type and shape. *n_elems becomes the product of the shape; the bytes of the
 * tensor fit in int64_t. */
int lf_ckpt_check_entry(const lf_ckpt_entry *e, uint64_t *n_elems, lf_err *err);
int lf_ckpt_cmp(const lf_ckpt_entry *a, const lf_ckpt_entry *b); /* by kind, then name */
/* Checks that no tensor's name is a folder of another's. */
int lf_ckpt_check_names(const struct lf_ckpt_meta *m, lf_err *err);
/* Checks that the pieces tile the tensor; or one range of one box of it. */
int lf_ckpt_check_pieces(const struct lf_ckpt_rec *r, lf_err *err);
int lf_ckpt_check_part(const struct lf_ckpt_rec *r, lf_err *err);
int lf_ckpt_make_identity(const struct lf_ckpt_meta *m, uint8_t out[LF_HASH_BYTES], lf_err *err);
/* The text of one tensor with its pieces. `part`: with its leaves, and the pieces need not tile. */
json_t *lf_ckpt_rec_json(const struct lf_ckpt_rec *r, bool part);
int lf_ckpt_rec_load(struct lf_ckpt_rec *r, json_t *o, bool part, lf_err *err);
void lf_ckpt_rec_fini(struct lf_ckpt_rec *r);
/* Writes *m to the meta object of an artifact. lf_ckpt_meta_load reads it back, checks it and
 * computes the identity again. */
int lf_ckpt_meta_store(const struct lf_ckpt_meta *m, json_t *o, lf_err *err);
int lf_ckpt_meta_load(struct lf_ckpt_meta *out, json_t *o, lf_err *err);
void lf_ckpt_meta_fini(struct lf_ckpt_meta *m);
/* ---- the grid of leaves (ckpt_grid.c) ----
 *
 * A tensor is looked at as rows of its last dimension; one of one dimension as rows of one element.
 * Bands of rows, which an equal cut into 2, 4 or 8 does not split, are divided into row blocks, and
 * rows into 1 or 8 leaves. */

struct lf_ckpt_grid {
    int64_t rows, cols;    /* of the tensor */
    int64_t band, bands;   /* rows of one; their number */
    int64_t block, blocks; /* rows of a row block, the last of a band may have fewer; per band */
    int64_t width;         /* columns of a leaf */
    int across;            /* leaves beside each other */
};

struct lf_ckpt_grid lf_ckpt_grid_of(const lf_ckpt_entry *e);
size_t lf_ckpt_grid_leaves(const struct lf_ckpt_grid *g);
/* Row block k has the rows [row[0], row[1]). */
void lf_ckpt_grid_rows(const struct lf_ckpt_grid *g, int64_t k, int64_t row[2]);
int64_t lf_ckpt_grid_block(const struct lf_ckpt_grid *g, int64_t row);
/* How many rows of the box lie before this row of the tensor; and the row of the tensor that is
 * number k of the box. */
int64_t lf_ckpt_rows_below(const lf_ckpt_entry *e, const int64_t *lo, const int64_t *hi,
                           int64_t row);
int64_t lf_ckpt_row_at(const lf_ckpt_entry *e, const int64_t *lo, const int64_t *hi, int64_t k);
/* Columns of the box: [first, first + the result). */
int64_t lf_ckpt_box_cols(const lf_ckpt_entry *e, const int64_t *lo, const int64_t *hi,
                         int64_t *first);

/* What a part, described as a piece, has of one row block: elements [flat[0], flat[1]) of the box.
 * The n leaves from number `first` of the row on are whole in it. */
struct lf_ckpt_unit {
    int64_t block, flat[2];
    int first, n;
};
/* Finds the first unit of the part in a row block from *k on, and sets *k behind it. false: there
 * is none. The units of a part tile its range. */
bool lf_ckpt_unit_next(struct lf_ckpt_unit *out, const struct lf_ckpt_grid *g,
                       const lf_ckpt_entry *e, const struct lf_ckpt_piece *part, int64_t *k);

/* Hashes of up to LF_CKPT_ACROSS leaves beside each other, from the rows of a box. */
struct lf_ckpt_feed {
    lf_hash *sha[LF_CKPT_ACROSS];
    size_t row, skip, leaf; /* bytes: of a row, before the first leaf, of a leaf's row */
    size_t at;              /* in the row */
    int n;
};
int lf_ckpt_feed_init(struct lf_ckpt_feed *f, lf_err *err);
void lf_ckpt_feed_fini(struct lf_ckpt_feed *f);
/* Begins the leaves [first, first + n) of a row block; the rows have the columns [lo, hi). */
void lf_ckpt_feed_begin(struct lf_ckpt_feed *f, const struct lf_ckpt_grid *g, size_t elem,
                        const int64_t cols[2], int first, int n);
void lf_ckpt_feed_add(struct lf_ckpt_feed *f, const unsigned char *data, size_t n);
void lf_ckpt_feed_end(struct lf_ckpt_feed *f, uint8_t (*out)[LF_HASH_BYTES]);

/* The hash of a tensor from its n leaves: that of the only one, else SHA-256 over "lf-grid-1",
 * their number and they themselves. */
int lf_ckpt_tensor_digest(uint8_t out[LF_HASH_BYTES], uint8_t (*leaves)[LF_HASH_BYTES], size_t n,
                          lf_err *err);
/* The hash of leaf i of a tensor of a whole checkpoint. */
static inline const uint8_t *lf_ckpt_leaf_hash(const struct lf_ckpt_rec *r, size_t i)
{
    return r->leaves ? r->leaves[i] : r->sha256;
}

/* ---- receipts (ckpt_receipt.c) ---- */

struct lf_ckpt_file {
    char *path;
    int64_t bytes;
    uint8_t sha256[LF_HASH_BYTES];
};

/* What one writer has made durable. */
struct lf_ckpt_receipt {
    char *dir;
    int64_t step;
    int part, parts;
    uint64_t run;  /* of the options */
    int64_t saves; /* that the writer has begun, this one too */
    struct lf_ckpt_file *files;
    size_t n_files;
    struct lf_ckpt_meta meta; /* tensors with the pieces of this part */
};
char *lf_ckpt_receipt_text(const struct lf_ckpt_receipt *r, lf_err *err); /* owned */
int lf_ckpt_receipt_parse(struct lf_ckpt_receipt *out, const char *text, lf_err *err);
void lf_ckpt_receipt_fini(struct lf_ckpt_receipt *r);

/* Publishes what the receipts describe; they are of one save. `durable`: their writers have synced
 * the files. state is the text of state.json. members (may be NULL) enter the manifest. */
struct lf_ckpt_publication {
    const char *dir, *state;
    const json_t *members;
    struct lf_ckpt_receipt *receipts;
    size_t n;
    const lf_ckpt_entry *tensors; /* what there must be, or NULL */
    size_t n_tensors;
    int64_t step;
    int threads;
    bool durable;
};
int lf_ckpt_publish_parts(const struct lf_ckpt_publication *p, lf_ckpt_result *out, lf_err *err);
/* Checks a state. The result is its text, owned, and the members for the manifest. */
int lf_ckpt_state_text(char **text, json_t **members, int64_t *step, const json_t *state,
                       lf_err *err);

/* ---- an open checkpoint (ckpt_read.c, ckpt_open.c) ---- */

struct lf_ckpt {
    char *dir;
    lf_artifact a;
    struct lf_ckpt_meta meta;
    json_t *state;
    atomic_int *fds; /* [n_fds], of the files as lf_ckpt_bind saw them; -1: not open */
    size_t n_fds;
    int threads;          /* as given at opening */
    bool verify;          /* reading checks the leaves */
    atomic_bool *checked; /* [n_recs], version 1 with verify: the tensor's hash was right */
};
/* Finds the file of every piece among those of c->a, and makes fds. */
int lf_ckpt_bind(lf_ckpt *c, lf_err *err);
int lf_ckpt_fd(const lf_ckpt *c, size_t file, lf_err *err); /* opened when first asked for */
/* Hashes leaves [first, first + n) of row block k of a tensor as the files have them. */
int lf_ckpt_hash_leaves(const lf_ckpt *c, const struct lf_ckpt_rec *r, int64_t k,
                        const int across[2], uint8_t (*out)[LF_HASH_BYTES], lf_err *err);
/* Does the tensor give its hash? Read through the pieces, as a user would. */
int lf_ckpt_check_tensor(const lf_ckpt *c, const struct lf_ckpt_rec *r, lf_err *err);

/* ---- files ---- */

/* Is the tensor, or the part of it, one piece that holds all of the tensor? */
static inline bool lf_ckpt_one_piece(const struct lf_ckpt_rec *r)
{
    return r->n_pieces == 1 &&
           (uint64_t)(r->pieces[0].flat[1] - r->pieces[0].flat[0]) == r->n_elems;
}
/* How many of the files hold tensors. */
size_t lf_ckpt_n_data_files(const lf_artifact *a);
/* Returns the name of the dataset of piece i of a tensor; the caller frees it. */
char *lf_ckpt_dataset_name(const struct lf_ckpt_rec *r, size_t i, lf_err *err);
/* Writes dir/index.h5. */
int lf_ckpt_make_index(const struct lf_ckpt_meta *m, const char *dir, lf_err *err);
/* The number in it: among the pieces of this tensor, of the same writer where there are several. */
size_t lf_ckpt_piece_number(const struct lf_ckpt_rec *r, size_t i);
/* Whose data file: the number of the part, or -1 where there is one writer. */
int lf_ckpt_file_part(const char *file);
/* Removes what an interrupted save left in dir: what `mine` names, NULL: all. LF_EEXIST: dir holds
 * a manifest or foreign files. */
typedef bool lf_ckpt_choice(void *arg, const char *name);
int lf_ckpt_clean(const char *dir, lf_ckpt_choice *mine, void *arg, lf_err *err);

#endif
