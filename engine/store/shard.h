/* SPDX-License-Identifier: Apache-2.0
 *
 * Shards: tokenized documents in one HDF5 file.
 *
 *   tokens       u16 or u32 [n_tokens], chunked
 *                every document after the other
 *   doc_offsets  u64 [n_docs + 1]
 *                document d is tokens[doc_offsets[d] .. doc_offsets[d + 1])
 *   loss_mask    u8 [ceil(n_tokens / 8)], optional
 *                bit i % 8 of byte i / 8: token i is trained as a target. Absent: every token is
 *   doc_seqs     u64 [n_docs + 1], optional
 *                document d is the sequences [doc_seqs[d], doc_seqs[d + 1]) of seq_offsets
 *   seq_offsets  u64 [n_seqs + 1]
 *                sequence s is tokens[seq_offsets[s] .. seq_offsets[s + 1]). Absent: a document is
 *                one sequence. Megatron data has these two
 *   seq_modes    u8 [n_seqs], optional
 *                Megatron's mode of each sequence, as it stands there (i8)
 *   attributes   lf_format = "lf-shard-1", tokenizer_sha256 (64 hex), vocab_size, eos_id (-1:
 *                none), source; and lf_rows where documents are more than plain text:
 *
 *   lf_rows      absent: plain documents; loss_mask has the trained tokens
 *                "pairs": documents 2 i and 2 i + 1 are the better and the worse answer of pair i,
 *                each with the prompt; loss_mask is 1 on the tokens of the answers
 *                "unpaired": a document is a prompt with an answer that is labelled good or bad;
 *                loss_mask is 1 on the tokens of the answer
 *                "prompts": a document is a prompt for which an answer will be generated; it ends
 *                with the generation prompt of the template and has no EOS
 *   margin       f32 [n_docs / 2], of pairs, optional
 *                the margin by which the better answer of pair i should win; finite
 *   label        u8 [n_docs], of unpaired: 1 good, 0 bad
 *   rest_offsets u64 [n_docs + 1], of prompts
 *   rest         u8 [rest_offsets[n_docs]], of prompts: the other columns of the row of document d,
 *                as one JSON object, are the bytes rest[rest_offsets[d] .. rest_offsets[d + 1])
 *
 * Documents with pictures make it "lf-shard-2", which has all of these besides (k pictures, each
 * file once however often it is used; u uses, in the order of documents and in a document in the
 * order of its placeholders):
 *
 *   doc_media      u64 [n_docs + 1]  document d uses pictures by the uses [doc_media[d],
 *                                    doc_media[d + 1])
 *   media/use      u32 [u]           the picture
 *   media/grid     i32 [3 u]         how often it goes through the vision tower (tiles), and rows
 *                                    and columns of patches each time
 *   media/place    u32 [2 u]         token of the document at which its first placeholder stands,
 *                                    and how many placeholders it has
 *   media/offsets  u64 [k + 1]       picture i is bytes[offsets[i] .. offsets[i + 1]), the file as
 *   media/bytes    u8 [offsets[k]]   it was found
 *   media/kind     u8 [k]            1 JPEG, 2 PNG, 3 WebP
 *   media/wh       u32 [2 k]         width and height, after EXIF orientation
 *   media/sha256   u8 [32 k]         of the file
 *   attributes     media_processor: text of the preprocessor_config.json by which the grids were
 *                  made, media_processor_sha256 (64 hex) of it; media_settings: JSON text of what
 *                  the placeholders depend on besides; image_token: id of the placeholder
 *
 * A dataset is the `shards` artifact: a directory of train-NNNNN.h5 and valid-NNNNN.h5 with a
 * manifest (base/artifact.h); lf_shardset shows one split of it as a single sequence of documents.
 * Files are not trusted: their structure is checked at open, and ids are checked against vocab_size
 * whenever tokens are read. After open there is no HDF5 call and no allocation. Reads are preads,
 * from any number of threads.
 */
