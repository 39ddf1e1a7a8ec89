"""Models nobody has made: choices of an architecture drawn at random, on any layout, as any framework runs them."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pytest

from broken import EXACT
from commcalc.errors import NO_LEGAL_ANSWER, CommcalcError, IllegalDegree, Several
from commcalc.simulate.cases import Case, fitted, in_small, run_case
from commcalc.simulate.places import Parts
from commcalc.simulate.small import deepened, roomy, worked
from commcalc.transformer.frameworks import HABITS
from commcalc.transformer.layout import KvPolicy, LayoutName
from commcalc.transformer.spec import LinearAttention, Model, Norm, NormPlacement, Phase, Positions, QkNorm
from commcalc.transformer.work import CpComm, Dispatch, Framework, Parallelism, Recompute, VocabPadding, Workload
from commcalc.units import Dtype

DRAWN, PLANS, AT_ONCE = 60, 36, 12
LATENT = {"kv_lora_rank": 1, "qk_nope_head_dim": 1, "qk_rope_head_dim": 1, "v_head_dim": 1}
STATE = {"linear_num_key_heads": 1, "linear_key_head_dim": 1, "linear_value_head_dim": 1}
WINDOWS = {"sliding_window": 1, "full_attention_interval": 2}
FULL = Workload(recompute=Recompute.FULL, regather=False)
SERVED = (Workload(phase=Phase.PREFILL), Workload(phase=Phase.DECODE))
SERVERS = (Framework.VLLM, Framework.SGLANG)
TRAINERS = (Framework.MEGATRON, Framework.TORCHTITAN)


class Draw:
    """Choices, each as likely as the next."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def flag(self) -> bool:
        return self.rng.random() < 0.4

    def one(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    def heads(self) -> dict[str, Any]:
        """One of the ways to attend."""
        every = {"full_attention_interval": self.one(0, 2)}
        return dict(self.one(
            {}, WINDOWS, LATENT, LATENT | {"q_lora_rank": 1},
            STATE | every | {"linear_num_value_heads": self.one(1, 2), "linear_conv_kernel_dim": self.one(0, 1)},
            STATE | every | {"linear_num_value_heads": 1, "linear_attention": LinearAttention.LIGHTNING},
            WINDOWS | {"global_head_dim": 1, "global_num_key_value_heads": 1, "global_keys_are_values": self.flag()},
            WINDOWS | {"sliding_num_key_value_heads": 1, "v_head_dim": self.one(0, 1)},
        ))  # fmt: skip

    def experts(self) -> dict[str, Any]:
        """Experts, alone or with something beside them."""
        found = {"num_experts": 8, "num_experts_per_tok": self.one(1, 2), "moe_intermediate_size": 1,
                 "first_k_dense_replace": self.one(0, 1), "router_bias": self.flag()}  # fmt: skip
        beside: dict[str, Any] = self.one(
            {}, {"expert_bias": True}, {"dense_mlp_beside_moe": True, "router_scales": self.flag(), "mlp_bias": False},
            {"shared_expert_intermediate_size": 1, "shared_expert_gate": self.flag()},
        )  # fmt: skip
        return found | beside

    def model(self) -> Model:
        gate, squares = self.flag(), self.flag()
        own = [kind for kind in QkNorm if kind is not QkNorm.FULL_WIDTH]
        found = {
            "gated_mlp": self.flag(), "mlp_bias": self.flag(), "attention_output_bias": self.flag(),
            "norm": Norm.RMSNORM if squares else self.one(*Norm), "norm_placement": self.one(*NormPlacement),
            "qk_norm": QkNorm.FULL_WIDTH if squares else self.one(*own),
            "attention_output_gate": gate, "attention_bias": self.flag() and not gate, "attention_sinks": self.flag(),
            "sinks_in_sliding_only": self.flag(), "lm_head_bias": self.flag(), "tie_word_embeddings": self.flag(),
            "position_embedding": self.one(Positions.ROPE, Positions.LEARNED),
        } | self.heads()  # fmt: skip
        if self.one(0, 0, 1):
            return Model(**found)._replace(
                parallel_block=True, parallel_norms=self.one(1, 2), norm_placement=NormPlacement.PRE
            )  # fmt: skip
        return Model(**(found | (self.experts() if self.flag() else {})))

    def case(self) -> Case:
        tp, heads = self.one(2, 4, 8), self.one("mha", "pairs", "gqa", "mqa")
        framework = self.one(None, None, None, Framework.MEGATRON, Framework.HF, *SERVERS)
        layout = LayoutName.MEGATRON
        if framework in (None, Framework.MEGATRON):
            layout = self.one(LayoutName.MEGATRON, LayoutName.MEGATRON_SP)
        model = fitted(self.model()._replace(name="drawn"), tp, heads)
        if framework is Framework.HF and model.qk_norm is QkNorm.FULL_WIDTH:
            model = model._replace(
                family="minimax_m2", attention_sinks=False, v_head_dim=model.v_head_dim if model.kv_lora_rank else 0
            )
        work = self.one(*SERVED) if framework in SERVERS else self.one(Workload(), Workload(), *SERVED)
        if framework is None:
            work = self.one(work, FULL)
        kv = KvPolicy.REPLICATE if framework is None else HABITS[framework].kv
        parallel = Parallelism(tp=tp, layout=layout, kv=kv, vocab_padding=VocabPadding.NONE, framework=framework)
        return Case("drawn", model, parallel, worked(work, tp), layout)

    def plan(self) -> Case:
        """A model on data-parallel ranks, stages, expert groups and context groups."""
        tp, cp, ep = self.one(1, 2, 4), self.one(1, 1, 2, 4), self.one(1, 2, 4)
        dp = self.one(*(dp for dp in (1, 2, 4) if tp * cp * dp % ep == 0 and tp * cp * dp <= 16))
        zero = self.one(0, 1, 2, 3) if dp * cp > 1 else 0
        model = self.model()._replace(name="drawn")
        parallel = Parallelism(
            tp=tp, cp=cp, dp=dp, pp=self.one(1, 1, 2), zero=zero, ep=ep if model.num_experts else 1,
            etp=1 if model.num_experts and ep > 1 else None, cp_comm=self.one(*CpComm),
            dp_shard=self.one(None, 2) if zero == 3 and dp == 4 else None,
            dispatch=self.one(None, *Dispatch), layout=self.one(LayoutName.MEGATRON, LayoutName.MEGATRON_SP),
            kv=KvPolicy.REPLICATE, vocab_padding=VocabPadding.NONE, framework=self.one(None, None, None, *TRAINERS),
        )  # fmt: skip
        model = deepened(fitted(model, tp, self.one("mha", "pairs", "gqa", "mqa")), parallel.pp)
        if parallel.moves_tokens and parallel.sends_tokens is Dispatch.DEDUPLICATED and ep == 4:
            parallel = parallel._replace(ep_nodes=self.one(1, 2))
        work = in_small(self.one(Workload(), Workload(), FULL), parallel, many=self.one(None, 1, 2))
        if parallel.moves_tokens and parallel.sends_tokens is Dispatch.ALL_TO_ALL:
            work = work._replace(capacity_factor=self.one(None, Fraction(1), Fraction(5, 4)))
        types = (None, Dtype.FP8, Dtype.FP32)
        work = work._replace(
            dispatch_dtype=self.one(*types), combine_dtype=self.one(*types), scale_block=self.one(None, 16)
        )
        work = roomy(work, model, parallel)
        model = model._replace(max_position_embeddings=work.sequence_length)
        return Case("drawn", model, parallel, work, parallel.layout, self.one(None, *Parts))


@pytest.mark.parametrize("first", range(0, PLANS, AT_ONCE))
def test_a_plan_that_is_drawn(first: int) -> None:
    """The same on several ranks for each microbatch, and for each sequence, stage and expert."""
    ran = 0
    for seed in range(first, first + AT_ONCE):
        case = Draw(seed).plan()
        try:
            run = run_case(case, EXACT, seed)
        except CommcalcError as problem:
            assert isinstance(problem, IllegalDegree | Several) or "linear attention" in problem.message, (
                seed,
                problem,
            )
            continue
        ran += 1
        assert [(seed, check) for check in run.checks if not check.passed] == [], case
    assert ran > AT_ONCE // 4


@pytest.mark.parametrize("first", range(0, DRAWN, AT_ONCE))
def test_a_model_that_is_drawn(first: int) -> None:
    """What is refused is refused for a degree or by a framework; all else agrees to the last digit and byte."""
    ran = 0
    for seed in range(first, first + AT_ONCE):
        case = Draw(seed).case()
        try:
            run = run_case(case, EXACT, seed)
        except CommcalcError as problem:
            assert problem.status == NO_LEGAL_ANSWER and "weight" not in problem.message, (seed, problem)
            continue
        ran += 1
        assert [(seed, check) for check in run.checks if not check.passed] == [], case
    assert ran > AT_ONCE // 4
