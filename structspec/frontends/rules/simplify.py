"""Repetitions of repetitions as one, so that counts are not ambiguous where they need not be.

`(x*){2,9}` has the texts of `x*`, but every way to share out the copies would be followed.

Example::

    >>> from structspec import ir
    >>> x = ir.Bytes(b"x")
    >>> repeat(ir.Repeat(x, 0, None), 2, 9) == ir.Repeat(x, 0, None)
    True
    >>> repeat(ir.Repeat(x, 0, 1), 2, 9) == ir.Repeat(x, 0, 9)
    True
"""

from __future__ import annotations

from structspec import ir

__all__ = ["repeat"]


def repeat(item: ir.Node, minimum: int, maximum: int | None) -> ir.Node:
    """`minimum` to `maximum` copies of an item."""
    if maximum == 0 or item == ir.EPSILON:
        return ir.EPSILON
    if (minimum, maximum) == (1, 1):
        return item
    if isinstance(item, ir.Repeat):
        low, high = item.minimum, item.maximum
        if (low, high) == (0, 1):
            return repeat(item.item, 0, maximum)
        if high is None and low <= 1:
            return repeat(item.item, minimum if low else 0, None)
        if maximum is None and minimum <= 1 and low <= 1:
            return repeat(item.item, min(low, minimum), None)
    if isinstance(item, ir.Choice) and ir.EPSILON in item.items:
        rest = ir.choice(part for part in item.items if part != ir.EPSILON)
        return repeat(rest, 0, maximum)
    return ir.Repeat(item, minimum, maximum)
