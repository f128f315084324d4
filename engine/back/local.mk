# sources of engine/back, and their tests
engine_libengine_a_SOURCES += engine/back/back.h
