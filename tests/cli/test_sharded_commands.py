"""``shard``, ``matmul`` and ``reshard`` as processes: answers, documents, formats, pipes, and what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from conftest import Inside, environment, run_commcalc

MATMUL = ("matmul", "A[I, J_X] @ B[J, K] -> C[I, K]", "--mesh", "X=4", "--dim", "I=1K,J=4K,K=8K")
RESHARD = ("reshard", "A[I_X, J] -> A[I, J_X]", "--mesh", "X=4", "--dim", "I=1024", "--dim", "J=4096")
SHARD = ("shard", "A[I_{XY}, J]", "--mesh", "X=2,Y=8,Z=2", "--dim", "I=128", "--dim", "J=2048", "--dtype", "int8")


def test_a_published_sharding() -> None:
    """Source: How To Scale Your Model, part 3, pop quiz: int8[128, 2048] as [I_XY, J] on a 2x8x2 mesh (SHP-01)."""
    found = run_commcalc(*SHARD, "--json").json
    assert found["schema"] == "commcalc/shard/1"
    asked = {
        key: found[key]
        for key in ("global_shape", "local_shape", "bytes_per_device", "shards", "replicas", "total_bytes")
    }
    assert asked == {
        "global_shape": [128, 2048],
        "local_shape": [8, 2048],
        "bytes_per_device": 16384,
        "shards": 16,
        "replicas": 2,
        "total_bytes": 524288,
    }


@pytest.mark.parametrize(
    ("spec", "dims", "local"),
    [("P('X', 'Y')", "I=8,J=2048", [2, 1024]), ("P(None, 'Y')", "I=2048,J=8192", [2048, 4096])],
)
def test_the_jax_example_of_the_book(spec: str, dims: str, local: list[int]) -> None:
    """Source: How To Scale Your Model, part 3, the code aside: bf16[8, 2048] and bf16[2048, 8192] on a 4x2 mesh."""
    found = run_commcalc("shard", spec, "--mesh", "X=4,Y=2", "--dim", dims, "--json").json
    assert (found["local_shape"], found["partition_spec"]) == (local, spec)


def test_a_matmul_document_has_the_fields_of_the_interface() -> None:
    found = run_commcalc(*MATMUL, "--json").json
    assert list(found)[:1] == ["schema"]
    assert (found["schema"], found["case"]) == ("commcalc/matmul/1", 2)
    assert {"expression", "strategies", "best", "backward"} <= found.keys()
    best = next(one for one in found["strategies"] if one["name"] == found["best"])
    assert best is found["strategies"][0]
    assert {
        "name", "legal", "steps", "slices", "wire_bytes", "comm_s", "flops", "compute_s", "time_overlapped_s",
        "time_serial_s", "peak_bytes",
    } <= best.keys()  # fmt: skip
    (step,) = best["steps"]
    assert {key: step[key] for key in ("collective", "axes", "group_size", "tensor", "before", "after")} == {
        "collective": "all_gather",
        "axes": ["X"],
        "group_size": 4,
        "tensor": "A",
        "before": "A[I, J_X]",
        "after": "A[I, J]",
    }
    assert (step["payload_bytes"], step["wire_bytes"]) == (1024 * 4096 * 2, 1024 * 4096 * 2 * 3 // 4)
    assert step["time_s"] is None


def test_times_come_with_a_machine_or_a_bandwidth() -> None:
    """1 TB/s: gathering 8 MiB over 4 sends 6 MiB; 989 TFLOP/s is the H100 preset's bf16."""
    found = run_commcalc(*MATMUL, "--bandwidth", "1TB/s", "--json").json
    assert found["minimize"] == "time"
    gather = next(one for one in found["strategies"] if one["name"] == "gather-then-multiply")
    assert gather["comm_s"] == pytest.approx(6 * 2**20 / 1e12, rel=1e-9)
    assert gather["compute_s"] is None
    machine = run_commcalc(*MATMUL, "--hardware", "h100", "--json").json
    gather = next(one for one in machine["strategies"] if one["name"] == "gather-then-multiply")
    assert gather["compute_s"] == pytest.approx(2 * 1024 * 4096 * 8192 / 989e12, rel=1e-9)
    assert gather["time_serial_s"] == pytest.approx(gather["comm_s"] + gather["compute_s"])
    by_bytes = run_commcalc(*MATMUL, "--hardware", "h100", "--minimize", "bytes", "--json").json
    assert by_bytes["best"] == "gather-then-multiply"


