# sources of engine/media, and their tests
engine_libmedia_a_SOURCES += engine/media/image.h engine/media/image_priv.h engine/media/image.c engine/media/colour.c \
  engine/media/orient.c engine/media/exif.h engine/media/exif.c engine/media/jpeg.c engine/media/png.c engine/media/webp.c \
  engine/media/resize.h engine/media/resize.c \
  engine/media/augment.h engine/media/augment_priv.h engine/media/augment.c engine/media/augment_ops.c \
  engine/media/grid.h engine/media/grid.c engine/media/patch.h engine/media/patch.c \
  engine/media/processor.h engine/media/processor.c engine/media/processor_read.c engine/media/plan.c \
  engine/media/expand.h engine/media/expand.c engine/media/expand_read.c engine/media/expand_load.c engine/media/batch.h \
  engine/media/check.h engine/media/check.c engine/media/check_data.h
EXTRA_DIST += engine/media/README.md

MEDIA_TEST_UTIL = tests/golden/media/util.c tests/golden/media/util.h
media_tests = tests/unit/media_check tests/golden/media/image_test tests/golden/media/resize_test tests/golden/media/processor_test \
  tests/golden/media/expand_test tests/golden/media/augment_test
check_PROGRAMS += $(media_tests)
TESTS += $(media_tests)
tests_unit_media_check_SOURCES = tests/unit/media_check.c
tests_unit_media_check_LDADD = tests/tap/libtap.a $(LF_MEDIA_LIBS)
# a JPEG library that rounds otherwise, a PNG library that fails
tests_unit_media_check_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=lf_jpeg_decode -Wl,--wrap=lf_png_decode
tests_golden_media_image_test_SOURCES = tests/golden/media/image_test.c $(MEDIA_TEST_UTIL)
tests_golden_media_image_test_LDADD = tests/tap/libtap.a $(LF_MEDIA_LIBS)
tests_golden_media_resize_test_SOURCES = tests/golden/media/resize_test.c $(MEDIA_TEST_UTIL)
tests_golden_media_resize_test_LDADD = tests/tap/libtap.a $(LF_MEDIA_LIBS)
tests_golden_media_processor_test_SOURCES = tests/golden/media/processor_test.c $(MEDIA_TEST_UTIL)
tests_golden_media_processor_test_LDADD = tests/tap/libtap.a $(LF_MEDIA_LIBS)
tests_golden_media_expand_test_SOURCES = tests/golden/media/expand_test.c $(MEDIA_TEST_UTIL)
tests_golden_media_expand_test_LDADD = tests/tap/libtap.a $(LF_MEDIA_LIBS)
tests_golden_media_augment_test_SOURCES = tests/golden/media/augment_test.c $(MEDIA_TEST_UTIL)
tests_golden_media_augment_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/media/make_augment.py tests/golden/media/augment.json
EXTRA_DIST += tests/golden/media/README.md tests/golden/media/make_expand.py tests/golden/media/expand.json tests/golden/media/make_images.py tests/golden/media/processors.py tests/golden/media/make_media.py \
  tests/golden/media/images.json tests/golden/media/resize.json tests/golden/media/processors.json tests/golden/media/rows tests/golden/media/images
