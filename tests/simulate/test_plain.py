"""The plain decoder: its gradients against finite differences, its names against the programs', its values by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import erf, exp, log, prod, sqrt, tanh
from typing import Any

import numpy as np
import pytest

from commcalc.algebra.mesh import Mesh
from commcalc.algebra.program import Program, Role
from commcalc.errors import SpecError
from commcalc.simulate import plain, plain_experts, tape
from commcalc.simulate.plain import Plain, plain_run
from commcalc.simulate.plain_layers import weight_shapes
from commcalc.simulate.plain_state import Choices
from commcalc.simulate.tape import Array, Variable, backward
from commcalc.transformer.block import block_program
from commcalc.transformer.embedding import embedding_program, head_program
from commcalc.transformer.layers import layers_of
from commcalc.transformer.layout import KvPolicy, LayoutName, lay_out
from commcalc.transformer.parameters import parameters
from commcalc.transformer.spec import LinearAttention, Model, Norm, NormPlacement, Phase, Positions, QkNorm

BIASES: Mapping[str, Any] = {
    "attention_bias": True, "attention_output_bias": True, "mlp_bias": True, "lm_head_bias": True,
}  # fmt: skip
B = 2
EXPERTS: Mapping[str, Any] = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
LATENTS: Mapping[str, Any] = {
    "kv_lora_rank": 7, "qk_nope_head_dim": 3, "qk_rope_head_dim": 2, "v_head_dim": 4, "head_dim": 5,
}  # fmt: skip
LINEAR: Mapping[str, Any] = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 9, "linear_value_head_dim": 6,
}  # fmt: skip


def model(**given: Any) -> Model:
    """A model of few numbers, no two sizes alike where they may differ."""
    base = Model(
        hidden_size=5, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, head_dim=3,
        intermediate_size=7, vocab_size=11, max_position_embeddings=4,
    )  # fmt: skip
    return base._replace(**given)


MODELS = {
    "gated": model(num_hidden_layers=2),
    "plain": model(gated_mlp=False),
    "mha": model(num_key_value_heads=4),
    "mqa": model(num_key_value_heads=1),
    "layernorm": model(norm=Norm.LAYERNORM, gated_mlp=False),
    "layernorm-no-bias": model(norm=Norm.LAYERNORM_NO_BIAS),
    "sandwich": model(norm_placement=NormPlacement.SANDWICH),
    "sandwich-biases": model(norm_placement=NormPlacement.SANDWICH, norm=Norm.LAYERNORM, **BIASES),
    "post": model(norm_placement=NormPlacement.POST, num_hidden_layers=2),
    "post-biases": model(norm_placement=NormPlacement.POST, gated_mlp=False, **BIASES),
    "parallel": model(parallel_block=True, norm=Norm.LAYERNORM_NO_BIAS),
    "parallel-2": model(parallel_block=True, parallel_norms=2, norm=Norm.LAYERNORM, gated_mlp=False, **BIASES),
    "parallel-mlp-bias": model(parallel_block=True, mlp_bias=True),
    "biases": model(num_hidden_layers=2, **BIASES),
    "attention-bias": model(attention_bias=True),
    "qk-head": model(qk_norm=QkNorm.HEAD_DIM, num_hidden_layers=2),
    "qk-head-layernorm": model(qk_norm=QkNorm.HEAD_DIM, norm=Norm.LAYERNORM, attention_bias=True),
    "qk-per-head": model(qk_norm=QkNorm.PER_HEAD, norm=Norm.LAYERNORM),
    "qk-full": model(qk_norm=QkNorm.FULL_WIDTH, norm_placement=NormPlacement.POST),
    "learned": model(position_embedding=Positions.LEARNED, extra_position_rows=2, num_hidden_layers=2),
    "embedding-norm": model(embedding_norm=True, norm=Norm.LAYERNORM, position_embedding=Positions.ALIBI),
    "tied": model(tie_word_embeddings=True, num_hidden_layers=2),
    "tied-learned-bias": model(
        tie_word_embeddings=True, position_embedding=Positions.LEARNED, norm=Norm.LAYERNORM, gated_mlp=False, **BIASES
    ),
    "gate": model(attention_output_gate=True),
    "experts": model(**EXPERTS),
    "experts-plain": model(gated_mlp=False, **EXPERTS),
    "experts-shared": model(
        num_hidden_layers=2, first_k_dense_replace=1, shared_expert_intermediate_size=9, shared_expert_gate=True,
        **EXPERTS,
    ),
    "experts-biases": model(
        expert_bias=True, router_bias=True, attention_sinks=True, sliding_window=2, full_attention_interval=2,
        **(EXPERTS | BIASES | {"mlp_bias": False}),
    ),
    "experts-one": model(num_hidden_layers=2, interleave_moe_layer_step=2, **(EXPERTS | {"num_experts_per_tok": 1})),
    "experts-beside": model(
        num_hidden_layers=2, dense_mlp_beside_moe=True, router_scales=True, norm_placement=NormPlacement.SANDWICH,
        qk_norm=QkNorm.HEAD_DIM, sliding_window=2, full_attention_interval=2, global_head_dim=2,
        global_num_key_value_heads=1, global_keys_are_values=True, **EXPERTS,
    ),
    "latents": model(q_lora_rank=6, **LATENTS),
    "latents-keys": model(num_hidden_layers=2, **LATENTS),
    "delta": model(num_hidden_layers=2, full_attention_interval=2, linear_conv_kernel_dim=3, **LINEAR),
    "delta-alone": model(layer_types=("linear_attention",), **LINEAR),
    "lightning": model(linear_attention=LinearAttention.LIGHTNING, **LINEAR),
    "sinks-sliding": model(
        num_hidden_layers=2, v_head_dim=2, sliding_num_key_value_heads=4, attention_sinks=True,
        sinks_in_sliding_only=True, layer_types=("full_attention", "sliding_attention"),
    ),
    "qk-no-weight": model(qk_norm=QkNorm.NO_WEIGHT),
}  # fmt: skip
over_models = pytest.mark.parametrize("given", MODELS.values(), ids=MODELS)


def sizes_of(given: Model, length: int = 4) -> dict[str, int]:
    return given.dims | {"T": B * length, "B": B}


class Case:
    """A model with random weights, tokens and targets."""

    def __init__(self, given: Model, length: int = 4, seed: int = 8) -> None:
        self.model, self.sizes, self.random = given, sizes_of(given, length), np.random.default_rng(seed)
        self.weights = {
            name: self.random.normal(size=shape) * 0.6 + (name.split(".")[-1][0] == "g") - 3 * name.endswith("dt_bias")
            for name, shape in weight_shapes(given, self.sizes).items()
        }
        self.tokens = self.random.integers(0, self.sizes["V"], self.sizes["T"])
        self.targets = self.random.integers(0, self.sizes["V"], self.sizes["T"])

    def run(self, phase: Phase = Phase.TRAIN) -> Plain:
        return plain_run(self.model, self.sizes, self.weights, self.tokens, self.targets, phase)

    def loss(self, **weights: Array) -> float:
        """The loss alone, with some weights replaced: differences need no backward pass."""
        run = plain._Run(self.model, self.sizes, self.weights | weights, Phase.TRAIN)
        losses = run.forward(self.tokens, self.targets)
        assert losses is not None
        return float(losses.value.mean())


def slope(function: Callable[[float], float], step: float = 1.5e-4) -> float:
    """The central difference at 0 that is exact to the fourth order: (8 f(h) - 8 f(-h) - f(2h) + f(-2h)) / 12h."""
    near, far = function(step) - function(-step), function(2 * step) - function(-2 * step)
    return (8 * near - far) / (12 * step)


def agrees(exact: float, difference: float) -> bool:
    """To 1e-7 of the slope; one below 1e-3 drowns in the rounding of two losses near 3."""
    return abs(exact - difference) <= 1e-7 * max(abs(exact), 1e-3)


def unit(direction: Array) -> Array:
    norm: float = np.sqrt((direction * direction).sum())
    return direction / norm


# The tape alone

PRIMITIVES: Mapping[str, tuple[Callable[..., Variable], tuple[tuple[int, ...], ...]]] = {
    "add": (tape.add, ((3, 4), (3, 4))),
    "add-axis": (tape.add, ((3, 1), (4,))),
    "add-scalar": (tape.add, ((2, 3), ())),
    "multiply": (tape.multiply, ((3, 4), (3, 4))),
    "multiply-axis": (tape.multiply, ((2, 1, 3), (4, 1))),
    "multiply-itself": (lambda a: tape.multiply(a, tape.multiply(a, a)), ((4,),)),
    "scale": (lambda a: tape.scale(a, -2.5), ((3,),)),
    "einsum": (lambda a, b: tape.einsum("tnh,nhd->td", a, b), ((3, 2, 4), (2, 4, 5))),
    "einsum-batch": (lambda a, b: tape.einsum("bikgh,bjkh->bkgij", a, b), ((2, 3, 2, 2, 4), (2, 3, 2, 4))),
    "exp": (tape.exp, ((3, 2),)),
    "log": (lambda a: tape.log(tape.add(tape.multiply(a, a), Variable(np.array(0.5)))), ((3, 2),)),
    "power": (lambda a: tape.power(tape.add(tape.multiply(a, a), Variable(np.array(0.5))), -0.5), ((3, 2),)),
    "tanh": (tape.tanh, ((3, 2),)),
    "sigmoid": (tape.sigmoid, ((3, 2),)),
    "total": (lambda a: tape.total(a, (0, 2)), ((3, 2, 4),)),
    "mean": (lambda a: tape.mean(a, -1), ((3, 4),)),
    "reshape": (lambda a: tape.reshape(a, (2, 6)), ((3, 4),)),
    "rows": (lambda a: tape.rows(a, np.array([2, 0, 2, 2])), ((3, 4),)),
    "gelu": (plain_experts.gelu, ((5,),)),
    "silu": (tape.silu, ((5,),)),
    "part": (lambda a: tape.part(a, 1, 3), ((2, 4),)),
    "along": (lambda a: tape.along(a, np.array([[0, 2], [3, 1]])), ((2, 4),)),
}


@pytest.mark.parametrize(("function", "shapes"), PRIMITIVES.values(), ids=PRIMITIVES)
def test_every_primitive_has_the_slope_of_its_values(
    function: Callable[..., Variable], shapes: tuple[tuple[int, ...], ...]
) -> None:
    random = np.random.default_rng(3)
    values = [random.normal(size=shape) for shape in shapes]
    operands = [Variable(value) for value in values]
    made = function(*operands)
    seed = random.normal(size=made.value.shape)
    backward(made, seed)
    for at, operand in enumerate(operands):
        assert operand.grad is not None and operand.grad.shape == shapes[at]
        for place in np.ndindex(shapes[at]):

            def moved(step: float, at: int = at, place: tuple[int, ...] = place) -> float:
                shifted = [value.copy() for value in values]
                shifted[at][place] += step
                return float((function(*map(Variable, shifted)).value * seed).sum())

            assert operand.grad[place] == pytest.approx(slope(moved), rel=1e-9, abs=1e-10)


def test_a_variable_read_twice_gets_both_gradients_and_a_second_pass_the_same() -> None:
    x = Variable(np.array([3.0]))
    y = tape.scale(x, 2.0)
    z = tape.add(tape.multiply(y, x), y)  # 2 x^2 + 2 x
    for _ in range(2):
        backward(z, np.ones(1))
        assert (x.grad, y.grad) == (np.array([14.0]), np.array([4.0]))


def test_no_gradient_passes_a_maximum() -> None:
    x = Variable(np.array([[1.0, 4.0], [3.0, 2.0]]))
    top = tape.maximum(x, 1)
    assert top.value.tolist() == [[4.0], [3.0]] and top.parents == ()


def test_a_long_chain_needs_no_recursion() -> None:
    x = y = Variable(np.ones(1))
    for _ in range(5000):
        y = tape.scale(y, 1.0)
    backward(y, np.ones(1))
    assert x.grad == np.ones(1)


@pytest.mark.parametrize("spec", ["tt,td->td", "td,df->t", "tx,td->td"])
def test_an_einsum_whose_gradient_is_no_einsum_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="nowhere else"):
        tape.einsum(spec, Variable(np.ones((2, 2))), Variable(np.ones((2, 2))))


def test_a_sigmoid_far_from_zero_does_not_overflow() -> None:
    assert tape.sigmoid(Variable(np.array([-800.0, 800.0]))).value.tolist() == [0.0, 1.0]


# Gradients of the decoder


@over_models
def test_the_gradient_of_every_weight_is_its_finite_difference(given: Model) -> None:
    case = Case(given)
    gradients = case.run().gradients
    assert gradients.keys() == case.weights.keys()
    for name, weight in case.weights.items():
        assert gradients[name].shape == weight.shape
        towards = unit(case.random.normal(size=weight.shape))
        single = np.zeros(weight.shape)
        single[np.unravel_index(np.abs(gradients[name]).argmax(), weight.shape)] = 1
        for direction in (towards, single):
            found = slope(lambda step, name=name, to=direction: case.loss(**{name: case.weights[name] + step * to}))
            assert agrees(float((gradients[name] * direction).sum()), found), name


NUDGED = ["sandwich-biases", "parallel-2", "qk-head-layernorm", "qk-full", "learned", "embedding-norm", "gate",
          "experts-shared", "experts-biases", "experts-one", "experts-beside", "latents", "delta", "lightning",
          "sinks-sliding"]  # fmt: skip


@pytest.mark.parametrize("name", NUDGED)
def test_the_gradient_of_every_tensor_is_its_finite_difference(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(MODELS[name])
    ran = case.run()
    nudged: dict[str, Array] = {}
    keep = plain._Run.keep

    def nudging(run: plain._Run, name: str, x: Variable) -> Variable:
        added = nudged.get(f"{run.part}.{name}")
        return keep(run, name, x if added is None else tape.add(x, Variable(added)))

    monkeypatch.setattr(plain._Run, "keep", nudging)
    assert ran.input_gradients.keys() == {name for name, tensor in ran.tensors.items() if tensor.dtype.kind == "f"}
    for name, gradient in ran.input_gradients.items():
        assert gradient.shape == ran.tensors[name].shape
        towards = unit(case.random.normal(size=gradient.shape))

        def moved(step: float, name: str = name, towards: Array = towards) -> float:
            nudged.clear()
            nudged[name] = step * towards
            return case.loss()

        assert agrees(float((gradient * towards).sum()), slope(moved)), name


def test_a_tied_table_gets_the_gradients_of_both_ends() -> None:
    tied = Case(MODELS["tied"])
    apart = Case(MODELS["tied"]._replace(tie_word_embeddings=False))
    apart.weights = tied.weights | {"head.Wlm": tied.weights["embedding.E"]}
    apart.tokens, apart.targets = tied.tokens, tied.targets
    one, two = tied.run(), apart.run()
    assert one.loss == two.loss
    both = two.gradients["embedding.E"] + two.gradients["head.Wlm"]
    np.testing.assert_allclose(one.gradients["embedding.E"], both, rtol=1e-12)


def test_gradients_are_nobody_elses_arrays() -> None:
    ran = Case(MODELS["biases"]).run()
    arrays = [*ran.gradients.values(), *ran.input_gradients.values()]
    assert all(array.flags.owndata and array.flags.writeable for array in arrays)


# Names and shapes


def programs(given: Model, phase: Phase) -> dict[str, Program]:
    layout = lay_out(LayoutName.NONE, Mesh.of({"tp": 1}), {}, KvPolicy.REFUSE)
    blocks = {f"block.{at}": block_program(given, layout, kind) for at, kind in enumerate(layers_of(given).kinds)}
    return {"embedding": embedding_program(given, layout), **blocks, "head": head_program(given, layout, phase)}


@pytest.mark.parametrize("phase", Phase)
@over_models
def test_weights_and_tensors_are_those_of_the_programs(given: Model, phase: Phase) -> None:
    case = Case(given, length=1 if phase is Phase.DECODE else 4)
    ran = case.run(phase)
    weights: dict[str, tuple[int, ...]] = {}
    tensors: dict[str, tuple[int, ...]] = {}
    for part, program in programs(given, phase).items():
        for name, tensor in program.tensors.items():
            found = weights if tensor.role is Role.WEIGHT else tensors
            key = "embedding.E" if name == "E" else f"{part}.{name}"  # a tied table has its name at both ends
            found[key] = tuple(case.sizes[dim] for dim in tensor.dims)
    assert weight_shapes(given, case.sizes) == weights
    mine = {name: tensor.shape for name, tensor in ran.tensors.items()}
    more = {name.rsplit(".")[-1] for name in mine.keys() - tensors.keys()}
    assert more <= {"map", "probs", "Ae"}  # of all experts, as some frameworks send them
    twice = {name for name in tensors if name.endswith((".own_chosen", ".own_routing"))}  # the same, made once more
    assert {name: mine[name] for name in tensors.keys() - twice} == {
        name: tensors[name] for name in tensors.keys() - twice
    }
    floats = {name for name, tensor in ran.tensors.items() if tensor.dtype == np.float64}
    whole = {name.rsplit(".")[-1] for name in ran.tensors.keys() - floats}
    assert whole - {"map", "chosen"} == {"tokens"} | (set() if phase.training else {"next"})
    assert ran.gradients.keys() == (weights.keys() if phase.training else set())
    assert ran.input_gradients.keys() == (floats if phase.training else set())


@over_models
def test_the_weights_are_as_many_as_the_model_has_parameters(given: Model) -> None:
    assert sum(prod(shape) for shape in weight_shapes(given, sizes_of(given)).values()) == parameters(given)


# Values by hand


def test_one_token_attends_to_itself_alone() -> None:
    for name in ("mha", "gated", "mqa"):
        tensors = Case(MODELS[name]).run(Phase.TRAIN).tensors
        alone = Case(MODELS[name], length=1).run(Phase.DECODE).tensors
        sharing = MODELS[name].num_attention_heads or 0
        sharing //= MODELS[name].num_key_value_heads or 1
        np.testing.assert_allclose(alone["block.0.O"], alone["block.0.V"].repeat(sharing, 1), rtol=1e-14)
        first = [0, 4]  # the first token of each sequence has no past
        np.testing.assert_allclose(tensors["block.0.O"][first], tensors["block.0.V"].repeat(sharing, 1)[first])


def test_attention_is_the_weighted_mean_of_the_past_head_by_head() -> None:
    case = Case(MODELS["gated"])
    tensors = case.run().tensors
    q, k, v = (tensors[f"block.1.{name}"] for name in "QKV")
    for token in range(8):
        past = range(token // 4 * 4, token + 1)
        for head in range(4):
            kv = head // 2
            shares = [exp(sum(q[token, head] * k[other, kv]) / sqrt(3)) for other in past]
            wanted = sum(share * v[other, kv] for share, other in zip(shares, past, strict=True)) / sum(shares)
            np.testing.assert_allclose(tensors["block.1.O"][token, head], wanted, rtol=1e-12)


def test_a_decoder_of_width_one_by_hand() -> None:
    """One token, one head, every matrix a number: the whole chain can be written out."""
    given = model(
        hidden_size=1, num_attention_heads=1, num_key_value_heads=1, head_dim=1, intermediate_size=1, vocab_size=2
    )  # fmt: skip
    one = {
        "Wq": 3,
        "Wk": 5,
        "Wv": 2,
        "Wo": 0.5,
        "Wgate": 1.5,
        "Wup": -2,
        "Wdown": 0.25,
        "g_attention": 1.25,
        "g_mlp": 2,
    }
    sizes = given.dims | {"T": 1, "B": 1}
    shapes = weight_shapes(given, sizes)
    weights = {f"block.0.{name}": np.full(shapes[f"block.0.{name}"], float(value)) for name, value in one.items()}
    weights |= {"embedding.E": np.array([[0.75], [-1.0]]), "head.g_final": np.array([0.5])}
    weights |= {"head.Wlm": np.array([[1.0], [-3.0]])}
    ran = plain_run(given, sizes, weights, np.array([0]), np.array([1]), Phase.TRAIN)

    def unit(x: float) -> float:
        return x / sqrt(x * x + 1e-5)

    r = 0.75 + unit(0.75) * 1.25 * 2 * 0.5
    m = unit(r) * 2
    gate = 1.5 * m
    x = r + gate / (1 + exp(-gate)) * (-2 * m) * 0.25
    a = unit(x) * 0.5
    assert float(ran.tensors["block.0.R"][0, 0]) == pytest.approx(r, rel=1e-14)
    assert float(ran.tensors["block.0.X'"][0, 0]) == pytest.approx(x, rel=1e-14)
    assert ran.loss == pytest.approx(log(exp(a) + exp(-3 * a)) + 3 * a, rel=1e-14)


def test_norms_by_hand() -> None:
    x = np.array([[1.0, -2.0, 4.0]])
    gain, bias = np.array([2.0, 1.0, -1.0]), np.array([0.5, 0.0, 1.0])
    root, deviation = sqrt(7 + 1e-5), sqrt((0 + 9 + 9) / 3 + 1e-5)
    wanted = {
        Norm.RMSNORM: x / root * gain,
        Norm.LAYERNORM_NO_BIAS: np.array([[0.0, -3.0, 3.0]]) / deviation * gain,
        Norm.LAYERNORM: np.array([[0.0, -3.0, 3.0]]) / deviation * gain + bias,
    }
    for kind, value in wanted.items():
        case = Case(model(norm=kind))
        run = plain._Run(case.model, case.sizes, case.weights, Phase.TRAIN)
        run.part, run.weights = "own", {"own.g": Variable(gain), "own.b": Variable(bias)}
        np.testing.assert_allclose(run.norm(Variable(x), "g", "b").value, value, rtol=1e-14)


def test_query_norms_take_their_mean_over_a_head_or_over_all() -> None:
    for kind, axes in ((QkNorm.HEAD_DIM, 2), (QkNorm.PER_HEAD, 2), (QkNorm.FULL_WIDTH, (1, 2))):
        case = Case(model(qk_norm=kind))
        tensors = case.run().tensors
        q = tensors["block.0.Q"]
        wanted = q / np.sqrt((q * q).mean(axes, keepdims=True) + 1e-5) * case.weights["block.0.gq"]
        np.testing.assert_allclose(tensors["block.0.Qn"], wanted, rtol=1e-13)


def test_activations_by_hand() -> None:
    points = np.array([-3.0, -0.5, 0.0, 1.0, 2.5])
    made = plain_experts.gelu(Variable(points)).value
    inner = [sqrt(2 / 3.141592653589793) * (x + 0.044715 * x**3) for x in points]
    np.testing.assert_allclose(made, [x / 2 * (1 + tanh(t)) for x, t in zip(points, inner, strict=True)], rtol=1e-12)
    # The tanh stands for the normal distribution, from which it is never further off than this.
    np.testing.assert_allclose(made, [x / 2 * (1 + erf(x / sqrt(2))) for x in points], atol=5e-4)
    tensors = Case(MODELS["gated"]).run().tensors
    g, u = tensors["block.0.G"], tensors["block.0.U"]
    np.testing.assert_allclose(tensors["block.0.Z"], g / (1 + np.exp(-g)) * u, rtol=1e-13)


# For each model: tensors that are norms (of what, by which weight), and tensors that the projections read.
READS: Mapping[str, tuple[Mapping[str, tuple[str, str]], Mapping[str, str]]] = {
    "gated": ({"A": ("X", "attention"), "M": ("R", "mlp")}, {"Wq": "A", "Wk": "A", "Wv": "A", "Wup": "M"}),
    "sandwich": (
        {"A": ("X", "attention"), "Yn": ("Y", "post_attention"), "M": ("R", "mlp"), "Pn": ("P", "post_mlp")},
        {"Wq": "A", "Wup": "M"},
    ),
    "sandwich-biases": ({"Ybn": ("Yb", "post_attention"), "Pbn": ("Pb", "post_mlp")}, {"Wq": "A", "Wup": "M"}),
    "post": ({"Yn": ("Y", "post_attention"), "Pn": ("P", "post_mlp")}, {"Wq": "X", "Wup": "R"}),
    "parallel": ({"A": ("X", "attention")}, {"Wq": "A", "Wgate": "A", "Wup": "A"}),
    "parallel-2": ({"A": ("X", "attention"), "M": ("X", "mlp")}, {"Wq": "A", "Wup": "M"}),
}  # fmt: skip
MADE = {"Wq": "Q", "Wk": "K", "Wv": "V", "Wup": "U", "Wgate": "G"}


@pytest.mark.parametrize("name", READS)
def test_norms_and_branches_read_what_their_placement_says(name: str) -> None:
    case = Case(MODELS[name])
    tensors = {key.removeprefix("block.0."): tensor for key, tensor in case.run().tensors.items()}
    weights = {key.removeprefix("block.0."): weight for key, weight in case.weights.items()}
    norms, projections = READS[name]
    for output, (x, norm) in norms.items():
        read = tensors[x]
        if case.model.norm is not Norm.RMSNORM:
            read = read - read.mean(1, keepdims=True)
        wanted = read / np.sqrt((read * read).mean(1, keepdims=True) + 1e-5) * weights[f"g_{norm}"]
        np.testing.assert_allclose(tensors[output], wanted + weights.get(f"b_{norm}", 0), rtol=1e-11, atol=1e-13)
    for weight, x in projections.items():
        made = tensors.get(f"{MADE[weight]}w", tensors[MADE[weight]])
        np.testing.assert_allclose(made, np.tensordot(tensors[x], weights[weight], 1), rtol=1e-11, atol=1e-13)


def test_branches_and_residuals_add_up() -> None:
    tensors = Case(MODELS["sandwich-biases"]).run().tensors
    np.testing.assert_allclose(tensors["block.0.R"], tensors["block.0.X"] + tensors["block.0.Ybn"])
    np.testing.assert_allclose(tensors["block.0.X'"], tensors["block.0.R"] + tensors["block.0.Pbn"])
    case = Case(MODELS["parallel-2"])
    tensors = case.run().tensors
    biases = case.weights["block.0.bo"] + case.weights["block.0.bdown"]
    np.testing.assert_allclose(tensors["block.0.Sbb"], tensors["block.0.Y"] + tensors["block.0.P"] + biases)
    np.testing.assert_allclose(tensors["block.0.X'"], tensors["block.0.X"] + tensors["block.0.Sbb"])


def test_learned_positions_start_behind_the_extra_rows_in_every_sequence() -> None:
    case = Case(MODELS["learned"])
    tensors = case.run().tensors
    added = np.tile(case.weights["embedding.Wpos"][2:], (B, 1))
    np.testing.assert_allclose(tensors["embedding.X"], case.weights["embedding.E"][case.tokens] + added)
    with pytest.raises(SpecError, match="position 6 lies outside of a table of 6"):
        Case(MODELS["learned"], length=5).run()


def test_prefill_samples_the_last_position_and_agrees_with_training() -> None:
    case = Case(MODELS["biases"])
    trained, read = case.run().tensors, case.run(Phase.PREFILL)
    np.testing.assert_allclose(read.tensors["head.last"], trained["head.A"][[3, 7]], rtol=1e-13)
    np.testing.assert_allclose(read.tensors["head.logits"], trained["head.logits"][[3, 7]], rtol=1e-13)
    assert read.tensors["head.next"].tolist() == read.tensors["head.logits"].argmax(1).tolist()
    assert read.loss is None


def test_the_loss_is_the_mean_surprise_at_the_targets() -> None:
    case = Case(MODELS["gated"])
    ran = case.run()
    shares = np.exp(ran.tensors["head.logits"])
    shares /= shares.sum(1, keepdims=True)
    wanted = -np.log(shares[np.arange(8), case.targets])
    np.testing.assert_allclose(ran.tensors["head.loss"], wanted, rtol=1e-12)
    assert ran.loss == pytest.approx(wanted.mean(), rel=1e-13)


# Architectures by hand


def block(ran: Plain, at: int = 0) -> dict[str, Array]:
    """The tensors of one layer by their names in it."""
    start = f"block.{at}."
    return {name.removeprefix(start): tensor for name, tensor in ran.tensors.items() if name.startswith(start)}


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("name", ["experts", "experts-biases", "experts-one", "experts-beside"])
def test_experts_token_by_token(name: str) -> None:
    """Every token through the experts it goes to, one after another, each weighed by its share."""
    case = Case(MODELS[name])
    at = 1 if name == "experts-one" else 0
    tensors, w = block(case.run(), at), {k.removeprefix(f"block.{at}."): v for k, v in case.weights.items()}
    read = tensors["Me"] if name == "experts-beside" else tensors["M"]
    for token in range(8):
        scores = tensors["scores"][token]
        chosen = sorted(range(6), key=lambda expert: -scores[expert])[: case.sizes["C"]]
        assert tensors["chosen"][token].tolist() == sorted(chosen)
        raw = {expert: exp(scores[expert]) for expert in chosen}
        share = {expert: one / sum(raw.values()) for expert, one in raw.items()}
        if name == "experts-one":
            share = {chosen[0]: float(sigmoid(scores[chosen[0]]))}
        wanted = np.zeros(5)
        for expert in chosen:
            gate, up = (read[token] @ w[f"We_{low}"][expert] for low in ("gate", "up"))
            if "be_gate" in w:
                gate, up = gate + w["be_gate"][expert], up + w["be_up"][expert]
            made = (gate * sigmoid(gate) * up) @ w["We_down"][expert]
            made = made + (w["be_down"][expert] if "be_down" in w else 0)
            wanted += share[expert] * w.get("g_each_expert", np.ones(6))[expert] * made
        found = tensors["Peb" if "be_down" in w else "Pe"][token]
        np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-13)


def test_a_shared_expert_opens_by_its_gate() -> None:
    case = Case(MODELS["experts-shared"])
    tensors = block(case.run(), 1)
    w = {k.removeprefix("block.1."): v for k, v in case.weights.items()}
    gate, up = tensors["M"] @ w["Wgates"], tensors["M"] @ w["Wups"]
    share = sigmoid(tensors["M"] @ w["Wshare"])
    wanted = tensors["Pe"] + share[:, None] * ((gate * sigmoid(gate) * up) @ w["Wdowns"])
    np.testing.assert_allclose(tensors["P"], wanted, rtol=1e-12)
    assert "scores" not in block(case.run(), 0)  # the first layer is dense


def test_latent_attention_is_attention_with_one_rotary_key() -> None:
    """Heads whose keys end with the same two elements; queries have a latent of their own, or none."""
    for name in ("latents", "latents-keys"):
        tensors = block(Case(MODELS[name]).run())
        q, v = tensors["Q"], tensors["V"]
        for token in range(8):
            past = range(token // 4 * 4, token + 1)
            for head in range(4):
                keys = {other: np.concatenate([tensors["K"][other, head], tensors["Kr"][other]]) for other in past}
                shares = {other: exp(q[token, head] @ key / sqrt(5)) for other, key in keys.items()}
                wanted = sum(share * v[other, head] for other, share in shares.items()) / sum(shares.values())
                np.testing.assert_allclose(tensors["O"][token, head], wanted, rtol=1e-12)


def test_a_sink_takes_a_share_of_every_softmax() -> None:
    case = Case(MODELS["sinks-sliding"])
    ran = case.run()
    assert "block.0.sinks" not in case.weights
    tensors, sinks = block(ran, 1), case.weights["block.1.sinks"]
    for token, head in ((0, 0), (5, 3), (7, 2)):
        past = range(token // 4 * 4, token + 1)
        raw = [exp(tensors["Q"][token, head] @ tensors["K"][other, head] / sqrt(3)) for other in past]
        summed = sum(one * tensors["V"][other, head] for one, other in zip(raw, past, strict=True))
        wanted = summed / (sum(raw) + exp(sinks[head]))
        np.testing.assert_allclose(tensors["O"][token, head], wanted, rtol=1e-12)


@pytest.mark.parametrize("name", ["delta", "delta-alone"])
def test_the_delta_rule_token_by_token(name: str) -> None:
    """A state that decays, forgets what a key said, and writes what it says now: equation 10 of arXiv:2412.06464."""
    case = Case(MODELS[name])
    tensors, w = block(case.run()), case.weights
    end = "c" if name == "delta" else ""
    for head in range(4):
        for sequence in range(2):
            state = np.zeros((6, 9))
            for token in range(sequence * 4, sequence * 4 + 4):
                q, k = (tensors[f"L{low}{end}"][token, head // 2] for low in "qk")
                q, k = (one / sqrt(one @ one + 1e-6) for one in (q, k))
                beta = sigmoid(tensors["Lb"][token, head])
                rate = exp(w["block.0.A_log"][head]) * log(
                    1 + exp(tensors["La"][token, head] + w["block.0.dt_bias"][head])
                )
                v = tensors[f"Lv{end}"][token, head]
                state = exp(-rate) * state @ (np.eye(9) - beta * np.outer(k, k)) + beta * np.outer(v, k)
                np.testing.assert_allclose(tensors["LO"][token, head], state @ q / 3, rtol=1e-9, atol=1e-13)
    if name == "delta":
        x, taps = tensors["Lk"], w["block.0.Wconv_k"]
        made = sum(taps[..., 2 - back] * x[6 - back] for back in range(3))
        np.testing.assert_allclose(tensors["Lkc"][6], made * sigmoid(made), rtol=1e-12)


def test_lightning_attention_token_by_token() -> None:
    tensors = block(Case(MODELS["lightning"]).run())
    state = np.zeros((6, 9))
    for token in range(4, 8):
        state += np.outer(tensors["Lv"][token, 3], tensors["Lk"][token, 1])
        np.testing.assert_allclose(tensors["LO"][token, 3], state @ tensors["Lq"][token, 1], rtol=1e-12)


def test_a_gate_opens_what_heads_say() -> None:
    tensors = block(Case(MODELS["gate"]).run())
    np.testing.assert_allclose(tensors["O"], tensors["Oa"] * sigmoid(tensors["Qgate"]), rtol=1e-13)
    delta = block(Case(MODELS["delta-alone"]).run())
    np.testing.assert_allclose(delta["O"], delta["LOn"] * delta["Lz"] * sigmoid(delta["Lz"]), rtol=1e-13)


def test_keys_serve_as_values_before_their_norm() -> None:
    tensors = block(Case(MODELS["experts-beside"]).run(), 1)
    assert tensors["K"].shape == (8, 1, 2)
    np.testing.assert_allclose(tensors["O"][[0, 4]], tensors["K"][[0, 4]].repeat(4, 1))


def test_choices_of_another_run_are_taken_where_scores_are_near() -> None:
    case = Case(MODELS["experts"])
    own = case.run().tensors
    scores, chosen = own["block.0.scores"], own["block.0.chosen"]
    token = 3
    order = np.argsort(-scores[token])
    gap = float(scores[token, order[1]] - scores[token, order[2]]) / float(np.abs(scores).max())
    other = chosen.copy()
    other[token] = sorted([order[0], order[2]])
    given = case.model, case.sizes, case.weights, case.tokens, case.targets, Phase.TRAIN

    def chose(slack: float, by: Array = other) -> list[int]:
        ran = plain_run(*given, choices=Choices({"block.0.chosen": by}, slack))
        return [int(one) for one in ran.tensors["block.0.chosen"][token]]

    assert chose(gap * 1.01) == other[token].tolist()
    assert chose(gap * 0.99) == chosen[token].tolist()
    assert chose(9.0, other[:, ::-1]) == chosen[token].tolist()  # not in order: no choice at all


# What is refused


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (model(undescribed="layers of a kind of their own"), "layers of a kind of their own"),
        (model(parallel_block=True, **EXPERTS), "experts in a parallel block"),
        (model(qk_norm=QkNorm.FULL_WIDTH, norm=Norm.LAYERNORM), "layer norm of queries and keys over all heads"),
        (model(embedding_norm=True, position_embedding=Positions.LEARNED), "beside learned positions"),
        (model(num_hidden_layers=None), "num_hidden_layers"),
    ],
)
def test_models_that_are_not_described_are_refused(given: Model, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        weight_shapes(given, sizes_of(given))


def test_weights_and_sizes_that_do_not_fit_are_refused() -> None:
    case = Case(MODELS["gated"])
    weights = {name: weight for name, weight in case.weights.items() if name != "head.Wlm"}
    weights |= {"head.blm": np.zeros(11), "block.0.Wq": np.zeros((5, 12))}

    def refused(said: str, phase: Phase = Phase.TRAIN, used: Mapping[str, Array] = case.weights, **sizes: int) -> None:
        with pytest.raises(SpecError, match=said):
            plain_run(case.model, case.sizes | sizes, used, case.tokens, case.targets, phase)

    refused(r"block\.0\.Wq, head\.Wlm, head\.blm", used=weights)
    refused("no 3 sequences", B=3)
    refused("no 2 sequences", Phase.DECODE)
    uneven = Case(MODELS["mqa"]._replace(num_attention_heads=3, num_key_value_heads=2))
    with pytest.raises(SpecError, match="3 query heads do not share 2 KV heads"):
        uneven.run()
