"""Every explained line is true: its right side is what its left side comes to."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from commcalc.accounting.explain import explain_names, explain_row, explain_totals
from conftest import ask

QUESTIONS = {
    "default": {"model": "llama-3-70b", "hardware": "h100", "parallelism__tp": 8},
    "crossing": {"model": "gpt3-175b", "hardware": "h100", "parallelism__tp": 16, "workload__recompute": "full"},
    "not divisible": {
        "model": "llama-3-70b", "hardware": "a100", "parallelism__tp": 16, "parallelism__kv": "gather",
        "workload__sequence_length": 1,
    },
    "stages": {
        "model": "falcon-40b", "parallelism__tp": 8, "parallelism__sp": True, "parallelism__pp": 4,
        "parallelism__dp": 2, "workload__global_batch_size": 8,
    },
    "textbook": {"model": "llama-3-8b", "hardware": "h100", "parallelism__tp": 8, "links__convention": "textbook"},
}  # fmt: skip


def value(expression: str) -> Fraction:
    """Integer arithmetic of ``*``, ``/``, ``+`` and brackets."""
    assert re.fullmatch(r"[\d,.*/+() ]+", expression), expression
    parts = re.sub(r"\d[\d,]*(?:\.\d+)?", lambda number: f"Fraction('{number.group().replace(',', '')}')", expression)
    return eval(parts, {"Fraction": Fraction})  # digits and operators only


def last_two(line: str) -> tuple[str, str]:
    """The two last members of a chain of equations, without units and remarks."""
    members = [part.strip() for part in line.split("=")]
    return members[-2], re.sub(r" B( on the wire)?$", "", members[-1])


@pytest.mark.parametrize("name", QUESTIONS)
def test_bytes(name: str) -> None:
    question = dict(QUESTIONS[name])
    priced = ask(question.pop("model"), question.pop("hardware", None), **question)
    checked = 0
    for entry in priced.entries:
        for line in explain_row(entry, priced):
            if line.startswith(("payload", "wire", "egress")):
                left, right = last_two(line)
                exact, _, rounded = right.partition(", rounded up to ")
                assert float(value(left)) == pytest.approx(float(value(exact)), rel=1e-9)
                shown = value(rounded or exact)
                assert shown == -(-value(left) // 1)
                want = {"payload": entry.row.payload_bytes, "wire": entry.row.wire_bytes, "egress": entry.egress_bytes}
                assert shown == want[line.split()[0]]
                checked += 1
            if line.startswith("calls") and "in a step" in line and "per" in line:
                numbers = [int(number) for number in re.findall(r"\d+", line)]
                product = 1
                for number in numbers[:-1]:
                    product *= number
                assert product == numbers[-1] == priced.ledger.times_in_step(entry.row)
    assert checked >= 2 * len(priced.entries)


@pytest.mark.parametrize("name", QUESTIONS)
def test_totals(name: str) -> None:
    question = dict(QUESTIONS[name])
    priced = ask(question.pop("model"), question.pop("hardware", None), **question)
    for line, scope in zip(explain_totals(priced), ("block", "stage", "step"), strict=True):
        left, right = last_two(re.sub(r"(blocks?|microbatch(es)?) ", "", line))
        assert value(left) == value(right) == priced.totals[scope]["all"].wire_bytes


def test_rounding_is_said() -> None:
    question = {**QUESTIONS["not divisible"], "hardware": "a800"}  # by formula
    priced = ask(question.pop("model"), question.pop("hardware"), **question)
    lines = [line for entry in priced.entries for line in explain_row(entry, priced)]
    assert "wire = 2(n-1)/n * payload = 2*15/16 * 4 = 7.5, rounded up to 8 B" in lines
    # Rates are those of the links, whatever was rounded.
    assert {rate for line in lines for rate in re.findall(r"/ (\S+ GB/s)", line)} == {"200 GB/s", "25 GB/s"}


def test_a_row_of_another_stage_says_so() -> None:
    question = dict(QUESTIONS["stages"])
    priced = ask(question.pop("model"), **question)
    assert priced.ledger.stage.number == 3
    (line,) = [
        line
        for entry in priced.entries
        if entry.row.part == "embedding" and entry.row.direction == "forward"
        for line in explain_row(entry, priced)
        if line.startswith("calls")
    ]
    assert line == "calls = 1 per microbatch on the first stage; none on stage 3, the busiest"


def test_names_stand_for_their_values() -> None:
    priced = ask("llama-3-70b", parallelism__tp=16, parallelism__kv="gather", workload__micro_batch_size=2)
    assert explain_names(priced) == [
        "D = hidden_size = 8192",
        "QKV = (N + 2*K)*H = (64 + 2*8)*128 = 10240",
        "T = tokens of a microbatch = 2 * 4096 = 8192",
        "n = ranks in the group",
    ]
