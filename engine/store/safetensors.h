/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors files: read as a set of tensors (tensors.h), written with the bytes that the safetensors library writes.
 *
 *     offset  size
 *     0       8     N, unsigned little-endian: bytes of the header, at most 100,000,000
 *     8       N     JSON, UTF-8, begins with '{', padded with spaces:
 *                   {"__metadata__":{"format":"pt"}, "NAME":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}, ...}
 *     8 + N   ...   the tensors, row-major, little-endian; data_offsets count from here
 *
 * The tensors tile the data: sorted by offset each begins where the one before ends, the first at 0, the last ends with
 * the file. (So a file cannot hide bytes, nor can two names share bytes.)
 *
 * A model in several files is a directory with model.safetensors.index.json:
 *
 *     {"metadata": {"total_size": 123}, "weight_map": {"NAME": "model-00001-of-00002.safetensors", ...}}
 */
#ifndef LF_STORE_SAFETENSORS_H
#define LF_STORE_SAFETENSORS_H

#include "engine/store/tensors.h"

#define LF_SAFETENSORS_MAX_HEADER 100000000
#define LF_SAFETENSORS_FILE       "model.safetensors"
#define LF_SAFETENSORS_INDEX      "model.safetensors.index.json"

/* Open path: a .safetensors file, an .index.json file, or a directory that holds model.safetensors or its index (both:
 * LF_EINVAL, name the one you mean). A file that is typed by name may be a link; what an index names may not
 * (lf_st_open_file). Everything is checked but the bytes of the tensors.
 *
 * LF_ENOENT: no such path, or a directory without either file, or the index names a file that is not there (told apart
 * by the text). LF_EFORMAT: the text names the file and the tensor: header longer than the file or than its cap, not
 * UTF-8, not JSON, a name twice, unknown dtype, shape against data_offsets, holes, overlaps, bytes after the last
 * tensor, a truncated file, a tensor of the index that its file does not have (and where it is instead), a tensor of a
 * file that the index does not list. */
int lf_st_open(lf_st **out, const char *path, lf_err *err);

#endif
