"""Repetitions of repetitions as one, so that counts are not ambiguous where they need not be.

`(x*){2,9}` has the texts of `x*`, but every way to share out the copies would be followed.

Example::

    >>> from structspec import ir
    >>> x = ir.Bytes(b"x")
    >>> repeat(ir.Repeat(x, 0, None), 2, 9) == ir.Repeat(x, 0, None)
    True
    >>> repeat(ir.Repeat(x, 0, 1), 2, 9) == ir.Repeat(x, 0, 9)
    True
    >>> repeat(ir.Repeat(x, 2, 3), 0, 9)  # never a single x
    Repeat(item=Repeat(item=Bytes(value=b'x'), minimum=2, maximum=3), minimum=0, maximum=9)
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
        if _without_gaps(low, high, minimum, maximum):
            most = None if high is None or maximum is None else high * maximum
            return repeat(item.item, low * minimum, most)
    if isinstance(item, ir.Choice) and ir.EPSILON in item.items:
        rest = ir.choice(part for part in item.items if part != ir.EPSILON)
        return repeat(rest, 0, maximum)
    return ir.Repeat(item, minimum, maximum)


def _without_gaps(low: int, high: int | None, minimum: int, maximum: int | None) -> bool:
    """Whether `minimum` to `maximum` times `low` to `high` copies are all counts in between.

    k times are k·low to k·high copies, so those of k and k + 1 times must touch; where they do for
    one k they do for all larger ones.
    """
    if maximum == minimum:
        return True
    if high is None:
        return minimum > 0 or low <= 1
    return (minimum + 1) * low <= minimum * high + 1
