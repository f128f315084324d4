/* SPDX-License-Identifier: Apache-2.0
 *
 * Places of ranks in a mesh: however a launcher deals ranks to nodes, neighbours share a node.
 */
#include "config.h"

#include <string.h>

#include "engine/base/rng.h"
#include "engine/comm/mesh_priv.h"
#include "tests/tap/tap.h"

enum { MOST = 64 };

/* hosts: a letter for each rank; at and node as lf_mesh_order has them, a digit for each place. */
static void test_orders(void)
{
    static const struct {
        const char *hosts, *at, *node;
    } table[] = {
        {"aaaa", "0123", "0000"},
        {"aabb", "0123", "0022"},
        {"abab", "0213", "0011"},
        {"baab", "0312", "0011"},
        {"abcabcabc", "036147258", "000111222"},
        {"aaab", "0123", "0003"},
        {"abbb", "0123", "0111"},
        {"cbacba", "031425", "001122"},
    };
    lf_err err = LF_ERR_INIT;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const int n = (int)strlen(table[i].hosts);
        char name[MOST][2], text[2][MOST + 1] = {{0}};
        const char *host[MOST];
        int at[MOST], place[MOST], node[MOST], back = 0;
        for (int r = 0; r < n; r++) {
            name[r][0] = table[i].hosts[r];
            name[r][1] = '\0';
            host[r] = name[r];
        }
        tap_rc(lf_mesh_order(host, n, at, place, node, &err), 0, &err, NULL, table[i].hosts);
        for (int p = 0; p < n; p++) {
            text[0][p] = (char)('0' + at[p]);
            text[1][p] = (char)('0' + node[p]);
            back += place[at[p]] == p;
        }
        tap_str(text[0], table[i].at, "ranks by place");
        tap_str(text[1], table[i].node, "their nodes");
        tap_i64(back, n, "and back");
    }
}

/* Ranks dealt to nodes at random, as many to each: groups of neighbours that divide the ranks of a
 * node are inside of one. */
static void test_groups(void)
{
    lf_err err = LF_ERR_INIT;
    int inside = 0, groups = 0, first = 0;
    enum { TRIALS = 500 };
    for (uint64_t t = 0; t < TRIALS; t++) {
        static const char *const names[] = {"n0", "n1", "n10", "n2"};
        const int tensor = 1 << lf_rng_u32(1, t, 0) % 3, nodes = 1 + (int)(lf_rng_u32(1, t, 1) % 4),
                  each = tensor * (1 + (int)(lf_rng_u32(1, t, 2) % 3)), n = nodes * each;
        const char *host[MOST];
        int at[MOST], place[MOST], node[MOST];
        for (int r = 0; r < n; r++)
            host[r] = names[r % nodes];
        for (int r = n - 1; r > 0; r--) { /* Fisher and Yates */
            const int k = (int)(lf_rng_u32(2, t, (uint64_t)r) % (uint32_t)(r + 1));
            const char *h = host[r];
            host[r] = host[k];
            host[k] = h;
        }
        if (lf_mesh_order(host, n, at, place, node, &err))
            tap_bail("%s", err.text);
        first += at[0] == 0;
        for (int p = 0; p < n; p++) {
            groups++;
            inside += strcmp(host[at[p]], host[at[p / tensor * tensor]]) == 0;
        }
    }
    tap_i64(inside, groups, "ranks are on the node of the first of their group");
    tap_i64(first, TRIALS, "rank 0 is the first");
}

int main(void)
{
    TAP(32, test_orders());
    TAP(2, test_groups());
    return tap_done();
}
