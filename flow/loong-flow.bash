# SPDX-License-Identifier: Apache-2.0
# Completion of loong-flow for bash; made by `loong-flow completion`.
_loong_flow() {
    local cur=${COMP_WORDS[COMP_CWORD]} cmd=${COMP_WORDS[1]} words=
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="init validate plan explain run submit resume cancel status watch logs show metrics report artifacts lineage diff config gc doctor ledger version help"
    else
        case $cmd in
        init) words=" --json --project --help --output --list" ;;
        validate) words=" --json --project --help --set" ;;
        plan) words=" --json --project --help --set --rate --new" ;;
        explain) words=" --json --project --help --pipeline --set" ;;
        run) words=" --json --project --help --set --accept --jobs --only --until --from --no-check --quiet --new" ;;
        submit) words=" --json --project --help --set --accept --jobs --only --until --from --no-check --quiet --new" ;;
        resume) words=" --json --project --help --set --accept --jobs --only --until --from --no-check --quiet --pipeline --restart" ;;
        cancel) words=" --json --project --help --stage --now --wait" ;;
        status) words=" --json --project --help --columns --all --lines" ;;
        watch) words=" --json --project --help --interval" ;;
        logs) words=" --json --project --help --run --attempt --follow --lines" ;;
        show) words=" --json --project --help" ;;
        metrics) words=" --json --project --help --columns --run --key --format --lines" ;;
        report) words=" --json --project --help --output" ;;
        artifacts) words=" --json --project --help --columns --stage --all" ;;
        lineage) words=" --json --project --help" ;;
        diff) words=" --json --project --help" ;;
        config) words=" --json --project --help --set --origin" ;;
        gc) words=" --json --project --help --keep-runs --keep --yes" ;;
        doctor) words=" --json --project --help --data-dir --scheduler --partition" ;;
        ledger) words=" --json --project --help --columns" ;;
        version) words=" --json --project --help" ;;
        esac
        case $cur in -*) ;; *) words= ;; esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
    [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "$cur"))
}
complete -o filenames -F _loong_flow loong-flow
