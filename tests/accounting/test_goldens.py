"""Worked answers of published texts (tests/data/goldens.yaml), each asked of commcalc."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
import yaml

from commcalc.accounting.pricing import PricedLedger
from commcalc.accounting.products import Answer, Objective, Pricing
from commcalc.accounting.products import answer as answer_products
from commcalc.accounting.tensors import TensorLine, tensor_lines
from commcalc.accounting.turning_points import balances
from commcalc.algebra.collective import Convention
from commcalc.algebra.contraction import case as product_case
from commcalc.algebra.expression import parse_expression
from commcalc.algebra.mesh import Mesh
from commcalc.algebra.notation import format_tensor, parse_tensor
from commcalc.algebra.problem import bind
from commcalc.algebra.program import Rule
from commcalc.algebra.schedule import Placed
from commcalc.algebra.sharding import Sharding, bytes_per_device, local_shape, replicas, shards
from commcalc.errors import IllegalDegree, ShardingError
from commcalc.network.fabric import Fabric
from commcalc.network.link import Level, Network
from commcalc.transformer.work import VocabPadding, padded_vocab
from conftest import DATA, ask, counts, fields, rows


class Case(NamedTuple):
    """A case of the data file: inputs by name without their unit, and the values that the formulas give."""

    given: dict[str, Any]
    want: dict[str, Any]


def _read() -> dict[str, Case]:
    cases = yaml.safe_load((DATA / "goldens.yaml").read_text(encoding="utf-8"))["cases"]
    return {
        case["id"]: Case(
            {name.partition("__")[0]: value for name, value in case["inputs"].items()},
            {value["name"]: value["recomputed"] for value in case["expected"]},
        )
        for case in cases
    }


CASES = _read()
COVERED: set[str] = set()

STYLES = {"column": "Colwise", "row": "Rowwise"}
LLAMA_7B = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 11008}


def golden(ident: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Hand the test the case ``ident``."""

    def give(test: Callable[..., None]) -> Callable[..., None]:
        COVERED.add(ident)
        return pytest.mark.parametrize("case", [CASES[ident]], ids=[ident])(test)

    return give


def agree(case: Case, got: Mapping[str, object]) -> None:
    """Every value of the case was asked for and came out: ints, texts and truths exactly, floats to 1e-9."""
    assert got.keys() == case.want.keys()
    for name, want in case.want.items():
        value = list(got[name]) if isinstance(got[name], tuple) else got[name]
        same = math.isclose(value, want, rel_tol=1e-9) if isinstance(want, float) else value == want
        assert same, f"{name}: {value!r} is not {want!r}"


def mesh_of(text: str) -> Mesh:
    """``X=2,Y=8`` as a mesh."""
    return Mesh.of({axis: int(size) for axis, _, size in (part.partition("=") for part in text.split(","))})


def sharding_of(spec: str, axes: str = "XYZ") -> Sharding:
    """``I_X, J{U_Y}`` as a sharding."""
    dims, brace, pending = spec.partition("{")
    return parse_tensor(f"A[{dims}]{brace}{pending}", axes)[1]


def sizes_of(sharding: Sharding, text: str) -> dict[str, int]:
    """The sizes of a sharding's dimensions, in order, from ``128,2048``."""
    return dict(zip(sharding.dims, map(int, text.split(",")), strict=True))


def tensor(priced: PricedLedger, name: str, direction: str = "forward") -> TensorLine:
    """The tensor ``name`` as it lies last in a direction (``weight``: as it is stored)."""
    lines = tensor_lines(priced.ledger)
    return [line for line in lines if line.direction == direction and line.tensor.startswith(f"{name}[")][-1]


def products(
    text: str,
    mesh: Mapping[str, int],
    sizes: Mapping[str, int],
    network: Network | None = None,
    peak: float | None = None,
    convention: Convention = Convention.EXACT,
    *,
    communication: bool = True,
) -> Answer:
    """Every strategy of an expression in bf16."""
    problem = bind(parse_expression(text, mesh), Mesh.of(mesh), sizes, 16)
    objective = Objective.BYTES if network is None else Objective.TIME
    pricing = Pricing(Fabric(problem.mesh, network, convention=convention), peak, objective)
    return answer_products(problem, pricing, communication=communication)