def test_the_textbook_drops_the_ring_factor() -> None:
    found = run_commcalc(*MATMUL, "--convention", "textbook", "--json").json
    assert found["strategies"][0]["wire_bytes"] == 1024 * 4096 * 2


def test_a_mixture_of_cases_is_told_axis_by_axis() -> None:
    text = "A[I_X, J_Y] @ B[J_Y, K_X] -> C[I_X, K_Y]"
    found = run_commcalc(
        "matmul", text, "--mesh", "X=4,Y=2", "--dim", "I=96,J=160,K=224", "--dtype", "f32", "--json"
    ).json
    assert (found["case"], found["cases"]) == (4, [{"X": 4, "Y": 3}])


def test_a_chain_is_one_question() -> None:
    text = "relu(In[B, D] @ Win[D, F_X]) @ Wout[F_X, D] -> Out[B, D]"
    found = run_commcalc("matmul", text, "--mesh", "X=8", "--dim", "B=4K,D=8K,F=28K", "--grad", "--json").json
    assert [step["collective"] for step in found["strategies"][0]["steps"]] == ["all_reduce"]
    assert [(step["collective"], step["tensor"]) for step in found["backward"]] == [("all_reduce", "dIn")]
    assert found["backward"][0]["transpose_of"] is None  # of an AllReduce there is none: this is the sum of two paths
    assert found["gradient"]["wire_bytes"] == 4096 * 8192 * 2 * 2 * 7 // 8
    assert found["gradient"]["flops"] == 2 * found["strategies"][0]["flops"]


def test_a_gather_and_a_scatter_are_each_others_way_back() -> None:
    """Weights gathered forward, their gradient scattered backward. Source: jax-381 of tests/data/jax_cases.json."""
    text = "A[I_X, J] @ B[J_X, K_Y] -> C[I_X, K_Y]"
    asked = ("--mesh", "X=4,Y=2", "--dim", "I=960,J=160,K=224", "--dtype", "f32", "--grad", "--json")
    found = run_commcalc("matmul", text, *asked).json
    assert [(step["collective"], step["tensor"]) for step in found["strategies"][0]["steps"]] == [("all_gather", "B")]
    back = {step["tensor"]: (step["collective"], step["axes"], step["transpose_of"]) for step in found["backward"]}
    assert back == {"dB": ("reduce_scatter", ["X"], "all_gather of B"), "dA": ("all_reduce", ["Y"], None)}


def test_specs_come_out_as_they_went_in() -> None:
    text = "A: P(None, 'X') @ B: P(None, None) -> C: P(None, None)"
    found = run_commcalc("matmul", text, "--mesh", "X=4", "--dim", "I=8,J=8,K=8", "--notation", "spec", "--json").json
    step = next(one for one in found["strategies"] if one["name"] == "gather-then-multiply")["steps"][0]
    assert (step["before"], step["after"]) == ("A: P(None, 'X')", "A: P(None, None)")


def test_a_reshard_document_and_why_the_others_lost() -> None:
    found = run_commcalc(*RESHARD, "--json").json
    assert found["schema"] == "commcalc/reshard/1"
    assert [step["collective"] for step in found["steps"]] == ["all_to_all"]
    assert found["wire_bytes"] == 1024 * 4096 * 2 // 4 * 3 // 4
    (other,) = found["alternatives"]
    assert [step["collective"] for step in other["steps"]] == ["all_gather"]
    assert other["lost_because"] == f"{other['wire_bytes'] - found['wire_bytes']:,} B more"


def test_an_order_of_axes_is_a_permute_and_sub_axes_do_better() -> None:
    """A[I_XY] -> A[I_Y]: blocks change place and X is gathered; with X cut in two less must move.

    Source: the XLA program jax-213 of tests/data/jax_cases.json: 7,680 + 23,040 bytes.
    """
    asked = (
        "reshard",
        "A[I_XY, J] -> A[I_Y, J]",
        "--mesh",
        "X=4,Y=2",
        "--dim",
        "I=96,J=160",
        "--dtype",
        "f32",
        "--json",
    )
    found = run_commcalc(*asked).json
    assert [(step["collective"], step["wire_bytes"]) for step in found["steps"]] == [
        ("permute", 7680),
        ("all_gather", 23040),
    ]
    assert run_commcalc(*asked, "--sub-axes").json["wire_bytes"] <= 30720


