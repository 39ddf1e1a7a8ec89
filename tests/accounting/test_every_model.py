"""Every packaged model is priced, or says which part it is for which it cannot be."""

from __future__ import annotations

from collections import Counter

import pytest

from commcalc.catalog.describe import describe
from commcalc.catalog.presets import names
from commcalc.errors import CommcalcError
from conftest import ask, rows

UNDESCRIBED = {"deepseek-v4-flash", "deepseek-v4-pro", "kimi-k3", "nemotron-3-nano-30b-a3b"}


@pytest.mark.parametrize("name", names("model"))
def test_is_priced_in_training_and_serving(name: str) -> None:
    legal = describe(name, "model").derived["legal_tp"]
    assert isinstance(legal, list)
    tp = max(tp for tp in legal if tp <= 8 and 4096 % tp == 0)
    asked = {"parallelism__tp": tp, "workload__sequence_length": 1024}
    if name in UNDESCRIBED:
        with pytest.raises(CommcalcError, match="the ledger cannot price this yet: "):
            ask(name, **asked)
        return
    trained = ask(name, **asked, parallelism__sp=True)
    served = ask(name, **asked, workload__phase="decode")
    for priced in (trained, served):
        ledger = priced.ledger
        layers = sum(ledger.stage.times[part] for part in ledger.programs.blocks)
        assert layers == ledger.model.num_hidden_layers
        of_blocks = Counter(row.part for row in rows(priced, per="block"))
        # Falcon-7b has no legal degree above 1: 71 heads.
        assert set(of_blocks) == (set(ledger.programs.blocks) if tp > 1 else set())
    # Serving reduces once behind attention and once behind MLP or experts; a shared expert, or a dense MLP beside the
    # experts, for itself in Megatron; norms over all heads add their sums of squares.
    if tp > 1 and not served.ledger.model.parallel_block:
        model = served.ledger.model
        for part in served.ledger.programs.blocks:
            reductions = [row for row in rows(served, part=part) if row.tensor.endswith("D]{U_tp}")]
            beside = model.shared_expert_intermediate_size or model.dense_mlp_beside_moe
            sparse = any(row.sublayer == "moe" for row in rows(served, part=part))
            assert len(reductions) == (3 if beside and sparse else 2)
