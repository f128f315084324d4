# tests of tests/golden
check_PROGRAMS += tests/golden/model_test
TESTS += tests/golden/model_test
tests_golden_model_test_SOURCES = tests/golden/model_test.c tests/golden/golden.c tests/golden/golden.h
tests_golden_model_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/model/README.md tests/golden/model/make_golden.py tests/golden/model/gpt2.h5 tests/golden/model/llama.h5 \
  tests/golden/model/mistral.h5 tests/golden/model/qwen2.5.h5 tests/golden/model/qwen3.h5
