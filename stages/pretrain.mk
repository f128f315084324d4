# lf-pretrain: option table, main, manual page, tests
stages_libopts_a_SOURCES += stages/pretrain_opts.c
pkglibexec_PROGRAMS += stages/lf-pretrain
stages_lf_pretrain_SOURCES = stages/pretrain.c stages/pretrain_mae.c stages/pretrain_mlm.c stages/pretrain_seq2seq.c stages/pretrain.h
stages_lf_pretrain_LDADD = $(LF_STAGE_LIBS)
LF_STAGE_MANS += stages/lf-pretrain.1

# The shell test reads and makes data with train_tool.
check_PROGRAMS += tests/stage/train_tool
tests_stage_train_tool_SOURCES = tests/stage/train_tool.c
tests_stage_train_tool_LDADD = $(LF_ENGINE_LIBS)
TESTS += tests/stage/pretrain.sh tests/stage/profile.sh tests/stage/optstate.sh tests/stage/ema.sh tests/stage/convnext.sh tests/stage/copies.sh tests/stage/finish.sh \
  tests/stage/old_ckpt.sh
EXTRA_DIST += tests/stage/pretrain.sh tests/stage/profile.sh tests/stage/optstate.sh tests/stage/ema.sh tests/stage/convnext.sh tests/stage/copies.sh tests/stage/finish.sh \
  tests/stage/old_ckpt.sh
TESTS += tests/stage/ranks.sh tests/stage/zero.sh tests/stage/zero_mix.sh tests/stage/zero_ckpt.sh tests/stage/zero_watch.sh tests/stage/tensor.sh tests/stage/context.sh tests/stage/pipeline.sh tests/stage/expert.sh tests/stage/pipeline_watch.sh tests/stage/infer_tensor.sh
LONG_TESTS += tests/stage/zero_ckpt_long.sh tests/stage/zero_watch_long.sh tests/stage/context_long.sh
# The smallest and largest numbers of every stage, as opts_tool reads them from the option tables.
check_PROGRAMS += tests/stage/opts_tool
tests_stage_opts_tool_SOURCES = tests/stage/opts_tool.c
tests_stage_opts_tool_LDADD = $(LF_STAGE_LIBS)
TESTS += tests/stage/sizes.sh
EXTRA_DIST += tests/stage/sizes.sh
TESTS += tests/stage/samples.sh tests/stage/best.sh
EXTRA_DIST += tests/stage/samples.sh tests/stage/best.sh
TESTS += tests/stage/moe.sh tests/stage/mae.sh tests/stage/moco.sh tests/stage/mlm.sh tests/stage/nsp.sh tests/stage/electra.sh tests/stage/classes.sh tests/stage/swin.sh tests/stage/pairs.sh tests/stage/picture_layouts.sh tests/stage/seq2seq.sh
EXTRA_DIST += tests/stage/moe.sh tests/stage/mae.sh tests/stage/moco.sh tests/stage/mlm.sh tests/stage/nsp.sh tests/stage/electra.sh tests/stage/classes.sh tests/stage/swin.sh tests/stage/pairs.sh tests/stage/picture_layouts.sh tests/stage/seq2seq.sh
TESTS += tests/stage/families.sh
EXTRA_DIST += tests/stage/families.sh
EXTRA_DIST += tests/stage/ranks.sh tests/stage/layout_lib.sh tests/stage/watch_lib.sh tests/stage/tensor.sh tests/stage/context.sh tests/stage/context_long.sh tests/stage/pipeline.sh tests/stage/expert.sh tests/stage/pipeline_watch.sh tests/stage/infer_tensor.sh tests/stage/zero.sh tests/stage/zero_mix.sh tests/stage/zero_ckpt.sh tests/stage/zero_ckpt_long.sh tests/stage/zero_watch.sh tests/stage/zero_watch_long.sh