def test_shardings_on_the_way_are_kept() -> None:
    asked = ("reshard", "C[I, K]{U_X} -> C[I, K_X] -> C[I, K]", "--mesh", "X=4", "--dim", "I=96,K=224", "--json")
    assert [step["collective"] for step in run_commcalc(*asked).json["steps"]] == ["reduce_scatter", "all_gather"]


def test_padding_is_told() -> None:
    asked = ("shard", "A[I_X, J]", "--mesh", "X=3", "--dim", "I=100,J=8")
    refused = run_commcalc(*asked)
    assert refused.status == 3
    assert "dimension I of A, of size 100, does not split 3 ways: 100 mod 3 = 1" in refused.err
    assert "--pad pads it; the nearest sizes that divide are 99 and 102" in refused.err
    padded = run_commcalc(*asked, "--pad", "--json")
    assert padded.json["padding"] == {"I": {"from": 100, "to": 102}}
    assert padded.json["local_shape"] == [34, 8]
    assert padded.err == "note: I is padded from 100 to 102\n"


@pytest.mark.parametrize("asked", [MATMUL, RESHARD, SHARD], ids=lambda asked: asked[0])
def test_all_formats(asked: tuple[str, ...]) -> None:
    assert len(run_commcalc(*asked, "--format", "csv").out.splitlines()) >= 2
    lines = run_commcalc(*asked, "--format", "jsonl").out.splitlines()
    assert all(isinstance(json.loads(line), dict) for line in lines)
    markdown = run_commcalc(*asked, "--explain", "--format", "markdown").out
    assert "| --- |" in markdown
    explained = run_commcalc(*asked, "--explain").out
    assert " = " in explained
    assert [line for line in explained.splitlines() if " = " in line and line not in markdown] == []
    assert explained.startswith(run_commcalc(*asked).out[:200])


def test_explained_numbers_have_their_formula() -> None:
    text = run_commcalc(*MATMUL, "--explain").out
    assert "payload = I*J*2 B = 1024*4096*2 = 8,388,608 B" in text
    assert "wire = (n-1)/n * payload = 3/4 * 8,388,608 = 6,291,456 B" in text
    assert "FLOPs of one device = 17,179,869,184, of the whole 2*I*J*K = 2*1024*4096*8192" in text


def test_the_expression_may_come_from_a_pipe() -> None:
    piped = run_commcalc("matmul", "-", *MATMUL[2:], "--json", stdin=MATMUL[1] + "\n")
    assert piped.json == run_commcalc(*MATMUL, "--json").json


def test_a_closed_pipe_ends_quietly() -> None:
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -m commcalc matmul '{MATMUL[1]}' --mesh X=4 "
         "--dim I=1K,J=4K,K=8K --all --explain | head -1"],
        capture_output=True, text=True, env=environment(), check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_case_4_alone() -> None:
    asked = ("matmul", "A[I_X, J] @ B[J, K_X]", "--mesh", "X=4", "--dim", "I=64,J=256,K=128")
    both = run_commcalc(*asked, "--json").json
    assert {"gather-A-then-multiply", "gather-B-then-multiply"} <= {one["name"] for one in both["strategies"]}
    refused = run_commcalc(*asked, "--no-communication")
    assert (refused.status, refused.out) == (3, "")
    assert refused.err.startswith("error: this cannot be computed without communication\n")
    told = run_commcalc(*asked, "--no-communication", "--json")
    assert (told.status, told.json["error"]["kind"]) == (3, "sharding")


