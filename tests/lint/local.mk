# tests of tests/lint
TESTS += tests/lint/figure.sh tests/lint/json.sh tests/lint/layers.sh tests/lint/options.sh tests/lint/examples.sh tests/lint/summary.sh tests/lint/style.sh tests/lint/times.sh tests/lint/words.sh tests/lint/howto.sh
EXTRA_DIST += tests/lint/lib.sh tests/lint/json.txt tests/lint/figure.sh tests/lint/json.sh tests/lint/layers.sh tests/lint/options.sh tests/lint/examples.sh tests/lint/summary.sh tests/lint/style.sh tests/lint/times.sh tests/lint/words.sh \
  tests/lint/tokens.sh tests/lint/howto.sh tests/lint/howto/option.patch tests/lint/howto/op.patch
AM_TESTS_ENVIRONMENT += CC='$(CC)'; LF_LINT_CFLAGS='$(HDF5_CFLAGS) $(JANSSON_CFLAGS) $(SQLITE_CFLAGS)'; export CC LF_LINT_CFLAGS;
