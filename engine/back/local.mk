# sources of engine/back, and their tests
engine_libengine_a_SOURCES += engine/back/back.h engine/back/cpu.c
EXTRA_DIST += engine/back/README.md
