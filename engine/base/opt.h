/* SPDX-License-Identifier: Apache-2.0
 *
 * Option tables: one const table per stage feeds the command line, the INI stage section, --help,
 * the man page test, validation by loong-flow and the spec id. A table is data in a file of its own
 * (stages/<kind>_opts.c), linked into the stage and into loong-flow.
 *
 * On the command line `--learning-rate=3e-4`, `--learning-rate 3e-4`; in INI `learning_rate = 3e-4`
 * (names are stored with '_', and '-' and '_' are the same on the command line). Booleans:
 * `--name`, `--no-name`, `--name=yes`.
 */
#ifndef LF_BASE_OPT_H
#define LF_BASE_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"

enum lf_opt_type {
    LF_OPT_STR,
    /* as STR; flow resolves it against the project and hashes it when it is an input */
    LF_OPT_PATH,
    LF_OPT_BOOL,
    LF_OPT_INT,      /* plain integer */
    LF_OPT_COUNT,    /* lf_parse_count: 4k, 1M */
    LF_OPT_BYTES,    /* lf_parse_bytes: 80G */
    LF_OPT_DURATION, /* lf_parse_duration, seconds */
    LF_OPT_FLOAT,
    LF_OPT_ENUM /* one of choices */
};

enum lf_opt_class {
    LF_OPT_IDENTITY,   /* changes what is produced: part of the spec id */
    LF_OPT_NUMERIC,    /* may change bits, not meaning: recorded, not part of the spec id */
    LF_OPT_OPERATIONAL /* how, not what: logging, intervals, threads */
};

enum lf_opt_flags {
    LF_OPT_REQUIRED = 1,
    LF_OPT_REPEAT = 2,  /* may be given several times; values kept in order (INI: one per line) */
    LF_OPT_INPUT = 4,   /* names an input artifact: an edge of the stage graph or an outside file */
    LF_OPT_CLI_ONLY = 8 /* not a key of [stage]: --help, --plan, --config, --out */
};

/* Type of the member of a struct that an option fills. */
enum lf_opt_kind {
    LF_OPT_NO_FIELD = 0, /* read by name */
    LF_OPT_FLAG,         /* bool; also of an ENUM of two choices, true for the second */
    LF_OPT_I32,
    LF_OPT_U32, /* also enums */
    LF_OPT_I64,
    LF_OPT_U64,
    LF_OPT_F32,
    LF_OPT_F64, /* also of whole numbers */
    LF_OPT_TEXT,
    LF_OPT_LIST /* of options that may repeat, whatever their type */
};

/* Values of an option that may repeat, borrowed from the optset. */
typedef struct lf_opt_list {
    const char *const *v;
    size_t n;
} lf_opt_list;

struct lf_opt_field {
    size_t offset;
    enum lf_opt_kind kind;
};

/* The member c.lr of struct pretrain: LF_OPT_FIELD(struct pretrain, c.lr). A name that is not
 * there, or a type that no option has, does not compile. */
#define LF_OPT_FIELD(type, member)                                                                 \
    {                                                                                              \
        offsetof(type, member), LF_OPT_KNOWN(LF_OPT_KIND(((type *)0)->member))                     \
    }
#define LF_OPT_KNOWN(kind) (kind) * sizeof(char[(kind) ? 1 : -1])
#define LF_OPT_KIND(x)                                                                             \
    (LF_OPT_KIND_32(x) + LF_OPT_KIND_64(x) + LF_OPT_KIND_F(x) + LF_OPT_KIND_TEXT(x) +              \
     LF_OPT_KIND_OTHER(x))
#define LF_OPT_KIND_32(x)    _Generic(x, int32_t : LF_OPT_I32, uint32_t : LF_OPT_U32, default : 0)
#define LF_OPT_KIND_64(x)    _Generic(x, int64_t : LF_OPT_I64, uint64_t : LF_OPT_U64, default : 0)
#define LF_OPT_KIND_F(x)     _Generic(x, float : LF_OPT_F32, double : LF_OPT_F64, default : 0)
#define LF_OPT_KIND_TEXT(x)  _Generic(x, const char * : LF_OPT_TEXT, default : 0)
#define LF_OPT_KIND_OTHER(x) _Generic(x, bool : LF_OPT_FLAG, lf_opt_list : LF_OPT_LIST, default : 0)

typedef struct lf_opt {
    const char *name; /* with underscores */
    /* The name that the option had before it was renamed, NULL: none. Spec ids go on with it, so
     * that results made before are found; whoever still gives it is told the new one. */
    const char *was;
    enum lf_opt_type type;
    enum lf_opt_class cls;
    unsigned flags;
    const char *def;     /* default as text, NULL = unset */
    double min, max;     /* for numbers, inclusive; both 0 = no bound */
    const char *choices; /* ENUM: "adamw|sgd"; PATH: words that are no paths, such as "train" */
    const char *unit;    /* shown in help: "tokens", "seconds", NULL */
    const char *help;    /* one sentence, no full stop needed; no newline */
    struct lf_opt_field field; /* what lf_optset_fill fills: LF_OPT_FIELD(struct .., member) */
    const char *more;          /* what the man page says beyond: whole sentences; NULL: nothing */
} lf_opt;

/* A row in a macro that stands for several. */
#define LF_OPT_ROW(...)                                                                            \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* Class and flags of a row that is of the command line only; `LF_OPT_COMMAND | LF_OPT_REPEAT` has a
 * flag more. */
