"""The options that commands share, each once: its spelling, its help, and the value of the job that it sets."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, BinaryIO, Optional, TypeVar

import typer

from commcalc.catalog.assign import Assignment
from commcalc.catalog.job import Request
from commcalc.cli.output import Format, send_to
from commcalc.document import Leaf, scalar
from commcalc.errors import SpecError, UnknownName, UsageError


def _text(flag: str, metavar: str, help_text: str, panel: str | None = None) -> Any:
    return typer.Option(flag, metavar=metavar, help=help_text, show_default=False, rich_help_panel=panel)


Text = Optional[str]
Model = Annotated[Text, _text("--model", "NAME|FILE", "Model preset, YAML file, or '{hidden_size: 8192, ...}'.")]
Hardware = Annotated[Text, _text("--hardware", "NAME|FILE", "Hardware preset or YAML file.")]
Tp = Annotated[Text, _text("--tp", "N", "Tensor-parallel degree.")]
Sp = Annotated[
    Optional[bool], typer.Option("--sp/--no-sp", help="Sequence parallelism on the TP axis.", show_default=False)
]
Cp = Annotated[Text, _text("--cp", "N", "Context-parallel degree: sequences are split.")]
CpComm = Annotated[Text, _text("--cp-comm", "NAME", "How ranks see others' keys: ring, all_gather, ulysses [ring].")]
Ep = Annotated[Text, _text("--ep", "N", "Expert-parallel degree, on the ranks of tp, cp and dp.")]
Etp = Annotated[Text, _text("--etp", "N", "Ranks that one expert is split over [Megatron: tp, others 1].")]
Dispatch = Annotated[Text, _text("--dispatch", "NAME", "all_to_all, all_gather or deduplicated [all_to_all].")]
EpNodes = Annotated[Text, _text("--ep-nodes", "N", "Nodes of an expert group: copies go to nodes first [1].")]
NodeLimit = Annotated[Text, _text("--node-limit", "N", "Nodes that a token may go to [all].")]
CapacityFactor = Annotated[Text, _text("--capacity-factor", "X", "Rows an expert takes, over the average [all].")]
Imbalance = Annotated[Text, _text("--imbalance", "X", "Rows the busiest rank gets, over the average [1].")]
DispatchDtype = Annotated[Text, _text("--dispatch-dtype", "DTYPE", "Type in which tokens go to experts [--dtype].")]
ScaleBlock = Annotated[Text, _text("--scale-block", "N", "Elements that share an fp32 scale on the way there [none].")]
CombineDtype = Annotated[Text, _text("--combine-dtype", "DTYPE", "Type in which they come back [--dtype].")]
DpShard = Annotated[Text, _text("--dp-shard", "N", "Ranks that ZeRO 3 shards one copy over [all of dp].")]
Schedule = Annotated[Text, _text("--schedule", "NAME", "1f1b, interleaved, zb1p or dualpipe [1f1b].")]
VirtualStages = Annotated[Text, _text("--virtual-stages", "N", "Chunks of layers on each pipeline stage [1].")]
Reshard = Annotated[
    Optional[bool],
    typer.Option(
        "--reshard/--no-reshard",
        help="ZeRO 3 forgets all parameters after the forward pass, or none [those of blocks].",
        show_default=False,
    ),
]
Bucket = Annotated[Text, _text("--bucket", "SIZE", "Gradients in calls of at most so many bytes, like 25MiB [one].")]
DeferAllReduce = Annotated[
    Optional[bool],
    typer.Option(
        "--defer-all-reduce/--no-defer-all-reduce",
        help="Copies of shards are summed once a step, or in every microbatch.",
        show_default=False,
    ),
]
Devices = Annotated[Text, _text("--devices", "N", "Devices of the job, which the degrees must come to.")]
Pp = Annotated[Text, _text("--pp", "N", "Pipeline stages.")]
Dp = Annotated[Text, _text("--dp", "N", "Data-parallel degree.")]
Zero = Annotated[Text, _text("--zero", "0|1|2|3", "ZeRO stage; 3 is FSDP [0].")]
Layout = Annotated[
    Text, _text("--layout", "NAME", "none, megatron, megatron-sp (= --sp), sequence, 2d or weight-gathered.")
]
TpX = Annotated[Text, _text("--tp-x", "N", "TP ranks that split D in layout 2d [near the optimum].")]
Framework = Annotated[Text, _text("--framework", "NAME", "Whose habits: megatron, torchtitan, hf, vllm or sglang.")]
Order = Annotated[Text, _text("--order", "AXES", "Axes innermost first [tp-cp-ep-dp-pp].")]
Kv = Annotated[Text, _text("--kv", "POLICY", "TP above the KV heads: refuse, replicate or gather.")]
VocabPadding = Annotated[Text, _text("--vocab-padding", "RULE", "megatron (128*tp), vllm (64), sglang or none.")]
Seq = Annotated[Text, _text("--seq", "TOKENS", "Sequence length, like 8192 or 8K [4096].")]
MicroBatch = Annotated[Text, _text("--micro-batch", "N", "Sequences of a microbatch.")]
GlobalBatch = Annotated[Text, _text("--global-batch", "N", "Sequences of a step [micro-batch x dp].")]
DtypeOption = Annotated[Text, _text("--dtype", "DTYPE", "Element type of activations [bf16].")]
GradDtype = Annotated[Text, _text("--grad-dtype", "DTYPE", "Element type gradients are reduced in [fp32].")]
Phase = Annotated[Text, _text("--phase", "PHASE", "train, prefill or decode.")]
Recompute = Annotated[Text, _text("--recompute", "MODE", "none, selective or full.")]
Regather = Annotated[
    Optional[bool],
    typer.Option(
        "--regather/--no-regather",
        help="Save gathered inputs split and gather them again (Megatron), or keep them (PyTorch).",
        show_default=False,
    ),
]
RecomputeModules = Annotated[
    Text, _text("--recompute-modules", "LIST", "What selective recomputation repeats, like core_attn,mlp,moe.")
]
Logits = Annotated[Text, _text("--logits", "WHICH", "Positions that prefill makes logits of: sampled or all.")]
PredictLayers = Annotated[Text, _text("--predict-layers", "N", "Prediction (MTP) layers that are trained too [0].")]
Bandwidth = Annotated[
    Optional[list[str]],
    _text("--bandwidth", "[LEVEL=]RATE", "Replace a level's bandwidth (innermost by default), like 450GB/s."),
]
Latency = Annotated[
    Optional[list[str]], _text("--latency", "[LEVEL=]TIME", "Replace a level's latency of a step, like 3us.")
]
AlgorithmOption = Annotated[Text, _text("--algorithm", "NAME", "auto, ring, in-network, hierarchical, ...")]
ConventionOption = Annotated[Text, _text("--convention", "NAME", "exact, or textbook (drops (n-1)/n).")]
RecomputeLayers = Annotated[Text, _text("--recompute-layers", "N", "Layers that full recomputation runs at once [1].")]
AttentionOption = Annotated[Text, _text("--attention", "KERNEL", "flash, or unfused, which keeps its scores [flash].")]
Dropout = Annotated[
    Optional[bool], typer.Option("--dropout/--no-dropout", help="Masks of dropout are kept [none].", show_default=False)
]
ParamDtype = Annotated[Text, _text("--param-dtype", "DTYPE", "Type in which parameters are stored [--dtype].")]
Optimizer = Annotated[Text, _text("--optimizer", "NAME", "adam, momentum or sgd: 2, 1 or 0 moments [adam].")]
MomentDtype = Annotated[Text, _text("--moment-dtype", "DTYPE", "Type of the optimizer's moments [fp32].")]
MasterDtype = Annotated[Text, _text("--master-dtype", "DTYPE|none", "Type of its copy of the parameters [fp32].")]
MainGradDtype = Annotated[Text, _text("--main-grad-dtype", "DTYPE", "Type of its copy of the gradients [no copy].")]
KvDtype = Annotated[Text, _text("--kv-dtype", "DTYPE", "Type of cached keys and values [--dtype].")]
Offload = Annotated[Text, _text("--offload", "LIST", "What lies on the host, like optimizer,activations.")]
HostMemory = Annotated[Text, _text("--host-memory", "SIZE", "Memory of the host for each device, like 128GB.")]
MustFit = Annotated[
    Optional[bool],
    typer.Option("--must-fit/--no-must-fit", help="A model that does not fit is status 3.", show_default=False),
]
Efficiency = Annotated[Text, _text("--efficiency", "X", "Share of peak FLOP/s that kernels reach, 0 to 1 [1].")]
HbmEfficiency = Annotated[Text, _text("--hbm-efficiency", "X", "Share of the memory's bandwidth, 0 to 1 [1].")]
Overlap = Annotated[Text, _text("--overlap", "GROUPS", "Groups that run beside compute: none, full, or dp,pp [none].")]
CombineOption = Annotated[Text, _text("--combine", "HOW", "Times of overlapping groups: added or largest [added].")]
ScoresOption = Annotated[Text, _text("--scores", "WHICH", "Pairs that attention multiplies: full or causal [full].")]
TrainTokens = Annotated[Text, _text("--train-tokens", "N", "Tokens of a whole run, like 15T: how long it takes.")]
CallLatency = Annotated[
    Text, _text("--call-latency", "TIME", "Fixed cost of a call, in place of the links' latencies, like 90us.")
]
GroupSize = Annotated[Text, _text("--group-size", "N", "Devices that take part.")]
Bytes = Annotated[Text, _text("--bytes", "SIZE", "Payload as nccl-tests counts it, like 128MiB.")]
InNetwork = Annotated[bool, typer.Option("--in-network", help="The switch reduces (NVLS, SHARP).", show_default=False)]
Set = Annotated[
    Optional[list[str]], _text("--set", "PATH=VALUE", "Override any field, like model.num_hidden_layers=4.")
]
FormatOption = Annotated[Text, _text("--format", "FORMAT", "table, json, jsonl, csv or markdown [table].")]
Json = Annotated[bool, typer.Option("--json", help="Short for --format json.", show_default=False)]
OutputOption = Annotated[
    Text,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write there, all or nothing [stdout].",
        show_default=False,
        callback=send_to,
    ),
]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colour on a terminal.", show_default=False)]

# Parameter name of a command: the path of the value it sets, and the option as people write it.
PATHS: Mapping[str, tuple[str, str]] = {
    "tp": ("parallelism.tp", "--tp"),
    "sp": ("parallelism.sp", "--sp"),
    "cp": ("parallelism.cp", "--cp"),
    "cp_comm": ("parallelism.cp_comm", "--cp-comm"),
    "ep": ("parallelism.ep", "--ep"),
    "etp": ("parallelism.etp", "--etp"),
    "dispatch": ("parallelism.dispatch", "--dispatch"),
    "ep_nodes": ("parallelism.ep_nodes", "--ep-nodes"),
    "node_limit": ("parallelism.node_limit", "--node-limit"),
    "capacity_factor": ("workload.capacity_factor", "--capacity-factor"),
    "imbalance": ("workload.imbalance", "--imbalance"),
    "dispatch_dtype": ("workload.dispatch_dtype", "--dispatch-dtype"),
    "scale_block": ("workload.scale_block", "--scale-block"),
    "combine_dtype": ("workload.combine_dtype", "--combine-dtype"),
    "pp": ("parallelism.pp", "--pp"),
    "dp": ("parallelism.dp", "--dp"),
    "devices": ("parallelism.devices", "--devices"),
    "zero": ("parallelism.zero", "--zero"),
    "dp_shard": ("parallelism.dp_shard", "--dp-shard"),
    "schedule": ("parallelism.schedule", "--schedule"),
    "virtual_stages": ("parallelism.virtual_stages", "--virtual-stages"),
    "layout": ("parallelism.layout", "--layout"),
    "tp_x": ("parallelism.tp_x", "--tp-x"),
    "framework": ("parallelism.framework", "--framework"),
    "order": ("parallelism.order", "--order"),
    "kv": ("parallelism.kv", "--kv"),
    "vocab_padding": ("parallelism.vocab_padding", "--vocab-padding"),
    "seq": ("workload.sequence_length", "--seq"),
    "micro_batch": ("workload.micro_batch_size", "--micro-batch"),
    "global_batch": ("workload.global_batch_size", "--global-batch"),
    "dtype": ("workload.dtype", "--dtype"),
    "grad_dtype": ("workload.grad_dtype", "--grad-dtype"),
    "phase": ("workload.phase", "--phase"),
    "recompute": ("workload.recompute", "--recompute"),
    "recompute_modules": ("workload.recompute_modules", "--recompute-modules"),
    "regather": ("workload.regather", "--regather"),
    "logits": ("workload.logits", "--logits"),
    "reshard": ("workload.reshard", "--reshard"),
    "bucket": ("workload.bucket_bytes", "--bucket"),
    "defer_all_reduce": ("workload.defer_all_reduce", "--defer-all-reduce"),
    "predict_layers": ("workload.predict_layers", "--predict-layers"),
    "recompute_layers": ("workload.recompute_layers", "--recompute-layers"),
    "attention": ("workload.attention", "--attention"),
    "dropout": ("workload.dropout", "--dropout"),
    "param_dtype": ("memory.param_dtype", "--param-dtype"),
    "optimizer": ("memory.optimizer", "--optimizer"),
    "moment_dtype": ("memory.moment_dtype", "--moment-dtype"),
    "master_dtype": ("memory.master_dtype", "--master-dtype"),
    "main_grad_dtype": ("memory.main_grad_dtype", "--main-grad-dtype"),
    "kv_dtype": ("memory.kv_dtype", "--kv-dtype"),
    "offload": ("memory.offload", "--offload"),
    "host_memory": ("memory.host_bytes", "--host-memory"),
    "must_fit": ("memory.must_fit", "--must-fit"),
    "efficiency": ("step.efficiency", "--efficiency"),
    "hbm_efficiency": ("step.hbm_efficiency", "--hbm-efficiency"),
    "overlap_groups": ("step.overlap", "--overlap"),
    "combine": ("step.combine", "--combine"),
    "scores": ("step.scores", "--scores"),
    "train_tokens": ("step.train_tokens", "--train-tokens"),
    "call_latency": ("links.call_latency", "--call-latency"),
    "algorithm": ("links.algorithm", "--algorithm"),
    "convention": ("links.convention", "--convention"),
}


# What an option that is on or off says in words.
WORDS: Mapping[str, Mapping[bool, str]] = {"reshard": {True: "all", False: "never"}}
Function = TypeVar("Function", bound=Callable[..., None])


def with_examples(examples: str) -> Callable[[Function], Function]:
    """Put the examples of a command under the first words of its help."""

    def add(function: Function) -> Function:
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{examples}"
        return function

    return add


def request_from(params: Mapping[str, Any]) -> Request:
    """What a command's parameters ask for."""
    assignments = []
    for name, (path, option) in PATHS.items():
        value = params.get(name)
        if value is None:
            continue
        if isinstance(value, bool):
            spelled = option if value else option.replace("--", "--no-", 1)
            assignments.append(Assignment(path, WORDS.get(name, {}).get(value, str(value).lower()), spelled))
        else:
            assignments.append(Assignment(path, value, f"{option} {value[:60]}"))
    for given in params.get("set_") or ():
        path, equals, value = given.partition("=")
        if not equals or not path.strip():
            raise UsageError(f"{given[:60]!r} sets nothing", where=f"--set {given[:60]}", hint="--set PATH=VALUE")
        assignments.append(Assignment(path.strip(), value.strip(), f"--set {given[:60]}"))
    job = params.get("job")
    return Request(
        job=None if job == "-" else job,
        job_text=read_stdin("job") if job == "-" else None,
        model=params.get("model"),
        hardware=params.get("hardware"),
        assignments=assignments,
        bandwidths=params.get("bandwidth") or (),
        latencies=params.get("latency") or (),
    )


