# libflow.a: everything of the loong-flow command but main; the program links the stages' option tables to it.
noinst_LIBRARIES += flow/libflow.a
flow_libflow_a_SOURCES =
flow_libflow_a_SOURCES += \
  flow/record/attempt.h flow/record/attempt_json.c flow/record/cells_json.c flow/record/closing.h \
  flow/record/closing_json.c flow/record/difference.h flow/record/difference_json.c \
  flow/record/doc.h flow/record/doc_event_json.c flow/record/doc_json.c flow/record/doing.h \
  flow/record/doing_json.c flow/record/event.h flow/record/event_json.c flow/record/fields.h \
  flow/record/fields_json.c flow/record/hashcache.h flow/record/hashcache_json.c \
  flow/record/identity.h flow/record/identity_json.c flow/record/made.h flow/record/made_json.c \
  flow/record/metric.h flow/record/metric_json.c flow/record/names.c flow/record/names.h \
  flow/record/outcome.h flow/record/outcome_json.c flow/record/parts.h flow/record/queue.h \
  flow/record/queue_json.c flow/record/record.c flow/record/record.h flow/record/rung.h \
  flow/record/rung_json.c flow/record/shown.h flow/record/shown_json.c flow/record/start.h \
  flow/record/start_json.c flow/record/units.c flow/record/units.h flow/record/values.c \
  flow/record/values.h
flow_libflow_a_SOURCES += \
  flow/plan/conf.c flow/plan/conf.h flow/plan/conf_ref.c flow/plan/graph.c flow/plan/pipeline.c \
  flow/plan/pipeline.h flow/plan/pipeline_cross.c flow/plan/pipeline_input.c \
  flow/plan/pipeline_layout.c flow/plan/pipeline_model.c flow/plan/pipeline_priv.h flow/plan/pipeline_resources.c \
  flow/plan/laid.c flow/plan/laid.h flow/plan/pipeline_sweep.c flow/plan/presets.c flow/plan/presets.h flow/plan/resources_text.c \
  flow/plan/settle.c flow/plan/settle.h flow/plan/spec.c flow/plan/spec.h flow/plan/sweep.c \
  flow/plan/sweep.h flow/plan/sweep_merge.c flow/plan/sweep_read.c
flow_libflow_a_SOURCES += \
  flow/run/asking.c flow/run/asking.h flow/run/classify.c flow/run/classify.h flow/run/closing.c \
  flow/run/closing.h flow/run/epoch.c flow/run/epoch.h flow/run/freeze.c flow/run/freeze.h \
  flow/run/gone.c flow/run/gone.h flow/run/handover.c flow/run/handover.h flow/run/known.c \
  flow/run/known.h flow/run/leftover.c flow/run/leftover.h flow/run/naming.c flow/run/naming.h \
  flow/run/outcome.c flow/run/outcome.h flow/run/par.c flow/run/par.h flow/run/policy.c \
  flow/run/policy.h flow/run/project.c flow/run/project.h flow/run/provenance.c \
  flow/run/provenance.h flow/run/provenance_text.c flow/run/rung.c flow/run/rung.h flow/run/runs.c \
  flow/run/samples.c flow/run/samples.h flow/run/select.c flow/run/select.h flow/run/series.c \
  flow/run/series.h flow/run/settings.c flow/run/settings.h flow/run/state.c flow/run/state.h \
  flow/run/sync.c flow/run/sync.h flow/run/who.c flow/run/who.h
