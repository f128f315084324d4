/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples in archives, as webdataset has them: members that stand together and have the same name
 * up to the first dot behind the last slash are one sample, by their endings
 *
 *   jpg jpeg png webp   a picture, in their order; also img1.jpg and their like
 *   json                the columns of the row
 *   txt                 what is said of the pictures: a turn of the user with their marks, and the
 *                       text as the answer to it
 *
 * A sample becomes a row with the column `images`, which takes the place of image and images of its
 * json. The row has the form of rowpack.h. Of a folder of Energon whose samples are read by parts
 * the row has the sample's parts instead, under their names; lf_energon_row makes the row of them.
 */
#ifndef LF_TEXT_CORPUS_SAMPLES_H
#define LF_TEXT_CORPUS_SAMPLES_H

#include <archive.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/base/err.h"
#include "engine/base/str.h"
#include "engine/text/corpus/energon.h"

/* member of a row that holds the text of a json whose columns are the row's, too */
#define LF_WEBSAMPLES_JSON "\x01json"

typedef struct lf_websamples {
    const lf_energon *folder; /* that the archive is of, or NULL; borrowed */
    bool ignore_others;       /* members with other endings are passed over instead of refused */
    size_t max_bytes;         /* of a sample */
    lf_buf name;              /* of the member whose data comes next */
    bool there;               /* it is there */
    lf_buf key, pics, text, json;
    size_t n_pics;
    uint64_t n; /* samples so far; the caller sets it to 0 */
    bool any_text, any_json;
} lf_websamples;

void lf_websamples_init(lf_websamples *s);
void lf_websamples_fini(lf_websamples *s);
/* Can the member of this name be part of a sample? folder: of an archive of that, or NULL. */
bool lf_websamples_member(const lf_energon *folder, const char *name);
/* Begins with the member whose header was read last. */
int lf_websamples_begin(lf_websamples *s, const char *name, lf_err *err);
/* The next sample to *row (cleared first): 1; 0 after the last. Messages begin with a member. */
int lf_websamples_next(lf_websamples *s, struct archive *ar, lf_buf *row, lf_err *err);

#endif
