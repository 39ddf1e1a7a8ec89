"""The parts of a ledger: one collective, one pipeline stage, one warning."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from commcalc.algebra.collective import Kind
from commcalc.algebra.program import Role
from commcalc.algebra.size import Size
from commcalc.units import Dtype

# Of rows and totals: the axes, which are always told, and where there are any the ranks that share an expert, copies of
# experts, and parts of dp where parameters are sharded in copies.
AXES = ("tp", "cp", "ep", "dp", "pp")
GROUPS = (*AXES, "etp", "edp", "dp_shard", "dp_replica")
RECOMPUTE, UPDATE = "recompute", "update"
# What lies outside of blocks, as one group of parameters.
ROOT = "root"
# What a pipeline stage sends to the next and to the one before, and the table that first and last stage both hold.
TO_NEXT, TO_PREVIOUS, TIED = "to next stage", "to previous stage", "tied table"
# In formulas: the two ranks of a pipeline that hold the same stages.
MIRROR = "mirror"


class Call(NamedTuple):
    """A collective that no program has: of parameters and their gradients, or between pipeline stages."""

    part: str
    direction: str
    op: str
    kind: Kind
    axes: tuple[str, ...]
    tensor: str
    role: Role
    payload: Size
    per: str
    calls: int = 1
    note: str = ""
    # What its ranks are called, where that is not the axis they lie on.
    group: str = ""
    # Whether the ranks of the mirror's stage take part too.
    mirrored: bool = False


class Row(NamedTuple):
    """One collective. ``part`` is the program it comes from: embedding, a kind of block, head, or all for updates."""

    part: str
    direction: str
    sublayer: str
    op: str
    kind: Kind
    group: str
    group_size: int
    axes: tuple[str, ...]
    tensor: str
    role: Role
    dtype: Dtype
    payload: Size
    payload_bytes: int
    wire_bytes: int
    calls: int
    per: str
    note: str
    # Whether its group has, beside the ranks over ``axes``, those of the mirror's stage.
    mirrored: bool = False


class Stage(NamedTuple):
    """What one pipeline rank holds: ``times`` says how often it runs each program for a microbatch from every end.

    ``number`` and ``layers`` are of the stage whose place in the pipeline is the rank's own.
    """

    number: int
    layers: int
    times: Mapping[str, int]
    # Ends at which microbatches enter the pipeline. Where there are two, a rank holds the stage of its mirror too.
    ends: int = 1
    # What of ``times`` is of the mirror's stage.
    mirrored: Mapping[str, int] = MappingProxyType({})

    @property
    def own(self) -> dict[str, int]:
        """How often one microbatch runs each program on the stage of the rank's own place."""
        return {name: times - self.mirrored.get(name, 0) for name, times in self.times.items()}


class Warn(NamedTuple):
    """Something the user should know that does not stop the answer."""

    code: str
    message: str
