# the chat template language
engine_libengine_a_SOURCES += \
  engine/text/jinja/jinja.h engine/text/jinja/priv.h engine/text/jinja/lex.c engine/text/jinja/parse_expr.c \
  engine/text/jinja/parse_stmt.c engine/text/jinja/value.c engine/text/jinja/chars.c engine/text/jinja/repr.c \
  engine/text/jinja/ops.c engine/text/jinja/methods.c engine/text/jinja/filters.c engine/text/jinja/tests.c \
  engine/text/jinja/eval.c
EXTRA_DIST += engine/text/jinja/README.md
EXTRA_DIST += tests/golden/jinja/make_jinja.py tests/golden/jinja/jinja.json tests/golden/jinja/templates/alpaca.jinja \
  tests/golden/jinja/templates/chatml.jinja tests/golden/jinja/templates/deepseek.jinja tests/golden/jinja/templates/gemma.jinja \
  tests/golden/jinja/templates/harmony.jinja tests/golden/jinja/templates/llama3.jinja tests/golden/jinja/templates/mistral.jinja \
  tests/golden/jinja/templates/phi3.jinja tests/golden/jinja/templates/thinking.jinja
check_PROGRAMS += tests/unit/text_jinja
TESTS += tests/unit/text_jinja
tests_unit_text_jinja_SOURCES = tests/unit/text_jinja.c
tests_unit_text_jinja_LDADD = tests/tap/libtap.a $(LF_ENGINE_LIBS)
