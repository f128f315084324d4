/* SPDX-License-Identifier: Apache-2.0
 *
 * Text to numbers and back: strict, independent of the locale, overflow is an error. Fractions with
 * units ("1.5M") are computed in integers, so "0.1k" is 100 and "17E" cannot wrap.
 */
#include "engine/base/str.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int lf_parse_i64(int64_t *out, const char *s, lf_err *err)
{
    const char *p = s;
    bool neg = *p == '-';
    int64_t v = 0;
    if (*p == '-' || *p == '+')
        p++;
    if (!is_digit(*p))
        return lf_fail(err, LF_EINVAL, "\"%s\" is not a whole number", s);
    for (; is_digit(*p); p++) {
        /* Built up on the negative side, which reaches one further. */
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_sub_overflow(v, *p - '0', &v))
            return lf_fail(err, LF_EINVAL, "\"%s\" does not fit in 64 bits", s);
    }
    if (*p)
        return lf_fail(err, LF_EINVAL, "\"%s\" is not a whole number", s);
    if (!neg && __builtin_sub_overflow(0, v, &v))
        return lf_fail(err, LF_EINVAL, "\"%s\" does not fit in 64 bits", s);
    *out = v;
    return 0;
}

static bool is_decimal(const char *s)
{
    size_t digits = 0;
    if (*s == '-' || *s == '+')
        s++;
    for (; is_digit(*s); s++)
        digits++;
    if (*s == '.')
        for (s++; is_digit(*s); s++)
            digits++;
    if (digits == 0)
        return false;
    if (*s == 'e' || *s == 'E') {
        s++;
        if (*s == '-' || *s == '+')
            s++;
        if (!is_digit(*s))
            return false;
        while (is_digit(*s))
            s++;
    }
    return *s == '\0';
}

int lf_parse_f64(double *out, const char *s, lf_err *err)
{
    if (!is_decimal(s))
        return lf_fail(err, LF_EINVAL, "\"%s\" is not a number", s);
    /* strtod follows LC_NUMERIC; no program of ours calls setlocale, but a host of the library
     * may. */
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c_locale)
        return lf_fail(err, LF_ENOMEM, "no memory to read the number \"%s\"", s);
    double v = strtod_l(s, NULL, c_locale);
    freelocale(c_locale);
    if (!isfinite(v))
        return lf_fail(err, LF_EINVAL, "\"%s\" is too large for a number", s);
    *out = v;
    return 0;
}

int lf_parse_bool(bool *out, const char *s, lf_err *err)
{
    static const char *const yes[] = {"yes", "true", "on", "1"}, *const no[] = {"no", "false",
                                                                                "off", "0"};
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(s, yes[i]) == 0 || strcmp(s, no[i]) == 0) {
            *out = strcmp(s, yes[i]) == 0;
            return 0;
        }
    }
    return lf_fail(err, LF_EINVAL, "\"%s\" is neither yes nor no", s);
}

/* Decimal digits with an optional fraction: value = digits / 10^places. Returns the first character
 * after it, NULL when there is no number here or it has more than 18 significant digits after the
 * point's removal. */
static const char *scan_decimal(const char *p, int64_t *digits, int *places)
{
    int64_t v = 0;
    int frac = 0;
    bool any = false, point = false;
    for (;; p++) {
        if (*p == '.' && !point) {
            point = true;
            continue;
        }
        if (!is_digit(*p))
            break;
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *p - '0', &v))
            return NULL;
        any = true;
        frac += point;
    }
    if (!any || (point && frac == 0))
        return NULL;
    *digits = v;
    *places = frac;
    return p;
}

static int scale_whole(int64_t *out, int64_t digits, int places, int64_t unit, const char *s,
                       lf_err *err)
{
    __extension__ typedef __int128 i128;
    i128 v = (i128)digits * unit, div = 1;
    for (int i = 0; i < places; i++)
        div *= 10;
    if (v % div != 0)
        return lf_fail(err, LF_EINVAL, "\"%s\" is not a whole number", s);
    v /= div;
    if (v > INT64_MAX)
        return lf_fail(err, LF_EINVAL, "\"%s\" does not fit in 64 bits", s);
    *out = (int64_t)v;
    return 0;
}

/* base^(1..6) for k M G T P E, 0 for another letter. */
static int64_t unit_of(char c, int64_t base)
{
    static const char letters[] = "kMGTPE";
    if (c == 'K')
        c = 'k';
    if (c == 'm' || c == 'g' || c == 't')
        c = (char)(c - 'a' + 'A');
    const char *at = c ? strchr(letters, c) : NULL;
    if (!at)
        return 0;
    int64_t v = base;
    for (const char *p = letters; p < at; p++)
        v *= base;
    return v;
}

int lf_parse_count(int64_t *out, const char *s, lf_err *err)
{
    int64_t digits, unit = 1;
    int places;
    const char *p = s + (*s == '-' || *s == '+');
    p = scan_decimal(p, &digits, &places);
    if (!p)
        return lf_fail(err, LF_EINVAL, "\"%s\" is not a count (like 4096, 4k, 4ki, 1.5M)", s);
    if (*p) {
        bool binary = p[1] == 'i';
        unit = unit_of(*p, binary ? 1024 : 1000);
        p += unit ? 1 + binary : 0;
    }
    if (*p)
        return lf_fail(err, LF_EINVAL,
                       "\"%s\" is not a count (like 4096, 4k, 4ki, 1.5M): unknown unit \"%s\"", s,
                       p);
    int rc = scale_whole(out, digits, places, unit, s, err);
    if (rc == 0 && *s == '-')
        *out = -*out;
    return rc;
}

