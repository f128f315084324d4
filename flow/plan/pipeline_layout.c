/* SPDX-License-Identifier: Apache-2.0
 *
 * How the ranks of a stage divide a model and its state: [layout], or [layout NAME] where the stage
 * has `layout = NAME`. Its keys are options of the stages that can be divided; a key in the section
 * of a stage is refused, so that one place says how a pipeline is laid out. A stage with several
 * models has keys for those that may be laid out otherwise, such as rollout_layout = NAME: then
 * `tensor` of that section is another option of the stage.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/str.h"
#include "engine/base/synonym.h"
#include "flow/plan/pipeline_priv.h"

static const char *const keys[] = {"tensor",
                                   "sequence_parallel",
                                   "tensor_across_nodes",
                                   "pipeline",
                                   "pipeline_chunks",
                                   "pipeline_schedule",
                                   "pipeline_stages",
                                   "pipeline_cost",
                                   "context",
                                   "context_kind",
                                   "zero",
                                   "zero_inner",
                                   "expert",
                                   "expert_room",
                                   "expert_tensor"};
/* Keys of a stage that name the layout of a part of it, and the options that take its tensor. */
static const struct lf_layout_part parts[] = {{"rollout_layout", "rollout_tensor"},
                                              {"reference_layout", "reference_tensor"},
                                              {"reward_layout", "reward_tensor"},
                                              {"critic_layout", "critic_tensor"}};
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static bool among(const char *key, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(key, names[i]) == 0)
            return true;
    return false;
}

const char *const *lf_layout_keys(size_t *n)
{
    *n = COUNT(keys);
    return keys;
}

bool lf_layout_key(const char *key)
{
    return among(key, keys, COUNT(keys));
}

const struct lf_layout_part *lf_layout_parts(size_t *n)
{
    *n = COUNT(parts);
    return parts;
}

bool lf_layout_part_key(const char *key, const lf_opt_table *t)
{
    for (size_t i = 0; i < COUNT(parts); i++)
        if (strcmp(key, parts[i].key) == 0)
            return lf_opt_find(t, parts[i].option) != NULL;
    return false;
}

int lf_layout_part_option(const lf_conf_item *it, lf_err *err)
{
    for (size_t i = 0; i < COUNT(parts); i++)
        if (strcmp(it->key, parts[i].option) == 0)
            return lf_conf_fail_key(it, err,
                                    "\"%s\" is tensor of a [layout NAME] with %s = NAME here",
                                    it->key, parts[i].key);
    return 0;
}

const lf_conf_item *lf_layout_option(const lf_conf *c, const char *stage, const char *option)
{
    char section[160] = "layout";
    const lf_conf_item *it = lf_conf_find(c, stage, "layout");
    if (it != NULL)
        snprintf(section, sizeof section, "layout %s", it->value);
    return lf_layout_key(option) ? lf_conf_find(c, section, option) : NULL;
}

static int check_key(const lf_conf_item *it, lf_err *err)
{
    char hint[200];
    if (among(it->key, keys, COUNT(keys)))
        return 0;
    lf_synonym_hint(hint, sizeof hint, it->key, keys, COUNT(keys));
    return lf_conf_fail_key(it, err, "unknown key \"%s\" in [%s]%s", it->key, it->section, hint);
}

int lf_layout_check(const lf_reading *r, lf_err *err)
{
    const lf_conf *c = &r->p->conf;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < c->n_items; i++) {
        const char *section = c->items[i].section;
        if (strcmp(section, "layout") == 0 || lf_str_has_prefix(section, "layout "))
            rc = lf_reading_note(r, check_key(&c->items[i], err), err);
    }
    return rc;
}

static int64_t given(lf_int v, int64_t otherwise)
{
    return v.given ? v.v : otherwise;
}

/* Ranks of an axis that stages of this kind may have. */
static int64_t axis(const lf_opt_table *t, const lf_optset *set, const char *name)
{
    return lf_opt_find(t, name) != NULL ? lf_optset_int(set, name) : 1;
}

/* Are ranks of a node a multiple of those that divide matrices? `it` says how many those are. */
static int check_node(const lf_doc_stage *st, const lf_conf_item *it, const char *stage,
                      int64_t tensor, const lf_optset *set, lf_err *err)
{
    const int64_t ranks = given(st->resources.ranks, 1), nodes = given(st->resources.nodes, 1);
    return tensor > 1 && nodes > 1 && ranks % tensor != 0 &&
                   !lf_optset_bool(set, "tensor_across_nodes")
               ? lf_conf_fail(it, err,
                              "tensor = %lld: the %lld ranks that [%s] has on each node are no "
                              "multiple of it, so some would divide matrices across nodes; set "
                              "ranks to a multiple of %lld, or tensor_across_nodes = yes",
                              (long long)tensor, (long long)ranks, stage, (long long)tensor)
               : 0;
}

/* So many of all ranks form a group. */
static int check_group(const lf_doc_stage *st, const lf_conf_item *it, const char *stage,
                       const char *with, int64_t group, lf_err *err)
{
    const int64_t all = given(st->resources.ranks, 1) * given(st->resources.nodes, 1);
    return all % group != 0
               ? lf_conf_fail(it, err,
                              "%s%s = %lld: the %lld rank%s of [%s] cannot form such groups; set "
                              "ranks (per node) so that ranks x nodes is a multiple of %lld",
                              with, it->key, (long long)group, (long long)all, all == 1 ? "" : "s",
                              stage, (long long)group)
               : 0;
}