@golden("SHP-01")
def test_a_dimension_split_over_two_axes_and_copied_over_the_third(case: Case) -> None:
    sharding, mesh = sharding_of(case.given["spec"]), mesh_of(case.given["mesh"])
    sizes = sizes_of(sharding, case.given["shape"])
    held = bytes_per_device(sharding, sizes, mesh, 8 * case.given["dtype"])
    agree(
        case,
        {
            "local_shape": local_shape(sharding, sizes, mesh),
            "bytes_per_device": held,
            "bytes_all_devices": held * mesh.devices,
            "replicas": replicas(sharding, mesh),
        },
    )


@golden("SHP-02")
def test_two_dimensions_split_over_an_axis_each(case: Case) -> None:
    sharding, mesh = sharding_of(case.given["spec"]), mesh_of(case.given["mesh"])
    sizes = sizes_of(sharding, case.given["shape"])
    agree(case, {"local_shape": local_shape(sharding, sizes, mesh), "share": 1 / shards(sharding, mesh)})


@golden("SHP-03")
def test_equal_bytes_in_different_shapes(case: Case) -> None:
    mesh, shape = mesh_of(case.given["mesh"]), case.given["shape"]
    a, b = sharding_of(case.given["spec_a"]), sharding_of(case.given["spec_b"])
    sizes = sizes_of(a, shape)
    agree(
        case,
        {
            "local_shape_a": local_shape(a, sizes, mesh),
            "local_shape_b": local_shape(b, sizes, mesh),
            "same_bytes": bytes_per_device(a, sizes, mesh, 16) == bytes_per_device(b, sizes, mesh, 16),
        },
    )


@golden("SHP-04")
def test_ways_that_a_dimension_is_split(case: Case) -> None:
    agree(case, {"ways": shards(sharding_of(case.given["spec"]), mesh_of(case.given["mesh"]))})


@golden("SHP-05")
def test_copies_over_the_unused_axes(case: Case) -> None:
    sharding, mesh = sharding_of(case.given["spec"]), mesh_of(case.given["mesh"])
    sizes = dict.fromkeys(sharding.dims, 64)
    everywhere = mesh.devices * bytes_per_device(sharding, sizes, mesh, 8)
    assert everywhere == replicas(sharding, mesh) * math.prod(sizes.values())
    agree(case, {"ratio": replicas(sharding, mesh)})


@golden("SHP-06")
def test_local_shapes_of_a_jax_example(case: Case) -> None:
    given, mesh = case.given, mesh_of(case.given["mesh"])
    a, b = sharding_of(given["a_spec"]), sharding_of(given["b_spec"])
    sizes = sizes_of(b, given["b_shape"])
    agree(
        case,
        {
            "a_local": local_shape(a, sizes_of(a, given["a_shape"]), mesh),
            "b_local": local_shape(b, sizes, mesh),
            "b_bytes_all_devices": mesh.devices * bytes_per_device(b, sizes, mesh, 8 * given["dtype"]),
        },
    )


@golden("SHP-07")
def test_an_axis_is_spent_once(case: Case) -> None:
    def legal(spec: str) -> bool:
        try:
            sharding_of(spec)
        except ShardingError:
            return False
        return True

    agree(case, {spec.replace(" ", ""): legal(spec) for spec in case.given.values()})


@golden("SHP-08")
def test_copies_of_whole_and_partly_split_tensors(case: Case) -> None:
    whole, split = sharding_of(case.given["spec_a"]), sharding_of(case.given["spec_b"])
    mesh = mesh_of(case.given["mesh"])
    agree(case, {"copies_replicated": replicas(whole, mesh), "copies_partial": replicas(split, mesh)})


@golden("SHP-09")
def test_a_global_shape_from_what_one_device_holds(case: Case) -> None:
    sharding, mesh = sharding_of("I_X, J"), Mesh.of({"X": case.given["ways"]})
    local = case.given["local_0"], case.given["local_1"]
    whole = [size * mesh.size(axes) for size, axes in zip(local, sharding.split, strict=True)]
    assert local_shape(sharding, dict(zip(sharding.dims, whole, strict=True)), mesh) == local
    agree(case, {"global_shape": whole})


