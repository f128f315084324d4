# sources of engine/post, and their tests
EXTRA_DIST += engine/post/README.md
engine_libengine_a_SOURCES += \
  engine/post/advantage.c engine/post/advantage.h \
  engine/post/kl.c engine/post/kl.h \
  engine/post/pg.c engine/post/pg.h engine/post/pg_model.c engine/post/pg_model.h \
  engine/post/pg_early.c engine/post/pg_key.c engine/post/pg_part.c engine/post/pg_places.c engine/post/pg_priv.h engine/post/pg_ptx.c engine/post/pg_ranks.c engine/post/pg_report.c engine/post/pg_reward.c engine/post/pg_rollout.c engine/post/pg_see.c engine/post/prompt_sight.c engine/post/prompt_sight.h engine/post/pg_setup.c engine/post/pg_measure.c engine/post/sample_lines.h engine/post/sample_lines.c engine/post/scored.h engine/post/scored.c \
  engine/post/pg_state.c engine/post/pg_update.c engine/post/rollout.c engine/post/rollout.h engine/post/rollout_file.c \
  engine/post/policy_loss.c engine/post/policy_loss.h \
  engine/post/reshard.c engine/post/reshard.h engine/post/reshard_plan.c engine/post/reshard_priv.h \
  engine/post/reward.h engine/post/reward_cmd.c engine/post/reward_rule.c \
  engine/post/shaping.c engine/post/shaping.h

LF_POST_TESTS = tests/unit/post_pg tests/unit/post_ranks tests/unit/post_reshard tests/unit/post_reward
check_PROGRAMS += $(LF_POST_TESTS)
TESTS += $(LF_POST_TESTS)
tests_unit_post_pg_SOURCES = tests/unit/post_pg.c
tests_unit_post_pg_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_post_ranks_SOURCES = tests/unit/post_ranks.c
tests_unit_post_ranks_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_post_reshard_SOURCES = tests/unit/post_reshard.c
tests_unit_post_reshard_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_post_reward_SOURCES = tests/unit/post_reward.c
tests_unit_post_reward_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
# the reward model
engine_libengine_a_SOURCES += engine/post/bt_loss.h engine/post/bt_loss.c engine/post/rm_score.h engine/post/rm_score.c \
  engine/post/rm_model.c engine/post/rm_train.h engine/post/rm_train.c \
  engine/post/rm_rows.h engine/post/rm_rows_priv.h engine/post/rm_rows.c engine/post/rm_rows_results.c
check_PROGRAMS += tests/unit/post_bt_loss tests/unit/post_rm_score
TESTS += tests/unit/post_bt_loss tests/unit/post_rm_score
tests_unit_post_bt_loss_SOURCES = tests/unit/post_bt_loss.c
tests_unit_post_bt_loss_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_post_rm_score_SOURCES = tests/unit/post_rm_score.c tests/unit/infer_ckpt.c tests/unit/infer_ckpt.h
tests_unit_post_rm_score_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
# labels of texts and tokens
engine_libengine_a_SOURCES += engine/post/label_loss.h engine/post/label_loss.c engine/post/label_metrics.h engine/post/label_metrics.c \
  engine/post/label_data.h engine/post/label_data.c engine/post/label_train.h engine/post/label_train.c \
  engine/post/class_mix.h engine/post/class_mix.c engine/post/class_train.h engine/post/class_train.c \
  engine/post/moco_heads.h engine/post/moco_heads.c engine/post/moco_train.h engine/post/moco_train.c \
  engine/post/contrast_loss.h engine/post/contrast_loss.c engine/post/contrast_train.h engine/post/contrast_train.c \
  engine/post/dual_loss.h engine/post/dual_loss.c engine/post/dual_train.h engine/post/dual_train.c \
  engine/post/tower_score.h engine/post/tower_score.c engine/post/picture_state.h engine/post/picture_state.c
check_PROGRAMS += tests/unit/post_labels tests/unit/post_contrast tests/unit/post_dual
TESTS += tests/unit/post_labels tests/unit/post_contrast tests/unit/post_dual
tests_unit_post_dual_SOURCES = tests/unit/post_dual.c
tests_unit_post_dual_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_post_contrast_SOURCES = tests/unit/post_contrast.c
tests_unit_post_contrast_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_post_labels_SOURCES = tests/unit/post_labels.c
tests_unit_post_labels_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
# losses on judged answers
engine_libengine_a_SOURCES += engine/post/pair_loss.h engine/post/pair_loss.c
check_PROGRAMS += tests/unit/post_pair_loss
TESTS += tests/unit/post_pair_loss
tests_unit_post_pair_loss_SOURCES = tests/unit/post_pair_loss.c
tests_unit_post_pair_loss_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
engine_libengine_a_SOURCES += engine/post/reference.h engine/post/reference.c engine/post/dpo.h engine/post/dpo.c \
  engine/post/samples.h engine/post/samples.c