flow_libflow_a_SOURCES += \
  flow/sched/attempt.c flow/sched/attempt.h flow/sched/batch.c flow/sched/batch.h \
  flow/sched/batch_act.c flow/sched/batch_dry.c flow/sched/batch_end.c flow/sched/batch_plan.c \
  flow/sched/batch_priv.h flow/sched/batch_send.c flow/sched/batch_sweep.c flow/sched/chain.c \
  flow/sched/chain.h flow/sched/describe.c flow/sched/describe.h flow/sched/drive.c \
  flow/sched/drive.h flow/sched/ended.c flow/sched/ended.h flow/sched/eta.c flow/sched/eta.h \
  flow/sched/pbs.c flow/sched/pbs.h flow/sched/pbs_parse.c flow/sched/pbs_request.c \
  flow/sched/repair.c flow/sched/sched.h flow/sched/sched_cmd.c flow/sched/sched_poll.c \
  flow/sched/sched_view.c flow/sched/slurm_parse.c flow/sched/slurm_parse.h flow/sched/submit.c \
  flow/sched/submit.h flow/sched/submit_local.c flow/sched/submit_pbs.c flow/sched/submit_slurm.c \
  flow/sched/talk.c flow/sched/talk.h flow/sched/tmpl.c flow/sched/tmpl.h
flow_libflow_a_SOURCES += \
  flow/job/exec.c flow/job/exec.h flow/job/exec_argv.c flow/job/exec_child.c flow/job/exec_commit.c \
  flow/job/exec_config.c flow/job/exec_damage.c flow/job/exec_end.c flow/job/exec_evict.c \
  flow/job/exec_listen.c flow/job/exec_settle.c flow/job/exec_start.c flow/job/exec_time.c \
  flow/job/jobside.c flow/job/jobside.h flow/job/jobside_pbs.c flow/job/jobside_slurm.c
flow_libflow_a_SOURCES += \
  flow/report/card.c flow/report/course.c flow/report/data.c flow/report/facts.c flow/report/facts.h \
  flow/report/page.c flow/report/page_texts.h flow/report/pictures.c flow/report/plot.c \
  flow/report/report.c \
  flow/report/report.h flow/report/scores.c flow/report/several.c flow/report/svg.c \
  flow/report/tables.c flow/report/texts.c
flow_libflow_a_SOURCES += \
  flow/cmd/bar.c flow/cmd/bar.h flow/cmd/cmd.c flow/cmd/cmd.h flow/cmd/cmd_artifacts.c \
  flow/cmd/cmd_batch.c flow/cmd/cmd_batch.h flow/cmd/cmd_cancel.c flow/cmd/cmd_complete.c \
  flow/cmd/cmd_completion.c flow/cmd/cmd_config.c flow/cmd/cmd_doctor.c flow/cmd/cmd_finish.c \
  flow/cmd/cmd_gc.c flow/cmd/cmd_init.c flow/cmd/cmd_launch.c flow/cmd/cmd_ledger.c \
  flow/cmd/cmd_logs.c flow/cmd/cmd_metrics.c flow/cmd/cmd_models.c flow/cmd/cmd_note.c \
  flow/cmd/cmd_plan.c flow/cmd/cmd_plan.h flow/cmd/cmd_report.c flow/cmd/cmd_run.c \
  flow/cmd/cmd_samples.c flow/cmd/cmd_show.c flow/cmd/cmd_status.c flow/cmd/cmd_sweep.c \
  flow/cmd/cmd_util.c flow/cmd/cmd_watch.c flow/cmd/cmds.def flow/cmd/cmds.h flow/cmd/compare.c \
  flow/cmd/compare.h flow/cmd/complaint.c flow/cmd/complaint.h flow/cmd/conf_print.c \
  flow/cmd/console.c flow/cmd/console.h flow/cmd/cost.c flow/cmd/cost.h flow/cmd/curves.c \
  flow/cmd/curves.h flow/cmd/doctor.h flow/cmd/doctor_ask.c flow/cmd/doctor_cpu.c flow/cmd/doctor_fs.c flow/cmd/doctor_gpu.c flow/cmd/doctor_media.c \
  flow/cmd/doctor_launch.c flow/cmd/doctor_limits.c flow/cmd/doctor_pbs.c flow/cmd/doctor_slurm.c \
  flow/cmd/help.c flow/cmd/help.h flow/cmd/init_texts.h flow/cmd/place.c flow/cmd/place.h flow/cmd/plot_text.c flow/cmd/plot_text.h \
  flow/cmd/prep.c flow/cmd/prep.h flow/cmd/print_json.c flow/cmd/restart.c flow/cmd/restart.h \
  flow/cmd/show_shards.c flow/cmd/show_shards.h flow/cmd/status_all.c flow/cmd/status_all.h \
  flow/cmd/laid.c flow/cmd/laid.h flow/cmd/sweep_sum.c flow/cmd/sweep_sum.h flow/cmd/table.c flow/cmd/table.h \
  flow/cmd/write_report.c flow/cmd/write_report.h
