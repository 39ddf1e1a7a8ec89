"""What a file says about itself: other names, confidence, repository, notes, and the sources of its values."""

from __future__ import annotations

from collections.abc import Sequence

from commcalc.catalog.fields import Field, read_section, text
from commcalc.document import Items, Leaf, Section
from commcalc.errors import CommcalcError, SpecError

TEXTS = {key: Field(text) for key in ("confidence", "hf_repo", "notes")}
KEYS = ("aliases", "sources", *TEXTS)


def read_about(section: Section, kind: str) -> tuple[dict[str, object], Sequence[CommcalcError]]:
    """The values by key (``sources`` is for `provenance`), and all that is wrong with them."""
    told = {key: node for key, node in section.entries.items() if key in TEXTS}
    read = read_section(Section(section.where, told, section.keys), TEXTS, kind)
    values: dict[str, object] = {}
    names, sources = section.entries.get("aliases"), section.entries.get("sources")
    if isinstance(names, Items) and all(
        isinstance(name, Leaf) and name.text and name.value is not None for name in names.items
    ):
        values["aliases"] = [name.text for name in names.items if isinstance(name, Leaf)]
    elif names is not None:
        hint = "aliases: [h100, h100-sxm5]"
        read.problems.append(SpecError("no list of names", where=f"{names.where} {kind}.aliases", hint=hint))
    if sources is not None and not (
        isinstance(sources, Section) and all(isinstance(node, Leaf) for node in sources.entries.values())
    ):
        hint = 'sources: {hidden_size: "config.json of the repository"}'
        read.problems.append(
            SpecError("no mapping of keys to texts", where=f"{sources.where} {kind}.sources", hint=hint)
        )
    return values | read.values, read.problems
