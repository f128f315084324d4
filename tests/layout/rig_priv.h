/* SPDX-License-Identifier: Apache-2.0
 *
 * A run of the rig (rig.h), which its files share.
 */
#ifndef LF_TESTS_LAYOUT_RIG_PRIV_H
#define LF_TESTS_LAYOUT_RIG_PRIV_H

#include "tests/layout/rig.h"

struct path {
    char text[400];
};

struct rig {
    const struct rig_case *k;
    struct lf_train_config c;
    struct rig_seen *s;
    struct path base; /* checkpoint of the weights below an adapter, or to be made */
    struct path out;
    bool again; /* step 1 was made again, so more was moved */
};

/* ---- shown.c: what a rank shows, after the ranks before it ---- */

/* The names and sizes of the tensors that this rank has. */
void rig_show_names(struct rig *g, const lf_trainer *t);
/* This rank's elements of a kind of every tensor. */
void rig_show(struct rig *g, const lf_trainer *t, enum rig_kind kind);
/* One number of a step (from 0), into all[step]; the first rank's counts. */
void rig_show_number(struct rig *g, double *all, double mine, const char *what, int step);
void rig_show_told(struct rig *g, const struct lf_train_step *st);
/* Adds what of a plan has been moved so far (lf_comm_call), times sign. */
void rig_count_moved(struct rig_seen *s, const lf_trainer *t, int sign);
/* Adds what the plan says that step 1 moves. */
void rig_count_planned(struct rig_seen *s, const lf_trainer *t);
/* After all ranks: the tensors in an order that no layout changes. */
void rig_sort(struct rig_seen *s);
/* Is every element kept by all ranks of the data axis, or by one of each group? */
void rig_find_missing(struct rig_seen *s, const struct rig_layout *l);

#endif
