# The flow, tested with stages that do nothing: loong-flow with their option tables, and their executables.
check_PROGRAMS += tests/flow/bin/loong-flow tests/flow/bin/lf-work tests/flow/bin/lf-join
tests_flow_bin_loong_flow_SOURCES = tests/flow/fake_flow.c tests/flow/fake_tables.c tests/flow/fake.h
# A run copies and hashes its programs, so these have nothing for debuggers.
if INSTRUMENTED
LF_TEST_SLIM =
else
LF_TEST_SLIM = -Wl,-s
endif
tests_flow_bin_loong_flow_LDFLAGS = $(AM_LDFLAGS) $(LF_TEST_SLIM)
tests_flow_bin_lf_work_LDFLAGS = $(AM_LDFLAGS) $(LF_TEST_SLIM)
tests_flow_bin_lf_join_LDFLAGS = $(AM_LDFLAGS) $(LF_TEST_SLIM)
tests_flow_bin_loong_flow_LDADD = flow/libflow.a flow/launch/liblaunch.a engine/libbuilt.a db/libdb.a \
  $(SQLITE_LIBS) $(LF_BASE_LIBS) $(PMIX_LIBS)
tests_flow_bin_lf_work_SOURCES = tests/flow/fake_stage.c tests/flow/fake_tables.c tests/flow/fake.h
tests_flow_bin_lf_work_LDADD = $(LF_BASE_LIBS)
tests_flow_bin_lf_join_SOURCES = tests/flow/fake_stage.c tests/flow/fake_tables.c tests/flow/fake.h
tests_flow_bin_lf_join_LDADD = $(LF_BASE_LIBS)
TESTS += tests/flow/submit.sh tests/flow/large.sh tests/flow/leftover.sh tests/flow/gone.sh \
  tests/flow/tick.sh tests/flow/ended.sh tests/flow/script.sh tests/flow/run.sh tests/flow/ini.sh \
  tests/flow/recover.sh tests/flow/fail.sh tests/flow/query.sh tests/flow/docs.sh tests/flow/attack.sh \
  tests/flow/locks.sh tests/flow/ask.sh tests/flow/renamed.sh tests/flow/mistakes.sh tests/flow/layout.sh \
  tests/flow/mistakes_more.sh tests/flow/names.sh tests/flow/compare.sh tests/flow/metrics.sh
EXTRA_DIST += tests/flow/submit.sh tests/flow/large.sh tests/flow/leftover.sh tests/flow/gone.sh \
  tests/flow/tick.sh tests/flow/ended.sh tests/flow/script.sh tests/flow/lib.sh tests/flow/run.sh \
  tests/flow/ini.sh tests/flow/recover.sh tests/flow/fail.sh tests/flow/query.sh tests/flow/docs.sh \
  tests/flow/attack.sh tests/flow/locks.sh tests/flow/ask.sh tests/flow/renamed.sh tests/flow/mistakes.sh tests/flow/layout.sh \
  tests/flow/mistakes_more.sh tests/flow/names.sh tests/flow/compare.sh tests/flow/metrics.sh
# A terminal for commands that draw on one.
check_PROGRAMS += tests/flow/on_tty
tests_flow_on_tty_SOURCES = tests/flow/on_tty.c
TESTS += tests/flow/console.sh
EXTRA_DIST += tests/flow/console.sh
TESTS += tests/flow/models.sh
EXTRA_DIST += tests/flow/models.sh
TESTS += tests/flow/sweep.sh tests/flow/sweep_slurm.sh tests/flow/sweep_pbs.sh
EXTRA_DIST += tests/flow/sweep.sh tests/flow/sweep_slurm.sh tests/flow/sweep_pbs.sh
TESTS += tests/flow/halving.sh
EXTRA_DIST += tests/flow/halving.sh
TESTS += tests/flow/finish.sh
EXTRA_DIST += tests/flow/finish.sh

# A directory that runs elsewhere.
TESTS += tests/flow/bundle.sh
EXTRA_DIST += tests/flow/bundle.sh

