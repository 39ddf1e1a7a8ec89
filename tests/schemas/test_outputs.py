"""What commands write, against the schemas: documents, lines of jsonl and columns of csv, of many commands and options.

Schemas are strict: a field that is added, left out or of another type is noticed, which the last tests make sure of.
"""

from __future__ import annotations

import copy
import csv
import io
import json
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from commcalc.catalog import presets
from commcalc.schemas import NAMES, OUTPUTS, document, has_lines, schema
from conftest import DATA, ROOT, Inside

LOG = str(DATA / "logs" / "17_per_iteration_2.19_h100x8.txt")
JOBS, HARDWARE, MODELS = (presets.names(kind) for kind in ("job", "hardware", "model"))
# What few machines have: switches whose own sums are no copy, shared ports, rings of two ways.
OWN_MACHINE = (
    "{name: own, chip: {flops: {bf16: 1 TFLOP/s}}, network: [{name: a, devices: 8, bandwidth: 9 GB/s, shared_by: 2, "
    "oversubscription: 2, algorithms: [ring], in_network_reduction: {own_copy: false}}, "
    "{name: b, topology: ring, two_way: true, devices: 32, bandwidth: 1 GB/s}]}"
)
LOGS = sorted(path for path in (DATA / "logs").glob("[01]*") if path.name[:2] not in ("14", "15"))
_MESH = "--mesh X=4 --dim I=8K,J=8K,K=8K"
_TENSOR = "--mesh X=4 --dim I=8K,J=8K"
# By the name of the schema; each is written as JSON, jsonl and csv.
COMMANDS: Mapping[str, list[str]] = {
    "ledger": [
        *(f"ledger {job}" for job in JOBS),
        "ledger --model gpt2",
        "ledger --model '{hidden_size: 8192, num_hidden_layers: 10}' --tp 8",
        "ledger --model '{hidden_size: 8192, num_hidden_layers: 10}' --tp 8 --bandwidth 450GB/s --latency 3us",
        "ledger --tensors",
        "ledger --model llama-3-8b --hardware h100 --tp 4 --layout 2d --tp-x 2 --ranks",
        "ledger --model llama-3-8b --tp 4 --layout weight-gathered --micro-batch 4 --tensors",
        "ledger --ranks",
        "ledger --model gpt3-175b --hardware h100 --tp 16 --ranks",
        "ledger --model llama-3-8b --tp 2 --ranks",
        "ledger --phase decode",
        "ledger --phase decode --tensors --model deepseek-v3 --hardware h200 --tp 8",
        "ledger --phase prefill --framework vllm --model mixtral-8x7b --hardware mi300x --tp 4",
        "ledger --model llama-3-8b --dp 8 --zero 3 --global-batch 8 --train-tokens 15T --hardware h100",
        "ledger --model llama-3-70b --dp 16 --zero 3 --dp-shard 8 --global-batch 16 --hardware h100",
        "ledger --model llama-3-70b --pp 8 --schedule interleaved --virtual-stages 5 --global-batch 64 --hardware h100",
        "ledger --model llama-3-70b --tp 8 --sp --cp 4 --seq 131072 --cp-comm all_gather --hardware b200",
        "ledger --tp 16 --kv replicate --convention textbook --algorithm ring",
        "ledger --offload optimizer,activations --host-memory 256GB --overlap dp,pp --efficiency 0.6 --scores causal",
        "ledger --recompute selective --recompute-modules mlp --master-dtype none --optimizer sgd --call-latency 90us",
        "ledger --hardware tpu-v5p",
        f"ledger --hardware '{OWN_MACHINE}'",
        "ledger --hardware tpu-v2 --dtype bf16",
        "ledger --hardware gb200 --tp 8",
    ],
    "compare": [
        "compare --model llama-3-70b --hardware h100 --tp 1,2,3,8 --baseline tp=2",
        "compare --model llama-3-8b,mixtral-8x7b --tp 2",
        "compare --model llama-3-8b --hardware h100 --tp 4 --layout 2d,sequence,weight-gathered --micro-batch 8",
        "compare --model llama-3-70b --hardware h100,tpu-v5p --tp 16 --phase decode",
        "compare --model llama-3-8b --hardware h100 --pp 2,4 --dp 2 --zero 1 --global-batch 8",
    ],
    "sweep": [
        "sweep --model llama-3-70b --hardware h100,a100 --tp 3,4,8 --sp",
        "sweep --model llama-3-8b --tp 2,3 --seq 1K,2K --columns reason,memory.fits,step.mfu,inputs.workload.dtype",
    ],
    "check": [
        "check tests/data/budget.yaml",
        "check tests/data/budget.yaml --measured totals.step.tp.count=1960",
    ],
    "record": [
        "record llama-3-70b-h100",
        "record llama-3-70b-h100 --measured step.time_s=13.3s --measured correctness.loss=2.5",
        "record --model mixtral-8x7b --tp 2",
    ],
    "record-compare": ["record compare tests/data/records/tp2.yaml tests/data/records/tp4.yaml"],
    "solve": [
        "solve tp --model llama-3-70b --hardware h100 --sp",
        "solve tp --model llama-3-70b --hardware h100 --tp 1..4 --sublayer mlp --pass forward",
        "solve tp --model llama-3-70b --hardware h100 --phase decode",
        "solve batch --model llama-3-8b --hardware h100 --dp 64 --zero 3",
        "solve mix --model llama-3-8b --hardware h100 --devices 16 --zero 3",
        "solve bandwidth --model llama-2-70b --tp 2 --seq 2K --time 13.3s",
    ],
    "matmul": [
        f"matmul 'A[I, J_X] @ B[J, K]' {_MESH}",
        f"matmul 'A[I, J_X] @ B[J_X, K]' {_MESH} --hardware h100 --grad --all",
        f"matmul 'A[I_X, J] @ B[J, K_X]' {_MESH} --sub-axes --notation spec",
        "matmul 'A[I_X, J] @ B[J, K]' --mesh X=3 --dim I=8,J=8,K=8 --pad --dtype fp8",
        "matmul 'relu(In[B, D] @ Win[D, F_X]) @ Wout[F_X, D]' --mesh X=8 --dim B=4K,D=8K,F=28K --hardware h100 --grad",
        f"matmul 'A[I, J] @ B[J, K]' {_MESH} --hardware tpu-v5e --overlap collective-matmul",
    ],
    "reshard": [
        f"reshard 'A[I_X, J] -> A[I, J_X]' {_TENSOR}",
        f"reshard 'C[I, J]{{U_X}} -> C[I_X, J]' {_TENSOR} --hardware h100 --sub-axes",
        f"reshard 'A[I, J] -> A[I_X, J]' {_TENSOR} --notation spec",
    ],
    "shard": [
        f"shard 'A[I_X, J]' {_TENSOR}",
        f"shard 'A[I, J]{{U_X}}' {_TENSOR} --dtype int8",
        "shard 'A[I_X]' --mesh X=3 --dim I=8 --pad",
    ],
    "collective": [
        "collective all_reduce --bytes 8MiB --group-size 8 --hardware h100",
        "collective all_reduce --bytes 1GiB --group-size 512 --hardware gb200",
        "collective all_gather --bytes 8MiB --mesh X=4,Y=4,Z=4 --axes X,Z --hardware tpu-v4 --shape 4x4x4",
        "collective all_to_all --bytes 1MB --group-size 4 --bandwidth 1GB/s",
        f"collective all_reduce --bytes 1MB --group-size 16 --hardware '{OWN_MACHINE}'",
        "collective send_recv --bytes 0 --group-size 2 --hardware a100",
        "collective broadcast --bytes 8MiB --group-size 1 --hardware h100",
        "collective 'A[I_X] -> A[I]' --mesh X=8 --dim I=8K --hardware h100",
        "collective --bytes 64MiB --group-size 16 --hardware h100",
    ],
    "busbw": [
        "busbw all_reduce --group-size 8 --busbw 480GB/s --in-network",
        "busbw all_reduce --group-size 8 --bytes 1GiB --time 5.07ms --hardware h100",
        "busbw all_gather --group-size 8 --algbw 900GB/s --link 900GB/s --both-ways",
        "busbw gather --group-size 1 --bytes 0 --time 1us",
    ],
    "calibrate": [f"calibrate {LOG} --hardware h100", *(f"calibrate {log}" for log in LOGS)],
    "calibrate-compare": [f"calibrate --compare h100 {LOG}", f"calibrate --compare h100 {LOG} --tolerance 1%"],
    "acceptance": [
        *(f"calibrate --plan {job}" for job in JOBS),
        "calibrate --plan llama-3-70b-h100 --set parallelism.tp=1",
    ],
    "degrees": [
        "degrees --model llama-3-70b",
        "degrees --model llama-2-13b --tp 1..16",
        "degrees --model qwen2.5-7b --framework vllm",
        "degrees --model phi-3-medium --phase decode --tp 2,4,8",
        "degrees --model llama-3-8b --tp 3",
        "degrees --model '{num_attention_heads: 40}' --tp 4",
    ],
    "verify": [
        "verify 'A[I, J_X] @ B[J, K] -> C[I, K]' --mesh X=4",
        "verify 'A[I_X, J] -> A[I, J_X]' --mesh X=4",
        "verify --model gpt2 --layout megatron --tp 2",
    ],
    "preset": [f"presets show {name}" for name in (*JOBS, "h100-sxm", "tpu-v5p", "mixtral-8x7b", "gemma-3-27b")],
    "presets": ["presets list", "presets list nothing-like-it", "presets list --kind model"],
    "validation": ["presets validate presets/jobs", "presets validate README.md presets/hardware/h100-sxm.yaml"],
    "schemas": ["schema"],
    "error": [
        "ledger --tp 3",
        "ledger --tp x --pp y",
        "ledger --nothing",
        "ledger nothing-like-it",
        "matmul 'A[I,' --mesh X=4",
        "schema nothing",
    ],
}  # fmt: skip
# What is written as lines alone.
LINES_ALONE = {"sweep"}
# With what csv and jsonl have no place for, or with several tables: JSON alone.
DOCUMENTS: Mapping[str, list[str]] = {
    "ledger": [
        "ledger --explain --tensors --ranks",
        *(f"ledger --model {name}" for name in MODELS if name != "gpt2"),
    ],
    "matmul": [f"matmul 'A[I, J_X] @ B[J, K]' {_MESH} --explain --grad --hardware h100"],
    "reshard": [f"reshard 'A[I_X, J] -> A[I, J_X]' {_TENSOR} --explain"],
    "shard": [f"shard 'A[I_X, J]' {_TENSOR} --explain"],
    "collective": [
        "collective all_reduce --bytes 8MiB --group-size 16 --hardware h100 --explain",
        *(f"collective all_reduce --bytes 8MiB --group-size 4 --hardware {name}" for name in HARDWARE),
        *(f"collective --bytes 64MiB --group-size 2 --hardware {name}" for name in HARDWARE),
    ],
    "preset": [f"presets show {name}" for name in (*HARDWARE, *MODELS)],
    "busbw": ["busbw all_reduce --group-size 8 --bytes 1GiB --time 5.07ms --explain"],
    "verify": ["verify 'A[I, J_X] @ B[J, K] -> C[I, K]' --mesh X=4 --explain"],
}  # fmt: skip