@golden("SHP-11")
def test_shapes_of_column_and_row_parallel_layers(case: Case) -> None:
    given = case.given
    priced = ask(
        fields(
            hidden_size=given["h"], intermediate_size=given["m"], gated_mlp=False,
            num_hidden_layers=1, num_attention_heads=32,
        ),
        parallelism__tp=given["t"], workload__sequence_length=given["T"],
    )  # fmt: skip
    partial = next(line for line in tensor_lines(priced.ledger) if line.tensor.startswith("P["))
    found = {
        "col_weight": tensor(priced, "Wup", "weight"),
        "col_input_replicated": tensor(priced, "M"),
        "col_output_sharded": tensor(priced, "U"),
        "row_weight": tensor(priced, "Wdown", "weight"),
        "row_input_sharded": tensor(priced, "Z"),
        "row_output_partial": partial,
    }
    for name, line in found.items():
        assert name.endswith(("_weight", line.state))
    agree(case, {name: line.local_shape for name, line in found.items()})


@golden("TP-01")
def test_bytes_of_one_all_reduce_a_block_and_a_stage(case: Case) -> None:
    given = case.given
    priced = ask(
        fields(hidden_size=given["h"], num_hidden_layers=10),
        parallelism__tp=given["t"], workload__sequence_length=given["s"], workload__micro_batch_size=given["b"],
    )  # fmt: skip
    assert priced.ledger.work.dtype.bits == 8 * given["dtype"]
    (payload,) = {row.payload_bytes for row in rows(priced)}
    (wire,) = {row.wire_bytes for row in rows(priced)}
    agree(
        case,
        {
            "tokens": priced.ledger.sizes["T"],
            "payload": payload,
            "ring_per_rank": wire,
            "block_per_rank": priced.totals["block"]["tp"].wire_bytes,
            "stage_of_10_blocks": priced.totals["stage"]["tp"].wire_bytes,
        },
    )


@golden("TP-04")
def test_two_all_reduces_each_way(case: Case) -> None:
    """By the cases of the products of a module's two layers, and by the derivation of a whole block."""

    def pending(left: str, right: str, dims: str) -> bool:
        return product_case(sharding_of(case.given[left]), sharding_of(case.given[right]), dims.split()) == 3

    forward = pending("x", "w_col", "T m") + pending("z", "w_row", "T h")
    backward = pending("dy_row", "w_row_t", "T m") + pending("dy_col", "w_col_t", "T h")
    modules = case.given["modules"]
    found = counts(ask(fields(hidden_size=8192, num_hidden_layers=1), parallelism__tp=8))
    assert found == {("forward", "all_reduce"): modules * forward, ("backward", "all_reduce"): modules * backward}
    agree(
        case,
        {
            "forward": found["forward", "all_reduce"],
            "backward": found["backward", "all_reduce"],
            "total": sum(found.values()),
        },
    )


@golden("TP-06")
def test_bytes_grow_with_the_context(case: Case) -> None:
    def block(tokens: int) -> int:
        priced = ask(
            fields(hidden_size=case.given["h"], num_hidden_layers=1),
            parallelism__tp=case.given["t"], workload__sequence_length=tokens,
        )  # fmt: skip
        return priced.totals["block"]["tp"].wire_bytes

    short, long = block(case.given["s1"]), block(case.given["s2"])
    agree(case, {"bytes_128k": long, "growth": long / short})


@golden("TP-07")
def test_a_row_parallel_bias_before_the_reduction_counts_once_per_rank(case: Case) -> None:
    model = fields(hidden_size=8192, num_hidden_layers=1, mlp_bias=True)
    priced = ask(model, parallelism__tp=case.given["t"])
    (times,) = re.findall(r"bias bdown .* before, it would count (\d+) times", "\n".join(priced.assumptions))
    agree(case, {"times": int(times)})


