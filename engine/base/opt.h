/* SPDX-License-Identifier: Apache-2.0
 *
 * Option tables. One const table per stage feeds the command line, the INI section of the stage,
 * --help, the man page, validation by loong-flow and the spec id. A table is data in a file of its
 * own (stages/<kind>_opts.c), which is linked into the stage and into loong-flow.
 *
 * An option reads `--learning-rate=3e-4` or `--learning-rate 3e-4` on the command line and
 * `learning_rate = 3e-4` in INI. Names are stored with '_'; on the command line '-' and '_' are the
 * same. A boolean reads `--name`, `--no-name` or `--name=yes`.
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
    /* as STR; the flow resolves it against the project, and hashes the file when it is an input */
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
    LF_OPT_IDENTITY, /* changes what is produced: part of the spec id */
    LF_OPT_NUMERIC,  /* may change bits but not the meaning: recorded, not part of the spec id */
    /* changes how the work is done, not the result: logging, intervals, threads */
    LF_OPT_OPERATIONAL
};

enum lf_opt_flags {
    LF_OPT_REQUIRED = 1,
    LF_OPT_REPEAT = 2,   /* may be given several times; the order is kept (INI: one value a line) */
    LF_OPT_INPUT = 4,    /* names an input: an artifact of another stage or a file from outside */
    LF_OPT_CLI_ONLY = 8, /* not a key of [stage]: --help, --plan, --config, --out */
    LF_OPT_HIDDEN = 16   /* given by programs to each other: not in help, man page and completion */
};

/* Type of the struct member that an option fills. */
enum lf_opt_kind {
    LF_OPT_NO_FIELD = 0, /* fills no member: the stage reads the option by name */
    LF_OPT_FLAG,         /* bool; for an ENUM of two choices it is true for the second */
    LF_OPT_I32,
    LF_OPT_U32, /* also enums */
    LF_OPT_I64,
    LF_OPT_U64,
    LF_OPT_F32,
    LF_OPT_F64, /* takes whole numbers too */
    LF_OPT_TEXT,
    LF_OPT_LIST /* for every LF_OPT_REPEAT option, whatever its type */
};

/* The values of a LF_OPT_REPEAT option, borrowed from the optset. */
typedef struct lf_opt_list {
    const char *const *v;
    size_t n;
} lf_opt_list;

struct lf_opt_field {
    size_t offset;
    enum lf_opt_kind kind;
};

/* LF_OPT_FIELD(struct pretrain, c.lr) stands for the member c.lr of struct pretrain. An unknown
 * member, or one of a type that no option has, does not compile. */
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
    /* The name that the option had before it was renamed, or NULL. Spec ids are computed with the
     * old name, so that earlier results are found. A user who gives the old name is told the new
     * one. */
    const char *was;
    enum lf_opt_type type;
    enum lf_opt_class cls;
    unsigned flags;
    const char *def;     /* default as text; NULL: unset */
    double min, max;     /* of numbers, inclusive; both 0: no bounds */
    const char *choices; /* ENUM: "adamw|sgd"; PATH: words that are no paths, such as "train" */
    const char *unit;    /* shown in help: "tokens", "seconds", NULL */
    const char *help;    /* one sentence, no full stop needed; no newline */
    struct lf_opt_field field; /* lf_optset_fill fills it; see LF_OPT_FIELD */
    const char *more;          /* whole sentences that the man page adds; NULL: none */
    /* INPUT: the outputs of other stages that it may name, "checkpoint|best"; NULL: any. */
    const char *takes;
    const char *group; /* heading in help, of this row and those behind it; NULL: as before */
} lf_opt;

/* What takes says in the rows of the stages. `best` is a checkpoint or, where an adapter is
 * trained, an adapter; `model` is a Hugging Face directory with its tokenizer. */
#define LF_OPT_SHARDS     .takes = "shards"
#define LF_OPT_CHECKPOINT .takes = "checkpoint|best"
#define LF_OPT_ADAPTER    .takes = "adapter|best|peft"
#define LF_OPT_TOKENIZER  .takes = "tokenizer|model"

/* One row, for macros that stand for several rows. */
#define LF_OPT_ROW(...)                                                                            \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* Class and flags of a row for the command line only. `LF_OPT_COMMAND | LF_OPT_REPEAT` adds a
 * flag. */
#define LF_OPT_COMMAND .cls = LF_OPT_OPERATIONAL, .flags = LF_OPT_CLI_ONLY

/* The results that a later start of a stage continues from (flow/run/handover.h). A pattern names
 * entries below out, as fnmatch(3) with '*' not matching '/'. A directory counts once it is an
 * artifact; a file counts at once. */
typedef struct lf_opt_carry {
    const char *pattern; /* "checkpoints/step-*" */
    bool grows;          /* the file is appended to: it is copied, while other files are linked */
} lf_opt_carry;