P = ("--mesh", "X=4,Y=2", "--dim", "I=64,J=64,K=64")
BAD: dict[str, tuple[tuple[str, ...], int, str]] = {
    "unbalanced brackets": (("matmul", "A[I, J @ B[J, K]", *P), 2, "expected `,` or `]`"),
    "an axis not in the mesh": (("matmul", "A[I_Q, J] @ B[J, K]", *P), 2, "'Q' is no axis of the mesh"),
    "no mesh": (("shard", "A[I_X]", "--dim", "I=8"), 2, "'X' is no axis of the mesh"),
    "a dimension without size": (
        ("matmul", "A[I, L] @ B[L, K]", *P[:2], "--dim", "I=8,K=8"),
        2,
        "dimension L has no size",
    ),
    "one axis on two dimensions": (
        ("shard", "A[I_X, J_X]", *P[:3], "I=8,J=8"),
        3,
        "axis X is used twice in one tensor",
    ),
    "a pending axis spent": (("shard", "A[I_X]{U_X}", *P[:3], "I=8"), 3, "axis X is used twice in one tensor"),
    "one tensor, two shapes": (
        ("matmul", "A[I, J] @ A[J, K]", *P),
        2,
        "A has dimensions [I, J] before and [J, K] here",
    ),
    "an output nothing has": (
        ("matmul", "A[I, J] @ B[J, K] -> C[I, L]", *P),
        2,
        "dimension L of C is in none of its inputs",
    ),
    "a size that does not divide": (("matmul", "A[I, J_X] @ B[J, K]", *P[:3], "I=8,J=10,K=8"), 3, "10 mod 4 = 2"),
    "mesh size zero": (("shard", "A[I]", "--mesh", "X=0", "--dim", "I=8"), 2, "'0' is not above zero"),
    "mesh size negative": (("shard", "A[I]", "--mesh", "X=-2", "--dim", "I=8"), 2, "'-2' is not above zero"),
    "mesh size a word": (("shard", "A[I]", "--mesh", "X=two", "--dim", "I=8"), 2, "'two' is no whole number"),
    "mesh without size": (("shard", "A[I]", "--mesh", "X", "--dim", "I=8"), 2, "'X' is no NAME=SIZE"),
    "an axis twice": (("shard", "A[I]", "--mesh", "X=2,X=4", "--dim", "I=8"), 2, "X is given twice"),
    "a size not a number": (("shard", "A[I]", "--dim", "I=nan"), 2, "'nan' is no whole number"),
    "a size beyond all": (("shard", "A[I]", "--dim", "I=1e400"), 2, "too large"),
    "a dimension too many": (("shard", "A[I]", "--dim", "I=8", "--dim", "Q=8"), 2, "unknown dimension 'Q'"),
    "an empty expression": (("matmul", "", *P), 2, "the expression is empty"),
    "blanks": (("matmul", "  ", *P), 2, "the expression is empty"),
    "10,000 characters": (("shard", "A[" + "I" * 10_000 + "]", *P), 2, "at most 2000 are read"),
    "an unknown dtype": (("shard", "A[I]", *P[:3], "I=8", "--dtype", "fp12"), 2, "unknown dtype 'fp12'"),
    "a product to shard": (("shard", "A[I, J] @ B[J, K]", *P), 2, "shard takes one tensor"),
    "a product to reshard": (("reshard", "A[I, J] @ B[J, K]", *P), 2, "reshard takes one tensor before and after"),
    "other dimensions after": (("reshard", "A[I_X, J] -> B[J_X, I]", *P[:3], "I=8,J=8"), 2, "keeps the dimensions"),
    "a function to reshard": (("reshard", "relu(A[I_X]) -> A[I]", *P[:3], "I=8"), 2, "no function of them"),
    "a sum after a function": (
        ("matmul", "relu(A[I, J_X] @ B[J_X, K]) -> C[I, K]{U_X}", *P),
        3,
        "C is wanted as a pending sum after relu",
    ),
    "a sum in between after a function": (
        ("matmul", "relu(A[I, J_X] @ B[J_X, K]) -> T[I, K]{U_X} @ D[K, L]", *P[:3], "I=64,J=64,K=64,L=64"),
        3,
        "T is wanted as a pending sum after relu",
    ),
    "a set of nothing": (("shard", "A[I]", *P[:3], "I=8", "--set", "junk"), 2, "'junk' sets nothing"),
    "a set of a section": (("reshard", "A[I_X] -> A[I]", *P[:3], "I=8", "--set", "mesh=4"), 2, "mesh is a section"),
    "a set of no name": (("reshard", "A[I_X] -> A[I]", *P[:3], "I=8", "--set", "dims.=4"), 2, "dims is a section"),
    "too small to split": (
        ("shard", "A[I_X]", "--mesh", "X=16", "--dim", "I=8"),
        3,
        "the smallest size that divides is 16",
    ),
    "a set of another kind": (
        ("shard", "A[I]", *P[:3], "I=8", "--set", "hardware.x=4"),
        2,
        "unknown section 'hardware'",
    ),
    "a set of a new axis": (("shard", "A[I]", *P[:3], "I=8", "--set", "mesh.Q=4"), 2, "unknown mesh axis 'Q'"),
    "a reshard to matmul": (("matmul", "A[I_X, J] -> A[I, J_X]", *P[:3], "I=8,J=8"), 2, "matmul takes a product"),
    "a sum from nothing": (
        ("reshard", "A[I, J] -> A[I, J]{U_X}", *P[:3], "I=8,J=8"),
        3,
        "whole over X cannot become a pending",
    ),
    "another tensor": (("reshard", "A[I_X, J] -> A[J, I_X]", *P[:3], "I=8,J=8"), 2, "A has dimensions [I, J] before"),
    "time without links": (
        ("reshard", "A[I_X] -> A[I]", *P[:3], "I=8", "--minimize", "time"),
        2,
        "no times without links",
    ),
    "an objective": (("reshard", "A[I_X] -> A[I]", *P[:3], "I=8", "--minimize", "flops"), 2, "unknown choice 'flops'"),
    "an overlap alone": (
        ("matmul", "A[I, J] @ B[J, K]", *P, "--overlap", "full"),
        2,
        "an overlap needs the time of compute",
    ),
    "a notation": (("matmul", "A[I, J] @ B[J, K]", *P, "--notation", "latex"), 2, "unknown choice 'latex'"),
    "an unknown machine": (("matmul", "A[I, J] @ B[J, K]", *P, "--hardware", "h1000"), 2, "unknown hardware"),
    "a path that leads nowhere": (
        ("matmul", "A[I, J] @ B[J, K]", *P, "--set", "model.heads=3"),
        2,
        "unknown section 'model'",
    ),
    "a rate without unit": (("reshard", "A[I_X] -> A[I]", *P[:3], "I=8", "--bandwidth", "450"), 2, "has no unit"),
    "a missing expression": (("matmul",), 2, "missing argument"),
    "a nested product": (("matmul", "A[I, J] @ (B[J, K] @ C[K, L])", *P), 2, "a product on the right side"),
    "too many axes": (
        ("matmul", "A[I_UV, J_WX] @ B[J_WX, K_YZ]", "--mesh", "U=2,V=2,W=2,X=2,Y=2,Z=2", "--dim", "I=64,J=64,K=64"),
        2,
        "6 axes on 3 dimensions have",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what: str, inside: Inside) -> None:
    args, status, message = BAD[what]
    ran = inside(*args)
    assert (ran.status, ran.out) == (status, "")
    assert message in ran.err
    assert ran.err.startswith("error: ")
    assert "Traceback" not in ran.err
    told = inside(*args, "--json")
    assert told.status == status
    assert message in json.dumps(told.json["error"], ensure_ascii=False)


def test_binary_and_empty_stdin_are_refused() -> None:
    for data in (b"\xff\xfe\x00", b"", b"A[I]\nB[J]"):
        ran = run_commcalc("shard", "-", "--dim", "I=8", stdin=data)
        assert (ran.status, ran.out) == (2, "")
        assert ran.err.startswith("error: ")


def test_a_size_of_a_set_wins() -> None:
    found = run_commcalc(*RESHARD, "--set", "dims.I=2048", "--set", "mesh.X=8", "--json").json
    assert (found["dims"]["I"], found["mesh"]["X"], found["steps"][0]["group_size"]) == (2048, 8, 8)


def test_axes_of_size_1_move_nothing_and_it_is_said() -> None:
    ran = run_commcalc("reshard", "A[I_X, J] -> A[I, J]", "--mesh", "X=1", "--dim", "I=8,J=8", "--json")
    assert (ran.json["steps"], ran.json["wire_bytes"]) == ([], 0)
    assert ran.json["notes"] == ["axis X has size 1: nothing moves over it"]


def test_letters_that_are_another_axis_are_told_apart() -> None:
    """With axes X, Y and XY, the axes X and Y together are printed with a comma, and read again as themselves."""
    asked = ("--mesh", "X=2,Y=2,XY=2", "--dim", "I=8,J=8", "--json")
    found = run_commcalc("reshard", "A[I_{X,Y}, J] -> A[I, J_{X,Y}]", *asked).json
    assert found["steps"][0]["before"] == "A[I_{X,Y}, J]"
    again = run_commcalc("shard", found["steps"][0]["before"], *asked).json
    assert (again["tensor"], again["local_shape"]) == ("A[I_{X,Y}, J]", [2, 8])


def test_of_equal_times_the_fewest_steps_win() -> None:
    asked = ("--mesh", "X=4", "--dim", "I=8K,J=8K", "--bandwidth", "450GB/s", "--latency", "3us", "--json")
    found = run_commcalc("reshard", "A[I, J]{U_X} -> A[I, J]", *asked).json
    assert [step["collective"] for step in found["steps"]] == ["all_reduce"]
    (other,) = [route for route in found["alternatives"] if route["name"] == "without-all-reduce"]
    assert other["comm_s"] == found["comm_s"]
    assert other["lost_because"] == "as cheap, in 2 steps instead of 1"


def test_a_shard_of_many_axes_is_not_searched() -> None:
    axes = ",".join(f"{name}=2" for name in "ABCDEFGH")
    found = run_commcalc(
        "shard", "T[I_{ABCDEFGH}, J, K, L]", "--mesh", axes, "--dim", "I=256,J=8,K=8,L=8", "--json"
    ).json
    assert (found["local_shape"], found["shards"], found["notes"]) == ([1, 8, 8, 8], 256, [])


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("A[I_X, J_Y, K, L] -> A[I, J, K_{XY}, L]", 24 * 4),
        ("A[I_X, J_Y, K, L] -> A[I, J, K_X, L_Y]", 24 * 4),
        ("A[I_{XY}, J, K, L] -> A[I, J_X, K_Y, L]", 24 * 4),
    ],
)
def test_one_exchange_over_axes_of_several_dimensions(text: str, sent: int) -> None:
    """Each of 4 devices keeps a quarter of the 128 B it holds and sends the rest, once; two calls would send 128 B."""
    found = run_commcalc("reshard", text, "--mesh", "X=2,Y=2", "--dim", "I=4,J=4,K=4,L=4", "--json").json
    (step,) = found["steps"]
    assert (step["collective"], step["payload_bytes"], step["wire_bytes"]) == ("all_to_all", 128, sent)


