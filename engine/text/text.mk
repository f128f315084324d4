# tokenizers, corpora, BPE training (engine/text), their tests and benches
engine_libengine_a_SOURCES += \
  engine/text/token/tokenizer.h engine/text/token/tokenizer.c engine/text/token/tokenizer_priv.h engine/text/token/tokenizer_load.c \
  engine/text/token/tokenizer_parts.h engine/text/token/tokenizer_parts.c engine/text/token/textnorm.c engine/text/token/added.c \
  engine/text/token/bpe.h engine/text/token/bpe.c engine/text/token/regex.h engine/text/token/regex.c engine/text/token/regex_priv.h \
  engine/text/token/regex_pattern.c engine/text/token/uniprop.h engine/text/token/uniprop.c engine/text/token/uniprop_data.h \
  engine/text/token/uniprop_sets.h engine/text/token/scan.h engine/text/token/scan.c \
  engine/text/token/uniclass.h engine/text/token/uniclass.c engine/text/token/uniclass_data.h engine/text/token/unitext.h \
  engine/text/token/unitext.c engine/text/token/unitext_data.h engine/text/token/vtrie.h engine/text/token/vtrie.c engine/text/token/charsmap.h \
  engine/text/token/charsmap.c engine/text/token/proto.h engine/text/token/proto.c \
  engine/text/token/bpe_chars.c engine/text/token/normalize.c engine/text/token/pretok.c engine/text/token/model.c engine/text/token/decode.h \
  engine/text/token/decode.c engine/text/token/tokenizer_decoder.c engine/text/token/tokenizer_model.c engine/text/token/tokenizer_files.h \
  engine/text/token/tokenizer_files.c engine/text/token/tokenizer_forms.h engine/text/token/tokenizer_forms.c engine/text/token/tokenizer_conf.c \
  engine/text/token/tiktoken.c engine/text/token/word_marks.c engine/text/token/spm.h engine/text/token/spm.c engine/text/token/spm_read.h engine/text/token/spm_read.c
EXTRA_DIST += \
  tests/golden/tokenizer/make_unicode.py tests/golden/tokenizer/make_uniclass2.py tests/golden/tokenizer/make_uniprop.py \
  tests/golden/tokenizer/make_regex.py tests/golden/tokenizer/regex.json tests/golden/tokenizer/make_tiktoken.py \
  tests/golden/tokenizer/tiktoken.json tests/golden/tokenizer/make_tokenizer.py tests/golden/tokenizer/make_forms.py \
  tests/golden/tokenizer/forms.tar.xz tests/golden/tokenizer/README.md tests/golden/tokenizer/gpt2.json \
  tests/golden/tokenizer/llama3.json tests/golden/tokenizer/qwen2.json tests/golden/tokenizer/prefix.json \
  tests/golden/tokenizer/splits.json tests/golden/tokenizer/vectors.json tests/golden/tokenizer/big.json \
  tests/bench/tokenize_peer.py engine/text/README.md engine/text/token/README.md \
  engine/text/vocab/README.md engine/text/chat/README.md engine/text/corpus/README.md
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
  engine/text/vocab/train_bpe.h engine/text/vocab/train_priv.h engine/text/vocab/train_bpe.c engine/text/vocab/train_merge.c engine/text/vocab/train_vocab.c \
  engine/text/vocab/train_json.c engine/text/vocab/wordcount.c \
  engine/text/corpus/corpus.h engine/text/corpus/corpus.c engine/text/corpus/corpus_files.h engine/text/corpus/corpus_files.c \
  engine/text/corpus/corpus_kind.h engine/text/corpus/corpus_kind.c \
  engine/text/corpus/corpus_samples.h engine/text/corpus/corpus_samples.c \
  engine/text/corpus/energon.h engine/text/corpus/energon_priv.h engine/text/corpus/energon.c \
  engine/text/corpus/energon_braces.c engine/text/corpus/energon_row.c \
  engine/text/corpus/glue.h engine/text/corpus/glue.c engine/text/corpus/corpus_array.h engine/text/corpus/corpus_array.c \
  engine/text/corpus/rowmedia.h engine/text/corpus/rowmedia.c
text_tests2 = tests/unit/text_train tests/unit/text_corpus tests/unit/text_energon tests/unit/text_glue
check_PROGRAMS += $(text_tests2)
TESTS += $(text_tests2)
tests_unit_text_train_SOURCES = tests/unit/text_train.c
tests_unit_text_train_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_text_glue_SOURCES = tests/unit/text_glue.c
tests_unit_text_glue_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_text_energon_SOURCES = tests/unit/text_energon.c
tests_unit_text_energon_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_text_corpus_SOURCES = tests/unit/text_corpus.c
tests_unit_text_corpus_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/tokenizer/train.json
CLEANFILES += tests/bench/tokenize_bench
bench: tests/bench/tokenize_bench
# shapes of JSON lines, the dataset doctor
engine_libengine_a_SOURCES += engine/text/chat/shape.h engine/text/chat/shape_priv.h engine/text/chat/shape.c engine/text/chat/shape_read.c \
  engine/text/corpus/datadoc.h engine/text/corpus/datadoc_priv.h engine/text/corpus/datadoc.c engine/text/corpus/datadoc_odd.c engine/text/corpus/datadoc_dup.c \
  engine/text/corpus/datadoc_report.c engine/text/corpus/datadoc_enc.c engine/text/corpus/lengths.h engine/text/corpus/lengths.c \
  engine/text/corpus/datadoc_turns.h engine/text/corpus/datadoc_turns.c
text_tests3 = tests/unit/text_shape tests/unit/text_datadoc
check_PROGRAMS += $(text_tests3)
TESTS += $(text_tests3)
tests_unit_text_shape_SOURCES = tests/unit/text_shape.c
tests_unit_text_shape_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_text_datadoc_SOURCES = tests/unit/text_datadoc.c
tests_unit_text_datadoc_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
# chat templates
engine_libengine_a_SOURCES += engine/text/chat/chat.h engine/text/chat/chat_priv.h engine/text/chat/chat.c engine/text/chat/chat_file.c \
  engine/text/chat/chat_encode.c engine/text/corpus/rowdocs.h engine/text/corpus/rowdocs_priv.h engine/text/corpus/rowdocs.c \
  engine/text/corpus/rowdocs_cut.c
check_PROGRAMS += tests/unit/text_chat
TESTS += tests/unit/text_chat
tests_unit_text_chat_SOURCES = tests/unit/text_chat.c
tests_unit_text_chat_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/chat/make_chat.py tests/golden/chat/make_marks.py tests/golden/chat/marks.json tests/golden/chat/chat.json tests/golden/chat/tokenizer.json
check_PROGRAMS += tests/unit/text_rowdocs
TESTS += tests/unit/text_rowdocs
tests_unit_text_rowdocs_SOURCES = tests/unit/text_rowdocs.c
tests_unit_text_rowdocs_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
