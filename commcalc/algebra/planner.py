"""Every way to run a chain of products on a mesh, and the cheapest.

A product can be formed where each axis has one place: on one dimension, the same for every tensor that has it, or in
the pending sum of one operand. Such an *arrangement* says how both operands must lie and how the local product comes
out: an axis on a contracted dimension leaves it a pending sum. A plan is an arrangement for every product of the chain
with the cheapest path to it for each operand, and from it to what is wanted (`search`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import NamedTuple

from commcalc.algebra.search import Prices, Table, backward, forward, key_of
from commcalc.algebra.states import CostOf, Graph, Move, State, arrangements, graph_of


class Factor(NamedTuple):
    """A tensor of the chain: its dimensions, how it lies, and whether a function is applied to it first."""

    name: str
    dims: tuple[str, ...]
    state: State
    whole: bool = False


class Product(NamedTuple):
    """One product of the chain: the dimensions of its left operand and of its result, and the right operand.

    ``name`` is that of the result; ``whole``: a non-linear function follows, so no sum may be pending when the result
    is used; ``kept`` is how the result must lie in between.
    """

    left: tuple[str, ...]
    right: Factor
    out: tuple[str, ...]
    name: str
    whole: bool = False
    kept: State | None = None


class Chain(NamedTuple):
    """``first @ products[0].right @ ...``, on ``axes``, with the sizes of all dimensions; elements of ``bits``."""

    first: Factor
    products: tuple[Product, ...]
    axes: Mapping[str, int]
    sizes: Mapping[str, int]
    bits: int

    def dims(self, at: int) -> tuple[str, ...]:
        """All dimensions of product number ``at``, contracted ones included."""
        product = self.products[at]
        return tuple(dict.fromkeys((*product.left, *product.right.dims)))


class Multiply(NamedTuple):
    """The local product number ``at``: how its operands lie and how it comes out; ``flops`` of one device."""

    at: int
    left: State
    right: State
    out: State
    flops: int


class Moved(NamedTuple):
    """A move of the tensor called ``name`` with dimensions ``dims``."""

    name: str
    dims: tuple[str, ...]
    move: Move


class Plan(NamedTuple):
    """Moves and products in the order they run; ``key`` as in `search`, ``final`` how the result lies."""

    key: int
    events: tuple[Moved | Multiply, ...]
    final: State


class Link(NamedTuple):
    """The way from one tensor of the chain to the next: from ``left`` to ``out``, by an arrangement of a product.

    ``right`` None is no product but a sharding that was asked for in between.
    """

    left: State
    right: State | None
    out: State
    flops: int
    key: int


# FLOPs of one device for one product in the objective's unit; zero where bytes alone count.
ComputeCost = Callable[[int], int]
# Whether the product of this number may take so many FLOPs on one device.
Allowed = Callable[[int, int], bool]


class Grown(NamedTuple):
    """A dimension that is priced at another size than the chain says; both are multiples of all devices."""

    dim: str
    new: int
    old: int


class Planner:
    """The tables of one chain: cheapest ways from its tensors to every arrangement, and on to what is wanted.

    The chain is a row of tensors, joined by links: `ways` come from the start, and `on` lead to the end.
    """

    def __init__(
        self, chain: Chain, cost: CostOf, compute: ComputeCost, allowed: Allowed, grown: Grown | None = None
    ) -> None:
        self.chain = chain
        self.compute = compute
        self.grown = grown
        self._plain = Prices(chain.bits, cost)
        self._more = self._plain if grown is None else Prices(chain.bits, cost, (grown.new, grown.old))
        self.tensors = [(chain.first.name, chain.first.dims, self._graph(chain.first.dims, chain.first.state.pending))]
        self.rights: list[Table] = []
        self.joints: list[list[Link]] = []
        self.products: list[int] = []  # which product a joint is
        for at, product in enumerate(chain.products):
            right = self._graph(product.right.dims, product.right.state.pending)
            prices = self.prices(product.right.dims)
            self.rights.append(forward(right, {product.right.state: 0}, prices))
            self.joints.append(self._links(at, allowed))
            self.products.append(at)
            made = (product.name, product.out, self._graph(product.out, tuple(chain.axes)))
            self.tensors.append(made)
            if product.kept is not None:
                self.joints.append([Link(product.kept, None, product.kept, 0, 0)])
                self.products.append(at)
                self.tensors.append(made)
        self.ways = [forward(self.tensors[0][2], {chain.first.state: 0}, self.prices(chain.first.dims))]
        self.came: list[dict[State, Link]] = []
        for joint, links in enumerate(self.joints):
            starts, chosen = _best((link.out, self._key(self.ways[joint], link.left, link), link) for link in links)
            self.came.append(chosen)
            if joint + 1 < len(self.joints):  # plans walk the last tensor from its end
                _, dims, graph = self.tensors[joint + 1]
                self.ways.append(forward(graph, starts, self.prices(dims)))

    def prices(self, dims: Sequence[str]) -> Prices:
        """What moves of a tensor with ``dims`` cost."""
        return self._more if self.grown is not None and self.grown.dim in dims else self._plain

    def _graph(self, dims: Sequence[str], pendable: Sequence[str]) -> Graph:
        sizes = tuple(self.chain.sizes[dim] for dim in dims)
        return graph_of(sizes, tuple(self.chain.axes.items()), tuple(pendable))

    def _links(self, at: int, allowed: Allowed) -> list[Link]:
        """Every arrangement of product number ``at`` that its right operand can be brought to."""
        chain, product, right = self.chain, self.chain.products[at], self.rights[at]
        dims = chain.dims(at)
        graph = self._graph(dims, ())
        if at == 0:
            mine: Sequence[str] = () if chain.first.whole else chain.first.state.pending
        else:
            mine = () if chain.products[at - 1].whole else tuple(chain.axes)
        yours: Sequence[str] = () if product.right.whole else product.right.state.pending
        total = 2 * prod(chain.sizes[dim] for dim in dims)
        left_at, right_at, out_at = (
            [dims.index(dim) for dim in some] for some in (product.left, product.right.dims, product.out)
        )
        gone = [place for place, dim in enumerate(dims) if dim not in product.out]
        grown = self.grown
        more, less = (grown.new, grown.old) if grown is not None and grown.dim in dims else (1, 1)
        found = []
        for split, held in arrangements(chain.axes, len(dims), graph.divides, (mine, yours)):
            flops = total // prod([graph.ways(axes) for axes in split])
            theirs = State(tuple([split[place] for place in right_at]), tuple(sorted(held[1])))
            key = right.keys.get(theirs)
            if key is None or not allowed(at, flops):
                continue
            summed = [axis for place in gone for axis in split[place]]
            found.append(
                Link(
                    State(tuple([split[place] for place in left_at]), tuple(sorted(held[0]))),
                    theirs,
                    State(tuple([split[place] for place in out_at]), tuple(sorted([*summed, *held[0], *held[1]]))),
                    flops,
                    key + key_of(self.compute(flops * more // less)),
                )
            )
        return found

    @staticmethod
    def _key(table: Table, state: State, link: Link) -> int | None:
        return table.keys[state] + link.key if state in table.keys else None

    def plans(self, target: State | None, most: int | None = None) -> list[Plan]:
        """The cheapest plan through each arrangement of each product, cheapest first, each once; at most ``most``.

        ``target`` None is any sharding without a pending sum.
        """
        _, result, graph = self.tensors[-1]
        ends = [target] if target is not None else [state for state in graph.states() if not state.pending]
        last = len(self.joints)
        on = {last: backward(graph, dict.fromkeys(ends, 0), self.prices(result))}
        goes: dict[int, dict[State, Link]] = {}
        for joint in reversed(range(1, last)):  # before the first joint all is known from the start
            after = on[joint + 1]
            starts, goes[joint] = _best(
                (link.left, self._key(after, link.out, link), link) for link in self.joints[joint]
            )
            _, dims, graph = self.tensors[joint]
            on[joint] = backward(graph, starts, self.prices(dims))
        through = []
        for joint, links in enumerate(self.joints):
            for link in links:
                so_far, rest = self.ways[joint].keys.get(link.left), on[joint + 1].keys.get(link.out)
                if link.right is not None and so_far is not None and rest is not None:
                    through.append((so_far + link.key + rest, joint, link))
        through.sort(key=lambda entry: entry[0])
        found: dict[tuple[Moved | Multiply, ...], Plan] = {}
        for key, joint, link in through[:most]:
            middle = [*self._before(joint, link.left), *self._at(joint, link)]
            after_it, final = self._after(joint + 1, link.out, on, goes)
            events = (*middle, *after_it)
            found.setdefault(events, Plan(key, events, final))
        return list(found.values())

    def _moved(self, tensor: int, moves: Sequence[Move]) -> list[Moved]:
        name, dims, _ = self.tensors[tensor]
        return [Moved(name, dims, move) for move in moves]

    def _at(self, joint: int, link: Link) -> list[Moved | Multiply]:
        """What happens in a link: the right operand is brought, then the local product."""
        if link.right is None:
            return []
        at = self.products[joint]
        right = self.chain.products[at].right
        moved = [Moved(right.name, right.dims, move) for move in self.rights[at].path(link.right)]
        return [*moved, Multiply(at, link.left, link.right, link.out, link.flops)]

    def _before(self, tensor: int, state: State) -> list[Moved | Multiply]:
        """All that leads to ``state`` of tensor number ``tensor``."""
        moves = self.ways[tensor].path(state)
        start = moves[0].start if moves else state
        earlier: list[Moved | Multiply] = []
        if tensor:
            link = self.came[tensor - 1][start]
            earlier = [*self._before(tensor - 1, link.left), *self._at(tensor - 1, link)]
        return [*earlier, *self._moved(tensor, moves)]

    def _after(
        self, tensor: int, state: State, on: Mapping[int, Table], goes: Mapping[int, Mapping[State, Link]]
    ) -> tuple[list[Moved | Multiply], State]:
        """All that follows from ``state`` of tensor number ``tensor``, and how the result lies."""
        moves = on[tensor].way_on(state)
        end = moves[-1].target if moves else state
        events: list[Moved | Multiply] = [*self._moved(tensor, moves)]
        if tensor == len(self.joints):
            return events, end
        link = goes[tensor][end]
        later, final = self._after(tensor + 1, link.out, on, goes)
        return [*events, *self._at(tensor, link), *later], final


def _best(entries: Iterable[tuple[State, int | None, Link]]) -> tuple[dict[State, int], dict[State, Link]]:
    """For each state the least key and the link it belongs to; entries without a key are left out."""
    keys: dict[State, int] = {}
    links: dict[State, Link] = {}
    for state, key, link in entries:
        if key is not None and key < keys.get(state, key + 1):
            keys[state] = key
            links[state] = link
    return keys, links