def test_nothing_to_do_takes_no_time() -> None:
    asked = ("--mesh", "X=2", "--dim", "I=4", "--bandwidth", "100GB/s", "--latency", "2us", "--json")
    found = run_commcalc("reshard", "A[I_X] -> A[I_X]", *asked).json
    assert (found["steps"], found["wire_bytes"], found["comm_s"]) == ([], 0, 0)
    assert [route["lost_because"] for route in found["alternatives"]] == ["it takes time, and the cheapest takes none"]


def test_a_plan_that_cannot_be_laid_out_leaves_the_others() -> None:
    """On a 32x32 torus a group over X and Z of 2x2x2 lies on no axis; the gather over Y alone does."""
    asked = ("--mesh", "X=2,Y=2,Z=2", "--dim", "I=4K,J=8K", "--hardware", "tpu-v3", "--json")
    found = run_commcalc("reshard", "A[I_{X,Y}, J] -> A[I_X, J]", *asked)
    assert found.status == 0
    assert found.json["comm_s"] <= 411.2e-6  # what the gather over Y alone takes, a line of two
    over_nodes = ("--mesh", "X=16", "--dim", "I=8K,J=8K", "--hardware", "h100", "--json")
    both = [
        run_commcalc("reshard", "A[I_X, J] -> A[I, J]", *over_nodes, "--minimize", what).json
        for what in ("bytes", "time")
    ]
    assert [one["steps"][0]["level"] for one in both] == ["infiniband", "infiniband"]


