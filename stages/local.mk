# libopts.a: the option tables (data only, linked into stages and loong-flow).
# libstages.a: what every stage main shares.
noinst_LIBRARIES += stages/libopts.a stages/libstages.a
# Man pages: OPTIONS is printed from the table, the rest stands in lf-KIND.1.in.
LF_STAGE_MANS =
stages_libopts_a_SOURCES =
stages_libstages_a_SOURCES =
include stages/tokenize.mk
# what training stages share
stages_libopts_a_SOURCES += stages/train_opts.h
stages_libstages_a_SOURCES += stages/train_common.c stages/train_common.h stages/stage_profile.c stages/stage_profile.h stages/train_samples.c stages/train_samples.h
stages_libstages_a_SOURCES += stages/adapter_in.c stages/adapter_in.h stages/chat_in.c stages/chat_in.h
include stages/features.mk
include stages/pretrain.mk
include stages/sft.mk
include stages/rm.mk
include stages/dpo.mk
include stages/ppo.mk
include stages/score.mk
include stages/generate.mk
include stages/eval.mk
include stages/vocab.mk
include stages/convert.mk
man_MANS += $(LF_STAGE_MANS)
EXTRA_DIST += $(LF_STAGE_MANS:.1=.1.in)
CLEANFILES += $(LF_STAGE_MANS)
# As with flow/loong-flow.1, a loong-flow that runs here prints the part: LF_FLOW=/path where another machine's is built.
$(LF_STAGE_MANS): loong-flow$(EXEEXT) $(LF_STAGE_MANS:.1=.1.in)
	$(AM_V_GEN)$(LF_FLOW) completion man `echo $@ | sed 's/.*lf-//; s/\.1$$//'` > $@.part && \
	  $(AWK) -v part=$@.part '$$0 == "@OPTIONS@" { while ((getline line < part) > 0) print line; next } { print }' \
	  $(srcdir)/$@.in > $@.tmp && mv $@.tmp $@ && rm -f $@.part
# options and defaults of every stage
check_PROGRAMS += tests/unit/stage_opts
TESTS += tests/unit/stage_opts
EXTRA_DIST += tests/unit/stage_opts.txt
tests_unit_stage_opts_SOURCES = tests/unit/stage_opts.c
tests_unit_stage_opts_LDADD = tests/tap/libtap.a stages/libopts.a $(LF_BASE_LIBS)
