"""The parts of a ledger: one collective, one pipeline stage, one warning."""

from collections.abc import Mapping
from typing import NamedTuple

from commcalc.algebra.collective import Kind
from commcalc.algebra.program import Role
from commcalc.algebra.size import Size
from commcalc.units import Dtype


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


class Stage(NamedTuple):
    """What one pipeline rank holds: ``times`` says how often it runs each program for a microbatch."""

    number: int
    layers: int
    times: Mapping[str, int]


class Warn(NamedTuple):
    """Something the user should know that does not stop the answer."""

    code: str
    message: str