#define LF_OPT_COMMAND .cls = LF_OPT_OPERATIONAL, .flags = LF_OPT_CLI_ONLY

/* What a later start of a stage goes on from (flow/run/handover.h): names below out as patterns of
 * fnmatch(3) in which '*' does not match '/'. A directory counts once it is an artifact, a file at
 * once. */
typedef struct lf_opt_carry {
    const char *pattern; /* "checkpoints/step-*" */
    bool grows;          /* a file that is appended to: it is copied, others get a second name */
} lf_opt_carry;

typedef struct lf_opt_table {
    const char *stage;   /* "pretrain" */
    int spec_version;    /* raised when the meaning of the stage's output changes */
    const char *summary; /* one line for --help and the man page */
    const lf_opt *opts;
    size_t n_opts;
    /* names usable as ${stage:NAME.out}; NULL-terminated; the first is the default */
    const char *const *outputs;
    /* which outputs there are follows from the options: at least one. Else the first is always
     * there */
    bool any_output;
    /* A pattern of NULL ends the list. NULL: a later start looks into the directories of all before
     * it, whose pieces it checks one by one. */
    const lf_opt_carry *carry;
} lf_opt_table;

/* Values of one table. Reading an option that is not in the table, or with the wrong type, is
 * LF_BUG. Reads are noted, so lf_optset_unread() can name options that nobody asked for. */
typedef struct lf_optset lf_optset;

lf_optset *lf_optset_create(const lf_opt_table *t, lf_err *err);
void lf_optset_destroy(lf_optset *s);
/* Set from text and validate type, range, choice. `where` ("pipeline.ini:12:3" or "command line")
 * goes into messages; an unknown name is LF_EINVAL with the nearest known one. A second set of a
 * non-REPEAT option is an error unless it comes from a later source class (INI file, then command
 * line), which replaces what the earlier one gave; an INI value after a command-line value is
 * checked and dropped. REPEAT: values of one class are appended; in INI one per line. `where` ==
 * "command line" is the command line, any other text an INI position. */
int lf_optset_set(lf_optset *s, const char *name, const char *value, const char *where,
                  lf_err *err);
/* Read [stage] of an INI file (every key) into s; other sections are left for the caller. */
int lf_optset_load_ini(lf_optset *s, const char *path, const char *section, lf_err *err);
/* Parse argv; non-option words are appended to *rest (owned array of borrowed pointers) or refused
 * when rest is NULL. Loads --config FILE first when the table has an option "config". */
int lf_optset_parse_argv(lf_optset *s, int argc, char **argv, char ***rest, int *n_rest,
                         lf_err *err);
/* After all sources: required options present. */
int lf_optset_check(const lf_optset *s, lf_err *err);

/* After all sources: every row with a field fills its member of *into, which counts as a read. An
 * option without a value leaves its member as it is, so what holds then is put there before; a list
 * is empty. Texts and lists are borrowed from s, always: nothing is copied. The two functions below
 * take the address of a member of *into and so need no name. */
void lf_optset_fill(lf_optset *s, void *into);
/* Name of the option that fills this member when it was given explicitly, NULL when it was not. */
const char *lf_optset_given(const lf_optset *s, const void *member);
/* The value has no effect together with others: takes the read back, so that lf_optset_unread names
 * the option when it was given. */
void lf_optset_unused(const lf_optset *s, const void *member);

/* given, or by default; not a read */
bool lf_optset_has_value(const lf_optset *s, const char *name);
bool lf_optset_is_set(const lf_optset *s, const char *name); /* given explicitly, not by default */
/* NULL when unset; STR PATH ENUM */
const char *lf_optset_str(const lf_optset *s, const char *name);
/* INT COUNT BYTES DURATION; 0 when unset */
int64_t lf_optset_int(const lf_optset *s, const char *name);
double lf_optset_float(const lf_optset *s, const char *name); /* 0 when unset */
bool lf_optset_bool(const lf_optset *s, const char *name);    /* false when unset */
int lf_optset_choice(const lf_optset *s, const char *name); /* index into choices; -1 when unset */
size_t lf_optset_count(const lf_optset *s, const char *name); /* REPEAT: number of values */
/* All values of an option, in order. */
lf_opt_list lf_optset_list(const lf_optset *s, const char *name);
const char *lf_optset_str_at(const lf_optset *s, const char *name, size_t i);
/* name of an option set explicitly and never read, or NULL */
const char *lf_optset_unread(const lf_optset *s);
/* Canonical text of a value ("0.0003" for "3e-4", bytes and counts as integers), for the spec id
 * and --print-config. */
int lf_optset_canonical(const lf_optset *s, const char *name, lf_buf *out, lf_err *err);

/* "[stage]" and every option that has a value and is not CLI_ONLY, canonical, in table order: a
 * file that load_ini reads back to the same values. Not a read. */
int lf_optset_print_ini(const lf_optset *s, lf_buf *out, lf_err *err);

/* Does the member take every value of the row? Asked of each row by lf_optset_create. */
bool lf_opt_field_fits(const lf_opt *o);
const lf_opt *lf_opt_find(const lf_opt_table *t, const char *name);
/* The option that had this name before it was renamed; NULL when none had. */
const lf_opt *lf_opt_find_old(const lf_opt_table *t, const char *name);
/* Which of the row's choices value is, -1 when none. */
int lf_opt_choice_index(const lf_opt *o, const char *value);
void lf_opt_help(const lf_opt_table *t, const char *program, lf_buf *out); /* the text of --help */

#endif
