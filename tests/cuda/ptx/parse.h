/* SPDX-License-Identifier: Apache-2.0
 *
 * What text.c (names, operands), parse.c (declarations, statements of a function) and module.c
 * (files, entries) share.
 */
#ifndef LF_KERNELS_CUDA_PTX_PARSE_H
#define LF_KERNELS_CUDA_PTX_PARSE_H

#include "tests/cuda/ptx/ins.h"

enum { MAX_OPERANDS = 320, MAX_SCOPES = 16 };

/* Registers of one declaration: name, or name<count>. */
struct ptx_regs {
    char name[64];
    uint32_t count; /* 0: the name alone */
    uint32_t offset;
    uint8_t bytes; /* 1: predicate */
};
struct ptx_label {
    char name[64];
    uint32_t pc;
};
struct ptx_targets {
    char name[64];
    uint32_t *target;
    char (*label)[64];
    uint32_t n;
};

struct ptx_parser {
    struct ptx_module *m;
    struct lf_ptx_kernel *k;
    const char *at;
    uint32_t line; /* of the statement */
    uint32_t here; /* of `at` */
    struct ptx_regs *reg;
    size_t n_regs, scope[MAX_SCOPES];
    int depth;
    struct ptx_symbol *symbol;
    size_t n_symbols;
    struct ptx_label *label;
    size_t n_labels;
    struct ptx_targets *table;
    size_t n_tables;
    struct {
        char name[64];
    } * wanted; /* labels that an instruction named; its target is the number here until the end */
    size_t n_wanted;
    struct ptx_operand op[MAX_OPERANDS];
    int n_op;
};

/* Room for element n of an array that grows by powers of two. */
void *lf_ptx_grow(void *p, size_t n, size_t size);
/* Past white space and comments, counting lines. */
void lf_ptx_skip(struct ptx_parser *p);
/* Whether c comes next, which is passed then; or it has to. */
bool lf_ptx_take(struct ptx_parser *p, char c);
void lf_ptx_need(struct ptx_parser *p, char c);
void lf_ptx_word(struct ptx_parser *p, char *to, size_t cap);
int64_t lf_ptx_integer(struct ptx_parser *p);
/* Bytes of an element of .b8 ... .f64, 1 for .pred; 0: no type. */
unsigned lf_ptx_bytes_of_type(const char *type);
/* Bytes that a register of so many takes in the file. */
uint32_t lf_ptx_lanes_bytes(unsigned bytes);
/* A new place in the file of registers. */
uint32_t lf_ptx_new_slot(struct lf_ptx_kernel *k, unsigned bytes);
/* One operand; all up to ';', nested braces and brackets flattened. */
void lf_ptx_atom(struct ptx_parser *p, struct ptx_operand *o);
void lf_ptx_read_operands(struct ptx_parser *p);

size_t lf_ptx_round_up(size_t x, size_t to);
/* [.align A] .type name[n]; bytes 0: []. */
void lf_ptx_declare_array(struct ptx_parser *p, char *name, size_t cap, size_t *align,
                          size_t *bytes, unsigned *element);
struct ptx_symbol *lf_ptx_add_symbol(struct ptx_symbol **list, size_t *n, const char *name);
/* { ... } of p->k: decoded, labels resolved. */
void lf_ptx_body(struct ptx_parser *p);

#endif
