# sources of engine/convert, and their tests
engine_libengine_a_SOURCES += \
  engine/convert/map.h engine/convert/map.c engine/convert/move.h engine/convert/move.c engine/convert/cast.c \
  engine/convert/resume.c \
  engine/convert/hf.h engine/convert/hf_config.c engine/convert/hf_parts.c \
  engine/convert/families.h engine/convert/families.c engine/convert/families_gpt.c engine/convert/families_llama.c \
  engine/convert/families_neox.c engine/convert/families_opt.c engine/convert/families_falcon.c engine/convert/families_code.c \
  engine/convert/families_phi.c engine/convert/families_gemma.c engine/convert/families_kin.h engine/convert/families_kin.c \
  engine/convert/families_qwen.c engine/convert/families_glm.c engine/convert/families_baichuan.c engine/convert/families_moe.c \
  engine/convert/families_megatron.c \
  engine/convert/convert.h engine/convert/priv.h engine/convert/source.c engine/convert/form.c engine/convert/import.c engine/convert/export.c \
  engine/convert/verify.c engine/convert/inspect.c engine/convert/shards.h engine/convert/shards_in.c engine/convert/shards_out.c
EXTRA_DIST += engine/convert/README.md
