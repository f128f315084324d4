# Model descriptions: installed data, read by name through `preset = NAME`.
modelsdir = $(pkgdatadir)/models
dist_models_DATA = \
  models/gpt2-124m.ini \
  models/gpt2-355m.ini \
  models/gpt2-774m.ini \
  models/gpt2-1558m.ini \
  models/gpt3-6.7b.ini \
  models/gpt3-175b.ini \
  models/llama1-7b.ini \
  models/llama1-13b.ini \
  models/llama1-33b.ini \
  models/llama1-65b.ini \
  models/llama2-7b.ini \
  models/llama2-13b.ini \
  models/llama2-70b.ini \
  models/llama3-8b.ini \
  models/llama3-70b.ini \
  models/llama3.1-8b.ini \
  models/llama3.1-70b.ini \
  models/llama3.1-405b.ini \
  models/llama3.2-1b.ini \
  models/llama3.2-3b.ini \
  models/mistral-7b.ini \
  models/qwen1.5-0.5b.ini \
  models/qwen1.5-1.8b.ini \
  models/qwen1.5-4b.ini \
  models/qwen1.5-7b.ini \
  models/qwen1.5-14b.ini \
  models/qwen1.5-32b.ini \
  models/qwen1.5-72b.ini \
  models/qwen2-0.5b.ini \
  models/qwen2-1.5b.ini \
  models/qwen2-7b.ini \
  models/qwen2-72b.ini \
  models/qwen2.5-0.5b.ini \
  models/qwen2.5-1.5b.ini \
  models/qwen2.5-3b.ini \
  models/qwen2.5-7b.ini \
  models/qwen2.5-14b.ini \
  models/qwen2.5-32b.ini \
  models/qwen2.5-72b.ini \
  models/qwen3-0.6b.ini \
  models/qwen3-1.7b.ini \
  models/qwen3-4b.ini \
  models/qwen3-8b.ini \
  models/qwen3-14b.ini \
  models/qwen3-32b.ini \
  models/tiny-gpt2.ini \
  models/tiny-llama.ini \
  models/tiny-llama-2m.ini \
  models/tiny-qwen3.ini \
  models/quickstart.ini \
  models/llama-58m.ini
EXTRA_DIST += models/README.md
