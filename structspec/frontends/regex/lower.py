"""From a regular expression to the grammar IR.

Owns the last step: a tree without assertions becomes IR nodes, characters as UTF-8; a tree whose
assertions need an automaton becomes the nodes of that automaton. Two entry
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
from structspec.automata.chardfa import CharDfa
from structspec.errors import UnsupportedFeature
from structspec.frontends.regex.ast import Alternation, Chars, Concat, Node, Repeat, nullable
from structspec.frontends.regex.automaton import language
from structspec.frontends.regex.parse import Dialect, parse
from structspec.frontends.regex.resolve import nonempty, resolve
from structspec.frontends.rules.simplify import repeat

__all__ = ["lower", "lower_dfa", "lower_regex", "search_regex"]


def lower_regex(
    pattern: str, dialect: Dialect = "ecma", *, web: bool = False, flags: str = ""
) -> ir.Node:
    """The IR of the texts that `pattern` matches from start to end.

    Raises `SchemaError` (with the column) for a malformed pattern, `UnsupportedFeature` for a
    construct that cannot be compiled exactly and `BudgetExceeded` for assertions that interact
    too much. `web` and `flags`: see `parse`.
    """
    return _lower(parse(pattern, dialect, web=web, flags=flags), search=False)


def search_regex(
    pattern: str, dialect: Dialect = "ecma", *, web: bool = False, flags: str = ""
) -> ir.Node:
    """The IR of the texts in which `pattern` matches somewhere. Errors as for `lower_regex`."""
    return _lower(parse(pattern, dialect, web=web, flags=flags), search=True)


def _lower(tree: Node, *, search: bool) -> ir.Node:
    try:
        return lower(resolve(tree, search=search))
    except UnsupportedFeature:  # assertions that take a deterministic automaton
        return lower_dfa(language(tree, search=search).dfa)


def lower_dfa(dfa: CharDfa) -> ir.Node:
    """The IR of the strings of an automaton over characters."""
    if dfa.is_empty:
        return ir.NOTHING
    rows = [dfa.edges(state) for state in range(len(dfa.rows))]
    chain: list[ir.Node] = []
    state = 0
    while len(rows[state]) == 1 and state not in dfa.accepting and len(chain) < len(rows):
        ranges, state = rows[state][0]
        chain.append(lower(Chars(ranges)))
    if state in dfa.accepting and not rows[state]:
        return ir.sequence(chain)
    return ir.Automaton(
        tuple(tuple((lower(Chars(ranges)), target) for ranges, target in row) for row in rows),
        dfa.accepting,
    )


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
    return repeat(item, minimum, maximum)
