# The imitated SLURM (tests/flow/fakes.sh), the test that it behaves, and what is tested with it.
check_PROGRAMS += tests/flow/fakes/slurm/fakeslurm
tests_flow_fakes_slurm_fakeslurm_SOURCES = tests/flow/fakes/slurm/fk.h tests/flow/fakes/slurm/main.c tests/flow/fakes/slurm/state.c \
  tests/flow/fakes/slurm/opts.c tests/flow/fakes/slurm/values.c tests/flow/fakes/slurm/jobs.c tests/flow/fakes/slurm/stepd.c \
  tests/flow/fakes/slurm/ctld.c tests/flow/fakes/slurm/sbatch.c tests/flow/fakes/slurm/sbatch_opts.c \
  tests/flow/fakes/slurm/squeue.c tests/flow/fakes/slurm/sacct.c \
  tests/flow/fakes/slurm/scontrol.c tests/flow/fakes/slurm/scancel.c tests/flow/fakes/slurm/srun.c tests/flow/fakes/slurm/world.c
tests_flow_fakes_slurm_fakeslurm_LDADD = $(JANSSON_LIBS)
TESTS += tests/flow/fakes_slurm.sh
EXTRA_DIST += tests/flow/fakes.sh tests/flow/fakes_slurm.sh tests/flow/fakes/slurm/README.md

# What users of other tools met, and kill -9 before every change to a file (long lists are split).
flow_cases = tests/flow/cases_ledger.sh tests/flow/cases_submit.sh tests/flow/cases_status.sh tests/flow/cases_segments.sh tests/flow/cases_failures.sh tests/flow/attack_batch.sh \
  tests/flow/kill_submit_1.sh tests/flow/kill_submit_2.sh tests/flow/kill_submit_3.sh tests/flow/kill_ingest_1.sh \
  tests/flow/kill_ingest_2.sh tests/flow/kill_cancel_1.sh tests/flow/kill_cancel_2.sh tests/flow/kill_publish.sh
TESTS += $(flow_cases)
EXTRA_DIST += $(flow_cases) tests/flow/kill_lib.sh tests/flow/kill_submit.sh tests/flow/kill_ingest.sh tests/flow/kill_cancel.sh
