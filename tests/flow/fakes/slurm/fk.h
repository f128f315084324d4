/* SPDX-License-Identifier: Apache-2.0
 *
 * An imitation of SLURM 22.05 for tests: one program under the names sbatch, squeue, sacct,
 * scontrol, scancel, srun, sinfo. All state lies in $LF_FAKE_DIR; jobs are really run. Strict: what
 * the real command does not know is an error, and what it knows but this imitation does not is an
 * error too (exit 99), never ignored. README.md has the knobs.
 *
 * Three kinds of processes: a command changes the state under a lock and ends; `slurmctld` (started
 * by the first sbatch, ends when no job is left) starts jobs, ends them and resolves dependencies;
 * one `slurmstepd` per running job is the ancestor of all its processes, as the child subreaper,
 * and writes down how the batch script ended.
 */
#ifndef LF_TESTS_FAKES_SLURM_FK_H
#define LF_TESTS_FAKES_SLURM_FK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* ---- state.c ---- */
extern const char *fk_dir;  /* $LF_FAKE_DIR */
extern const char *fk_name; /* the command's name */
void fk_die(int code, const char *fmt, ...) __attribute__((noreturn, format(printf, 2, 3)));
void fk_enter(void); /* take the lock, read the state */
void fk_save(void);  /* write the state, keep the lock */
void fk_leave(void); /* write the state, release */
json_t *fk_jobs(void);
json_t *fk_acct(void); /* records of ended starts, oldest first; never purged */
json_t *fk_root(void);
bool fk_reload_needed(void);
/* below fk_dir */
void fk_path(char *out, size_t cap, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void fk_append(const char *file, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
double fk_now(void);
char *fk_read(const char *path); /* NULL when it cannot be read */

/* A knob is the file knobs/NAME. */
char *fk_knob(const char *name);
double fk_knob_num(const char *name, double otherwise);
/* A counted one: first line a number of times or "always", then text. True when it applies now;
 * *text is the rest. */
bool fk_knob_take(const char *name, char **text);

const char *fk_s(const json_t *o, const char *key); /* "" when absent */
long long fk_i(const json_t *o, const char *key);
double fk_f(const json_t *o, const char *key);
bool fk_b(const json_t *o, const char *key);
void fk_set_s(json_t *o, const char *key, const char *v);
void fk_set_i(json_t *o, const char *key, long long v);
void fk_set_f(json_t *o, const char *key, double v);
void fk_set_b(json_t *o, const char *key, bool v);

/* ---- opts.c ---- */
typedef struct fk_opt {
    const char *name;
    char letter;             /* 0: none */
    char arg;                /* 'n' none, 'r' required, 'o' optional */
    char done;               /* 1: imitated; 0: real, but not here */
    const char *key, *value; /* stored under another key with this value; NULL: its own */
    const char *env;         /* an environment variable that sets it */
} fk_opt;
/* Fills o ({key: text}); returns the index of the first word that is no option. */
int fk_parse(json_t *o, const fk_opt *table, int argc, char **argv);
void fk_parse_env(json_t *o, const fk_opt *table);
const char *fk_get(const json_t *o, const char *key); /* NULL when not given */

/* ---- values.c ---- */
/* of a time limit, rounded up; -1 UNLIMITED; dies when wrong */
long long fk_minutes(const char *text);
bool fk_mem_mb(long long *mb, const char *text);
bool fk_int_in(long long *v, const char *text, long long lo, long long hi);
int fk_signal_number(const char *text); /* 0: unknown */
/* "N/A" for 0; obeys SLURM_TIME_FORMAT as the real one does */
void fk_time(char *buf, size_t cap, double t);
void fk_elapsed(char *buf, size_t cap, double s);
/* sacct -S: dates, "now", "now-2days", "midnight"; negative: wrong */
double fk_time_parse(const char *text);
char *fk_expand(const char *pattern, const json_t *job); /* %j %x ... in file names */

/* ---- jobs.c ---- */
json_t *fk_job(long long id); /* newest with that id, NULL */
bool fk_is_pending(const json_t *j);
/* The user of j stands in a list of names and numbers with commas between; NULL: everybody does. */
bool fk_is_of(const json_t *j, const char *users);
bool fk_is_final(const json_t *j);
/* pending already, its old start is still being ended */
bool fk_is_put_back(const json_t *j);
const char *fk_state_word(const json_t *j);  /* as %T */
const char *fk_state_short(const json_t *j); /* as %t */
double fk_end_time(const json_t *j);         /* planned or real, 0 */
char *fk_dep_text(const json_t *j);          /* "(null)" when none */
/* Parses and sets the dependencies of j. NULL or why not. */
const char *fk_dep_set(json_t *j, const char *text);
/* final: accounts, resolves children */
void fk_finish(json_t *j, const char *state, const char *reason, int status);
void fk_requeue(json_t *j, const char *why);      /* of a start that is over or given up */
void fk_kill_begin(json_t *j, const char *state); /* TERM, later KILL; final state then */
/* 'a' all below root, 'b' its child, 's' processes of steps */
void fk_tree_signal(pid_t root, int sig, char which);
bool fk_down(void); /* is the controller to be unreachable for this call? */

/* ---- sbatch_opts.c ---- */
extern const fk_opt fk_sbatch_opts[];
void fk_refuse(const char *why) __attribute__((noreturn)); /* sbatch.c: the controller's refusal */
long long fk_number(const json_t *o, const char *key, long long lo, long long hi,
                    long long otherwise);
void fk_sbatch_check(const json_t *o);

/* ---- the commands ---- */
int fk_sbatch(int argc, char **argv);
int fk_squeue(int argc, char **argv);
int fk_sacct(int argc, char **argv);
int fk_scontrol(int argc, char **argv);
int fk_scancel(int argc, char **argv);
int fk_srun(int argc, char **argv);
int fk_sinfo(int argc, char **argv);
int fk_world(int argc, char **argv); /* fakeslurm: what happens to a cluster */
int fk_slurmctld(int argc, char **argv);
void fk_ctld_ensure(void); /* under the lock */
pid_t fk_stepd_start(json_t *job);

#define FK_DOWN    "Unable to contact slurm controller (connect failure)"
#define FK_VERSION "slurm 22.05.8"

#endif
