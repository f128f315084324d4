# SPDX-License-Identifier: Apache-2.0
# Read behind Makefile by `make compile_commands.json`: every object of every program and library is
# out of date, so that a dry run prints the command that makes it.
lf_objects = $(sort $(foreach v,$(filter %_OBJECTS,$(.VARIABLES)),$($(v))))
lf_made = $(sort $(foreach v,$(filter nodist_%_SOURCES,$(.VARIABLES)),$($(v))))
lf-commands: $(lf_objects)
$(lf_objects): LF_ALWAYS
lf-made: $(lf_made) engine/base/commit.h
