"""Mutated models, machines, jobs and ``config.json`` files: an answer or a clear error, never a traceback or a hang.

``--fuzz N`` runs N cases (1,000 unless said). A case depends on its number alone, so a failure is repeated with
``--fuzz-first NUMBER --fuzz 1``.
"""

from __future__ import annotations

import json
import random
import re
import signal
from pathlib import Path

import pytest

from commcalc.catalog.presets import ROOT as PRESETS
from commcalc.cli import run
from conftest import DATA

SECONDS = 20
SEEDS = {
    "model": [*sorted((PRESETS / "models").glob("*.yaml")), *sorted((DATA / "configs").glob("*.json"))],
    "hardware": sorted((PRESETS / "hardware").glob("*.yaml")),
    "job": sorted((PRESETS / "jobs").glob("*.yaml")),
}
ANYTHING = [
    "", "null", "~", "true", "no", "0", "-1", "-0.0", "nan", ".nan", ".inf", "1e400", "-1e400", "1e-400", "9" * 400,
    "08", "0x10", "0o17", "1:30", "2026-11-29", "197e12", "1.5", "8192.0", "1_000", "abc", "'", '"', "[]", "{}",
    "[1, 2]",
    "{a: b}", "[[[[", "&a", "*a", "&a *a", "!!python/object/apply:os.system [ls]", "!!binary aGk=", "<<", "\t", "\0",
    "\ufeff", "\u2028", "\x1b[31m", "é", "8 GB", "450 GB/s", "3 us", "1 ZB/s", "GB/s", "{extends: llama-3-70b}", "|",
    ">", "? a", "- - -", "---", "...", "%YAML 9.9", "{" * 60, "[" * 6000, "a: " * 40, "llama-3-70b", "/", "..",
    "x" * 5000,
]  # fmt: skip
KEYS = [
    "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "model_type", "architectures",
    "text_config", "extends", "name", "sources", "network", "devices", "bandwidth", "tp", "pp", "dp", "order",
    "layer_types", "aliases", "shape", "wraparound", "algorithms", "shared_by", "topology",
]  # fmt: skip


def mutated(number: int) -> tuple[str, bytes]:
    """Kind and bytes of case ``number``: a real file, changed one to four times."""
    dice = random.Random(number)
    kind = dice.choice([*SEEDS, "model"])
    text = dice.choice(SEEDS[kind]).read_text()
    for _ in range(dice.randint(1, 4)):
        text = changed(text, dice)
    data = text.encode("utf-8", "surrogatepass")
    if dice.random() < 0.05:
        data = data[: dice.randrange(len(data) + 1)] + dice.randbytes(dice.randint(1, 40))
    return kind, dice.choice([b"\xef\xbb\xbf", b"", b"", b"", b"", b""]) + data


def changed(text: str, dice: random.Random) -> str:
    """The text with one thing changed: a value, a key, a line, or some characters."""
    lines = text.split("\n")
    at = dice.randrange(len(lines))
    match dice.randrange(10):
        case 0 | 1 | 2:
            lines[at] = re.sub(r"(: ).*", lambda found: found[1] + dice.choice(ANYTHING), lines[at], count=1)
        case 3:
            lines[at] = re.sub(r"[\w.]+(?=\"?:)", lambda _: dice.choice(KEYS), lines[at], count=1)
        case 4:
            del lines[at]
        case 5:
            lines.insert(at, lines[dice.randrange(len(lines))])
        case 6:
            lines.insert(at, f"{dice.choice(KEYS)}: {dice.choice(ANYTHING)}")
        case 7:
            lines[at] = "  " * dice.randrange(3) + lines[at].lstrip()
        case 8:
            digits = re.sub(
                r"\d+", lambda _: str(dice.choice([0, 1, 2, 3, 7, 64, 65537, 2**31, 2**53, 10**30])), lines[at]
            )
            lines[at] = digits
        case _:
            cut = dice.randrange(len(text) + 1)
            return text[:cut] + dice.choice(ANYTHING) + text[cut + dice.randrange(20) :]
    return "\n".join(lines)


def question(kind: str, path: Path, number: int) -> list[str]:
    """A command line about the file."""
    dice = random.Random(-number)
    asked = {
        "model": ["ledger", "--model", str(path), "--tp", str(dice.choice([1, 2, 3, 8])), "--seq", "256"],
        "hardware": ["ledger", "--model", "llama-3-8b", "--hardware", str(path), "--tp", "8"],
        "job": ["ledger", str(path)],
    }[kind]
    about_model = [["degrees", "--model", str(path)], ["presets", "import", str(path)]] if kind == "model" else []
    shown = ["presets", "show", str(path), "--kind", kind]
    chosen = dice.choice([asked, asked, asked, shown, ["presets", "validate", str(path)], *about_model])
    return chosen + (["--json"] if dice.random() < 0.5 and chosen[1] != "import" else [])


def test_no_traceback_and_no_hang(fuzz_cases: range, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    def hangs(*_: object) -> None:
        raise TimeoutError(f"longer than {SECONDS} s")

    signal.signal(signal.SIGALRM, hangs)
    for number in fuzz_cases:
        kind, data = mutated(number)
        path = tmp_path / "case.yaml"
        path.write_bytes(data)
        args = question(kind, path, number)
        signal.alarm(SECONDS)
        try:
            status = run(args)
        except BaseException as problem:
            raise AssertionError(f"case {number}: {args}: {problem!r}") from problem
        finally:
            signal.alarm(0)
        told = capfdbinary.readouterr()
        assert status in (0, 2, 3), f"case {number}: {args}"
        assert status == 0 or told.err or told.out, f"case {number} fails without a word"
        assert len(told.err) < 20_000, f"case {number} says {len(told.err)} bytes"
        if "--json" in args:
            json.loads(told.out)
