/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders as Megatron-Energon prepares them: webdataset archives and what .nv-meta says of them.
 *
 *   .nv-meta/dataset.yaml        what a sample is: __class__: CrudeWebdataset, or sample_type with
 *                                a field_map from the fields of that type to parts of the sample
 *   .nv-meta/split.yaml, .json   the archives of train, val, test, and samples to leave out
 *   .nv-meta/.info.json, .yaml   how many samples each archive has
 *
 * (github.com/NVIDIA/Megatron-Energon, docs/source/basic/data_prep.md.) A sample is the members of
 * an archive that stand together and have one name up to the first dot behind the last slash; what
 * is behind that dot is the name of the part. A field is a part, or what json[a][b] has at a and b;
 * "x,y" is the first of them that is there. Archives are read from begin to end in the order of the
 * split, so index.sqlite is not needed. What a sample becomes:
 *
 *   class               fields read                          row
 *   CrudeWebdataset     -                                    that of corpus_samples.h
 *   TextSample          text                                 text
 *   CaptioningSample    image, caption                       a user's turn with the picture, and
 *   OCRSample           image, text                          the text as the answer to it
 *   VQASample           image, context, answers,             the picture and context (the picture
 *                       answer_weights                       where <image> is, else before it), and
 *                                                            the first answer of greatest weight
 *   MultiMixQASample    image, messages, system              the turns and the pictures
 *
 * A folder with a sample_loader, which is code in Python, is refused unless the caller says which
 * of two known ones it has:
 *
 *   interleaved   (documented by Energon, InterleavedSample) json has lists images and texts of one
 *                 length; where the text is null the part that images names stands: a text with
 *                 pictures, all of it one turn of the assistant
 *   texts         (LoongForge and its kin, MultiMixQASample) json has the turns texts, media, and
 *                 name, the parts that are the pictures
 */
#ifndef LF_TEXT_ENERGON_H
#define LF_TEXT_ENERGON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"

/* what stands for sample_loader.py */
enum lf_energon_loader { LF_ENERGON_NONE, LF_ENERGON_INTERLEAVED, LF_ENERGON_TEXTS };

typedef struct lf_energon_opts {
    const char *split; /* "train"; borrowed during open */
    enum lf_energon_loader loader;
} lf_energon_opts;

typedef struct lf_energon lf_energon;

/* Is there a .nv-meta in the directory? */
bool lf_energon_is(const char *dir);
/* Is the file a metadataset, which names folders and how often each is taken? */
bool lf_energon_is_mix(const char *path);
/* Is it the index of JSON lines that lie beside it (x.jsonl.idx)? */
bool lf_energon_is_index(const char *path);
/* Reads what .nv-meta says; opens no archive. LF_EFORMAT, LF_ENOTSUP (video, code), LF_EINVAL: no
 * such split. */
int lf_energon_open(lf_energon **out, const char *dir, const lf_energon_opts *o, lf_err *err);
void lf_energon_close(lf_energon *e);

/* The archives of the split: names below the folder; how many samples one has. */
size_t lf_energon_archives(const lf_energon *e);
const char *lf_energon_archive(const lf_energon *e, size_t i);
uint64_t lf_energon_samples(const lf_energon *e, size_t i);
/* Does the split leave out the sample with this key of archive i? */
bool lf_energon_excluded(const lf_energon *e, size_t i, const char *key);
/* Appends everything that decides what rows there are, but for the archives' names and bytes. */
void lf_energon_identity(const lf_energon *e, lf_buf *out);

/* Is the member one that counts: a key and a part, outside of folders like __meta__? */
bool lf_energon_member(const char *name);
/* Is a sample read part by part? else as corpus_samples.h has it. */
bool lf_energon_by_parts(const lf_energon *e);
/* Of a sample that is: is the part read? Is it a text or JSON by its ending, or a picture? */
bool lf_energon_wants(const lf_energon *e, const char *part);
enum lf_energon_part { LF_ENERGON_PICTURE, LF_ENERGON_TEXT, LF_ENERGON_JSON };
enum lf_energon_part lf_energon_part_kind(const char *part);

/* Replaces the object of a sample's parts by its row: pictures are {bytes, path}, texts are texts,
 * JSON is what it says. Thread-safe. LF_EFORMAT: the sample's fault. */
int lf_energon_row(json_t **row, const lf_energon *e, const char *where, lf_err *err);

#endif
