"""Wrong input of every kind: exact texts, right statuses, never a traceback."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import Inside, environment, run_commcalc

# arguments, exit status, a piece of what stderr must say.
OPTIONS = [
    (["--model", "llama-3-70bb"], 2, "error: unknown model preset 'llama-3-70bb'"),
    (["--model", "llama-3-70bb"], 2, "hint: did you mean llama-3-70b or "),
    (["--hardware", "h10"], 2, "hint: did you mean h100"),
    (["nosuchjob"], 2, "error: unknown job preset 'nosuchjob'"),
    (["--tp", "0"], 2, "error: '0' is not above zero\n  at --tp 0 parallelism.tp\nhint: write it like 8"),
    (["--tp", "-8"], 2, "error: '-8' is not above zero"),
    (["--tp", "1.5"], 2, "error: '1.5' is no whole number"),
    (["--tp", "eight"], 2, "error: 'eight' is no whole number"),
    (["--tp", "nan"], 2, "error: 'nan' is no whole number"),
    (["--tp", "inf"], 2, "error: 'inf' is no whole number"),
    (["--tp", "1e400"], 2, "error: '1e400' is not finite"),
    (["--tp", "1" + "0" * 30], 2, "is too large"),
    (["--tp", ""], 2, "error: no value"),
    (["--tp", "08"], 2, "error: '08' begins with 0: octal or decimal?"),
    (["--tp", "true"], 2, "error: 'true' is no whole number"),
    (["--tp", "8,16"], 2, "is no whole number"),
    (["--seq", "8Q"], 2, "error: '8Q' is no whole number"),
    (["--zero", "4"], 2, "error: zero 4 is none of 0, 1, 2, 3"),
    (["--dtype", "bf61"], 2, "error: unknown dtype 'bf61'\n  at --dtype bf61 workload.dtype\nhint: did you mean bf16"),
    (["--phase", "training"], 2, "hint: did you mean train?"),
    (["--layout", "megatron_sp"], 2, "hint: did you mean megatron-sp or megatron?"),
    (["--framework", "vllm"], 3, "error: vllm serves models and has no backward pass\n  at workload.phase (--phase train)\nhint: --phase prefill or --phase decode"),
    (["--framework", "sglang", "--phase", "decode", "--sp"], 3, "error: sglang splits no sequence of a dense layer over TP ranks\n  at parallelism.sp (--sp)"),
    (["--framework", "torchtitan", "--model", "gemma-2-9b", "--pp", "2"], 3, "error: torchtitan refuses to tie embedding and head that lie on different pipeline stages"),
    (["--framework", "hf", "--recompute", "selective"], 3, "error: hf checkpoints whole layers (gradient_checkpointing_enable)"),
    (["--framework", "hf", "--model", "gpt2", "--tp", "2"], 3, "error: tp 2 is not legal for gpt2: transformers has no tp_plan for family gpt2"),
    (["--framework", "hf", "--model", "grok-1", "--tp", "2"], 3, "error: tp 2 is not legal for grok-1: transformers has no tp_plan for family grok-1"),
    (["--framework", "hf", "--model", "deepseek-v3", "--predict-layers", "1"], 3, "error: hf does not run the prediction layers"),
    (["--framework", "hf", "--model", "qwen3-235b-a22b", "--tp", "8"], 3, "error: tp 8 is not legal for qwen3-235b-a22b: num_key_value_heads 4 mod 8 = 4"),
    (["--framework", "torchtitan", "--model", "falcon-40b", "--tp", "16", "--no-sp"], 3, "num_key_value_heads 8 mod 16 = 8"),
    (["--framework", "megatron", "--model", "falcon-40b", "--tp", "2"], 3, "error: megatron core (transformer_layer.py) has no block with parallel attention and MLP"),
    (["--framework", "megatron", "--model", "minimax-m2.5", "--tp", "2", "--sp"], 3, "error: megatron core/transformer/attention.py normalises the queries and keys of each head, not of all"),
    (["--framework", "megatron", "--model", "mixtral-8x7b", "--tp", "2"], 3, "megatron trains experts on more than one TP rank only with sequence parallelism"),
    (["--model", "mixtral-8x7b", "--tp", "3"], 3, "moe_intermediate_size 14336 mod 3 = 2"),
    (["--model", "deepseek-v3", "--tp", "3"], 3, "error: tp 3 is not legal for deepseek-v3: num_attention_heads 128 mod 3 = 2"),
    (["--model", "kimi-k3"], 2, "error: the ledger cannot price this yet: 69 of 93 layers are Kimi delta attention"),
    (["--model", "nemotron-3-nano-30b-a3b"], 2, "error: the ledger cannot price this yet: each layer is one mixer"),
    (["--model", "deepseek-v3", "--predict-layers", "2"], 2, "error: 2 prediction layers, deepseek-v3 has 1"),
    (["--model", "deepseek-v3", "--predict-layers", "1", "--phase", "decode"], 2, "error: prediction layers are counted in training only, not in decode"),
    (["--recompute", "selective", "--recompute-modules", "mpl"], 2, "error: unknown module to recompute 'mpl'\n  at --recompute-modules mpl workload.recompute_modules\nhint: did you mean mlp?"),
    (["--recompute-modules", ""], 2, "error: no value\n  at --recompute-modules  workload.recompute_modules\nhint: write it like core_attn,mlp"),
    (["--recompute-modules", "mlp,"], 2, "error: unknown module to recompute ''"),
    (["--recompute-modules", "[mlp, mpl]"], 2, "error: unknown module to recompute 'mpl'\n  at --recompute-modules [mlp, mpl]:1:13 workload.recompute_modules\nhint: did you mean mlp?"),
    (["--recompute-modules", "[]"], 2, "error: an empty list\n"),
    (["--predict-layers", "1.5"], 2, "error: '1.5' is no whole number\n  at --predict-layers 1.5 workload.predict_layers\nhint: write it like 1\n"),
    (["--zero", "-1"], 2, "error: '-1' is below zero\n"),
    (["--model", "deepseek-v3", "--set", "model.num_experts=1e30"], 2, "error: '1e30' is too large\n  at --set model.num_experts=1e30 model.num_experts\nhint: write it like 8\n"),
    (["--logits", "some"], 2, "error: unknown logits 'some'"),
    (["--model", "mixtral-8x7b", "--set", "model.num_experts_per_tok=9"], 2, "num_experts_per_tok 9 is above num_experts 8"),
    (["--model", "mimo-v2-flash", "--set", "model.num_hidden_layers=4"], 2, "layer_types lists 48 layers, num_hidden_layers is 4"),
    (["--model", "deepseek-v3", "--set", "model.moe_layers=3"], 2, "moe_layers"),
    (["--framework", "vlm"], 2, "error: unknown framework 'vlm'\n  at --framework vlm parallelism.framework\nhint: did you mean vllm?"),
    (["--order", "tp-dp"], 2, "error: 'tp-dp' is no order of the axes"),
    (["--bandwidth", "450"], 2, "error: '450' has no unit\n  at --bandwidth 450\nhint: a rate needs one, like 450GB/s or 400Gb/s"),
    (["--bandwidth", "450GB"], 2, "error: unknown unit 'GB' in '450GB'"),
    (["--bandwidth", "0GB/s"], 2, "error: '0GB/s' is not above zero"),
    (["--bandwidth", "-1GB/s"], 2, "error: -1 is negative"),
    (["--bandwidth", "infGB/s"], 2, "is no rate"),
    (["--bandwidth", "nvlnk=450GB/s"], 2, "error: unknown network level 'nvlnk'"),
    (["--latency", "3"], 2, "error: '3' has no unit"),
    (["--latency", "-3us"], 2, "error: -3 is negative"),
    (["--algorithm", "tree"], 2, "error: unknown algorithm 'tree'"),
    (["--hardware", "a100", "--algorithm", "in-network"], 2, "error: level nvlink does not reduce in the network"),
    (["--set", "model.hiden_size=4"], 2, "hint: did you mean hidden_size?"),
    (["--set", "modle.hidden_size=4"], 2, "error: unknown section 'modle'"),
    (["--bandwidth", "=1GB/s"], 2, "error: no level before the ="),
    (["--bandwidth", "1e308B/s"], 2, "error: '1e308B/s' is no rate of a link: below 1 B/s or above 10^18 B/s"),
    (["--latency", "1e300s"], 2, "error: '1e300s' is too large"),
    (["--latency", "-1e-400s"], 2, "is negative"),
    (["--tp", "\u0668"], 2, "is no whole number"),
    (["--tp", "8K"], 2, "error: '8K' is no whole number"),
    (["--zero", "1e-400"], 2, "is no whole number"),
    (["--model", "a" * 300], 2, "error: unknown model preset 'aaa"),
    (["--model", "{name: \udcff}"], 2, "error: not UTF-8 text\n  at --model"),
    (["--model", "llama-3-8b", "--tp", "8", "--algorithm", "ring"], 2, "error: an algorithm but nothing to run it on"),
    (["--format", "csv", "--explain"], 2, "error: --explain has no place in csv"),
    (["--format", "jsonl", "--tensors", "--ranks"], 2, '"message": "--tensors and --ranks are two tables"'),
    (["--set", "hardware.network.nvlink.bandwith=1GB/s"], 2, "error: unknown key in hardware.network.nvlink 'bandwith'"),
    (["--set", "hardware.network.bandwidth=1GB/s"], 2, "error: hardware.network.bandwidth names no single value"),
    (["--set", "model.name.x=1"], 2, "error: unknown key in model 'name.x'"),
    (["--model", "{hidden_size: 64, num_hidden_layers: 2, qk_norm: head_dim}", "--tp", "8"], 2, "error: the model does not give head_dim, needed for the sizes of the rows\n  at model.head_dim"),
    (["--model", "{hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 40, num_key_value_heads: 8, head_dim: 128}", "--tp", "40", "--kv", "gather"], 3, "qkv_columns 7168 mod 40 = 8"),
    (["--set", "model=4"], 2, "error: model is a section; name a key in it"),
    (["--set", "model.hidden_size"], 2, "error: 'model.hidden_size' sets nothing"),
    (["--set", "model.hidden_size=big"], 2, "error: 'big' is no whole number"),
    (["--set", "hardware.network.nvlnk.bandwidth=1GB/s"], 2, "error: unknown level 'nvlnk'"),
    (["--layout", "3d"], 2, "error: unknown layout '3d'"),
    (["--layout", "sequence", "--tp", "3"], 3, "error: tp 3 is not legal for llama-3-70b: sequence_length 8192 mod 3 = 2"),
    (["--layout", "sequence", "--phase", "decode"], 3, "sequence_length 1 mod 8 = 1\n  at parallelism.tp (--tp 8)\n  legal by sequence: 1\nhint: --layout megatron, or a sequence length that 8 divides"),
    (["--layout", "sequence", "--framework", "vllm", "--phase", "prefill"], 3, "error: layout sequence is that of its paper: how vllm would run it is not described\n  at parallelism.framework (--framework vllm)"),
    (["--layout", "sequence", "--cp", "2"], 3, "error: layout sequence is not described with context parallelism\n  at parallelism.cp (--cp 2)\nhint: --cp 1 with a higher --tp, or --layout megatron"),
    (["--layout", "sequence", "--model", "qwen3-next-80b-a3b"], 3, "linear attention of qwen3-next-80b-a3b on layout sequence"),
    (["--layout", "weight-gathered"], 3, "error: tp 8 is not legal for llama-3-70b: micro_batch_size 1 mod 8 = 1\n  at parallelism.tp (--tp 8)\n  legal by batch: 1\nhint: --layout megatron, or a --micro-batch that 8 divides; otherwise legal: 1\n"),
    (["--layout", "weight-gathered", "--sp"], 2, "error: layout weight-gathered and sp true contradict each other"),
    (["--layout", "weight-gathered", "--model", "mixtral-8x7b", "--micro-batch", "8"], 3, "experts of mixtral-8x7b on layout weight-gathered"),
    (["--layout", "2d", "--tp-x", "3"], 3, "error: tp 8 mod tp_x 3 = 2\n  at parallelism.tp_x (--tp-x 3)\nhint: legal: 1, 2, 4, 8\n"),
    (["--layout", "2d", "--tp-x", "0"], 2, "--tp-x 0"),
    (["--layout", "2d", "--tp-x", "two"], 2, "error: 'two' is no whole number"),
    (["--tp-x", "2"], 2, "error: tp_x is an axis of layout 2d: layout megatron splits nothing over it\n  at parallelism.tp_x (--tp-x 2)\nhint: --layout 2d, or leave it out\n"),
    (["--layout", "2d", "--model", "mixtral-8x7b"], 3, "experts of mixtral-8x7b on layout 2d"),
    (["--layout", "2d", "--model", "deepseek-v3"], 3, "latent attention of deepseek-v3 on layout 2d"),
    (["--layout", "2d", "--tp", "16"], 3, "num_key_value_heads 8 mod 16 = 8"),
    (["--layout", "2d", "--tp", "16", "--kv", "gather"], 3, "error: layout 2d shares 8 KV heads by copies"),
    (["--cp", "3"], 3, "error: 8192 tokens of a sequence mod 3 = 2\n  at parallelism.cp (--cp 3)"),
    (["--cp", "4", "--cp-comm", "tree"], 2, "error: unknown cp comm 'tree'"),
    (["--cp", "2", "--phase", "decode"], 3, "error: a decoding step has one token of each sequence, which context parallelism cannot split"),
    (["--cp", "16", "--cp-comm", "ulysses"], 3, "error: 64 heads mod 128 (tp 8 x cp 16) = 64"),
    (["--cp", "2", "--framework", "hf"], 3, "error: how hf would split sequences is not described"),
    (["--model", "qwen3-next-80b-a3b", "--tp", "1", "--cp", "2"], 2, "layers of linear attention, whose state runs along the whole sequence"),
    (["--ep", "2"], 3, "error: llama-3-70b has no experts to deal out\n  at parallelism.ep (--ep 2)"),
    (["--model", "mixtral-8x7b", "--ep", "16", "--dp", "16", "--global-batch", "16"], 3, "error: 8 experts mod 16 = 8"),
    (["--model", "mixtral-8x7b", "--ep", "3", "--dp", "4", "--global-batch", "4"], 3, "error: 4 ranks of a stage (tp 1 x cp 1 x dp 4) mod 3 (ep 3 x etp 1) = 1"),
    (["--model", "mixtral-8x7b", "--ep", "4", "--dp", "4", "--global-batch", "4", "--imbalance", "0.5"], 2, "error: '0.5' is below 1"),
    (["--model", "mixtral-8x7b", "--ep", "4", "--dp", "4", "--global-batch", "4", "--imbalance", "nan"], 2, "error: 'nan' is no such number"),
    (["--model", "mixtral-8x7b", "--ep", "4", "--dp", "4", "--global-batch", "4", "--imbalance", "2", "--capacity-factor", "1"], 2, "error: with a capacity every rank gets the same number of rows"),
    (["--model", "mixtral-8x7b", "--ep", "4", "--dp", "4", "--global-batch", "4", "--etp", "5"], 3, "(ep 4 x etp 5)"),
    (["--zero", "1"], 3, "error: zero 1 shards over data-parallel ranks, and there is one\n  at parallelism.zero (--zero)"),
    (["--zero", "4"], 2, "parallelism.zero"),
    (["--dp", "2", "--bucket", "0B"], 2, "error: a bucket of no bytes\n  at workload.bucket_bytes (--bucket)"),
    (["--model", "mixtral-8x7b", "--ep-nodes", "2", "--node-limit", "1"], 3, "error: ep 1 mod 2 nodes = 1"),
    (["--model", "mixtral-8x7b", "--dp", "8", "--ep", "8", "--imbalance", "9"], 3, "error: the busiest of 8 ranks gets at most 8 times the average"),
    (["--model", "mixtral-8x7b", "--dp", "8", "--ep", "8", "--capacity-factor", "5"], 3, "error: an expert takes at most all tokens of a rank: 4 times the average"),
    (["--model", "mixtral-8x7b", "--dispatch", "all_gather", "--tp", "2", "--sp", "--dp", "2", "--ep", "2", "--etp", "1", "--order", "tp-pp-dp-cp-ep"], 2, "error: the ledger cannot price expert groups in this order yet"),
    (["--dp", "2", "--devices", "64"], 3, "error: tp 8 x cp 1 x dp 2 x pp 1 = 16 devices, not 64\n  at parallelism.devices (--devices 64)\nhint: --dp 8\n"),
    (["--devices", "12"], 3, "error: tp 8 x cp 1 x dp 1 x pp 1 = 8 devices, not 12\n  at parallelism.devices (--devices 12)\nhint: --dp 1 for 8 devices\n"),
    (["--dp", "4", "--zero", "3", "--dp-shard", "3", "--global-batch", "4"], 3, "error: dp 4 mod dp_shard 3 = 1"),
    (["--dp", "4", "--dp-shard", "2", "--global-batch", "4"], 3, "error: dp_shard says over how many ranks ZeRO 3 shards a copy of the parameters"),
    (["--dp", "3", "--global-batch", "4"], 3, "error: global batch 4 does not split into micro-batches of 1 on 3 data-parallel ranks"),
    (["--model", "mixtral-8x7b", "--framework", "vllm", "--phase", "decode", "--tp", "4", "--ep", "2"], 3, "error: vllm deals experts out over all of tp 4 x dp 1 ranks"),
    (["--model", "mixtral-8x7b", "--framework", "hf", "--tp", "2", "--ep", "2"], 3, "error: transformers was read to deal experts out over its TP ranks"),
    (["--model", "mixtral-8x7b", "--dp", "8", "--ep", "8", "--global-batch", "8", "--ep-nodes", "2"], 3, "error: copies for each node are sent by --dispatch deduplicated, not by all_to_all"),
    (["--model", "mixtral-8x7b", "--dp", "8", "--ep", "8", "--global-batch", "8", "--dispatch", "deduplicated", "--ep-nodes", "3", "--node-limit", "4"], 3, "error: ep 8 mod 3 nodes = 2"),
    (["--model", "deepseek-v3", "--dp", "64", "--ep", "64", "--global-batch", "64", "--dispatch", "deduplicated", "--ep-nodes", "64", "--node-limit", "1"], 3, "error: 8 choices among the experts of 1 of 64 nodes"),
    (["--pp", "4", "--schedule", "interleaved", "--virtual-stages", "3", "--global-batch", "4"], 3, "error: 80 layers mod 12 (4 stages x 3 chunks) = 8"),
    (["--pp", "4", "--virtual-stages", "2"], 3, "error: schedule 1f1b has one chunk of layers on a stage, not 2"),
    (["--pp", "3", "--schedule", "dualpipe"], 3, "error: DualPipe feeds a pipeline from both ends: 3 stages are no even number"),
    (["--pp", "2", "--tp", "8", "--schedule", "dualpipe", "--global-batch", "3"], 3, "error: DualPipe runs half of its microbatches from each end, on 2 stages at least 4 in all: 3 mod 2 = 1"),
    (["--pp", "4", "--tp", "8", "--schedule", "dualpipe", "--global-batch", "6"], 3, "error: DualPipe runs half of its microbatches from each end, on 4 stages at least 8 in all: 6 are fewer than 8"),
    (["--layout", "megatron", "--sp"], 2, "error: layout megatron and sp true contradict each other"),
    (["--format", "yaml"], 2, "error: unknown format 'yaml'"),
    (["--nosuch"], 2, "error: no such option: --nosuch"),
    (["--modle", "x"], 2, "error: no such option: --modle\n  at the command line\nhint: did you mean --model or --order?\n"),
    (["--set", "model.num_hidden_layers=abc"], 2, "error: 'abc' is no whole number\n  at --set model.num_hidden_layers=abc model.num_hidden_layers"),
    (["--set", "model.tie_word_embeddings=1"], 2, "error: '1' is neither true nor false\n  at --set model.tie_word_embeddings=1"),
    (["--set", "model.nosuch=1"], 2, "error: unknown key in model 'nosuch'\n  at --set model.nosuch=1\n"),
    (["--set", "modle.hidden_size=1"], 2, "error: unknown section 'modle'\n  at --set modle.hidden_size=1\nhint: did you mean model?"),
    (["--set", "=4"], 2, "error: '=4' sets nothing\n  at --set =4\nhint: --set PATH=VALUE\n"),
    (["--tp"], 2, "requires an argument"),
    (["a", "b"], 2, "unexpected extra argument"),
    (["--model", "llama-2-13b", "--tp", "3"], 3, "num_attention_heads 40 mod 3 = 1"),
    (["--model", "gpt3-175b", "--tp", "7"], 3, "num_attention_heads 96 mod 7 = 5"),
    (["--model", "phi-3-medium", "--phase", "prefill", "--tp", "4"], 3, "num_key_value_heads 10 mod 4 = 2"),
    (["--model", "phi-3-medium", "--phase", "prefill", "--tp", "8"], 3, "num_key_value_heads 10 mod 8 = 2"),
    (["--model", "llama-3-70b", "--tp", "16"], 3, "num_key_value_heads 8 mod 16 = 8"),
    (["--sp", "--seq", "8191"], 3, "sequence_length 8191 mod 8 = 7"),
    (["--sp", "--phase", "decode"], 3, "sequence_length 1 mod 8 = 1"),
    (["--pp", "81"], 3, "error: 80 layers do not fill 81 pipeline stages"),
    (["--dp", "3", "--global-batch", "4"], 3, "4 mod 3 = 1"),
    (["--model", "{hidden_size: 64, num_hidden_layers: 1}", "--tp", "16", "--hardware", "{network: [{name: a, devices: 8, bandwidth: 1 GB/s}]}"],
     3, "a group of 16 ranks, 1 apart, does not fit in the network"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "status", "text"), OPTIONS, ids=[" ".join(case[0])[:60] for case in OPTIONS])
def test_option(args: list[str], status: int, text: str, inside: Inside) -> None:
    ran = inside("ledger", *args)
    told = ran.out if "jsonl" in args else ran.err
    assert (ran.status, ran.out + ran.err) == (status, told)
    assert text in told
    assert "Traceback" not in ran.err


FILES = {
    "empty": (b"", "error: the file is empty"),
    "comment": (b"# nothing\n", "error: the file is empty"),
    "list": (b"- tp: 8\n", "error: no mapping of keys to values"),
    "text": (b"hello\n", "error: no mapping of keys to values"),
    "binary": (b"\x7fELF\x02\x01\x01\x00\xff", "not UTF-8 text"),
    "nul": (b"model: \x00\n", "not valid YAML"),
    "latin-1": ("model: café\n".encode("latin-1"), "error: not UTF-8 text: byte 0xe9 at offset 10"),
    "tabs": (b"model:\n\thidden_size: 8\n", "not valid YAML"),
    "two documents": (b"model: a\n---\nmodel: b\n", "error: a second document begins here\n  at job.yaml:2:1"),
    "duplicate key": (b"model: llama-3-8b\nmodel: llama-3-70b\n", "error: the key 'model' stands twice\n  at job.yaml:2:1"),
    "unknown key": (b"modle: llama-3-8b\n", "error: unknown key in the job 'modle'\n  at job.yaml:1:1\nhint: did you mean model?"),
    "no model": (b"parallelism: {tp: 8}\n", "error: no model is given"),
    "wrong type": (b"model: llama-3-8b\nparallelism: {tp: [8]}\n", "error: a list where one value is expected\n  at job.yaml:2:19 parallelism.tp"),
    "bool for int": (b"model: llama-3-8b\nparallelism: {tp: true}\n", "error: 'true' is no whole number\n  at job.yaml:2:19 parallelism.tp"),
    "no for bool": (b"model: llama-3-8b\nparallelism: {sp: no}\n", "error: 'no' is neither true nor false"),
    "null": (b"model: llama-3-8b\nparallelism: {tp: }\n", "error: no value\n  at job.yaml:2:19 parallelism.tp"),
    "octal": (b"model: llama-3-8b\nparallelism: {tp: 010}\n", "error: '010' begins with 0: octal or decimal?"),
    "sexagesimal": (b"model: llama-3-8b\nparallelism: {tp: 1:30}\n", "is no whole number"),
    "date": (b"model: llama-3-8b\nparallelism: {tp: 2026-01-01}\n", "is no whole number"),
    "nan": (b"model: {hidden_size: .nan, num_hidden_layers: 1}\n", "error: '.nan' is no whole number"),
    "inf": (b"model: {hidden_size: .inf, num_hidden_layers: 1}\n", "error: '.inf' is no whole number"),
    "tag": (b"model: !!python/object:os.system x\n", "error: the tag tag:yaml.org,2002:python/object:os.system is not allowed"),
    "unknown alias": (b"model: *nobody\n", "error: the alias *nobody has no anchor before it"),
    "self alias": (b"model: &a {x: *a}\n", "error: the alias *a stands inside what it names"),
    "deep": (b"model: " + b"[" * 5000, "nest"),
    "deep maps": (b"model: " + b"{a: " * 5000, "nest"),
    "large": (b"# " + b"x" * 2**20, "error: larger than 1048576 bytes"),
    "heads do not divide": (b"model: {num_attention_heads: 40, num_key_value_heads: 12, hidden_size: 80}\n", "num_attention_heads 40 mod num_key_value_heads 12 = 4"),
    "nested": (b"model: " + b"[" * 40, "error: nested deeper than 32\n  at job.yaml:1:39"),
    "no head size": (b"model: {num_attention_heads: 7, hidden_size: 80}\n", "hidden_size 80 mod num_attention_heads 7 = 3, and head_dim is not given"),
    "config.json": (b'{"model": {"model_type": "llama", "hidden_size": 8}}', "error: num_hidden_layers is missing (looked for num_hidden_layers or n_layer or n_layers or num_layers)\n  at job.yaml:1:11"),
    "undescribed family": (b'{"model": {"model_type": "rwkv", "hidden_size": 8}}', "error: rwkv cannot be described: layers of a recurrence instead of attention\n  at job.yaml:1:26"),
    "unknown family": (b'{"model": {"model_type": "wizard", "hidden_size": 8}}', "error: unknown model family 'wizard'\n  at job.yaml:1:26\nhint: keys found: hidden_size, model_type"),
    "config.json whose heads do not divide": (b'{"model": {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 3, "intermediate_size": 128, "vocab_size": 100}}', "error: num_attention_heads 4 mod num_key_value_heads 3 = 1: each KV head serves equally many query heads\n  at job.yaml:1:"),
    "a number of 400 digits": (b"model: {hidden_size: 1e400, num_hidden_layers: 1}\n", "error: '1e400' is not finite\n  at job.yaml:1:22 model.hidden_size"),
    "negative": (b"model: {hidden_size: -8, num_hidden_layers: 1}\n", "error: '-8' is not above zero\n  at job.yaml:1:22 model.hidden_size"),
    "zero": (b"model: {hidden_size: 0, num_hidden_layers: 1}\n", "error: '0' is not above zero\n  at job.yaml:1:22 model.hidden_size"),
    "aliases of a model": (b"model: {hidden_size: 8, num_hidden_layers: 1, aliases: {a: 1}}\n", "error: no list of names\n  at job.yaml:1:56 model.aliases\nhint: aliases: [h100, h100-sxm5]"),
    "sources of a model": (b"model: {hidden_size: 8, num_hidden_layers: 1, sources: 5}\n", "error: no mapping of keys to texts\n  at job.yaml:1:56 model.sources"),
    "notes of a machine": (b"model: llama-3-8b\nhardware: {extends: h100-sxm, notes: [1]}\n", "error: a list where one value is expected\n  at job.yaml:2:38 hardware.notes"),
    "aliases of a job": (b"model: llama-3-8b\naliases: 5\n", "error: no list of names\n  at job.yaml:2:10 job.aliases"),
    "two language parts": (b'{"model": {"text_config": {"a": 1}, "decoder": {"a": 1}}}', "error: two language parts: text_config and decoder"),
    "mixture": (b"model: {hidden_size: 8, num_hidden_layers: 1, num_experts: 8, moe_layers: 1}\n", "error: num_experts 8 without num_experts_per_tok\n  at job.yaml:1:60 model.num_experts"),
    "control characters": (b'model: {name: "a\\e[31m", hidden_size: 8}\n', "holds control characters"),
    "a level no option can name": (b"model: llama-3-8b\nhardware: {network: [{name: a.b, bandwidth: 1 GB/s}]}\n", "error: 'a.b' is no name"),
    "sandwich in a parallel block": (b"model: {hidden_size: 8, num_hidden_layers: 1, parallel_block: true, norm_placement: sandwich}\n", "error: a parallel block has no sandwich norms"),
    "empty network": (b"model: llama-3-8b\nhardware: {network: []}\n", "error: hardware.network is no list with a level in it"),
    "a summing ring": (b"model: llama-3-8b\nhardware: {network: [{name: a, topology: ring, bandwidth: 1 GB/s, in_network_reduction: true}]}\n", "error: a ring has no switch that could sum"),
    "level without bandwidth": (b"model: llama-3-8b\nhardware: {network: [{name: a}]}\n", "error: hardware.network.a.bandwidth is missing"),
    "level without unit": (b"model: llama-3-8b\nhardware: {network: [{name: a, bandwidth: 450}]}\n", "error: '450' has no unit\n  at job.yaml:2:43 hardware.network.a.bandwidth"),
    "no network": (b"model: llama-3-8b\nhardware: {name: x}\n", "error: hardware.network is missing"),
    "torus": (b"model: llama-3-8b\nhardware: {network: [{name: a, topology: torus, bandwidth: 1 GB/s}]}\n", "error: a torus needs its shape\n  at job.yaml:2:22 hardware.network.a.shape"),
    "levels do not nest": (b"model: llama-3-8b\nhardware: {network: [{name: a, devices: 8, bandwidth: 1 GB/s}, {name: b, devices: 12, bandwidth: 1 GB/s}]}\n", "error: level b (12 devices) does not hold whole domains of level a (8 devices)"),
    "same level twice": (b"model: llama-3-8b\nhardware: {network: [{name: a, devices: 8, bandwidth: 1 GB/s}, {name: a, bandwidth: 1 GB/s}]}\n", "error: two levels are called 'a'"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: Inside) -> None:
    data, text = FILES[name]
    (tmp_path / "job.yaml").write_bytes(data)
    monkeypatch.chdir(tmp_path)
    ran = inside("ledger", "job.yaml")
    assert (ran.status, ran.out) == (2, "")
    assert text in ran.err
    assert "Traceback" not in ran.err
    assert len(ran.err.splitlines()) < 40


def test_alias_bomb_is_refused_quickly(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]
    (tmp_path / "job.yaml").write_text("\n".join(lines))
    start = time.monotonic()
    ran = run_commcalc("ledger", "job.yaml", cwd=tmp_path)
    assert (ran.status, "error: more than 20000 values" in ran.err) == (2, True)
    assert time.monotonic() - start < 10


def test_sane_anchors_crlf_and_a_byte_order_mark_are_accepted(tmp_path: Path) -> None:
    text = "\ufeffmodel: llama-3-8b\r\nparallelism: {tp: &eight 8, dp: *eight}\r\n"
    (tmp_path / "job.yaml").write_bytes(text.encode())
    ran = run_commcalc("ledger", "job.yaml", "--json", cwd=tmp_path)
    assert ran.status == 0
    assert ran.json["inputs"]["parallelism"]["dp"] == 8


def test_all_violations_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "model: {hiden_size: 8192, num_hidden_layers: -1}\nparallelism: {tp: eight, sp: no}\nworkload: {dtype: bf61}\n"
    )
    ran = run_commcalc("ledger", "job.yaml", "--bandwidth", "5", cwd=tmp_path)
    assert ran.status == 2
    assert [line for line in ran.err.splitlines() if line.startswith(("error", "  at"))] == [
        "error: unknown key in model 'hiden_size'",
        "  at job.yaml:1:9",
        "error: '-1' is not above zero",
        "  at job.yaml:1:46 model.num_hidden_layers",
        "error: '5' has no unit",
        "  at --bandwidth 5",
        "error: 'eight' is no whole number",
        "  at job.yaml:2:19 parallelism.tp",
        "error: 'no' is neither true nor false",
        "  at job.yaml:2:30 parallelism.sp",
        "error: unknown dtype 'bf61'",
        "  at job.yaml:3:19 workload.dtype",
    ]


def test_errors_as_json() -> None:
    ran = run_commcalc("ledger", "--model", "llama-2-13b", "--tp", "3", "--json")
    assert (ran.status, ran.err) == (3, "")
    error = ran.json["error"]
    assert list(error) == ["kind", "message", "where", "context", "hint", "violations"]
    assert error["kind"] == "illegal-degree"
    assert [problem["message"] for problem in error["violations"]] == [
        "tp 3 is not legal for llama-2-13b: num_attention_heads 40 mod 3 = 1",
        "tp 3 is not legal for llama-2-13b: num_key_value_heads 40 mod 3 = 1",
    ]
    assert error["violations"][0]["where"] == "parallelism.tp (--tp 3)"
    assert "1, 2, 4, 8" in error["violations"][0]["hint"]
    usage = run_commcalc("ledger", "--nosuch", "--format", "json")
    assert (usage.status, usage.json["error"]["kind"], usage.err) == (2, "usage", "")
    both = run_commcalc("ledger", "--json", "--format", "csv")
    assert (both.status, both.json["error"]["message"]) == (2, "--json and --format csv contradict each other")


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    for args, text in (
        (["nowhere.yaml"], "error: cannot be read: no such file or directory\n  at nowhere.yaml"),
        (["./"], "error: a folder, not a file"),
        (["--model", "nowhere/model.yaml"], "error: cannot be read"),
    ):
        ran = run_commcalc("ledger", *args, cwd=tmp_path)
        assert (ran.status, text in ran.err) == (2, True), ran.err


def test_a_file_of_a_gigabyte_is_refused_after_its_first_megabyte(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(10**9)
    measured = "import resource, commcalc.cli as c; s = c.run(['ledger', {path!r}]); print(s, resource.getrusage(0)[2])"
    for given in (str(path), "--model=" + str(path)):
        ran = run_commcalc("ledger", given)
        assert (ran.status, ran.out) == (2, "")
        assert ran.err.startswith("error: larger than 1048576 bytes")
    done = subprocess.run(
        [sys.executable, "-c", measured.format(path=str(path))], capture_output=True, text=True, env=environment()
    )
    status, kib = done.stdout.split()
    assert (status, int(kib) < 200_000) == ("2", True)


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "closed.yaml"
    path.write_text("model: llama-3-8b")
    path.chmod(0)
    given, why = str(path), "permission denied"
    if os.geteuid() == 0:  # root reads everything but this
        given, why = "/proc/self/mem", "input/output error"
    for args in (["ledger", given], ["ledger", "--model", f"./{given}"[2:]], ["presets", "validate", given]):
        ran = run_commcalc(*args)
        assert (ran.status, f"error: cannot be read: {why}\n  at {given}" in ran.err) == (2, True), ran.err


def test_a_job_typed_at_a_terminal() -> None:
    """``-`` on a terminal says what it waits for; what is typed up to Ctrl-D is the job."""
    main, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "commcalc", "ledger", "-", "--json"],
        stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert process.stderr.readline() == "reading the job from the terminal; end it with Ctrl-D\n"
        os.write(main, b"model: llama-3-8b\nparallelism: {tp: 2}\n\x04")
        out, _ = process.communicate(timeout=60)
    os.close(main)
    os.close(terminal)
    assert (process.returncode, json.loads(out)["inputs"]["parallelism"]["tp"]) == (0, 2)


def test_standard_input_that_is_empty_binary_or_closed(tmp_path: Path) -> None:
    assert "error: the file is empty\n  at stdin" in run_commcalc("ledger", "-").err
    assert run_commcalc("ledger", "-", stdin=b"\xff\xfe\x00").status == 2
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m commcalc ledger - <&-"], capture_output=True, text=True, env=environment()
    )
    assert (done.returncode, done.stderr) == (2, "error: there is no standard input\n  at -\n")


def shell(script: str) -> subprocess.CompletedProcess[str]:
    program = f"{sys.executable} -m commcalc"
    return subprocess.run(
        ["bash", "-c", script.replace("commcalc", program)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
    )


@pytest.mark.parametrize("style", ["table", "json", "jsonl", "csv", "markdown"])
def test_a_closed_pipe_ends_quietly(style: str) -> None:
    done = shell(f"set -o pipefail; commcalc ledger --phase decode --tensors --format {style} | true")
    assert (done.returncode, done.stderr) == (0, "")


def test_help_into_a_closed_pipe_ends_quietly() -> None:
    done = shell("set -o pipefail; commcalc ledger --help | true")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "args",
    [
        "ledger --phase decode",
        "ledger --phase decode --json",
        "degrees",
        "--version",
        "completions bash",
        "ledger --tp 3 --json",
    ],
)
def test_a_full_disk_is_an_error(args: str) -> None:
    done = shell(f"commcalc {args} > /dev/full")
    assert (done.returncode, done.stderr) == (2, "error: cannot write: no space left on device\n  at stdout\n")


def test_a_closed_stderr_loses_no_data() -> None:
    done = shell("commcalc ledger --dp 2 --json 2>&- | head -2")
    assert done.stdout.startswith('{\n  "schema"')


def test_interrupt_ends_with_130() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "commcalc", "ledger", "-"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    time.sleep(1.0)  # it waits for its input by now
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_huge_degrees_end() -> None:
    """Each within the minute that a process of these tests has."""
    assert run_commcalc("ledger", "--tp", "1000000").status == 3
    assert run_commcalc("ledger", "--dp", "1000000000000").status == 0
    ran = run_commcalc("ledger", "--dp", "1000000", "--ranks")
    assert (ran.status, "8000000 devices are too many to list" in ran.err) == (2, True)
    assert run_commcalc("degrees", "--tp", "1..100000000").status == 2
    assert run_commcalc("degrees", "--tp", "1000000000").status == 3
    assert run_commcalc("degrees", "--tp", "1..9007199254740991:x2", "--json").status == 0
    assert run_commcalc("degrees", "--model", "{num_attention_heads: 1000000000}").status == 0
    assert run_commcalc("ledger", "--set", "model.num_hidden_layers=1000000000", "--pp", "1000000000").status == 2
    assert run_commcalc("ledger", "--set", "hardware.chip.hbm.capacity=0e9999999 GB").status == 2
    wide = ["--set", "hardware.network.nvlink.devices=99999989", "--model", "phi-3-medium", "--tp", "5"]
    assert run_commcalc("ledger", "--hardware", "h100", *wide).status == 0


def test_a_disk_that_fills_up_is_an_error_when_streams_are_unbuffered(tmp_path: Path) -> None:
    """An unbuffered stream takes a part and says so; the rest must not be lost in silence."""
    done = shell(f"ulimit -f 4; trap '' XFSZ; PYTHONUNBUFFERED=1 commcalc ledger --tensors --json > {tmp_path}/out")
    assert done.returncode == 2
    assert "error: cannot write: file too large" in done.stderr


def test_a_closed_stdout_is_an_error() -> None:
    for args in ("ledger --phase decode", "ledger --json --tp 3", "-V", "completions bash"):
        done = shell(f"commcalc {args} >&-")
        assert (done.returncode, done.stderr) == (2, "error: cannot write: stdout is closed\n  at stdout\n")


def test_help_on_a_full_disk_is_an_error() -> None:
    done = shell("commcalc ledger --help > /dev/full")
    assert (done.returncode, "error: cannot write: no space left on device" in done.stderr) == (2, True)


def test_odd_terminals() -> None:
    for columns in ("\u00b2", "0", "-5", "abc", "1"):
        done = shell(f"COLUMNS={columns} TERM=xterm script -qec 'commcalc ledger' /dev/null")
        assert "939,524,096" in done.stdout, columns


def test_errors_of_jsonl_are_one_line() -> None:
    ran = run_commcalc("ledger", "--tp", "3", "--format", "jsonl")
    assert (ran.status, len(ran.out.splitlines())) == (3, 1)
    assert ran.json["error"]["violations"][0]["context"].startswith("legal by heads: 1, 2, 4, 8")


def test_a_job_may_have_empty_sections_and_a_name_wherever_it_comes_from(tmp_path: Path) -> None:
    text = "name: mine\nmodel: llama-3-8b\nparallelism:\nworkload:\n"
    (tmp_path / "job.yaml").write_text(text)
    assert run_commcalc("ledger", "job.yaml", "--tp", "8", cwd=tmp_path).status == 0
    assert run_commcalc("ledger", "-", "--tp", "8", stdin=text).status == 0


def test_what_is_written_twice_by_an_alias_is_set_once(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "model: llama-3-8b\nparallelism: {tp: 8}\nhardware:\n  network:\n"
        "  - {name: a, devices: 8, bandwidth: 1 GB/s, in_network_reduction: &s {latency: 5us}}\n"
        "  - {name: b, bandwidth: 1 GB/s, in_network_reduction: *s}\n"
    )
    ran = run_commcalc(
        "ledger", "job.yaml", "--set", "hardware.network.a.in_network_reduction.latency=1us", "--json", cwd=tmp_path
    )
    levels = ran.json["inputs"]["hardware"]["network"]
    assert [level["in_network_reduction"]["latency_s"] for level in levels] == [1e-6, 5e-6]


def test_a_latency_that_is_already_there_changes_nothing() -> None:
    usual = run_commcalc("ledger", "--json").json["totals"]
    assert run_commcalc("ledger", "--latency", "1.9us", "--json").json["totals"] == usual


def test_null_takes_a_value_away() -> None:
    ran = run_commcalc("ledger", "--set", "model.vocab_size=null", "--json")
    assert {row["sublayer"] for row in ran.json["rows"]} == {"attention", "mlp"}


def test_degrees_refuses_what_it_does_not_ask_for() -> None:
    ran = run_commcalc("degrees", "--set", "parallelism.pp=1000", "--set", "workload.dtype=fp8")
    assert ran.status == 2
    assert "error: degrees does not ask for parallelism.pp" in ran.err
    assert "error: degrees does not ask for workload.dtype" in ran.err
    nothing = run_commcalc("degrees", "--model", "{hidden_size: 3}")
    assert (nothing.status, "error: the model gives nothing that a degree must divide" in nothing.err) == (2, True)


def test_degrees_without_a_legal_one_says_why() -> None:
    ran = run_commcalc("degrees", "--model", "{intermediate_size: 100, quantization_group_size: 128}")
    assert ran.status == 3
    assert "error: tp 1 is not legal for model: 100 FFN columns mod 128 = 100, no whole quantisation groups" in ran.err
