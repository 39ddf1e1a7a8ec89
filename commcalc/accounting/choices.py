"""What is chosen beside degrees and work: what the optimizer keeps, what lies on the host, what runs at once."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from commcalc.units import Dtype

if TYPE_CHECKING:  # a start is spared the import where nobody asks for a fraction
    from fractions import Fraction

# No master copy, where one would be usual.
NO_MASTER = "none"


class Optimizer(StrEnum):
    """How many moments of a parameter's gradient are kept: two, one or none."""

    ADAM = "adam"
    MOMENTUM = "momentum"
    SGD = "sgd"

    @property
    def moments(self) -> int:
        """Values beside each parameter."""
        return {Optimizer.ADAM: 2, Optimizer.MOMENTUM: 1, Optimizer.SGD: 0}[self]


class Part(StrEnum):
    """What memory holds, and what may lie on the host instead."""

    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer"
    ACTIVATIONS = "activations"
    KV_CACHE = "kv_cache"


class Combine(StrEnum):
    """How the times of groups that communicate beside compute come together: one after another, or all at once.

    The scaling book, part 5, "Combining FSDP and tensor parallelism": its first edition adds them, a later one takes
    the larger.
    """

    ADDED = "added"
    LARGEST = "largest"


class Scores(StrEnum):
    """Which pairs of tokens attention is counted to multiply.

    ``full``: all of them, as MFU is published (Chowdhery et al. 2022, arXiv:2204.02311, appendix B); ``causal``: those
    that the mask leaves, as kernels run it.
    """

    FULL = "full"
    CAUSAL = "causal"


class States(NamedTuple):
    """What lies in memory beside the work itself, and in which types."""

    # None: parameters are stored in the type of the work, by torchtitan in fp32.
    param_dtype: Dtype | None = None
    optimizer: Optimizer = Optimizer.ADAM
    moment_dtype: Dtype = Dtype.FP32
    # None: fp32 where parameters are narrower.
    master_dtype: Dtype | str | None = None
    # A further copy of the gradients that the optimizer reads.
    main_grad_dtype: Dtype | None = None
    # None: the type of the work.
    kv_dtype: Dtype | None = None
    offload: tuple[Part, ...] = ()
    # Memory of the host for each device.
    host_bytes: int | None = None
    must_fit: bool = False

    def master(self, stored: Dtype) -> Dtype | None:
        """The type of the optimizer's own copy of the parameters; None where it has none."""
        if self.master_dtype is None:
            return Dtype.FP32 if stored.bits < Dtype.FP32.bits else None
        return (
            None if isinstance(self.master_dtype, str) and self.master_dtype == NO_MASTER else Dtype(self.master_dtype)
        )


class Clock(NamedTuple):
    """How fast kernels run, and what runs beside them."""

    # Of peak FLOP/s, and of the memory's bandwidth.
    efficiency: "Fraction | int" = 1
    hbm_efficiency: "Fraction | int" = 1
    # Groups whose communication may run beside compute.
    overlap: tuple[str, ...] = ()
    combine: Combine = Combine.ADDED
    scores: Scores = Scores.FULL
    # Tokens of a whole training run.
    train_tokens: int | None = None


class Chip(NamedTuple):
    """What a device offers: peak FLOP/s by type, bytes of memory and their rate; None or absent where not known."""

    flops: Mapping[Dtype, float] = MappingProxyType({})
    hbm_bytes: int | None = None
    hbm_bytes_per_s: float | None = None
