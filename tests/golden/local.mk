# tests of tests/golden
check_PROGRAMS += tests/golden/model_test
TESTS += tests/golden/model_test
tests_golden_model_test_SOURCES = tests/golden/model_test.c tests/golden/golden.c tests/golden/golden.h
tests_golden_model_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/model/README.md tests/golden/model/make_golden.py tests/golden/model/gpt2.h5 tests/golden/model/llama.h5 \
  tests/golden/model/mistral.h5 tests/golden/model/qwen2.5.h5 tests/golden/model/qwen3.h5

# Training against PyTorch. train_export is built by hand (make tests/golden/train_export) to make curve.txt again.
check_PROGRAMS += tests/golden/train_test
TESTS += tests/golden/train_test
tests_golden_train_test_SOURCES = tests/golden/train/train_test.c tests/golden/train/case.c tests/golden/train/case.h
tests_golden_train_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_PROGRAMS += tests/golden/train_export
tests_golden_train_export_SOURCES = tests/golden/train/export.c tests/golden/train/case.c tests/golden/train/case.h
tests_golden_train_export_LDADD = $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/train/README.md tests/golden/train/make_train.py tests/golden/train/curve.txt

# Evaluation and generation against transformers.
check_PROGRAMS += tests/golden/eval_test
TESTS += tests/golden/eval_test
tests_golden_eval_test_SOURCES = tests/golden/eval_test.c tests/golden/golden.c tests/golden/golden.h tests/unit/infer_ckpt.c \
  tests/unit/infer_ckpt.h
tests_golden_eval_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/eval/README.md tests/golden/eval/make_eval.py tests/golden/eval/tokenizer.json tests/golden/eval/pages.jsonl \
  tests/golden/eval/choice.jsonl tests/golden/eval/words.jsonl tests/golden/eval/eval.json
