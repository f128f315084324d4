# sources of engine/post, and their tests
EXTRA_DIST += engine/post/README.md
engine_libengine_a_SOURCES += \
  engine/post/advantage.c engine/post/advantage.h \
  engine/post/kl.c engine/post/kl.h \
  engine/post/policy_loss.c engine/post/policy_loss.h \
  engine/post/reward.h engine/post/reward_cmd.c engine/post/reward_rule.c \
  engine/post/shaping.c engine/post/shaping.h

LF_POST_TESTS = tests/unit/post_pg tests/unit/post_reward
check_PROGRAMS += $(LF_POST_TESTS)
TESTS += $(LF_POST_TESTS)
tests_unit_post_pg_SOURCES = tests/unit/post_pg.c
tests_unit_post_pg_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_post_reward_SOURCES = tests/unit/post_reward.c
tests_unit_post_reward_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
