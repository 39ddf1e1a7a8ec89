"""Finding what a user names: a preset of theirs or a packaged one, a file, or the fields themselves.

``COMMCALC_PRESETS`` names folders (like ``PATH``) that hold ``models/``, ``hardware/`` and ``jobs/``; they are asked
before the packaged ones. A file may extend another: ``extends: h100-sxm``, then what differs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from commcalc.document import Items, Leaf, Node, Section, parse_document, read_text
from commcalc.errors import SpecError, UnknownName, nearest

_HERE = Path(__file__).resolve().parent.parent
# A wheel carries the presets inside the package; a checkout has them beside it.
ROOT = _HERE / "_presets" if (_HERE / "_presets").is_dir() else _HERE.parent / "presets"
VARIABLE = "COMMCALC_PRESETS"

FOLDERS = {"model": "models", "hardware": "hardware", "job": "jobs"}
_ALIASES = re.compile(r"^aliases: *\[(.*)\]", re.MULTILINE)
_PLAIN = re.compile(r"[\w., -]*")
MAX_CHAIN = 16
# What a level's measured times are of: where one of these is replaced, they are of another link.
OF_THE_LINK = ("bandwidth", "latency", "topology", "shared_by", "oversubscription", "in_network_reduction")


def folders() -> list[Path]:
    """Where presets are looked for, in order; `SpecError` for a folder that is not there."""
    own = [Path(part) for part in dict.fromkeys(os.environ.get(VARIABLE, "").split(os.pathsep)) if part]
    for folder in own:
        if not os.path.isdir(folder):
            told = f"no folder: {str(folder)[:200]}"
            raise SpecError(told, where=VARIABLE, hint=f"{VARIABLE}=FOLDER with models/, hardware/")
    return [*own, ROOT]


def preset_files(kind: str) -> dict[str, Path]:
    """The file of every preset of a kind (model, hardware, job), by name; the first folder that has a name wins."""
    found: dict[str, Path] = {}
    for folder in folders():
        for path in _files_in(folder, kind):
            found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def _files_in(folder: Path, kind: str) -> list[Path]:
    """The preset files of a folder; a pipe, which would wait, is none."""
    return [path for path in (folder / FOLDERS[kind]).glob("*.yaml") if path.is_file()]


def names(kind: str) -> list[str]:
    """The presets of a kind, sorted."""
    return list(preset_files(kind))


def is_packaged(path: Path) -> bool:
    """Whether a preset file came with commcalc."""
    return path.resolve().is_relative_to(ROOT)


def is_path(given: str) -> bool:
    """Whether ``given`` means a file: it has a ``/`` or ends in ``.yaml``, ``.yml`` or ``.json``."""
    return "/" in given or given.lower().endswith((".yaml", ".yml", ".json"))


def load(kind: str, given: str) -> Section:
    """The document that ``given`` names; `UnknownName` or `SpecError` where there is none.

    ``{...}`` is the fields themselves; what `is_path` is a file; anything else is a preset, found ignoring case, ``-``,
    ``_`` and ``.`` where that is unambiguous.
    """
    if given.lstrip().startswith("{"):
        return extended(kind, parse_document(given, f"--{kind}"))
    return _load(kind, given, ())


def extended(kind: str, section: Section) -> Section:
    """A mapping laid over the preset or file that its ``extends`` names."""
    return _extended(kind, section, Path(), ())


def _load(kind: str, given: str, seen: Sequence[Path]) -> Section:
    """The document of a name or path; files in ``seen`` are being read already."""
    file = given if is_path(given) else str(resolve(kind, given, seen))
    text = read_text(file)
    path = Path(file).resolve()
    place = f"preset {path.stem}" if is_packaged(path) else file
    if path in seen:
        chain = " -> ".join([*(one.stem for one in seen), path.stem])
        raise SpecError(f"extends itself: {chain}", where=place, hint="one of them must not extend another")
    if len(seen) >= MAX_CHAIN:
        raise SpecError(f"a chain of more than {MAX_CHAIN} files that extend each other", where=place)
    return _extended(kind, _named(parse_document(text, place), Path(file).stem), Path(file).parent, [*seen, path])


def _extended(kind: str, section: Section, folder: Path, seen: Sequence[Path]) -> Section:
    node = section.entries.pop("extends", None)
    section.keys.pop("extends", None)
    if node is None:
        return section
    if not isinstance(node, Leaf) or not isinstance(node.value, str) or not node.text:
        raise SpecError("extends names one preset or file", where=node.where, hint="extends: h100-sxm")
    given = str(folder / node.text) if is_path(node.text) else node.text
    try:
        base = _load(kind, given, seen)
    except (UnknownName, SpecError) as problem:
        if problem.where in (None, given, f"{kind}: {given[:80]}"):
            problem.where = f"{node.where} extends"
        raise
    if kind == "model":
        from commcalc.catalog.models import as_fields

        base = as_fields(base)
    base.entries.pop("aliases", None)
    notes, name = base.entries.get("notes"), base.entries.get("name")
    if isinstance(notes, Leaf) and isinstance(name, Leaf):  # they speak of the file they stand in
        told = f"of {name.text}: {notes.text}"
        base.entries["notes"] = Leaf(told, told, notes.where)
    return _laid_over(base, section)


def _laid_over(base: Section, top: Section) -> Section:
    """``top`` over ``base``: mappings key by key, lists of named things (levels, sweeps) by name, null takes away."""
    merged = Section(top.where, dict(base.entries), base.keys | top.keys)
    if "measured" in base.entries and any(key in top.entries for key in OF_THE_LINK):
        merged.entries.pop("measured")  # times of another link
    for key, node in top.entries.items():
        under = merged.entries.get(key)
        if isinstance(node, Section) and isinstance(under, Section):
            merged.entries[key] = _laid_over(under, node)
        elif isinstance(node, Items) and isinstance(under, Items):
            merged.entries[key] = _by_name(under, node)
        elif isinstance(node, Leaf) and node.value is None:
            merged.entries.pop(key, None)
        else:
            merged.entries[key] = node
    return merged


def _by_name(base: Items, top: Items) -> Items:
    """Items of ``top`` over those of ``base`` that have the same name; new ones follow. Without names, ``top``."""
    if not all(_name_of(item) for item in [*base.items, *top.items]):
        return top
    for at, item in enumerate(top.items):
        if _name_of(item) in map(_name_of, top.items[:at]):
            raise SpecError(f"two items are called {_name_of(item)!r}", where=item.where)
    merged = Items(top.where)
    over = {_name_of(item): item for item in top.items}
    for item in base.items:
        new = over.pop(_name_of(item), None)
        if isinstance(new, Section) and "collective" in new.entries:
            merged.items.append(new)  # a sweep is taken whole
        elif isinstance(item, Section) and isinstance(new, Section):
            merged.items.append(_laid_over(item, new))
        else:
            merged.items.append(item)
    merged.items += [item for item in top.items if _name_of(item) in over]
    return merged


def _name_of(item: Node) -> str:
    """The name of a list's item; a measured sweep goes by its collective and group."""
    if not isinstance(item, Section):
        return ""
    name = item.entries.get("name")
    if name is None and "collective" in item.entries:
        parts = [item.entries.get(key) for key in ("collective", "ranks", "nodes", "algorithm")]
        return " ".join(part.text if isinstance(part, Leaf) else "" for part in parts)
    return name.text if isinstance(name, Leaf) else ""