#ifndef LF_STORE_SHARD_H
#define LF_STORE_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/hash.h"

#define LF_SHARD_FORMAT       "lf-shard-1"
#define LF_SHARD_FORMAT_MEDIA "lf-shard-2"

enum lf_rows { LF_ROWS_PLAIN, LF_ROWS_PAIRS, LF_ROWS_UNPAIRED, LF_ROWS_PROMPTS };
const char *lf_rows_name(enum lf_rows r); /* "plain", "pairs", "unpaired", "prompts" */

typedef struct lf_shard_info {
    char tokenizer_sha256[LF_HASH_HEX]; /* hex of the SHA-256 of tokenizer.json */
    int64_t vocab_size;                 /* ids are below this; 1 .. 2^31 - 1 */
    int64_t eos_id;                     /* -1: none */
    /* free text: where the documents came from; UTF-8, at most LF_H5_MAX_STR bytes */
    const char *source;
    enum lf_rows rows; /* what the documents are */
    /* documents may have pictures: the attributes above; processor NULL: they have none */
    const char *processor, *settings;
    int64_t image_token;
    /* set by readers, ignored by the writer: */
    int token_bytes; /* 2 or 4 */
    uint64_t n_docs, n_tokens;
} lf_shard_info;

/* ---- writing ---- */
typedef struct lf_shard_writer lf_shard_writer;

typedef struct lf_shard_stat {
    uint64_t n_docs, n_tokens;
    int64_t bytes;                 /* length of the file */
    uint8_t sha256[LF_HASH_BYTES]; /* tree hash of the file */
} lf_shard_stat;

/* Creates a shard at path. token_bytes is 2 (vocab_size <= 65536), 4, or 0 for the smaller possible
 * one. The bytes of a shard depend on the documents and info only. LF_EEXIST: path exists. */
int lf_shard_create(lf_shard_writer **out, const char *path, const lf_shard_info *info,
                    int token_bytes, lf_err *err);
/* Appends one document; n may be 0. LF_EINVAL: an id is not below vocab_size. */
int lf_shard_append(lf_shard_writer *w, const uint32_t *tokens, size_t n, lf_err *err);
/* A use of a picture by a document. */
enum lf_shard_picture_kind { LF_PICTURE_JPEG = 1, LF_PICTURE_PNG, LF_PICTURE_WEBP };
typedef struct lf_shard_picture {
    const void *bytes; /* NULL where it is read: lf_shardset_picture_read */
    size_t n;
    uint8_t sha256[LF_HASH_BYTES]; /* of bytes */
    enum lf_shard_picture_kind kind;
    uint32_t w, h; /* upright */
    int32_t tiles, grid_h, grid_w;
    /* first placeholder in the document, and how many: 0 where a picture is beside its text */
    uint32_t first, count;
    uint64_t id; /* set by readers: number of the picture in its file */
} lf_shard_picture;

/* A document with everything that it may have besides tokens. */
typedef struct lf_shard_doc {
    const uint32_t *tokens;
    size_t n;
    const uint8_t *mask;     /* [n] 0 or 1: trained as a target; NULL: all 1 */
    const uint32_t *seq_len; /* [n_seqs], sum n; NULL: one sequence */
    size_t n_seqs;
    const int8_t *modes; /* [n_seqs], NULL: 0 */
    /* of pairs, with the better answer's document; a pair without a margin gets 0 when others have
     * one */
    bool has_margin;
    float margin;
    bool label;       /* unpaired */
    const char *rest; /* prompts: JSON text, not NUL-terminated; NULL: "{}" */
    size_t rest_len;
    const lf_shard_picture *pictures; /* in the order of their placeholders; needs info.processor */
    size_t n_pictures;
} lf_shard_doc;
int lf_shard_append_doc(lf_shard_writer *w, const lf_shard_doc *d, lf_err *err);
uint64_t lf_shard_writer_tokens(const lf_shard_writer *w);
uint64_t lf_shard_writer_media_bytes(const lf_shard_writer *w);
/* Completes, fsyncs, closes and hashes the file. Frees w in every case. stat may be NULL.
 * LF_EINVAL: pairs with an odd number of documents. */
