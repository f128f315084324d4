# SPDX-License-Identifier: Apache-2.0
# What makes packages of loong-flow: README.md tells.
EXTRA_DIST += packaging/README.md packaging/record.sh packaging/dist-tar.sh packaging/rmdirs.sh

# A distribution says what it was made from (.tarball-version). The same commit gives the same
# bytes.
dist-hook:
	$(SHELL) $(top_srcdir)/packaging/record.sh $(top_srcdir) >$(distdir)/.tarball-version

# For clangd, clang-tidy and editors: what compiles each source, programs of tests too. GNU make.
EXTRA_DIST += packaging/commands.mk packaging/commands.awk
LF_COMMANDS = $(MAKE) $(AM_MAKEFLAGS) V=1 -f Makefile -f $(top_srcdir)/packaging/commands.mk
compile_commands.json: LF_ALWAYS
	@$(LF_COMMANDS) -s lf-made
	$(AM_V_GEN)$(LF_COMMANDS) -n lf-commands >$@.out && \
	  $(AWK) -v dir='$(abs_builddir)' -f $(top_srcdir)/packaging/commands.awk <$@.out >$@.tmp && \
	  mv $@.tmp $@ && rm -f $@.out
CLEANFILES += compile_commands.json compile_commands.json.out compile_commands.json.tmp

EXTRA_DIST += packaging/deb/build.sh packaging/deb/control packaging/deb/copyright \
  packaging/deb/rules packaging/deb/source/format
EXTRA_DIST += packaging/rpm/loong-flow.spec packaging/rpm/loong-flow.rpmlintrc
EXTRA_DIST += packaging/easybuild/loong-flow-0.1.0-GCC-14.3.0.eb packaging/spack/package.py \
  packaging/spack/README.md packaging/module/loong-flow.tcl packaging/container/Containerfile
