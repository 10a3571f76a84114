"""From a regular expression to the grammar IR.

Owns the last step: a tree without assertions becomes IR nodes, characters as UTF-8. Two entry
points: `lower_regex` for texts that match as a whole, `search_regex` for texts that contain a
match, which is what JSON Schema's `pattern` means. Both are over raw characters; how JSON spells
them is the business of that front end.

Invariant: repetitions in the result never repeat something that can be empty: `(a*)*` becomes
`a*`, and `(a?){2,9}` becomes `a{0,9}`, so a counter counts characters that are there.

Cost: linear in the pattern, except for sequences in which everything is optional under a
repetition (quadratic).

Example::

    >>> lower_regex("ab?")
    Sequence(items=(Bytes(value=b'a'), Repeat(item=Bytes(value=b'b'), minimum=0, maximum=1)))
"""

from __future__ import annotations

from structspec import ir
from structspec.frontends.regex.ast import Alternation, Chars, Concat, Node, Repeat, nullable
from structspec.frontends.regex.parse import Dialect, parse
from structspec.frontends.regex.resolve import nonempty, resolve

__all__ = ["lower", "lower_regex", "search_regex"]


def lower_regex(pattern: str, dialect: Dialect = "ecma", *, web: bool = False) -> ir.Node:
    """The IR of the texts that `pattern` matches from start to end.

    Raises `SchemaError` (with the column) for a malformed pattern and `UnsupportedFeature` for a
    construct that cannot be compiled exactly. `web`: see `parse`.
    """
    return lower(resolve(parse(pattern, dialect, web=web)))


def search_regex(pattern: str, dialect: Dialect = "ecma", *, web: bool = False) -> ir.Node:
    """The IR of the texts in which `pattern` matches somewhere. Errors as for `lower_regex`."""
    return lower(resolve(parse(pattern, dialect, web=web), search=True))


def lower(node: Node) -> ir.Node:
    """The IR of a tree without assertions."""
    match node:
        case Chars(ranges):
            if not ranges:
                return ir.NOTHING
            if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
                return ir.Bytes(chr(ranges[0][0]).encode("utf-8"))
            return ir.Chars(ranges)
        case Concat(items):
            return ir.sequence(lower(item) for item in items)
        case Alternation(items):
            parts = [lower(item) for item in items]
            return ir.choice(part for part in parts if part != ir.NOTHING)
        case Repeat(item, minimum, maximum):
            if nullable(item):
                item, minimum = nonempty(item), 0
            return _repeat(lower(item), minimum, maximum)
    raise TypeError(f"{type(node).__name__} is an assertion; resolve it first")


def _repeat(item: ir.Node, minimum: int, maximum: int | None) -> ir.Node:
    if maximum == 0:
        return ir.EPSILON
    if item == ir.NOTHING:
        return ir.EPSILON if minimum == 0 else ir.NOTHING
    if (minimum, maximum) == (1, 1):
        return item
    if minimum == 0 and maximum is None and isinstance(item, ir.Repeat):
        inner = item
        if inner.minimum <= 1 and (inner.maximum is None or inner.minimum == 1):
            return ir.Repeat(inner.item, 0, None)
    return ir.Repeat(item, minimum, maximum)
