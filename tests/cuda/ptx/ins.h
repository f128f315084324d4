/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the interpreter of PTX: a decoded instruction, a warp, and how operands are found.
 *
 * A warp's registers lie in one file, 32 lanes beside each other: 64 bytes for 16-bit registers and
 * predicates (which are one word, a bit a lane), 128 and 256 for 32 and 64 bits. An operand is the
 * offset of its lanes there; constants and special registers have a place in the file too, so that
 * every operand is the same thing. defined[offset / 64] tells the lanes that have a value.
 */
#ifndef LF_KERNELS_CUDA_PTX_INS_H
#define LF_KERNELS_CUDA_PTX_INS_H

#include "tests/cuda/ptx/ptx.h"

enum { PTX_LANES = 32, PTX_MAX_WARPS = 32, PTX_BARRIERS = 16 };
/* Where shared memory and arguments begin in their windows: not at 0, so that a null pointer is
 * none of them. */
enum { PTX_BASE = 1024 };

typedef uint16_t __attribute__((may_alias)) ptx_h;
typedef uint32_t __attribute__((may_alias)) ptx_w;
typedef uint64_t __attribute__((may_alias)) ptx_d;
typedef int16_t __attribute__((may_alias)) ptx_sh;
typedef int32_t __attribute__((may_alias)) ptx_sw;
typedef int64_t __attribute__((may_alias)) ptx_sd;
typedef float __attribute__((may_alias)) ptx_f;
typedef double __attribute__((may_alias)) ptx_g;

enum ptx_space { PTX_GENERIC, PTX_GLOBAL, PTX_SHARED, PTX_LOCAL, PTX_PARAM, PTX_CONST };
/* How the scheduler treats an instruction. CONVERGE: the lanes of `members` (an operand; 0: all of
 * the warp) do it together. */
enum ptx_kind {
    PTX_PLAIN,
    PTX_BRANCH,
    PTX_INDEXED,
    PTX_RETURN,
    PTX_BARRIER,
    PTX_CONVERGE,
    PTX_WAIT
};

struct ptx_warp;
struct ptx_ins;
typedef void ptx_fn(struct ptx_warp *w, const struct ptx_ins *i, uint32_t mask);

struct ptx_ins {
    ptx_fn *fn;
    uint32_t *o; /* operands: nd destinations, then sources */
    uint16_t nd, n;
    uint8_t kind;
    bool negate; /* of the guard */
    bool leader; /* somebody branches here */
    /* an undefined source makes the destination undefined; otherwise it is an error */
    bool passes_on;
    bool own_defined;              /* sets `defined` itself */
    uint8_t space, size, vec, reg; /* memory: bytes of an element, elements, bytes of a register */
    bool sign;
    uint32_t guard;   /* 0: none */
    uint32_t members; /* an operand, 0: all */
    uint32_t line, target;
    int64_t imm; /* displacement, count, ... */
    int64_t imm2;
    const uint32_t *targets; /* indexed branch */
    const char *lo, *hi;     /* allocation of the last global address, for one launch */
};

struct ptx_symbol {
    char *name;
    enum ptx_space space;
    uint64_t address; /* offset in its space; global, const: host address */
    uint64_t bytes;
};

struct ptx_const {
    uint64_t bits;
    uint32_t bytes, offset;
};

struct lf_ptx_kernel {
    struct lf_ptx_kernel *next;
    char *name;
    struct ptx_module *module;
    struct ptx_ins *code;
    size_t n, cap;
    uint32_t file_bytes; /* of registers, constants, special registers */
    struct ptx_const *constant;
    size_t n_const;
    uint32_t special[24]; /* enum ptx_special */
    /* places / 64 of registers that no instruction writes: the compiler says that they do not
     * matter */
    uint32_t *unwritten;
    size_t n_unwritten;
    /* bytes: static shared memory, where dynamic begins (0: none), local, arguments */
    size_t shared, dynamic_at, local, args;
    unsigned max_threads;
    bool dynamic;
};

