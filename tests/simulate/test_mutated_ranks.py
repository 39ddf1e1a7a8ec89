"""Data, ZeRO and pipeline parallelism that are wrong in the ways people get them wrong are caught."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from broken import EXACT, MEGATRON, SP, backward, failed, whats
from commcalc.accounting import data_parallel, pipeline
from commcalc.accounting.ledger import Ledger, build
from commcalc.accounting.rows import ROOT
from commcalc.algebra.schedule import Differentiate
from commcalc.simulate import parameters, reduction, training
from commcalc.simulate.architectures import architectures
from commcalc.simulate.buffers import Pieces, Shards
from commcalc.simulate.cases import fitted, in_parallel, in_small, run_case
from commcalc.simulate.check import Check
from commcalc.simulate.local import Share
from commcalc.simulate.parameters import Parameters, Unit
from commcalc.simulate.reduction import Reduction
from commcalc.simulate.small import deepened
from commcalc.simulate.trial import run_trial
from commcalc.simulate.wire import Array
from commcalc.transformer.layout import KvPolicy
from commcalc.transformer.work import Parallelism, Reshard, Schedule, VocabPadding, Workload

PLAIN, TIED = "gqa gated sequential", "mha plain, biases, learned positions"
COUNTED = {"payload_bytes", "wire_bytes", "total_wire_bytes"}


WORK = Workload()


def ledger_of(name: str = PLAIN, work: Workload = WORK, **degrees: Any) -> Ledger:
    parallel = Parallelism(kv=KvPolicy.REPLICATE, vocab_padding=VocabPadding.NONE, **degrees)
    model = fitted(architectures(True)[name]._replace(name="drawn"), parallel.tp, name.split()[0])
    model = deepened(model, parallel.pp * parallel.virtual_stages)
    return build(model, parallel, in_small(work, parallel))


SPLIT = {"tp": 2, "layout": SP}
LEDGERS: dict[str, dict[str, Any]] = {
    "zero 0": {"dp": 2},
    "zero 1": {"dp": 3, "zero": 1},
    "zero 2": {"dp": 2, "zero": 2, **SPLIT},
    "zero 3": {"dp": 2, "zero": 3, **SPLIT},
    "copies": {"dp": 4, "zero": 3, "dp_shard": 2},
    "stages": {"pp": 2, **SPLIT},
    "stages, zero 3": {"pp": 3, "dp": 2, "zero": 3, **SPLIT},
}


@pytest.mark.parametrize("name", [PLAIN, TIED])
@pytest.mark.parametrize("degrees", LEDGERS.values(), ids=LEDGERS)
def test_nothing_fails_unchanged(degrees: dict[str, Any], name: str) -> None:
    assert failed(ledger_of(name, **degrees)) == []


@pytest.mark.parametrize("zero", range(4))
@pytest.mark.parametrize("weight", ["Wup", "g_mlp"])
def test_a_gradient_that_is_not_summed_over_data_parallel_ranks(zero: int, weight: str) -> None:
    """A rank takes what its own sequences say for the whole, as a rule that forgets an axis would have it."""
    ledger = ledger_of(dp=2, zero=zero)
    derivation = ledger.derivations["block"]
    value = derivation.gradients[weight]
    assert value.sharding.unreduced == ("dp",)
    alone = value._replace(sharding=value.sharding.reduced())
    broken = backward(
        ledger, lambda one: one._replace(made=alone) if isinstance(one, Differentiate) and one.made == value else one
    )
    found = failed(ledger, broken._replace(gradients={**derivation.gradients, weight: alone}))
    assert {"gradient_error", "gradient_copies", "gradient_norm_error", "sgd_update_error"} <= whats(found)
    assert whats(found) >= COUNTED  # of what was not sent
    (copies,) = [check for check in found if check.what == "gradient_copies"]
    assert copies.message == "devices that hold the same parameter get different gradients of it"


@pytest.mark.parametrize("zero", range(4))
def test_a_gradient_that_the_optimizer_does_not_ask_for(zero: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays a pending sum: a parameter that no bucket has."""
    every = Reduction._members
    monkeypatch.setattr(
        Reduction, "_members", lambda self, unit: [name for name in every(self, unit) if name != "block.0.Wdown"]
    )
    found = failed(ledger_of(dp=2, zero=zero))
    (error,) = [check for check in found if check.what == "gradient_error" and "Wdown" in check.where]
    assert error.message == "it is still a pending sum over dp"
    assert whats(found) >= COUNTED


