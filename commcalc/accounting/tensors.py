"""Every tensor of a ledger's programs as one device holds it: what a developer writes in ``view`` and ``reshape``."""

from __future__ import annotations

from typing import NamedTuple

from commcalc.accounting.draft import of_one_rank
from commcalc.accounting.ledger import Ledger
from commcalc.algebra.notation import format_tensor
from commcalc.algebra.program import Op, Program, Role, Rule
from commcalc.algebra.schedule import State
from commcalc.algebra.sharding import Sharding, bytes_per_device, local_shape
from commcalc.errors import CommcalcError, SpecError, raise_all
from commcalc.transformer.spec import key_of
from commcalc.units import Dtype

# Dimensions that count heads.
_HEADS = ("N", "K", "KG", "KS", "NK", "NV")


class TensorLine(NamedTuple):
    """One tensor at one moment. ``split`` is ``column`` or ``row`` for a weight of a split product."""

    part: str
    direction: str
    sublayer: str
    tensor: str
    state: str
    split: str | None
    global_shape: tuple[int, ...]
    local_shape: tuple[int, ...]
    global_bytes: int
    local_bytes: int
    dtype: Dtype
    local_heads: int | None

    def record(self) -> dict[str, object]:
        """The fields of the JSON document."""
        return {
            "part": self.part,
            "pass": self.direction,
            "sublayer": self.sublayer,
            "tensor": self.tensor,
            "state": self.state,
            "split": self.split,
            "global_shape": list(self.global_shape),
            "local_shape": list(self.local_shape),
            "global_bytes": self.global_bytes,
            "local_bytes": self.local_bytes,
            "dtype": self.dtype,
            "local_heads": self.local_heads,
        }


def tensor_lines(ledger: Ledger) -> tuple[TensorLine, ...]:
    """Weights, activations and gradients of embedding, block and head; `SpecError` names every size that is missing."""
    _demand_sizes(ledger)
    lines: list[TensorLine] = []
    for part, derivation in ledger.derivations.items():
        program = derivation.program
        for tensor in program.tensors.values():
            if tensor.role is Role.WEIGHT and tensor.sharding is not None:
                owner = next(op for op in program.ops if tensor.name in op.weights)
                split = None if tensor.used else _split(tensor.sharding, owner, program)
                lines.append(
                    _line(
                        ledger,
                        part,
                        "weight",
                        State("weight", tensor.name, tensor.sharding, tensor.role, owner.sublayer),
                        split,
                    )
                )
        seen = set()
        for state in derivation.states:
            # How many rows an expert has is for the choices of tokens to say.
            if (
                state.role is Role.INDEX
                or "Q" in state.sharding.dims
                or (key := (state.direction, state.tensor, state.sharding)) in seen
            ):
                continue
            seen.add(key)
            lines.append(_line(ledger, part, state.direction, state, None))
    return tuple(lines)


def _demand_sizes(ledger: Ledger) -> None:
    """All named dimensions of the programs must have a size."""
    used = {
        dim for derivation in ledger.derivations.values() for tensor in derivation.program.tensors.values()
        for dim in tensor.dims
    }  # fmt: skip
    missing: list[CommcalcError] = [
        SpecError(
            f"the model does not give {key}, needed for the list of tensors",
            where=f"model.{key}",
            hint=f"add {key} to the model, or --set model.{key}=N",
        )
        for key in dict.fromkeys(key_of(dim) for dim in sorted(used - ledger.sizes.keys()))
    ]
    raise_all(missing)


def _split(weight: Sharding, op: Op, program: Program) -> str | None:
    """``column`` where an output dimension is split, ``row`` where a summed one is."""
    if op.rule not in (Rule.CONTRACT, Rule.LOOKUP, Rule.ROUTE) or not weight.placed:
        return None
    out = program.tensors[op.output].dims
    return "column" if all(dim in out for dim in weight.placed.values()) else "row"


def _line(ledger: Ledger, part: str, direction: str, state: State, split: str | None) -> TensorLine:
    sizes, mesh = ledger.sizes, ledger.layout.mesh
    dtype = ledger.dtypes[state.role]
    weighs = state.role in (Role.WEIGHT, Role.GRADIENT)
    sharding = state.sharding if weighs else of_one_rank(ledger.layout, state.sharding)
    dims = sharding.dims
    shape = local_shape(sharding, sizes, mesh)
    heads = next((size for dim, size in zip(dims, shape, strict=True) if dim in _HEADS), None)
    whole = tuple(sizes[dim] for dim in dims)
    total = Sharding.of(dims, {}).local_size(dtype.bits).value(sizes)
    return TensorLine(
        part, direction, state.sublayer, format_tensor(state.tensor, sharding, mesh), sharding.state(),
        split, whole, shape, total, bytes_per_device(sharding, sizes, mesh, dtype.bits), dtype, heads,
    )  # fmt: skip
