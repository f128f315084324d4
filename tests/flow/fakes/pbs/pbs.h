/* SPDX-License-Identifier: Apache-2.0
 *
 * qsub, qstat, qselect, qdel, qalter, qsig, qrls and qmove for tests: one program under eight
 * names. There is no daemon, unless a test wants a
 * server that can be killed. All state is one JSON file below $LF_FAKE_DIR that each command
 * changes under a lock; a job runs below a small process of its own (its "mom"), which writes its
 * end down and starts what may start next.
 *
 * $LF_FAKE_DIR/conf     settings, one "key=value" a line (see lf conf_* below)
 * $LF_FAKE_DIR/knobs/N  a trouble to make: first line how often (-1 always), second line its value
 * $LF_FAKE_DIR/calls    one line for each command that was run: its words
 *
 * What is modelled, and where it was seen: the grammar of the commands from their manual pages
 * (OpenPBS and Torque); ends, dependencies and exit codes from an OpenPBS 23.06 that was tried:
 *   - a job that waits for others is H, substate 22, hold s; the child of a failed afterok is
 *     deleted (F, substate 92, no Exit_status, no comment, no run_count) and its children in turn
 *   - qdel of a job that has not run deletes its children, of a running one its afterok children;
 *     qalter of a depend deletes the job itself
 *   - a dependency on an unknown job, or with history off on a finished one, is seen after qsub has
 *     printed an id: the job is then deleted
 *   - exit status: the program's, 256 + signal, -29 at the walltime (Torque -11); TERM, kill_delay,
 *     KILL
 *   - unknown id: exit 153; finished and asked without -x: exit 35; several ids in JSON: the first
 *     only
 *   - a script job runs below a login shell that dies of signals; `-- program` runs right below the
 *     mom
 *   - node_fail_requeue=1: a mom that dies leaves the job's processes alive, and the server runs
 *     the job again
 *   - server_process=1: without a living pbs_server (pbs_server_up of lib.sh) no command is
 *     answered and nothing is started, requeued or released; moms and jobs go on, and what they
 *     wrote down counts once there is a server again
 *   - jobs start in HOME, with the mom's environment, never with the submitter's
 * An option, resource or attribute that the real command lacks is an error; what it has and this
 * lacks ends with exit 99.
 */
#ifndef LF_FAKE_PBS_H
#define LF_FAKE_PBS_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum {
    FAKE_NOT_MODELLED = 99,
    EXIT_UNKNOWN_ID = 153,
    EXIT_FINISHED = 35,
    EXIT_BAD_STATE = 168,
    EXIT_RUNNING = 167,
    EXIT_PERMISSION = 159,
    EXIT_RESOURCE = 187,
    EXIT_REFUSED = 36
};

#define BIG_PATH (3 * PATH_MAX) /* room for a directory and what is put behind it */

extern const char *fake_me; /* the name it was called by */
extern char fake_dir[PATH_MAX];

/* ---- settings: set in conf, with what holds where they are not ---- */
bool conf_torque(void);        /* flavour=torque */
const char *conf_server(void); /* server=pbs0 */
const char *conf_str(const char *key, const char *preset);
long conf_num(const char *key, long preset);

/* ---- state.c ---- */
void fake_unreachable(void); /* ends the command when the knob says so */
_Noreturn void die(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
double now_s(void);
/* Is there such a knob, with uses left? Takes one. value: caller storage, may be NULL. */
bool knob(const char *name, char *value, size_t cap);
void state_lock(void); /* loads; time-dependent changes (kept jobs that run out) are made */
void state_unlock(bool changed); /* saves when changed */
json_t *state_jobs(void);        /* object: sequence number as text -> job */
int state_next_id(void);
/* A job by what a user may write: "12", "12.pbs0"; NULL: unknown or badly formed (*bad). */
json_t *job_find(const char *word, bool *bad);
const char *job_str(const json_t *job, const char *key);
long job_num(const json_t *job, const char *key, long preset);
char job_state(const json_t *job);
bool job_over(const json_t *job);
void job_id_text(char *buf, size_t cap, int seq);
void job_set_state(json_t *job, char state, int substate);
/* Release, delete and start whatever may be now. */
void settle(void);
/* End of a job, with the lock held. status: as PBS counts. */
void job_end(json_t *job, long status);
/* As qdel does it to a job that does not run, or the server to a child of a failed job. */
void job_remove(json_t *job, bool by_user);

/* ---- resources.c ---- */
/* "select=2:ncpus=4:mem=1gb,walltime=0:10:00" into Resource_List; dies as the command would. alter:
 * only lower. */
void resources_take(json_t *list, const char *text, bool alter, const json_t *job);
bool resources_fit(json_t *job, bool *never); /* takes nodes when it fits: "_nodes" */
long walltime_of(const json_t *job);          /* s, 0 none */
bool depend_valid(const char *text);

/* ---- mom.c ---- */
void mom_start(json_t *job); /* returns at once; the job's process is on its way */
void mom_signal(const json_t *job, int sig);

/* ---- the commands ---- */
int qsub_main(int argc, char **argv);
int qstat_main(int argc, char **argv);
int qselect_main(int argc, char **argv);
int qdel_main(int argc, char **argv);
int qalter_main(int argc, char **argv);
int qsig_main(int argc, char **argv);
int qrls_main(int argc, char **argv);
int qmove_main(int argc, char **argv);
/* pbs_server: returns at once, the server is on its way */
int server_main(int argc, char **argv);

#endif