@cache
def validator(name: str, *, lines: bool = False) -> Draft202012Validator:
    return Draft202012Validator(schema(name, lines=lines))


def wrong(name: str, value: object, *, lines: bool = False) -> list[str]:
    """What is wrong with a document, each with its place."""
    if validator(name, lines=lines).is_valid(value):
        return []
    return [
        f"{list(one.path)}: {one.message[-300:]}"
        for error in validator(name, lines=lines).iter_errors(value)
        for one in (error, *error.context)
    ]


def run_in(inside: Inside, command: str, style: str) -> str:
    ran = inside(*shlex.split(command), "--format", style)
    assert "Traceback" not in ran.err
    return ran.out


def test_every_schema_is_one_of_the_draft() -> None:
    for name in NAMES:
        Draft202012Validator.check_schema(schema(name))
        if has_lines(name):
            Draft202012Validator.check_schema(schema(name, lines=True))


def test_every_output_is_written_here() -> None:
    assert COMMANDS.keys() == OUTPUTS.keys()


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def asked() -> Iterator[tuple[str, str]]:
    for name, commands in COMMANDS.items():
        yield from ((name, command) for command in commands)


@pytest.mark.parametrize(("name", "command"), [*asked()])
def test_documents_lines_and_columns(name: str, command: str, inside: Inside) -> None:
    if name not in LINES_ALONE:
        found = json.loads(run_in(inside, command, "json"))
        assert wrong(name, found) == []
        assert found.get("schema") == document(name).number
    if not has_lines(name):
        return
    lines = [json.loads(line) for line in run_in(inside, command, "jsonl").splitlines()]
    assert [problem for line in lines for problem in wrong(name, line, lines=True)] == []
    if name != "error":
        table = list(csv.reader(io.StringIO(run_in(inside, command, "csv"))))
        if name == "compare":  # nested: its columns are paths
            lines = [flat(line) for line in lines]
            columns = dict.fromkeys(key for line in lines for key in line)
            assert sorted(table[0]) == sorted(columns)
            lines = [{key: line.get(key) for key in table[0]} for line in lines]
        assert table[:1] == [[*line] for line in lines[:1]]
        cells = [zip(row, line.values(), strict=True) for row, line in zip(table[1:], lines, strict=True)]
        assert [[told(*pair) for pair in row] for row in cells] == [[*line.values()] for line in lines]