include flow/launch/local.mk
bin_PROGRAMS += loong-flow
loong_flow_SOURCES = flow/main.c
loong_flow_LDADD = $(LF_FLOW_LIBS)
nodist_flow_libflow_a_SOURCES = flow/cmd/init_texts.c flow/report/page_texts.c
man_MANS += flow/loong-flow.1
bashcompdir = $(datadir)/bash-completion/completions
zshcompdir = $(datadir)/zsh/site-functions
fishcompdir = $(datadir)/fish/vendor_completions.d
EXTRA_DIST += flow/README.md flow/cmd/init_texts.awk flow/loong-flow.1.in \
  flow/record/README.md flow/plan/README.md flow/run/README.md flow/sched/README.md \
  flow/job/README.md flow/report/README.md flow/cmd/README.md

# The program prints its own completion files and the man page's part on commands. Building for another machine needs the
# emulator, or a loong-flow of this one: make LF_FLOW=/path.
LF_FLOW = $(LF_EMULATOR) ./loong-flow$(EXEEXT)
LF_COMPLETIONS = flow/loong-flow.bash flow/loong-flow.zsh flow/loong-flow.fish
all-local: $(LF_COMPLETIONS)
$(LF_COMPLETIONS): loong-flow$(EXEEXT)
	$(AM_V_GEN)$(LF_FLOW) completion `echo $@ | sed 's/.*\.//'` > $@.tmp && mv $@.tmp $@
flow/loong-flow.1: $(srcdir)/flow/loong-flow.1.in loong-flow$(EXEEXT)
	$(AM_V_GEN)$(LF_FLOW) completion man > $@.part && \
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
	$(SHELL) $(top_srcdir)/packaging/rmdirs.sh $(DESTDIR)$(pkglibexecdir) $(DESTDIR)$(pkgdatadir) \
	  $(DESTDIR)$(docdir)

CLEANFILES += flow/cmd/init_texts.c
LF_INIT_TEMPLATES_SRC = $(srcdir)/templates/init/pretrain.ini $(srcdir)/templates/init/tokenize.ini \
  $(srcdir)/templates/init/sft.ini $(srcdir)/templates/init/eval.ini $(srcdir)/templates/init/dpo.ini \
  $(srcdir)/templates/init/rlhf.ini $(srcdir)/templates/init/grpo.ini

# Style and script of the report become arrays of lines.
CLEANFILES += flow/report/page_texts.c
EXTRA_DIST += flow/report/page.css flow/report/page.js flow/report/page_texts.awk
flow/report/page_texts.c: $(srcdir)/flow/report/page.css $(srcdir)/flow/report/page.js $(srcdir)/flow/report/page_texts.awk
	$(AM_V_GEN)$(MKDIR_P) flow/report && $(AWK) -f $(srcdir)/flow/report/page_texts.awk \
	  $(srcdir)/flow/report/page.css $(srcdir)/flow/report/page.js > $@.tmp && mv $@.tmp $@

# The pipelines of templates/init become arrays of lines.
flow/cmd/init_texts.c: $(LF_INIT_TEMPLATES_SRC) $(srcdir)/flow/cmd/init_texts.awk
	$(AM_V_GEN)$(MKDIR_P) flow/cmd && $(AWK) -f $(srcdir)/flow/cmd/init_texts.awk $(LF_INIT_TEMPLATES_SRC) > $@.tmp && mv $@.tmp $@
