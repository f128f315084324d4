# tokenizers, corpora, BPE training (engine/text), their tests and benches
engine_libengine_a_SOURCES += \
  engine/text/tokenizer.h engine/text/tokenizer.c engine/text/tokenizer_priv.h engine/text/tokenizer_load.c \
  engine/text/tokenizer_parts.h engine/text/tokenizer_parts.c engine/text/textnorm.c engine/text/added.c \
  engine/text/bpe.h engine/text/bpe.c engine/text/regex.h engine/text/regex.c engine/text/regex_priv.h \
  engine/text/regex_pattern.c engine/text/uniprop.h engine/text/uniprop.c engine/text/uniprop_data.h \
  engine/text/uniprop_sets.h engine/text/scan.h engine/text/scan.c \
  engine/text/uniclass.h engine/text/uniclass.c engine/text/uniclass_data.h engine/text/unitext.h \
  engine/text/unitext.c engine/text/unitext_data.h engine/text/vtrie.h engine/text/vtrie.c engine/text/charsmap.h \
  engine/text/charsmap.c engine/text/base64.h engine/text/base64.c engine/text/proto.h engine/text/proto.c \
  engine/text/bpe_chars.c engine/text/normalize.c engine/text/pretok.c engine/text/model.c engine/text/decode.h \
  engine/text/decode.c engine/text/tokenizer_decoder.c engine/text/tokenizer_model.c engine/text/tokenizer_files.h \
  engine/text/tokenizer_files.c engine/text/tokenizer_forms.h engine/text/tokenizer_forms.c engine/text/tokenizer_conf.c \
  engine/text/tiktoken.c engine/text/spm.h engine/text/spm.c engine/text/spm_read.h engine/text/spm_read.c
EXTRA_DIST += \
  tests/golden/tokenizer/make_unicode.py tests/golden/tokenizer/make_uniclass2.py tests/golden/tokenizer/make_uniprop.py \
  tests/golden/tokenizer/make_regex.py tests/golden/tokenizer/regex.json tests/golden/tokenizer/make_tiktoken.py \
  tests/golden/tokenizer/tiktoken.json tests/golden/tokenizer/make_tokenizer.py tests/golden/tokenizer/make_forms.py \
  tests/golden/tokenizer/forms.tar.xz tests/golden/tokenizer/README.md tests/golden/tokenizer/gpt2.json \
  tests/golden/tokenizer/llama3.json tests/golden/tokenizer/qwen2.json tests/golden/tokenizer/prefix.json \
  tests/golden/tokenizer/splits.json tests/golden/tokenizer/vectors.json tests/golden/tokenizer/big.json \
  tests/bench/tokenize_peer.py engine/text/README.md
check_PROGRAMS += tests/bench/tokenize_bench
tests_bench_tokenize_bench_SOURCES = tests/bench/tokenize_bench.c
tests_bench_tokenize_bench_LDADD = $(LF_ENGINE_LIBS)
text_tests = tests/unit/text_golden tests/unit/text_scan tests/unit/text_tokenizer tests/unit/text_forms \
  tests/unit/text_files tests/unit/text_regex
check_PROGRAMS += $(text_tests)
TESTS += $(text_tests)
tests_unit_text_golden_SOURCES = tests/unit/text_golden.c tests/unit/text_vectors.h tests/unit/text_vectors.c
tests_unit_text_golden_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_text_forms_SOURCES = tests/unit/text_forms.c tests/unit/text_vectors.h tests/unit/text_vectors.c
tests_unit_text_forms_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_text_files_SOURCES = tests/unit/text_files.c tests/unit/text_vectors.h tests/unit/text_vectors.c
tests_unit_text_files_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_text_regex_SOURCES = tests/unit/text_regex.c tests/unit/text_vectors.h tests/unit/text_vectors.c
tests_unit_text_regex_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_text_scan_SOURCES = tests/unit/text_scan.c tests/unit/text_vectors.h tests/unit/text_vectors.c
tests_unit_text_scan_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_text_tokenizer_SOURCES = tests/unit/text_tokenizer.c
tests_unit_text_tokenizer_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
engine_libengine_a_SOURCES += \
  engine/text/train_bpe.h engine/text/train_priv.h engine/text/train_bpe.c engine/text/train_merge.c engine/text/train_vocab.c \
  engine/text/train_json.c engine/text/wordcount.c \
  engine/text/corpus.h engine/text/corpus.c engine/text/corpus_files.h engine/text/corpus_files.c \
  engine/text/corpus_kind.h engine/text/corpus_kind.c
text_tests2 = tests/unit/text_train tests/unit/text_corpus
check_PROGRAMS += $(text_tests2)
TESTS += $(text_tests2)
tests_unit_text_train_SOURCES = tests/unit/text_train.c
tests_unit_text_train_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_text_corpus_SOURCES = tests/unit/text_corpus.c
tests_unit_text_corpus_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/tokenizer/train.json
CLEANFILES += tests/bench/tokenize_bench
bench: tests/bench/tokenize_bench
# shapes of JSON lines, the dataset doctor
engine_libengine_a_SOURCES += engine/text/shape.h engine/text/shape_priv.h engine/text/shape.c engine/text/shape_read.c \
  engine/text/datadoc.h engine/text/datadoc_priv.h engine/text/datadoc.c engine/text/datadoc_odd.c engine/text/datadoc_dup.c \
  engine/text/datadoc_report.c engine/text/datadoc_enc.c
text_tests3 = tests/unit/text_shape tests/unit/text_datadoc
check_PROGRAMS += $(text_tests3)
TESTS += $(text_tests3)
tests_unit_text_shape_SOURCES = tests/unit/text_shape.c
tests_unit_text_shape_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_text_datadoc_SOURCES = tests/unit/text_datadoc.c
tests_unit_text_datadoc_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
# chat templates
engine_libengine_a_SOURCES += engine/text/chat.h engine/text/chat_priv.h engine/text/chat.c engine/text/chat_file.c \
  engine/text/chat_encode.c engine/text/rowdocs.h engine/text/rowdocs_priv.h engine/text/rowdocs.c \
  engine/text/rowdocs_cut.c
check_PROGRAMS += tests/unit/text_chat
TESTS += tests/unit/text_chat
tests_unit_text_chat_SOURCES = tests/unit/text_chat.c
tests_unit_text_chat_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/chat/make_chat.py tests/golden/chat/make_marks.py tests/golden/chat/marks.json tests/golden/chat/chat.json tests/golden/chat/tokenizer.json
check_PROGRAMS += tests/unit/text_rowdocs
TESTS += tests/unit/text_rowdocs
tests_unit_text_rowdocs_SOURCES = tests/unit/text_rowdocs.c
tests_unit_text_rowdocs_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
