"""``commcalc verify`` as a document, as tables and as sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from commcalc import __version__
from commcalc.report.table import Column, Table
from commcalc.simulate.check import Check, Run

SCHEMA = "commcalc/verify/1"
# Counts of a collective; all else are errors or what must not happen.
_COUNTS = ("payload_bytes", "wire_bytes", "steps")
_ERRORS = (
    ("forward_error", "forward"),
    ("loss_error", "loss"),
    ("gradient_error", "gradients"),
    ("gradient_norm_error", "norm"),
    ("sgd_update_error", "SGD"),
    ("adam_update_error", "Adam"),
)
_COUNTED = (("result", "result"), ("egress_bytes", "egress"), ("link_bytes", "busiest link"), ("steps", "steps"))
# Failures told under the tables; a document has them all.
MOST_TOLD = 20


class Proof(NamedTuple):
    """Everything that was run: layouts, strategies of an expression, collectives; and what was taken for granted."""

    layouts: Sequence[Run]
    strategies: Sequence[Run]
    collectives: Sequence[Run]
    format: str
    seed: int
    expression: str
    assumptions: Sequence[str]

    @property
    def runs(self) -> list[Run]:
        """All of them."""
        return [*self.layouts, *self.strategies, *self.collectives]

    @property
    def checks(self) -> list[tuple[Run, Check]]:
        """Every check with its run."""
        return [(run, check) for run in self.runs for check in run.checks]

    @property
    def failed(self) -> list[tuple[Run, Check]]:
        """Those that failed."""
        return [(run, check) for run, check in self.checks if not check.passed]


def check_record(run: Run, check: Check) -> dict[str, object]:
    """One check; ``at_most`` tells that ``expected`` is the largest error allowed, and not a count to be met.

    What is no finite number is null: an error where nothing came out at all.
    """
    return {
        "layout": run.layout or None,
        "mesh": dict(run.mesh),
        "case": run.case,
        "note": run.note or None,
        "what": check.what,
        "where": check.where or None,
        "expected": _finite(check.expected),
        "at_most": check.most,
        "found": _finite(bound(check)),
        "found_is": "a bound" if check.most and check.passed else "exact",
        "passed": check.passed,
        "message": check.message or None,
    }


def bound(check: Check) -> float:
    """What was found; of an error that is allowed a power of ten that it is below, since its digits are rounding.

    Those are another machine's business; nothing smaller than a hundredth of what is allowed, or than 1, is told apart.

    >>> bound(Check("forward_error", 1e-12, 3.1e-14, True, most=True)), bound(Check("steps", 6, 6, True))
    (1e-13, 6)
    """
    if not (check.most and check.passed):
        return check.found
    least = min(0, math.ceil(math.log10(check.expected)) - 2)
    power = float(f"1e{max(least, math.ceil(math.log10(check.found)) if check.found else least)}")
    return min(power, check.expected)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def verify_document(proof: Proof, explain: bool) -> dict[str, object]:
    """The document of ``commcalc verify --json``."""
    return {
        "schema": SCHEMA,
        "version": __version__,
        "passed": not proof.failed,
        "dtype": proof.format,
        "seed": proof.seed,
        "expression": proof.expression or None,
        "runs": len(proof.runs),
        "failed": len(proof.failed),
        "checks": verify_records(proof, explain),
        "assumptions": list(proof.assumptions),
        "warnings": [],
    }


def verify_records(proof: Proof, explain: bool) -> list[dict[str, object]]:
    """A record for every check, to explain with its formula."""
    return [
        check_record(run, check) | ({"formula": check.formula or None} if explain else {})
        for run, check in proof.checks
    ]


def verdict(proof: Proof) -> str:
    """How much was checked, and whether all of it passed."""
    checks, failed = len(proof.checks), len(proof.failed)
    kinds = ((proof.layouts, "layout"), (proof.strategies, "strategy"), (proof.collectives, "collective"))
    runs = " and ".join(_many(len(found), name) for found, name in kinds if found)
    told = "all passed" if not failed else f"{failed:,} failed"
    return f"{runs} in {proof.format}, seed {proof.seed}: {checks:,} checks, {told}\n"


def _many(count: int, name: str) -> str:
    plural = name[:-1] + "ies" if name.endswith("y") else f"{name}s"
    return f"{count:,} runs of {plural}" if count != 1 else f"1 run of a {name}"


def failures(proof: Proof) -> str:
    """What failed, where it is and what it means; the first ones."""
    lines = []
    for run, check in proof.failed[:MOST_TOLD]:
        lines.append(f"failed: {check.what} of {_name(run)}")
        expected, found = _numbers(check)
        lines.append(f"  at {check.where or 'the end'}: {found}, expected {expected}")
        if check.message:
            lines.append(f"  {check.message}")
    if len(proof.failed) > MOST_TOLD:
        lines.append(f"and {len(proof.failed) - MOST_TOLD:,} more")
    return "".join(f"{line}\n" for line in lines)


def verify_tables(proof: Proof, explain: bool) -> list[Table]:
    """Layouts, strategies and collectives, a row for each run (or for each size of one); every check to explain."""
    tables = []
    if proof.layouts:
        tables.append(_layouts(proof.layouts))
    if proof.strategies:
        tables.append(_strategies(proof.strategies))
    if proof.collectives:
        tables.append(_collectives(proof.collectives))
    return [*tables, _explained(proof)] if explain else tables


def _layouts(runs: Sequence[Run]) -> Table:
    columns = (
        Column("layout"),
        *(Column(title, number=True) for _, title in _ERRORS),
        Column("rows", number=True), Column("bytes"), Column("steps"), Column("verdict"),
    )  # fmt: skip
    rows: list[tuple[str, ...]] = []
    for case in dict.fromkeys(run.case for run in runs):
        rows.append((case,))
        rows += [
            (
                ", ".join([f"  {run.layout}", *(f"{axis} {size}" for axis, size in run.mesh), *_notes(run)]),
                *(_error(run, what) for what, _ in _ERRORS),
                str(sum(check.what == "wire_bytes" for check in run.checks)),
                _share(run.checks, "payload_bytes", "wire_bytes", "rows", "kind"),
                _share(run.checks, "steps"),
                _word(run.passed),
            )
            for run in runs
            if run.case == case
        ]
    return Table("Layouts: relative errors against one device, and the rows of the ledger that were counted", columns,
                 tuple(rows))  # fmt: skip


def _notes(run: Run) -> list[str]:
    return [run.note] if run.note else []


def _strategies(runs: Sequence[Run]) -> Table:
    columns = (
        Column("strategy"), Column("result", number=True), Column("gradients", number=True),
        Column("collectives", number=True), Column("bytes"), Column("steps"), Column("verdict"),
    )  # fmt: skip
    rows = [
        (
            run.case,
            _error(run, "forward_error"),
            _error(run, "gradient_error"),
            str(sum(check.what == "wire_bytes" for check in run.checks)),
            _share(run.checks, "payload_bytes", "wire_bytes", "rows"),
            _share(run.checks, "steps"),
            _word(run.passed),
        )
        for run in runs
    ]
    return Table("Strategies: relative errors against whole arrays, and collectives forward and back", columns,
                 tuple(rows))  # fmt: skip


def _collectives(runs: Sequence[Run]) -> Table:
    columns = (
        Column("collective"), Column("devices"), *(Column(title) for _, title in _COUNTED), Column("verdict"),
    )  # fmt: skip
    rows = []
    for case in dict.fromkeys(run.case for run in runs):
        alike = [run for run in runs if run.case == case]
        checks = [check for run in alike for check in run.checks]
        sizes = sorted({math.prod(size for _, size in run.mesh) for run in alike})
        counts = [
            _share(checks, *(name for name in {check.what for check in checks} if name.startswith(what)))
            for what, _ in _COUNTED
        ]
        rows.append((case, _listed(sizes), *counts, _word(all(run.passed for run in alike))))
    return Table("Collectives: results, bytes and steps against the closed forms", columns, tuple(rows))


def _explained(proof: Proof) -> Table:
    columns = (
        Column("run"), Column("what"), Column("expected", number=True), Column("found", number=True), Column("formula"),
        Column("where"),
    )  # fmt: skip
    rows = [(_name(run), check.what, *_numbers(check), check.formula, check.where) for run, check in proof.checks]
    return Table("Every check", columns, tuple(rows))


def _name(run: Run) -> str:
    """``megatron-sp on tp=4 (gqa gated, KV heads copied)``."""
    mesh = ", ".join(f"{name}={size}" for name, size in run.mesh)
    told = ", ".join(part for part in (run.case, run.note) if part)
    return f"{run.layout} on {mesh} ({told})" if run.layout else f"{told} on {mesh}"


def _numbers(check: Check) -> tuple[str, str]:
    """What was expected and what was found."""
    if check.most:
        return f"at most {check.expected:.3g}", f"below {bound(check):.3g}" if check.passed else f"{check.found:.3g}"
    return f"{check.expected:,.10g}", f"{check.found:,.10g}"


def _error(run: Run, what: str) -> str:
    """The error of that name, the largest where there are several."""
    found = [check for check in run.checks if check.what == what]
    if not found:
        return "-"
    worst = max(found, key=lambda check: check.found if check.found == check.found else math.inf)
    return f"<{bound(worst):.2g}" if worst.passed else f"{worst.found:.3g}"


def _share(checks: Iterable[Check], *names: str) -> str:
    """``14/14``: how many of these checks passed; ``-`` where there are none."""
    chosen = [check.passed for check in checks if check.what in names]
    return f"{sum(chosen)}/{len(chosen)}" if chosen else "-"


def _listed(sizes: Sequence[int]) -> str:
    """``2..8`` where no number is left out, else ``2, 4, 8``."""
    if len(sizes) > 2 and sizes == list(range(sizes[0], sizes[-1] + 1)):
        return f"{sizes[0]}..{sizes[-1]}"
    return ", ".join(map(str, sizes))


def _word(passed: bool) -> str:
    return "passed" if passed else "FAILED"
