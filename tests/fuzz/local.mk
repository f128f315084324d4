# tests of tests/fuzz: with --enable-fuzz libFuzzer programs, otherwise replays of the corpus and of mutations
LF_FUZZ_TARGETS = tests/fuzz/fuzz_ini tests/fuzz/fuzz_yaml tests/fuzz/fuzz_tokenizer tests/fuzz/fuzz_spm tests/fuzz/fuzz_tokforms tests/fuzz/fuzz_shard tests/fuzz/fuzz_ckpt tests/fuzz/fuzz_megatron \
  tests/fuzz/fuzz_safetensors tests/fuzz/fuzz_torch tests/fuzz/fuzz_pickle tests/fuzz/fuzz_config tests/fuzz/fuzz_jinja tests/fuzz/fuzz_rows \
  tests/fuzz/fuzz_parquet tests/fuzz/fuzz_receipt tests/fuzz/fuzz_media tests/fuzz/fuzz_processor
LF_FUZZ_COMMON = tests/fuzz/fuzz.c tests/fuzz/fuzz.h
if FUZZ
noinst_PROGRAMS += $(LF_FUZZ_TARGETS)
LF_FUZZ_LDFLAGS_USED = $(AM_LDFLAGS) $(LF_FUZZ_LDFLAGS)
else
check_PROGRAMS += $(LF_FUZZ_TARGETS)
TESTS += $(LF_FUZZ_TARGETS)
LF_FUZZ_COMMON += tests/fuzz/replay.c
LF_FUZZ_LDFLAGS_USED = $(AM_LDFLAGS)
endif
tests_fuzz_fuzz_ini_SOURCES = tests/fuzz/fuzz_ini.c $(LF_FUZZ_COMMON)
tests_fuzz_fuzz_ini_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_fuzz_fuzz_ini_LDFLAGS = $(LF_FUZZ_LDFLAGS_USED)
tests_fuzz_fuzz_yaml_SOURCES = tests/fuzz/fuzz_yaml.c $(LF_FUZZ_COMMON)
tests_fuzz_fuzz_yaml_LDADD = tests/tap/libtap.a $(LF_BASE_LIBS)
tests_fuzz_fuzz_yaml_LDFLAGS = $(LF_FUZZ_LDFLAGS_USED)
LF_FUZZ_TOK = tests/fuzz/tok_use.h tests/fuzz/tok_use.c
tests_fuzz_fuzz_spm_SOURCES = tests/fuzz/fuzz_spm.c $(LF_FUZZ_TOK) $(LF_FUZZ_COMMON)
tests_fuzz_fuzz_spm_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_fuzz_fuzz_spm_LDFLAGS = $(LF_FUZZ_LDFLAGS_USED)
tests_fuzz_fuzz_tokforms_SOURCES = tests/fuzz/fuzz_tokforms.c $(LF_FUZZ_TOK) $(LF_FUZZ_COMMON)
tests_fuzz_fuzz_tokforms_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_fuzz_fuzz_tokforms_LDFLAGS = $(LF_FUZZ_LDFLAGS_USED)
tests_fuzz_fuzz_tokenizer_SOURCES = tests/fuzz/fuzz_tokenizer.c $(LF_FUZZ_TOK) $(LF_FUZZ_COMMON)
tests_fuzz_fuzz_tokenizer_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_fuzz_fuzz_tokenizer_LDFLAGS = $(LF_FUZZ_LDFLAGS_USED)
tests_fuzz_fuzz_shard_SOURCES = tests/fuzz/fuzz_shard.c $(LF_FUZZ_COMMON)
tests_fuzz_fuzz_shard_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_fuzz_fuzz_shard_LDFLAGS = $(LF_FUZZ_LDFLAGS_USED)
tests_fuzz_fuzz_receipt_SOURCES = tests/fuzz/fuzz_receipt.c $(LF_FUZZ_COMMON)
tests_fuzz_fuzz_receipt_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_fuzz_fuzz_receipt_LDFLAGS = $(LF_FUZZ_LDFLAGS_USED)
tests_fuzz_fuzz_ckpt_SOURCES = tests/fuzz/fuzz_ckpt.c $(LF_FUZZ_COMMON)
tests_fuzz_fuzz_ckpt_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_fuzz_fuzz_ckpt_LDFLAGS = $(LF_FUZZ_LDFLAGS_USED)
tests_fuzz_fuzz_jinja_SOURCES = tests/fuzz/fuzz_jinja.c $(LF_FUZZ_COMMON)
tests_fuzz_fuzz_jinja_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_fuzz_fuzz_jinja_LDFLAGS = $(LF_FUZZ_LDFLAGS_USED)
tests_fuzz_fuzz_rows_SOURCES = tests/fuzz/fuzz_rows.c $(LF_FUZZ_COMMON)
tests_fuzz_fuzz_rows_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_fuzz_fuzz_rows_LDFLAGS = $(LF_FUZZ_LDFLAGS_USED)
tests_fuzz_fuzz_parquet_SOURCES = tests/fuzz/fuzz_parquet.c $(LF_FUZZ_COMMON)
tests_fuzz_fuzz_parquet_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_fuzz_fuzz_parquet_LDFLAGS = $(LF_FUZZ_LDFLAGS_USED)
tests_fuzz_fuzz_media_SOURCES = tests/fuzz/fuzz_media.c $(LF_FUZZ_COMMON)
tests_fuzz_fuzz_media_LDADD = tests/tap/libtap.a $(LF_MEDIA_LIBS)
tests_fuzz_fuzz_media_LDFLAGS = $(LF_FUZZ_LDFLAGS_USED)
tests_fuzz_fuzz_processor_SOURCES = tests/fuzz/fuzz_processor.c $(LF_FUZZ_COMMON)
tests_fuzz_fuzz_processor_LDADD = tests/tap/libtap.a $(LF_MEDIA_LIBS)
tests_fuzz_fuzz_processor_LDFLAGS = $(LF_FUZZ_LDFLAGS_USED)
tests_fuzz_fuzz_megatron_SOURCES = tests/fuzz/fuzz_megatron.c $(LF_FUZZ_COMMON)
tests_fuzz_fuzz_megatron_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_fuzz_fuzz_megatron_LDFLAGS = $(LF_FUZZ_LDFLAGS_USED)
tests_fuzz_fuzz_safetensors_SOURCES = tests/fuzz/fuzz_safetensors.c tests/fuzz/fuzz_tensors.c tests/fuzz/fuzz_tensors.h $(LF_FUZZ_COMMON)
tests_fuzz_fuzz_safetensors_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_fuzz_fuzz_safetensors_LDFLAGS = $(LF_FUZZ_LDFLAGS_USED)
tests_fuzz_fuzz_torch_SOURCES = tests/fuzz/fuzz_torch.c tests/fuzz/fuzz_tensors.c tests/fuzz/fuzz_tensors.h $(LF_FUZZ_COMMON)
tests_fuzz_fuzz_torch_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_fuzz_fuzz_torch_LDFLAGS = $(LF_FUZZ_LDFLAGS_USED)
tests_fuzz_fuzz_pickle_SOURCES = tests/fuzz/fuzz_pickle.c $(LF_FUZZ_COMMON)
tests_fuzz_fuzz_pickle_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_fuzz_fuzz_pickle_LDFLAGS = $(LF_FUZZ_LDFLAGS_USED)
tests_fuzz_fuzz_config_SOURCES = tests/fuzz/fuzz_config.c $(LF_FUZZ_COMMON)
tests_fuzz_fuzz_config_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_fuzz_fuzz_config_LDFLAGS = $(LF_FUZZ_LDFLAGS_USED)
EXTRA_DIST += tests/fuzz/corpus/config/gpt2.json tests/fuzz/corpus/config/llama3.1.json tests/fuzz/corpus/config/falcon-40b.json \
  tests/fuzz/corpus/config/gemma3.json tests/fuzz/corpus/config/phi3-long.json tests/fuzz/corpus/config/starcoder.json \
  tests/fuzz/corpus/config/llava.json tests/fuzz/corpus/config/llava-onevision.json tests/fuzz/corpus/config/qwen2-vl.json \
  tests/fuzz/corpus/config/qwen2.5-vl.json tests/fuzz/corpus/config/qwen3-vl.json tests/fuzz/corpus/config/internvl.json \
  tests/fuzz/corpus/config/paligemma.json
EXTRA_DIST += tests/fuzz/README.md tests/fuzz/corpus/ini/model.ini tests/fuzz/corpus/ini/crlf.ini tests/fuzz/corpus/ini/odd.ini tests/fuzz/corpus/yaml/dataset.yaml tests/fuzz/corpus/yaml/split.yaml \
  tests/fuzz/corpus/tokenizer/bytelevel.json tests/fuzz/corpus/tokenizer/classes.json tests/fuzz/corpus/tokenizer/split.json tests/fuzz/run.sh \
  tests/fuzz/corpus/parquet tests/fuzz/corpus/make_pickle.py tests/fuzz/corpus/pickle \
  tests/fuzz/corpus/spm/bpe.model tests/fuzz/corpus/spm/unigram.model tests/fuzz/corpus/tokforms/tiktoken \
  tests/fuzz/corpus/tokforms/merges tests/fuzz/corpus/tokforms/bert tests/fuzz/corpus/tokforms/llama \
  tests/fuzz/corpus/tokenizer/llama.json tests/fuzz/corpus/tokenizer/unigram.json tests/fuzz/corpus/tokenizer/bert.json
