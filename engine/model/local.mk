# sources of engine/model, and their tests
engine_libengine_a_SOURCES += \
  engine/model/config.h engine/model/config_priv.h engine/model/config.c engine/model/config_ini.c \
  engine/model/config_check.c engine/model/config_need.c engine/model/layers.c \
  engine/model/families.c engine/model/shape.c engine/model/flops.h engine/model/flops.c \
  engine/model/decoder.h engine/model/decoder_priv.h engine/model/decoder.c \
  engine/model/decoder_block.c engine/model/mixer.c engine/model/mla.c engine/model/moe.c engine/model/per_layer.c engine/model/altup.c engine/model/mtp.c engine/model/nsp.c engine/model/electra.h engine/model/electra.c engine/model/chunk.c engine/model/seq2seq.c engine/model/composed.h engine/model/composed.c engine/model/dual.h engine/model/dual.c \
  engine/model/sight.h engine/model/sight_priv.h engine/model/sight.c engine/model/sight_rows.c engine/model/sight_place.c engine/model/sight_media.c engine/model/prefix.c engine/model/labels.c engine/model/label_names.h engine/model/label_names.c engine/model/params.c engine/model/divide.c engine/model/fp8.c engine/model/vision.h engine/model/vision.c engine/model/vision_priv.h engine/model/vision_stages.c engine/model/vision_check.c engine/model/vision_tables.c engine/model/mae.h engine/model/mae.c engine/model/mae_sight.c engine/model/classes.h engine/model/classes.c engine/model/moco.h engine/model/moco.c \
  engine/model/weights.h engine/model/weights.c engine/model/scales.h engine/model/scales.c engine/model/same_tokenizer.h engine/model/same_tokenizer.c engine/model/adapter.h engine/model/adapter.c \
  engine/model/merge.h engine/model/merge.c
EXTRA_DIST += engine/model/README.md

check_PROGRAMS += tests/unit/model_config_test tests/unit/model_decoder_test tests/unit/model_moe_test tests/unit/model_heads_test
TESTS += tests/unit/model_config_test tests/unit/model_decoder_test tests/unit/model_moe_test tests/unit/model_heads_test
tests_unit_model_heads_test_SOURCES = tests/unit/model_heads_test.c
tests_unit_model_heads_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
check_PROGRAMS += tests/unit/model_adapter_test
TESTS += tests/unit/model_adapter_test
tests_unit_model_adapter_test_SOURCES = tests/unit/model_adapter_test.c
tests_unit_model_adapter_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_model_moe_test_SOURCES = tests/unit/model_moe_test.c
tests_unit_model_moe_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/golden/moe/make_aux.py tests/golden/moe/aux.safetensors tests/golden/moe/make_capacity.py tests/golden/moe/capacity.safetensors
tests_unit_model_config_test_SOURCES = tests/unit/model_config_test.c
tests_unit_model_config_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_model_decoder_test_SOURCES = tests/unit/model_decoder_test.c
tests_unit_model_decoder_test_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
# checkpoints from layout to layout
check_PROGRAMS += tests/unit/model_reshard
TESTS += tests/unit/model_reshard
tests_unit_model_reshard_SOURCES = tests/unit/model_reshard.c tests/unit/graph_util.c tests/unit/graph_util.h
tests_unit_model_reshard_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
# rows of a growing vocabulary
engine_libengine_a_SOURCES += engine/model/grow_rows.h engine/model/grow_rows.c
check_PROGRAMS += tests/unit/model_grow_rows
TESTS += tests/unit/model_grow_rows
tests_unit_model_grow_rows_SOURCES = tests/unit/model_grow_rows.c
tests_unit_model_grow_rows_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
check_PROGRAMS += tests/unit/model_flops
TESTS += tests/unit/model_flops
tests_unit_model_flops_SOURCES = tests/unit/model_flops.c
tests_unit_model_flops_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
# models cut into chunks
chunk_rig = tests/unit/chunk_rig.c tests/unit/chunk_run.c tests/unit/chunk_models.c tests/unit/chunk_rig.h
check_PROGRAMS += tests/unit/graph_chunks tests/unit/graph_segments
TESTS += tests/unit/graph_chunks tests/unit/graph_segments
tests_unit_graph_chunks_SOURCES = tests/unit/graph_chunks.c $(chunk_rig)
tests_unit_graph_chunks_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_graph_segments_SOURCES = tests/unit/graph_segments.c $(chunk_rig)
tests_unit_graph_segments_LDADD = tests/tap/libtap.a tests/cuda/libcuemu.a $(LF_ENGINE_LIBS)
# what pictures put into inputs
check_PROGRAMS += tests/unit/model_sight
TESTS += tests/unit/model_sight
tests_unit_model_sight_SOURCES = tests/unit/model_sight.c
tests_unit_model_sight_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
