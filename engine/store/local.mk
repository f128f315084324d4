# sources of engine/store, and their tests
engine_libengine_a_SOURCES += \
  engine/store/h5.h engine/store/h5_priv.h engine/store/h5.c engine/store/h5_read.c \
  engine/store/shard.h engine/store/shard_priv.h engine/store/shard.c engine/store/shard_parts.c engine/store/shard_rows.c engine/store/shard_write.c \
  engine/store/shard_media.c engine/store/shard_media_write.c \
  engine/store/features.h engine/store/features.c \
  engine/store/shardset.c engine/store/megatron_data.h engine/store/megatron_priv.h engine/store/megatron_data.c \
  engine/store/megatron_write.c \
  engine/store/ckpt.h engine/store/ckpt_priv.h engine/store/ckpt_meta.c engine/store/ckpt_json.c engine/store/ckpt_grid.c \
  engine/store/ckpt_receipt.c engine/store/ckpt_publish.c engine/store/ckpt_plan.c engine/store/ckpt_write_priv.h \
  engine/store/ckpt_write.c engine/store/ckpt_resume.c engine/store/partial.h engine/store/partial.c \
  engine/store/ckpt_read.c engine/store/ckpt_open.c engine/store/ckpt_dir.c engine/store/ckpt_index.c \
  engine/store/tensors.h engine/store/tensors_priv.h engine/store/tensors.c engine/store/tensors_file.c engine/store/tensors_read.c engine/store/f8_blocks.h engine/store/f8_blocks.c engine/store/tensors_scaled.c engine/store/tensors_mxfp4.c \
  engine/store/tensors_json.c engine/store/safetensors.h engine/store/safetensors_priv.h engine/store/tensors_open.c \
  engine/store/safetensors_read.c engine/store/safetensors_text.c \
  engine/store/safetensors_write.c engine/store/safetensors_resume.c engine/store/sink.h engine/store/sink.c \
  engine/store/torch_pickle.h engine/store/torch_pickle_priv.h engine/store/torch_pickle.c engine/store/torch_pickle_run.c \
  engine/store/torch_pickle_ops.c \
  engine/store/torch_pickle_make.c engine/store/torch_file.h engine/store/torch_file_priv.h engine/store/torch_file.c \
  engine/store/torch_forms.c engine/store/torch_zip.c \
  engine/store/foreign.h engine/store/foreign.c engine/store/megatron_ckpt.h engine/store/megatron_ckpt_priv.h engine/store/megatron_ckpt.c engine/store/megatron_ckpt_kinds.c \
  engine/store/megatron_ckpt_args.c
EXTRA_DIST += engine/store/README.md tests/golden/store/README.md tests/golden/store/make_hostile.py \
  tests/golden/store/plain.h5 tests/golden/store/softlink.h5 tests/golden/store/externallink.h5 \
  tests/golden/store/virtual.h5 tests/golden/store/externalstorage.h5 tests/golden/store/gzip.h5 \
  tests/golden/store/bigendian.h5 tests/golden/store/signed.h5 tests/golden/store/matrix.h5 \
  tests/golden/store/unwritten.h5 tests/golden/store/manychunks.h5 tests/golden/store/holes.h5 \
  tests/golden/store/group.h5 tests/golden/store/missing.h5 tests/golden/store/ckpt-1

store_tests = tests/unit/store_artifact tests/unit/store_shard tests/unit/store_ckpt tests/unit/store_ckpt_parts tests/unit/store_safetensors \
  tests/unit/store_safetensors_write tests/unit/store_torch tests/unit/store_megatron_ckpt
check_PROGRAMS += $(store_tests)
TESTS += $(store_tests)
tests_unit_store_safetensors_SOURCES = tests/unit/store_safetensors.c
tests_unit_store_safetensors_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_store_safetensors_write_SOURCES = tests/unit/store_safetensors_write.c
tests_unit_store_safetensors_write_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_store_torch_SOURCES = tests/unit/store_torch.c
tests_unit_store_torch_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_store_megatron_ckpt_SOURCES = tests/unit/store_megatron_ckpt.c
tests_unit_store_megatron_ckpt_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/store/make_safetensors.py tests/golden/store/safetensors tests/golden/store/make_torch.py \
  tests/golden/store/torch tests/golden/store/make_megatron_ckpt.py tests/golden/store/megatron_ckpt
tests_unit_store_artifact_SOURCES = tests/unit/store_artifact.c
tests_unit_store_artifact_LDADD = tests/tap/libtap.a $(LF_BASE_LIBS)
tests_unit_store_shard_SOURCES = tests/unit/store_shard.c
tests_unit_store_shard_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_store_ckpt_SOURCES = tests/unit/store_ckpt.c
tests_unit_store_ckpt_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_store_ckpt_parts_SOURCES = tests/unit/store_ckpt_parts.c
tests_unit_store_ckpt_parts_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)

check_PROGRAMS += tests/unit/store_megatron
TESTS += tests/unit/store_megatron
tests_unit_store_megatron_SOURCES = tests/unit/store_megatron.c
tests_unit_store_megatron_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
check_PROGRAMS += tests/unit/store_parts
TESTS += tests/unit/store_parts
tests_unit_store_parts_SOURCES = tests/unit/store_parts.c
tests_unit_store_parts_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
check_PROGRAMS += tests/unit/store_rows
TESTS += tests/unit/store_rows
tests_unit_store_rows_SOURCES = tests/unit/store_rows.c
tests_unit_store_rows_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
check_PROGRAMS += tests/unit/store_media
TESTS += tests/unit/store_media
tests_unit_store_media_SOURCES = tests/unit/store_media.c
tests_unit_store_media_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
check_PROGRAMS += tests/unit/store_features
TESTS += tests/unit/store_features
tests_unit_store_features_SOURCES = tests/unit/store_features.c
tests_unit_store_features_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
