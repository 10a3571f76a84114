"""The syntax tree of a regular expression, over characters.

Owns the node types and two building helpers. The tree is what a pattern *matches*: groups are
resolved, captures and laziness make no difference to a language and are gone. Assertions (`^`,
`$`, `\\b`, lookaround) stay in the tree, since what they mean depends on where the pattern is used;
`resolve` removes the first three, `automaton` all of them.

Invariants: `Chars.ranges` are sorted, disjoint, inclusive ranges of Unicode scalar values;
`Alternation(())` matches nothing (`NEVER`), `Concat(())` only the empty string (`EMPTY`).

Example::

    >>> concat([Chars(((97, 97),)), EMPTY])
    Chars(ranges=((97, 97),))
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from structspec.records import Hashed, record

__all__ = [
    "ANYTHING",
    "EMPTY",
    "NEVER",
    "Alternation",
    "Chars",
    "Concat",
    "End",
    "Look",
    "Node",
    "Repeat",
    "Start",
    "WordBoundary",
    "alternation",
    "asserts",
    "concat",
    "nullable",
    "width",
]


@record
class Chars(Hashed):
    """One character out of the ranges."""

    ranges: tuple[tuple[int, int], ...]


@record
class Concat(Hashed):
    """All items one after another."""

    items: tuple[Node, ...]


@record
class Alternation(Hashed):
    """Any one of the items."""

    items: tuple[Node, ...]


@record
class Repeat(Hashed):
    """`minimum` to `maximum` copies of the item (None: no upper limit)."""

    item: Node
    minimum: int
    maximum: int | None


@record
class Start:
    """Asserts the start of the text."""


@record
class End:
    """Asserts the end of the text; `or_newline`: or the place before a line feed that ends it."""

    or_newline: bool = False


@record
class WordBoundary:
    """Asserts that exactly one neighbour is in `word` (`negated`: that both or none are)."""

    word: tuple[tuple[int, int], ...]
    negated: bool = False


@record
class Look(Hashed):
    """Asserts that a match of `item` begins here (or, with `behind`, ends here), or does not."""

    item: Node
    behind: bool = False
    negated: bool = False


Node: TypeAlias = Chars | Concat | Alternation | Repeat | Start | End | WordBoundary | Look

EMPTY = Concat(())
NEVER = Alternation(())
ANYTHING = Repeat(Chars(((0, 0xD7FF), (0xE000, 0x10FFFF))), 0, None)


def concat(items: Iterable[Node]) -> Node:
    """A `Concat` without nesting and needless wrapping."""
    flat: list[Node] = []
    for item in items:
        if item == NEVER:
            return NEVER
        flat.extend(item.items if isinstance(item, Concat) else (item,))
    return flat[0] if len(flat) == 1 else Concat(tuple(flat))


def alternation(items: Iterable[Node]) -> Node:
    """An `Alternation` without nesting, duplicates and needless wrapping."""
    flat: dict[Node, None] = {}
    for item in items:
        for part in item.items if isinstance(item, Alternation) else (item,):
            flat.setdefault(part)
    return next(iter(flat)) if len(flat) == 1 else Alternation(tuple(flat))


def asserts(node: Node) -> bool:
    """Does the tree contain an assertion?"""
    if isinstance(node, Concat | Alternation):
        return any(map(asserts, node.items))
    if isinstance(node, Repeat):
        return asserts(node.item)
    return not isinstance(node, Chars)


def nullable(node: Node) -> bool:
    """Does a tree without assertions match the empty string?"""
    if isinstance(node, Concat):
        return all(map(nullable, node.items))
    if isinstance(node, Alternation):
        return any(map(nullable, node.items))
    return isinstance(node, Repeat) and (node.minimum == 0 or nullable(node.item))


def width(node: Node) -> int | None:
    """How many characters every match has; None if that differs."""
    match node:
        case Chars():
            return 1
        case Concat(items):
            widths = [width(item) for item in items]
            return None if None in widths else sum(filter(None, widths))
        case Alternation(items):
            found = {width(item) for item in items}
            return found.pop() if len(found) == 1 else None
        case Repeat(item, minimum, maximum):
            each = width(item)
            if minimum != maximum and each != 0:
                return None
            return None if each is None else each * minimum
    return 0