typedef struct lf_opt_table {
    const char *stage;   /* "pretrain" */
    int spec_version;    /* raised when the meaning of the stage's output changes */
    const char *summary; /* one line for --help and the man page */
    const lf_opt *opts;
    size_t n_opts;
    /* names of outputs, usable as ${stage:NAME.OUTPUT}; NULL-terminated; the first is the
     * default */
    const char *const *outputs;
    /* true: the options decide which outputs exist, at least one; false: the first always exists */
    bool any_output;
    /* A pattern of NULL ends the list. carry == NULL: a later start looks into the directories of
     * all earlier ones and checks each file there itself. */
    const lf_opt_carry *carry;
} lf_opt_table;

/* The values of the options of one table. Reading an option that is not in the table, or with the
 * wrong type, is LF_BUG. Reads are recorded, so that lf_optset_unread() can name options that were
 * given and never read. */
typedef struct lf_optset lf_optset;

lf_optset *lf_optset_create(const lf_opt_table *t, lf_err *err);
void lf_optset_destroy(lf_optset *s);
/* Sets an option from text. Type, range and choice are checked. `where` goes into messages:
 * "command line" is the command line, any other text is a place in an INI file, such as
 * "pipeline.ini:12:3". LF_EINVAL: the name is unknown; the message has the nearest known one. The
 * command line takes precedence over INI: its value replaces one from INI, and an INI value that
 * comes later is checked and dropped. Two values from the same source are an error, unless the
 * option is REPEAT: then they are appended. In INI such values stand one a line. */
int lf_optset_set(lf_optset *s, const char *name, const char *value, const char *where,
                  lf_err *err);
/* Reads every key of one section, such as "stage", of an INI file into s. Other sections are left
 * to the caller. */
int lf_optset_load_ini(lf_optset *s, const char *path, const char *section, lf_err *err);
/* Parses argv. Words that are no options are appended to *rest, an array that the caller owns and
 * whose pointers are borrowed; rest NULL refuses such words. When the table has an option "config",
 * --config FILE is loaded first. */
int lf_optset_parse_argv(lf_optset *s, int argc, char **argv, char ***rest, int *n_rest,
                         lf_err *err);
/* Checks, after all sources, that the required options are present. */
int lf_optset_check(const lf_optset *s, lf_err *err);

/* Fills *into after all sources: every row with a field sets its member, which counts as a read. An
 * option without a value leaves its member as it is, so the caller puts a default there before; a
 * list becomes empty. Texts and lists are borrowed from s and never copied. The two functions below
 * identify an option by the address of its member of *into. */
void lf_optset_fill(lf_optset *s, void *into);
/* Returns the name of the option of this member when it was given explicitly, NULL when not. */
const char *lf_optset_given(const lf_optset *s, const void *member);
/* Says that the value has no effect together with other options. This takes the read back, so that
 * lf_optset_unread names the option when it was given. */
void lf_optset_unused(const lf_optset *s, const void *member);

/* true when given or set by default; not a read */
bool lf_optset_has_value(const lf_optset *s, const char *name);
bool lf_optset_is_set(const lf_optset *s, const char *name); /* true when given explicitly */
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
/* the name of an option that was given explicitly and never read, or NULL */
const char *lf_optset_unread(const lf_optset *s);
/* Appends the canonical text of a value, for the spec id and --print-config: "0.0003" for "3e-4",
 * bytes and counts as integers. */
int lf_optset_canonical(const lf_optset *s, const char *name, lf_buf *out, lf_err *err);

/* Appends "[stage]" and every option that has a value and is not CLI_ONLY, in canonical text and in
 * table order. lf_optset_load_ini reads the same values back. Not a read. */
int lf_optset_print_ini(const lf_optset *s, lf_buf *out, lf_err *err);

/* Can the member hold every value of the row? lf_optset_create checks each row. */
bool lf_opt_field_fits(const lf_opt *o);
const lf_opt *lf_opt_find(const lf_opt_table *t, const char *name);
/* Returns the option that had this name before it was renamed, or NULL. */
const lf_opt *lf_opt_find_old(const lf_opt_table *t, const char *name);
/* May the input name an output of this name? */
bool lf_opt_takes(const lf_opt *o, const char *output);
/* Returns the index of value in the row's choices, or -1. */
int lf_opt_choice_index(const lf_opt *o, const char *value);
/* The group of row i, such as "saving"; what is for the command line only is "command line". */
const char *lf_opt_group(const lf_opt_table *t, size_t i);
/* Is row i the first of its group? */
bool lf_opt_group_begins(const lf_opt_table *t, size_t i);
void lf_opt_help_line(const lf_opt *o, lf_buf *out); /* the line of one option */
void lf_opt_help(const lf_opt_table *t, const char *program, lf_buf *out); /* the text of --help */

#endif
