"""The groups by rank, against the examples in Megatron-LM's docstrings and groups written out by hand.

Source: Megatron-LM core/parallel_state.py, 00caa53a, docstrings of ``initialize_model_parallel`` (16 GPUs, and context
parallelism on 8) and of ``generate_masked_orthogonal_rank_groups``.
"""

from __future__ import annotations

from typing import Any

import pytest

from commcalc.accounting.ledger import build
from commcalc.accounting.pricing import placement_of
from commcalc.accounting.ranks import groups_of, rank_groups
from commcalc.catalog.assign import Assignment
from commcalc.catalog.job import Job, Request, resolve_job
from conftest import Inside, ask

MEGATRON: list[tuple[dict[str, object], dict[str, list[list[int]]]]] = [
    # "Let's say we have a total of 16 GPUs ... 2 GPUs to parallelize the model tensor, and 4 ... the model pipeline"
    (
        {"tp": 2, "dp": 2, "pp": 4},
        {
            "tp": [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [12, 13], [14, 15]],
            "dp": [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]],
            "pp": [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]],
        },
    ),
    # "if the gpu size is 8 and order is 'tp-pp-dp', size is '2-2-2', ... the dp_group here is"
    ({"tp": 2, "pp": 2, "dp": 2, "order": "tp-cp-ep-pp-dp"}, {"dp": [[0, 4], [1, 5], [2, 6], [3, 7]]}),
    # "8 GPUs, ... tensor model parallel size is 4 and context parallel size is 2"
    ({"tp": 4, "cp": 2}, {"cp": [[0, 4], [1, 5], [2, 6], [3, 7]]}),
]

BY_HAND: list[tuple[dict[str, object], dict[str, list[list[int]]]]] = [
    # rank = tp + 4 dp + 8 pp
    (
        {"tp": 4, "dp": 2, "pp": 2},
        {
            "tp": [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]],
            "dp": [[0, 4], [1, 5], [2, 6], [3, 7], [8, 12], [9, 13], [10, 14], [11, 15]],
            "pp": [[0, 8], [1, 9], [2, 10], [3, 11], [4, 12], [5, 13], [6, 14], [7, 15]],
        },
    ),
    # rank = dp + 2 tp + 8 pp
    (
        {"tp": 4, "dp": 2, "pp": 2, "order": "dp-tp-cp-ep-pp"},
        {
            "dp": [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [12, 13], [14, 15]],
            "tp": [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]],
            "pp": [[0, 8], [1, 9], [2, 10], [3, 11], [4, 12], [5, 13], [6, 14], [7, 15]],
        },
    ),
    # Gradients are summed over dp and cp together: rank = tp + 2 cp + 4 dp.
    (
        {"tp": 2, "cp": 2, "dp": 2},
        {
            "tp": [[0, 1], [2, 3], [4, 5], [6, 7]],
            "cp": [[0, 2], [1, 3], [4, 6], [5, 7]],
            "dp": [[0, 4], [1, 5], [2, 6], [3, 7]],
            "dp-cp": [[0, 2, 4, 6], [1, 3, 5, 7]],
        },
    ),
    # Shards lie next to one another, copies apart: rank = shard + 2 replica.
    (
        {"tp": 1, "dp": 4, "zero": 3, "dp_shard": 2},
        {"dp": [[0, 1, 2, 3]], "dp_shard": [[0, 1], [2, 3]], "dp_replica": [[0, 2], [1, 3]]},
    ),
    # 8 KV heads on 16 ranks: neighbours hold the same one.
    (
        {"tp": 16, "kv": "replicate"},
        {"tp": [list(range(16))], "tp_replica": [[2 * head, 2 * head + 1] for head in range(8)]},
    ),
    ({"tp": 1}, {}),
]


def asked(hardware: str | None = None, **degrees: object) -> Job:
    """A job of llama-3-70b with these degrees."""
    values = [Assignment(f"parallelism.{name}", str(value), f"--{name}") for name, value in degrees.items()]
    return resolve_job(Request(model="llama-3-70b", hardware=hardware, assignments=values))


def records(hardware: str | None = None, **degrees: object) -> tuple[dict[str, Any], ...]:
    """Records of the groups of llama-3-70b."""
    job = asked(hardware, **degrees)
    ledger = build(job.model, job.parallel, job.work)
    return rank_groups(ledger, job.hardware.network if job.hardware else None)


def by_kind(found: tuple[dict[str, Any], ...]) -> dict[str, list[list[int]]]:
    """The ranks of every group, by kind."""
    kinds: dict[str, list[list[int]]] = {}
    for record in found:
        assert record["index"] == len(kinds.setdefault(record["group"], []))
        kinds[record["group"]].append(record["ranks"])
    return kinds


@pytest.mark.parametrize(("degrees", "groups"), MEGATRON)
def test_groups_are_those_of_megatrons_examples(degrees: dict[str, object], groups: dict[str, list[list[int]]]) -> None:
    found = by_kind(records(**degrees))
    assert {name: found[name] for name in groups} == groups


