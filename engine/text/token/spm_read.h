/* SPDX-License-Identifier: Apache-2.0
 *
 * The fields of a sentencepiece ModelProto that encoding and decoding depend on.
 *
 *   ModelProto       1 pieces (1 text, 2 score f32, 3 type), 2 trainer_spec, 3 normalizer_spec, 5
 *                    denormalizer_spec
 *   trainer_spec     3 model_type, 24 treat_whitespace_as_suffix, 35 byte_fallback, 44 unk_surface,
 *                    46 bos_piece, 47 eos_piece, 48 pad_piece
 *   normalizer_spec  2 precompiled_charsmap, 3 add_dummy_prefix, 4 remove_extra_whitespaces, 5
 *                    escape_whitespaces
 */
#ifndef LF_TEXT_SPM_READ_H
#define LF_TEXT_SPM_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

enum lf_spm_type {
    LF_SPM_NORMAL = 1,
    LF_SPM_UNKNOWN,
    LF_SPM_CONTROL,
    LF_SPM_USER,
    LF_SPM_UNUSED,
    LF_SPM_BYTE
};
enum lf_spm_model { LF_SPM_UNIGRAM = 1, LF_SPM_BPE, LF_SPM_WORD, LF_SPM_CHAR };

typedef struct lf_spm_piece {
    const uint8_t *text; /* borrowed from the file's bytes, len >= 1, valid UTF-8 */
    uint32_t len;
    float score;
    enum lf_spm_type type;
} lf_spm_piece;

typedef struct lf_spm_file {
    lf_spm_piece *v; /* owned */
    size_t n, cap;
    enum lf_spm_model model_type;
    bool byte_fallback, whitespace_as_suffix;
    bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces;
    const uint8_t *charsmap, *unk_surface; /* borrowed, NULL none */
    size_t n_charsmap, n_unk_surface;
    char bos[64], eos[64], pad[64];
} lf_spm_file;

/* Reads the fields; data must outlive f. It refuses everything that sentencepiece refuses: no unk
 * or two, byte pieces without byte_fallback, fewer than 256 with it, empty pieces. */
int lf_spm_read(lf_spm_file *f, const uint8_t *data, size_t len, const char *path, lf_err *err);
void lf_spm_file_fini(lf_spm_file *f);

#endif
