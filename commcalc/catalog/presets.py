"""Finding what a user names: a packaged preset, a file, or the fields themselves."""

from __future__ import annotations

import os
import re
from pathlib import Path

from commcalc.document import Section, parse_document, read_text
from commcalc.errors import SpecError, UnknownName

_HERE = Path(__file__).resolve().parent.parent
# A wheel carries the presets inside the package; a checkout has them beside it.
ROOT = _HERE / "_presets" if (_HERE / "_presets").is_dir() else _HERE.parent / "presets"

_FOLDERS = {"model": "models", "hardware": "hardware", "job": "jobs"}
_ALIASES = re.compile(r"^aliases: *\[(.*)\]", re.MULTILINE)


def names(kind: str) -> list[str]:
    """The packaged presets of a kind (model, hardware, job), sorted."""
    return sorted(path.stem for path in (ROOT / _FOLDERS[kind]).glob("*.yaml"))


def load(kind: str, given: str) -> Section:
    """The document that ``given`` names; `UnknownName` or `SpecError` where there is none.

    ``{...}`` is the fields themselves; what has a ``/`` or ends in ``.yaml``, ``.yml`` or ``.json`` is a file; anything
    else is a preset, found ignoring case, ``-``, ``_`` and ``.`` where that is unambiguous.
    """
    if given.lstrip().startswith("{"):
        return parse_document(given, f"--{kind}")
    if "/" in given or given.lower().endswith((".yaml", ".yml", ".json")):
        return _named(parse_document(read_text(given), given), Path(given).stem)
    name = resolve(kind, given)
    path = ROOT / _FOLDERS[kind] / f"{name}.yaml"
    return _named(parse_document(read_text(str(path)), f"preset {name}"), name)


def resolve(kind: str, given: str) -> str:
    """The name of the preset that ``given`` means."""
    if re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,99}", given) and os.path.isfile(ROOT / _FOLDERS[kind] / f"{given}.yaml"):
        return given
    known = {name: name for name in names(kind)}
    known |= {alias: name for name in known for alias in aliases(kind, name)}
    found = sorted({name for spelled, name in known.items() if _folded(spelled) == _folded(given)})
    if len(found) == 1:
        return found[0]
    if found:
        raise SpecError(f"{kind} {given[:80]!r} could be {' or '.join(found)}", where=f"--{kind}")
    raise UnknownName(
        f"{kind} preset", given, known, where=f"{kind}: {given[:80]}"
    )  # fmt: skip


def aliases(kind: str, name: str) -> list[str]:
    """The other names that a preset gives itself."""
    found = _ALIASES.search((ROOT / _FOLDERS[kind] / f"{name}.yaml").read_text(encoding="utf-8"))
    return [alias.strip() for alias in found.group(1).split(",") if alias.strip()] if found else []


def _folded(name: str) -> str:
    return re.sub(r"[-_. ]", "", name).casefold()


def _named(section: Section, name: str) -> Section:
    """The document, called ``name`` unless it says otherwise."""
    from commcalc.document import Leaf

    if "name" not in section.entries:
        section.entries = {"name": Leaf(name, name, section.where), **section.entries}
        section.keys["name"] = section.where
    return section