def measured_from(given: Sequence[str] | None) -> dict[str, Leaf]:
    """The values of ``--measured FIELD=VALUE`` by field, each once."""
    found: dict[str, Leaf] = {}
    for one in given or ():
        path, equals, value = (part.strip() for part in one.partition("="))
        where = f"--measured {one[:60]}"
        if not equals or not path or not value:
            raise UsageError(f"{one[:60]!r} gives no value", where=where, hint="--measured step.time_s=5.2s")
        if path in found:
            raise UsageError(f"two measured values of {path[:60]}", where=where, hint="give it once")
        found[path] = Leaf(scalar(value), value, where)
    return found


def stdin_of(what: str) -> BinaryIO:
    """Standard input as bytes; ``what`` is read from it."""
    if sys.stdin is None or sys.stdin.closed:
        raise SpecError("there is no standard input", where="-")
    if sys.stdin.isatty():
        from commcalc.cli.output import say

        say(f"reading the {what} from the terminal; end it with Ctrl-D")
    return sys.stdin.buffer


def read_stdin(what: str) -> str:
    """Standard input as text; ``what`` is read from it."""
    from commcalc.document import MAX_BYTES, decode

    try:
        data = stdin_of(what).read(MAX_BYTES + 1)
    except OSError as problem:
        raise SpecError(f"cannot be read: {(problem.strerror or str(problem)).lower()}", where="stdin") from None
    return decode(data or b"", "stdin")  # a pipe that does not block may have nothing


def format_from(params: Mapping[str, Any]) -> Format:
    """The output format; ``--json`` and another ``--format`` contradict each other."""
    given = params.get("format_")
    if given is not None and given not in Format.__members__.values():
        raise UnknownName("format", given, [*Format], where=f"--format {given[:60]}")
    if params.get("json_"):
        if given not in (None, "json"):
            raise UsageError(f"--json and --format {given} contradict each other", where="--json")
        return Format.JSON
    return Format(given or "table")
