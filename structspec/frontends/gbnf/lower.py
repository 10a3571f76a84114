r"""From the tree of a GBNF grammar to the grammar IR.

Owns `lower_gbnf`. Characters are Unicode characters as UTF-8. `<text>` and `<[id]>` are special
tokens of the vocabulary (`ir.Special` with what stands between the quotes of the notation, angle
brackets included), which no text equals.

`!<token>` means one token of any length, which a grammar over text cannot count. Repeated freely,
as in `!</think>*`, it means any text without that token, and is compiled so; the report says that
other special tokens are not written there. Anywhere else it is refused.

Cost: linear. Sibling: `export`, the way back.

Example::

    >>> grammar, report = lower_gbnf('root ::= "a" | root ";"')
    >>> [entry.note for entry in report]
    ['left recursion rewritten']
"""

from __future__ import annotations

from difflib import get_close_matches

from structspec import ir
from structspec.frontends.gbnf.ast import (
    Class,
    Group,
    Literal,
    Node,
    Reference,
    Repeat,
    Token,
)
from structspec.frontends.gbnf.parse import parse
from structspec.frontends.regex import MOST_COPIES
from structspec.frontends.regex.classes import SCALARS, complement, normalise
from structspec.frontends.rules.finish import finish
from structspec.frontends.rules.names import no_rule
from structspec.frontends.rules.simplify import repeat
from structspec.frontends.rules.source import Source
from structspec.report import Entry, Report

__all__ = ["lower_gbnf"]


def lower_gbnf(text: str, start: str = "root") -> tuple[ir.GrammarIR, Report]:
    """Lower a grammar; the report has one entry per rule.

    Raises `SchemaError` for mistakes and `UnsupportedFeature` for what cannot be exact, both with
    line, column and a caret, and `BudgetExceeded`.
    """
    text = text.removeprefix("\ufeff")  # some editors put a byte order mark in front
    rules = parse(text)
    lowering = _Lowering(Source(text), {rule.name for rule in rules})
    if start not in lowering.names:
        raise lowering.source.error(0, no_rule(start, [rule.name for rule in rules]))
    nodes = {rule.name: lowering.node(rule.body) for rule in rules}
    places = {rule.name: rule.place for rule in rules}
    grammar, entries = finish(nodes, start, lowering.source, places, {})
    return grammar, Report((*entries, *lowering.entries))


class _Lowering:
    def __init__(self, source: Source, names: set[str]) -> None:
        self.source = source
        self.names = names
        self.entries: list[Entry] = []

    def node(self, node: Node) -> ir.Node:
        match node:
            case Literal(text):
                return ir.Bytes(text.encode("utf-8"))
            case Class(ranges, negated):
                inside = normalise(ranges)
                return _chars(complement(inside) if negated else inside)
            case Reference(name, place):
                if name not in self.names:
                    near = get_close_matches(name, self.names, 1)
                    hint = f"; did you mean '{near[0]}'?" if near else ""
                    raise self.source.error(place, f"the rule '{name}' is not defined{hint}")
                return ir.Rule(name)
            case Group(alternatives):
                return ir.choice(
                    ir.sequence(self.node(item) for item in items) for items in alternatives
                )
            case Token(name, negated, place):
                if negated:
                    raise self.source.refusal(
                        f"!{name}",
                        place,
                        "one token can be any number of characters, which a grammar over text "
                        "does not count; repeat it with '*' or '+'",
                    )
                return ir.Special(name)
            case Repeat(item, minimum, maximum, place):
                return self.repeat(item, minimum, maximum, place)
        raise AssertionError(node)

    def repeat(self, item: Node, minimum: int, maximum: int | None, place: int) -> ir.Node:
        if minimum > MOST_COPIES:
            raise self.source.refusal(
                "repetition", place, f"{minimum} copies are more than {MOST_COPIES}, the most that "
                "can be asked for",
            )  # fmt: skip
        token = item
        while isinstance(token, Group) and len(token.alternatives) == 1 == len(
            token.alternatives[0]
        ):
            token = token.alternatives[0][0]
        if isinstance(token, Token) and token.negated and minimum <= 1 and maximum is None:
            line, _ = self.source.position(token.place)
            self.entries.append(
                Entry(
                    f"line {line}",
                    f"!{token.name}",
                    "narrowed",
                    "any text; no special tokens are written here",
                )
            )
            return ir.Repeat(ir.Chars(SCALARS), minimum, None)
        return repeat(self.node(item), minimum, maximum)


def _chars(ranges: tuple[tuple[int, int], ...]) -> ir.Node:
    if not ranges:
        return ir.NOTHING
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return ir.Bytes(chr(ranges[0][0]).encode("utf-8"))
    return ir.Chars(ranges)
