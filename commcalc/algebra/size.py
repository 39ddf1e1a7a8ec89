"""Byte counts as formulas over named sizes: ``T*D*2 B``.

A `Size` is a sum of products of named dimensions, divided by mesh axes, times the bits of one element. One
definition, three uses: evaluated with ints it is exact, evaluated with numpy arrays it prices many layouts at once,
printed it is the explanation.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from commcalc.errors import SpecError

# An int, or an integer numpy array; numpy itself is never imported here.
Whole = Any


class Product(NamedTuple):
    """``factor * dims[0] * dims[1] ... / (axes[0] * axes[1] ...)`` elements."""

    factor: int
    dims: tuple[str, ...]
    axes: tuple[str, ...] = ()


class Size(NamedTuple):
    """A number of bytes: the sum of ``products``, times ``bits / 8``."""

    products: tuple[Product, ...]
    bits: int

    def value(self, sizes: Mapping[str, Whole]) -> Whole:
        """The bytes, exact; rounded up once where they do not come out whole.

        ``sizes`` maps every dimension and axis to an int or to an integer array.

        >>> Size((Product(1, ("T", "D")),), 16).value({"T": 8192, "D": 8192})
        134217728
        """
        numerator, denominator = 0, 1
        for product in self.products:
            over, under = product.factor, 1
            for name in product.dims:
                over = over * size_of(name, sizes)
            for name in product.axes:
                under = under * size_of(name, sizes)
            numerator, denominator = numerator * under + over * denominator, denominator * under
        return -(-numerator * self.bits // (denominator * 8))

    def text(self) -> str:
        """The formula in names.

        >>> Size((Product(160, ("D",)), Product(1, ("D",))), 32).text()
        '(160*D + D)*4 B'
        """
        return f"{self._sum(None)}{_element(self.bits)} B"

    def with_values(self, sizes: Mapping[str, int]) -> str:
        """The formula with the sizes put in.

        >>> Size((Product(1, ("T", "D"), ("cp",)),), 16).with_values({"T": 8192, "D": 64, "cp": 2})
        '8192*64/2*2'
        """
        return f"{self._sum(sizes)}{_element(self.bits)}"

    def _sum(self, sizes: Mapping[str, int] | None) -> str:
        terms = [_product_text(product, sizes) for product in self.products]
        return terms[0] if len(terms) == 1 else "(" + " + ".join(terms) + ")"


def _product_text(product: Product, sizes: Mapping[str, int] | None) -> str:
    def shown(name: str) -> str:
        return name if sizes is None else str(size_of(name, sizes))

    factors = [str(product.factor)] if product.factor != 1 or not product.dims else []
    factors += [shown(name) for name in product.dims]
    return "*".join(factors) + "".join("/" + shown(name) for name in product.axes)


def _element(bits: int) -> str:
    return f"*{bits // 8}" if bits % 8 == 0 else f"*{bits}/8"


def size_of(name: str, sizes: Mapping[str, Whole]) -> Whole:
    """The size of a named dimension or axis; `SpecError` where it was never given."""
    try:
        return sizes[name]
    except KeyError:
        raise SpecError(f"the size of {name} is needed and not given") from None


def total(sizes: Iterable[Size]) -> Size:
    """The sum of byte counts with one element width; like products are added up.

    >>> total([Size((Product(80, ("D",)),), 32), Size((Product(80, ("D",)),), 32)]).text()
    '160*D*4 B'
    """
    merged: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = {}
    widths = set()
    for size in sizes:
        widths.add(size.bits)
        for product in size.products:
            key = (product.dims, product.axes)
            merged[key] = merged.get(key, 0) + product.factor
    (bits,) = widths
    return Size(tuple(Product(factor, *key) for key, factor in merged.items()), bits)