int lf_shard_finish(lf_shard_writer *w, lf_shard_stat *stat, lf_err *err);
/* Closes and unlinks the file and frees w. w may be NULL. */
void lf_shard_abort(lf_shard_writer *w);

/* ---- reading one file ---- */
typedef struct lf_shard lf_shard;

int lf_shard_open(lf_shard **out, const char *path, lf_err *err);
void lf_shard_close(lf_shard *s);
const lf_shard_info *lf_shard_get_info(const lf_shard *s); /* borrowed until close */
const uint64_t *lf_shard_offsets(const lf_shard *s);       /* [n_docs + 1], borrowed until close */
/* Reads tokens [first, first + n) to dst. Thread-safe. LF_EFORMAT: an id is not below
 * vocab_size. */
int lf_shard_read(const lf_shard *s, uint64_t first, size_t n, int32_t *dst, lf_err *err);

/* The optional parts: NULL or false where a shard lacks them. Pointers are borrowed until close. */
bool lf_shard_has_mask(const lf_shard *s);
/* Is token i trained? How many of [first, first + n) are? Without a mask all are. Thread-safe. */
bool lf_shard_trained(const lf_shard *s, uint64_t i);
uint64_t lf_shard_count_trained(const lf_shard *s, uint64_t first, uint64_t n);
const uint64_t *lf_shard_doc_seqs(const lf_shard *s);    /* [n_docs + 1] */
const uint64_t *lf_shard_seq_offsets(const lf_shard *s); /* [lf_shard_doc_seqs()[n_docs] + 1] */
const int8_t *lf_shard_seq_modes(const lf_shard *s);     /* [lf_shard_doc_seqs()[n_docs]] */

/* The parts that info->rows stands for. Documents are numbered from 0 in this file; pair i is
 * documents 2 i and 2 i + 1. */
bool lf_shard_has_margin(const lf_shard *s);
float lf_shard_margin(const lf_shard *s, uint64_t pair); /* 0 without margins */
bool lf_shard_label(const lf_shard *s, uint64_t doc);    /* unpaired; else true */
/* prompts; borrowed, not NUL-terminated */
const char *lf_shard_rest(const lf_shard *s, uint64_t doc, size_t *len);

/* The pictures of a document of this file: how many, what is known of the i-th use without reading
 * it, and its n bytes. Thread-safe, without allocation. */
uint64_t lf_shard_pictures(const lf_shard *s, uint64_t doc);
void lf_shard_picture_get(const lf_shard *s, uint64_t doc, uint64_t i, lf_shard_picture *out);
int lf_shard_picture_read(const lf_shard *s, uint64_t doc, uint64_t i, void *dst, lf_err *err);
size_t lf_shard_picture_most(const lf_shard *s); /* bytes of the largest; 0 without pictures */

/* ---- reading one split of a dataset ---- */
typedef struct lf_shardset lf_shardset;

/* Opens every file of the artifact in dir whose name begins with "<split>-", in name order. The
 * shards must agree on tokenizer_sha256, vocab_size, eos_id, rows and all about pictures, and have
 * the length that the manifest says. LF_ENOENT: there is no manifest or no such split. */
int lf_shardset_open(lf_shardset **out, const char *dir, const char *split, lf_err *err);
void lf_shardset_close(lf_shardset *s);
/* n_docs and n_tokens are sums; source is that of the first shard */
const lf_shard_info *lf_shardset_get_info(const lf_shardset *s);
uint64_t lf_shardset_doc_len(const lf_shardset *s, uint64_t doc);
/* Reads tokens [first, first + n) of document doc. Thread-safe, without allocation. */
int lf_shardset_read(const lf_shardset *s, uint64_t doc, uint64_t first, size_t n, int32_t *dst,
                     lf_err *err);
