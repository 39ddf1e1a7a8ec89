"""Imports point one way: a package imports only itself and what stands above it in the design."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from conftest import ROOT

# From the ground up; a package may import those before it.
ORDER = [
    "errors", "units", "ranges", "document", "algebra", "network", "transformer", "accounting", "simulate", "ingest",
    "catalog", "schemas", "report", "cli",
]  # fmt: skip
# The prices of collectives are stated in kinds and wire ratios, which the algebra owns; nothing else crosses.
PACKAGE = ROOT / "commcalc"


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {module for module in found if module.startswith("commcalc.")}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def wrong(path: Path) -> list[str]:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    mine = parts[0]
    if mine in ("__init__", "__main__"):
        return []
    return [module for module in sorted(imported(path)) if ORDER.index(room(module)) > ORDER.index(mine)]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_arrows_point_down(path: Path) -> None:
    assert wrong(path) == []


def test_an_arrow_that_points_up_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("from commcalc.cli import main\nimport commcalc.network.link\n")
    assert imported(path) == {"commcalc.cli", "commcalc.network.link"}
    assert ORDER.index(room("commcalc.cli")) > ORDER.index("algebra")


def test_the_algebra_knows_no_network_and_the_network_no_transformer() -> None:
    for package, stranger in (("algebra", "network"), ("network", "transformer"), ("accounting", "catalog")):
        for path in (PACKAGE / package).glob("*.py"):
            assert not any(room(module) == stranger for module in imported(path)), path


def test_every_room_has_its_place() -> None:
    rooms = {path.stem if path.is_file() else path.name for path in PACKAGE.iterdir() if path.name[0] not in "._"}
    assert rooms - {"py"} <= {*ORDER, "__init__", "__main__", "py"}


def test_no_room_is_over_400_lines() -> None:
    assert {str(path) for path in modules() if len(path.read_text().splitlines()) > 400} == set()
