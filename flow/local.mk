# libflow.a: everything of the loong-flow command but main; the program links the stages' option tables to it.
noinst_LIBRARIES += flow/libflow.a
flow_libflow_a_SOURCES = flow/conf.h flow/conf.c flow/conf_ref.c flow/names.h flow/names.c \
  flow/pipeline.h flow/pipeline_priv.h flow/pipeline.c flow/pipeline_model.c flow/pipeline_input.c flow/pipeline_resources.c flow/resources_text.c flow/graph.c \
  flow/spec.h flow/spec.c flow/who.h flow/who.c flow/project.h flow/project.c flow/runs.c flow/gone.h flow/gone.c \
  flow/epoch.h flow/epoch.c flow/handover.h flow/handover.c flow/state.h flow/state.c \
  flow/record.h flow/record.c flow/classify.h flow/classify.c flow/policy.h flow/policy.c \
  flow/exec.h flow/exec.c flow/exec_start.c flow/exec_config.c flow/exec_argv.c flow/exec_child.c flow/exec_time.c \
  flow/exec_evict.c flow/exec_listen.c flow/exec_commit.c flow/exec_damage.c flow/exec_end.c flow/jobside.h flow/jobside.c flow/jobside_slurm.c flow/jobside_pbs.c \
  flow/freeze.h flow/freeze.c flow/leftover.h flow/leftover.c flow/submit.h flow/submit.c flow/attempt.h flow/attempt.c flow/submit_local.c \
  flow/pbs.h flow/pbs.c flow/pbs_parse.c flow/pbs_request.c flow/submit_pbs.c flow/chain.h flow/chain.c \
  flow/submit_slurm.c flow/slurm_parse.h flow/slurm_parse.c flow/tmpl.h flow/tmpl.c \
  flow/par.h flow/par.c flow/batch.h flow/batch_priv.h flow/batch.c flow/batch_act.c flow/batch_dry.c flow/batch_plan.c flow/batch_send.c flow/batch_end.c \
  flow/sched.h flow/sched_cmd.c flow/sched_poll.c flow/sched_view.c \
  flow/select.h flow/select.c flow/drive.h flow/drive.c flow/repair.c flow/sync.c \
  flow/cost.h flow/cost.c flow/prep.h flow/prep.c flow/conf_print.c flow/series.h flow/series.c \
  flow/describe.h flow/describe.c flow/table.h flow/table.c flow/cmd.h flow/cmds.h flow/cmds.def flow/cmd.c flow/cmd_util.c \
  flow/cmd_plan.c flow/cmd_run.c flow/cmd_batch.h flow/cmd_batch.c flow/cmd_status.c flow/cmd_config.c \
  flow/cmd_logs.c flow/cmd_show.c flow/cmd_cancel.c flow/cmd_metrics.c \
  flow/cmd_ledger.c flow/cmd_doctor.c flow/doctor.h flow/doctor_fs.c flow/doctor_limits.c flow/doctor_gpu.c \
  flow/doctor_slurm.c flow/doctor_pbs.c flow/doctor_launch.c flow/cmd_gc.c \
  flow/cmd_report.c flow/cmd_completion.c flow/report.h flow/report.c flow/report_svg.c flow/report_plot.c flow/report_tables.c flow/init_texts.h
# Asking.
flow_libflow_a_SOURCES += flow/cmd_watch.c flow/asking.h flow/asking.c flow/cmd_artifacts.c flow/cmd_note.c
# Launchers of ranks; loong-flow is a PMIx server.
flow_libflow_a_SOURCES += flow/launch.h flow/launch.c flow/launch_job.h flow/launch_wire.h flow/launch_wire.c \
  flow/launch_hub.c flow/launch_fence.c flow/launch_daemon.c flow/launch_remote.c flow/launch_start.c flow/launch_pmix.c flow/launch_probe.h flow/launch_probe.c \
  flow/cmd_launch.c
bin_PROGRAMS += loong-flow
loong_flow_SOURCES = flow/main.c
loong_flow_LDADD = $(LF_FLOW_LIBS) $(PMIX_LIBS)
nodist_flow_libflow_a_SOURCES = flow/init_texts.c
man_MANS += flow/loong-flow.1
bashcompdir = $(datadir)/bash-completion/completions
zshcompdir = $(datadir)/zsh/site-functions
fishcompdir = $(datadir)/fish/vendor_completions.d
EXTRA_DIST += flow/README.md flow/init_texts.awk flow/loong-flow.1.in

# The program prints its own completion files and the man page's part on commands. Building for another machine needs a
# loong-flow of this one: make LOONG_FLOW=/path.
LOONG_FLOW = ./loong-flow$(EXEEXT)
LF_COMPLETIONS = flow/loong-flow.bash flow/loong-flow.zsh flow/loong-flow.fish
all-local: $(LF_COMPLETIONS)
$(LF_COMPLETIONS): loong-flow$(EXEEXT)
	$(AM_V_GEN)$(LOONG_FLOW) completion `echo $@ | sed 's/.*\.//'` > $@.tmp && mv $@.tmp $@
flow/loong-flow.1: $(srcdir)/flow/loong-flow.1.in loong-flow$(EXEEXT)
	$(AM_V_GEN)$(LOONG_FLOW) completion man > $@.part && \
	  $(AWK) -v part=$@.part '$$0 == "@COMMANDS@" { while ((getline line < part) > 0) print line; next } { print }' \
	  $(srcdir)/flow/loong-flow.1.in > $@.tmp && mv $@.tmp $@ && rm -f $@.part
CLEANFILES += $(LF_COMPLETIONS) flow/loong-flow.1

install-data-hook:
	$(MKDIR_P) $(DESTDIR)$(bashcompdir) $(DESTDIR)$(zshcompdir) $(DESTDIR)$(fishcompdir)
	$(INSTALL_DATA) flow/loong-flow.bash $(DESTDIR)$(bashcompdir)/loong-flow
	$(INSTALL_DATA) flow/loong-flow.zsh $(DESTDIR)$(zshcompdir)/_loong-flow
	$(INSTALL_DATA) flow/loong-flow.fish $(DESTDIR)$(fishcompdir)/loong-flow.fish
uninstall-hook:
	rm -f $(DESTDIR)$(bashcompdir)/loong-flow $(DESTDIR)$(zshcompdir)/_loong-flow $(DESTDIR)$(fishcompdir)/loong-flow.fish
	$(SHELL) $(top_srcdir)/packaging/rmdirs.sh $(DESTDIR)$(pkglibexecdir) $(DESTDIR)$(pkgdatadir)

CLEANFILES += flow/init_texts.c
LF_INIT_TEMPLATES_SRC = $(srcdir)/templates/init/pretrain.ini $(srcdir)/templates/init/tokenize.ini $(srcdir)/templates/init/sft.ini $(srcdir)/templates/init/eval.ini $(srcdir)/templates/init/dpo.ini $(srcdir)/templates/init/rlhf.ini $(srcdir)/templates/init/grpo.ini

# The pipelines of templates/init become arrays of lines.
flow/init_texts.c: $(LF_INIT_TEMPLATES_SRC) $(srcdir)/flow/init_texts.awk
	$(AM_V_GEN)$(MKDIR_P) flow && $(AWK) -f $(srcdir)/flow/init_texts.awk $(LF_INIT_TEMPLATES_SRC) > $@.tmp && mv $@.tmp $@
