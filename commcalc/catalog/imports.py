"""A ``config.json`` as a model preset: every value that was read, and where it came from."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path

from commcalc import __version__
from commcalc.catalog.models import is_config, read_model
from commcalc.document import Leaf, Section, decode, parse_document, read_bytes
from commcalc.errors import SpecError, UsageError, raise_all


def preset_name(given: str | None, config: Section, path: str) -> str:
    """The name of a preset: as given, or of the repository the file names, or of its folder or file."""
    if given is not None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,99}", given):
            raise UsageError(
                f"{given[:60]!r} is no name of a preset", where=f"--name {given[:60]}",
                hint="lower-case letters, digits, dots and dashes, like llama-3-70b",
            )  # fmt: skip
        return given
    told = config.entries.get("_name_or_path")
    stem = Path(path).stem
    if isinstance(told, Leaf) and told.text.strip("/. "):
        stem = told.text.rstrip("/").rsplit("/", 1)[-1]
    elif stem == "config":
        stem = os.path.basename(os.path.dirname(os.path.abspath(path)))
    return re.sub(r"[^a-z0-9.]+", "-", stem.lower()).strip("-.")[:100] or "model"


def preset_text(path: str, given_name: str | None = None) -> tuple[str, str]:
    """Name and YAML text of the preset that a ``config.json`` makes; raises all that is wrong with it."""
    data = read_bytes(path)
    config = parse_document(decode(data, path), path)
    if not is_config(config):
        raise SpecError(
            "no config.json of Hugging Face: neither model_type nor architectures", where=path,
            hint="a model YAML file is a preset already; commcalc presets validate checks it",
        )  # fmt: skip
    name = preset_name(given_name, config, path)
    model, read = read_model(config)
    raise_all(read.problems)
    values = {
        key: value for key, value in model._replace(name=name).described().items() if value is not None and value != ""
    }
    values = {"name": name, **values}
    short = os.path.basename(path)
    sources = {
        key: where.replace(f"{path}:", f"{short}:", 1) if where.startswith(f"{path}:") else where
        for key, where in read.sources.items()
        if key in values and key != "name"
    }
    digest = hashlib.sha256(data).hexdigest()
    lines = [f"{key}: {_scalar(value)}" for key, value in values.items()]
    lines += ["sources:", *(f"  {key}: {_scalar(where)}" for key, where in sources.items())]
    note = f"imported by commcalc {__version__} from {short}, sha256 {digest}"
    return name, "\n".join([*lines, f"notes: {_scalar(note)}"]) + "\n"


def _scalar(value: object) -> str:
    """A value as YAML writes it: JSON is YAML, and plain words need no quotes."""
    if isinstance(value, str) and re.fullmatch(r"[a-z][a-z0-9_.-]*", value) and value not in ("null", "true", "false"):
        return str(value)
    return json.dumps(value, ensure_ascii=False)