# The HTML page: with stages that do nothing, and with real ones.
check_PROGRAMS += tests/flow/report_check
tests_flow_report_check_SOURCES = tests/flow/report_check.c
tests_flow_report_check_LDADD = $(LF_BASE_LIBS)
TESTS += tests/flow/report.sh tests/flow/report_real.sh
LONG_TESTS += tests/flow/report_look.sh
EXTRA_DIST += tests/flow/report.sh tests/flow/report_real.sh tests/flow/report_look.sh

# Asking about many runs.
TESTS += tests/flow/keep.sh
EXTRA_DIST += tests/flow/keep.sh

# A real SLURM where there is one. Most of their time is waiting.
TESTS += tests/flow/slurm_testbed.sh tests/flow/slurm_user.sh tests/flow/slurm_admin.sh tests/flow/doctor.sh
EXTRA_DIST += tests/flow/README.md tests/flow/slurm-up tests/flow/slurm-down tests/flow/slurm_parts.conf tests/flow/slurm_lib.sh \
  tests/flow/slurm_testbed.sh tests/flow/slurm_user.sh tests/flow/slurm_admin.sh tests/flow/doctor.sh

flow_unit_tests = tests/unit/flow_conf tests/unit/flow_doc tests/unit/flow_epoch tests/unit/flow_fields \
  tests/unit/flow_handover tests/unit/flow_policy tests/unit/flow_series tests/unit/flow_synonym \
  tests/unit/flow_talk tests/unit/flow_closing
check_PROGRAMS += $(flow_unit_tests)
TESTS += $(flow_unit_tests)
tests_unit_flow_conf_SOURCES = tests/unit/flow_conf.c tests/flow/fake_tables.c tests/flow/fake.h
tests_unit_flow_conf_LDADD = tests/tap/libtap.a flow/libflow.a flow/launch/liblaunch.a db/libdb.a $(SQLITE_LIBS) $(LF_BASE_LIBS)
tests_unit_flow_closing_SOURCES = tests/unit/flow_closing.c
tests_unit_flow_closing_LDADD = tests/tap/libtap.a flow/libflow.a flow/launch/liblaunch.a db/libdb.a \
  $(SQLITE_LIBS) $(LF_BASE_LIBS)
tests_unit_flow_epoch_SOURCES = tests/unit/flow_epoch.c
tests_unit_flow_epoch_LDADD = tests/tap/libtap.a flow/libflow.a flow/launch/liblaunch.a db/libdb.a $(SQLITE_LIBS) $(LF_BASE_LIBS)
tests_unit_flow_fields_SOURCES = tests/unit/flow_fields.c
tests_unit_flow_fields_LDADD = tests/tap/libtap.a flow/libflow.a flow/launch/liblaunch.a db/libdb.a $(SQLITE_LIBS) $(LF_BASE_LIBS)
tests_unit_flow_handover_SOURCES = tests/unit/flow_handover.c
tests_unit_flow_handover_LDADD = tests/tap/libtap.a flow/libflow.a flow/launch/liblaunch.a db/libdb.a \
  $(SQLITE_LIBS) $(LF_BASE_LIBS)
tests_unit_flow_handover_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=link -Wl,--wrap=opendir
tests_unit_flow_talk_SOURCES = tests/unit/flow_talk.c
tests_unit_flow_talk_LDADD = tests/tap/libtap.a flow/libflow.a flow/launch/liblaunch.a db/libdb.a $(SQLITE_LIBS) $(LF_BASE_LIBS)
tests_unit_flow_synonym_SOURCES = tests/unit/flow_synonym.c
tests_unit_flow_synonym_LDADD = tests/tap/libtap.a $(LF_FLOW_LIBS) $(LF_ENGINE_LIBS)
tests_unit_flow_series_SOURCES = tests/unit/flow_series.c
tests_unit_flow_series_LDADD = tests/tap/libtap.a flow/libflow.a flow/launch/liblaunch.a db/libdb.a $(SQLITE_LIBS) $(LF_BASE_LIBS)
tests_unit_flow_doc_SOURCES = tests/unit/flow_doc.c
tests_unit_flow_doc_LDADD = tests/tap/libtap.a flow/libflow.a flow/launch/liblaunch.a db/libdb.a $(SQLITE_LIBS) $(LF_BASE_LIBS)
tests_unit_flow_policy_SOURCES = tests/unit/flow_policy.c
tests_unit_flow_policy_LDADD = tests/tap/libtap.a flow/libflow.a flow/launch/liblaunch.a db/libdb.a $(SQLITE_LIBS) $(LF_BASE_LIBS)

