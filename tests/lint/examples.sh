#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every pipeline under examples/ is valid and can be planned; the quickstart's runner reads its arguments.
. "${LF_SRCDIR:-.}/tests/lint/lib.sh"
LF_MODELS_DIR=$LF_SRCDIR/models LF_SITE_CONFIG= LF_USER_CONFIG=
export LF_MODELS_DIR LF_SITE_CONFIG LF_USER_CONFIG
lf=$LF_BUILDDIR/loong-flow

for p in "$LF_SRCDIR"/examples/*/pipeline.ini; do
    name=$(basename "$(dirname "$p")")
    cp -R "$(dirname "$p")" "$tmp/$name"
    chmod -R u+w "$tmp/$name"
    cd "$tmp/$name" || exit 1
    # What the comments of each pipeline ask the user to put beside it.
    case $name in
    quickstart) echo "some text" >text.txt && sed "s|@TEXT@|$tmp/$name/text.txt|" "$p" >pipeline.ini ;;
    pretrain-from-jsonl)
        mkdir books notes
        echo '{"text": "a book"}' | tee books/1.jsonl >notes/1.jsonl
        ;;
    continue-pretrain) echo "some text" >text.txt && sed "s|@OLD@|$tmp/$name/text.txt|; s|@NEW@|$tmp/$name/text.txt|" "$p" >pipeline.ini ;;
    rlhf) printf 'light\n   n 1: the visual effect of rays upon the eyes of people\n' >words && sh make_data.sh words data >out 2>&1 && cp data/pairs.jsonl data/held.jsonl &&
        echo '{"prompt":"define light:"}' | tee data/prompts.jsonl >data/ask.jsonl ;;
    encoder)
        mkdir data && echo '{"prompt":"a[SEP]a[SEP]"}' >data/twice.jsonl && echo '{"text":"a[SEP]"}' >data/graded.jsonl
        echo "some text" >text.txt && sed "s|@TEXT@|$tmp/$name/text.txt|" "$p" >pipeline.ini
        ;;
    spans)
        mkdir data && echo '{"prompt_token_ids":[30,16,0]}' >data/sources.jsonl
        echo "some text" >text.txt && sed "s|@TEXT@|$tmp/$name/text.txt|" "$p" >pipeline.ini
        ;;
    parallel) echo "some text" >corpus.txt ;;
    later-tokens) echo "some text" >text.txt && echo '{"prompt":"some"}' >prompts.jsonl ;;
    evaluate) mkdir checkpoint tokenizer ;;
    grpo)
        echo "1+1=2" >sums.txt
        echo '{"prompt":"1+1=","completion":"2"}' >rows.jsonl
        echo '{"prompt":"1+1=","answer":"2"}' >prompts.jsonl
        ;;
    convert)
        mkdir texts model
        echo "a text" >texts/a.txt
        cp "$LF_SRCDIR"/tests/golden/families/llama/*.json "$LF_SRCDIR"/tests/golden/families/llama/model.safetensors model/
        ;;
    scenes)
        mkdir pictures && cp "$LF_SRCDIR/tests/golden/media/images/rgb8.png" pictures/
        echo "What is there?" >text.txt
        echo '{"images":["rgb8.png"],"messages":[{"role":"user","content":"<image>?"},{"role":"assistant","content":"A"}]}' | tee captions.jsonl things.jsonl questions.jsonl >blind.jsonl
        echo '{"messages":[{"role":"user","content":"<image>?"}],"images":["rgb8.png"],"target":"A"}' | tee held.jsonl shuffled.jsonl held-blind.jsonl >show.jsonl
        ;;
    captions)
        mkdir pictures && cp "$LF_SRCDIR/tests/golden/media/images/rgb8.png" pictures/
        echo '{"image":"rgb8.png","text":"a red circle"}' >pairs.jsonl
        echo '{"images":["rgb8.png"],"prompt":"<image>","label":0}' >held.jsonl
        printf 'red circle\nblue K\n' >names.txt
        ;;
    classes)
        mkdir pictures && cp "$LF_SRCDIR/tests/golden/media/images/rgb8.png" pictures/
        echo '{"images":["rgb8.png"],"prompt":"<IMG_CONTEXT>","label":0}' | tee few.jsonl all.jsonl >held.jsonl
        ;;
    qwen2.5-vl-lora | llava)
        golden=$LF_SRCDIR/tests/golden
        mkdir pictures && cp "$golden/media/images/rgb8.png" pictures/
        echo '{"images":["rgb8.png"],"messages":[{"role":"user","content":"<image>?"},{"role":"assistant","content":"A"}]}' | tee rows.jsonl captions.json >chats.json
        echo '{"images":["rgb8.png"],"messages":[{"role":"user","content":"<image>?"}]}' >prompts.jsonl
        cp -R "$golden/vlm/run/qwen2.5-vl" model && cp -R "$golden/vlm/run/llava" encoder && cp -R "$golden/families/qwen2" decoder
        ;;
    esac
    { "$lf" validate && { [ "$name" != classes ] || { "$lf" validate swin.ini && "$lf" validate mae.ini; }; }; } >out 2>&1
    ok $? "validate: $name" out
    [ "$name" = evaluate ] || { # its plan reads the checkpoint
        # A model of 8 billion parameters has checkpoints that fit on few disks.
        { "$lf" plan >out 2>&1 || grep -q '^refused: the outputs do not fit on the disk' out; } && ! grep -q "cost unknown" out
        ok $? "plan: $name" out
    }
done

run="sh $LF_SRCDIR/examples/quickstart/run.sh"
cd "$tmp" || exit 1
sh "$LF_SRCDIR/examples/seeds.sh" 3 quickstart "$LF_BUILDDIR" >out 2>&1
[ $? -eq 2 ] && grep -q 'usage: seeds.sh N EXAMPLE' out
ok $? "seeds.sh takes the examples that have seeds" out
$run >out 2>&1
[ $? -eq 2 ] && grep -q 'usage: run.sh BUILD' out
ok $? "run.sh without arguments prints its usage and exits 2" out
$run "$LF_BUILDDIR" --txet x >out 2>&1
[ $? -eq 2 ] && grep -q 'unknown option --txet' out
ok $? "run.sh refuses an unknown option" out
$run "$LF_BUILDDIR" --text "$tmp/none" --dir d >out 2>&1
[ $? -eq 1 ] && grep -q 'does not exist' out && [ ! -e d ]
ok $? "run.sh says that a text does not exist and makes nothing" out
$run "$tmp" >out 2>&1
[ $? -eq 1 ] && grep -q 'build first' out
ok $? "run.sh says that BUILD holds no loong-flow" out
sh "$LF_SRCDIR/examples/rlhf/make_data.sh" "$tmp/none" d >out 2>&1
[ $? -eq 1 ] && [ "$(cat out)" = "make_data.sh: the dictionary $tmp/none cannot be read" ] && [ ! -e d ]
ok $? "make_data.sh says that a dictionary does not exist and makes nothing" out
sh -c ". '$LF_SRCDIR/examples/common.sh'; forecast 1" >out
grep -q '^quickstart: [1-9][0-9]* cores* here; the build takes [1-9][0-9]* to [1-9][0-9]* minutes .*, tokenizing, training and writing [1-9]' out
ok $? "the quickstart says how long it takes here" out
sh -c ". '$LF_SRCDIR/examples/common.sh'; forecast 0" >out
grep -q 'here; tokenizing, training and writing [1-9][0-9]* to' out
ok $? "what is built is not in it" out
printf '0m0.010s 0m0.020s\n1m2.500s 0m3.100s\n' >out
[ "$(sh -c ". '$LF_SRCDIR/examples/common.sh'; cpu_of out; minutes 185")" = "66
3m05s" ]
ok $? "CPU seconds out of what the shell tells" out
finish 40
