# bash completion for commcalc; generated, do not edit
_commcalc_own() {  # presets in the folders of COMMCALC_PRESETS
    local IFS=: root kind file
    for root in ${COMMCALC_PRESETS-}; do
        for kind in "$@"; do
            for file in "$root/$kind/"*.yaml; do
                [[ -e $file ]] || continue
                file=${file##*/}; file=${file%.yaml}
                [[ $file == "$cur"* ]] && COMPREPLY+=("$file")
            done
        done
    done
}
_commcalc() {
    local IFS=$' \t\n' command=${COMP_WORDS[1]}
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
    COMPREPLY=()
    if (( COMP_CWORD == 1 )); then
        COMPREPLY=($(compgen -W "ledger degrees completions presets --help --version" -- "$cur"))
        return
    fi
    case $command in
        presets) (( COMP_CWORD > 2 )) && command="$command ${COMP_WORDS[2]}" ;;
    esac
    case "$command:$prev" in
        "ledger":--model)
            COMPREPLY+=($(compgen -W "bloom-176b command-r-35b command-r-plus-104b falcon-180b falcon-40b falcon-7b gemma-2-27b gemma-2-2b gemma-2-9b gemma-3-12b gemma-3-1b gemma-3-27b gemma-3-4b gemma-4-31b gpt-j-6b gpt-neox-20b gpt2 gpt2-xl gpt3-175b llama-2-13b llama-2-70b llama-2-7b llama-3-70b llama-3-8b llama-3.1-405b llama-3.1-70b llama-3.1-8b llama-3.2-1b megatron-145b megatron-1t mistral-7b-v0.1 mistral-7b-v0.3 mistral-large-2407 mt-nlg-530b opt-175b palm-540b phi-2 phi-3-medium phi-3-mini phi-4 qwen2.5-0.5b qwen2.5-32b qwen2.5-72b qwen2.5-7b qwen3-0.6b qwen3-32b qwen3-8b qwen3.5-27b yi-34b" -- "$cur"))
            _commcalc_own models
            COMPREPLY+=($(compgen -f -- "$cur"))
            return ;;
        "ledger":--hardware)
            COMPREPLY+=($(compgen -W "a100-40g-sxm a100-80g-pcie a100-80g-sxm a800-80g-sxm b200-sxm b300-sxm gb200-nvl72 gb300-nvl72 h100-pcie h100-sxm h20-sxm h200-sxm h800-sxm l40s rtx-4090" -- "$cur"))
            _commcalc_own hardware
            COMPREPLY+=($(compgen -f -- "$cur"))
            return ;;
        "ledger":--tp)
            :
            return ;;
        "ledger":--cp)
            :
            return ;;
        "ledger":--ep)
            :
            return ;;
        "ledger":--pp)
            :
            return ;;
        "ledger":--dp)
            :
            return ;;
        "ledger":--zero)
            COMPREPLY+=($(compgen -W "0 1 2 3" -- "$cur"))
            return ;;
        "ledger":--layout)
            COMPREPLY+=($(compgen -W "none megatron megatron-sp" -- "$cur"))
            return ;;
        "ledger":--framework)
            COMPREPLY+=($(compgen -W "megatron vllm sglang hf torchtitan" -- "$cur"))
            return ;;
        "ledger":--order)
            :
            return ;;
        "ledger":--kv)
            COMPREPLY+=($(compgen -W "refuse replicate gather" -- "$cur"))
            return ;;
        "ledger":--vocab-padding)
            COMPREPLY+=($(compgen -W "megatron vllm sglang none" -- "$cur"))
            return ;;
        "ledger":--seq)
            :
            return ;;
        "ledger":--micro-batch)
            :
            return ;;
        "ledger":--global-batch)
            :
            return ;;
        "ledger":--dtype)
            COMPREPLY+=($(compgen -W "fp64 fp32 bf16 fp16 fp8 int8 fp4 int4" -- "$cur"))
            return ;;
        "ledger":--grad-dtype)
            COMPREPLY+=($(compgen -W "fp64 fp32 bf16 fp16 fp8 int8 fp4 int4" -- "$cur"))
            return ;;
        "ledger":--phase)
            COMPREPLY+=($(compgen -W "train prefill decode" -- "$cur"))
            return ;;
        "ledger":--recompute)
            COMPREPLY+=($(compgen -W "none selective full" -- "$cur"))
            return ;;
        "ledger":--bandwidth)
            :
            return ;;
        "ledger":--latency)
            :
            return ;;
        "ledger":--algorithm)
            COMPREPLY+=($(compgen -W "auto ring in-network hierarchical" -- "$cur"))
            return ;;
        "ledger":--convention)
            COMPREPLY+=($(compgen -W "exact textbook" -- "$cur"))
            return ;;
        "ledger":--set)
            :
            return ;;
        "ledger":--format)
            COMPREPLY+=($(compgen -W "table json jsonl csv markdown" -- "$cur"))
            return ;;
        "degrees":--model)
            COMPREPLY+=($(compgen -W "bloom-176b command-r-35b command-r-plus-104b falcon-180b falcon-40b falcon-7b gemma-2-27b gemma-2-2b gemma-2-9b gemma-3-12b gemma-3-1b gemma-3-27b gemma-3-4b gemma-4-31b gpt-j-6b gpt-neox-20b gpt2 gpt2-xl gpt3-175b llama-2-13b llama-2-70b llama-2-7b llama-3-70b llama-3-8b llama-3.1-405b llama-3.1-70b llama-3.1-8b llama-3.2-1b megatron-145b megatron-1t mistral-7b-v0.1 mistral-7b-v0.3 mistral-large-2407 mt-nlg-530b opt-175b palm-540b phi-2 phi-3-medium phi-3-mini phi-4 qwen2.5-0.5b qwen2.5-32b qwen2.5-72b qwen2.5-7b qwen3-0.6b qwen3-32b qwen3-8b qwen3.5-27b yi-34b" -- "$cur"))
            _commcalc_own models
            COMPREPLY+=($(compgen -f -- "$cur"))
            return ;;
        "degrees":--tp)
            :
            return ;;
        "degrees":--layout)
            COMPREPLY+=($(compgen -W "none megatron megatron-sp" -- "$cur"))
            return ;;
        "degrees":--framework)
            COMPREPLY+=($(compgen -W "megatron vllm sglang hf torchtitan" -- "$cur"))
            return ;;
        "degrees":--kv)
            COMPREPLY+=($(compgen -W "refuse replicate gather" -- "$cur"))
            return ;;
        "degrees":--vocab-padding)
            COMPREPLY+=($(compgen -W "megatron vllm sglang none" -- "$cur"))
            return ;;
        "degrees":--seq)
            :
            return ;;
        "degrees":--phase)
            COMPREPLY+=($(compgen -W "train prefill decode" -- "$cur"))
            return ;;
        "degrees":--set)
            :
            return ;;
        "degrees":--format)
            COMPREPLY+=($(compgen -W "table json jsonl csv markdown" -- "$cur"))
            return ;;
        "presets list":--kind)
            COMPREPLY+=($(compgen -W "model hardware job" -- "$cur"))
            return ;;
        "presets list":--family)
            :
            return ;;
        "presets list":--source)
            COMPREPLY+=($(compgen -W "packaged user" -- "$cur"))
            return ;;
        "presets list":--min-size)
            :
            return ;;
        "presets list":--max-size)
            :
            return ;;
        "presets list":--format)
            COMPREPLY+=($(compgen -W "table json jsonl csv markdown" -- "$cur"))
            return ;;
        "presets show":--kind)
            COMPREPLY+=($(compgen -W "model hardware job" -- "$cur"))
            return ;;
        "presets show":--format)
            COMPREPLY+=($(compgen -W "table json jsonl csv markdown" -- "$cur"))
            return ;;
        "presets validate":--kind)
            COMPREPLY+=($(compgen -W "model hardware job" -- "$cur"))
            return ;;
        "presets validate":--format)
            COMPREPLY+=($(compgen -W "table json jsonl csv markdown" -- "$cur"))
            return ;;
        "presets import":--name)
            :
            return ;;
        "presets import":--output|"presets import":-o)
            COMPREPLY+=($(compgen -f -- "$cur"))
            return ;;
    esac
    case "$command" in
        "ledger")
            if [[ $cur == -* ]]; then
                COMPREPLY=($(compgen -W "--model --hardware --tp --sp --no-sp --cp --ep --pp --dp --zero --layout --framework --order --kv --vocab-padding --seq --micro-batch --global-batch --dtype --grad-dtype --phase --recompute --regather --no-regather --bandwidth --latency --algorithm --convention --set --explain --tensors --ranks --format --json --no-color --help -h" -- "$cur"))
            else
                COMPREPLY+=($(compgen -W "example-h8192 gpt3-175b-a100 llama-3-70b-h100" -- "$cur"))
                _commcalc_own jobs
                COMPREPLY+=($(compgen -f -- "$cur"))
            fi ;;
        "degrees")
            if [[ $cur == -* ]]; then
                COMPREPLY=($(compgen -W "--model --tp --sp --no-sp --layout --framework --kv --vocab-padding --seq --phase --set --format --json --no-color --help -h" -- "$cur"))
            else
                :
            fi ;;
        "completions")
            if [[ $cur == -* ]]; then
                COMPREPLY=($(compgen -W "--help -h" -- "$cur"))
            else
                COMPREPLY+=($(compgen -W "bash zsh fish" -- "$cur"))
            fi ;;
        "presets")
            if [[ $cur == -* ]]; then
                COMPREPLY=($(compgen -W "--help -h" -- "$cur"))
            else
                COMPREPLY+=($(compgen -W "list show validate import" -- "$cur"))
            fi ;;
        "presets list")
            if [[ $cur == -* ]]; then
                COMPREPLY=($(compgen -W "--kind --family --source --min-size --max-size --format --json --no-color --help -h" -- "$cur"))
            else
                COMPREPLY+=($(compgen -W "bloom-176b command-r-35b command-r-plus-104b falcon-180b falcon-40b falcon-7b gemma-2-27b gemma-2-2b gemma-2-9b gemma-3-12b gemma-3-1b gemma-3-27b gemma-3-4b gemma-4-31b gpt-j-6b gpt-neox-20b gpt2 gpt2-xl gpt3-175b llama-2-13b llama-2-70b llama-2-7b llama-3-70b llama-3-8b llama-3.1-405b llama-3.1-70b llama-3.1-8b llama-3.2-1b megatron-145b megatron-1t mistral-7b-v0.1 mistral-7b-v0.3 mistral-large-2407 mt-nlg-530b opt-175b palm-540b phi-2 phi-3-medium phi-3-mini phi-4 qwen2.5-0.5b qwen2.5-32b qwen2.5-72b qwen2.5-7b qwen3-0.6b qwen3-32b qwen3-8b qwen3.5-27b yi-34b a100-40g-sxm a100-80g-pcie a100-80g-sxm a800-80g-sxm b200-sxm b300-sxm gb200-nvl72 gb300-nvl72 h100-pcie h100-sxm h20-sxm h200-sxm h800-sxm l40s rtx-4090 example-h8192 gpt3-175b-a100 llama-3-70b-h100" -- "$cur"))
                _commcalc_own models hardware jobs
            fi ;;
        "presets show")
            if [[ $cur == -* ]]; then
                COMPREPLY=($(compgen -W "--kind --format --json --no-color --help -h" -- "$cur"))
            else
                COMPREPLY+=($(compgen -W "bloom-176b command-r-35b command-r-plus-104b falcon-180b falcon-40b falcon-7b gemma-2-27b gemma-2-2b gemma-2-9b gemma-3-12b gemma-3-1b gemma-3-27b gemma-3-4b gemma-4-31b gpt-j-6b gpt-neox-20b gpt2 gpt2-xl gpt3-175b llama-2-13b llama-2-70b llama-2-7b llama-3-70b llama-3-8b llama-3.1-405b llama-3.1-70b llama-3.1-8b llama-3.2-1b megatron-145b megatron-1t mistral-7b-v0.1 mistral-7b-v0.3 mistral-large-2407 mt-nlg-530b opt-175b palm-540b phi-2 phi-3-medium phi-3-mini phi-4 qwen2.5-0.5b qwen2.5-32b qwen2.5-72b qwen2.5-7b qwen3-0.6b qwen3-32b qwen3-8b qwen3.5-27b yi-34b a100-40g-sxm a100-80g-pcie a100-80g-sxm a800-80g-sxm b200-sxm b300-sxm gb200-nvl72 gb300-nvl72 h100-pcie h100-sxm h20-sxm h200-sxm h800-sxm l40s rtx-4090 example-h8192 gpt3-175b-a100 llama-3-70b-h100" -- "$cur"))
                _commcalc_own models hardware jobs
                COMPREPLY+=($(compgen -f -- "$cur"))
            fi ;;
        "presets validate")
            if [[ $cur == -* ]]; then
                COMPREPLY=($(compgen -W "--kind --format --json --no-color --help -h" -- "$cur"))
            else
                COMPREPLY+=($(compgen -f -- "$cur"))
            fi ;;
        "presets import")
            if [[ $cur == -* ]]; then
                COMPREPLY=($(compgen -W "--name --output -o --force --help -h" -- "$cur"))
            else
                COMPREPLY+=($(compgen -f -- "$cur"))
            fi ;;
    esac
}
complete -F _commcalc commcalc
