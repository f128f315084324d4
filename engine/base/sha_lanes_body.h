/* SPDX-License-Identifier: Apache-2.0
 *
 * The compression function for LANES messages; included by sha_lanes.c once for each width, with LANES, VEC (a vector of
 * LANES words), NAME and TARGET defined. Formulas: FIPS 180-4, section 6.2.
 */
#define ROTR(x, n) (((x) >> (n)) | ((x) << (32 - (n))))
#define ROUND(a, b, c, d, e, f, g, h, i)                                                                               \
    do {                                                                                                               \
        VEC t1 = h + (ROTR(e, 6) ^ ROTR(e, 11) ^ ROTR(e, 25)) + (g ^ (e & (f ^ g))) + K[t + (i)] + w[i];               \
        d += t1;                                                                                                       \
        h = t1 + (ROTR(a, 2) ^ ROTR(a, 13) ^ ROTR(a, 22)) + ((a & b) | (c & (a | b)));                                 \
    } while (0)

/* Word i of the next 16: from those 16, 15, 7 and 2 places before. */
#define SCHEDULE(i)                                                                                                    \
    do {                                                                                                               \
        VEC x = w[((i) + 1) & 15], y = w[((i) + 14) & 15];                                                             \
        w[i] += (ROTR(x, 7) ^ ROTR(x, 18) ^ (x >> 3)) + w[((i) + 9) & 15] + (ROTR(y, 17) ^ ROTR(y, 19) ^ (y >> 10));   \
    } while (0)

TARGET static void NAME(uint32_t (*state)[LF_SHA_MAX_LANES], const uint8_t *data, size_t stride, size_t n)
{
    VEC s[8], w[16];
    for (int i = 0; i < 8; i++)
        memcpy(&s[i], state[i], sizeof s[i]);
    for (size_t at = 0; at < n; at += 64) {
        VEC a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];
        for (int i = 0; i < 16; i++)
            for (int k = 0; k < LANES; k++) {
                uint32_t v;
                memcpy(&v, data + (size_t)k * stride + at + 4 * (size_t)i, sizeof v);
                w[i][k] = __builtin_bswap32(v);
            }
        for (int t = 0; t < 64; t += 16) {
            if (t) {
                for (int i = 0; i < 16; i++)
                    SCHEDULE(i);
            }
            ROUND(a, b, c, d, e, f, g, h, 0);
            ROUND(h, a, b, c, d, e, f, g, 1);
            ROUND(g, h, a, b, c, d, e, f, 2);
            ROUND(f, g, h, a, b, c, d, e, 3);
            ROUND(e, f, g, h, a, b, c, d, 4);
            ROUND(d, e, f, g, h, a, b, c, 5);
            ROUND(c, d, e, f, g, h, a, b, 6);
            ROUND(b, c, d, e, f, g, h, a, 7);
            ROUND(a, b, c, d, e, f, g, h, 8);
            ROUND(h, a, b, c, d, e, f, g, 9);
            ROUND(g, h, a, b, c, d, e, f, 10);
            ROUND(f, g, h, a, b, c, d, e, 11);
            ROUND(e, f, g, h, a, b, c, d, 12);
            ROUND(d, e, f, g, h, a, b, c, 13);
            ROUND(c, d, e, f, g, h, a, b, 14);
            ROUND(b, c, d, e, f, g, h, a, 15);
        }
        s[0] += a;
        s[1] += b;
        s[2] += c;
        s[3] += d;
        s[4] += e;
        s[5] += f;
        s[6] += g;
        s[7] += h;
    }
    for (int i = 0; i < 8; i++)
        memcpy(state[i], &s[i], sizeof s[i]);
}

#undef ROTR
#undef ROUND
#undef SCHEDULE
#undef LANES
#undef VEC
#undef NAME
#undef TARGET
