# files of examples, installed below share/loong-flow beside the models
quickstartdir = $(pkgdatadir)/examples/quickstart
dist_quickstart_DATA = examples/quickstart/pipeline.ini
dist_quickstart_SCRIPTS = examples/quickstart/run.sh
jsonldir = $(pkgdatadir)/examples/pretrain-from-jsonl
dist_jsonl_DATA = examples/pretrain-from-jsonl/pipeline.ini
evaluatedir = $(pkgdatadir)/examples/evaluate
dist_evaluate_DATA = examples/evaluate/pipeline.ini examples/evaluate/tides.txt examples/evaluate/choices.jsonl \
  examples/evaluate/last.jsonl examples/evaluate/prompts.jsonl
convertdir = $(pkgdatadir)/examples/convert
dist_convert_DATA = examples/convert/pipeline.ini examples/convert/README.md
EXTRA_DIST += examples/README.md
continuedir = $(pkgdatadir)/examples/continue-pretrain
dist_continue_DATA = examples/continue-pretrain/pipeline.ini examples/continue-pretrain/old.ini \
  examples/continue-pretrain/new.ini
dist_continue_SCRIPTS = examples/continue-pretrain/run.sh
rlhfdir = $(pkgdatadir)/examples/rlhf
dist_rlhf_DATA = examples/rlhf/pipeline.ini
dist_rlhf_SCRIPTS = examples/rlhf/make_data.sh examples/rlhf/run.sh
grpodir = $(pkgdatadir)/examples/grpo
dist_grpo_DATA = examples/grpo/pipeline.ini
dist_grpo_SCRIPTS = examples/grpo/run.sh
paralleldir = $(pkgdatadir)/examples/parallel
dist_parallel_DATA = examples/parallel/pipeline.ini
qwenvldir = $(pkgdatadir)/examples/qwen2.5-vl-lora
dist_qwenvl_DATA = examples/qwen2.5-vl-lora/pipeline.ini
llavadir = $(pkgdatadir)/examples/llava
dist_llava_DATA = examples/llava/pipeline.ini examples/llava/chat.jinja
llavaprocessordir = $(llavadir)/processor
dist_llavaprocessor_DATA = examples/llava/processor/preprocessor_config.json \
  examples/llava/processor/processor_config.json
scenesdir = $(pkgdatadir)/examples/scenes
dist_scenes_DATA = examples/scenes/pipeline.ini examples/scenes/chat.jinja examples/scenes/draw.c examples/scenes/README.md
dist_scenes_SCRIPTS = examples/scenes/run.sh
scenesprocessordir = $(scenesdir)/processor
dist_scenesprocessor_DATA = examples/scenes/processor/preprocessor_config.json \
  examples/scenes/processor/processor_config.json examples/scenes/processor/config.json
classesdir = $(pkgdatadir)/examples/classes
dist_classes_DATA = examples/classes/pipeline.ini examples/classes/swin.ini \
  examples/classes/mae.ini examples/classes/README.md
dist_classes_SCRIPTS = examples/classes/run.sh
classesprocessordir = $(classesdir)/processor
dist_classesprocessor_DATA = examples/classes/processor/preprocessor_config.json \
  examples/classes/processor/processor_config.json examples/classes/processor/config.json
classesprocessor4dir = $(classesdir)/processor4
dist_classesprocessor4_DATA = examples/classes/processor4/preprocessor_config.json \
  examples/classes/processor4/processor_config.json examples/classes/processor4/config.json
captionsdir = $(pkgdatadir)/examples/captions
dist_captions_DATA = examples/captions/pipeline.ini examples/captions/README.md
dist_captions_SCRIPTS = examples/captions/run.sh
captionsprocessordir = $(captionsdir)/processor
dist_captionsprocessor_DATA = examples/captions/processor/preprocessor_config.json examples/captions/processor/config.json
encoderdir = $(pkgdatadir)/examples/encoder
dist_encoder_DATA = examples/encoder/pipeline.ini examples/encoder/README.md
dist_encoder_SCRIPTS = examples/encoder/make_data.sh examples/encoder/run.sh
spansdir = $(pkgdatadir)/examples/spans
dist_spans_DATA = examples/spans/pipeline.ini examples/spans/README.md
dist_spans_SCRIPTS = examples/spans/make_data.sh examples/spans/run.sh
examplesdir = $(pkgdatadir)/examples
dist_examples_SCRIPTS = examples/seeds.sh
dist_examples_DATA = examples/common.sh
latertokensdir = $(pkgdatadir)/examples/later-tokens
dist_latertokens_DATA = examples/later-tokens/pipeline.ini
dist_latertokens_SCRIPTS = examples/later-tokens/run.sh
