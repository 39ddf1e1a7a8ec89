"""The whole answer to a job: its ledger priced, with memory and the step, and all that is to be said of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from commcalc.accounting.ledger import build
from commcalc.accounting.outlook import Outlook, outlook_of
from commcalc.accounting.pricing import PricedLedger, price_ledger
from commcalc.accounting.rows import Warn
from commcalc.catalog.job import Job

if TYPE_CHECKING:
    from commcalc.accounting.comparison import Candidate, Compared


class Answer(NamedTuple):
    """A job and what follows from it; warnings and assumptions are those of all its parts."""

    job: Job
    priced: PricedLedger
    outlook: Outlook


def answer_to(job: Job) -> Answer:
    """Derive and price a job; a degree that is not legal is raised."""
    network = job.hardware.network if job.hardware else None
    book = build(job.model, job.parallel, job.work, job.convention)
    priced = price_ledger(book, network, job.algorithm)
    outlook = outlook_of(priced, job.chip, network, job.algorithm, job.states, job.clock)
    said = priced._replace(
        warnings=(*(Warn(*warning) for warning in job.warnings), *priced.warnings, *outlook.warnings),
        assumptions=(*job.assumptions, *priced.assumptions, *outlook.assumptions),
    )
    return Answer(job, said, outlook)


def candidate_of(job: Job) -> Candidate:
    """The job as one of several that are compared."""
    from commcalc.accounting.comparison import Candidate

    hardware = job.hardware
    return Candidate(
        job.model, hardware.name if hardware else None, job.parallel, job.work, job.convention,
        hardware.network if hardware else None, job.chip, job.algorithm, job.states, job.clock,
    )  # fmt: skip


def compared(answer: Answer) -> Compared:
    """The answer as a row of a comparison."""
    from commcalc.accounting.comparison import Compared, stream_bytes

    return Compared(candidate_of(answer.job), answer.priced, answer.outlook, stream_bytes(answer.priced.ledger))
