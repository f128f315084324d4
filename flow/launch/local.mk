# Launchers of ranks; loong-flow is a PMIx server. A library of its own: it includes engine/base alone.
noinst_LIBRARIES += flow/launch/liblaunch.a
flow_launch_liblaunch_a_SOURCES = flow/launch/launch.h flow/launch/launch.c flow/launch/job.h \
  flow/launch/message.h flow/launch/message_json.c \
  flow/launch/wire.h flow/launch/wire.c flow/launch/hub.c flow/launch/fence.c flow/launch/daemon.c \
  flow/launch/remote.c flow/launch/start.c flow/launch/pmix.c flow/launch/probe.h flow/launch/probe.c
EXTRA_DIST += flow/launch/README.md
