# sources of engine/pipe, and their tests
EXTRA_DIST += engine/pipe/README.md
engine_libengine_a_SOURCES += engine/pipe/pipe.h engine/pipe/pipe_priv.h engine/pipe/pipe.c engine/pipe/edge.c \
  engine/pipe/order_gpipe.c engine/pipe/order_1f1b.c engine/pipe/order_interleaved.c engine/pipe/order_zb_h1.c engine/pipe/order_v.c \
  engine/pipe/slots.c engine/pipe/messages_priv.h engine/pipe/messages.c engine/pipe/receives.c engine/pipe/check.c \
  engine/pipe/walk.h engine/pipe/walk_priv.h engine/pipe/walk.c engine/pipe/hang.c \
  engine/pipe/cut.h engine/pipe/cut.c engine/pipe/cut_text.c engine/pipe/show.h engine/pipe/draw.c engine/pipe/dump.c

pipe_tests = tests/unit/pipe_order tests/unit/pipe_walk tests/unit/pipe_messages tests/unit/pipe_faults tests/unit/pipe_cut tests/unit/pipe_show
pipe_util = tests/unit/pipe_util.c tests/unit/pipe_util.h
pipe_libs = tests/tap/libtap.a engine/libengine.a $(LF_BASE_LIBS)
check_PROGRAMS += $(pipe_tests)
TESTS += $(pipe_tests)
tests_unit_pipe_order_SOURCES = tests/unit/pipe_order.c $(pipe_util)
tests_unit_pipe_order_LDADD = $(pipe_libs)
tests_unit_pipe_walk_SOURCES = tests/unit/pipe_walk.c $(pipe_util)
tests_unit_pipe_walk_LDADD = $(pipe_libs)
tests_unit_pipe_messages_SOURCES = tests/unit/pipe_messages.c $(pipe_util)
tests_unit_pipe_messages_LDADD = $(pipe_libs)
tests_unit_pipe_faults_SOURCES = tests/unit/pipe_faults.c $(pipe_util)
tests_unit_pipe_faults_LDADD = $(pipe_libs)
tests_unit_pipe_cut_SOURCES = tests/unit/pipe_cut.c $(pipe_util)
tests_unit_pipe_cut_LDADD = $(pipe_libs)
tests_unit_pipe_show_SOURCES = tests/unit/pipe_show.c $(pipe_util)
tests_unit_pipe_show_LDADD = $(pipe_libs)