int lf_parse_bytes(int64_t *out, const char *s, lf_err *err)
{
    int64_t digits, unit = 1;
    int places;
    const char *p = scan_decimal(s, &digits, &places);
    if (!p)
        return lf_fail(err, LF_EINVAL, "\"%s\" is not a size (like 512, 80G, 1.5GiB)", s);
    const char *u = p;
    if (*p && unit_of(*p, 1024)) {
        unit = unit_of(*p, 1024);
        p++;
        if (p[0] == 'i' && p[1] == 'B')
            p++;
    }
    if (*p == 'B')
        p++;
    if (*p)
        return lf_fail(err, LF_EINVAL,
                       "\"%s\" is not a size (like 512, 80G, 1.5GiB): unknown unit \"%s\"", s, u);
    return scale_whole(out, digits, places, unit, s, err);
}

/* "[D-]HH:MM[:SS]" with MM and SS below 60. */
static int parse_clock(int64_t *out, const char *s, lf_err *err)
{
    int64_t part[4] = {0}, days = 0;
    int n = 0, places;
    const char *p = s, *q;
    for (;;) {
        q = n < 4 ? scan_decimal(p, &part[n], &places) : NULL;
        if (!q || places)
            goto bad;
        p = q + 1;
        if (*q == '-' && n == 0 && days == 0) {
            days = part[0];
            if (days == 0)
                days = -1; /* "0-" was seen */
            continue;
        }
        n++;
        if (*q == '\0')
            break;
        if (*q != ':')
            goto bad;
    }
    if (days < 0)
        days = 0;
    if (n < 2 || n > 3 || part[1] > 59 || part[2] > 59)
        goto bad;
    int64_t total;
    if (__builtin_mul_overflow(days, 86400, &total) ||
        __builtin_mul_overflow(part[0], 3600, &part[0]) ||
        __builtin_add_overflow(total, part[0], &total) ||
        __builtin_add_overflow(total, part[1] * 60 + part[2], &total))
        return lf_fail(err, LF_EINVAL, "\"%s\" does not fit in 64 bits", s);
    *out = total;
    return 0;
bad:
    return lf_fail(err, LF_EINVAL, "\"%s\" is not a duration (like 90s, 2h30m, 1-12:30:00)", s);
}

int lf_parse_duration(int64_t *out, const char *s, lf_err *err)
{
    static const char letters[] = "dhms";
    static const int64_t seconds[] = {86400, 3600, 60, 1};
    int64_t total = 0, digits, part;
    int places, last = -1;
    if (strchr(s, ':'))
        return parse_clock(out, s, err);
    for (const char *p = s; *p || p == s;) {
        p = scan_decimal(p, &digits, &places);
        if (!p)
            return lf_fail(err, LF_EINVAL, "\"%s\" is not a duration (like 90s, 2h30m, 1-12:30:00)",
                           s);
        int i = *p ? 0 : 3;
        while (*p && i < 4 && letters[i] != *p)
            i++;
        /* A bare number is seconds only when it stands alone: "2h30" is a likely slip. Units come
         * in falling order. */
        if (i > 3 || i <= last || (!*p && last >= 0))
            return lf_fail(err, LF_EINVAL, "\"%s\" is not a duration (like 90s, 2h30m, 1-12:30:00)",
                           s);
        int rc = scale_whole(&part, digits, places, seconds[i], s, err);
        if (rc < 0)
            return rc;
        if (__builtin_add_overflow(total, part, &total))
            return lf_fail(err, LF_EINVAL, "\"%s\" does not fit in 64 bits", s);
        last = i;
        if (!*p)
            break;
        p++;
    }
    *out = total;
    return 0;
}

const char *lf_fmt_bytes(char *buf, size_t cap, double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    int u = 0;
    double v = bytes;
    /* 1023.95 would print as "1024.0" of the smaller unit. */
    for (; fabs(v) >= 1023.95 && u < 6; u++)
        v /= 1024;
    if (u == 0)
        snprintf(buf, cap, "%.0f B", v);
    else
        snprintf(buf, cap, "%.1f %s", v, units[u]);
    return buf;
}

const char *lf_fmt_count(char *buf, size_t cap, double n)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P", "E"};
    int u = 0;
    double v = n;
    for (; fabs(v) >= 999.95 && u < 6; u++)
        v /= 1000;
    if (u == 0)
        snprintf(buf, cap, v == floor(v) ? "%.0f" : "%.1f", v);
    else
        snprintf(buf, cap, "%.1f%s", v, units[u]);
    return buf;
}

const char *lf_fmt_duration(char *buf, size_t cap, double seconds)
{
    if (!(seconds >= 0) || seconds > 1e15) {
        snprintf(buf, cap, "?");
        return buf;
    }
    if (seconds < 9.95) {
        snprintf(buf, cap, "%.1fs", seconds);
        return buf;
    }
    int64_t s = (int64_t)(seconds + 0.5);
    long long d = s / 86400, h = s / 3600 % 24, m = s / 60 % 60, r = s % 60;
    if (d)
        snprintf(buf, cap, "%lldd%02lldh%02lldm", d, h, m);
    else if (h)
        snprintf(buf, cap, "%lldh%02lldm%02llds", h, m, r);
    else if (m)
        snprintf(buf, cap, "%lldm%02llds", m, r);
    else
        snprintf(buf, cap, "%llds", r);
    return buf;
}
