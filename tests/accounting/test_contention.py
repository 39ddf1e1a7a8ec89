"""The warning of a frequent group on a slow level: its numbers by hand, and as the ledger in the other order says."""

from __future__ import annotations

import subprocess
import sys

import pytest

from commcalc.accounting.contention import orders, reordered
from commcalc.accounting.ledger import build
from commcalc.accounting.pricing import PricedLedger
from commcalc.units import format_seconds
from conftest import ask, environment, fields

CODE = "frequent-group-on-slow-level"
# No latency, so that a ring's time is its wire bytes over the rate of its level.
MACHINE = fields(
    name="two-levels",
    network=[
        {"name": "inner", "topology": "switch", "devices": 2, "bandwidth": "100 GB/s", "latency": "0 s"},
        {"name": "outer", "topology": "switch", "bandwidth": "10 GB/s", "latency": "0 s"},
    ],
)
FLAT = fields(name="flat", network=[{"name": "inner", "topology": "switch", "bandwidth": "100 GB/s", "latency": "0 s"}])
# Weights of a layer: attention 4 * 64 * 64, MLP 3 * 64 * 128, two norms of 64.
MODEL = fields(
    hidden_size=64, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=4, head_dim=16,
    intermediate_size=128,
)  # fmt: skip
REVERSED = "dp-cp-ep-tp-pp"


def tiny(hardware: str | None = MACHINE, tokens: int = 1000, order: str = REVERSED, **degrees: int) -> PricedLedger:
    """The tiny model at tp 2 and dp 2 unless ``degrees`` says else."""
    sizes = {f"parallelism__{name}": size for name, size in ({"tp": 2, "dp": 2} | degrees).items()}
    return ask(MODEL, hardware, parallelism__order=order, workload__sequence_length=tokens, **sizes)


def told(priced: PricedLedger) -> list[str]:
    return [warning.message for warning in priced.warnings if warning.code == CODE]


def test_the_warning_by_hand() -> None:
    """A ring AllReduce over 2 sends its payload once.

    tp: 4 calls of 1000 * 64 * 2 B = 128,000 B: 12.8 us each at 10 GB/s, 1.28 us at 100 GB/s.
    dp: (40,960 / 2 + 128) parameters * 4 B = 82,432 B: 0.82432 us at 100 GB/s, 8.2432 us at 10 GB/s.
    As placed 51.2 + 0.82432 = 52.02 us; the other way 5.12 + 8.2432 = 13.36 us.
    """
    assert told(tiny()) == [
        "tp 2 crosses outer while dp 2 stays on inner: tp communicates for 51.2 us of a step's 52.02 us; "
        "with --order tp-cp-ep-dp-pp for 5.12 us of 13.36 us"
    ]


def test_the_existing_warning_stays() -> None:
    assert [warning.code for warning in tiny().warnings][:2] == ["tp-crosses-level", CODE]


QUIET = {
    "the usual order": tiny(order="tp-cp-ep-dp-pp"),
    "no hardware": tiny(None),
    "one level": tiny(FLAT),
    "one axis": tiny(dp=1),
    # tp: 4 * 8 * 64 * 2 B, 0.41 us at 10 GB/s: to move dp out would cost 7.4 us, to move tp in spare 0.37.
    "nothing is better": tiny(tokens=8),
}


@pytest.mark.parametrize("name", QUIET)
def test_no_warning(name: str) -> None:
    assert told(QUIET[name]) == []


def test_a_shorter_step_that_leaves_the_group_where_it_is_is_told_beside() -> None:
    """pp innermost, nodes of 2, few tokens: tp inside saves 4 * 64 * 64 * 2 B * (1/10 - 1/100) ns/B = 2.95 us.

    dp inside saves 7.42 us instead, of the 8.2432 us of its gradients.
    """
    deep = MODEL.replace('"num_hidden_layers": 1', '"num_hidden_layers": 2')
    priced = ask(deep, MACHINE, parallelism__order="pp-cp-ep-tp-dp", workload__sequence_length=64,
                 parallelism__tp=2, parallelism__dp=2, parallelism__pp=2)  # fmt: skip
    (message,) = told(priced)
    assert message.startswith("tp 2 crosses outer while pp 2 stays on inner: tp communicates for 3.277 us of ")
    assert "with --order tp-cp-ep-dp-pp for 327.7 ns of " in message
    assert message.endswith("has --order dp-cp-ep-tp-pp)")