@golden("TP-08")
def test_sequence_parallelism_moves_the_same_bytes(case: Case) -> None:
    given = case.given

    def block(sp: bool) -> PricedLedger:
        return ask(
            fields(hidden_size=given["h"], num_hidden_layers=1),
            parallelism__tp=given["t"], parallelism__sp=sp, workload__regather=False,
            workload__sequence_length=given["s"], workload__micro_batch_size=given["b"],
        )  # fmt: skip

    whole, split = block(sp=False), block(sp=True)
    tp_bytes, sp_bytes = (priced.totals["block"]["tp"].wire_bytes for priced in (whole, split))
    agree(
        case,
        {
            "tp_allreduces": len(rows(whole, part="block", kind="all_reduce")),
            "sp_allgathers": len(rows(split, part="block", kind="all_gather")),
            "sp_reducescatters": len(rows(split, part="block", kind="reduce_scatter")),
            "tp_bytes": tp_bytes,
            "sp_bytes": sp_bytes,
            "equal": tp_bytes == sp_bytes,
        },
    )


@golden("TP-09")
def test_a_padded_vocabulary_splits_evenly(case: Case) -> None:
    given = case.given
    padded = padded_vocab(given["v"], given["t"], VocabPadding.MEGATRON)
    assert padded % (given["multiple"] * given["t"]) == 0
    priced = ask(fields(**LLAMA_7B, vocab_size=given["v"]), parallelism__tp=given["t"])
    assert tensor(priced, "E", "weight").global_shape[0] == padded
    agree(case, {"padded": padded, "per_rank": tensor(priced, "E", "weight").local_shape[0]})


@golden("TP-11")
def test_styles_of_a_llama_block_in_pytorch(case: Case) -> None:
    """PyTorch's dimensions are batch, sequence, hidden; here T is batch and sequence in one."""
    model = fields(**LLAMA_7B)
    priced = ask(model, parallelism__tp=8)
    names = ("gate", "up", "down", "q", "k", "v", "o")
    split = {name: STYLES[tensor(priced, f"W{name}", "weight").split or ""] for name in names}
    (qkv,) = {split["q"], split["k"], split["v"]}
    layouts = {"replicated": "Replicate"}
    output = tensor(ask(model, parallelism__tp=8, parallelism__sp=True), "P")
    (cut,) = (
        at for at, (whole, own) in enumerate(zip(output.global_shape, output.local_shape, strict=True)) if own < whole
    )
    agree(
        case,
        {
            "w1": split["gate"],
            "w3": split["up"],
            "w2": split["down"],
            "wq_wk_wv": qkv,
            "wo": split["o"],
            "ffn_allreduces": len(rows(priced, sublayer="mlp", direction="forward", kind="all_reduce")),
            "colwise_input_default": layouts[tensor(priced, "M").state],
            "rowwise_output_default": layouts[tensor(priced, "P").state],
            "sp_rowwise_output": f"Shard({cut + 1})",
        },
    )


def local_flops(placed: Placed, priced: PricedLedger) -> int:
    """Multiplications and additions of one device's share of a product."""
    held: dict[str, int] = {}
    for sharding in (*placed.inputs, *placed.weights):
        held |= zip(sharding.dims, local_shape(sharding, priced.ledger.sizes, priced.ledger.layout.mesh), strict=True)
    return 2 * math.prod(held.values())


@golden("TP-12")
def test_compute_and_communication_of_an_mlp(case: Case) -> None:
    given = case.given
    priced = ask(
        fields(hidden_size=given["D"], intermediate_size=given["F"], gated_mlp=False, num_hidden_layers=1),
        parallelism__tp=given["Y"], parallelism__layout="megatron-sp", workload__sequence_length=given["B"],
        links__convention="textbook", bandwidth=[f"{given['W']}B/s"], latency=["0s"],
    )  # fmt: skip
    comms = sum(e.time_s for e in priced.entries if (e.row.sublayer, e.row.direction) == ("mlp", "forward"))
    placed = priced.ledger.derivations["block"].placed
    products = [made for made in placed if made.op.sublayer == "mlp" and made.op.rule is Rule.CONTRACT]
    maths = sum(local_flops(made, priced) for made in products) / given["C"]
    agree(case, {"T_math": maths * 1e6, "T_comms": comms * 1e6, "compute_bound": maths > comms})