enum ptx_special {
    S_TID_X,
    S_TID_Y,
    S_TID_Z,
    S_NTID_X,
    S_NTID_Y,
    S_NTID_Z,
    S_CTAID_X,
    S_CTAID_Y,
    S_CTAID_Z,
    S_NCTAID_X,
    S_NCTAID_Y,
    S_NCTAID_Z,
    S_LANEID,
    S_WARPID,
    S_NWARPID,
    S_LT,
    S_LE,
    S_GT,
    S_GE,
    S_EQ,
    S_COUNT
};

struct ptx_module {
    struct ptx_module *next;
    char *path, *text;
    size_t bytes;
    struct ptx_symbol *symbol; /* of the module: global and const arrays */
    size_t n_symbols;
    struct lf_ptx_kernel *kernel;
};

/* A part of a warp that is at one place. */
struct ptx_part {
    uint32_t pc, mask;
    enum { PART_RUNS, PART_MEETS, PART_AT_BARRIER, PART_WAITS } state;
};

struct ptx_copy {
    char *dst;
    const char *src;
    uint8_t bytes, from; /* bytes written; of these from src, the others are zero */
    int group;           /* -1: open */
};
struct ptx_copies {
    struct ptx_copy *copy;
    int n, cap, groups;
};

struct ptx_warp {
    unsigned char *reg;
    uint32_t *defined;
    struct ptx_block *b;
    unsigned index;
    uint32_t live; /* lanes that have not returned */
    struct ptx_part part[PTX_LANES];
    int parts;
    int barrier;
    bool again, idle; /* set by a PTX_WAIT instruction: not yet; and it did nothing */
    struct ptx_copies copies[PTX_LANES];
    struct ptx_products *products; /* wgmma.c */
};

struct ptx_bar {
    unsigned arrived, expected;
};

struct ptx_block {
    struct lf_ptx_kernel *k;
    struct lf_emu_uint3 grid, dim, at;
    const char *args;
    char *smem; /* host address of shared address PTX_BASE */
    size_t smem_bytes;
    char *local; /* of all threads */
    unsigned threads, warps;
    struct ptx_warp warp[PTX_MAX_WARPS];
    struct ptx_bar bar[PTX_BARRIERS];
    int order;
    struct ptx_tiles *tiles;   /* tma.c */
    struct ptx_group_log *log; /* wgmma.c */
};

/* ---- operands ---- */

static inline void *ptx_lanes(const struct ptx_warp *w, uint32_t offset)
{
    return w->reg + offset;
}
#define PTX_O(w, i, k) ptx_lanes(w, (i)->o[k])
static inline uint32_t ptx_pred(const struct ptx_warp *w, uint32_t offset)
{
    return *(const ptx_w *)(w->reg + offset);
}
static inline void ptx_set_pred(struct ptx_warp *w, uint32_t offset, uint32_t mask, uint32_t value)
{
    ptx_w *p = (ptx_w *)(w->reg + offset);
    *p = (*p & ~mask) | (value & mask);
}

/* Ends the process. lane < 0: no one thread. */
_Noreturn void lf_ptx_fail(const struct ptx_warp *w, const struct ptx_ins *i, int lane,
                           const char *what, ...) __attribute__((format(printf, 4, 5)));

/* Host address of `bytes` at address a of lane's space, checked. */
char *lf_ptx_at(struct ptx_warp *w, struct ptx_ins *i, int lane, uint64_t a, uint32_t bytes,
                enum ptx_space space);

/* Runs a warp until all its parts wait or have ended (step.c). */
void lf_ptx_run_warp(struct ptx_warp *w);

/* ---- decoding ---- */

