"""Schedules that are broken on purpose: a ledger in small, its actions changed, and the checks that fail then."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from commcalc.accounting.ledger import Ledger, build
from commcalc.algebra.collective import Kind, Step
from commcalc.algebra.schedule import Action, Derivation, Move
from commcalc.simulate.check import Check
from commcalc.simulate.precision import Format, precision_of
from commcalc.simulate.small import sized, worked
from commcalc.simulate.trial import run_trial
from commcalc.transformer.layout import KvPolicy, LayoutName
from commcalc.transformer.spec import Model, Norm
from commcalc.transformer.work import Parallelism, VocabPadding, Workload

LLAMA = Model(name="llama")
GPT = Model(name="gpt", gated_mlp=False, norm=Norm.LAYERNORM, attention_bias=True, attention_output_bias=True,
            mlp_bias=True)  # fmt: skip
MEGATRON, SP = LayoutName.MEGATRON, LayoutName.MEGATRON_SP
EXACT = precision_of(Format.FLOAT64)


def ledger_of(model: Model = LLAMA, layout: LayoutName = MEGATRON, tp: int = 4, heads: str = "mha") -> Ledger:
    parallel = Parallelism(tp=tp, layout=layout, kv=KvPolicy.REPLICATE, vocab_padding=VocabPadding.NONE)
    return build(sized(model, tp, heads), parallel, worked(Workload(), tp))


def failed(ledger: Ledger, block: Derivation | None = None, **others: Derivation) -> list[Check]:
    """The checks that fail when these derivations run instead of the ledger's own."""
    replaced = ledger.derivations | ({"block": block} if block else {}) | others
    return [check for check in run_trial(ledger, EXACT, 0, replaced) if not check.passed]


def whats(checks: Sequence[Check]) -> set[str]:
    return {check.what for check in checks}


def forward(ledger: Ledger, change: Callable[[Action], Action | None], part: str = "block") -> Derivation:
    """The derivation of a part with its forward actions changed; None leaves one out."""
    derivation = ledger.derivations[part]
    return derivation._replace(forward=tuple(one for one in map(change, derivation.forward) if one is not None))


def backward(ledger: Ledger, change: Callable[[Action], Action | None], part: str = "block") -> Derivation:
    derivation = ledger.derivations[part]
    return derivation._replace(backward=tuple(one for one in map(change, derivation.backward) if one is not None))


def unreduced(move: Move) -> Move:
    """The same change of sharding with nothing sent: each device takes its own term for the whole."""
    step = Step(Kind.SLICE, (), move.event.step.before, move.event.step.after)
    return move._replace(event=move.event._replace(step=step))


def left_out(kind: Kind, tensor: str) -> Callable[[Action], Action]:
    """The actions with this collective of this tensor left out."""

    def change(one: Action) -> Action:
        wanted = isinstance(one, Move) and (one.event.step.kind, one.event.tensor) == (kind, tensor)
        return unreduced(one) if isinstance(one, Move) and wanted else one

    return change
