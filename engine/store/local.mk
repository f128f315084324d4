# sources of engine/store, and their tests
engine_libengine_a_SOURCES += engine/store/h5.h engine/store/shard.h engine/store/ckpt.h
