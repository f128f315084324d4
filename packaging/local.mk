# SPDX-License-Identifier: Apache-2.0
# What makes packages of loong-flow: README.md tells.
EXTRA_DIST += packaging/README.md packaging/record.sh packaging/dist-tar.sh

# A distribution says what it was made from (.tarball-version). The same commit gives the same
# bytes.
dist-hook:
	$(SHELL) $(top_srcdir)/packaging/record.sh $(top_srcdir) >$(distdir)/.tarball-version