def test_a_slice_of_a_torus_may_be_named_and_is_told() -> None:
    """TPU v5e: an axis of 4 in a slice 4x2 is half as late and shared by nobody; 2x4 of links of 45 GB/s."""
    asked = ("--mesh", "X=4,Y=2", "--dim", "I=8K,J=8K", "--hardware", "v5e", "--json")
    whole = run_commcalc("reshard", "A[I_X, J] -> A[I, J]", *asked).json
    part = run_commcalc("reshard", "A[I_X, J] -> A[I, J]", *asked, "--shape", "4x2").json
    assert "ici is a slice of 4x2 for a mesh of 8: --shape asks for another" in part["assumptions"]
    assert part["comm_s"] < whole["comm_s"]
    no_machine = run_commcalc("reshard", "A[I_X] -> A[I]", "--mesh", "X=4", "--dim", "I=8", "--shape", "4x2")
    assert (no_machine.status, "a slice of no machine" in no_machine.err) == (2, True)


def test_assumptions_stand_under_the_tables() -> None:
    text = run_commcalc(*MATMUL, "--hardware", "h100", "--grad").out
    below = text.split("\nAssumptions\n")[1]
    assert "- compute is FLOPs over the chip's peak in bf16; reading memory is not counted\n" in below
    assert "- gradients move in bf16, as their tensors\n" in below
    assert "- no machine is given: bytes are counted, nothing is timed\n" in run_commcalc(*RESHARD).out