/* An operand as it stands in the text. */
struct ptx_operand {
    enum { OP_REG, OP_IMM, OP_SYMBOL, OP_NAME } is;
    uint32_t offset; /* register */
    uint8_t bytes;   /* of a register: 1 a predicate, 2, 4, 8 */
    bool negate;     /* !p */
    bool memory, floating, sink;
    uint8_t group; /* 0, or the number of its braces */
    uint64_t bits; /* immediate; symbol: address */
    int64_t plus;  /* [x + plus] */
    const struct ptx_symbol *symbol;
    char name[96];
};

struct ptx_parser;
/* Whether the opcode is one of a file's; decodes it then. */
bool lf_ptx_decode_arith(struct ptx_parser *p, const char *op, struct ptx_ins *i);
bool lf_ptx_decode_float(struct ptx_parser *p, const char *op, struct ptx_ins *i);
bool lf_ptx_decode_cvt(struct ptx_parser *p, const char *op, struct ptx_ins *i);
bool lf_ptx_decode_memory(struct ptx_parser *p, const char *op, struct ptx_ins *i);
bool lf_ptx_decode_async(struct ptx_parser *p, const char *op, struct ptx_ins *i);
bool lf_ptx_decode_tma(struct ptx_parser *p, const char *op, struct ptx_ins *i);
bool lf_ptx_decode_wgmma(struct ptx_parser *p, const char *op, struct ptx_ins *i);
bool lf_ptx_decode_warp(struct ptx_parser *p, const char *op, struct ptx_ins *i);
bool lf_ptx_decode_matrix(struct ptx_parser *p, const char *op, struct ptx_ins *i);
bool lf_ptx_decode_flow(struct ptx_parser *p, const char *op, struct ptx_ins *i);

/* What they use of the parser. */
int lf_ptx_operands(const struct ptx_parser *p);
const struct ptx_operand *lf_ptx_operand(const struct ptx_parser *p, int k);
_Noreturn void lf_ptx_refuse(const struct ptx_parser *p, const char *what, ...)
    __attribute__((format(printf, 2, 3)));
/* Place in the file of operand k as a register of so many bytes (1: predicate), or a constant of
 * that size. */
uint32_t lf_ptx_slot(struct ptx_parser *p, int k, unsigned bytes);
/* The same, for a register at least so wide; *bytes its width. An immediate has the width asked
 * for. */
uint32_t lf_ptx_slot_wide(struct ptx_parser *p, int k, unsigned least, uint8_t *bytes);
uint32_t lf_ptx_constant(struct ptx_parser *p, uint64_t bits, unsigned bytes);
/* All operands by a signature: H W D P for destinations of 16, 32, 64 bits and predicates, h w d p
 * for sources, a for [address]. */
void lf_ptx_signature(struct ptx_parser *p, struct ptx_ins *i, const char *sig);
uint32_t lf_ptx_label(struct ptx_parser *p, int k);
uint32_t *lf_ptx_new_operands(struct ptx_ins *i, unsigned nd, unsigned n);

struct ptx_row {
    const char *op;
    ptx_fn *fn;
    const char *sig;
};
/* Looks op up in a table and decodes by its signature. */
bool lf_ptx_decode_row(struct ptx_parser *p, const char *op, struct ptx_ins *i,
                       const struct ptx_row *row, size_t n);

/* A small float's value; kind: 0 f16, 1 bf16, 2 e4m3, 3 e5m2 (cvt.c). */
float lf_ptx_widen(uint32_t code, int kind);

/* ---- copies that are under way (async.c) ---- */
void lf_ptx_copies_check(struct ptx_block *b);
/* Tiles of the copy engine (tma.c): one lands (false: there is none); the block has ended, with
 * none left. */
bool lf_ptx_tile_lands(struct ptx_block *b);
void lf_ptx_tiles_check(struct ptx_block *b);
void lf_ptx_tiles_free(struct ptx_block *b);
/* Products of warpgroups (wgmma.c), likewise. */
void lf_ptx_products_check(struct ptx_block *b);
void lf_ptx_products_free(struct ptx_block *b);

#endif
