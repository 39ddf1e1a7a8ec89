"""Text to shardings and back, and exact errors with a caret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcalc.algebra.mesh import Mesh
from commcalc.algebra.notation import format_tensor, parse_tensor
from commcalc.algebra.sharding import Sharding
from commcalc.errors import NotationError

GOOD = {
    "A[I_X, J_Y]": ("A", Sharding(("I", "J"), (("X",), ("Y",)))),
    "A[I_XY, J]": ("A", Sharding(("I", "J"), (("X", "Y"), ()))),
    "A[I_{XY},J]": ("A", Sharding(("I", "J"), (("X", "Y"), ()))),
    "A[I_{X,Y}, J]": ("A", Sharding(("I", "J"), (("X", "Y"), ()))),
    "  A [ I_tp , J ] ": ("A", Sharding(("I", "J"), (("tp",), ()))),
    "A[I_{dp,tp}]{U_X}": ("A", Sharding(("I",), (("dp", "tp"),), ("X",))),
    "C[I, K]{U_{XY}}": ("C", Sharding(("I", "K"), ((), ()), ("X", "Y"))),
    "scalar[]": ("scalar", Sharding((), ())),
}
AXES = ["X", "Y", "dp", "tp"]


@pytest.mark.parametrize("text", GOOD)
def test_reads(text: str) -> None:
    assert parse_tensor(text, AXES) == GOOD[text]


BAD = {
    "A[I_X, J": "error: expected `,` or `]`\n    A[I_X, J\n            ^\nhint: write it like A[I_X, J_{YZ}]{U_W}",
    "A I]": "error: expected `[`\n    A I]\n      ^\nhint: write it like A[I_X, J_{YZ}]{U_W}",
    "A[I_Z]": "error: 'Z' is no axis of the mesh\n    A[I_Z]\n        ^\nhint: mesh axes: X, Y, dp, tp",
    "A[I_XZ]": "error: 'Z' is no axis of the mesh\n    A[I_XZ]\n         ^\nhint: mesh axes: X, Y, dp, tp",
    "A[I_tpp]": "error: 'tpp' is no axis of the mesh\n    A[I_tpp]\n        ^^^\nhint: did you mean tp?",
    "A[I_X] B": "error: nothing more is expected here\n    A[I_X] B\n           ^\n"
    "hint: write it like A[I_X, J_{YZ}]{U_W}",
    "A[I]{V_X}": "error: expected the `U` of a pending sum, as in {U_X}\n    A[I]{V_X}\n         ^\n"
    "hint: write it like A[I_X, J_{YZ}]{U_W}",
    "": "error: expected a tensor name\n    \n    ^\nhint: write it like A[I_X, J_{YZ}]{U_W}",
}  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_marks_what_is_wrong(text: str) -> None:
    with pytest.raises(NotationError) as refused:
        parse_tensor(text, AXES)
    assert refused.value.text() == BAD[text]
    assert refused.value.status == 2


def test_ten_thousand_characters_are_refused() -> None:
    with pytest.raises(NotationError, match="an expression of 10003 characters"):
        parse_tensor("A[" + "I" * 10_000 + "]", "X")


@st.composite
def shardings(draw: st.DrawFn) -> Sharding:
    dims = draw(st.lists(st.sampled_from("IJKLM"), unique=True, max_size=4))
    places = draw(st.permutations(AXES))
    split: list[list[str]] = [[] for _ in dims]
    pending = []
    for axis in places:
        at = draw(st.integers(-2, len(dims)))
        if 0 <= at < len(dims):
            split[at].append(axis)
        elif at == len(dims):
            pending.append(axis)
    return Sharding(tuple(dims), tuple(tuple(axes) for axes in split), tuple(pending))


@given(shardings())
def test_what_is_written_is_read_back(sharding: Sharding) -> None:
    assert parse_tensor(format_tensor("A", sharding), AXES) == ("A", sharding)


def test_a_divided_axis_that_is_used_whole_has_its_own_name() -> None:
    mesh = Mesh.of({"tp": 4}).divide("tp", {"tp_kv": 2, "tp_replica": 2})
    sharding = Sharding(("T", "K"), (("tp_kv", "tp_replica"), ()))
    assert format_tensor("A", sharding, mesh) == "A[T_tp, K]"
    assert format_tensor("A", Sharding(("K",), (("tp_kv",),)), mesh) == "A[K_{tp_kv}]"
