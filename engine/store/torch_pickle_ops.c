/* SPDX-License-Identifier: Apache-2.0
 *
 * The instructions of pickle, protocols 0 to 5.
 */
#include "engine/store/torch_pickle_priv.h"

static const struct {
    const char *name;
    int operand_bytes;
} OPS[256] = {
    ['('] = {"MARK", 0},
    ['.'] = {"STOP", 0},
    ['0'] = {"POP", 0},
    ['1'] = {"POP_MARK", 0},
    ['2'] = {"DUP", 0},
    ['F'] = {"FLOAT", 0},
    ['I'] = {"INT", 0},
    ['J'] = {"BININT", 4},
    ['K'] = {"BININT1", 1},
    ['L'] = {"LONG", 0},
    ['M'] = {"BININT2", 2},
    ['N'] = {"NONE", 0},
    ['P'] = {"PERSID", 0},
    ['Q'] = {"BINPERSID", 0},
    ['R'] = {"REDUCE", 0},
    ['S'] = {"STRING", 0},
    ['T'] = {"BINSTRING", 4},
    ['U'] = {"SHORT_BINSTRING", 1},
    ['V'] = {"UNICODE", 0},
    ['X'] = {"BINUNICODE", 4},
    ['a'] = {"APPEND", 0},
    ['b'] = {"BUILD", 0},
    ['c'] = {"GLOBAL", 0},
    ['d'] = {"DICT", 0},
    ['}'] = {"EMPTY_DICT", 0},
    ['e'] = {"APPENDS", 0},
    ['g'] = {"GET", 0},
    ['h'] = {"BINGET", 1},
    ['i'] = {"INST", 0},
    ['j'] = {"LONG_BINGET", 4},
    ['l'] = {"LIST", 0},
    [']'] = {"EMPTY_LIST", 0},
    ['o'] = {"OBJ", 0},
    ['p'] = {"PUT", 0},
    ['q'] = {"BINPUT", 1},
    ['r'] = {"LONG_BINPUT", 4},
    ['s'] = {"SETITEM", 0},
    ['t'] = {"TUPLE", 0},
    [')'] = {"EMPTY_TUPLE", 0},
    ['u'] = {"SETITEMS", 0},
    ['G'] = {"BINFLOAT", 0},
    ['B'] = {"BINBYTES", 4},
    ['C'] = {"SHORT_BINBYTES", 1},
    [0x80] = {"PROTO", 1},
    [0x81] = {"NEWOBJ", 0},
    [0x82] = {"EXT1", 0},
    [0x83] = {"EXT2", 0},
    [0x84] = {"EXT4", 0},
    [0x85] = {"TUPLE1", 0},
    [0x86] = {"TUPLE2", 0},
    [0x87] = {"TUPLE3", 0},
    [0x88] = {"NEWTRUE", 0},
    [0x89] = {"NEWFALSE", 0},
    [0x8a] = {"LONG1", 1},
    [0x8b] = {"LONG4", 4},
    [0x8c] = {"SHORT_BINUNICODE", 1},
    [0x8d] = {"BINUNICODE8", 8},
    [0x8e] = {"BINBYTES8", 8},
    [0x8f] = {"EMPTY_SET", 0},
    [0x90] = {"ADDITEMS", 0},
    [0x91] = {"FROZENSET", 0},
    [0x92] = {"NEWOBJ_EX", 0},
    [0x93] = {"STACK_GLOBAL", 0},
    [0x94] = {"MEMOIZE", 0},
    [0x95] = {"FRAME", 8},
    [0x96] = {"BYTEARRAY8", 8},
    [0x97] = {"NEXT_BUFFER", 0},
    [0x98] = {"READONLY_BUFFER", 0},
};

const char *lf_pickle_op_name(int op)
{
    return OPS[op & 0xFF].name ? OPS[op & 0xFF].name : "no instruction";
}

int lf_pickle_operand_bytes(int op)
{
    return OPS[op & 0xFF].operand_bytes;
}
