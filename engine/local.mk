noinst_LIBRARIES += engine/libbase.a engine/libengine.a engine/libmedia.a
engine_libbase_a_SOURCES =
engine_libengine_a_SOURCES =
engine_libmedia_a_SOURCES =
include engine/base/local.mk
include engine/text/local.mk
include engine/media/local.mk
include engine/store/local.mk
include engine/graph/local.mk
include engine/back/local.mk
include engine/comm/local.mk
include engine/pipe/local.mk
include engine/model/local.mk
include engine/convert/local.mk
include engine/train/local.mk
include engine/infer/local.mk
include engine/post/local.mk
EXTRA_DIST += engine/README.md
