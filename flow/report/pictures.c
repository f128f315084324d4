/* SPDX-License-Identifier: Apache-2.0
 *
 * The pictures of a request, within the page: what a model saw beside what it wrote.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/mem.h"
#include "flow/report/report.h"

enum { MOST = 4 };

/* All of a regular file that is not too large; false: it is, or it cannot be read. */
static bool read_small(lf_buf *out, const char *path)
{
    char block[16384];
    struct stat st;
    ssize_t got = -1;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= LF_HTML_PICTURE_BYTES)
        while (out->len <= LF_HTML_PICTURE_BYTES && (got = read(fd, block, sizeof block)) > 0)
            lf_buf_add(out, block, (size_t)got);
    close(fd);
    return got == 0 && out->len <= LF_HTML_PICTURE_BYTES;
}

/* A picture of a request as lf-generate takes it: a path below the directory of media, or a
 * file: URL. Of a data: URL only that it is one is said. */
static void picture(lf_buf *b, const char *name, const char *media_dir)
{
    char path[PATH_MAX];
    lf_buf file;
    const char *at = strncmp(name, "file://", 7) == 0 ? name + 7 : name;
    lf_buf_init(&file);
    const int n = *at == '/' || media_dir == NULL
                      ? snprintf(path, sizeof path, "%s", at)
                      : snprintf(path, sizeof path, "%s/%s", media_dir, at);
    const bool data = strncmp(name, "data:", 5) == 0;
    if (data || n >= (int)sizeof path || !read_small(&file, path) ||
        !lf_html_picture(b, file.data, file.len, name)) {
        lf_buf_adds(b, "<span class=\"dim\">");
        lf_html_text(b, data ? "a picture within the request" : name);
        lf_buf_adds(b, "</span> ");
    }
    lf_buf_fini(&file);
}

void lf_report_pictures(lf_buf *b, const lf_texts *images, const char *media_dir)
{
    if (images->n == 0)
        return;
    lf_buf_adds(b, "<div>");
    for (size_t i = 0; i < images->n && i < MOST; i++)
        picture(b, images->v[i], media_dir);
    if (images->n > MOST)
        lf_buf_addf(b, "<span class=\"dim\">and %zu more</span>", images->n - MOST);
    lf_buf_adds(b, "</div>\n");
}
