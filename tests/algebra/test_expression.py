"""Expressions as people write and paste them, and what is said where one cannot be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcalc.algebra.expression import parse_expression
from commcalc.algebra.notation import format_spec, format_tensor, parse_tensor
from commcalc.errors import CommcalcError, NotationError, ShardingError

AXES = ["X", "Y", "Z", "dp", "tp"]


def written(text: str) -> list[str]:
    """Every tensor of the expression in the plain notation."""
    return [format_tensor(tensor.name, tensor.sharding) for tensor in parse_expression(text, AXES).tensors]


# The same product in every form that the book, its rendered pages, JAX and shells have it.
PRODUCT = ["A[I_X, J]", "B[J, K_Y]", "C[I_X, K_Y]"]
FORMS = [
    "A[I_X, J] @ B[J, K_Y] -> C[I_X, K_Y]",
    "A[I_X,J]@B[J,K_Y]->C[I_X,K_Y]",
    "A[I_X, J] · B[J, K_Y] → C[I_X, K_Y]",
    "A[I_X, J] ⋅ B[J, K_Y] ⟶ C[I_X, K_Y]",
    "A[I_X, J] ·_J B[J, K_Y] -> C[I_X, K_Y]",
    r"\mathbf{A}[I_X, J] \cdot \mathbf{B}[J, K_Y] \rightarrow \mathbf{C}[I_X, K_Y]",
    r"$A[I_{X}, J] \cdot_{J} B[J, K_{Y}] \to C[I_{X}, K_{Y}]$",
    r"\textbf{A}\left[I_X,\, J\right] \cdot \text{B}[J, K_Y] \longrightarrow C[I_X,\;K_Y]",
    "𝐀[𝐼_𝑋, 𝐽] ⋅ 𝐁[𝐽, 𝐾_𝑌] → 𝐂[𝐼_𝑋, 𝐾_𝑌]",
    "A[Iₓ, J] @ B[J, K_Y] -> C[Iₓ, K_Y]",
    "A[I, J]: P('X', None) @ B[J, K]: P(None, 'Y') -> C[I, K]: P('X', 'Y')",
    'A: P("X", None) @ B: P(None, "Y") -> C: P("X", "Y")',
    "A: PartitionSpec('X', None) @ B: P(None, 'Y') -> C: P('X', 'Y')",
    "(A[I_X, J] @ B[J, K_Y]) -> C[I_X, K_Y]",
    "  A [ I_X , J ]\u00a0@\u200b B[ J,K_Y ] => C[I_{X}, K_{Y}]  ",
]  # fmt: skip


@pytest.mark.parametrize("text", FORMS)
def test_one_product_in_many_forms(text: str) -> None:
    assert written(text) == PRODUCT


@pytest.mark.parametrize(
    ("text", "tensor"),
    [
        (r"C[I, K]\{U_X\}", "C[I, K]{U_X}"),
        (r"C[I, K]\{ U_{XY} \}", "C[I, K]{U_{XY}}"),
        (r"C[I, K]{\{U_X\}}", "C[I, K]{U_X}"),
        ("C[I, K]{Uₓ}", "C[I, K]{U_X}"),
        ("A[I_{dp,tp}, J]", "A[I_{dp,tp}, J]"),
        ("A[I_tp, J]", "A[I_tp, J]"),
        ("A[I_XY, J_Z]", "A[I_{XY}, J_Z]"),
        ("A[I\\_X, J]", "A[I_X, J]"),
        ("P(('X', 'Y'), None)", "A[I_{XY}, J]"),
        ("P(None, unreduced={'X'})", "A[I]{U_X}"),
        ("A[I, J, K]: P('X')", "A[I_X, J, K]"),
        ("W1[D', F_X]", "W1[D', F_X]"),
    ],
)
def test_one_tensor_in_many_forms(text: str, tensor: str) -> None:
    assert written(text) == [tensor]


def test_partition_specs_go_both_ways() -> None:
    for text in ("P('X', None)", "P(('X', 'Y'), None)", "P(None, 'tp', unreduced={'X', 'Y'})", "P()"):
        (tensor,) = parse_expression(text, AXES).tensors
        assert format_spec(tensor.sharding) == text


@given(
    st.permutations(AXES[:3]).flatmap(
        lambda axes: st.tuples(st.integers(0, 3), st.integers(0, 3)).map(
            lambda cuts: (axes[: min(cuts)], axes[min(cuts) : max(cuts)], axes[max(cuts) :])
        )
    )
)
def test_what_is_printed_is_read_again(parts: tuple[list[str], list[str], list[str]]) -> None:
    inside, second, pending = parts
    text = f"A[I_{{{','.join(inside)}}}, J]" if inside else "A[I, J]"
    if second:
        text = text.replace("J]", f"J_{{{','.join(second)}}}]")
    if pending:
        text += f"{{U_{{{','.join(pending)}}}}}"
    name, sharding = parse_tensor(text, AXES)
    assert parse_tensor(format_tensor(name, sharding), AXES) == (name, sharding)
    (again,) = parse_expression(f"A[I, J]: {format_spec(sharding)}", AXES).tensors
    assert again.sharding == sharding


@pytest.mark.parametrize(
    ("text", "dims"),
    [
        ("A[I, J] @ B[J, K]", [("I", "K")]),
        # shared dimensions at the front of both are kept, as matmul has it
        ("A[N, I, J] @ B[N, J, K]", [("N", "I", "K")]),
        ("Q[B, H, S, D] @ K[B, H, T, D] @ V[B, H, T, D]", [("B", "H", "S", "T"), ("B", "H", "S", "D")]),
        ("In[B, D] @ Win[D, F] @ Wout[F, D] -> Out[B, D]", [("B", "F"), ("B", "D")]),
        # the output decides, as einsum has it: several summed, batched anywhere, in any order
        ("A[I, J, L] @ B[L, J, K] -> C[K, I]", [("K", "I")]),
        ("A[I, N, J] @ B[J, K, N] -> C[I, N, K]", [("I", "N", "K")]),
        ("A[I, J, L] @ B[J, K] -> C[I, K]", [("I", "K")]),
        ("A[I] @ B[I]", [()]),
    ],
)
def test_which_dimensions_are_summed(text: str, dims: list[tuple[str, ...]]) -> None:
    assert [product.dims for product in parse_expression(text, AXES).products] == dims


@pytest.mark.parametrize(
    "text",
    [
        "relu(In[B, D] @ Win[D, F_X]) @ Wout[F_X, D] -> Out[B, D]",
        "In[B, D] @ Win[D, F_X] -> relu -> @ Wout[F_X, D] -> Out[B, D]",
        "In[B, D] @ Win[D, F_X] -> relu @ Wout[F_X, D] -> Out[B, D]",
    ],
)
def test_functions_between_products(text: str) -> None:
    read = parse_expression(text, AXES)
    assert [product.function for product in read.products] == ["relu", ""]
    assert [tensor.name for tensor in read.tensors] == ["In", "Win", "Wout", "Out"]


def test_a_sharding_in_between() -> None:
    read = parse_expression("A[I, J] @ B[J, K] -> H[I_X, K] @ D[K, L] -> E[I, L]", AXES)
    assert read.products[0].kept is not None
    assert format_tensor("H", read.products[0].kept.sharding) == "H[I_X, K]"
    assert [tensor.name for tensor in parse_expression("A[I_X] -> A[I] -> A[I_Y]", AXES).stations] == ["A", "A", "A"]


BAD = {
    "": "error: the expression is empty\nhint: write it like A[I, J_X] @ B[J_X, K] -> C[I, K]",
    "A[I_X, J @ B[J, K]": "error: expected `,` or `]`\n    A[I_X, J @ B[J, K]\n             ^\n"
    "hint: write it like A[I_X, J_{YZ}]{U_W}",
    "A[I_X, J] @ ": "error: expected a tensor\n    A[I_X, J] @ \n                ^\n"
    "hint: write it like A[I_X, J_{YZ}]{U_W}",
    "A[I_Q, J]": "error: 'Q' is no axis of the mesh\n    A[I_Q, J]\n        ^\nhint: mesh axes: X, Y, Z, dp, tp",
    "A: P('Q', None)": "error: 'Q' is no axis of the mesh\n    A: P('Q', None)\n          ^\n"
    "hint: mesh axes: X, Y, Z, dp, tp",
    "A: P(Q)": "error: 'Q' is neither None nor an axis\n    A: P(Q)\n         ^\nhint: mesh axes: X, Y, Z, dp, tp",
    "A[I_X]: P('X')": "error: split twice: by subscripts and by a PartitionSpec\n    A[I_X]: P('X')\n          ^\n"
    "hint: write one of them",
    "A[I]: P('X', 'Y')": "error: 2 entries for 1 dimensions\n    A[I]: P('X', 'Y')\n         ^^^^^^^^^^^^\n"
    "hint: write it like A[I_X, J_{YZ}]{U_W}",
    "A[I, J] * B[J, K]": "error: `*` multiplies element by element, which moves nothing: only products are read\n"
    "    A[I, J] * B[J, K]\n            ^\nhint: write it like A[I, J_X] @ B[J_X, K] -> C[I, K]",
    "A[I, J] @ (B[J, K] @ C[K, L])": "error: a product on the right side of a product\n"
    "    A[I, J] @ (B[J, K] @ C[K, L])\n              ^^^^^^^^^^^^^^^^^^^\n"
    "hint: products are taken from left to right; write the inner one first, or ask for it on its own",
    "A[I, J] @ B[J, K] -> C[I, L]": "error: dimension L of C is in none of its inputs\n"
    "    A[I, J] @ B[J, K] -> C[I, L]\n                         ^^^^^^^\nhint: the inputs have I, J, K",
    "A[I, J] @ A[J, K]": "error: A has dimensions [I, J] before and [J, K] here\n    A[I, J] @ A[J, K]\n"
    "              ^^^^^^^\nhint: give the second tensor another name",
    "(A[I, J] @ B[J, K]": "error: expected `)` or `@`\n    (A[I, J] @ B[J, K]\n                      ^\n"
    "hint: write it like A[I_X, J_{YZ}]{U_W}",
    "A[I, J] B[J, K]": "error: nothing more is expected here\n    A[I, J] B[J, K]\n            ^\n"
    "hint: write it like A[I_X, J_{YZ}]{U_W}",
}  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_marks_what_is_wrong(text: str) -> None:
    with pytest.raises(NotationError) as refused:
        parse_expression(text, AXES)
    assert refused.value.text() == BAD[text]
    assert refused.value.status == 2


def test_one_axis_on_two_dimensions_has_no_answer() -> None:
    with pytest.raises(ShardingError) as refused:
        parse_expression("A[I_X, J] @ B[J_X, K_X]", AXES)
    assert refused.value.status == 3
    assert refused.value.text().splitlines()[:3] == [
        "error: axis X is used twice in one tensor: on J and on K",
        "    A[I_X, J] @ B[J_X, K_X]",
        "                ^^^^^^^^^^^",
    ]


def test_one_tensor_lies_in_one_way() -> None:
    with pytest.raises(ShardingError, match="A lies in two ways"):
        parse_expression("A[I, J] @ B[J, I'] @ A[I_X, J]", AXES)


@pytest.mark.parametrize("text", ["A[" + "I" * 10_000 + "]", "(" * 10_000, "A[I] @ " * 2_000])
def test_ten_thousand_characters_are_refused(text: str) -> None:
    with pytest.raises(NotationError, match="characters; at most 2000 are read"):
        parse_expression(text, AXES)


@given(st.text(alphabet="AB[](){}_,:@->IJXYPU'\\ ·→ₓ*", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_expression(text, AXES)
    except CommcalcError as refused:
        assert refused.text().startswith("error: ")
        if refused.span is not None:
            start, end = refused.span
            assert 0 <= start <= end <= len(text) + 1
