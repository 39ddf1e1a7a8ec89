"""The wire of the simulator: it counts what crosses directed links, step by step, and hands over copies.

An algorithm is a program: a generator that sends through the wire and yields at the end of every round. Programs of
several groups run in lock-step, so that rounds of different groups are the same step (`lock_step`, `run`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Node = int | str
Link = tuple[Node, Node]
Combine = Callable[[Array, Array], Array]

T = TypeVar("T")
Rounds = Generator[None, None, T]

# The node that stands for the switch; it is none of the devices.
SWITCH: Node = "switch"


class Wire:
    """What crossed directed links between nodes so far, in elements of ``bits`` bits.

    ``steps`` are those in which something was sent; ``sent`` and ``received`` are by node, ``links`` by (source,
    target); ``serial`` is the sum over the steps of the busiest link in that step.
    """

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.steps = 0
        self.serial = 0
        self.sent: dict[Node, int] = {}
        self.received: dict[Node, int] = {}
        self.links: dict[Link, int] = {}
        self._now: dict[Link, int] = {}

    def send(self, source: Node, target: Node, data: Array) -> Array:
        """What arrives at ``target``: a copy of ``data``, its elements counted on the link in this step.

        Nothing is counted where there are no elements. `ValueError` where a node sends to itself.
        """
        if source == target:
            raise ValueError(f"node {source!r} sends to itself")
        if data.size:
            link = (source, target)
            self._now[link] = self._now.get(link, 0) + data.size
            self.links[link] = self.links.get(link, 0) + data.size
            self.sent[source] = self.sent.get(source, 0) + data.size
            self.received[target] = self.received.get(target, 0) + data.size
        return data.copy()

    def step(self) -> None:
        """Close a step; one in which nothing was sent does not count."""
        if self._now:
            self.steps += 1
            self.serial += max(self._now.values())
            self._now = {}

    def bytes(self, elements: int) -> int:
        """Whole bytes of so many elements, rounded up once.

        >>> Wire(bits=4).bytes(3)
        2
        """
        return -(-elements * self.bits // 8)

    @property
    def sent_max(self) -> int:
        """The most elements that one device sent; the switch is no device."""
        return max((count for node, count in self.sent.items() if node != SWITCH), default=0)

    @property
    def link_max(self) -> int:
        """The most elements that one directed link carried."""
        return max(self.links.values(), default=0)


def lock_step(programs: Sequence[Rounds[T]]) -> Rounds[list[T]]:
    """Several programs as one: a round of it is the next round of each that still runs. Their results in order."""
    results: dict[int, T] = {}
    running = dict(enumerate(programs))
    while running:
        for index, program in list(running.items()):
            try:
                next(program)
            except StopIteration as end:
                results[index] = end.value
                del running[index]
        if running:
            yield
    return [results[index] for index in range(len(programs))]


def run(wire: Wire, program: Rounds[T]) -> T:
    """Run a program to its end, a step of the wire for every round, and give its result."""
    while True:
        try:
            next(program)
        except StopIteration as end:
            wire.step()
            result: T = end.value
            return result
        wire.step()


def reduce_in_chunks(
    buffers: Sequence[Array],
    chunks: int,
    scatter: Callable[[list[list[Array]]], Rounds[list[Array]]],
    gather: Callable[[list[Array]], Rounds[list[list[Array]]]],
) -> Rounds[list[Array]]:
    """An AllReduce of two halves: every buffer cut into ``chunks``, these scattered as sums, then gathered again."""
    shares = yield from scatter([np.array_split(buffer.ravel(), chunks) for buffer in buffers])
    gathered = yield from gather(shares)
    return [np.concatenate(own).reshape(buffer.shape) for own, buffer in zip(gathered, buffers, strict=True)]
