# Pipelines to begin with; they are compiled into loong-flow (flow/local.mk).
LF_INIT_TEMPLATES = templates/init/pretrain.ini templates/init/tokenize.ini templates/init/sft.ini templates/init/eval.ini templates/init/dpo.ini templates/init/rlhf.ini templates/init/grpo.ini
EXTRA_DIST += $(LF_INIT_TEMPLATES) templates/README.md

# Job scripts: installed data, which a project or a site may replace.
slurmtemplatesdir = $(pkgdatadir)/templates/slurm
dist_slurmtemplates_DATA = templates/slurm/job.sh.in
pbstemplatesdir = $(pkgdatadir)/templates/pbs
dist_pbstemplates_DATA = templates/pbs/job.sh.in templates/pbs/torque.sh.in