def resolve(kind: str, given: str, without: Sequence[Path] = ()) -> Path:
    """The file of the preset that ``given`` means, ``without`` these; `UnknownName` with the nearest names."""
    where = f"{kind}: {given[:80]}"
    candidates = folders()
    if re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,99}", given):
        exact = [folder / FOLDERS[kind] / f"{given}.yaml" for folder in candidates]
        there = [path for path in exact if path.is_file()]
        if there:
            return next((path for path in there if path.resolve() not in without), there[0])
    files, known = preset_files(kind), spellings(kind)
    found = sorted({name for spelled, name in known.items() if _folded(spelled) == _folded(given)})
    if len(found) == 1:
        return files[found[0]]
    if found:
        raise SpecError(f"{kind} {given[:80]!r} could be {' or '.join(found)}", where=where)
    hint = None if nearest(given, known) else f"commcalc presets list --kind {kind}"
    raise UnknownName(f"{kind} preset", given, known, where=where, hint=hint)


def spellings(kind: str) -> dict[str, str]:
    """Every name and alias of the presets of a kind, with the name that it means."""
    known = {name: name for name in names(kind)}
    for folder in reversed(folders()):  # a preset that covers another keeps the names it went by
        known |= {alias: path.stem for path in _files_in(folder, kind) for alias in aliases(path)}
    return known


def aliases(path: Path) -> list[str]:
    """The other names that a preset gives itself."""
    try:
        text = read_text(str(path))
        found = _ALIASES.search(text)
        if found and _PLAIN.fullmatch(found.group(1)):  # as packaged ones are written: no YAML reader is loaded
            return [alias.strip() for alias in found.group(1).split(",") if alias.strip()]
        node = parse_document(text, str(path)).entries.get("aliases") if "aliases" in text else None
    except SpecError:  # told when somebody asks for that preset
        return []
    return [item.text for item in node.items if isinstance(item, Leaf)] if isinstance(node, Items) else []


def _folded(name: str) -> str:
    return re.sub(r"[-_. ]", "", name).casefold()


def _named(section: Section, name: str) -> Section:
    """The document, called ``name`` unless it says otherwise."""
    if "name" not in section.entries:
        section.entries = {"name": Leaf(name, name, section.where), **section.entries}
        section.keys["name"] = section.where
    return section