/* The loss mask, as for one shard. */
bool lf_shardset_has_mask(const lf_shardset *s);
bool lf_shardset_trained(const lf_shardset *s, uint64_t doc, uint64_t token);
uint64_t lf_shardset_count_trained(const lf_shardset *s, uint64_t doc, uint64_t first, uint64_t n);
/* Margins (has_margin is false when no file has any), labels and other columns, as for one shard.
 * Pairs and documents are counted over all files; a file holds whole pairs. */
bool lf_shardset_has_margin(const lf_shardset *s);
float lf_shardset_margin(const lf_shardset *s, uint64_t pair);
bool lf_shardset_label(const lf_shardset *s, uint64_t doc);
const char *lf_shardset_rest(const lf_shardset *s, uint64_t doc, size_t *len);
/* The pictures of a document, as for one shard. */
uint64_t lf_shardset_pictures(const lf_shardset *s, uint64_t doc);
void lf_shardset_picture_get(const lf_shardset *s, uint64_t doc, uint64_t i, lf_shard_picture *out);
int lf_shardset_picture_read(const lf_shardset *s, uint64_t doc, uint64_t i, void *dst,
                             lf_err *err);
size_t lf_shardset_picture_most(const lf_shardset *s);
/* Has a document a picture? A set may be prepared for pictures and have none. */
static inline bool lf_shardset_sees(const lf_shardset *s)
{
    return lf_shardset_picture_most(s) > 0;
}
/* Returns the patches of all pictures of a document; *tiles becomes how many tiles they are. */
uint64_t lf_shardset_patches(const lf_shardset *s, uint64_t doc, uint64_t *tiles);
/* The sequences of all files; a document without sequences counts as one. lf_shardset_seq_lengths
 * writes their lengths in order to len[lf_shardset_n_seqs()]. */
uint64_t lf_shardset_n_seqs(const lf_shardset *s);
int lf_shardset_seq_lengths(const lf_shardset *s, uint32_t *len, lf_err *err);
/* Reads tokens [first, first + n) of the whole split, file after file. Thread-safe, without
 * allocation. */
int lf_shardset_read_flat(const lf_shardset *s, uint64_t first, size_t n, int32_t *dst,
                          lf_err *err);
/* the i-th file, borrowed; NULL behind the last */
const lf_shard *lf_shardset_file(const lf_shardset *s, size_t i);
/* Finds a document, for messages: the name of its file, borrowed, and its index in that file. */
void lf_shardset_locate(const lf_shardset *s, uint64_t doc, const char **file, uint64_t *index);
/* Returns the SHA-256 over the tree hashes of the split's files, in order. A cursor into this data
 * is valid only for this value. */
const uint8_t *lf_shardset_id(const lf_shardset *s); /* [LF_HASH_BYTES], borrowed */

/* Pseudo-random documents for tests and benchmarks. They depend on these values alone. */
struct lf_shard_synthetic {
    uint64_t n_docs, n_valid; /* of the splits "train" and "valid" (0: no such split) */
    int n_files;              /* of "train" */
    uint32_t max_len;         /* documents have 1 .. max_len tokens */
    int64_t vocab_size;
    uint64_t seed;
};
/* Publishes such documents as a `shards` artifact in the new directory dir.
 * lf_shard_synthetic_token() gives token k of document d; the last token is eos_id = 0. */
int lf_shard_write_synthetic(const char *dir, const struct lf_shard_synthetic *s, lf_err *err);
uint32_t lf_shard_synthetic_len(uint64_t seed, uint64_t doc, uint32_t max_len);
uint32_t lf_shard_synthetic_token(uint64_t seed, uint64_t doc, uint32_t k, uint32_t len,
                                  int64_t vocab_size);

#endif
