/* SPDX-License-Identifier: Apache-2.0
 *
 * A library that stands for others until somebody calls a function of theirs (light.sh): each of
 * their functions is a jump to an address, which its first call asks the real library for.
 * functions.h has a line LATER(NUMBER, NAME, LIBRARY, FIRST) for each: FIRST, if not "", is a
 * library that is loaded before.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define HIDDEN __attribute__((visibility("hidden")))

#define LATER(i, name, real, first) +1
HIDDEN void *lf_later_at[0
#include "functions.h"
];
#undef LATER

/* Not an array of pointers, which every start would have to relocate. */
static const struct {
    char name[80], real[200], first[200];
} function[] = {
#define LATER(i, name, real, first) {#name, real, first},
#include "functions.h"
#undef LATER
};

HIDDEN void *lf_later_find(unsigned i);
void *lf_later_find(unsigned i)
{
    /* For all to see, as it would be had the program loaded it: of others that need it, and of
     * what these load, variables lead to it. */
    if (function[i].first[0])
        dlopen(function[i].first, RTLD_LAZY | RTLD_GLOBAL);
    void *real = dlopen(function[i].real, RTLD_LAZY | RTLD_GLOBAL);
    void *f = real ? dlsym(real, function[i].name) : NULL;
    if (!f) {
        fprintf(stderr, "%s of %s is not there\n", function[i].name, function[i].real);
        abort();
    }
    __atomic_store_n(&lf_later_at[i], f, __ATOMIC_RELEASE);
    return f;
}

/* Function r11 is called: all registers that may hold arguments are as they were when it begins. */
__asm__(".text\n"
        "lf_later:\n"
        "push %rdi\npush %rsi\npush %rdx\npush %rcx\npush %r8\npush %r9\npush %rax\n"
        "sub $128, %rsp\n"
        "movups %xmm0, (%rsp)\nmovups %xmm1, 16(%rsp)\n"
        "movups %xmm2, 32(%rsp)\nmovups %xmm3, 48(%rsp)\n"
        "movups %xmm4, 64(%rsp)\nmovups %xmm5, 80(%rsp)\n"
        "movups %xmm6, 96(%rsp)\nmovups %xmm7, 112(%rsp)\n"
        "mov %r11d, %edi\n"
        "call lf_later_find\n"
        "mov %rax, %r11\n"
        "movups (%rsp), %xmm0\nmovups 16(%rsp), %xmm1\n"
        "movups 32(%rsp), %xmm2\nmovups 48(%rsp), %xmm3\n"
        "movups 64(%rsp), %xmm4\nmovups 80(%rsp), %xmm5\n"
        "movups 96(%rsp), %xmm6\nmovups 112(%rsp), %xmm7\n"
        "add $128, %rsp\n"
        "pop %rax\npop %r9\npop %r8\npop %rcx\npop %rdx\npop %rsi\npop %rdi\n"
        "jmp *%r11\n");

#define LATER(i, name, real, first)                                                                \
    __asm__(".globl " #name "\n.type " #name ", @function\n" #name ":\n"                           \
            "mov lf_later_at+8*" #i "(%rip), %r11\ntest %r11, %r11\nje 1f\njmp *%r11\n"            \
            "1: mov $" #i ", %r11d\njmp lf_later\n"                                                \
            ".size " #name ", . - " #name "\n");
#include "functions.h"
