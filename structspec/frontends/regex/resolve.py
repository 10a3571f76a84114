"""Assertions resolved exactly: from a tree with `^`, `$` and `\\b` to one without.

Owns `resolve`. An assertion looks at the characters on both sides of a place, or at the edges of
the text. So a place has a *left* and a *right*: the kind of the character there, or the edge. A
part of a pattern either matches the empty string at one place, or a span between two places. For
a span from a place with left `l` to one with right `r`, whose first and last characters are of
the kinds `f` and `e`:

    span(XY, l, r, f, e) = X empty at (l, f):  span(Y, l, r, f, e)
                         | Y empty at (e, r):  span(X, l, r, f, e)
                         | for all kinds x, y: span(X, l, y, f, x) span(Y, x, r, y, e)

and the language of the pattern is what spans from edge to edge, plus the empty string if the
pattern is empty between two edges. Anchors alone need one kind of character; `\\b` needs two (word
and other). Parts without assertions are not taken apart further than their ends.

Refused: `\\b` inside a repetition that is not short, where the kinds on both sides multiply,
Python's `$` where something follows it, and lookaround. `automaton` resolves those too, at the
price of a deterministic automaton; the tree made here keeps its counters.

Cost: linear in the pattern, times the square of the number of assertions in one sequence.

Example::

    >>> from structspec.frontends.regex.parse import parse
    >>> a = parse("a")
    >>> resolve(parse("^a$")) == a, resolve(parse("a$b*")) == a
    (True, True)
"""

from __future__ import annotations

from typing import Final

from structspec.errors import UnsupportedFeature
from structspec.frontends.regex.ast import (
    EMPTY,
    NEVER,
    Alternation,
    Chars,
    Concat,
    End,
    Look,
    Node,
    Repeat,
    Start,
    WordBoundary,
    alternation,
    asserts,
    concat,
    nullable,
)
from structspec.frontends.regex.classes import SCALARS, Ranges, difference, intersection

__all__ = ["nonempty", "resolve"]

_EDGE: Final = -1
_UNROLL: Final = 4
_ANYTHING: Final = Repeat(Chars(SCALARS), 0, None)


def resolve(node: Node, *, search: bool = False) -> Node:
    """The texts that match as a whole, or, with `search`, that contain a match.

    The result has no assertions; its language is over whole texts either way. Raises
    `UnsupportedFeature` for what only `automaton.language` can resolve.
    """
    _no_lookaround(node)
    if isinstance(node, Alternation) and asserts(node):
        return alternation(resolve(item, search=search) for item in node.items)
    node = _python_end(node, search)
    if search:
        node = concat([_ANYTHING, node, _ANYTHING])
    if not asserts(node):
        return node
    items = list(node.items) if isinstance(node, Concat) else [node]
    while items and isinstance(items[0], Start):
        del items[0]
    while items and isinstance(items[-1], End):
        del items[-1]
    node = concat(items)
    if not asserts(node):
        return node
    words = _word_sets(node)
    if len(words) > 1:  # one pattern is in one dialect
        raise AssertionError("word boundaries of two dialects in one pattern")
    kinds = (words.pop(),) if words else ()
    resolver = _Resolver((kinds[0], difference(SCALARS, kinds[0])) if kinds else (SCALARS,))
    found = [EMPTY] if resolver.empty(node, _EDGE, _EDGE) else []
    each = range(len(resolver.kinds))
    return alternation(
        [*found, *(resolver.span(node, _EDGE, _EDGE, f, e) for f in each for e in each)]
    )


def nonempty(node: Node) -> Node:
    """The language of a tree without assertions, minus the empty string."""
    return _Resolver((SCALARS,)).edges(node, None, None)


