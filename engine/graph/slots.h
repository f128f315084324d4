/* SPDX-License-Identifier: Apache-2.0
 *
 * Operand slots of convolutions and scans; a part of priv.h. */
#ifndef LF_GRAPH_SLOTS_H
#define LF_GRAPH_SLOTS_H

enum { CONV_X, CONV_W, CONV_BIAS, CONV_CU, CONV_STATE, CONV_SEQ, CONV_POS };
enum { CONVB_X, CONVB_W, CONVB_BIAS, CONVB_CU, CONVB_DY };
enum { CONVB_DX, CONVB_DW, CONVB_DBIAS };
enum { SGATE_A, SGATE_B, SGATE_LOG, SGATE_BIAS, SGATEB_DG, SGATEB_DBETA };
enum { SGATE_G, SGATE_BETA };
enum { SGATEB_DA, SGATEB_DB, SGATEB_DLOG, SGATEB_DBIAS };
enum {
    SCAN_Q,
    SCAN_K,
    SCAN_V,
    SCAN_G,
    SCAN_BETA,
    SCAN_SKIP,
    SCAN_CU,
    SCAN_STATE,
    SCAN_SEQ,
    SCAN_POS,
    SCANB_DO = SCAN_STATE
};
enum { SCANB_DQ, SCANB_DK, SCANB_DV, SCANB_DG, SCANB_DBETA, SCANB_DSKIP };

#endif
