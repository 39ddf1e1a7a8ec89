# bash completion for commcalc; generated, do not edit
_commcalc_words() {
    local word
    for word in "$@"; do
        [[ $word == "$cur"* ]] && COMPREPLY+=("$word")
    done
}
_commcalc_files() {
    local file
    for file in "${cur/#\~\//$HOME/}"*; do
        [[ -e $file ]] && COMPREPLY+=("$file")
    done
    compopt -o filenames 2> /dev/null
}
_commcalc_own() {  # presets in the folders of COMMCALC_PRESETS
    local IFS=: root kind file
    for root in ${COMMCALC_PRESETS-}; do
        for kind in "$@"; do
            for file in "$root/$kind/$cur"*.yaml; do
                [[ -e $file ]] || continue
                file=${file##*/}
                COMPREPLY+=("${file%.yaml}")
            done
        done
    done
}
_commcalc() {
    local IFS=$' \t\n' command=${COMP_WORDS[1]}
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
    COMPREPLY=()
    if (( COMP_CWORD == 1 )); then
        _commcalc_words ledger compare check record matmul reshard shard collective busbw calibrate degrees solve sweep verify schema completions presets --help --version
        return
    fi
    case $command in
        presets) (( COMP_CWORD > 2 )) && command="$command ${COMP_WORDS[2]}" ;;
    esac
    case "$command:$prev" in
        "ledger":--model)
            _commcalc_words bloom-176b command-r-35b command-r-plus-104b deepseek-r1 deepseek-v2 deepseek-v2-lite deepseek-v3 deepseek-v3.2 deepseek-v4-flash deepseek-v4-pro falcon-180b falcon-40b falcon-7b gemma-2-27b gemma-2-2b gemma-2-9b gemma-3-12b gemma-3-1b gemma-3-27b gemma-3-4b gemma-4-26b-a4b gemma-4-31b glm-4.5 glm-4.5-air glm-5 glm-5.2 gpt-j-6b gpt-neox-20b gpt-oss-120b gpt-oss-20b gpt2 gpt2-xl gpt3-175b grok-1 kimi-k2 kimi-k2.5 kimi-k3 llama-2-13b llama-2-70b llama-2-7b llama-3-70b llama-3-8b llama-3.1-405b llama-3.1-70b llama-3.1-8b llama-3.2-1b llama-4-maverick llama-4-scout megatron-145b megatron-1t mimo-v2-flash minimax-m2.5 minimax-m3 minimax-text-01 mistral-7b-v0.1 mistral-7b-v0.3 mistral-large-2407 mixtral-8x22b mixtral-8x7b mt-nlg-530b nemotron-3-nano-30b-a3b opt-175b palm-540b phi-2 phi-3-medium phi-3-mini phi-4 qwen2.5-0.5b qwen2.5-32b qwen2.5-72b qwen2.5-7b qwen3-0.6b qwen3-235b-a22b qwen3-30b-a3b qwen3-32b qwen3-8b qwen3-coder-480b-a35b qwen3-next-80b-a3b qwen3.5-122b-a10b qwen3.5-27b qwen3.5-35b-a3b qwen3.5-397b-a17b yi-34b
            _commcalc_own models
            _commcalc_files
            return ;;
        "ledger":--hardware)
            _commcalc_words a100-40g-sxm a100-80g-pcie a100-80g-sxm a800-80g-sxm arc-pro-b60 ascend-910b ascend-910c b200-sxm b300-sxm gaudi-2 gaudi-3 gb200-nvl72 gb300-nvl72 h100-pcie h100-sxm h20-sxm h200-sxm h800-sxm l40s mi250x mi300x mi355x rtx-4090 rtx-pro-6000 tpu-v2 tpu-v3 tpu-v4 tpu-v5e tpu-v5p tpu-v6e tpu-v7x trn1 trn2 trn2-ultraserver trn3 trn3-gen2 tt-n300 v100-32g-dgx2
            _commcalc_own hardware
            _commcalc_files
            return ;;
        "ledger":--tp)
            :
            return ;;
        "ledger":--cp)
            :
            return ;;
        "ledger":--cp-comm)
            _commcalc_words ring all_gather ulysses
            return ;;
        "ledger":--ep)
            :
            return ;;
        "ledger":--etp)
            :
            return ;;
        "ledger":--dispatch)
            _commcalc_words all_to_all all_gather deduplicated
            return ;;
        "ledger":--ep-nodes)
            :
            return ;;
        "ledger":--node-limit)
            :
            return ;;
        "ledger":--pp)
            :
            return ;;
        "ledger":--dp)
            :
            return ;;
        "ledger":--devices)
            :
            return ;;
        "ledger":--zero)
            _commcalc_words 0 1 2 3
            return ;;
        "ledger":--dp-shard)
            :
            return ;;
        "ledger":--schedule)
            _commcalc_words 1f1b interleaved zb1p dualpipe
            return ;;
        "ledger":--virtual-stages)
            :
            return ;;
        "ledger":--layout)
            _commcalc_words none megatron megatron-sp sequence 2d weight-gathered
            return ;;
        "ledger":--tp-x)
            :
            return ;;
        "ledger":--framework)
            _commcalc_words megatron vllm sglang hf torchtitan
            return ;;
        "ledger":--order)
            :
            return ;;
        "ledger":--kv)
            _commcalc_words refuse replicate gather
            return ;;
        "ledger":--vocab-padding)
            _commcalc_words megatron vllm sglang none
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
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "ledger":--grad-dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "ledger":--phase)
            _commcalc_words train prefill decode
            return ;;
        "ledger":--recompute)
            _commcalc_words none selective full
            return ;;
        "ledger":--recompute-modules)
            _commcalc_words core_attn layernorm moe_act mlp moe shared_experts mla_up_proj
            return ;;
        "ledger":--logits)
            _commcalc_words sampled all
            return ;;
        "ledger":--predict-layers)
            :
            return ;;
        "ledger":--capacity-factor)
            :
            return ;;
        "ledger":--imbalance)
            :
            return ;;
        "ledger":--dispatch-dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "ledger":--scale-block)
            :
            return ;;
        "ledger":--combine-dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "ledger":--bucket)
            :
            return ;;
        "ledger":--recompute-layers)
            :
            return ;;
        "ledger":--attention)
            _commcalc_words flash unfused
            return ;;
        "ledger":--param-dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "ledger":--optimizer)
            _commcalc_words adam momentum sgd
            return ;;
        "ledger":--moment-dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "ledger":--master-dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64 none
            return ;;
        "ledger":--main-grad-dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "ledger":--kv-dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "ledger":--offload)
            _commcalc_words weights gradients optimizer activations kv_cache
            return ;;
        "ledger":--host-memory)
            :
            return ;;
        "ledger":--efficiency)
            :
            return ;;
        "ledger":--hbm-efficiency)
            :
            return ;;
        "ledger":--overlap)
            _commcalc_words tp cp ep dp pp none full
            return ;;
        "ledger":--combine)
            _commcalc_words added largest
            return ;;
        "ledger":--scores)
            _commcalc_words full causal
            return ;;
        "ledger":--train-tokens)
            :
            return ;;
        "ledger":--call-latency)
            :
            return ;;
        "ledger":--bandwidth)
            :
            return ;;
        "ledger":--latency)
            :
            return ;;
        "ledger":--algorithm)
            _commcalc_words auto ring ring-two-way line torus recursive-doubling recursive-halving rabenseifner binomial-tree double-binary-tree bruck pairwise direct one-shot two-shot in-network hierarchical measured
            return ;;
        "ledger":--convention)
            _commcalc_words exact textbook
            return ;;
        "ledger":--set)
            :
            return ;;
        "ledger":--format)
            _commcalc_words table json jsonl csv markdown
            return ;;
        "ledger":--output|"ledger":-o)
            _commcalc_files
            return ;;
        "compare":--model)
            :
            return ;;
        "compare":--hardware)
            :
            return ;;
        "compare":--layout)
            :
            return ;;
        "compare":--framework)
            :
            return ;;
        "compare":--tp)
            :
            return ;;
        "compare":--cp)
            :
            return ;;
        "compare":--ep)
            :
            return ;;
        "compare":--pp)
            :
            return ;;
        "compare":--dp)
            :
            return ;;
        "compare":--zero)
            :
            return ;;
        "compare":--seq)
            :
            return ;;
        "compare":--micro-batch)
            :
            return ;;
        "compare":--global-batch)
            :
            return ;;
        "compare":--dtype)
            :
            return ;;
        "compare":--phase)
            :
            return ;;
        "compare":--recompute)
            :
            return ;;
        "compare":--cp-comm)
            _commcalc_words ring all_gather ulysses
            return ;;
        "compare":--etp)
            :
            return ;;
        "compare":--dispatch)
            _commcalc_words all_to_all all_gather deduplicated
            return ;;
        "compare":--dp-shard)
            :
            return ;;
        "compare":--schedule)
            _commcalc_words 1f1b interleaved zb1p dualpipe
            return ;;
        "compare":--virtual-stages)
            :
            return ;;
        "compare":--order)
            :
            return ;;
        "compare":--kv)
            _commcalc_words refuse replicate gather
            return ;;
        "compare":--grad-dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "compare":--tp-x)
            :
            return ;;
        "compare":--attention)
            _commcalc_words flash unfused
            return ;;
        "compare":--optimizer)
            _commcalc_words adam momentum sgd
            return ;;
        "compare":--efficiency)
            :
            return ;;
        "compare":--overlap)
            _commcalc_words tp cp ep dp pp none full
            return ;;
        "compare":--combine)
            _commcalc_words added largest
            return ;;
        "compare":--scores)
            _commcalc_words full causal
            return ;;
        "compare":--bandwidth)
            :
            return ;;
        "compare":--latency)
            :
            return ;;
        "compare":--call-latency)
            :
            return ;;
        "compare":--algorithm)
            _commcalc_words auto ring ring-two-way line torus recursive-doubling recursive-halving rabenseifner binomial-tree double-binary-tree bruck pairwise direct one-shot two-shot in-network hierarchical measured
            return ;;
        "compare":--convention)
            _commcalc_words exact textbook
            return ;;
        "compare":--set)
            :
            return ;;
        "compare":--baseline)
            :
            return ;;
        "compare":--pivot)
            :
            return ;;
        "compare":--plot)
            :
            return ;;
        "compare":--format)
            _commcalc_words table json jsonl csv markdown
            return ;;
        "compare":--output|"compare":-o)
            _commcalc_files
            return ;;
        "check":--measured)
            :
            return ;;
        "check":--set)
            :
            return ;;
        "check":--format)
            _commcalc_words table json jsonl csv markdown github junit
            return ;;
        "check":--output|"check":-o)
            _commcalc_files
            return ;;
        "record":--model)
            _commcalc_words bloom-176b command-r-35b command-r-plus-104b deepseek-r1 deepseek-v2 deepseek-v2-lite deepseek-v3 deepseek-v3.2 deepseek-v4-flash deepseek-v4-pro falcon-180b falcon-40b falcon-7b gemma-2-27b gemma-2-2b gemma-2-9b gemma-3-12b gemma-3-1b gemma-3-27b gemma-3-4b gemma-4-26b-a4b gemma-4-31b glm-4.5 glm-4.5-air glm-5 glm-5.2 gpt-j-6b gpt-neox-20b gpt-oss-120b gpt-oss-20b gpt2 gpt2-xl gpt3-175b grok-1 kimi-k2 kimi-k2.5 kimi-k3 llama-2-13b llama-2-70b llama-2-7b llama-3-70b llama-3-8b llama-3.1-405b llama-3.1-70b llama-3.1-8b llama-3.2-1b llama-4-maverick llama-4-scout megatron-145b megatron-1t mimo-v2-flash minimax-m2.5 minimax-m3 minimax-text-01 mistral-7b-v0.1 mistral-7b-v0.3 mistral-large-2407 mixtral-8x22b mixtral-8x7b mt-nlg-530b nemotron-3-nano-30b-a3b opt-175b palm-540b phi-2 phi-3-medium phi-3-mini phi-4 qwen2.5-0.5b qwen2.5-32b qwen2.5-72b qwen2.5-7b qwen3-0.6b qwen3-235b-a22b qwen3-30b-a3b qwen3-32b qwen3-8b qwen3-coder-480b-a35b qwen3-next-80b-a3b qwen3.5-122b-a10b qwen3.5-27b qwen3.5-35b-a3b qwen3.5-397b-a17b yi-34b
            _commcalc_own models
            _commcalc_files
            return ;;
        "record":--hardware)
            _commcalc_words a100-40g-sxm a100-80g-pcie a100-80g-sxm a800-80g-sxm arc-pro-b60 ascend-910b ascend-910c b200-sxm b300-sxm gaudi-2 gaudi-3 gb200-nvl72 gb300-nvl72 h100-pcie h100-sxm h20-sxm h200-sxm h800-sxm l40s mi250x mi300x mi355x rtx-4090 rtx-pro-6000 tpu-v2 tpu-v3 tpu-v4 tpu-v5e tpu-v5p tpu-v6e tpu-v7x trn1 trn2 trn2-ultraserver trn3 trn3-gen2 tt-n300 v100-32g-dgx2
            _commcalc_own hardware
            _commcalc_files
            return ;;
        "record":--tp)
            :
            return ;;
        "record":--pp)
            :
            return ;;
        "record":--dp)
            :
            return ;;
        "record":--seq)
            :
            return ;;
        "record":--micro-batch)
            :
            return ;;
        "record":--global-batch)
            :
            return ;;
        "record":--dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "record":--phase)
            _commcalc_words train prefill decode
            return ;;
        "record":--efficiency)
            :
            return ;;
        "record":--bandwidth)
            :
            return ;;
        "record":--latency)
            :
            return ;;
        "record":--set)
            :
            return ;;
        "record":--measured)
            :
            return ;;
        "record":--tolerance)
            :
            return ;;
        "record":--format)
            _commcalc_words table json jsonl csv markdown
            return ;;
        "record":--output|"record":-o)
            _commcalc_files
            return ;;
        "matmul":--mesh)
            :
            return ;;
        "matmul":--dim)
            :
            return ;;
        "matmul":--dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "matmul":--minimize)
            _commcalc_words time bytes
            return ;;
        "matmul":--overlap)
            _commcalc_words none full collective-matmul
            return ;;
        "matmul":--hardware)
            _commcalc_words a100-40g-sxm a100-80g-pcie a100-80g-sxm a800-80g-sxm arc-pro-b60 ascend-910b ascend-910c b200-sxm b300-sxm gaudi-2 gaudi-3 gb200-nvl72 gb300-nvl72 h100-pcie h100-sxm h20-sxm h200-sxm h800-sxm l40s mi250x mi300x mi355x rtx-4090 rtx-pro-6000 tpu-v2 tpu-v3 tpu-v4 tpu-v5e tpu-v5p tpu-v6e tpu-v7x trn1 trn2 trn2-ultraserver trn3 trn3-gen2 tt-n300 v100-32g-dgx2
            _commcalc_own hardware
            _commcalc_files
            return ;;
        "matmul":--shape)
            :
            return ;;
        "matmul":--bandwidth)
            :
            return ;;
        "matmul":--latency)
            :
            return ;;
        "matmul":--algorithm)
            _commcalc_words auto ring ring-two-way line torus recursive-doubling recursive-halving rabenseifner binomial-tree double-binary-tree bruck pairwise direct one-shot two-shot in-network hierarchical measured
            return ;;
        "matmul":--convention)
            _commcalc_words exact textbook
            return ;;
        "matmul":--notation)
            _commcalc_words book spec
            return ;;
        "matmul":--set)
            :
            return ;;
        "matmul":--format)
            _commcalc_words table json jsonl csv markdown
            return ;;
        "matmul":--output|"matmul":-o)
            _commcalc_files
            return ;;
        "reshard":--mesh)
            :
            return ;;
        "reshard":--dim)
            :
            return ;;
        "reshard":--dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "reshard":--minimize)
            _commcalc_words time bytes
            return ;;
        "reshard":--hardware)
            _commcalc_words a100-40g-sxm a100-80g-pcie a100-80g-sxm a800-80g-sxm arc-pro-b60 ascend-910b ascend-910c b200-sxm b300-sxm gaudi-2 gaudi-3 gb200-nvl72 gb300-nvl72 h100-pcie h100-sxm h20-sxm h200-sxm h800-sxm l40s mi250x mi300x mi355x rtx-4090 rtx-pro-6000 tpu-v2 tpu-v3 tpu-v4 tpu-v5e tpu-v5p tpu-v6e tpu-v7x trn1 trn2 trn2-ultraserver trn3 trn3-gen2 tt-n300 v100-32g-dgx2
            _commcalc_own hardware
            _commcalc_files
            return ;;
        "reshard":--shape)
            :
            return ;;
        "reshard":--bandwidth)
            :
            return ;;
        "reshard":--latency)
            :
            return ;;
        "reshard":--algorithm)
            _commcalc_words auto ring ring-two-way line torus recursive-doubling recursive-halving rabenseifner binomial-tree double-binary-tree bruck pairwise direct one-shot two-shot in-network hierarchical measured
            return ;;
        "reshard":--convention)
            _commcalc_words exact textbook
            return ;;
        "reshard":--notation)
            _commcalc_words book spec
            return ;;
        "reshard":--set)
            :
            return ;;
        "reshard":--format)
            _commcalc_words table json jsonl csv markdown
            return ;;
        "reshard":--output|"reshard":-o)
            _commcalc_files
            return ;;
        "shard":--mesh)
            :
            return ;;
        "shard":--dim)
            :
            return ;;
        "shard":--dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "shard":--set)
            :
            return ;;
        "shard":--format)
            _commcalc_words table json jsonl csv markdown
            return ;;
        "shard":--output|"shard":-o)
            _commcalc_files
            return ;;
        "collective":--bytes)
            :
            return ;;
        "collective":--elements)
            :
            return ;;
        "collective":--dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "collective":--group-size)
            :
            return ;;
        "collective":--mesh)
            :
            return ;;
        "collective":--axes)
            :
            return ;;
        "collective":--dim)
            :
            return ;;
        "collective":--hardware)
            _commcalc_words a100-40g-sxm a100-80g-pcie a100-80g-sxm a800-80g-sxm arc-pro-b60 ascend-910b ascend-910c b200-sxm b300-sxm gaudi-2 gaudi-3 gb200-nvl72 gb300-nvl72 h100-pcie h100-sxm h20-sxm h200-sxm h800-sxm l40s mi250x mi300x mi355x rtx-4090 rtx-pro-6000 tpu-v2 tpu-v3 tpu-v4 tpu-v5e tpu-v5p tpu-v6e tpu-v7x trn1 trn2 trn2-ultraserver trn3 trn3-gen2 tt-n300 v100-32g-dgx2
            _commcalc_own hardware
            _commcalc_files
            return ;;
        "collective":--shape)
            :
            return ;;
        "collective":--bandwidth)
            :
            return ;;
        "collective":--latency)
            :
            return ;;
        "collective":--algorithm)
            _commcalc_words auto ring ring-two-way line torus recursive-doubling recursive-halving rabenseifner binomial-tree double-binary-tree bruck pairwise direct one-shot two-shot in-network hierarchical measured
            return ;;
        "collective":--convention)
            _commcalc_words exact textbook
            return ;;
        "collective":--set)
            :
            return ;;
        "collective":--format)
            _commcalc_words table json jsonl csv markdown
            return ;;
        "collective":--output|"collective":-o)
            _commcalc_files
            return ;;
        "busbw":--group-size)
            :
            return ;;
        "busbw":--bytes)
            :
            return ;;
        "busbw":--time)
            :
            return ;;
        "busbw":--algbw)
            :
            return ;;
        "busbw":--busbw)
            :
            return ;;
        "busbw":--link)
            :
            return ;;
        "busbw":--hardware)
            _commcalc_words a100-40g-sxm a100-80g-pcie a100-80g-sxm a800-80g-sxm arc-pro-b60 ascend-910b ascend-910c b200-sxm b300-sxm gaudi-2 gaudi-3 gb200-nvl72 gb300-nvl72 h100-pcie h100-sxm h20-sxm h200-sxm h800-sxm l40s mi250x mi300x mi355x rtx-4090 rtx-pro-6000 tpu-v2 tpu-v3 tpu-v4 tpu-v5e tpu-v5p tpu-v6e tpu-v7x trn1 trn2 trn2-ultraserver trn3 trn3-gen2 tt-n300 v100-32g-dgx2
            _commcalc_own hardware
            _commcalc_files
            return ;;
        "busbw":--format)
            _commcalc_words table json jsonl csv markdown
            return ;;
        "busbw":--output|"busbw":-o)
            _commcalc_files
            return ;;
        "calibrate":--collective)
            _commcalc_words all_reduce all_gather reduce_scatter all_to_all send_recv permute broadcast reduce gather scatter
            return ;;
        "calibrate":--ranks)
            :
            return ;;
        "calibrate":--nodes)
            :
            return ;;
        "calibrate":--hardware)
            _commcalc_words a100-40g-sxm a100-80g-pcie a100-80g-sxm a800-80g-sxm arc-pro-b60 ascend-910b ascend-910c b200-sxm b300-sxm gaudi-2 gaudi-3 gb200-nvl72 gb300-nvl72 h100-pcie h100-sxm h20-sxm h200-sxm h800-sxm l40s mi250x mi300x mi355x rtx-4090 rtx-pro-6000 tpu-v2 tpu-v3 tpu-v4 tpu-v5e tpu-v5p tpu-v6e tpu-v7x trn1 trn2 trn2-ultraserver trn3 trn3-gen2 tt-n300 v100-32g-dgx2
            _commcalc_own hardware
            _commcalc_files
            return ;;
        "calibrate":--output|"calibrate":-o)
            _commcalc_files
            return ;;
        "calibrate":--compare)
            _commcalc_words a100-40g-sxm a100-80g-pcie a100-80g-sxm a800-80g-sxm arc-pro-b60 ascend-910b ascend-910c b200-sxm b300-sxm gaudi-2 gaudi-3 gb200-nvl72 gb300-nvl72 h100-pcie h100-sxm h20-sxm h200-sxm h800-sxm l40s mi250x mi300x mi355x rtx-4090 rtx-pro-6000 tpu-v2 tpu-v3 tpu-v4 tpu-v5e tpu-v5p tpu-v6e tpu-v7x trn1 trn2 trn2-ultraserver trn3 trn3-gen2 tt-n300 v100-32g-dgx2
            _commcalc_own hardware
            _commcalc_files
            return ;;
        "calibrate":--tolerance)
            :
            return ;;
        "calibrate":--plan)
            _commcalc_words deepseek-v3-h800 example-h8192 gpt-oss-120b-h100 gpt3-175b-a100 llama-3-70b-h100 llama-3.1-405b-128k-context llama-3.1-405b-16k-gpus llama-3.1-405b-8k-gpus mixtral-8x7b-h100 qwen3-235b-a22b-h100
            _commcalc_own jobs
            _commcalc_files
            return ;;
        "calibrate":--set)
            :
            return ;;
        "calibrate":--format)
            _commcalc_words table json jsonl csv markdown
            return ;;
        "degrees":--model)
            _commcalc_words bloom-176b command-r-35b command-r-plus-104b deepseek-r1 deepseek-v2 deepseek-v2-lite deepseek-v3 deepseek-v3.2 deepseek-v4-flash deepseek-v4-pro falcon-180b falcon-40b falcon-7b gemma-2-27b gemma-2-2b gemma-2-9b gemma-3-12b gemma-3-1b gemma-3-27b gemma-3-4b gemma-4-26b-a4b gemma-4-31b glm-4.5 glm-4.5-air glm-5 glm-5.2 gpt-j-6b gpt-neox-20b gpt-oss-120b gpt-oss-20b gpt2 gpt2-xl gpt3-175b grok-1 kimi-k2 kimi-k2.5 kimi-k3 llama-2-13b llama-2-70b llama-2-7b llama-3-70b llama-3-8b llama-3.1-405b llama-3.1-70b llama-3.1-8b llama-3.2-1b llama-4-maverick llama-4-scout megatron-145b megatron-1t mimo-v2-flash minimax-m2.5 minimax-m3 minimax-text-01 mistral-7b-v0.1 mistral-7b-v0.3 mistral-large-2407 mixtral-8x22b mixtral-8x7b mt-nlg-530b nemotron-3-nano-30b-a3b opt-175b palm-540b phi-2 phi-3-medium phi-3-mini phi-4 qwen2.5-0.5b qwen2.5-32b qwen2.5-72b qwen2.5-7b qwen3-0.6b qwen3-235b-a22b qwen3-30b-a3b qwen3-32b qwen3-8b qwen3-coder-480b-a35b qwen3-next-80b-a3b qwen3.5-122b-a10b qwen3.5-27b qwen3.5-35b-a3b qwen3.5-397b-a17b yi-34b
            _commcalc_own models
            _commcalc_files
            return ;;
        "degrees":--tp)
            :
            return ;;
        "degrees":--layout)
            _commcalc_words none megatron megatron-sp sequence 2d weight-gathered
            return ;;
        "degrees":--framework)
            _commcalc_words megatron vllm sglang hf torchtitan
            return ;;
        "degrees":--kv)
            _commcalc_words refuse replicate gather
            return ;;
        "degrees":--vocab-padding)
            _commcalc_words megatron vllm sglang none
            return ;;
        "degrees":--seq)
            :
            return ;;
        "degrees":--phase)
            _commcalc_words train prefill decode
            return ;;
        "degrees":--set)
            :
            return ;;
        "degrees":--format)
            _commcalc_words table json jsonl csv markdown
            return ;;
        "degrees":--output|"degrees":-o)
            _commcalc_files
            return ;;
        "solve":--model)
            _commcalc_words bloom-176b command-r-35b command-r-plus-104b deepseek-r1 deepseek-v2 deepseek-v2-lite deepseek-v3 deepseek-v3.2 deepseek-v4-flash deepseek-v4-pro falcon-180b falcon-40b falcon-7b gemma-2-27b gemma-2-2b gemma-2-9b gemma-3-12b gemma-3-1b gemma-3-27b gemma-3-4b gemma-4-26b-a4b gemma-4-31b glm-4.5 glm-4.5-air glm-5 glm-5.2 gpt-j-6b gpt-neox-20b gpt-oss-120b gpt-oss-20b gpt2 gpt2-xl gpt3-175b grok-1 kimi-k2 kimi-k2.5 kimi-k3 llama-2-13b llama-2-70b llama-2-7b llama-3-70b llama-3-8b llama-3.1-405b llama-3.1-70b llama-3.1-8b llama-3.2-1b llama-4-maverick llama-4-scout megatron-145b megatron-1t mimo-v2-flash minimax-m2.5 minimax-m3 minimax-text-01 mistral-7b-v0.1 mistral-7b-v0.3 mistral-large-2407 mixtral-8x22b mixtral-8x7b mt-nlg-530b nemotron-3-nano-30b-a3b opt-175b palm-540b phi-2 phi-3-medium phi-3-mini phi-4 qwen2.5-0.5b qwen2.5-32b qwen2.5-72b qwen2.5-7b qwen3-0.6b qwen3-235b-a22b qwen3-30b-a3b qwen3-32b qwen3-8b qwen3-coder-480b-a35b qwen3-next-80b-a3b qwen3.5-122b-a10b qwen3.5-27b qwen3.5-35b-a3b qwen3.5-397b-a17b yi-34b
            _commcalc_own models
            _commcalc_files
            return ;;
        "solve":--hardware)
            _commcalc_words a100-40g-sxm a100-80g-pcie a100-80g-sxm a800-80g-sxm arc-pro-b60 ascend-910b ascend-910c b200-sxm b300-sxm gaudi-2 gaudi-3 gb200-nvl72 gb300-nvl72 h100-pcie h100-sxm h20-sxm h200-sxm h800-sxm l40s mi250x mi300x mi355x rtx-4090 rtx-pro-6000 tpu-v2 tpu-v3 tpu-v4 tpu-v5e tpu-v5p tpu-v6e tpu-v7x trn1 trn2 trn2-ultraserver trn3 trn3-gen2 tt-n300 v100-32g-dgx2
            _commcalc_own hardware
            _commcalc_files
            return ;;
        "solve":--tp)
            :
            return ;;
        "solve":--cp)
            :
            return ;;
        "solve":--ep)
            :
            return ;;
        "solve":--pp)
            :
            return ;;
        "solve":--dp)
            :
            return ;;
        "solve":--devices)
            :
            return ;;
        "solve":--zero)
            _commcalc_words 0 1 2 3
            return ;;
        "solve":--layout)
            _commcalc_words none megatron megatron-sp sequence 2d weight-gathered
            return ;;
        "solve":--framework)
            _commcalc_words megatron vllm sglang hf torchtitan
            return ;;
        "solve":--order)
            :
            return ;;
        "solve":--kv)
            _commcalc_words refuse replicate gather
            return ;;
        "solve":--seq)
            :
            return ;;
        "solve":--micro-batch)
            :
            return ;;
        "solve":--global-batch)
            :
            return ;;
        "solve":--dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "solve":--grad-dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "solve":--phase)
            _commcalc_words train prefill decode
            return ;;
        "solve":--recompute)
            _commcalc_words none selective full
            return ;;
        "solve":--bandwidth)
            :
            return ;;
        "solve":--latency)
            :
            return ;;
        "solve":--call-latency)
            :
            return ;;
        "solve":--algorithm)
            _commcalc_words auto ring ring-two-way line torus recursive-doubling recursive-halving rabenseifner binomial-tree double-binary-tree bruck pairwise direct one-shot two-shot in-network hierarchical measured
            return ;;
        "solve":--convention)
            _commcalc_words exact textbook
            return ;;
        "solve":--efficiency)
            :
            return ;;
        "solve":--hbm-efficiency)
            :
            return ;;
        "solve":--combine)
            _commcalc_words added largest
            return ;;
        "solve":--scores)
            _commcalc_words full causal
            return ;;
        "solve":--sublayer)
            :
            return ;;
        "solve":--pass)
            :
            return ;;
        "solve":--time)
            :
            return ;;
        "solve":--scope)
            :
            return ;;
        "solve":--group)
            :
            return ;;
        "solve":--set)
            :
            return ;;
        "solve":--format)
            _commcalc_words table json jsonl csv markdown
            return ;;
        "solve":--output|"solve":-o)
            _commcalc_files
            return ;;
        "sweep":--model)
            _commcalc_words bloom-176b command-r-35b command-r-plus-104b deepseek-r1 deepseek-v2 deepseek-v2-lite deepseek-v3 deepseek-v3.2 deepseek-v4-flash deepseek-v4-pro falcon-180b falcon-40b falcon-7b gemma-2-27b gemma-2-2b gemma-2-9b gemma-3-12b gemma-3-1b gemma-3-27b gemma-3-4b gemma-4-26b-a4b gemma-4-31b glm-4.5 glm-4.5-air glm-5 glm-5.2 gpt-j-6b gpt-neox-20b gpt-oss-120b gpt-oss-20b gpt2 gpt2-xl gpt3-175b grok-1 kimi-k2 kimi-k2.5 kimi-k3 llama-2-13b llama-2-70b llama-2-7b llama-3-70b llama-3-8b llama-3.1-405b llama-3.1-70b llama-3.1-8b llama-3.2-1b llama-4-maverick llama-4-scout megatron-145b megatron-1t mimo-v2-flash minimax-m2.5 minimax-m3 minimax-text-01 mistral-7b-v0.1 mistral-7b-v0.3 mistral-large-2407 mixtral-8x22b mixtral-8x7b mt-nlg-530b nemotron-3-nano-30b-a3b opt-175b palm-540b phi-2 phi-3-medium phi-3-mini phi-4 qwen2.5-0.5b qwen2.5-32b qwen2.5-72b qwen2.5-7b qwen3-0.6b qwen3-235b-a22b qwen3-30b-a3b qwen3-32b qwen3-8b qwen3-coder-480b-a35b qwen3-next-80b-a3b qwen3.5-122b-a10b qwen3.5-27b qwen3.5-35b-a3b qwen3.5-397b-a17b yi-34b
            _commcalc_own models
            _commcalc_files
            return ;;
        "sweep":--hardware)
            _commcalc_words a100-40g-sxm a100-80g-pcie a100-80g-sxm a800-80g-sxm arc-pro-b60 ascend-910b ascend-910c b200-sxm b300-sxm gaudi-2 gaudi-3 gb200-nvl72 gb300-nvl72 h100-pcie h100-sxm h20-sxm h200-sxm h800-sxm l40s mi250x mi300x mi355x rtx-4090 rtx-pro-6000 tpu-v2 tpu-v3 tpu-v4 tpu-v5e tpu-v5p tpu-v6e tpu-v7x trn1 trn2 trn2-ultraserver trn3 trn3-gen2 tt-n300 v100-32g-dgx2
            _commcalc_own hardware
            _commcalc_files
            return ;;
        "sweep":--tp)
            :
            return ;;
        "sweep":--cp)
            :
            return ;;
        "sweep":--cp-comm)
            _commcalc_words ring all_gather ulysses
            return ;;
        "sweep":--ep)
            :
            return ;;
        "sweep":--etp)
            :
            return ;;
        "sweep":--dispatch)
            _commcalc_words all_to_all all_gather deduplicated
            return ;;
        "sweep":--ep-nodes)
            :
            return ;;
        "sweep":--node-limit)
            :
            return ;;
        "sweep":--pp)
            :
            return ;;
        "sweep":--dp)
            :
            return ;;
        "sweep":--devices)
            :
            return ;;
        "sweep":--zero)
            _commcalc_words 0 1 2 3
            return ;;
        "sweep":--dp-shard)
            :
            return ;;
        "sweep":--schedule)
            _commcalc_words 1f1b interleaved zb1p dualpipe
            return ;;
        "sweep":--virtual-stages)
            :
            return ;;
        "sweep":--layout)
            _commcalc_words none megatron megatron-sp sequence 2d weight-gathered
            return ;;
        "sweep":--tp-x)
            :
            return ;;
        "sweep":--framework)
            _commcalc_words megatron vllm sglang hf torchtitan
            return ;;
        "sweep":--order)
            :
            return ;;
        "sweep":--kv)
            _commcalc_words refuse replicate gather
            return ;;
        "sweep":--vocab-padding)
            _commcalc_words megatron vllm sglang none
            return ;;
        "sweep":--seq)
            :
            return ;;
        "sweep":--micro-batch)
            :
            return ;;
        "sweep":--global-batch)
            :
            return ;;
        "sweep":--dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "sweep":--grad-dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "sweep":--phase)
            _commcalc_words train prefill decode
            return ;;
        "sweep":--recompute)
            _commcalc_words none selective full
            return ;;
        "sweep":--recompute-modules)
            _commcalc_words core_attn layernorm moe_act mlp moe shared_experts mla_up_proj
            return ;;
        "sweep":--logits)
            _commcalc_words sampled all
            return ;;
        "sweep":--predict-layers)
            :
            return ;;
        "sweep":--capacity-factor)
            :
            return ;;
        "sweep":--imbalance)
            :
            return ;;
        "sweep":--dispatch-dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "sweep":--scale-block)
            :
            return ;;
        "sweep":--combine-dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "sweep":--bucket)
            :
            return ;;
        "sweep":--recompute-layers)
            :
            return ;;
        "sweep":--attention)
            _commcalc_words flash unfused
            return ;;
        "sweep":--param-dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "sweep":--optimizer)
            _commcalc_words adam momentum sgd
            return ;;
        "sweep":--moment-dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "sweep":--master-dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64 none
            return ;;
        "sweep":--main-grad-dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "sweep":--kv-dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "sweep":--offload)
            _commcalc_words weights gradients optimizer activations kv_cache
            return ;;
        "sweep":--host-memory)
            :
            return ;;
        "sweep":--efficiency)
            :
            return ;;
        "sweep":--hbm-efficiency)
            :
            return ;;
        "sweep":--overlap)
            _commcalc_words tp cp ep dp pp none full
            return ;;
        "sweep":--combine)
            _commcalc_words added largest
            return ;;
        "sweep":--scores)
            _commcalc_words full causal
            return ;;
        "sweep":--train-tokens)
            :
            return ;;
        "sweep":--call-latency)
            :
            return ;;
        "sweep":--bandwidth)
            :
            return ;;
        "sweep":--latency)
            :
            return ;;
        "sweep":--algorithm)
            _commcalc_words auto ring ring-two-way line torus recursive-doubling recursive-halving rabenseifner binomial-tree double-binary-tree bruck pairwise direct one-shot two-shot in-network hierarchical measured
            return ;;
        "sweep":--convention)
            _commcalc_words exact textbook
            return ;;
        "sweep":--set)
            :
            return ;;
        "sweep":--where)
            :
            return ;;
        "sweep":--top)
            :
            return ;;
        "sweep":--by)
            :
            return ;;
        "sweep":--columns)
            :
            return ;;
        "sweep":--format)
            _commcalc_words table json jsonl csv markdown
            return ;;
        "sweep":--output|"sweep":-o)
            _commcalc_files
            return ;;
        "verify":--mesh)
            :
            return ;;
        "verify":--dim)
            :
            return ;;
        "verify":--layout)
            _commcalc_words none megatron megatron-sp sequence 2d weight-gathered
            return ;;
        "verify":--tp)
            :
            return ;;
        "verify":--dp)
            :
            return ;;
        "verify":--zero)
            _commcalc_words 0 1 2 3
            return ;;
        "verify":--dp-shard)
            :
            return ;;
        "verify":--pp)
            :
            return ;;
        "verify":--cp)
            :
            return ;;
        "verify":--cp-comm)
            _commcalc_words ring all_gather ulysses
            return ;;
        "verify":--ep)
            :
            return ;;
        "verify":--etp)
            :
            return ;;
        "verify":--dispatch)
            _commcalc_words all_to_all all_gather deduplicated
            return ;;
        "verify":--model)
            _commcalc_words bloom-176b command-r-35b command-r-plus-104b deepseek-r1 deepseek-v2 deepseek-v2-lite deepseek-v3 deepseek-v3.2 deepseek-v4-flash deepseek-v4-pro falcon-180b falcon-40b falcon-7b gemma-2-27b gemma-2-2b gemma-2-9b gemma-3-12b gemma-3-1b gemma-3-27b gemma-3-4b gemma-4-26b-a4b gemma-4-31b glm-4.5 glm-4.5-air glm-5 glm-5.2 gpt-j-6b gpt-neox-20b gpt-oss-120b gpt-oss-20b gpt2 gpt2-xl gpt3-175b grok-1 kimi-k2 kimi-k2.5 kimi-k3 llama-2-13b llama-2-70b llama-2-7b llama-3-70b llama-3-8b llama-3.1-405b llama-3.1-70b llama-3.1-8b llama-3.2-1b llama-4-maverick llama-4-scout megatron-145b megatron-1t mimo-v2-flash minimax-m2.5 minimax-m3 minimax-text-01 mistral-7b-v0.1 mistral-7b-v0.3 mistral-large-2407 mixtral-8x22b mixtral-8x7b mt-nlg-530b nemotron-3-nano-30b-a3b opt-175b palm-540b phi-2 phi-3-medium phi-3-mini phi-4 qwen2.5-0.5b qwen2.5-32b qwen2.5-72b qwen2.5-7b qwen3-0.6b qwen3-235b-a22b qwen3-30b-a3b qwen3-32b qwen3-8b qwen3-coder-480b-a35b qwen3-next-80b-a3b qwen3.5-122b-a10b qwen3.5-27b qwen3.5-35b-a3b qwen3.5-397b-a17b yi-34b
            _commcalc_own models
            _commcalc_files
            return ;;
        "verify":--framework)
            _commcalc_words megatron vllm sglang hf torchtitan
            return ;;
        "verify":--kv)
            _commcalc_words refuse replicate gather
            return ;;
        "verify":--vocab-padding)
            _commcalc_words megatron vllm sglang none
            return ;;
        "verify":--seq)
            :
            return ;;
        "verify":--micro-batch)
            :
            return ;;
        "verify":--phase)
            _commcalc_words train prefill decode
            return ;;
        "verify":--recompute)
            _commcalc_words none selective full
            return ;;
        "verify":--set)
            :
            return ;;
        "verify":--dtype)
            _commcalc_words fp64 fp32 bf16 fp16 fp8 int8 fp4 int4 int32 int64
            return ;;
        "verify":--seed)
            :
            return ;;
        "verify":--format)
            _commcalc_words table json jsonl csv markdown
            return ;;
        "verify":--output|"verify":-o)
            _commcalc_files
            return ;;
        "schema":--format)
            _commcalc_words table json jsonl csv markdown
            return ;;
        "schema":--output|"schema":-o)
            _commcalc_files
            return ;;
        "completions":--output|"completions":-o)
            _commcalc_files
            return ;;
        "presets list":--kind)
            _commcalc_words model hardware job
            return ;;
        "presets list":--family)
            :
            return ;;
        "presets list":--source)
            _commcalc_words packaged user
            return ;;
        "presets list":--min-size)
            :
            return ;;
        "presets list":--max-size)
            :
            return ;;
        "presets list":--format)
            _commcalc_words table json jsonl csv markdown
            return ;;
        "presets list":--output|"presets list":-o)
            _commcalc_files
            return ;;
        "presets show":--kind)
            _commcalc_words model hardware job
            return ;;
        "presets show":--format)
            _commcalc_words table json jsonl csv markdown
            return ;;
        "presets show":--output|"presets show":-o)
            _commcalc_files
            return ;;
        "presets validate":--kind)
            _commcalc_words model hardware job
            return ;;
        "presets validate":--format)
            _commcalc_words table json jsonl csv markdown
            return ;;
        "presets validate":--output|"presets validate":-o)
            _commcalc_files
            return ;;
        "presets import":--name)
            :
            return ;;
        "presets import":--output|"presets import":-o)
            _commcalc_files
            return ;;
    esac
    case "$command" in
        "ledger")
            if [[ $cur == -* ]]; then
                _commcalc_words --model --hardware --tp --sp --no-sp --cp --cp-comm --ep --etp --dispatch --ep-nodes --node-limit --pp --dp --devices --zero --dp-shard --schedule --virtual-stages --layout --tp-x --framework --order --kv --vocab-padding --seq --micro-batch --global-batch --dtype --grad-dtype --phase --recompute --recompute-modules --regather --no-regather --logits --predict-layers --capacity-factor --imbalance --dispatch-dtype --scale-block --combine-dtype --reshard --no-reshard --bucket --defer-all-reduce --no-defer-all-reduce --recompute-layers --attention --dropout --no-dropout --param-dtype --optimizer --moment-dtype --master-dtype --main-grad-dtype --kv-dtype --offload --host-memory --must-fit --no-must-fit --efficiency --hbm-efficiency --overlap --combine --scores --train-tokens --call-latency --bandwidth --latency --algorithm --convention --set --explain --tensors --ranks --format --json --output -o --no-color --help -h
            else
                _commcalc_words deepseek-v3-h800 example-h8192 gpt-oss-120b-h100 gpt3-175b-a100 llama-3-70b-h100 llama-3.1-405b-128k-context llama-3.1-405b-16k-gpus llama-3.1-405b-8k-gpus mixtral-8x7b-h100 qwen3-235b-a22b-h100
                _commcalc_own jobs
                _commcalc_files
            fi ;;
        "compare")
            if [[ $cur == -* ]]; then
                _commcalc_words --model --hardware --layout --framework --tp --cp --ep --pp --dp --zero --seq --micro-batch --global-batch --dtype --phase --recompute --sp --no-sp --cp-comm --etp --dispatch --dp-shard --schedule --virtual-stages --order --kv --grad-dtype --tp-x --regather --no-regather --reshard --no-reshard --attention --optimizer --efficiency --overlap --combine --scores --bandwidth --latency --call-latency --algorithm --convention --set --baseline --pivot --plot --format --json --output -o --no-color --help -h
            else
                _commcalc_words deepseek-v3-h800 example-h8192 gpt-oss-120b-h100 gpt3-175b-a100 llama-3-70b-h100 llama-3.1-405b-128k-context llama-3.1-405b-16k-gpus llama-3.1-405b-8k-gpus mixtral-8x7b-h100 qwen3-235b-a22b-h100
                _commcalc_own jobs
                _commcalc_files
            fi ;;
        "check")
            if [[ $cur == -* ]]; then
                _commcalc_words --measured --set --format --json --output -o --no-color --help -h
            else
                _commcalc_files
            fi ;;
        "record")
            if [[ $cur == -* ]]; then
                _commcalc_words --model --hardware --tp --sp --no-sp --pp --dp --seq --micro-batch --global-batch --dtype --phase --efficiency --bandwidth --latency --set --measured --tolerance --format --json --output -o --no-color --help -h
            else
                _commcalc_words compare deepseek-v3-h800 example-h8192 gpt-oss-120b-h100 gpt3-175b-a100 llama-3-70b-h100 llama-3.1-405b-128k-context llama-3.1-405b-16k-gpus llama-3.1-405b-8k-gpus mixtral-8x7b-h100 qwen3-235b-a22b-h100
                _commcalc_own jobs
                _commcalc_files
            fi ;;
        "matmul")
            if [[ $cur == -* ]]; then
                _commcalc_words --mesh --dim --dtype --pad --sub-axes --minimize --overlap --no-extra-flops --no-communication --grad --all --hardware --shape --bandwidth --latency --algorithm --convention --explain --notation --set --format --json --output -o --no-color --help -h
            else
                :
            fi ;;
        "reshard")
            if [[ $cur == -* ]]; then
                _commcalc_words --mesh --dim --dtype --pad --sub-axes --minimize --hardware --shape --bandwidth --latency --algorithm --convention --explain --notation --set --format --json --output -o --no-color --help -h
            else
                :
            fi ;;
        "shard")
            if [[ $cur == -* ]]; then
                _commcalc_words --mesh --dim --dtype --pad --explain --set --format --json --output -o --no-color --help -h
            else
                :
            fi ;;
        "collective")
            if [[ $cur == -* ]]; then
                _commcalc_words --bytes --elements --dtype --group-size --mesh --axes --dim --hardware --shape --bandwidth --latency --in-network --algorithm --convention --set --explain --format --json --output -o --no-color --help -h
            else
                _commcalc_words all_reduce all_gather reduce_scatter all_to_all send_recv permute broadcast
            fi ;;
        "busbw")
            if [[ $cur == -* ]]; then
                _commcalc_words --group-size --bytes --time --algbw --busbw --in-network --link --both-ways --hardware --format --json --output -o --no-color --explain --help -h
            else
                _commcalc_words all_reduce all_gather reduce_scatter all_to_all send_recv permute broadcast reduce gather scatter
            fi ;;
        "calibrate")
            if [[ $cur == -* ]]; then
                _commcalc_words --collective --ranks --nodes --hardware --output -o --compare --tolerance --plan --set --explain --format --json --no-color --help -h
            else
                _commcalc_files
            fi ;;
        "degrees")
            if [[ $cur == -* ]]; then
                _commcalc_words --model --tp --sp --no-sp --layout --framework --kv --vocab-padding --seq --phase --set --format --json --output -o --no-color --help -h
            else
                :
            fi ;;
        "solve")
            if [[ $cur == -* ]]; then
                _commcalc_words --model --hardware --tp --sp --no-sp --cp --ep --pp --dp --devices --zero --layout --framework --order --kv --seq --micro-batch --global-batch --dtype --grad-dtype --phase --recompute --regather --no-regather --reshard --no-reshard --bandwidth --latency --call-latency --algorithm --convention --efficiency --hbm-efficiency --combine --scores --sublayer --pass --time --scope --group --set --format --json --output -o --no-color --help -h
            else
                _commcalc_words tp batch mix bandwidth deepseek-v3-h800 example-h8192 gpt-oss-120b-h100 gpt3-175b-a100 llama-3-70b-h100 llama-3.1-405b-128k-context llama-3.1-405b-16k-gpus llama-3.1-405b-8k-gpus mixtral-8x7b-h100 qwen3-235b-a22b-h100
                _commcalc_own jobs
                _commcalc_files
            fi ;;
        "sweep")
            if [[ $cur == -* ]]; then
                _commcalc_words --model --hardware --tp --sp --no-sp --cp --cp-comm --ep --etp --dispatch --ep-nodes --node-limit --pp --dp --devices --zero --dp-shard --schedule --virtual-stages --layout --tp-x --framework --order --kv --vocab-padding --seq --micro-batch --global-batch --dtype --grad-dtype --phase --recompute --recompute-modules --regather --no-regather --logits --predict-layers --capacity-factor --imbalance --dispatch-dtype --scale-block --combine-dtype --reshard --no-reshard --bucket --defer-all-reduce --no-defer-all-reduce --recompute-layers --attention --dropout --no-dropout --param-dtype --optimizer --moment-dtype --master-dtype --main-grad-dtype --kv-dtype --offload --host-memory --must-fit --no-must-fit --efficiency --hbm-efficiency --overlap --combine --scores --train-tokens --call-latency --bandwidth --latency --algorithm --convention --set --where --top --by --columns --format --json --output -o --help -h
            else
                _commcalc_words deepseek-v3-h800 example-h8192 gpt-oss-120b-h100 gpt3-175b-a100 llama-3-70b-h100 llama-3.1-405b-128k-context llama-3.1-405b-16k-gpus llama-3.1-405b-8k-gpus mixtral-8x7b-h100 qwen3-235b-a22b-h100
                _commcalc_own jobs
                _commcalc_files
            fi ;;
        "verify")
            if [[ $cur == -* ]]; then
                _commcalc_words --mesh --dim --pad --sub-axes --layout --tp --dp --zero --dp-shard --pp --cp --cp-comm --ep --etp --dispatch --model --framework --kv --vocab-padding --seq --micro-batch --phase --recompute --regather --no-regather --set --all --dtype --seed --explain --format --json --output -o --no-color --help -h
            else
                :
            fi ;;
        "schema")
            if [[ $cur == -* ]]; then
                _commcalc_words --lines --format --json --output -o --no-color --help -h
            else
                _commcalc_words job model hardware budget ledger compare sweep check record record-compare solve matmul shard reshard collective busbw calibrate calibrate-compare acceptance degrees verify preset presets validation schemas error
            fi ;;
        "completions")
            if [[ $cur == -* ]]; then
                _commcalc_words --output -o --help -h
            else
                _commcalc_words bash zsh fish
            fi ;;
        "presets")
            if [[ $cur == -* ]]; then
                _commcalc_words --help -h
            else
                _commcalc_words list show validate import
            fi ;;
        "presets list")
            if [[ $cur == -* ]]; then
                _commcalc_words --kind --family --source --min-size --max-size --format --json --output -o --no-color --help -h
            else
                _commcalc_words bloom-176b command-r-35b command-r-plus-104b deepseek-r1 deepseek-v2 deepseek-v2-lite deepseek-v3 deepseek-v3.2 deepseek-v4-flash deepseek-v4-pro falcon-180b falcon-40b falcon-7b gemma-2-27b gemma-2-2b gemma-2-9b gemma-3-12b gemma-3-1b gemma-3-27b gemma-3-4b gemma-4-26b-a4b gemma-4-31b glm-4.5 glm-4.5-air glm-5 glm-5.2 gpt-j-6b gpt-neox-20b gpt-oss-120b gpt-oss-20b gpt2 gpt2-xl gpt3-175b grok-1 kimi-k2 kimi-k2.5 kimi-k3 llama-2-13b llama-2-70b llama-2-7b llama-3-70b llama-3-8b llama-3.1-405b llama-3.1-70b llama-3.1-8b llama-3.2-1b llama-4-maverick llama-4-scout megatron-145b megatron-1t mimo-v2-flash minimax-m2.5 minimax-m3 minimax-text-01 mistral-7b-v0.1 mistral-7b-v0.3 mistral-large-2407 mixtral-8x22b mixtral-8x7b mt-nlg-530b nemotron-3-nano-30b-a3b opt-175b palm-540b phi-2 phi-3-medium phi-3-mini phi-4 qwen2.5-0.5b qwen2.5-32b qwen2.5-72b qwen2.5-7b qwen3-0.6b qwen3-235b-a22b qwen3-30b-a3b qwen3-32b qwen3-8b qwen3-coder-480b-a35b qwen3-next-80b-a3b qwen3.5-122b-a10b qwen3.5-27b qwen3.5-35b-a3b qwen3.5-397b-a17b yi-34b a100-40g-sxm a100-80g-pcie a100-80g-sxm a800-80g-sxm arc-pro-b60 ascend-910b ascend-910c b200-sxm b300-sxm gaudi-2 gaudi-3 gb200-nvl72 gb300-nvl72 h100-pcie h100-sxm h20-sxm h200-sxm h800-sxm l40s mi250x mi300x mi355x rtx-4090 rtx-pro-6000 tpu-v2 tpu-v3 tpu-v4 tpu-v5e tpu-v5p tpu-v6e tpu-v7x trn1 trn2 trn2-ultraserver trn3 trn3-gen2 tt-n300 v100-32g-dgx2 deepseek-v3-h800 example-h8192 gpt-oss-120b-h100 gpt3-175b-a100 llama-3-70b-h100 llama-3.1-405b-128k-context llama-3.1-405b-16k-gpus llama-3.1-405b-8k-gpus mixtral-8x7b-h100 qwen3-235b-a22b-h100
                _commcalc_own models hardware jobs
            fi ;;
        "presets show")
            if [[ $cur == -* ]]; then
                _commcalc_words --kind --format --json --output -o --no-color --help -h
            else
                _commcalc_words bloom-176b command-r-35b command-r-plus-104b deepseek-r1 deepseek-v2 deepseek-v2-lite deepseek-v3 deepseek-v3.2 deepseek-v4-flash deepseek-v4-pro falcon-180b falcon-40b falcon-7b gemma-2-27b gemma-2-2b gemma-2-9b gemma-3-12b gemma-3-1b gemma-3-27b gemma-3-4b gemma-4-26b-a4b gemma-4-31b glm-4.5 glm-4.5-air glm-5 glm-5.2 gpt-j-6b gpt-neox-20b gpt-oss-120b gpt-oss-20b gpt2 gpt2-xl gpt3-175b grok-1 kimi-k2 kimi-k2.5 kimi-k3 llama-2-13b llama-2-70b llama-2-7b llama-3-70b llama-3-8b llama-3.1-405b llama-3.1-70b llama-3.1-8b llama-3.2-1b llama-4-maverick llama-4-scout megatron-145b megatron-1t mimo-v2-flash minimax-m2.5 minimax-m3 minimax-text-01 mistral-7b-v0.1 mistral-7b-v0.3 mistral-large-2407 mixtral-8x22b mixtral-8x7b mt-nlg-530b nemotron-3-nano-30b-a3b opt-175b palm-540b phi-2 phi-3-medium phi-3-mini phi-4 qwen2.5-0.5b qwen2.5-32b qwen2.5-72b qwen2.5-7b qwen3-0.6b qwen3-235b-a22b qwen3-30b-a3b qwen3-32b qwen3-8b qwen3-coder-480b-a35b qwen3-next-80b-a3b qwen3.5-122b-a10b qwen3.5-27b qwen3.5-35b-a3b qwen3.5-397b-a17b yi-34b a100-40g-sxm a100-80g-pcie a100-80g-sxm a800-80g-sxm arc-pro-b60 ascend-910b ascend-910c b200-sxm b300-sxm gaudi-2 gaudi-3 gb200-nvl72 gb300-nvl72 h100-pcie h100-sxm h20-sxm h200-sxm h800-sxm l40s mi250x mi300x mi355x rtx-4090 rtx-pro-6000 tpu-v2 tpu-v3 tpu-v4 tpu-v5e tpu-v5p tpu-v6e tpu-v7x trn1 trn2 trn2-ultraserver trn3 trn3-gen2 tt-n300 v100-32g-dgx2 deepseek-v3-h800 example-h8192 gpt-oss-120b-h100 gpt3-175b-a100 llama-3-70b-h100 llama-3.1-405b-128k-context llama-3.1-405b-16k-gpus llama-3.1-405b-8k-gpus mixtral-8x7b-h100 qwen3-235b-a22b-h100
                _commcalc_own models hardware jobs
                _commcalc_files
            fi ;;
        "presets validate")
            if [[ $cur == -* ]]; then
                _commcalc_words --kind --format --json --output -o --no-color --help -h
            else
                _commcalc_files
            fi ;;
        "presets import")
            if [[ $cur == -* ]]; then
                _commcalc_words --name --output -o --force --help -h
            else
                _commcalc_files
            fi ;;
    esac
}
complete -F _commcalc commcalc
