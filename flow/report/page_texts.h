/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of page.css and page.js, NULL-terminated; the .c file is made by the build.
 */
#ifndef LF_FLOW_PAGE_TEXTS_H
#define LF_FLOW_PAGE_TEXTS_H

extern const char *const lf_page_css[];
extern const char *const lf_page_js[];

#endif