def test_the_dp_groups_of_megatrons_equation() -> None:
    """tp 2, dp 3, pp 4: "dp_group[0] = [0, 2, 4], dp_group[1] = [1, 3, 5], ..., dp_group[7] = [19, 21, 23]"."""
    found = by_kind(records(tp=2, dp=3, pp=4))["dp"]
    assert (len(found), found[0], found[1], found[7]) == (8, [0, 2, 4], [1, 3, 5], [19, 21, 23])


@pytest.mark.parametrize(("degrees", "groups"), BY_HAND)
def test_groups_by_hand(degrees: dict[str, object], groups: dict[str, list[list[int]]]) -> None:
    found = by_kind(records(**degrees))
    assert found == groups
    world = sorted(rank for group in groups.get("tp", []) for rank in group)
    for kind in found.values():  # each kind holds every rank once
        assert sorted(rank for group in kind for rank in group) == (world or [0, 1, 2, 3])


def test_kinds_come_in_the_usual_order() -> None:
    assert list(by_kind(records(tp=4, dp=2, pp=2, order="pp-dp-cp-ep-tp"))) == ["tp", "dp", "pp"]


# Nodes of 8 devices: group, nodes that it spans, levels that it rides on, the level that joins it.
PLACED = [
    ({"tp": 8, "dp": 2}, {"tp": (1, ["nvlink"], "nvlink"), "dp": (2, ["infiniband"], "infiniband")}),
    ({"tp": 16, "kv": "replicate"}, {"tp": (2, ["nvlink", "infiniband"], "infiniband")}),
    ({"tp": 2, "dp": 8}, {"tp": (1, ["nvlink"], "nvlink"), "dp": (2, ["nvlink", "infiniband"], "infiniband")}),
    (
        {"tp": 8, "dp": 8, "order": "dp-tp-cp-ep-pp"},
        {"tp": (8, ["infiniband"], "infiniband"), "dp": (1, ["nvlink"], "nvlink")},
    ),
]


@pytest.mark.parametrize(("degrees", "placed"), PLACED)
def test_nodes_and_levels(degrees: dict[str, object], placed: dict[str, tuple[int, list[str], str]]) -> None:
    for record in records("h100-sxm", **degrees):
        if record["group"] in placed:
            assert (record["nodes"], record["levels"], record["level"]) == placed[record["group"]]


def test_groups_that_lie_unlike_one_another() -> None:
    """Pairs of dp at tp 4, pp 1 and dp 3 on nodes of 8: ranks 0, 4, 8 lie on two nodes, as those of tp 4 lie on one."""
    found = {record["ranks"][0]: record for record in records("h100-sxm", tp=4, dp=3) if record["group"] == "dp"}
    assert {start: (one["nodes"], one["domains"]) for start, one in found.items()} == {
        start: (2, [[start, start + 4], [start + 8]]) for start in range(4)
    }
    assert found[0]["crossings"] == [[4, 8], [8, 0]]


def test_without_hardware_there_are_ranks_and_no_levels() -> None:
    for record in records(tp=4, dp=2):
        assert (record["level"], record["levels"], record["nodes"], record["crossings"]) == (None, None, None, [])


@pytest.mark.parametrize("order", ["tp-cp-ep-dp-pp", "dp-cp-ep-tp-pp", "pp-cp-ep-dp-tp", "cp-tp-ep-pp-dp"])
def test_the_levels_listed_are_those_that_are_priced(order: str) -> None:
    degrees = {"tp": 8, "cp": 2, "dp": 4, "pp": 2}
    priced = ask("llama-3-70b", "h100-sxm", parallelism__order=order,
                 **{f"parallelism__{name}": size for name, size in degrees.items()})  # fmt: skip
    job = asked("h100-sxm", **degrees)
    assert job.hardware is not None
    network = job.hardware.network
    kinds = groups_of(priced.ledger)
    listed = {record["group"]: record["levels"] for record in rank_groups(priced.ledger, network)}
    seen = set()
    for entry in priced.entries:
        name = next(
            name for name, kind in kinds.items() if kind.axes == priced.ledger.layout.mesh.label(entry.row.axes)
        )
        ridden = [network.levels[at].name for at, _ in placement_of(entry.row, priced.ledger, network).parts]
        assert listed[name] == ridden
        seen.add(name)
    assert seen == {"tp", "cp", "dp-cp", "pp"}


def test_the_same_bytes_anywhere(inside: Inside, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    args = ("ledger", "--tp", "4", "--dp", "4", "--zero", "3", "--dp-shard", "2", "--pp", "2", "--ranks", "--json")
    first = inside(*args).out
    monkeypatch.chdir(str(tmp_path))
    monkeypatch.setenv("LC_ALL", "tr_TR.UTF-8")
    assert inside(*args).out == first


def test_jsonl_has_a_line_for_each_group(inside: Inside) -> None:
    ran = inside("ledger", "--tp", "8", "--dp", "2", "--ranks", "--format", "jsonl")
    assert len(ran.out.splitlines()) == 2 + 8
    ran = inside("ledger", "--tp", "8", "--dp", "2", "--ranks", "--format", "csv")
    assert ran.out.splitlines()[0] == "group,index,ranks,level,domains,crossings,nodes,levels"
