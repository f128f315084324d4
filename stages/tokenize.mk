# lf-tokenize: option table, main, tests
stages_libopts_a_SOURCES += stages/opts.h stages/all_opts.c stages/train_carry.c stages/tokenize_opts.c
stages_libstages_a_SOURCES += stages/stage.h stages/stage.c stages/made_by.h stages/made_by.c
pkglibexec_PROGRAMS += stages/lf-tokenize
stages_lf_tokenize_SOURCES = stages/tokenize.c stages/tokenize_priv.h stages/tokenize_pipe.c stages/tokenize_vocab.c \
  stages/tokenize_media.h stages/tokenize_media.c stages/tokenize_media_doctor.c stages/tokenize_doctor_page.c \
  stages/tokenize_shards.c stages/tokenize_finish.c stages/tokenize_ranks.c stages/tokenize_rows.c \
  stages/tokenize_doctor.c stages/tokenize_show.h stages/tokenize_show.c stages/tokenize_show_text.c
stages_lf_tokenize_LDADD = $(LF_STAGE_LIBS)
check_PROGRAMS += tests/stage/tokenize_tool
tests_stage_tokenize_tool_SOURCES = tests/stage/tokenize_tool.c
tests_stage_tokenize_tool_LDADD = $(LF_ENGINE_LIBS)
check_PROGRAMS += tests/stage/shards_tool
tests_stage_shards_tool_SOURCES = tests/stage/shards_tool.c
tests_stage_shards_tool_LDADD = $(LF_ENGINE_LIBS)
EXTRA_DIST += tests/stage/pictures.sh tests/stage/energon.sh
TESTS += tests/stage/pictures.sh tests/stage/energon.sh
EXTRA_DIST += tests/stage/tokenize.sh tests/stage/shapes.sh tests/stage/chat.sh tests/stage/parquet.sh
TESTS += tests/stage/tokenize.sh tests/stage/shapes.sh tests/stage/chat.sh tests/stage/parquet.sh
LF_STAGE_MANS += stages/lf-tokenize.1
EXTRA_DIST += stages/README.md
check_PROGRAMS += tests/unit/stage_tokenize_ranks
TESTS += tests/unit/stage_tokenize_ranks
tests_unit_stage_tokenize_ranks_SOURCES = tests/unit/stage_tokenize_ranks.c stages/tokenize_ranks.c
tests_unit_stage_tokenize_ranks_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
tests_unit_stage_tokenize_ranks_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=lf_comm_recv -Wl,--wrap=lf_comm_send
