"""What the lines of a log say about a run, and the collective and ranks that follow from them and from the rows."""

from __future__ import annotations

from commcalc.ingest.evidence import Evidence
from commcalc.ingest.sweeps import KINDS

# Where the name of a collective was read, the surest first.
WHENCE = ("the log", "the arguments", "the command", "the file name", "a title line")


class Stated:
    """A run's own words: configuration, devices, command, names."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}  # whence -> collective
        self.threads: int | None = None
        self.gpus: int | None = None
        self.graph = False
        self.ids: set[int] = set()
        self.groups: set[int] = set()
        self.ids_elided = False
        self.nranks: int | None = None
        self.processes: int | None = None
        self.tasks = 0  # highest task label + 1

    @property
    def configured(self) -> bool:
        """Whether a configuration line was read."""
        return self.threads is not None

    def inherit(self, other: Stated) -> None:
        """Take over the ranks of the run before, for a table that has no such lines of its own."""
        self.threads, self.gpus, self.graph = other.threads, other.gpus, other.graph
        self.ids, self.groups, self.ids_elided = set(other.ids), set(other.groups), other.ids_elided
        self.nranks, self.processes, self.tasks = other.nranks, other.processes, other.tasks

    def ranks_by(self, evidence: Evidence, notes: list[str]) -> int | None:
        """Ranks as stated; the count of an element's share is exact and goes before what lines say."""
        share = evidence.shares
        stated = self._stated(evidence, notes)
        if share is not None and share > 1:
            if stated not in (None, share):
                notes.append(f"{stated} ranks are stated, size and count tell {share}")
            return share
        if stated is not None:
            return stated
        local = (self.threads or 1) * (self.gpus or 1)
        for count, whence in ((self.processes, "the command"), (self.tasks, "task labels")):
            if count is not None and count * local > 1 and evidence.allows(count * local):
                notes.append(f"{count * local} ranks, from {whence}")
                return count * local
        if self.configured and local > 1 and evidence.allows(local):
            notes.append(f"{local} ranks, from the configuration line taken for one process")
            return local
        return None

    def _stated(self, evidence: Evidence, notes: list[str]) -> int | None:
        if not self.ids or (self.ids == {0} and self.nranks != 1):
            return self.nranks
        groups = max(self.groups, default=0) + 1
        ranks = (max(self.ids) + 1) // groups
        if self.ids_elided and not evidence.allows(ranks):
            return self.nranks
        if groups > 1:
            notes.append(f"{max(self.ids) + 1} ranks in {groups} groups that run at the same time")
        return ranks

    def collective_by(self, evidence: Evidence, ranks: int | None, notes: list[str]) -> str | None:
        """The collective, by the surest word that the rows do not contradict, or by the rows alone."""
        possible = evidence.collectives(ranks)
        found = None
        for whence in WHENCE:
            name = self.names.get(whence)
            if name is None:
                continue
            if name in possible or not possible or whence in WHENCE[:2]:
                if whence not in WHENCE[:2]:
                    notes.append(f"{name}, from {whence}")
                found = name
                break
            notes.append(f"{whence} says {name}, the rows cannot be that")
        if found is None and len(possible) == 1:
            (found,) = possible
            notes.append(f"{found}, from the columns of the rows")
        if found is None:
            notes.append(f"the log does not say which collective: {' or '.join(sorted(possible)) or 'unclear'}")
        elif found not in KINDS:
            notes.append(f"{found} is no supported collective")
        return found
