# sources of engine/train, and their tests
engine_libengine_a_SOURCES += engine/train/loader.h