def skipped(monkeypatch: pytest.MonkeyPatch, name: str, direction: str) -> None:
    gather = Parameters._gather

    def some(self: Parameters, unit: Unit, way: str) -> None:
        if (unit.name, way) != (name, direction):
            gather(self, unit, way)

    monkeypatch.setattr(Parameters, "_gather", some)


@pytest.mark.parametrize(
    ("name", "direction", "weight"),
    [("block.1", "forward", "g_attention"), (ROOT, "forward", "E"), ("block.0", "backward", "g_attention")],
)
def test_parameters_that_are_not_gathered(
    name: str, direction: str, weight: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No device computes with a weight of which it has a shard."""
    skipped(monkeypatch, name, direction)
    (error,) = failed(ledger_of(dp=2, zero=3))
    assert (error.what, error.found) == ("forward_error", float("inf"))
    assert error.message == f"{weight} is used on devices that have not gathered it"


def test_parameters_that_are_kept_where_the_ledger_gathers_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = ledger_of(dp=2, zero=3)
    monkeypatch.setattr(Parameters, "leave", lambda self, part: False)
    found = failed(ledger)
    assert whats(found) == {"rows", "total_wire_bytes"}
    assert {check.where for check in found if check.what == "rows"} == {"block.0", "block.1"}


@pytest.mark.parametrize("reshard", [Reshard.ALL, Reshard.NEVER])
def test_rows_that_reshard_otherwise(reshard: Reshard) -> None:
    ledger, other = ledger_of(dp=2, zero=3), ledger_of(dp=2, zero=3, work=Workload(reshard=reshard))
    assert failed(other) == []
    found = failed(ledger._replace(rows=other.rows))
    assert whats(found) == {"rows", "total_wire_bytes"}
    where = {check.where for check in found if check.what == "rows"}
    assert where == ({ROOT} if reshard is Reshard.ALL else {"block.0", "block.1"})


def test_shards_that_are_summed_over_the_wrong_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards added to other shards of the same copy, instead of to the same shard of other copies."""
    units = parameters.units_of

    def crossed(*given: Any) -> list[Unit]:
        return [unit._replace(copies=unit.axes) for unit in units(*given)]

    ledger = ledger_of(dp=4, zero=3, dp_shard=2)
    monkeypatch.setattr(training, "units_of", crossed)
    found = failed(ledger)
    assert {"gradient_error", "gradient_norm_error", "sgd_update_error", "row"} <= whats(found)
    told = {check.message for check in found if check.what == "row"}
    assert told == {"('dp_replica',) is ('dp_shard',)"}


def test_copies_and_shards_the_wrong_way_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters sharded over the axis of copies: right values, and all rows have other axes."""
    monkeypatch.setattr(parameters, "replicating", lambda parallel, layout: ("dp_shard",))
    found = failed(ledger_of(dp=4, zero=3, dp_shard=2))
    assert whats(found) == {"row"}


def test_copies_that_are_not_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    units = parameters.units_of
    ledger = ledger_of(dp=4, zero=3, dp_shard=2)
    monkeypatch.setattr(training, "units_of", lambda *given: [unit._replace(copies=()) for unit in units(*given)])
    found = failed(ledger)
    assert {"gradient_error", "rows", "adam_update_error"} <= whats(found)
    (error,) = [check for check in found if check.what == "gradient_error"]
    assert error.message == "it is still a pending sum over dp_replica"


def test_every_rank_steps_the_first_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    def first(self: Shards, held: Any) -> Pieces:
        return {part: [one[part][0] for one in self._cut(held)] for part in self._cut(held)[0]}

    monkeypatch.setattr(Shards, "own", first)
    found = failed(ledger_of(dp=2, zero=3))
    assert {"forward_error", "gradient_error"} <= whats(found)


def test_every_rank_works_on_the_same_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = training.shares_of
    monkeypatch.setattr(
        training, "shares_of",
        lambda *given: [shares(*given)[0]._replace(begins=share.begins) for share in shares(*given)],
    )  # fmt: skip
    found = failed(ledger_of(dp=2))
    assert {"forward_error", "loss_error", "gradient_error"} <= whats(found)


def test_sequences_that_are_dealt_out_to_the_wrong_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sequence is trained on once: the gradients are right, the tensors are not where they should be."""
    shares = training.shares_of

    def turned(*given: Any) -> list[Share]:
        found = shares(*given)
        return [one._replace(begins=other.begins) for one, other in zip(reversed(found), found, strict=True)]

    monkeypatch.setattr(training, "shares_of", turned)
    assert whats(failed(ledger_of(dp=2))) == {"forward_error", "input_gradient_error"}


# Between stages.


def grown(monkeypatch: pytest.MonkeyPatch, op: str, factor: int) -> None:
    """The ledger's payload of one call so many times."""
    messages = pipeline.messages

    def changed(*given: Any) -> Any:
        for one in messages(*given):
            products = tuple(product._replace(factor=factor * product.factor) for product in one.payload.products)
            yield one._replace(payload=one.payload._replace(products=products)) if one.op == op else one

    monkeypatch.setattr(pipeline, "messages", changed)


@pytest.mark.parametrize("op", ["send activation", "send gradient"])
def test_a_stage_boundary_that_forgets_sequence_parallelism(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger sends the whole stream from every TP rank, which has its own tokens."""
    grown(monkeypatch, op, 2)
    found = failed(ledger_of(pp=2, **SPLIT))
    assert whats(found) == COUNTED
    assert all(op in check.where or check.where.startswith(("totals", "stage ")) for check in found)
    assert any(check.where.startswith("stage ") and op in check.where for check in found)


def test_devices_that_send_the_whole_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that takes what arrives for the whole stream fails at once."""
    send = training.send
    monkeypatch.setattr(
        training, "send",
        lambda blocks, *others: send([[np.concatenate([one, one]) for one in held] for held in blocks], *others),
    )  # fmt: skip
    (error,) = failed(ledger_of(pp=2, **SPLIT))
    assert (error.what, error.found) == ("forward_error", float("inf"))


def test_a_stream_that_arrives_at_another_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    send = training.send

    def turned(blocks: Sequence[list[Array]], *others: Any) -> Any:
        arrived, counted = send(blocks, *others)
        return [[*held[1:], held[0]] for held in arrived], counted

    monkeypatch.setattr(training, "send", turned)
    found = failed(ledger_of(pp=2, **SPLIT))
    assert {"forward_error", "loss_error", "gradient_error"} <= whats(found)


@pytest.mark.parametrize("degrees", [{"pp": 2}, {"pp": 3, **SPLIT}, {"pp": 2, "dp": 2, "zero": 3}])
def test_a_tied_table_that_is_not_summed(degrees: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """First and last stage step their tables apart, each by what it saw."""
    add_up = reduction.add_up
    monkeypatch.setattr(reduction, "add_up", lambda one, other, *more: (one, other, add_up(one, other, *more)[2]))
    found = failed(ledger_of(TIED, **degrees))
    assert {"gradient_error", "gradient_norm_error", "sgd_update_error", "adam_update_error"} <= whats(found)
    (error,) = [check for check in found if check.what == "gradient_error"]
    assert error.where in ("dembedding.E", "dhead.E")


def test_a_tied_table_that_nobody_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reduction, "_tie_stages", lambda self, held: None)
    found = failed(ledger_of(TIED, pp=2))
    assert {"gradient_error", "rows", "total_wire_bytes"} <= whats(found)


def test_a_tied_table_that_is_added_in_every_microbatch() -> None:
    """As the ledger once had it."""
    ledger = ledger_of(TIED, pp=2)
    rows = tuple(row._replace(per="microbatch") if row.op == "tied_embedding" else row for row in ledger.rows)
    assert whats(failed(ledger._replace(rows=rows))) == {"total_wire_bytes"}


# Ledgers that are miscounted.


@pytest.mark.parametrize("zero", [1, 2])
def test_a_flat_buffer_that_is_not_padded(zero: int, monkeypatch: pytest.MonkeyPatch) -> None:
    buckets = data_parallel._buckets
    monkeypatch.setattr(
        data_parallel, "_buckets", lambda held, elements, bits, each, n: buckets(held, elements, bits, each, 1)
    )
    assert whats(failed(ledger_of(dp=3, zero=zero))) == COUNTED


def test_parameters_in_buckets_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets of as many bytes as those of the gradients: a rank has no shard of them."""
    buckets = data_parallel._buckets
    monkeypatch.setattr(
        data_parallel, "_buckets",
        lambda held, elements, bits, each, n: buckets(held, elements, bits, each * 32 // bits, n),
    )  # fmt: skip
    assert "rows" in whats(failed(ledger_of(dp=2, zero=1, work=Workload(bucket_bytes=4000))))


def dropped(ledger: Ledger, op: str, part: str) -> list[Check]:
    rows = tuple(row for row in ledger.rows if (row.op, row.part) != (op, part))
    assert len(rows) < len(ledger.rows)
    return [check for check in run_trial(ledger._replace(rows=rows), EXACT, 0) if not check.passed]


@pytest.mark.parametrize(
    ("op", "part", "degrees"),
    [("parameters", "block", LEDGERS["zero 3"]), ("gradients", ROOT, LEDGERS["zero 3"]),
     ("parameters", "all", LEDGERS["zero 1"]), ("gradients", "all", LEDGERS["zero 0"]),
     ("send gradient", "to previous stage", LEDGERS["stages"]), ("gradient_sync", "all", LEDGERS["stages"]),
     ("tied_embedding", "tied table", LEDGERS["stages"])],
)  # fmt: skip
def test_a_row_of_a_stage_that_is_missing(op: str, part: str, degrees: dict[str, Any]) -> None:
    assert whats(dropped(ledger_of(TIED, **degrees), op, part)) == {"rows", "total_wire_bytes"}


@pytest.mark.parametrize("degrees", [LEDGERS["zero 2"], LEDGERS["zero 3"]])
def test_a_sync_of_gradients_that_are_gone(degrees: dict[str, Any]) -> None:
    """Once a step of whole gradients, where ranks keep shards, or the sum of one microbatch after the other."""
    ledger, plain = ledger_of(**degrees), ledger_of(**SPLIT)
    (whole,) = [row for row in plain.rows if row.op == "gradient_sync"]
    rows = tuple(whole if row.op == "gradient_sync" else row for row in ledger.rows)
    assert "total_wire_bytes" in whats(failed(ledger._replace(rows=rows)))


def test_interleaved_chunks_send_for_every_chunk() -> None:
    turns = {"pp": 2, "virtual_stages": 2, "schedule": Schedule.INTERLEAVED, **SPLIT}
    ledger = ledger_of(TIED, **turns)
    assert failed(ledger) == []
    steps = [check.where for check in run_trial(ledger, EXACT, 0) if check.what == "steps"]
    assert sum("send activation" in where for where in steps) == 3  # two of the first stage, one of the last


@pytest.mark.parametrize("first", range(2))
def test_a_part_of_all_combinations(first: int) -> None:
    for case in in_parallel(everything=True)[first :: 2 * 32]:
        run = run_case(case, EXACT, first)
        assert [(run.layout, run.mesh, run.case, run.note, check) for check in run.checks if not check.passed] == []


def test_layouts_that_split_nothing_send_gradients_alone() -> None:
    ledger = ledger_of(dp=2, layout=MEGATRON)
    assert [(row.op, row.kind, row.group) for row in ledger.rows] == [("gradients", "all_reduce", "dp")]