REAL: list[dict[str, object]] = [
    {"parallelism__dp": 8, "parallelism__order": "dp-tp-cp-ep-pp", "workload__global_batch_size": 64},
    {"parallelism__pp": 8, "parallelism__order": "pp-tp-cp-ep-dp"},
    {"parallelism__pp": 2, "parallelism__cp": 2, "parallelism__order": "pp-cp-ep-dp-tp"},
    {
        "parallelism__dp": 16, "parallelism__zero": 3, "parallelism__dp_shard": 8,
        "parallelism__order": "dp-tp-cp-ep-pp", "workload__sequence_length": 8192,
    },
]  # fmt: skip


@pytest.mark.parametrize("given", REAL)
def test_both_times_are_those_that_the_ledger_gives(given: dict[str, object]) -> None:
    given = {"parallelism__tp": 8, **given}
    now = ask("llama-3-70b", "h100-sxm", **given)
    (message,) = told(now)
    order = message.partition("with --order ")[2].split()[0]
    then = ask("llama-3-70b", "h100-sxm", **given | {"parallelism__order": order})
    assert told(then) == []
    for priced in (now, then):
        step = priced.totals["step"]
        assert f"for {format_seconds(step['tp'].time_s or 0)} of " in message
        assert format_seconds(step["all"].time_s or 0) in message


def test_no_group_is_mended_at_the_cost_of_a_more_frequent_one() -> None:
    """With one microbatch gradients take most of the step: cp moved in would shorten it, with tp moved out."""
    given = {"parallelism__tp": 8, "parallelism__cp": 2, "parallelism__dp": 4, "parallelism__pp": 2}
    now = ask("llama-3-70b", "h100-sxm", parallelism__order="dp-tp-ep-cp-pp", **given)
    then = ask("llama-3-70b", "h100-sxm", parallelism__order="cp-dp-ep-tp-pp", **given)
    before, after = now.totals["step"], then.totals["step"]
    shorter = {group for group in before if (after[group].time_s or 0) < (before[group].time_s or 0)}
    assert {"cp", "all"} <= shorter
    assert "tp" not in shorter
    assert told(now) == []


def test_orders_nearest_to_the_usual_first() -> None:
    """Of tp, dp and pp: 0, then 1 (two ways), 2 (two), 3 pairs exchanged; axes of one rank stay."""
    found = orders(tiny(pp=1, dp=2).ledger)
    assert ["-".join(order) for order in found] == ["tp-cp-ep-dp-pp", "dp-cp-ep-tp-pp"]
    ledger = ask("llama-3-70b", parallelism__tp=2, parallelism__dp=2, parallelism__pp=2).ledger
    assert ["-".join(order) for order in orders(ledger)] == [
        "tp-cp-ep-dp-pp",
        "tp-cp-ep-pp-dp",
        "dp-cp-ep-tp-pp",
        "dp-cp-ep-pp-tp",
        "pp-cp-ep-tp-dp",
        "pp-cp-ep-dp-tp",
    ]


@pytest.mark.parametrize("extra", [{}, {"zero": 3, "dp_shard": 2}, {"tp": 16, "kv": "replicate"}])
def test_a_reordered_ledger_is_the_one_built_in_that_order(extra: dict[str, object]) -> None:
    degrees = {"tp": 4, "cp": 2, "dp": 4, "pp": 2, **extra}
    ledger = ask("llama-3-70b", **{f"parallelism__{name}": size for name, size in degrees.items()}).ledger
    for order in orders(ledger):
        parallel = ledger.parallel._replace(order=order)
        built = build(ledger.model, parallel, ledger.work, ledger.convention, ledger.stage.number)
        found = reordered(ledger, order)
        assert (found.layout.mesh, found.parallel, found.rows) == (built.layout.mesh, parallel, built.rows)


def test_the_default_job_does_not_search() -> None:
    code = (
        "import sys\nfrom commcalc.cli import run\nassert run(['ledger', '--json', {args}]) == 0\n"
        "print('commcalc.accounting.contention' in sys.modules)"
    )
    for args, loaded in (("", "False"), ("'--dp', '8'", "True")):
        done = subprocess.run(
            [sys.executable, "-c", code.format(args=args)], capture_output=True, text=True, env=environment()
        )
        assert done.stdout.splitlines()[-1] == loaded