static int check_parts(const lf_doc_stage *st, lf_conf *c, const char *stage, const lf_opt_table *t,
                       const lf_optset *set, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < COUNT(parts) && rc == 0; i++) {
        const char *section = NULL;
        const int64_t tensor = axis(t, set, parts[i].option);
        if (tensor <= 1 || lf_layout_part_section(&section, c, stage, parts[i].key, NULL) != 0 ||
            section == NULL)
            continue;
        const lf_conf_item *it = lf_conf_find(c, section, "tensor");
        rc = check_group(st, it, stage, "", tensor, err);
        rc = rc != 0 ? rc : check_node(st, it, stage, tensor, set, err);
    }
    return rc;
}

/* How many ranks divide what. */
struct divided {
    int64_t expert, pipeline, context, tensor;
};

/* Returns the key of the axis that a message is about, and writes the axes that stand before it. */
static const char *with_text(char *buf, size_t cap, const struct divided *by)
{
    const struct {
        const char *key;
        int64_t ranks;
    } axes[] = {{"expert", by->expert},
                {"pipeline", by->pipeline},
                {"context", by->context},
                {"tensor", by->tensor}};
    const char *key = NULL;
    size_t at = 0;
    buf[0] = '\0';
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
        if (axes[i].ranks <= 1)
            continue;
        if (key != NULL && at < cap)
            at += (size_t)snprintf(buf + at, cap - at, "%s x ", key);
        key = axes[i].key;
    }
    return key;
}

/* So many ranks form a group. */
static int64_t group_of(const struct divided *by)
{
    const int64_t of[] = {by->expert, by->pipeline, by->context, by->tensor};
    int64_t each = 1;
    for (size_t i = 0; i < COUNT(of); i++)
        each = each > INT64_MAX / of[i] ? INT64_MAX : each * of[i];
    return each;
}

/* Do the ranks form groups of these axes? */
static int check_groups(const lf_doc_stage *st, lf_conf *c, const char *section, const char *stage,
                        const struct divided *by, const lf_optset *set, lf_err *err)
{
    char with[60];
    const char *key = with_text(with, sizeof with, by);
    const lf_conf_item *it = key ? lf_conf_find(c, section, key) : NULL;
    const int rc = it ? check_group(st, it, stage, with, group_of(by), err) : 0;
    return rc != 0 || !it ? rc : check_node(st, it, stage, by->tensor, set, err);
}

int lf_layout_nodes(const lf_doc_stage *st, lf_conf *c, const char *stage, const lf_opt_table *t,
                    const lf_optset *set, lf_err *err)
{
    /* Experts are divided among the ranks of the data and the context axis together, and of the
     * tensor axis where these do not divide an expert. */
    const struct divided rows = {.expert = 1,
                                 .pipeline = axis(t, set, "pipeline"),
                                 .context = axis(t, set, "context"),
                                 .tensor = axis(t, set, "tensor")},
                         experts = {.expert = axis(t, set, "expert"),
                                    .pipeline = rows.pipeline,
                                    .context = 1,
                                    .tensor = axis(t, set, "expert_tensor") == 1 ? 1 : rows.tensor};
    const struct divided *const by[] = {&rows, &experts};
    const char *section = "layout";
    int rc = check_parts(st, c, stage, t, set, err);
    if (rc != 0 || (group_of(&rows) <= 1 && experts.expert <= 1) ||
        lf_layout_section(&section, c, stage, t, err) < 0 || section == NULL)
        return rc;
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = check_groups(st, c, section, stage, by[i], set, err);
    return rc;
}

bool lf_layout_trains(const lf_opt_table *t)
{
    return lf_opt_find(t, "zero") != NULL;
}

/* The section that an item names. */
static int named_section(const char **out, lf_conf *c, const lf_conf_item *it, lf_err *err)
{
    char name[160];
    snprintf(name, sizeof name, "layout %s", it->value);
    const lf_conf_section *s = lf_conf_find_section(c, name);
    if (s == NULL)
        return lf_conf_fail(it, err, "%s = %s: there is no [layout %s]", it->key, it->value,
                            it->value);
    *out = s->name;
    return 0;
}

int lf_layout_part_section(const char **out, lf_conf *c, const char *stage, const char *key,
                           lf_err *err)
{
    lf_conf_item *it = lf_conf_find(c, stage, key);
    *out = NULL;
    if (it == NULL)
        return 0;
    it->read = true;
    int rc = named_section(out, c, it, err);
    if (rc == 0 && lf_conf_find(c, *out, "tensor") == NULL)
        rc = lf_conf_fail(it, err, "%s = %s: [%s] has no tensor, which is what %s takes of it", key,
                          it->value, *out, key);
    return rc;
}

int lf_layout_section(const char **out, lf_conf *c, const char *stage, const lf_opt_table *t,
                      lf_err *err)
{
    lf_conf_item *it = lf_conf_find(c, stage, "layout");
    *out = lf_layout_trains(t) ? "layout" : NULL;
    if (it == NULL)
        return 0;
    it->read = true;
    if (lf_opt_find(t, keys[0]) == NULL)
        return lf_conf_fail_key(it, err,
                                "stages of kind %s are not laid out: a checkpoint is that of the "
                                "whole model for every layout; remove \"layout\"",
                                t->stage);
    return named_section(out, c, it, err);
}
