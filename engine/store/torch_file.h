/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that torch.save wrote, as a set of tensors (tensors.h): zip files (PyTorch 1.6 and later)
 * and the older form of one pickle after the other. Nothing in them is run (torch_pickle.h), and
 * tensors are read where they lie: a file of any length takes the memory of its structure.
 *
 * zip:     PREFIX/data.pkl (the objects), PREFIX/data/KEY (the bytes of a storage, stored, not
 *          compressed), PREFIX/byteorder ("little"); sizes beyond 4 GiB in zip64 fields.
 * older:   pickle of the number 0x1950a86a20f9469cfc6c, pickle of 1001, pickle of
 *          {"little_endian": ...}, pickle of the objects, pickle of the list of storage keys; then
 *          for each key the number of its elements (u64) and the elements.
 *
 * The zip directory is read here and not by libarchive, because what is needed is where a record's
 * bytes lie in the file; records that are compressed, encrypted, links, or named outside of the
 * archive are refused. The CRC of data.pkl is checked; those of storages are not, because they are
 * read in ranges.
 *
 * A set holds every tensor that is reached from the top object through dictionaries and lists;
 * names are the keys joined by '.'. Tensors that share a storage (tied weights) appear as aliases;
 * strides and offsets are undone by lf_st_read.
 */
#ifndef LF_STORE_TORCH_FILE_H
#define LF_STORE_TORCH_FILE_H

#include "engine/store/tensors.h"

#define LF_TORCH_FILE  "pytorch_model.bin"
#define LF_TORCH_INDEX "pytorch_model.bin.index.json"

/* Metadata of a set from torch files: what is no tensor, text of at most a few names, or absent. */
#define LF_TORCH_META_OTHER "lf.not_tensors"

/* Open path: a file, an .index.json file, or a directory with pytorch_model.bin or its index.
 * Errors as of lf_st_open (safetensors.h); a refused pickle is LF_EFORMAT with file, byte,
 * instruction and global. */
int lf_torch_open(lf_st **out, const char *path, lf_err *err);

#endif
