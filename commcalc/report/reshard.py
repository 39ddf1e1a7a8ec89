"""``commcalc reshard`` as a document and as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from commcalc import __version__
from commcalc.accounting.resharding import Resharding, Route
from commcalc.report.sharded import Style, explain_bill, question, slice_records, step_record, steps_table
from commcalc.report.table import Table
from commcalc.units import Dtype


def route_record(route: Route, found: Resharding, style: Style) -> dict[str, object]:
    """One sequence of collectives."""
    record: dict[str, object] = {
        "name": route.name,
        "steps": [
            step_record(bill, found.problem, style) | ({"explain": explain_bill(bill, found)} if style.explain else {})
            for bill in route.steps
        ],
        "slices": slice_records(route.slices, found.problem, style),
        "wire_bytes": route.wire_bytes,
        "comm_s": route.comm_s if found.pricing.fabric.network is not None else None,
    }
    return record | {"lost_because": None if route is found.best else found.lost(route)}


def reshard_document(found: Resharding, dtype: Dtype, assumptions: Sequence[str], style: Style) -> dict[str, object]:
    """The document of ``commcalc reshard --json``."""
    best: Mapping[str, object] = route_record(found.best, found, style)
    return {
        "schema": "commcalc/reshard/1",
        "version": __version__,
        **question(found.problem, dtype),
        "minimize": found.pricing.objective,
        **{key: value for key, value in best.items() if key not in ("name", "lost_because")},
        "alternatives": [route_record(route, found, style) for route in found.alternatives],
        "assumptions": list(assumptions),
        "warnings": [],
    }


def reshard_tables(found: Resharding, style: Style) -> list[Table]:
    """The steps of the cheapest and of each other sequence."""
    routes = (found.best, *found.alternatives)
    return [
        steps_table("Sequences, cheapest first", [(_titled(one, found), one.stages) for one in routes], found, style)
    ]


def _titled(route: Route, found: Resharding) -> str:
    sent = f"{route.wire_bytes:,} B"
    return f"{route.name}: {sent}" if route is found.best else f"{route.name}: {sent}, {found.lost(route)}"


def reshard_explanation(found: Resharding) -> str:
    """Every number of the cheapest sequence with its formula."""
    lines = []
    for route in (found.best, *found.alternatives):
        lines.append(route.name)
        for bill in route.steps:
            lines.append(f"  {bill.step.kind}")
            lines += [f"    {line}" for line in explain_bill(bill, found)]
    values = found.problem.values()
    lines.append("n = ranks in the group; " + ", ".join(f"{name} = {size}" for name, size in values.items()))
    return "\n".join(lines) + "\n"
