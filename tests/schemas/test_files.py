"""Whole files against their schemas: packaged ones hold, wrong ones are refused where the reader refuses them."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from commcalc.catalog import presets
from commcalc.catalog.describe import check_file
from commcalc.document import parse_document, plain
from commcalc.schemas import FILES, schema
from conftest import DATA, ROOT, Inside

# Files that are packaged too; a budget is always one's own.
KINDS = ("job", "model", "hardware")
PACKAGED = [(kind, path) for kind in KINDS for path in sorted((ROOT / "presets" / presets.FOLDERS[kind]).iterdir())]


@cache
def validator(kind: str) -> Draft202012Validator:
    Draft202012Validator.check_schema(schema(kind))
    return Draft202012Validator(schema(kind))


def value_of(text: str) -> Any:
    return plain(parse_document(text, "file"))


def holds(kind: str, text: str) -> bool:
    return validator(kind).is_valid(value_of(text))


def test_there_are_packaged_files_of_every_kind() -> None:
    assert {kind for kind, _ in PACKAGED} == set(KINDS) == set(FILES) - {"budget"}
    assert len(PACKAGED) > 130


@pytest.mark.parametrize("kind", KINDS)
def test_packaged_files_hold(kind: str) -> None:
    for of, path in PACKAGED:
        if of == kind:
            errors = [error.message for error in validator(kind).iter_errors(value_of(path.read_text()))]
            assert errors == [], path


def test_what_the_readme_shows_holds() -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    jobs = [text for text in blocks if re.search(r"^model:", text, re.MULTILINE)]
    machines = [text for text in blocks if "network:" in text and re.search(r"^(name|extends):", text, re.MULTILINE)]
    assert jobs
    assert machines
    assert all(holds("job", text) for text in jobs)
    assert all(holds("hardware", text) for text in machines)


def test_a_config_of_the_hub_is_a_model() -> None:
    for path in sorted((DATA / "configs").glob("*.json")):
        assert validator("model").is_valid(json.loads(path.read_text())), path


MODEL = "{hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4, intermediate_size: 256, vocab_size: 512}"
MACHINE = """\
name: box
chip: {flops: {bf16: 989 TFLOP/s}, hbm: {capacity: 80 GB, bandwidth: 3 TB/s}}
network:
- {name: link, topology: switch, devices: 8, bandwidth: 450 GB/s, latency: 3 us}
"""
LEVEL = "network: [{name: link, bandwidth: 450 GB/s"
POINTS = "8 KiB 16 us, 64 KiB 19 us"
SWEEP = "collective: all_reduce, ranks: 8"

# Files that are taken.
RIGHT = {
    "model": [
        MODEL,
        MODEL.replace("64,", "'64',"),
        MODEL.replace("}", ", sources: {hidden_size: here, vocab_size: 3}, notes: mine, hf_repo: a/b, aliases: [c]}"),
        "{extends: llama-3-70b, num_hidden_layers: 4, intermediate_size: null, max_position_embeddings: 8K}",
        "{extends: llama-3-70b, aliases: []}",
    ],
    "hardware": [
        MACHINE,
        f"{LEVEL}}}]",
        f"{LEVEL}, latency: 0 s, in_network_reduction: {{latency: 25 us, min_ranks: 5, own_copy: false}}}}]",
        f"{LEVEL}, topology: torus, shape: [4, 4], wraparound: [true, false]}}]",
        f"{LEVEL}, topology: torus, shape: 4x4, wraparound: axis-of-16}}]",
        f"{LEVEL}, topology: torus, shape: 16, wraparound: true}}]",
        f"{LEVEL}, topology: torus, shape: [4], pod: [16], wraparound: full-pod}}]",
        f"{LEVEL}, topology: ring, two_way: true, devices: 4}}]",
        f"{LEVEL}, topology: full-mesh, devices: 4, shared_by: 2, oversubscription: '2:1'}}]",
        f"{LEVEL}, algorithms: [ring, one-shot]}}]",
        f"{LEVEL}, algorithms: 'ring, one-shot'}}]",
        f"{LEVEL}, devices: 8, measured: [{{{SWEEP}, points: '{POINTS}'}}]}}]",
        f"{LEVEL}, devices: 8, measured: [{{{SWEEP}, points: [[8 KiB, 16 us], [64 KiB, 19 us]]}}]}}]",
        f"{LEVEL}, devices: 8, measured: [{{{SWEEP}, t0: 10 us, bandwidth: 300 GB/s, sqrt: 5 ns, rows: 4}}]}}]",
        f"{LEVEL}, devices: 8, measured: [{{{SWEEP}, algorithm: one-shot, up_to: 256 KiB, points: '{POINTS}'}}]}}]",
        "{extends: h100-sxm, network: [{name: nvlink, bandwidth: 370 GB/s}]}",
        "{extends: h100-sxm, network: [{name: nvlink, latency: null}], chip: {flops: {fp8: null}}}",
        "{extends: h100-sxm, chip: {hbm: {capacity: 96 GB}}, notes: ours}",
        "{extends: h100-sxm, network: []}",
        f"{LEVEL}, topology: torus, shape: [4], pod: '1.6e1', wraparound: full-pod}}]",
        MACHINE.replace("bf16", "BFloat16"),
        f"{MACHINE}sources: {{chip.flops.bf16: sheet, '*': 3}}",
        f"{MACHINE}aliases: [a, b]\nconfidence: high\n",
    ],
    "job": [
        "model: llama-3-70b",
        "{model: llama-3-70b, hardware: h100-sxm, parallelism: {tp: 8, sp: true}, workload: {sequence_length: 8K}}",
        f"{{model: {MODEL}, parallelism: {{tp: 2}}}}",
        "{model: llama-3-70b, parallelism: null, workload: , memory: {}}",
        "{extends: llama-3-70b-h100, name: null}",
        "{model: llama-3-70b, name: 8}",
        "{model: {extends: llama-3-8b, head_dim: null}, hardware: {extends: h100, chip: {flops: {fp8: null}}}}",
        "{model: llama-3-70b, hardware: h100, step: {overlap: [dp, pp], efficiency: 0.6, train_tokens: 15T}}",
        "{model: llama-3-70b, hardware: h100, step: {overlap: full}, links: {call_latency: 90us, algorithm: ring}}",
        "{model: llama-3-70b, memory: {offload: 'optimizer,weights', host_bytes: 1 TB, master_dtype: none}}",
        "{model: llama-3-70b, workload: {recompute: selective, recompute_modules: [core_attn, mlp]}}",
        "{extends: llama-3-70b-h100, parallelism: {tp: null, dp: 2}, workload: {global_batch_size: null}}",
        "{extends: llama-3-70b-h100, hardware: null, name: mine, notes: ours, sources: {parallelism.dp: us}}",
    ],
}  # fmt: skip
# Files that are refused, with what is wrong in them.
WRONG = {
    "model": {
        "an unknown key": MODEL.replace("vocab_size", "vocabulary"),
        "a list for a number": MODEL.replace("64,", "[64],"),
        "a mapping for a number": MODEL.replace("64,", "{a: 64},"),
        "a truth value for a number": MODEL.replace("64,", "true,"),
        "a number below zero": MODEL.replace("64,", "-64,"),
        "zero": MODEL.replace("64,", "0,"),
        "a number with a unit": MODEL.replace("64,", "64 GB,"),
        "nothing": MODEL.replace("64,", "null,"),
        "text for a truth value": MODEL.replace("}", ", gated_mlp: 'true'}"),
        "an unknown word": MODEL.replace("}", ", norm: batchnorm}"),
        "an unknown word in a list": MODEL.replace("}", ", layer_types: [full_attention, none]}"),
        "an empty list": MODEL.replace("}", ", layer_types: []}"),
        "a word for a list": MODEL.replace("}", ", layer_types: full_attention}"),
        "aliases that are no list": MODEL.replace("}", ", aliases: a}"),
        "no alias": MODEL.replace("}", ", aliases: [null]}"),
        "no alias over another": "{extends: llama-3-70b, aliases: [null]}",
        "an empty alias": MODEL.replace("}", ", aliases: ['']}"),
        "sources that are no mapping": MODEL.replace("}", ", sources: here}"),
        "a source that is no text": MODEL.replace("}", ", sources: {hidden_size: [a]}}"),
        "a list as notes": MODEL.replace("}", ", notes: [a]}"),
        "an empty name": MODEL.replace("}", ", name: ''}"),
        "it extends a list": "{extends: [llama-3-70b]}",
        "it extends nothing": "{extends: '', hidden_size: 64}",
        "a wrong value over another": "{extends: llama-3-70b, hidden_size: wide}",
        "an unknown key over another": "{extends: llama-3-70b, hiden_size: 64}",
    },
    "hardware": {
        "no network": "chip: {flops: {bf16: 1 TFLOP/s}}",
        "a network without levels": "network: []",
        "a network that is no list": "network: {name: link, bandwidth: 1 GB/s}",
        "a level that is no mapping": "network: [link]",
        "no name": "network: [{bandwidth: 450 GB/s}]",
        "no bandwidth": "network: [{name: link}]",
        "an unknown key": f"{MACHINE}power: 700 W",
        "a repository": f"{MACHINE}hf_repo: a/b",
        "an unknown key of the chip": MACHINE.replace("hbm:", "memory:"),
        "an unknown key of the memory": MACHINE.replace("capacity", "size"),
        "an unknown key of a level": MACHINE.replace("latency", "delay"),
        "an unknown type": MACHINE.replace("bf16", "bf17"),
        "a rate without unit": MACHINE.replace("450 GB/s", "450e9"),
        "an unknown unit": MACHINE.replace("450 GB/s", "450 GB/min"),
        "a size for a rate": MACHINE.replace("450 GB/s", "450 GB"),
        "a rate for a size": MACHINE.replace("80 GB", "80 GB/s"),
        "FLOPs without unit": MACHINE.replace("989 TFLOP/s", "989e12"),
        "no rate": MACHINE.replace("450 GB/s", "0 GB/s"),
        "a time without unit": MACHINE.replace("3 us", "3e-6"),
        "a time below zero": MACHINE.replace("3 us", "-3 us"),
        "nothing": MACHINE.replace("3 us", "null"),
        "nothing of the chip": MACHINE.replace("80 GB", "null"),
        "an unknown topology": MACHINE.replace("switch", "star"),
        "a dot in a name": MACHINE.replace("name: link", "name: a.b"),
        "no devices": MACHINE.replace("devices: 8", "devices: 0"),
        "a torus without shape": MACHINE.replace("switch, devices: 8", "torus"),
        "a shape of no torus": MACHINE.replace("devices: 8", "shape: [2, 4]"),
        "a pod of no torus": MACHINE.replace("devices: 8", "pod: [2, 4]"),
        "an empty shape": f"{LEVEL}, topology: torus, shape: []}}]",
        "nine axes": f"{LEVEL}, topology: torus, shape: 1x1x1x1x1x1x1x1x2}}]",
        "a shape of words": f"{LEVEL}, topology: torus, shape: [a, b]}}]",
        "an unknown wraparound": f"{LEVEL}, topology: torus, shape: [4], wraparound: some}}]",
        "a full mesh of any size": f"{LEVEL}, topology: full-mesh}}]",
        "a switch with two ways": MACHINE.replace("devices: 8", "two_way: true"),
        "an unknown algorithm": MACHINE.replace("devices: 8", "algorithms: [fast]"),
        "no algorithm": MACHINE.replace("devices: 8", "algorithms: [auto]"),
        "a ratio below 1": MACHINE.replace("devices: 8", "oversubscription: 0.5"),
        "a reduction of words": MACHINE.replace("devices: 8", "in_network_reduction: sharp"),
        "an unknown key of a reduction": MACHINE.replace("devices: 8", "in_network_reduction: {ranks: 5}"),
        "sweeps that are no list": f"{LEVEL}, measured: {{{SWEEP}}}}}]",
        "a sweep without points": f"{LEVEL}, devices: 8, measured: [{{{SWEEP}}}]}}]",
        "a sweep of nothing": f"{LEVEL}, devices: 8, measured: [{{ranks: 8, points: '{POINTS}'}}]}}]",
        "a sweep of no group": f"{LEVEL}, measured: [{{collective: all_reduce, points: '{POINTS}'}}]}}]",
        "points and a law": f"{LEVEL}, measured: [{{{SWEEP}, points: '{POINTS}', t0: 1 us, bandwidth: 1 GB/s}}]}}]",
        "half a law": f"{LEVEL}, devices: 8, measured: [{{{SWEEP}, bandwidth: 300 GB/s}}]}}]",
        "one point": f"{LEVEL}, devices: 8, measured: [{{{SWEEP}, points: 8 KiB 16 us}}]}}]",
        "points without unit": f"{LEVEL}, devices: 8, measured: [{{{SWEEP}, points: [[1, 16 us], [2, 19 us]]}}]}}]",
        "a measured slice": f"{LEVEL}, devices: 8, measured: [{{collective: slice, ranks: 8, points: '{POINTS}'}}]}}]",
        "no kernel": f"{LEVEL}, devices: 8, measured: [{{{SWEEP}, algorithm: ring, points: '{POINTS}'}}]}}]",
        "a level over another without name": "{extends: h100-sxm, network: [{bandwidth: 370 GB/s}]}",
        "a wrong value over another": "{extends: h100-sxm, network: [{name: nvlink, bandwidth: 370}]}",
    },
    "job": {
        "an unknown section": "{model: llama-3-70b, paralelism: {tp: 8}}",
        "an unknown key": "{model: llama-3-70b, parallelism: {tensor: 8}}",
        "a section that is no mapping": "{model: llama-3-70b, parallelism: [tp, 8]}",
        "text for a section": "{model: llama-3-70b, parallelism: tp}",
        "an empty name": "{model: llama-3-70b, name: ''}",
        "a list of names": "{model: llama-3-70b, name: [a]}",
        "a list of models": "{model: [llama-3-70b]}",
        "no model": "{model: null}",
        "no machine": "{model: llama-3-70b, hardware: null}",
        "a list of machines": "{model: llama-3-70b, hardware: [h100]}",
        "a truth value for a degree": "{model: llama-3-70b, parallelism: {tp: true}}",
        "a degree of zero": "{model: llama-3-70b, parallelism: {tp: 0}}",
        "nothing": "{model: llama-3-70b, parallelism: {tp: null}}",
        "an unknown layout": "{model: llama-3-70b, parallelism: {layout: 5d}}",
        "an order that leaves axes out": "{model: llama-3-70b, parallelism: {order: tp-dp}}",
        "zero 4": "{model: llama-3-70b, parallelism: {zero: 4}}",
        "an unknown phase": "{model: llama-3-70b, workload: {phase: finetune}}",
        "an unknown type": "{model: llama-3-70b, workload: {dtype: bf17}}",
        "a size without unit": "{model: llama-3-70b, workload: {bucket_bytes: 25000000}}",
        "an unknown module": "{model: llama-3-70b, workload: {recompute_modules: [attention]}}",
        "an efficiency above 1": "{model: llama-3-70b, hardware: h100, step: {efficiency: 60}}",
        "none beside groups": "{model: llama-3-70b, hardware: h100, step: {overlap: 'dp,none'}}",
        "none in a list of groups": "{model: llama-3-70b, hardware: h100, step: {overlap: [dp, none]}}",
        "a time without unit": "{model: llama-3-70b, hardware: h100, links: {call_latency: 90}}",
        "confidence": "{model: llama-3-70b, confidence: high}",
        "a wrong model": f"{{model: {MODEL.replace('64,', 'wide,')}}}",
        "an unknown key of the model": f"{{model: {MODEL.replace('vocab_size', 'vocabulary')}}}",
        "nothing in the model": f"{{model: {MODEL.replace('64,', 'null,')}}}",
        "a machine without network": "{model: llama-3-70b, hardware: {name: box}}",
        "a wrong link": "{model: llama-3-70b, hardware: {network: [{name: link, bandwidth: 450}]}}",
        "a wrong value over another": "{extends: llama-3-70b-h100, parallelism: {tp: many}}",
        "an unknown section over another": "{extends: llama-3-70b-h100, paralelism: {tp: 8}}",
    },
}  # fmt: skip
# Refused by the reader alone, which knows numbers and other files.
BEYOND = {
    "model": {
        "heads that the width does not divide into": MODEL.replace("num_attention_heads: 4", "num_attention_heads: 5"),
        "more layers with experts than layers": MODEL.replace("}", ", num_experts: 4, moe_layers: 3}"),
        "a preset that is not there": "extends: nothing-like-it",
    },
    "hardware": {
        "levels in the wrong order": "network: [{name: a, devices: 8, bandwidth: 1 GB/s}, {name: b, devices: 4, "
        "bandwidth: 1 GB/s}]",
        "two levels of one name": "network: [{name: a, devices: 8, bandwidth: 1 GB/s}, {name: a, bandwidth: 1 GB/s}]",
        "points that shrink": f"{LEVEL}, devices: 8, measured: [{{{SWEEP}, points: '64 KiB 19 us, 8 KiB 16 us'}}]}}]",
        "an algorithm of another topology": MACHINE.replace("devices: 8", "algorithms: [torus]"),
    },
    "job": {
        "an unknown model": "model: llama-33-70b",
        "devices that degrees do not come to": "{model: llama-3-70b, step: {efficiency: 0.5}}",
    },
}  # fmt: skip


def refused(kind: str, text: str, folder: Path) -> bool:
    path = folder / "file.yaml"
    path.write_text(text)
    return bool(check_file(str(path), kind)[2])


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind in KINDS for text in RIGHT[kind]])
def test_what_is_taken_holds(kind: str, text: str, tmp_path: Path) -> None:
    assert not refused(kind, text, tmp_path)
    assert [error.message for error in validator(kind).iter_errors(value_of(text))] == []


@pytest.mark.parametrize(("kind", "what"), [(kind, what) for kind in KINDS for what in WRONG[kind]])
def test_what_is_wrong_is_refused_by_both(kind: str, what: str, tmp_path: Path) -> None:
    assert refused(kind, WRONG[kind][what], tmp_path)
    assert not holds(kind, WRONG[kind][what])


@pytest.mark.parametrize(("kind", "what"), [(kind, what) for kind in KINDS for what in BEYOND[kind]])
def test_what_no_schema_can_know(kind: str, what: str, tmp_path: Path) -> None:
    assert refused(kind, BEYOND[kind][what], tmp_path)
    assert holds(kind, BEYOND[kind][what])


GPT = "{model: gpt3-175b, hardware: h100, parallelism: {tp: 8}}"
LIMIT = "limits: {totals.block.tp.wire_bytes: {max: 1 GB}}"
RIGHT_BUDGETS = [
    f"job: {GPT}\n{LIMIT}",
    f"job: llama-3-70b-h100\n{LIMIT}",
    f"jobs: [llama-3-70b-h100, {GPT}]\n{LIMIT}",
    f"schema: commcalc/budget/1\nname: x\nnotes: [a, b]\njobs: {{training: {GPT}}}\n{LIMIT}",
    f"job: {GPT}\nlimits: {{levels.tp: {{only: nvlink}}, warnings: {{none: [tp-crosses-level]}}}}",
    f"job: {GPT}\nlimits: {{totals.step.tp.count: {{measured: 1960, max: 2000}}}}",
    f"job: {GPT}\nlimits: {{step.time_s: {{measured: 8 s, tolerance: 1000%}}, memory.fits: {{none: [false]}}}}",
]
WRONG_BUDGETS = [
    LIMIT,
    f"job: {GPT}",
    f"job: {GPT}\nlimits: {{}}",
    f"jobs: []\n{LIMIT}",
    f"job: {GPT}\njobs: [gpt3]\n{LIMIT}",
    f"job: 5\n{LIMIT}",
    f"job: {GPT}\nlimit: {{}}\n{LIMIT}",
    f"schema: commcalc/budget/2\njob: {GPT}\n{LIMIT}",
    f"job: {GPT}\nlimits: {{step.mfu: {{}}}}",
    f"job: {GPT}\nlimits: {{step.mfu: 0.5}}",
    f"job: {GPT}\nlimits: {{step.mfu: {{most: 0.5}}}}",
    f"job: {GPT}\nlimits: {{step.mfu: {{max: }}}}",
    f"job: {GPT}\nlimits: {{step.mfu: {{tolerance: 10%}}}}",
    f"job: {GPT}\nlimits: {{step.mfu: {{measured: 0.5}}}}",
    f"job: {GPT}\nlimits: {{warnings: {{none: []}}}}",
    f"job: {{model: gpt3-175b, hardwear: h100}}\n{LIMIT}",
    f"job: {{model: gpt3-175b, parallelism: {{tp: 0}}}}\n{LIMIT}",
]


@pytest.mark.parametrize("text", RIGHT_BUDGETS)
def test_a_budget_that_is_read_holds(text: str, inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "budget.yaml").write_text(text)
    ran = inside("check", str(tmp_path / "budget.yaml"), "--json")
    assert ran.status in (0, 1), ran.err
    assert holds("budget", text)


@pytest.mark.parametrize("text", WRONG_BUDGETS)
def test_a_budget_that_is_refused_does_not(text: str, inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "budget.yaml").write_text(text)
    assert inside("check", str(tmp_path / "budget.yaml")).status == 2
    assert not holds("budget", text)


def test_budgets_of_the_readme_and_the_tests_hold() -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    budgets = [text for text in blocks if re.search(r"^limits:", text, re.MULTILINE)]
    assert budgets
    assert all(holds("budget", text) for text in [*budgets, (DATA / "budget.yaml").read_text()])