# PBS and Torque for tests: one program under the names of their commands.
check_PROGRAMS += tests/flow/fakes/pbs/fakepbs
tests_flow_fakes_pbs_fakepbs_SOURCES = tests/flow/fakes/pbs/pbs.h tests/flow/fakes/pbs/state.c tests/flow/fakes/pbs/resources.c \
  tests/flow/fakes/pbs/mom.c tests/flow/fakes/pbs/qsub.c tests/flow/fakes/pbs/qstat.c tests/flow/fakes/pbs/control.c
tests_flow_fakes_pbs_fakepbs_LDADD = $(JANSSON_LIBS)
TESTS += tests/flow/fakes_pbs.sh
EXTRA_DIST += tests/flow/fakes_pbs.sh tests/flow/fakes/pbs/lib.sh
TESTS += tests/flow/links_slurm.sh tests/flow/pbs.sh tests/flow/torque.sh tests/flow/pbs_trouble.sh tests/flow/pbs_real.sh
EXTRA_DIST += tests/flow/links_slurm.sh tests/flow/pbs.sh tests/flow/torque.sh tests/flow/pbs_trouble.sh \
  tests/flow/pbs_real.sh tests/flow/pbs_cases.sh

check_PROGRAMS += tests/unit/flow_pbs
TESTS += tests/unit/flow_pbs
tests_unit_flow_pbs_SOURCES = tests/unit/flow_pbs.c
tests_unit_flow_pbs_LDADD = tests/tap/libtap.a flow/libflow.a flow/launch/liblaunch.a db/libdb.a $(SQLITE_LIBS) $(LF_BASE_LIBS)

check_PROGRAMS += tests/unit/flow_slurm
TESTS += tests/unit/flow_slurm
tests_unit_flow_slurm_SOURCES = tests/unit/flow_slurm.c
tests_unit_flow_slurm_LDADD = tests/tap/libtap.a flow/libflow.a flow/launch/liblaunch.a db/libdb.a $(SQLITE_LIBS) $(LF_BASE_LIBS)

# What takes long (make check-long).
LONG_TESTS += tests/flow/launch_again.sh
# Layouts over two nodes of a real SLURM.
LONG_TESTS += tests/flow/slurm_layout.sh
EXTRA_DIST += tests/flow/slurm_layout.sh
EXTRA_DIST += tests/flow/launch_again.sh tests/flow/launches.sh

# The wrapper inside a job.
TESTS += tests/flow/wrapper.sh tests/flow/ranks.sh tests/unit/flow_jobside
EXTRA_DIST += tests/flow/wrapper.sh tests/flow/ranks.sh
check_PROGRAMS += tests/unit/flow_jobside
tests_unit_flow_jobside_SOURCES = tests/unit/flow_jobside.c
tests_unit_flow_jobside_LDADD = tests/tap/libtap.a flow/libflow.a flow/launch/liblaunch.a db/libdb.a \
  $(SQLITE_LIBS) $(LF_BASE_LIBS)

# Superseded starts.
TESTS += tests/flow/fence.sh
EXTRA_DIST += tests/flow/fence.sh tests/flow/faults_lib.sh

# Kills in number.
LONG_TESTS += tests/flow/chaos_local.sh tests/flow/chaos_pbs.sh tests/flow/chaos_slurm.sh
EXTRA_DIST += tests/flow/chaos_lib.sh tests/flow/chaos_local.sh tests/flow/chaos_pbs.sh tests/flow/chaos_slurm.sh
# README.md and docs/
TESTS += tests/flow/book.sh
EXTRA_DIST += tests/flow/book.sh tests/flow/book.awk tests/flow/book.smaller