def flat(line: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Every value of a nested line by its path; a list of words as one text."""
    found: dict[str, Any] = {}
    for key, value in line.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{before}{key}.")
        else:
            found[before + key] = " ".join(value) if isinstance(value, list) else value
    return found


def told(cell: str, value: object) -> object:
    """What a cell of csv says: text as it is, nothing for null, all else as JSON."""
    return (cell or None) if value is None else cell if isinstance(value, str) else json.loads(cell)


@pytest.mark.parametrize(("name", "command"), [(name, one) for name, found in DOCUMENTS.items() for one in found])
def test_documents(name: str, command: str, inside: Inside) -> None:
    found = json.loads(run_in(inside, command, "json"))
    assert wrong("error" if "error" in found else name, found) == []


def objects(node: object) -> Iterator[Mapping[str, Any]]:
    """Every object with fixed fields that a schema has."""
    if isinstance(node, Mapping):
        if "properties" in node:
            yield node
        for inner in node.values():
            yield from objects(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from objects(inner)


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_are_strict_and_every_field_is_told(name: str) -> None:
    for one in objects(schema(name)):
        assert (one["additionalProperties"] is False) == (name not in LINES_ALONE)
        assert set(one["required"]) <= set(one["properties"])
        for field, told in one["properties"].items():
            assert told == {} or {"description", "$ref", "const"} & told.keys(), field


@pytest.mark.parametrize("name", OUTPUTS)
def test_numbers_tell_their_unit(name: str) -> None:
    endings = {
        "_bytes": "in bytes",
        "_bytes_per_s": "in bytes per second",
        "_s": "in seconds",
        "_per_s": "per second",
        "_days": "in days",
    }
    for one in objects(schema(name)):
        for field, told in one["properties"].items():
            kind = told.get("type", ())
            if {"integer", "number"} & set([kind] if isinstance(kind, str) else kind):
                ending = next((each for each in sorted(endings, key=len, reverse=True) if field.endswith(each)), None)
                assert ending is None or endings[ending] in told["description"], field


# One document of each sort, for the mutations.
SAMPLES = {name: commands[0] for name, commands in COMMANDS.items() if name not in LINES_ALONE} | {
    "ledger": "ledger --explain --tensors --ranks",
    "preset": "presets show h100",
    "matmul": f"matmul 'A[I, J_X] @ B[J, K]' {_MESH} --grad --hardware h100",
    "calibrate": f"calibrate {LOGS[0]}",
}


def thinned(value: Any) -> Any:
    """The same with the first item of each list."""
    if isinstance(value, dict):
        return {key: thinned(inner) for key, inner in value.items()}
    return [thinned(value[0])] if isinstance(value, list) and value else value


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every mapping."""
    if isinstance(value, dict):
        yield path
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from places(inner, (*path, at))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


# Mappings whose keys are data, and fields that not every record has.
DATA_KEYS = {
    "block", "stage", "step", "totals", "blocks", "exposed", "sizes", "sources", "flops", "mesh", "dims", "padding",
    "combination", "levels", "crossing_bytes", "ratios", "best",
    "cases", "compute_bound_above", "passes", "flops_per_hbm_byte", "flops_per_network_byte", "hardware",
}  # fmt: skip
NOT_ALWAYS = {
    "explain", "tensors", "ranks", "blocks", "mirror", "gradient", "measured", "points", "own_copy", "algorithms",
    "step", "sublayers", "pass", "microbatches", "formula", "t0_s", "c_s_per_sqrt_byte", "bandwidth_bytes_per_s",
    "ratios", "aliases", "confidence", "notes", "hf_repo", "axes", "family",
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_a_field_that_is_added_or_left_out_is_noticed(name: str, inside: Inside) -> None:
    whole = thinned(json.loads(run_in(inside, SAMPLES[name], "json")))
    assert wrong(name, whole) == []
    added, left_out = [], []
    for path in places(whole):
        changed = copy.deepcopy(whole)
        at(changed, path)["new_field"] = 1
        if validator(name).is_valid(changed):
            added.append(path)
        for key in at(whole, path):
            changed = copy.deepcopy(whole)
            del at(changed, path)[key]
            if validator(name).is_valid(changed):
                left_out.append((*path, key))
    assert [path for path in added if not DATA_KEYS & {*path[-2:]}] == []
    assert [path for path in left_out if path[-1] not in NOT_ALWAYS and not DATA_KEYS & {*path[-3:-1]}] == []


def test_a_line_of_a_sweep_has_its_results(inside: Inside) -> None:
    line = json.loads(run_in(inside, "sweep --model llama-3-8b --tp 2", "jsonl").splitlines()[0])
    assert wrong("sweep", line, lines=True) == wrong("sweep", line) == []
    for key in line:
        assert wrong("sweep", {name: value for name, value in line.items() if name != key}, lines=True), key
    assert wrong("sweep", line | {"tp": [2]}) and wrong("sweep", line | {"memory_bytes": -1})


def test_the_number_of_a_document_is_fixed(inside: Inside) -> None:
    for name, command in SAMPLES.items():
        found = json.loads(run_in(inside, command, "json"))
        if "schema" in found:
            assert wrong(name, found | {"schema": found["schema"].replace("/1", "/2")})
