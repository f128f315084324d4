/* SPDX-License-Identifier: Apache-2.0
 *
 * Hand-written scanners for the three well-known pre-tokenizer patterns. Each is equal to its
 * regular expression with leftmost-first alternation and backtracking (tests/unit/text_scan.c
 * compares them with PCRE2), and many times faster.
 */
#ifndef LF_TEXT_SCAN_H
#define LF_TEXT_SCAN_H

#include <stddef.h>
#include <stdint.h>

enum lf_scan_kind { LF_SCAN_NONE, LF_SCAN_GPT2, LF_SCAN_LLAMA3, LF_SCAN_QWEN2 };

#define LF_PATTERN_GPT2                                                                            \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LF_PATTERN_LLAMA3                                                                          \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "                     \
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"                                                 \
    "\\s+(?!\\S)|\\s+"
#define LF_PATTERN_QWEN2                                                                           \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "                          \
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"                                                 \
    "\\s+(?!\\S)|\\s+"

/* Returns the scanner that implements this pattern exactly, or LF_SCAN_NONE. */
enum lf_scan_kind lf_scan_find(const char *pattern);

/* Returns the length (>= 1) of the match at p; p < end points to valid UTF-8. Every character of a
 * text belongs to some match. cls is the table of lf_uniclass_create(). */
size_t lf_scan_next(enum lf_scan_kind kind, const uint8_t *cls, const uint8_t *p,
                    const uint8_t *end);

#endif
