"""The record of an experiment as a file: every number with its place, and all that is wrong told together."""

from __future__ import annotations

from collections.abc import Mapping

from commcalc.accounting.quantities import COUNT, NUMBER, Quantity, bound_of, quantity_of
from commcalc.accounting.record import Measured, Pair, Record
from commcalc.document import Items, Leaf, Node, Section, parse_document
from commcalc.errors import CommcalcError, SpecError, UnknownName, raise_all

SCHEMA = "commcalc/record/1"
KEYS = (
    "schema", "version", "name", "units", "job", "tensor_parallel", "model", "microbatch", "linear_layers",
    "collectives", "step", "correctness", "notes",
)  # fmt: skip
STEP = ("time_s", "compute_s", "comm_s", "exposed_s", "bubble_s")
CORRECTNESS = ("loss", "gradient_norm", "parameter_update_error")
_OF_A_CALL = ("payload_bytes", "wire_bytes", "count_in_step")
_TEXTS = ("name", "part", "pass", "sublayer", "op", "collective", "group", "tensor", "dtype", "per", "level")
PAIRS = ("count", "mean_s", "p95_s", "exposed_tail_s")
_OTHER = ("group_size",)


def read_record(text: str, name: str) -> Record:
    """The record that YAML text holds; `SpecError` for another schema, and for all values that are wrong."""
    root = parse_document(text, name)
    schema = root.entries.get("schema")
    if not isinstance(schema, Leaf) or schema.value != SCHEMA:
        found = f"schema {schema.text[:60]!r}" if isinstance(schema, Leaf) else "no schema"
        where = f"{schema.where} schema" if schema else root.where
        raise SpecError(f"{found}: this reads {SCHEMA}", where=where, hint="commcalc record JOB writes one")
    return _Reader(root).record()


class _Reader:
    """Reads the sections of a record and collects what is wrong, and what is missing."""

    def __init__(self, root: Section) -> None:
        self.root = root
        self.problems: list[CommcalcError] = []
        self.missing: list[str] = []

    def record(self) -> Record:
        self.known(self.root, KEYS, "the record")
        name = self.root.entries.get("name")
        group = self.section(self.root, "tensor_parallel")
        degree = self.number(group, "degree", COUNT, "tensor_parallel")
        collectives = self.collectives()
        step = self.pairs("step", STEP, "predicted")
        correctness = self.pairs("correctness", CORRECTNESS, "baseline")
        raise_all(self.problems)
        told = name.text if isinstance(name, Leaf) else ""
        return Record(told, int(degree or 0), tuple(collectives), step, correctness, tuple(self.missing))

    def known(self, section: Section, keys: tuple[str, ...], what: str) -> None:
        self.problems += [
            UnknownName(f"key in {what}", key, keys, where=section.keys[key])
            for key in section.entries
            if key not in keys
        ]

    def section(self, parent: Section, key: str) -> Section:
        node = parent.entries.get(key)
        if isinstance(node, Section):
            return node
        where = f"{node.where} {key}" if node else parent.where
        self.problems.append(SpecError(f"no section {key}", where=where, hint="commcalc record JOB writes one"))
        return Section(where)

    def number(self, section: Section, key: str, quantity: Quantity, path: str) -> float | None:
        """A number that must be there."""
        node = section.entries.get(key)
        if node is None:
            if section.entries:
                self.problems.append(SpecError(f"no {key}", where=f"{section.where} {path}.{key}"))
            return None
        return self.value(node, quantity, f"{path}.{key}")

    def value(self, node: Node, quantity: Quantity, path: str) -> float | None:
        """A number, or nothing where none is written yet."""
        where = f"{node.where} {path}"
        if not isinstance(node, Leaf):
            self.problems.append(SpecError("one number is expected here", where=where))
            return None
        if node.value is None:
            return None
        try:
            return bound_of(node, quantity)
        except CommcalcError as problem:
            self.problems.append(SpecError(problem.message, where=where, hint=problem.hint))
            return None

    def pair(self, section: Section, key: str, path: str, quantity: Quantity, first: str = "predicted") -> Pair:
        """A value predicted and measured; a measured time is above zero."""
        node = section.entries.get(key)
        if node is None:
            self.missing.append(f"{path}.measured")
            return Pair()
        if not isinstance(node, Section):
            hint = f"{key}: {{{first}: ..., measured: ...}}"
            self.problems.append(
                SpecError(f"{first} and measured are expected here", where=f"{node.where} {path}", hint=hint)
            )
            return Pair()
        self.known(node, (first, "measured"), path)
        read = {
            one: self.value(node.entries[one], quantity, f"{path}.{one}") if one in node.entries else None
            for one in (first, "measured")
        }
        if read["measured"] is None:
            self.missing.append(f"{path}.measured")
        elif not read["measured"] and key in ("mean_s", "p95_s", "time_s"):
            where = f"{node.entries['measured'].where} {path}.measured"
            self.problems.append(
                SpecError("a measured time of zero", where=where, hint="leave it empty until it is measured")
            )
        return Pair(read[first], read["measured"])

    def pairs(self, name: str, keys: tuple[str, ...], first: str) -> Mapping[str, Pair]:
        section = self.section(self.root, name)
        self.known(section, keys, name)
        found = {}
        for key in keys:
            quantity = quantity_of(key, 0.0) if key.endswith("_s") else NUMBER
            found[key] = self.pair(section, key, f"{name}.{key}", quantity, first)
        return found

    def collectives(self) -> list[Measured]:
        node = self.root.entries.get("collectives")
        if not isinstance(node, Items):
            where = f"{node.where} collectives" if node else self.root.where
            self.problems.append(
                SpecError("no list of collectives", where=where, hint="commcalc record JOB writes one")
            )
            return []
        found: list[Measured] = []
        seen: dict[str, str] = {}
        for item in node.items:
            if not isinstance(item, Section):
                self.problems.append(SpecError("a mapping is expected here", where=f"{item.where} collectives"))
                continue
            one = self.collective(item)
            if one.name in seen:
                self.problems.append(
                    SpecError(
                        f"two collectives are called {one.name!r}", where=item.where, hint=f"first at {seen[one.name]}"
                    )
                )
            seen.setdefault(one.name, item.where)
            found.append(one)
        return found

    def collective(self, item: Section) -> Measured:
        self.known(item, (*_TEXTS, *_OF_A_CALL, *PAIRS, *_OTHER), "a collective")
        texts = {}
        for key in ("name", "group", "collective"):
            leaf = item.entries.get(key)
            if not isinstance(leaf, Leaf) or not leaf.text:
                self.problems.append(SpecError(f"no {key}", where=f"{item.where} collectives.{key}"))
            texts[key] = leaf.text if isinstance(leaf, Leaf) else ""
        path = f"collectives.{texts['name']}"
        sizes = {key: int(self.number(item, key, quantity_of(key, 0), path) or 0) for key in _OF_A_CALL}
        pairs = {key: self.pair(item, key, f"{path}.{key}", quantity_of(key, 0)) for key in PAIRS}
        return Measured(
            name=texts["name"], group=texts["group"], collective=texts["collective"],
            payload_bytes=sizes["payload_bytes"], wire_bytes=sizes["wire_bytes"], count_in_step=sizes["count_in_step"],
            calls=pairs["count"], mean_s=pairs["mean_s"], p95_s=pairs["p95_s"].measured,
            exposed_tail_s=pairs["exposed_tail_s"].measured,
        )  # fmt: skip