class _Resolver:
    """The equations above, memoised. `kinds` is a partition of all characters."""

    def __init__(self, kinds: tuple[Ranges, ...]) -> None:
        self.kinds = kinds
        self._spans: dict[tuple[Node, int, int, int, int], Node] = {}

    def empty(self, node: Node, left: int, right: int) -> bool:
        """Does `node` match the empty string at a place with these neighbours?"""
        match node:
            case Chars():
                return False
            case Concat(items):
                return all(self.empty(item, left, right) for item in items)
            case Alternation(items):
                return any(self.empty(item, left, right) for item in items)
            case Repeat(item, minimum, _):
                return minimum == 0 or self.empty(item, left, right)
            case Start():
                return left == _EDGE
            case End():
                return right == _EDGE
            case WordBoundary(_, negated):
                return ((left == 0) != (right == 0)) != negated
        raise AssertionError(node)

    def span(self, node: Node, left: int, right: int, first: int, last: int) -> Node:
        """The non-empty matches from kind `first` to kind `last` between these neighbours."""
        key = (node, left, right, first, last)
        found = self._spans.get(key)
        if found is None:
            found = self._spans[key] = self._span(*key)
        return found

    def _span(self, node: Node, left: int, right: int, first: int, last: int) -> Node:
        if not asserts(node):
            if len(self.kinds) == 1:
                return self.edges(node, None, None)
            return self.edges(node, first, last)
        match node:
            case Concat(items):
                head, rest = _split(items)
                found = []
                if self.empty(head, left, first):
                    found.append(self.span(rest, left, right, first, last))
                if self.empty(rest, last, right):
                    found.append(self.span(head, left, right, first, last))
                each = range(len(self.kinds))
                for x in each:
                    for y in each:
                        before = self.span(head, left, y, first, x)
                        if before != NEVER:
                            found.append(concat([before, self.span(rest, x, right, y, last)]))
                return alternation(found)
            case Alternation(items):
                return alternation(self.span(i, left, right, first, last) for i in items)
            case Repeat():
                return self._span_repeat(node, left, right, first, last)
        return NEVER  # assertions have no extent

    def _span_repeat(self, node: Repeat, left: int, right: int, first: int, last: int) -> Node:
        item, minimum, maximum = node.item, node.minimum, node.maximum
        if maximum == 0:
            return NEVER
        if len(self.kinds) > 1:
            if maximum is None or maximum > _UNROLL:
                raise UnsupportedFeature(
                    "\\b",
                    "",
                    f"an assertion inside a repetition of more than {_UNROLL} copies, in a "
                    "pattern with a word boundary",
                )
            unrolled = [item] * minimum + [
                alternation([EMPTY, item]) for _ in range(maximum - minimum)
            ]
            return self.span(concat(unrolled), left, right, first, last)
        # Copies that match nothing make up for missing ones at either end of the span.
        if self.empty(item, left, 0) or self.empty(item, 0, right):
            minimum = 0
        found = [self.span(item, left, right, 0, 0)] if minimum <= 1 else []
        if maximum is None or maximum >= 2:
            middle = self.span(item, 0, 0, 0, 0)
            more = None if maximum is None else maximum - 2
            inner = _repeat(middle, max(minimum - 2, 0), more)
            outer = (self.span(item, left, 0, 0, 0), self.span(item, 0, right, 0, 0))
            found.append(concat([outer[0], inner, outer[1]]))
        return alternation(found)

    def edges(self, node: Node, first: int | None, last: int | None) -> Node:
        """Non-empty matches of a tree without assertions; None: any kind at that end."""
        match node:
            case Chars(ranges):
                for kind in {first, last} - {None}:
                    assert kind is not None
                    ranges = intersection(ranges, self.kinds[kind])
                return Chars(ranges) if ranges else NEVER
            case Concat(items):
                return self._edges_concat(items, first, last)
            case Alternation(items):
                return alternation(self.edges(item, first, last) for item in items)
            case Repeat(item, minimum, maximum):
                if maximum == 0:
                    return NEVER
                inner = self.edges(item, None, None)
                minimum = 0 if nullable(item) else minimum
                if first is None and last is None:
                    return _repeat(inner, max(minimum, 1), maximum)
                found = [self.edges(item, first, last)] if minimum <= 1 else []
                if maximum is None or maximum >= 2:
                    more = None if maximum is None else maximum - 2
                    found.append(
                        concat(
                            [
                                self.edges(item, first, None),
                                _repeat(inner, max(minimum - 2, 0), more),
                                self.edges(item, None, last),
                            ]
                        )
                    )
                return alternation(found)
        raise AssertionError(node)

    def _edges_concat(self, items: tuple[Node, ...], first: int | None, last: int | None) -> Node:
        if not items:
            return NEVER
        if first is None and last is None and not all(map(nullable, items)):
            return Concat(items)
        head, rest = items[0], concat(items[1:])
        if len(items) == 1:
            return self.edges(head, first, last)
        found = []
        if first is None and last is None:  # all nullable: the first part that is not empty
            found.append(concat([self.edges(head, None, None), rest]))
            found.append(self.edges(rest, None, None))
            return alternation(found)
        tail = self.edges(rest, None, last)
        if first is None:  # the head may be empty here without losing its constraint
            found.append(concat([head, tail]))
        else:
            found.append(concat([self.edges(head, first, None), tail]))
            if nullable(head):
                found.append(self.edges(rest, first, last))
        if nullable(rest):
            found.append(self.edges(head, first, last))
        return alternation(found)


def _split(items: tuple[Node, ...]) -> tuple[Node, Node]:
    """Head and rest of a sequence; a run of items without assertions is one head."""
    end = 1
    if not asserts(items[0]):
        while end < len(items) and not asserts(items[end]):
            end += 1
    return concat(items[:end]), concat(items[end:])


def _repeat(item: Node, minimum: int, maximum: int | None) -> Node:
    if maximum == 0 or (item == NEVER and minimum == 0):
        return EMPTY
    if item == NEVER:
        return NEVER
    return item if (minimum, maximum) == (1, 1) else Repeat(item, minimum, maximum)


def _word_sets(node: Node) -> set[Ranges]:
    match node:
        case WordBoundary(word, _):
            return {word}
        case Concat(items) | Alternation(items):
            return {ranges for item in items for ranges in _word_sets(item)}
        case Repeat(item, _, _):
            return _word_sets(item)
    return set()


def _python_end(node: Node, search: bool) -> Node:
    """Replace Python's `$` at the end of the pattern; refuse it elsewhere.

    At the end, a whole match leaves nothing after it; a search may leave one line feed.
    """
    match node:
        case End(or_newline=True):
            newline = Repeat(Chars(((10, 10),)), 0, 1)
            return concat([newline, End()]) if search else End()
        case Concat(items) if items:
            for item in items[:-1]:
                _no_python_end(item)
            return concat([*items[:-1], _python_end(items[-1], search)])
        case Alternation(items):
            return alternation(_python_end(item, search) for item in items)
        case Repeat(item, _, _):
            _no_python_end(item)
    return node


def _no_python_end(node: Node) -> None:
    match node:
        case End(or_newline=True):
            raise UnsupportedFeature(
                "$", "", "in Python's dialect only at the end of the pattern; use \\Z"
            )
        case Concat(items) | Alternation(items):
            for item in items:
                _no_python_end(item)
        case Repeat(item, _, _):
            _no_python_end(item)


def _no_lookaround(node: Node) -> None:
    match node:
        case Look(_, behind, _):
            name = "lookbehind" if behind else "lookahead"
            raise UnsupportedFeature(
                name, "", f"a {name} takes an automaton of its own, which is not made here"
            )
        case Concat(items) | Alternation(items):
            for item in items:
                _no_lookaround(item)
        case Repeat(item, _, _):
            _no_lookaround(item)
