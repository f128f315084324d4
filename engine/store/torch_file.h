/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of torch.save, read as a set of tensors (tensors.h): zip files (PyTorch 1.6 and later), and
 * the older form of one pickle after the other. No code in them is run (torch_pickle.h). Tensors
 * are read in place, so a file of any length takes the memory of its structure.
 *
 * zip:     PREFIX/data.pkl (the objects), PREFIX/data/KEY (the bytes of a storage, stored, not
 *          compressed), PREFIX/byteorder ("little"); sizes beyond 4 GiB in zip64 fields.
 * older:   pickle of the number 0x1950a86a20f9469cfc6c, pickle of 1001, pickle of
 *          {"little_endian": ...}, pickle of the objects, pickle of the list of storage keys; then
 *          for each key the number of its elements (u64) and the elements.
 *
 * Our own code reads the zip directory, because libarchive does not tell where the bytes of a
 * record lie in the file. Records that are compressed, encrypted, links, or named outside of the
 * archive are refused. The CRC of data.pkl is checked; those of storages are not, because storages
 * are read in ranges.
 *
 * A set holds every tensor that the top object reaches through dictionaries and lists. Its name is
 * the keys joined by '.'. Tensors that share a storage (tied weights) appear as aliases. lf_st_read
 * undoes strides and offsets.
 */
#ifndef LF_STORE_TORCH_FILE_H
#define LF_STORE_TORCH_FILE_H

#include "engine/store/tensors.h"

#define LF_TORCH_FILE  "pytorch_model.bin"
#define LF_TORCH_INDEX "pytorch_model.bin.index.json"

/* Key of the metadata of such a set: the names of the first few objects that are no tensors; absent
 * when there are none. */
#define LF_TORCH_META_OTHER "lf.not_tensors"

/* Opens path: a file, an .index.json file, or a directory with pytorch_model.bin or its index.
 * Errors are those of lf_st_open (safetensors.h). LF_EFORMAT: a pickle is refused; the message has
 * file, byte, instruction and global. */
int lf_torch_open(lf_st **out, const char *path, lf_err *err);

#endif