@golden("GQA-02")
def test_local_heads_and_the_degree_that_would_leave_none(case: Case) -> None:
    given = case.given
    priced = ask(
        fields(**LLAMA_7B | {"num_attention_heads": given["n_q"], "num_key_value_heads": given["n_kv"]}),
        parallelism__tp=given["tp"],
    )
    few = fields(**LLAMA_7B | {"num_attention_heads": given["n_q"], "num_key_value_heads": given["kv2"]})
    with pytest.raises(IllegalDegree, match=f"num_key_value_heads {given['kv2']} mod {given['tp2']} = ") as refused:
        ask(few, parallelism__tp=given["tp2"])
    (rows_of_k,) = re.findall(r"\((\d+) rows of K on a rank\)", refused.value.text())
    agree(
        case,
        {
            "q_local": tensor(priced, "Q").local_heads,
            "kv_local": tensor(priced, "K").local_heads,
            "kv_floor_16": int(rows_of_k) // priced.ledger.sizes["H"],
        },
    )


@golden("GQA-03")
def test_a_kv_cache_split_by_sequences_and_heads(case: Case) -> None:
    given = case.given
    _, cache = parse_tensor("KV[C, B_Z, S, K_Y, H]", "YZ")
    sizes = {"C": 2} | {name: given[name] for name in "BSKH"}
    mesh = Mesh.of({"Y": given["Y"], "Z": given["Z"]})
    agree(case, {"per_chip": bytes_per_device(cache, sizes, mesh, 8 * given["dtype"])})


@golden("MM-02")
def test_the_four_products_without_communication(case: Case) -> None:
    given, mesh, sizes = case.given, {"X": 2, "Y": 2}, dict.fromkeys("IJK", 8)
    got = {}
    for at in range(1, 5):
        found = products(f"A[{given[f'a{at}']}] @ B[{given[f'b{at}']}]", mesh, sizes, communication=False)
        outputs = [format_tensor("", one.output) for one in found.strategies]
        assert case.want[f"out{at}"] in outputs
        plain = [one for one in found.strategies if one.name == "multiply"]
        got[f"out{at}"] = format_tensor("", plain[0].output)
    agree(case, got)


def ring(bandwidth: float) -> Network:
    return Network((Level(name="link", bandwidth=bandwidth),))


@golden("MM-08")
def test_which_size_tells_when_gathered_weights_bind(case: Case) -> None:
    """The baseline gathers the weights; what its compute outgrows its communication by is B alone."""
    given = case.given
    found = products(
        "X[B, D] @ W[D_X, F] -> Z[B, F]", {"X": 4}, {name: given[name] for name in "BDF"},
        ring(given["W"]), given["C"], Convention.TEXTBOOK,
    )  # fmt: skip
    (gather,) = [one for one in found.strategies if one.name == "gather-then-multiply"]
    alone = found._replace(strategies=(gather,))
    (balance,) = balances(alone)
    assert balance.at == pytest.approx(given["C"] / given["W"], rel=1e-9)
    agree(case, {"variable": balance.dim})


@golden("MM-09")
def test_gather_first_or_scatter_after(case: Case) -> None:
    given = case.given
    sizes = {name: given[name] for name in "NMK"}
    found = products("A[N, M_X] @ B[M, K] -> O[N, K_X]", {"X": 4}, sizes)
    sent = {one.name: one.wire_bytes for one in found.strategies}
    agree(
        case,
        {"ratio": sent["gather-then-slice-onto-K-then-multiply"] / sent["slice-then-multiply-then-reduce-scatter"]},
    )


@golden("MM-10")
def test_a_product_cut_in_two_along_its_sum(case: Case) -> None:
    given = case.given
    found = products(
        "A[B, D_X] @ W[D_X, F] -> O[B, F]", {"X": 2}, {"B": 64, "D": 1024, "F": 64}, ring(given["W"]), given["C"]
    )
    (summed,) = [one for one in found.strategies if one.name == "multiply-then-all-reduce"]
    at = {balance.dim: balance.at for balance in balances(found._replace(strategies=(summed,)))}
    agree(case, {"intensity": given["C"] / given["W"], "D_min": at["D"]})


def test_every_case_has_a_test() -> None:
    assert CASES.keys() == COVERED
